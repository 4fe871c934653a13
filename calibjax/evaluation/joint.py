"""p-values of several tests, adjusted for one another by the redraws that they share.

Tests with the same random key and number of redraws see the same redrawn data sets, so that these
and the observed one are exchangeable with regard to all tests together. The smallest p-value of
each of them, by its ranks among all, is then a statistic with an exact null distribution.
"""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from calibjax.hypothesis_tests import CalibrationTestResult
from calibjax.hypothesis_tests._redraw.pvalues import largest_scores

_TIED = 1e-5  # relative difference up to which standardised statistics are equal


@dataclasses.dataclass(frozen=True)
class Adjustment:
    """How p-values of tests are adjusted for one another.

    Attributes:
        smallest: of each set of tests that share redraws, the smallest p-value of every data set
            of the pool, sorted, [B + 1].
        set_of: the set of each test, by name.
    """

    smallest: tuple[np.ndarray, ...] = ()
    set_of: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __call__(self, test: str, pvalue: float) -> float:
        """Probability under calibration that any test has a p-value that small.

        It is exact for tests that share their redraws, and multiplied by the number of sets.
        """
        if test not in self.set_of:
            return pvalue
        smallest = self.smallest[self.set_of[test]]
        count = np.searchsorted(smallest, pvalue * (1 + 1e-6), "right")
        return min(1.0, len(self.smallest) * max(1, int(count)) / len(smallest))

    def level(self, test: str, level: float) -> float:
        """The largest p-value of a test that is at most `level` after adjustment."""
        if test not in self.set_of:
            return level
        smallest = self.smallest[self.set_of[test]]
        number = int(level / len(self.smallest) * len(smallest) + 1e-9)
        if number == len(smallest):
            return 1.0
        # All of the next rank are beyond.
        inside = smallest[smallest < smallest[number] * (1 - 1e-6)]
        return float(inside[-1]) if inside.size else 0.0


def adjustment(sets: Iterable[Mapping[str, CalibrationTestResult]]) -> Adjustment:
    """The adjustment for sets of tests that share their redraws each.

    Tests with several statistics take part with the smallest of their adjusted p-values.
    """
    found = [tests for tests in sets if tests]
    smallest = [np.sort(np.min([_ranks(test) for test in tests.values()], 0)) for tests in found]
    places = {name: i for i, tests in enumerate(found) for name in tests}
    return Adjustment(tuple(smallest), places)


def _ranks(test: CalibrationTestResult) -> np.ndarray:
    """p-value of the observed data set, then of each redraw among all the others, [B + 1]."""
    if test.adjusted_pvalue is None or test.components is not None:
        pool = np.append(np.asarray(test.statistic), np.asarray(test.null_samples)).astype(float)
    else:
        pool = largest_scores(test.statistic, test.null_samples).astype(float)
    pool = np.where(np.isnan(pool), np.inf, pool)  # redraws that count against rejection
    ordered = np.sort(pool)
    finite = ordered[np.isfinite(ordered)]
    tolerance = _TIED * np.median(np.abs(finite)) if finite.size else 0.0
    at_least = len(pool) - np.searchsorted(ordered, pool - tolerance, "left")
    return at_least / len(pool)
