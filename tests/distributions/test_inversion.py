"""Draws by inversion, whose random numbers are the bits of the keys themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distributions, record
from calibjax.distributions.base import draw_each

N = 20_000
FAMILIES = {
    "normal": (lambda one: distributions.Normal(2 * one, 3 * one), stats.norm(2, 3)),
    "laplace": (lambda one: distributions.Laplace(2 * one, 3 * one), stats.laplace(2, 3)),
    "logistic": (lambda one: distributions.Logistic(2 * one, 3 * one), stats.logistic(2, 3)),
    "log-normal": (lambda one: distributions.LogNormal(0 * one, one / 2), stats.lognorm(0.5)),
    "uniform": (lambda one: distributions.Uniform(2 * one, 5 * one), stats.uniform(2, 3)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FAMILIES)
def test_batches_of_numbers(name, dtype):
    """Kolmogorov's statistic of 20 000 draws, which exceeds 1.95 / √n in 1 of 1000 data sets."""
    batch, expected = FAMILIES[name]
    draws = np.asarray(distributions.sample_targets(jax.random.key(5), batch(np.ones(N, dtype))))
    assert draws.dtype == dtype
    assert np.isfinite(draws).all()
    assert stats.kstest(draws, expected.cdf).statistic < 1.95 / np.sqrt(N)
    neighbours = stats.spearmanr(draws[1:], draws[:-1]).statistic
    assert abs(neighbours) < 3.3 / np.sqrt(N)


@pytest.mark.parametrize(
    ("predictions", "expected"),
    [
        (distributions.Bernoulli(np.full(N, 0.3)), [0.7, 0.3]),
        (distributions.Categorical(np.tile([0.2, 0.0, 0.8], (N, 1))), [0.2, 0.0, 0.8]),
        (distributions.CategoricalLogits(np.zeros((N, 4))), [0.25] * 4),
    ],
    ids=["binary", "classes", "logits"],
)
def test_batches_of_labels(predictions, expected):
    labels = distributions.sample_targets(jax.random.key(6), predictions)
    shares = np.bincount(labels, minlength=len(expected)) / N
    errors = np.sqrt(np.multiply(expected, 1 - np.asarray(expected)) / N)
    np.testing.assert_array_less(np.abs(shares - expected), 3.5 * errors + 1e-12)


@pytest.mark.parametrize(
    "predictions",
    [FAMILIES["normal"][0](np.ones(200)), distributions.Categorical(np.full((200, 4), 0.25))],
    ids=["numbers", "labels"],
)
def test_one_key_for_a_batch(predictions):
    """A user's own code may call `sample` of a batch: its draws are independent."""
    draws = np.asarray(predictions.sample(jax.random.key(0)))
    assert draws.shape == (200,)
    assert len(set(draws.tolist())) >= 4


@pytest.mark.parametrize("name", FAMILIES)
def test_the_smallest_number_is_possible(name):
    """A key whose bits are all zero has a level of 0, of which inverse functions make −∞."""
    keys = jax.random.wrap_key_data(jnp.zeros((1, 2), jnp.uint32))
    assert np.isfinite(draw_each(keys, FAMILIES[name][0](np.ones(1)))).all()


def test_draws_of_a_subclass_are_its_own():
    @record
    class Rounded(distributions.Normal):
        def sample(self, key):
            return jnp.round(super().sample(key))

    batch = Rounded(np.zeros(50), np.full(50, 3.0))
    draws = np.asarray(distributions.sample_targets(jax.random.key(0), batch))
    np.testing.assert_array_equal(draws, np.round(draws))
    assert len(set(draws)) > 5
