"""Tests of the null hypothesis that a model is calibrated."""

from calibjax.hypothesis_tests.asymptotic import block_skce_test, bootstrap_skce_test
from calibjax.hypothesis_tests.exact import exact_skce_test, exact_test
from calibjax.hypothesis_tests.result import CalibrationTestResult

__all__ = [
    "CalibrationTestResult",
    "block_skce_test",
    "bootstrap_skce_test",
    "exact_skce_test",
    "exact_test",
]
