"""Estimators of calibration errors."""

from calibjax.binnings import EqualMassBins, MedianVarianceBins, UniformBins
from calibjax.estimators.binned import debiased_squared_ece, ece, mce
from calibjax.estimators.dispersion import DispersionEstimate, skce_dispersion
from calibjax.estimators.isotonic import IsotonicCurve, isotonic_curve
from calibjax.estimators.kernel import (
    calibration_kernel,
    mmce,
    skce,
    skce_biased,
    skce_block,
)
from calibjax.estimators.kernel_density import kde_calibration_error
from calibjax.estimators.local import LocalErrors, lce, local_errors, mlce
from calibjax.estimators.mean_embedding import ucme, witness
from calibjax.estimators.neighbourhoods import Neighbourhood
from calibjax.estimators.probability_integral import pit_values
from calibjax.estimators.reliability import ReliabilityCurve, reliability_curve
from calibjax.estimators.uniformity import (
    CoverageCurve,
    PITHistogram,
    interval_coverage,
    pit_histogram,
    quantile_coverage,
)
from calibjax.lenses import AtMost, OneVersusRest, class_wise, group_classes, top_label

__all__ = [
    "AtMost",
    "CoverageCurve",
    "DispersionEstimate",
    "EqualMassBins",
    "IsotonicCurve",
    "LocalErrors",
    "MedianVarianceBins",
    "Neighbourhood",
    "OneVersusRest",
    "PITHistogram",
    "ReliabilityCurve",
    "UniformBins",
    "calibration_kernel",
    "class_wise",
    "debiased_squared_ece",
    "ece",
    "group_classes",
    "interval_coverage",
    "isotonic_curve",
    "kde_calibration_error",
    "lce",
    "local_errors",
    "mce",
    "mlce",
    "mmce",
    "pit_histogram",
    "pit_values",
    "quantile_coverage",
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
