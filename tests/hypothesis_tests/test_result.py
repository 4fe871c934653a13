import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, hypothesis_tests
from calibjax.hypothesis_tests.components import adjusted_pvalues, simulated_pvalue
from calibjax.hypothesis_tests.result import CalibrationTestResult, simulated_result
from tests import oracles


def test_pvalues():
    null = jnp.arange(9.0)
    assert simulated_pvalue(jnp.array(8.5), null) == 0.1
    assert simulated_pvalue(jnp.array(8.0), null) == 0.2
    assert simulated_pvalue(jnp.array(-1.0), null) == 1.0
    assert simulated_pvalue(jnp.array(8.0 * (1 + 1e-15)), null) == 0.2  # a tie but for rounding
    assert simulated_pvalue(jnp.array(8.5), null.at[3].set(jnp.nan)) == 0.2
    assert simulated_pvalue(jnp.array(jnp.inf), null) == 0.1
    assert simulated_pvalue(jnp.array(8.5), null.at[3].set(jnp.inf)) == 0.2
    assert jnp.isnan(simulated_pvalue(jnp.array(jnp.nan), null))


def test_standard_error_is_never_zero():
    weights, key = jnp.linspace(1, 2, 30), jax.random.key(0)
    predictions = distributions.Bernoulli(jnp.full(30, 0.3))
    for successes in (0, 13, 30):
        targets = (np.arange(30) < successes).astype(int)
        statistic = lambda p, y: jnp.sum(weights * y)  # noqa: E731
        test = hypothesis_tests.exact_test(key, statistic, predictions, targets, num_draws=100)
        assert successes == 13 or test.pvalue in (1 / 101, 1)
        assert 0 < test.pvalue_standard_error < 0.05
        if successes == 13:
            p = test.pvalue
            np.testing.assert_allclose(test.pvalue_standard_error, np.sqrt(p * (1 - p) / 102))


def three_statistics(predictions, targets):
    z = (targets - predictions.loc) / predictions.scale
    return {"mean": jnp.abs(z.mean()), "largest": jnp.abs(z).max(), "square": 1e3 * jnp.mean(z**2)}


def test_several_statistics_share_the_redraws():
    data = oracles.normal_data(10)[:2]
    test = jax.jit(
        lambda f: hypothesis_tests.exact_test(jax.random.key(0), f, *data), static_argnums=0
    )
    together = test(three_statistics)
    for name in together.pvalue:
        alone = test(lambda p, y, name=name: three_statistics(p, y)[name])
        for attribute in ("null_samples", "statistic", "pvalue", "pvalue_standard_error"):
            values = getattr(together, attribute)[name], getattr(alone, attribute)
            np.testing.assert_allclose(*values, rtol=1e-12, atol=1e-15)
    assert together.adjusted_pvalue is None


def test_adjusted_pvalues_against_a_loop():
    rng = np.random.default_rng(0)
    draws = {"a": rng.normal(size=50), "b": 1e4 + 100 * rng.exponential(size=50)}
    observed = {"a": 2.1, "b": 1e4 + 250.0}
    scores = {}
    for name in draws:
        pool = np.r_[observed[name], draws[name]]
        scores[name] = (pool - pool.mean()) / pool.std()
    largest = np.maximum(scores["a"], scores["b"])[1:]
    ours = adjusted_pvalues(*(jax.tree.map(jnp.asarray, tree) for tree in (observed, draws)))
    for name in draws:
        expected = (1 + sum(value >= scores[name][0] for value in largest)) / 51
        np.testing.assert_allclose(ours[name], expected)


def test_constant_statistics_and_draws_that_are_no_numbers():
    """The first adjust nothing, the others count against rejection."""
    draws = jnp.asarray(np.random.default_rng(0).normal(size=50))
    alone = adjusted_pvalues((jnp.array(1.0),), (draws,))
    both = adjusted_pvalues((jnp.array(1.0), jnp.array(0.1)), (draws, jnp.full(50, 0.1)))
    assert both[1] > both[0] >= alone[0]
    assert jnp.isfinite(both[0])
    for value in (jnp.nan, jnp.inf):
        (spoilt,) = adjusted_pvalues((jnp.array(9.0),), (draws.at[3].set(value),))
        np.testing.assert_allclose(spoilt, 2 / 51)
    infinite, finite = adjusted_pvalues((jnp.array(jnp.inf), jnp.array(0.0)), (draws, draws))
    np.testing.assert_allclose(infinite, 1 / 51)
    assert 0.2 < finite < 1


def test_a_few_large_draws_do_not_make_ties():
    draws = jnp.asarray(np.random.default_rng(0).normal(size=999), jnp.float32)
    rank = (1 + np.sum(np.asarray(draws) >= 1.5)) / 1000
    heavy = draws.at[0].set(1e6)
    np.testing.assert_allclose(simulated_pvalue(jnp.float32(1.5), heavy), rank, atol=0.0011)


@pytest.mark.parametrize("adjust", [False, True])
def test_critical_value_against_the_pvalues(adjust):
    """In 100 data sets, with ties, rare events and outliers."""
    random = np.random.default_rng(0)
    rejected = 0
    for _ in range(100):
        pool = np.abs(random.normal(size=(200, 5))) * [1, 1e-6, 1e6, 1, 1]
        pool[:, 3] = np.round(2 * pool[:, 3]) / 2
        pool[:, 4] = random.uniform(size=200) < 0.02
        pool[0] *= random.choice([1, 1, 2, 3, 100], 5)
        result = simulated_result(pool[0], pool[1:], None, adjust=adjust)
        pvalue = result.adjusted_pvalue if adjust else result.pvalue
        critical = result.critical_value()
        np.testing.assert_array_equal(np.asarray(pvalue) <= 0.05, pool[0] > critical)
        rejected += int(np.sum(np.asarray(pvalue) <= 0.05))
    assert rejected > 50


def test_critical_value_of_few_draws_and_of_none():
    few = simulated_result(np.array(1.0), np.arange(18.0), None)
    assert np.isinf(few.critical_value())
    assert float(few.critical_value(0.1)) == pytest.approx(17)
    with pytest.raises(ValueError, match="^result: expected a simulated test"):
        CalibrationTestResult(1.0, 0.5, 1.0).critical_value()


@pytest.mark.parametrize(("number", "is_printed"), [(10, True), (11, False)])
def test_few_adjusted_pvalues_are_printed(number, is_printed):
    pvalues = dict.fromkeys(map(str, range(number)), 0.5)
    result = CalibrationTestResult(1.0, pvalues, 1.0, adjusted_pvalue=pvalues)
    assert ("adjusted_pvalue=" in repr(result)) == is_printed
