"""Recalibration: records with methods `fit` and `apply` that learn to correct predictions."""

from calibjax.recalibration.affine import AffineMap, AffineScaling
from calibjax.recalibration.base import ClassWiseParams, Recalibrator
from calibjax.recalibration.beta import BetaCalibration, BetaMap
from calibjax.recalibration.gain import Gain, cross_fitted, recalibration_gain
from calibjax.recalibration.groups import GroupWise
from calibjax.recalibration.histogram import BinAccuracies, HistogramBinning
from calibjax.recalibration.isotonic import IsotonicMap, IsotonicRegression
from calibjax.recalibration.kernel import KernelRecalibration, LocalScores
from calibjax.recalibration.local import LocalAccuracies, LocalRecalibration
from calibjax.recalibration.logits import BiasScaling, LogitMap, MatrixScaling, VectorScaling
from calibjax.recalibration.powers import tempered
from calibjax.recalibration.quantiles import QuantileRecalibration, QuantileShift, Shifts
from calibjax.recalibration.sigmoid import MMCEScaling, PlattScaling, SigmoidMap
from calibjax.recalibration.temperature import TemperatureScaling
from calibjax.recalibration.venn_abers import CalibrationSamples, VennAbers

__all__ = [
    "AffineMap",
    "AffineScaling",
    "BetaCalibration",
    "BetaMap",
    "BiasScaling",
    "BinAccuracies",
    "CalibrationSamples",
    "ClassWiseParams",
    "Gain",
    "GroupWise",
    "HistogramBinning",
    "IsotonicMap",
    "IsotonicRegression",
    "KernelRecalibration",
    "LocalAccuracies",
    "LocalRecalibration",
    "LocalScores",
    "LogitMap",
    "MMCEScaling",
    "MatrixScaling",
    "PlattScaling",
    "QuantileRecalibration",
    "QuantileShift",
    "Recalibrator",
    "Shifts",
    "SigmoidMap",
    "TemperatureScaling",
    "VectorScaling",
    "VennAbers",
    "cross_fitted",
    "recalibration_gain",
    "tempered",
]


def __dir__() -> list[str]:
    return __all__
