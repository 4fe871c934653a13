"""Probabilities of float16 and bfloat16 are taken, although rounding changes their sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import scores
from calibjax.distributions import Categorical, Mixture, Normal, with_features

PROBS = np.random.default_rng(0).dirichlet(np.ones(20), 50)
LABELS = np.arange(50) % 20


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("module", [np, jnp])
def test_probabilities_of_classes(dtype, module):
    probs = module.asarray(PROBS, dtype)
    wide = np.asarray(probs, np.float64)
    wide /= wide.sum(1, keepdims=True)
    expected = -np.log(wide[np.arange(50), LABELS]).mean()
    loss = scores.negative_log_likelihood
    found = [loss(Categorical(probs), LABELS)]
    found.append(jax.jit(lambda p: loss(Categorical(p), LABELS))(probs))
    found.append(loss(with_features(Categorical(probs), PROBS), LABELS))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found[0].dtype == jnp.float32


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_sums_that_rounding_does_not_explain(dtype):
    probs = jnp.asarray(PROBS, dtype).at[3].multiply(0.9)
    with pytest.raises(ValueError, match=r"sum\(-1\)\[3\] = 0\.(89|90)"):
        scores.negative_log_likelihood(Categorical(probs), LABELS)
    loss = jax.jit(lambda p: scores.negative_log_likelihood(Categorical(p), LABELS))
    assert jnp.isnan(loss(probs))


def test_weights_of_mixtures():
    weights = jnp.asarray(PROBS, jnp.bfloat16)
    mixture = Mixture(weights, Normal(jnp.zeros((50, 20)), jnp.ones((50, 20))))
    found = scores.negative_log_likelihood(mixture, np.zeros(50))
    np.testing.assert_allclose(found, 0.5 * np.log(2 * np.pi), rtol=1e-5)
