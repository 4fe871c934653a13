"""Sentences of reports, from numbers of models that are wrong in a known way."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from calibjax.distributions import Normal
from calibjax.evaluation.data import checked_data
from calibjax.evaluation.kernel_tests import _has_shape
from calibjax.evaluation.record import Entry
from calibjax.evaluation.sentences import (
    _TESTS,
    Adjustment,
    Coverage,
    Findings,
    GroupError,
    MeanError,
    PlaceError,
    _tests,
    alike,
    names_an_error,
    percents,
    sentences,
)


def _entry(value, low=None, high=None, by_chance=None, pvalue=None):
    return Entry("", value, low=low, high=high, by_chance=by_chance, pvalue=pvalue)


def _times(number):
    """As if tests were independent: p-values are multiplied by their number."""
    return Adjustment((np.arange(1, 1001) / 1000 / number,), dict.fromkeys(_TESTS, 0))


CLASSES = Findings(
    "classification",
    1000,
    pvalue=0.5,
    top_label=MeanError("top label", 0.7, 0.69, 0.6),
    classes=tuple(MeanError(f"class {c}", 0.25, 0.25, 0.9) for c in range(4)),
    ece=_entry(0.03, by_chance=(0.01, 0.04)),
    temperature=_entry(1.02, 0.95, 1.09),
    gain=_entry(-0.001, -0.002, 0.001),
    gain_unit="log score, nats",
    adjustment=_times(2),
)
NUMBERS = Findings(
    "regression",
    400,
    pvalue=0.4,
    bias=(MeanError("", 1.0, 1.01, 0.7),),
    deviation=0.5,
    spread=_entry(1.01, pvalue=0.8),
    median=MeanError("", 0.5, 0.49, 0.8),
    coverage=(Coverage(0.95, 0.94, 0.0, 0.01, 1.0), Coverage(0.9, 0.89, 0.0, 0.01, 1.0)),
    temperature=_entry(1.02, 0.9, 1.2),
    gain=_entry(-0.001, -0.002, 0.001),
    gain_unit="log score, nats",
    adjustment=_times(4),
)


def _told(findings, **changes):
    found = dataclasses.replace(findings, **changes)
    found = dataclasses.replace(found, adjustment=_times(max(1, len(_tests(found)))))
    return " ".join(sentences(found))


@pytest.mark.parametrize("findings", [CLASSES, NUMBERS])
def test_nothing_found_does_not_say_that_the_model_is_calibrated(findings):
    told = _told(findings)
    assert told.startswith("No miscalibration was found in")
    assert "This does not show that the model is calibrated." in told
    assert "The model is" not in told
    assert "wrong" not in told


def test_overconfident():
    told = _told(
        CLASSES,
        pvalue=0.001,
        top_label=MeanError("top label", 0.841, 0.763, 0.001),
        ece=_entry(0.081, by_chance=(0.012, 0.034)),
        temperature=_entry(1.32, 1.21, 1.44),
        gain=_entry(0.021, 0.012, 0.030),
    )
    assert told.startswith("The model is not calibrated: the exact test of all errors together")
    assert "rejects calibration on 1000 predictions (p = 0.002)" in told  # one of two tests
    assert "overconfident: its mean confidence is 84.1 %, but it is right in only" in told
    assert "76.3 % of the cases" in told
    assert "is 0.081; for a calibrated model it would lie between 0.012 and 0.034" in told
    assert "1.32 (95 % interval 1.21 to 1.44)" in told
    assert "lowers the log score (nats per sample) by 0.021 (95 % interval 0.012 to 0.030)" in told
    assert "2 tests" in told


def test_underconfident():
    told = _told(CLASSES, pvalue=0.001, top_label=MeanError("top label", 0.6, 0.72, 0.001))
    assert "underconfident: its mean confidence is 60 %, while it is right in 72 %" in told


@pytest.mark.parametrize(
    ("findings", "direction", "words"),
    [
        (CLASSES, "overconfident: temperature", "the model is overconfident (score of the temp"),
        (CLASSES, "underconfident", "the model is underconfident (p = 0.002)."),
        (CLASSES, "class 3 too probable", "class 3 is too probable (p = 0.002)."),
        (CLASSES, "probabilities too large", "the probabilities are too large (p = 0.002)."),
        (CLASSES, "similar predictions share the same error", "similar predictions share"),
        (NUMBERS, "predictions too small: shift", "the predictions are too small (score of the"),
        (
            NUMBERS,
            "predictions too narrow where they are large, too wide where they are small: scale",
            "the predictions are too narrow where they are large, too wide where they are small (",
        ),
    ],
)
def test_direction_of_the_test_of_all_errors(findings, direction, words):
    found = {"pvalue": 0.001, "direction": direction}
    told = _told(findings, **found, direction_pvalue=0.002 / len(_tests(findings)))
    assert f"The clearest finding of this test: {words}" in told
    told = _told(findings, **found, direction_pvalue=0.04)
    assert "clearest" not in told


def test_directions_are_not_told_twice():
    found = {"pvalue": 0.001, "bias": (MeanError("", 1.0, 1.3, 0.001),), "direction_pvalue": 0.001}
    assert "clearest" not in _told(NUMBERS, **found, direction="predictions too small: shift")
    direction = "predictions too small where they are large, too large where they are small: shift"
    assert "where they are large" in _told(NUMBERS, **found, direction=direction)
    direction = "predictions too skewed to the right: skewness"
    told = _told(NUMBERS, **found, spread=_entry(1.4, pvalue=0.001), direction=direction)
    assert "The predicted distributions are too narrow" in told
    assert "the predictions are too skewed to the right (score of the skewness" in told


@pytest.mark.parametrize(
    ("scale", "power", "is_told"),
    [(0.1, 1, False), (1.0, 3, True), (0.4, 3, True), (9.0, 1, False)],
)
def test_shapes_that_a_scale_explains_are_not_told(scale, power, is_told):
    """Normal targets that scatter much less or more, and scores to the power of three."""
    levels = (np.arange(60) + 0.5) / 60
    scores = scipy.special.ndtri(levels) ** power
    targets = jnp.asarray(scale * scores / scores.std())
    predictions = Normal(jnp.zeros(60), jnp.ones(60))
    data = checked_data(jax.random.key(0), predictions, targets, None, None, None)
    assert _has_shape(data, "peakedness") == is_told


@pytest.mark.parametrize("pvalue", [0.001, 0.5])
def test_intervals_that_do_not_exist_are_not_told(pvalue):
    unknown = _entry(1.0, float("nan"), float("nan"))
    for gain in (_entry(0.0, 0.0, 0.0), unknown):
        assert "nan" not in _told(CLASSES, pvalue=pvalue, temperature=unknown, gain=gain)
    told = _told(CLASSES, pvalue=0.001, temperature=None, gain=None, is_idle=True)
    assert "No temperature changes these predictions" in told


def test_errors_that_no_temperature_repairs():
    told = _told(CLASSES, pvalue=0.001)
    assert "1.02 (95 % interval 0.95 to 1.09): rescaling does not repair these errors." in told
    assert "PlattScaling or IsotonicRegression" in told


def test_what_repairs_is_told_of_what_is_wrong():
    told = "The recalibration 'affine' repairs it (p = 0.4 afterwards)."
    assert told in _told(CLASSES, pvalue=0.001, repair=told)
    assert told not in _told(CLASSES, pvalue=0.5, repair=told)
    both = _told(CLASSES, pvalue=0.001, repair=told)
    assert "rest on, except for that after recalibration." in both


@pytest.mark.parametrize("pvalue", [0.001, 0.5])
def test_impossible_outcomes_are_counted(pvalue):
    told = _told(CLASSES, pvalue=pvalue, num_impossible=3)
    assert "3 of 1000 samples had a predicted probability of 0 for what happened, which" in told
    assert "the log score is infinite." in told
    assert told.startswith("The model is not calibrated")
    assert "predicted probability density of 0" in _told(NUMBERS, num_impossible=1)
    assert "what happened" not in _told(CLASSES, pvalue=pvalue)


def test_gain_that_is_not_clear():
    unclear = _entry(0.02, -0.01, 0.05)
    told = _told(CLASSES, pvalue=0.001, temperature=_entry(1.5, 1.1, 1.9), gain=unclear)
    assert "whether it lowers the log score (nats per sample) is not clear" in told


def test_one_class():
    classes = list(CLASSES.classes)
    classes[3] = MeanError("class 3", 0.124, 0.081, 0.004)
    told = _told(CLASSES, classes=tuple(classes))
    assert "exact test of the mean errors rejects" in told
    assert "although that of all errors together does not (p = 1)" in told
    assert "Class 3 is overestimated: its predicted probability is 12.4 % on average" in told
    assert "its frequency 8.1 % (p = 0.008)" in told
    assert "lass 2" not in told


def test_many_classes_are_counted():
    classes = tuple(MeanError(f"class {c}", 0.2, 0.1, 0.001) for c in range(8))
    told = _told(CLASSES, classes=classes)
    assert told.count("overestimated") == 5
    assert "3 more classes are wrong on average." in told


@pytest.mark.parametrize(("observed", "word"), [(1.3, "higher"), (0.7, "lower")])
def test_shifted(observed, word):
    told = _told(
        NUMBERS,
        pvalue=0.001,
        bias=(MeanError("", 1.0, observed, 0.001),),
        # Shifts move targets out of the intervals, on one side.
        coverage=(Coverage(0.9, 0.8, -0.03, 0.13, 0.001),),
    )
    assert f"The targets are {word} than predicted, by 0.3 on average, or 0.6 predicted" in told
    assert "too narrow" not in told
    assert "The central 90 % intervals contain 80 % of the targets" in told


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1.4, "too narrow: the targets scatter 1.40"),
        (0.7, "too wide: the targets scatter only 0.70"),
    ],
)
def test_width(value, words):
    told = _told(
        NUMBERS,
        pvalue=0.001,
        spread=_entry(value, pvalue=0.001),
        temperature=_entry(value**2, value**2 - 0.1, value**2 + 0.1),
        gain=_entry(0.1, 0.05, 0.15),
    )
    assert words in told


@pytest.mark.parametrize(
    ("tails", "word"), [((0.1, 0.1), "too narrow"), ((-0.04, -0.04), "too wide"), ((0.2, 0), None)]
)
def test_width_of_ensembles_by_both_tails(tails, word):
    coverage = (Coverage(0.9, 0.9 - sum(tails), *tails, 0.001),)
    told = _told(NUMBERS, task="ensembles", bias=(), spread=None, coverage=coverage)
    assert (word in told) if word else ("too" not in told)


def test_median_where_there_are_no_means():
    told = _told(NUMBERS, bias=(), median=MeanError("", 0.5, 0.35, 0.001))
    assert "The targets tend to be higher than predicted: 35 % of them are at most" in told


def test_one_group():
    groups = (GroupError("group A", "confidence", "", -0.123, 0.001),)
    groups += (GroupError("group A", "class", "class 1", 0.04, 0.2),)
    groups += (GroupError("group B", "confidence", "", 0.01, 0.9),)
    told = _told(CLASSES, groups=groups)
    assert "In group A the model is overconfident: its accuracy is 12.3 percentage" in told
    assert "group B" not in told
    assert "class 1 is" not in told


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("bias", "In group A the targets are higher than predicted, by 0.2 on average"),
        ("PIT", "their mean rank within the predicted distributions is 70 % instead of 50 %"),
        ("class", "In group A class 1 is underestimated by 20.0 percentage points on average"),
    ],
)
def test_kinds_of_errors_of_groups(kind, words):
    name = "class 1" if kind == "class" else ""
    assert words in _told(NUMBERS, groups=(GroupError("group A", kind, name, 0.2, 0.001),))


def test_no_group():
    groups = tuple(GroupError(f"group {g}", "class", "class 1", 0.04, 0.2) for g in "AB")
    told = _told(CLASSES, groups=groups)
    assert "In none of the 2 groups was an error found (smallest p = 0.6)." in told


def test_features_are_blamed_only_for_what_depends_on_them():
    specific, other = {"features_low": 0.1}, {"features_low": -0.1}
    assert "Given the features, the predictions are wrong" in _told(
        CLASSES, features=0.001, **other
    )
    assert "features" not in _told(CLASSES, pvalue=0.001, features=0.001, **other)
    assert "Samples with similar features share the same error" in _told(
        CLASSES, pvalue=0.001, features=0.001, **specific
    )
    assert "No error that depends on the features was found" in _told(CLASSES, features=0.5)


def test_local_errors():
    words = "There are regions of the features in which the confidence is wrong (p = 0.004)"
    assert words in _told(CLASSES, features=0.5, local=0.001)
    assert words not in _told(CLASSES, features=0.5, local=0.001, pvalue=0.001)


def test_pvalues_are_adjusted_for_the_number_of_tests():
    # 0.03 is not enough for one of two tests.
    assert _told(CLASSES, pvalue=0.03).startswith("No miscalibration was found")
    assert _told(CLASSES, pvalue=0.02).startswith("The model is not calibrated")
    groups = (GroupError("group A", "class", "class 1", 0.0, 0.5),)
    assert "adjusted for the 5 tests" in _told(CLASSES, groups=groups, features=0.5, local=0.5)


PLACE = PlaceError("targets around 85 (between 60 and 110)", "", 221, 0.18, 0.267, 0.01)


def test_places():
    found = dataclasses.replace(NUMBERS, pvalue=0.001)
    assert not names_an_error(found)
    told = _told(found, places=(PLACE,))
    assert (
        "Targets around 85 (between 60 and 110) occur more often than predicted: in 26.7 %" in told
    )
    assert "of the 221 samples, while 18.0 % were predicted (p = 0.01)." in told
    assert "4 tests that these sentences rest on, except for those of places" in told
    region = PlaceError("class 5", "where class 3 is the most probable one", 70, 0.2, 0.1, 0.01)
    told = _told(CLASSES, pvalue=0.001, places=(region,))
    assert "Class 5 occurs less often than predicted where class 3 is the most probable" in told
    assert "in 10 % of these 70 samples, while 20 % were predicted" in told


def test_no_place_stands_out():
    told = _told(NUMBERS, pvalue=0.001, places=(dataclasses.replace(PLACE, pvalue=0.3),))
    assert "No single place explains this." in told
    assert "a calibrated model may show by chance (p = 0.3): targets around 85" in told


@pytest.mark.parametrize("findings", [CLASSES, NUMBERS])
def test_errors_that_have_a_name(findings):
    assert names_an_error(findings)  # there is none
    assert not names_an_error(dataclasses.replace(findings, pvalue=0.001))
    group = GroupError("group A", "class", "class 1", 0.2, 0.001)
    assert names_an_error(dataclasses.replace(findings, pvalue=0.001, groups=(group,)))
    if findings.task == "regression":
        wide = {"spread": _entry(0.7, pvalue=0.001)}
    else:
        wide = {"top_label": MeanError("top label", 0.9, 0.8, 0.001)}
    assert names_an_error(dataclasses.replace(findings, pvalue=0.001, **wide))
    found = dataclasses.replace(findings, pvalue=0.001, direction_pvalue=0.001)
    assert names_an_error(dataclasses.replace(found, direction="overconfident"))
    alike = "similar predictions share the same error"
    assert not names_an_error(dataclasses.replace(found, direction=alike))


def test_numbers_that_are_compared_have_the_same_decimals():
    assert percents(0.953, 0.96) == ("95.3 %", "96.0 %")
    assert percents(0.9, 0.8) == ("90 %", "80 %")
    assert alike(0.021, 0.012, 0.03) == ["0.021", "0.012", "0.030"]
    assert alike(123.4, -1.2) == ["123", "-1"]
    assert alike(0.2, 0.0012) == ["0.200", "0.001"]
    assert alike(0.0, 0.0) == ["0", "0"]
    assert alike(2e-9, 1e-9) == ["2e-09", "1e-09"]
    assert alike(2e9, 1e9) == ["2e+09", "1e+09"]
    assert percents(5e-5, 25e-5) == ("0.01 %", "0.03 %")
    assert percents(5e-5, 5e-5) == ("0 %", "0 %")
