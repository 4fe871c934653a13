"""Tests of the null hypothesis that a model is calibrated, and confidence intervals.

| tests | predictions |
| --- | --- |
| tests and intervals of the SKCE, `exact_test`, `group_calibration_test` | all except quantiles |
| `ensemble_skce_test`, `rank_histogram_test` | ensembles of numbers or vectors |
| `e_process` | classes, numbers, ensembles of numbers, normal vectors |
| `coverage_test` | quantiles |
| `local_calibration_test` | confidences of `top_label` |
| `spiegelhalter`, `hosmer_lemeshow`, `cox`, `cumulative_difference` | one probability |
| `pit_ks` | numbers, counts, ensembles of numbers |
| `berkowitz` | continuous numbers |

Predictions of vectors have targets [n, d]. Tests of the SKCE, `exact_test`,
`group_calibration_test` and tests of ensembles accept them.
"""

from calibjax.hypothesis_tests.aggregated import aggregated_skce_test, composite_calibration_test
from calibjax.hypothesis_tests.asymptotic import (
    asymptotic_skce_test,
    cme_test,
    consistency_test,
    skce_margin_test,
)
from calibjax.hypothesis_tests.ensembles import (
    cluster_skce_test,
    ensemble_skce_test,
    rank_histogram_test,
)
from calibjax.hypothesis_tests.exact import exact_skce_test, exact_test, power_curve
from calibjax.hypothesis_tests.groups import (
    coverage_test,
    group_calibration_test,
    local_calibration_test,
    witness_test,
)
from calibjax.hypothesis_tests.intervals import (
    distribution_free_skce_test,
    gain_difference,
    score_difference,
    skce_confidence_interval,
    skce_difference,
)
from calibjax.hypothesis_tests.sequential import e_process
from calibjax.hypothesis_tests.statistics import (
    berkowitz,
    calibration_slope_intercept,
    cox,
    cumulative_difference,
    hosmer_lemeshow,
    pit_ks,
    spiegelhalter,
)

__all__ = [
    "aggregated_skce_test",
    "asymptotic_skce_test",
    "berkowitz",
    "calibration_slope_intercept",
    "cluster_skce_test",
    "cme_test",
    "composite_calibration_test",
    "consistency_test",
    "coverage_test",
    "cox",
    "cumulative_difference",
    "distribution_free_skce_test",
    "e_process",
    "ensemble_skce_test",
    "exact_skce_test",
    "exact_test",
    "gain_difference",
    "group_calibration_test",
    "hosmer_lemeshow",
    "local_calibration_test",
    "pit_ks",
    "power_curve",
    "rank_histogram_test",
    "score_difference",
    "skce_confidence_interval",
    "skce_difference",
    "skce_margin_test",
    "spiegelhalter",
    "witness_test",
]


def __dir__() -> list[str]:
    return __all__
