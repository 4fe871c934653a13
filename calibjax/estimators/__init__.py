"""Estimators of calibration errors.

| estimators | predictions | targets |
| --- | --- | --- |
| `skce`, `skce_biased`, `skce_block`, `skce_dispersion` | all except quantiles | [n] or [n, d] |
| `ucme`, `witness` | all except quantiles | [n] or [n, d] |
| `ece`, `mce` | classes | labels [n] |
| `reliability_curve` | one probability | labels [n] |
| `isotonic_curve` | one probability, or numbers | labels or numbers [n] |
| `lce`, `mlce`, `local_errors`, `kernel.mmce` | confidences of `top_label` | correctness [n] |
| `pit_values` | numbers, counts, quantiles, ensembles of numbers | [n] |

Targets [n, d] belong to predictions of vectors, such as `MvNormal` and `Ensemble` of vectors.
"""

from calibjax.binnings import EqualMassBins, MedianVarianceBins, UniformBins
from calibjax.estimators.binned import ece, mce
from calibjax.estimators.curves import isotonic_curve, reliability_curve
from calibjax.estimators.kernel import (
    calibration_kernel,
    skce,
    skce_biased,
    skce_block,
    skce_dispersion,
    ucme,
    witness,
)
from calibjax.estimators.local import Neighbourhood, lce, local_errors, mlce
from calibjax.estimators.pit import coverage_curve, pit_counts, pit_values
from calibjax.reductions import class_wise, top_label

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
    "lce",
    "local_errors",
    "mce",
    "mlce",
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
