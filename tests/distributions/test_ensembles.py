"""Draws: ensembles, sorted quantiles, Monte Carlo, and what a user's own family draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, hypothesis_tests, record, scores
from calibjax.distributions import Distribution, constraints, parameter
from calibjax.distributions.base import draw_each

KEY = jax.random.key(0)
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
    rounded = values.at[429].multiply(1 + 4 * jnp.finfo(values.dtype).eps)
    hotter = jax.jit(jax.vmap(lambda p: p.tempered(2.0)))
    for ensembles in (shared, distributions.Ensemble(rounded, index=index)):
        assert np.isfinite(scores.crps(hotter(ensembles), jnp.zeros(430)))
    off = shared.values.at[429].add(1e-3)
    with pytest.raises(ValueError, match=r"predictions\.index: expected one number for each"):
        scores.crps(distributions.Ensemble(off, index=index), jnp.zeros(430))


QUANTILE_LEVELS = np.array([0.1, 0.5, 0.9])
CROSSING = np.array([[0.0, 1.0, 2.0], [3.0, 1.0, 2.0], [1.0, 1.0, 1.0], [0.0, 2.0, 1.0]])


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray, np.ndarray.tolist])
def test_sorted_quantiles_sorts_levels_with_their_values(convert):
    """Other orders of the columns give the same forecast."""
    order = [2, 0, 1]
    given = np.sort(CROSSING, 1)[:, order]
    forecast = distributions.Quantiles.sorted(
        convert(np.tile(QUANTILE_LEVELS[order], (4, 1))), convert(given)
    )
    np.testing.assert_allclose(forecast.values, np.sort(CROSSING, 1))
    np.testing.assert_allclose(forecast.levels, np.tile(QUANTILE_LEVELS, (4, 1)), rtol=1e-6)


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ([0.9, 0.1], "expected increasing levels, got predictions.levels.0, 1. = 0.1"),
        ([0.0, 0.5], "expected values in .0, 1., got predictions.levels.0, 0. = 0.0"),
    ],
)
def test_levels_of_quantiles(levels, message):
    values, targets = np.array([[0.0, 1.0]]), np.array([0.5])
    hypothesis_tests.coverage_test(KEY, distributions.Quantiles([0.1, 0.9], values), targets)
    with pytest.raises(ValueError, match="predictions.levels: " + message):
        hypothesis_tests.coverage_test(KEY, distributions.Quantiles(levels, values), targets)


def test_draws_are_independent_and_follow_the_distribution():
    predictions = distributions.Normal(jnp.array([0.0, 5.0, 5.0]), jnp.array([1.0, 0.5, 0.5]))
    drawn = distributions.monte_carlo(KEY, predictions, 5000)
    values = np.asarray(drawn.draws.values)
    assert values.shape == (3, 5000)
    np.testing.assert_allclose(values.mean(1), predictions.loc, atol=0.06)
    np.testing.assert_allclose(values.std(1), predictions.scale, atol=0.04)
    correlation = np.corrcoef(np.hstack([values[:, :-1].T, values[:, 1:].T]).T)
    assert np.abs(correlation - np.eye(6)).max() < 0.06
    again = distributions.monte_carlo(KEY, drawn, 5000)  # of what has draws already
    np.testing.assert_array_equal(again.draws.values, values)
    assert isinstance(again.distribution, distributions.Normal)


Y = np.linspace(0.1, 2.0, 30)


@record
class Flat(Distribution):
    """Draws are [1] where a scalar is meant."""

    scale: jax.Array = parameter(constraints.positive)

    def sample(self, key):
        return self.scale * jax.random.normal(key, (1,))


@record
class Leaving(Distribution):
    """Some draws are outside of the support."""

    support = constraints.nonnegative
    scale: jax.Array = parameter(constraints.positive)

    def sample(self, key):
        return self.scale * (jax.random.exponential(key) - 0.3)


@pytest.mark.parametrize("test", [hypothesis_tests.exact_test, hypothesis_tests.consistency_test])
def test_shapes_of_draws(test):
    with pytest.raises(ValueError, match=r"predictions.sample: .* \(30,\) .* got \(30, 1\)"):
        test(KEY, lambda p, y: jnp.mean(y**2), Flat(jnp.ones(30)), Y, num_draws=9)


def test_missing_statistics_are_said():
    with pytest.warns(
        UserWarning, match="of the statistics under the null are nan .*sample_targets"
    ):
        hypothesis_tests.exact_test(
            KEY, lambda p, y: jnp.mean(jnp.log(y)), Leaving(jnp.ones(30)), Y, num_draws=9
        )


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
