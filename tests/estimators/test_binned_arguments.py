"""What the binned estimators refuse, and what becomes NaN where it cannot be refused."""

import functools

import jax
import numpy as np
import pytest

from calibjax import distances, estimators
from calibjax.distributions import Categorical, Normal
from tests.estimators.test_binned import Binned, known_bins
from tests.estimators.test_binnings import BINNINGS
from tests.wrong_data import CLASS_CASES, LABELS, LOC, PROBS, WRONG

ENTRIES = {
    f"{estimator.__name__}, {name}": functools.partial(estimator, binning=binning)
    for estimator in (estimators.ece, estimators.mce, estimators.debiased_squared_ece)
    for name, binning in BINNINGS.items()
}


@pytest.mark.parametrize("case", CLASS_CASES)
def test_wrong_data(case):
    predictions, targets, error, message = WRONG[case]
    is_structure = case in ("complex labels", "one class", "one-hot targets")
    for wrap in (lambda f: f, jax.jit) if is_structure else (lambda f: f,):
        with pytest.raises(error, match=message):
            wrap(ENTRIES["ece, uniform"])(predictions, targets)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_what_has_no_classes_is_refused(wrap):
    message = "predictions: expected class predictions such as .*, got Normal"
    normal = Normal(LOC, LOC + 1)
    for entry in ENTRIES.values():
        with pytest.raises(TypeError, match=message):
            wrap(entry)(normal, LOC)
    for binning in BINNINGS.values():
        with pytest.raises(TypeError, match=message):
            wrap(binning)(normal)
        with pytest.raises(TypeError, match="predictions: expected class predictions"):
            wrap(binning)(LOC)
    with pytest.raises(ValueError, match="rows that sum to one .not logits."):
        BINNINGS["uniform"](Categorical(PROBS * 2))


@pytest.mark.parametrize(
    ("binning", "error", "message"),
    [
        (10, TypeError, "binning: expected a binning such as estimators.UniformBins"),
        (lambda p: LOC, TypeError, "binning.predictions.: expected integers, one bin for each"),
        (lambda p: LABELS[1:], ValueError, r"expected shape \(6,\), one bin .*, got \(5,\)"),
        (lambda p: ["a"] * 6, TypeError, "expected numbers, got list"),
        (lambda p: None, TypeError, "expected integers, one bin for each .*, got NoneType"),
        (estimators.UniformBins, TypeError, "got the class UniformBins"),
        (lambda p: LABELS + 4, ValueError, r"bins in 0, ..., 5, got .*\[2\] = 6"),
        (lambda p: LABELS - 1, ValueError, r"bins in 0, ..., 5, got .*\[0\] = -1"),
    ],
)
def test_wrong_binnings(binning, error, message):
    with pytest.raises(error, match=message):
        estimators.ece(Categorical(PROBS), LABELS, binning=binning)


def test_wrong_distances():
    for distance, error, message in (
        ("tv", TypeError, "distance: expected a distance record, got str"),
        (distances.Euclidean, TypeError, "got the class Euclidean"),
        (lambda p, q: p.probs, ValueError, "distance.p, q.: expected shape .* for each bin"),
        (distances.Wasserstein(), NotImplementedError, "Wasserstein is not defined"),
    ):
        with pytest.raises(error, match=message):
            estimators.ece(
                Categorical(PROBS), LABELS, binning=BINNINGS["uniform"], distance=distance
            )


@pytest.mark.parametrize(
    "estimator", [estimators.ece, estimators.mce, estimators.debiased_squared_ece]
)
def test_what_is_out_of_range_never_becomes_a_number_under_jit(estimator):
    @jax.jit
    def evaluate(targets, bins):
        return estimator(Binned(PROBS, bins), targets, binning=known_bins)

    assert np.isfinite(evaluate(LABELS, LABELS))
    for wrong in (-1, 6):
        assert np.isnan(evaluate(LABELS, LABELS.at[2].set(wrong)))
        assert np.isnan(evaluate(LABELS.at[2].set(wrong), LABELS))
    for binning in BINNINGS.values():
        if binning is BINNINGS["median_variance"]:
            binning = estimators.MedianVarianceBins(2)
        value = jax.jit(functools.partial(estimator, binning=binning))
        for number in (np.nan, np.inf):
            probs = PROBS.at[1, 1].set(number)
            assert not np.isfinite(value(Categorical(probs), LABELS))
