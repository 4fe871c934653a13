"""Weights of scores."""

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import scores
from calibjax.distributions import Categorical


def test_what_does_not_count_may_be_impossible():
    """Its score is infinite, and the derivative of that is no number."""
    probs, labels = np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]]), np.array([0, 1, 1])
    weights = np.array([1.0, 0.0, 3.0])

    def nll(probs, weights):
        return scores.negative_log_likelihood(Categorical(probs), labels, weights=weights)

    np.testing.assert_allclose(nll(probs, weights), (np.log(4) + 3 * np.log(2)) / 4, rtol=1e-12)
    assert nll(probs, np.ones(3)) == np.inf
    slopes = jax.grad(nll)(jnp.asarray(probs), jnp.asarray(weights))
    assert np.isfinite(slopes).all()
    assert not slopes[1].any()
