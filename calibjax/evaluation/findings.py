"""The numbers that the sentences of a report are made of, and their p-values.

Tests with the same random key and number of redraws see the same redrawn data sets, so that these
and the observed one are exchangeable with regard to all tests together. The smallest p-value of
each of them, by its ranks among all, is then a statistic with an exact null distribution, by which
p-values of several tests are adjusted for one another.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from calibjax.evaluation.entries import Entry
from calibjax.hypothesis_tests import CalibrationTestResult
from calibjax.hypothesis_tests._redraw.pvalues import largest_scores

IDLE = (
    "No temperature changes these predictions: they are all 0 or 1, give all classes the same "
    "probability, or are uniform distributions or ensembles whose members agree."
)
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


def adjustment(tests: Mapping[tuple[str, str], CalibrationTestResult]) -> Adjustment:
    """The adjustment for tests by what they redraw, which share their redraws, and by their names.

    Tests with several statistics take part with the smallest of their adjusted p-values.
    """
    sets: dict[str, dict[str, np.ndarray]] = {}
    for (redrawn, name), test in tests.items():
        sets.setdefault(redrawn, {})[name] = _ranks(test)
    smallest = [np.sort(np.min([*ranks.values()], 0)) for ranks in sets.values()]
    places = {name: i for i, ranks in enumerate(sets.values()) for name in ranks}
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


@dataclasses.dataclass(frozen=True)
class MeanError:
    """What was predicted on average and what was observed.

    Attributes:
        name: of what: a class, the top label, a coordinate of the targets.
        predicted: mean prediction.
        observed: mean of the targets.
        pvalue: exact p-value of the difference.
    """

    name: str
    predicted: float
    observed: float
    pvalue: float

    @property
    def error(self) -> float:
        """Observed minus predicted."""
        return self.observed - self.predicted


@dataclasses.dataclass(frozen=True)
class GroupError:
    """A mean error in a group.

    Attributes:
        group: its name.
        kind: "bias", "confidence", "class", or "PIT".
        name: of the class or of the coordinate of the targets; empty if there is one only.
        error: observed minus predicted.
        pvalue: exact p-value of the error.
    """

    group: str
    kind: str
    name: str
    error: float
    pvalue: float


@dataclasses.dataclass(frozen=True)
class Coverage:
    """Targets in the central intervals.

    Attributes:
        nominal: predicted share.
        observed: share of the targets.
        below: share of the targets below the intervals, minus the predicted one.
        above: the same above the intervals.
        pvalue: exact p-value of the coverage.
    """

    nominal: float
    observed: float
    below: float
    above: float
    pvalue: float


@dataclasses.dataclass(frozen=True)
class PlaceError:
    """An event that occurs more or less often than predicted, see `places`.

    Attributes:
        event: what occurs.
        region: where, empty if everywhere.
        number: of the samples there.
        predicted: mean of the predicted probabilities.
        observed: share of the samples in which it occurred.
        pvalue: of the difference, adjusted for all places that were looked at.
    """

    event: str
    region: str
    number: int
    predicted: float
    observed: float
    pvalue: float


@dataclasses.dataclass(frozen=True)
class Findings:
    """What the sentences of a report are made of; what was not computed is None, or empty.

    Attributes:
        task: see `Evaluation.task`.
        num_samples: n.
        pvalue: of the exact test of all errors together.
        direction: what that test is largest for, in words, see `SKCEComponents.direction_of`.
        direction_pvalue: of this, adjusted for all kernels of that test.
        top_label: mean confidence and accuracy.
        classes: frequencies of the classes.
        bias: means of the targets, or of their coordinates.
        deviation: typical predicted standard deviation, in whose units biases are told.
        spread: that of the residuals, see `residual_spread`.
        median: share of targets up to the predicted median.
        quantiles: the same of the other quantiles, of predictions of them.
        coverage: of the central intervals.
        groups: mean errors in groups.
        features: p-value of the exact test given the features.
        features_low: lower limit of the SKCE given the features, above zero if samples with similar
            features are off in the same way, and not only all samples.
        local: p-value of the largest local error of the top label.
        ece: that of the top label, or of two classes.
        num_impossible: number of targets whose predicted probability, or density, was zero.
        temperature: with its interval.
        gain: of held-out predictions by the temperature.
        gain_unit: of which score.
        is_idle: whether no temperature changes the predictions.
        repair: which recalibration repairs the predictions, in words; or empty.
        places: where the predictions are wrong, if no other sentence names an error.
        adjustment: how the p-values of the tests are adjusted for one another.
    """

    task: str
    num_samples: int
    pvalue: float | None = None
    direction: str = ""
    direction_pvalue: float | None = None
    top_label: MeanError | None = None
    classes: tuple[MeanError, ...] = ()
    bias: tuple[MeanError, ...] = ()
    deviation: float | None = None
    spread: Entry | None = None
    median: MeanError | None = None
    quantiles: tuple[MeanError, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    groups: tuple[GroupError, ...] = ()
    features: float | None = None
    features_low: float | None = None
    local: float | None = None
    ece: Entry | None = None
    num_impossible: int = 0
    temperature: Entry | None = None
    gain: Entry | None = None
    gain_unit: str = ""
    is_idle: bool = False
    repair: str = ""
    places: tuple[PlaceError, ...] = ()
    adjustment: Adjustment = Adjustment()
