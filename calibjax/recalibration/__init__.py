"""Recalibration: records with methods `fit` and `apply` that correct predictions."""

from calibjax.recalibration.base import Recalibrator
from calibjax.recalibration.classes import MatrixScaling, TemperatureScaling, temperature_interval
from calibjax.recalibration.confidences import (
    BetaCalibration,
    HistogramBinning,
    IsotonicRegression,
    PlattScaling,
    VennAbers,
)
from calibjax.recalibration.local import GroupWise, LocalRecalibration, recalibration_gain
from calibjax.recalibration.numbers import (
    AffineScaling,
    KernelRecalibration,
    QuantileRecalibration,
    QuantileShift,
)

__all__ = [
    "AffineScaling",
    "BetaCalibration",
    "GroupWise",
    "HistogramBinning",
    "IsotonicRegression",
    "KernelRecalibration",
    "LocalRecalibration",
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
