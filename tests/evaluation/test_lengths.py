"""Data sets that are filled up to one of few lengths."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax
from calibjax.distributions import Normal
from calibjax.distributions.base import draw
from calibjax.evaluation.data import filled, rounded_up
from tests.compiled import num_compiled
from tests.evaluation import samples
from tests.registry.families import FAMILIES

KEY = jax.random.key(0)


def test_lengths_are_at_most_a_quarter_apart():
    lengths = sorted({rounded_up(n) for n in range(1, 80_000)})
    above = [length for length in lengths if length >= 8]
    assert all(after / before <= 1.25 for before, after in itertools.pairwise(above))
    assert all(rounded_up(n) >= n for n in range(1, 3000))
    assert all(rounded_up(length) == length for length in lengths)
    assert all(rounded_up(2**k) == 2**k for k in range(17))
    assert {16, 64, 100, 1000, 10_000} <= set(lengths)


@pytest.mark.parametrize("name", FAMILIES)
def test_draws_of_the_first_predictions_do_not_depend_on_the_length(name):
    family = FAMILIES[name]
    predictions = family.make(**{key: given.value for key, given in family.parameters.items()})
    longer = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf[:1], leaf[:1]]), predictions)
    n = jax.tree.leaves(predictions)[0].shape[0]
    drawn = draw(KEY, predictions), draw(KEY, longer)
    for one, other in zip(*map(jax.tree.leaves, drawn), strict=True):
        np.testing.assert_array_equal(one, other[:n])


@pytest.mark.parametrize("n", [240, 250, 285])
def test_samples_that_are_added_have_no_weight(n):
    predictions = Normal(jnp.linspace(0, 1, n), jnp.ones(n))
    (found, targets), weights = filled((predictions, jnp.zeros(n)), None)
    assert found.loc.shape == targets.shape == weights.shape == (285,)
    assert float(weights.sum()) == n
    assert weights.dtype == predictions.loc.dtype


@pytest.mark.parametrize(
    "kind",
    [
        samples.quantiles,
        *(pytest.param(x, marks=pytest.mark.slow) for x in (samples.binary, samples.normals)),
    ],
)
def test_evaluation_of_another_length(kind):
    """Of calibrated data, which all take the same way through the evaluation."""

    def evaluated(n):
        calibjax.evaluate(KEY, *kind(np.random.default_rng(n), n))

    first = num_compiled(lambda: evaluated(57))
    assert num_compiled(lambda: evaluated(57)) == 0
    assert num_compiled(lambda: (evaluated(60), evaluated(64))) < first / 4
