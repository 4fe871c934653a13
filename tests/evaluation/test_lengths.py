"""Data sets that are filled up to one of few lengths."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import calibjax
from calibjax import distributions
from calibjax.distributions import Bernoulli, Categorical, Normal
from calibjax.distributions.base import draw
from calibjax.evaluation.data import filled, rounded_up
from tests.compiled import num_compiled
from tests.registry.families import FAMILIES

KEY = jax.random.key(0)


def test_lengths_are_at_most_a_quarter_apart():
    lengths = sorted({rounded_up(n) for n in range(1, 80_000)})
    above = [length for length in lengths if length >= 8]
    assert all(after / before <= 1.25 for before, after in itertools.pairwise(above))
    assert all(rounded_up(n) >= n for n in range(1, 3000))
    assert all(rounded_up(length) == length for length in lengths)
    assert all(rounded_up(2**k) == 2**k for k in range(17))
    assert rounded_up(240) == rounded_up(250) == rounded_up(285) == 285
    assert {16, 64, 100, 1000, 10_000} <= set(lengths)


@pytest.mark.parametrize("name", FAMILIES)
def test_draws_of_the_first_predictions_do_not_depend_on_the_length(name):
    family = FAMILIES[name]
    predictions = family.make(**{key: given.value for key, given in family.parameters.items()})
    longer = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf[:1], leaf[:1]]), predictions)
    n = jax.tree.leaves(predictions)[0].shape[0]
    for one, other in zip(
        *map(jax.tree.leaves, (draw(KEY, predictions), draw(KEY, longer))), strict=True
    ):
        np.testing.assert_array_equal(one, other[:n])


@pytest.mark.parametrize("n", [240, 250, 285])
def test_predictions_of_several_families(n):
    predictions = Normal(jnp.linspace(0, 1, n), jnp.ones(n))
    (found, targets), weights = filled((predictions, jnp.zeros(n)), None)
    assert found.loc.shape == targets.shape == weights.shape == (285,)
    assert float(weights.sum()) == n
    assert weights.dtype == predictions.loc.dtype


@pytest.mark.parametrize(
    "task",
    [
        "binary",
        *(
            pytest.param(x, marks=pytest.mark.slow)
            for x in ("classes", "normals", "ensembles", "quantiles")
        ),
    ],
)
def test_evaluation_of_another_length(task):
    """Of calibrated data, which all take the same way through the evaluation."""

    def evaluated(n):
        random = np.random.default_rng(n)
        loc, noise = random.normal(size=n), random.normal(size=n)
        targets = loc + noise
        if task == "quantiles":
            values = loc[:, None] + scipy.stats.norm.ppf([0.1, 0.5, 0.9])
            predictions = distributions.Quantiles(np.array([0.1, 0.5, 0.9]), values)
        elif task == "ensembles":
            predictions = distributions.Ensemble(loc[:, None] + random.normal(size=(n, 5)))
        elif task == "normals":
            predictions = Normal(loc, np.ones(n))
        else:
            probs = random.dirichlet(np.ones(3 if task == "classes" else 2), n)
            targets = np.argmax(np.log(probs) + random.gumbel(size=probs.shape), 1)
            predictions = Categorical(probs) if task == "classes" else Bernoulli(probs[:, 1])
        calibjax.evaluate(KEY, predictions, targets)

    first = num_compiled(lambda: evaluated(57))
    assert num_compiled(lambda: (evaluated(60), evaluated(64))) < first / 4
