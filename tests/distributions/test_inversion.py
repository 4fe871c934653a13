"""Draws by inversion, whose random numbers are the bits of the keys themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, record
from calibjax.distributions.base import draw_each

N = 20_000


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
    [
        distributions.Normal(np.zeros(200), np.ones(200)),
        distributions.Categorical(np.full((200, 4), 0.25)),
    ],
    ids=["numbers", "labels"],
)
def test_one_key_for_a_batch(predictions):
    """A user's own code may call `sample` of a batch: its draws are independent."""
    draws = np.asarray(predictions.sample(jax.random.key(0)))
    assert draws.shape == (200,)
    assert len(set(draws.tolist())) >= 4


@pytest.mark.parametrize("family", ["Normal", "Laplace", "Logistic", "LogNormal", "Uniform"])
def test_the_smallest_number_is_possible(family):
    """A key whose bits are all zero has a level of 0, of which inverse functions make −∞."""
    keys = jax.random.wrap_key_data(jnp.zeros((1, 2), jnp.uint32))
    one = getattr(distributions, family)(np.ones(1), np.full(1, 2.0))
    assert np.isfinite(draw_each(keys, one)).all()


def test_draws_of_a_subclass_are_its_own():
    @record
    class Rounded(distributions.Normal):
        def sample(self, key):
            return jnp.round(super().sample(key))

    batch = Rounded(np.zeros(50), np.full(50, 3.0))
    draws = np.asarray(distributions.sample_targets(jax.random.key(0), batch))
    np.testing.assert_array_equal(draws, np.round(draws))
    assert len(set(draws)) > 5
