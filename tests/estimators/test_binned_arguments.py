"""What the binned estimators refuse, and what becomes NaN where it cannot be refused."""

import functools

import jax
import pytest

from calibjax import estimators
from calibjax.distributions import Categorical, Normal
from tests.estimators.test_binnings import BINNINGS
from tests.wrong_data import LABELS, LOC, PROBS

ENTRIES = {
    f"{notion}, {name}": functools.partial(estimators.ece, notion=notion, binning=binning)
    for notion in ("top_label", "class_wise", "canonical")
    for name, binning in BINNINGS.items()
}


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
