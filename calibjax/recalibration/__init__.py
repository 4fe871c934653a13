"""Recalibration: records with methods `fit` and `apply` that learn to correct predictions."""

from calibjax.recalibration.affine import AffineScaling
from calibjax.recalibration.base import Recalibrator
from calibjax.recalibration.beta import BetaCalibration
from calibjax.recalibration.gain import recalibration_gain
from calibjax.recalibration.groups import GroupWise
from calibjax.recalibration.histogram import HistogramBinning
from calibjax.recalibration.isotonic import IsotonicRegression
from calibjax.recalibration.kernel import KernelRecalibration
from calibjax.recalibration.local import LocalRecalibration
from calibjax.recalibration.logits import MatrixScaling
from calibjax.recalibration.quantiles import QuantileRecalibration, QuantileShift
from calibjax.recalibration.sigmoid import MMCEScaling, PlattScaling
from calibjax.recalibration.temperature import TemperatureScaling, temperature_interval
from calibjax.recalibration.venn_abers import VennAbers

__all__ = [
    "AffineScaling",
    "BetaCalibration",
    "GroupWise",
    "HistogramBinning",
    "IsotonicRegression",
    "KernelRecalibration",
    "LocalRecalibration",
    "MMCEScaling",
    "MatrixScaling",
    "PlattScaling",
    "QuantileRecalibration",
    "QuantileShift",
    "Recalibrator",
    "TemperatureScaling",
    "VennAbers",
    "recalibration_gain",
    "temperature_interval",
]


def __dir__() -> list[str]:
    return __all__
