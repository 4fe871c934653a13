"""Estimators of calibration errors."""

from calibjax.binnings import EqualMassBins, MedianVarianceBins, UniformBins
from calibjax.estimators.binned import ece, mce
from calibjax.estimators.dispersion import skce_dispersion
from calibjax.estimators.isotonic import isotonic_curve
from calibjax.estimators.kernel import (
    calibration_kernel,
    mmce,
    skce,
    skce_biased,
    skce_block,
)
from calibjax.estimators.kernel_density import kde_calibration_error
from calibjax.estimators.local import lce, local_errors, mlce
from calibjax.estimators.mean_embedding import ucme, witness
from calibjax.estimators.neighbourhoods import Neighbourhood
from calibjax.estimators.probability_integral import pit_values
from calibjax.estimators.reliability import reliability_curve
from calibjax.estimators.uniformity import coverage_curve, pit_counts
from calibjax.lenses import class_wise, top_label

__all__ = [
    "EqualMassBins",
    "MedianVarianceBins",
    "Neighbourhood",
    "UniformBins",
    "calibration_kernel",
    "class_wise",
    "coverage_curve",
    "ece",
    "isotonic_curve",
    "kde_calibration_error",
    "lce",
    "local_errors",
    "mce",
    "mlce",
    "mmce",
    "pit_counts",
    "pit_values",
    "reliability_curve",
    "skce",
    "skce_biased",
    "skce_block",
    "skce_dispersion",
    "top_label",
    "ucme",
    "witness",
]


def __dir__() -> list[str]:
    return __all__
