"""Recalibration: records with methods `fit` and `apply` that learn to correct predictions."""

from calibjax.recalibration.affine import AffineMap, AffineScaling
from calibjax.recalibration.base import ClassWiseParams, Recalibrator
from calibjax.recalibration.groups import GroupWise
from calibjax.recalibration.histogram import BinAccuracies, HistogramBinning
from calibjax.recalibration.isotonic import IsotonicMap, IsotonicRegression
from calibjax.recalibration.local import LocalAccuracies, LocalRecalibration
from calibjax.recalibration.powers import tempered
from calibjax.recalibration.sigmoid import MMCEScaling, PlattScaling, SigmoidMap
from calibjax.recalibration.temperature import TemperatureScaling

__all__ = [
    "AffineMap",
    "AffineScaling",
    "BinAccuracies",
    "ClassWiseParams",
    "GroupWise",
    "HistogramBinning",
    "IsotonicMap",
    "IsotonicRegression",
    "LocalAccuracies",
    "LocalRecalibration",
    "MMCEScaling",
    "PlattScaling",
    "Recalibrator",
    "SigmoidMap",
    "TemperatureScaling",
    "tempered",
]


def __dir__() -> list[str]:
    return __all__
