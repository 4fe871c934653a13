import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from calibjax import scores
from calibjax.distributions import Categorical, DiagNormal, Ensemble, Mixture, Normal
from tests import oracles

N = 30
RNG = np.random.default_rng(2)
LOC, SCALE, TARGETS = RNG.normal(size=N), RNG.uniform(0.2, 2, N), RNG.normal(size=N)
PREDICTIONS = Normal(LOC, SCALE)


def mean_pinball_loss(quantiles, levels):
    """Mean over the levels of scikit-learn's loss."""
    return np.mean(
        [
            metrics.mean_pinball_loss(TARGETS, q, alpha=tau)
            for q, tau in zip(quantiles, levels, strict=True)
        ]
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_against_scikit_learn(dtype):
    tolerance = {"rtol": 1e-12 if dtype == np.float64 else 2e-6}
    levels = np.linspace(0.05, 0.95, 19)
    data = oracles.as_dtype((PREDICTIONS, TARGETS), dtype)
    value = jax.jit(scores.pinball_loss)(*data)
    assert value.dtype == dtype
    expected = mean_pinball_loss(stats.norm(LOC, SCALE).ppf(levels[:, None]), levels)
    np.testing.assert_allclose(value, expected, **tolerance)
    chosen = functools.partial(scores.pinball_loss, levels=[0.2, 0.9])
    quantiles = stats.norm(LOC, SCALE).ppf([[0.2], [0.9]])
    expected = mean_pinball_loss(quantiles, [0.2, 0.9])
    np.testing.assert_allclose(jax.jit(chosen)(*data), expected, **tolerance)


def test_quantiles_by_bisection_and_of_ordered_classes():
    twice = Mixture(None, Normal(*(jnp.stack([x, x], 1) for x in (LOC, SCALE))))
    one, two = (jax.jit(scores.pinball_loss)(p, TARGETS) for p in (PREDICTIONS, twice))
    np.testing.assert_allclose(two, one, rtol=1e-12)
    classes = Categorical(jnp.array([[0.25, 0.5, 0.25]]))
    loss = scores.pinball_loss(classes, jnp.array([2]), levels=[0.5, 0.9])
    np.testing.assert_allclose(loss, 0.5 * (2 - 1) / 2)
    draws = Ensemble(jnp.array([[1, 1, 2, 4]]))
    np.testing.assert_allclose(
        scores.pinball_loss(draws, jnp.array([2]), levels=[0.5, 0.9]), (0.5 * 1 + 0.1 * 2) / 2
    )


def test_many_levels_approach_half_of_the_crps():
    many = functools.partial(scores.pinball_loss, levels=(np.arange(2000) + 0.5) / 2000)
    crps = jax.jit(scores.crps)(PREDICTIONS, TARGETS)
    np.testing.assert_allclose(2 * jax.jit(many)(PREDICTIONS, TARGETS), crps, rtol=1e-4)


def test_the_true_quantile_has_the_smallest_loss_and_the_gradient_is_the_empirical_one():
    """dL/dloc is the mean of 1(y < q) − τ."""

    def loss(shift):
        return scores.pinball_loss(Normal(LOC + shift, SCALE), TARGETS, levels=jnp.array([0.3]))

    below = stats.norm(LOC, SCALE).cdf(TARGETS) < 0.3
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(0.0), below.mean() - 0.3, atol=1e-15)


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ([], "levels: expected at least 1"),
        ([0.5, 1.0], r"levels: expected values in \(0, 1\), got levels\[1\] = 1.0"),
        ([0.0, 0.5], r"levels: expected values in \(0, 1\)"),
        ([0.5, np.nan], r"levels: expected values in \(0, 1\)"),
        (0.5, "levels: expected shape"),
    ],
)
def test_levels_out_of_range(levels, message):
    with pytest.raises(ValueError, match=message):
        scores.pinball_loss(PREDICTIONS, TARGETS, levels=levels)


def test_predictions_without_quantiles():
    vectors = DiagNormal(jnp.zeros((2, 3)), jnp.ones((2, 3)))
    with pytest.raises(TypeError, match="with a method icdf, got DiagNormal"):
        scores.pinball_loss(vectors, jnp.zeros((2, 3)))
