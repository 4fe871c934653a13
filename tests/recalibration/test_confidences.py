"""What all recalibrators of confidences have in common."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax.distributions import Bernoulli, Categorical
from calibjax.recalibration import HistogramBinning, IsotonicRegression, PlattScaling
from calibjax.recalibration.confidences import MMCEScaling

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


def test_other_numbers_of_classes_are_refused():
    method = HistogramBinning(4)
    params = method.fit(Categorical(PROBS), LABELS)
    with pytest.raises(ValueError, match="params: expected those of the 2 classes, got those of 3"):
        method.apply(params, Categorical(PROBS[:, :1] * [1, 0] + [0, 1] * (1 - PROBS[:, :1])))
