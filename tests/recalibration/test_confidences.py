"""What all recalibrators of confidences have in common."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax.distributions import Bernoulli, Normal
from calibjax.recalibration import (
    BinAccuracies,
    HistogramBinning,
    IsotonicMap,
    IsotonicRegression,
    MMCEScaling,
    PlattScaling,
    SigmoidMap,
)

RNG = np.random.default_rng(0)
N = 80
PROBS = RNG.dirichlet(np.full(3, 0.7), N)
LABELS = (PROBS.cumsum(1) < RNG.uniform(size=(N, 1))).sum(1)
CONFIDENCES, CORRECT = PROBS.max(1), (PROBS.argmax(1) == LABELS).astype(int)
QUICK = {
    "histogram": HistogramBinning(4),
    "isotonic": IsotonicRegression(),
    "platt": PlattScaling(),
}
# Compiled for seconds; checks and application are those of the others.
SLOW = {"mmce": pytest.param(MMCEScaling(), marks=pytest.mark.slow)}
RECALIBRATORS = [*QUICK.values(), *SLOW.values()]


@pytest.mark.parametrize("method", RECALIBRATORS, ids=[*QUICK, *SLOW])
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
def test_what_comes_out(method, dtype):
    """Numbers in [0, 1] of the same dtype; compiled, mapped or not; derivatives that are finite."""
    confidences = CONFIDENCES.astype(dtype)
    params = method.fit(confidences, CORRECT)
    assert {x.dtype for x in jax.tree.leaves(params)} <= {np.dtype(dtype), np.dtype(np.int32)}
    images = method.apply(params, confidences)
    assert images.dtype == dtype
    assert np.all((images >= 0) & (images <= 1))
    assert np.array_equal(method.apply(params, Bernoulli(confidences)), images)

    @jax.jit
    @jax.vmap
    def fit_apply(confidences, correct):
        params = method.fit(confidences, correct)
        gradient = jax.grad(lambda new: jnp.sum(method.apply(params, new)))
        return method.apply(params, confidences), gradient(confidences.at[:2].set(jnp.arange(2)))

    compiled, slopes = fit_apply(*jax.tree.map(lambda x: x[None], (confidences, CORRECT)))
    np.testing.assert_allclose(compiled[0], images, rtol=20 * np.finfo(dtype).eps)
    assert np.all(np.isfinite(slopes))


WRONG = {
    "lengths": ((CONFIDENCES, CORRECT[1:]), ValueError, r"correct: expected shape \[n\], as the"),
    "above one": ((CONFIDENCES + 1, CORRECT), ValueError, r"probabilities in \[0, 1\]"),
    "NaN": (
        (CONFIDENCES * np.nan, CORRECT),
        ValueError,
        r"probabilities in \[0, 1\], got .* = nan",
    ),
    "labels": ((CONFIDENCES, CORRECT + 1), ValueError, "correct: expected 0 or 1, got .* = 2"),
    "no samples": ((CONFIDENCES[:0], CORRECT[:0]), ValueError, "confidences: expected at least 1"),
    "matrix": ((PROBS, CORRECT), ValueError, r"confidences: expected shape \[n\], got \(80, 3\)"),
    "strings": ((["a", "b"], [0, 1]), TypeError, "confidences: expected numbers, got list"),
    "integers": ((LABELS, CORRECT), TypeError, "confidences: expected floating-point"),
    "no classes": (
        (Normal(CONFIDENCES, CONFIDENCES), CORRECT),
        TypeError,
        "confidences: expected .* Normal",
    ),
}


PARAMS = {
    "histogram": BinAccuracies(np.ones(1), np.ones(1, int)),
    "isotonic": IsotonicMap(np.ones(1), np.ones(1)),
    "platt": SigmoidMap(np.ones(()), np.zeros(())),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_data(case):
    (confidences, correct), error, message = WRONG[case]
    for method in (*QUICK.values(), MMCEScaling()):
        with pytest.raises(error, match=message):
            method.fit(confidences, correct)
    if case not in ("lengths", "labels"):
        for name, params in PARAMS.items():
            with pytest.raises(error, match=message):
                QUICK[name].apply(params, confidences)
