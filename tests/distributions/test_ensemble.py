import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, scores

VALUES = np.array([3.0, -1.0, 2.0, 2.0, 5.0])
WEIGHTS = np.array([0.1, 0.2, 0.3, 0.4, 0.0])


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_statistics_of_the_draws(weights):
    probs = np.full(5, 0.2) if weights is None else weights
    p = distributions.Ensemble(VALUES, weights)
    np.testing.assert_allclose(p.mean(), probs @ VALUES)
    np.testing.assert_allclose(p.variance(), probs @ (VALUES - probs @ VALUES) ** 2)
    y = np.array([-2.0, -1.0, 0.0, 2.0, 4.0, 9.0])
    np.testing.assert_allclose(p.cdf(y), [probs[y_ >= VALUES].sum() for y_ in y], atol=1e-15)
    levels = np.array([0.0, 0.1, 0.3, 0.7, 0.95, 1.0])
    expected = [-1, -1, 2, 2, 3, 3] if weights is not None else [-1, -1, 2, 3, 5, 5]
    np.testing.assert_array_equal(p.icdf(levels), expected)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_draws_are_members(weights):
    n = 20_000
    batch = jax.tree.map(
        lambda x: jnp.tile(x, (n, 1)), distributions.Ensemble(np.arange(5), weights)
    )
    draws = jax.jit(distributions.sample_targets)(jax.random.key(0), batch)
    assert draws.dtype == batch.values.dtype
    probs = np.full(5, 0.2) if weights is None else weights
    np.testing.assert_allclose(np.bincount(draws, minlength=5) / n, probs, atol=0.015)


def test_rows_of_one_index_may_be_rounded_differently():
    """A vector register rounds the last rows of a program in another way than the others."""
    values = jax.random.normal(jax.random.key(0), (400, 10))[jnp.r_[:400, [0] * 30]]
    index = jnp.r_[:400, [0] * 30].astype(int)
    shared = distributions.Ensemble(values, index=index)

    @jax.jit
    def score(ensembles):
        hotter = jax.vmap(lambda p: p.tempered(2.0))(ensembles)
        return scores.crps(hotter, jnp.zeros(430), reduction="none")

    assert np.isfinite(score(shared)).all()
    off = shared.values.at[429].add(1e-3)
    assert np.isnan(score(distributions.Ensemble(off, index=index))[429])
