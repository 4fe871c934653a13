"""Batches have a length and are cut as arrays are: against the same cut of every array by NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions
from tests.registry.families import ALL

N = 8
MASK = np.arange(N) % 3 == 1
INDICES = (
    *(3, -1, np.int32(3), jnp.asarray(3)),
    *(slice(2, 6), slice(None, None, -2), slice(0, 0)),
    *([1, 2], np.array([5, -8, 5]), jnp.array([7, 0]), MASK, jnp.asarray(MASK), ...),
)


@pytest.mark.parametrize("name", ALL)
def test_families(name):
    family = ALL[name]
    predictions = family.make(**{k: x.value for k, x in family.parameters.items()})
    predictions = jax.tree.map(np.asarray, predictions)  # of which nothing is compiled
    leaves = jax.tree.leaves(predictions)
    assert len(predictions) == N
    for index in INDICES:
        rows = np.arange(N)[index]
        found = predictions[index]
        assert type(found) is type(predictions)
        assert not np.ndim(rows) or len(found) == len(rows)
        for ours, given in zip(jax.tree.leaves(found), leaves, strict=True):
            np.testing.assert_array_equal(ours, given[rows])
    assert len(list(predictions)) == N
    for wrong in (N, -N - 1, [0, N], np.ones(N + 1, bool), (0, 0), 1.5):
        with pytest.raises(IndexError):
            predictions[wrong]


def test_shared_parameters_stay():
    levels = np.array([0.1, 0.5])
    p = distributions.Quantiles(levels, np.arange(8.0).reshape(4, 2))
    assert len(p) == 4
    np.testing.assert_array_equal(p[2].values, [4, 5])
    np.testing.assert_array_equal(p[2].levels, levels)
    components = distributions.Normal(np.arange(6.0).reshape(3, 2), np.ones((3, 2)))
    mixture = distributions.Mixture(np.array([0.3, 0.7]), components)
    assert len(mixture) == 3
    np.testing.assert_array_equal(mixture[-1].components.loc, [4, 5])
    np.testing.assert_allclose(mixture[-1].mean(), 4.7, rtol=1e-6)


def test_wrappers_of_users_and_wrong_lengths():
    p = distributions.Normal(np.arange(N, dtype=np.float32), np.ones(N, np.float32))
    featured = distributions.with_features(p, {"a": np.arange(N), "b": np.ones((N, 2))})
    drawn = distributions.monte_carlo(jax.random.key(0), featured, 3)
    for batch in (featured, drawn):
        assert len(batch) == N
        np.testing.assert_array_equal(batch[2:4].loc, [2, 3])
        np.testing.assert_array_equal(batch[MASK].distribution.loc, np.arange(N)[MASK])
    np.testing.assert_array_equal(featured[2:4].features["a"], [2, 3])
    np.testing.assert_array_equal(drawn[3].draws.values, drawn.draws.values[3])
    with pytest.raises(TypeError, match="unsized Ensemble"):
        len(distributions.Ensemble(np.arange(3.0)))
    with pytest.raises(ValueError, match=r"leading axes of one length, got .*: 2, .*: 3"):
        len(distributions.Normal(np.zeros(2), np.ones(3)))


def test_traced_batches_and_indices():
    p = distributions.Normal(jnp.arange(4.0), jnp.ones(4))
    means = jax.jit(lambda p, i: (p[i].mean(), p[-1].mean(), len(p)))
    for index, wanted in ((0, 0), (-1, 3), (4, np.nan), (-5, np.nan)):
        np.testing.assert_array_equal(means(p, index), [wanted, 3, 4])
    counts = distributions.Categorical(jnp.eye(4))
    found = jax.jit(jax.vmap(lambda i: counts[i].icdf(0.5)))(jnp.array([2, 0]))
    np.testing.assert_array_equal(found, [2, 0])
    with pytest.raises(jax.errors.NonConcreteBooleanIndexError):
        jax.jit(lambda mask: p[mask].mean())(jnp.ones(4, bool))


def test_numbers_of_python_are_the_parameters_of_all_rows():
    loc = np.arange(6, dtype=np.float32).reshape(3, 2)
    p = distributions.Normal(loc[:, 0], 0.3)
    np.testing.assert_array_equal(p.scale, np.full(3, 0.3, np.float32))
    assert p.scale.dtype == np.float32
    mixture = distributions.Mixture(np.full((3, 2), 0.5), distributions.Normal(loc, 1))
    assert mixture[1].components.scale.shape == (2,)
    assert distributions.Normal(0.0, 1.0).scale == 1.0  # one prediction
    scale = jnp.array(0.3)  # which all share
    assert distributions.Normal(loc[:, 0], scale).scale is scale
