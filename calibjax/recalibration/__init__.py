"""Recalibration: pairs of functions `fit` and `apply` that learn to correct predictions."""

from calibjax.recalibration.base import ClassWiseParams, Recalibrator
from calibjax.recalibration.groups import group_wise
from calibjax.recalibration.histogram import BinAccuracies, histogram_binning
from calibjax.recalibration.isotonic import IsotonicMap, isotonic_regression
from calibjax.recalibration.local import LocalAccuracies, local_recalibration
from calibjax.recalibration.powers import tempered
from calibjax.recalibration.sigmoid import SigmoidMap, mmce_scaling, platt_scaling
from calibjax.recalibration.temperature import temperature_scaling

__all__ = [
    "BinAccuracies",
    "ClassWiseParams",
    "IsotonicMap",
    "LocalAccuracies",
    "Recalibrator",
    "SigmoidMap",
    "group_wise",
    "histogram_binning",
    "isotonic_regression",
    "local_recalibration",
    "mmce_scaling",
    "platt_scaling",
    "temperature_scaling",
    "tempered",
]
