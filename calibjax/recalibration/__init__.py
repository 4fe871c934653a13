"""Recalibration: pairs of functions `fit` and `apply` that learn to correct predictions."""

from calibjax.recalibration.base import Recalibrator
from calibjax.recalibration.histogram import BinAccuracies, histogram_binning
from calibjax.recalibration.powers import tempered
from calibjax.recalibration.temperature import temperature_scaling

__all__ = [
    "BinAccuracies",
    "Recalibrator",
    "histogram_binning",
    "temperature_scaling",
    "tempered",
]
