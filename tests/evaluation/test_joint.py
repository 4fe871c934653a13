"""p-values of several tests, adjusted for one another by the redraws that they share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax
from calibjax import distributions, estimators
from calibjax.evaluation import sentences
from calibjax.evaluation.errors import residual_spread
from calibjax.hypothesis_tests.components import adjusted_pvalues, simulated_pvalue
from calibjax.hypothesis_tests.result import CalibrationTestResult

KEY = jax.random.key(0)
LEVEL = 0.05


def adjustment(sets):
    """The adjustment for sets of tests that share their redraws each."""
    pairs = enumerate(sets)
    return sentences.adjustment({(str(i), k): x for i, tests in pairs for k, x in tests.items()})


def _result(pool):
    """Of a pool of one statistic, [B + 1], or of several with adjusted p-values, [B + 1, K]."""
    statistic, draws = jnp.asarray(pool[0]), jnp.asarray(pool[1:])
    adjusted = adjusted_pvalues(statistic, draws) if pool.ndim > 1 else None
    pvalue = simulated_pvalue(statistic, draws)
    return CalibrationTestResult(
        statistic, pvalue, None, draws, adjusted, "targets resampled under the null"
    )


def _tests(random, number=200):
    """Tests of exchangeable data sets that depend on each other."""
    common = random.normal(size=number)
    pools = {
        "all": common + random.normal(size=number),
        "means": np.abs(common[:, None] + random.normal(size=(number, 3))),
        "spread": np.round(4 * np.abs(random.normal(size=number))),  # with ties
    }
    return {name: _result(pool) for name, pool in pools.items()}


def _smallest(test):
    return float(np.min(test.pvalue if test.adjusted_pvalue is None else test.adjusted_pvalue))


def test_against_loops():
    """The smallest p-value of every data set of the pool, as if it were the observed one."""
    tests = _tests(np.random.default_rng(0))
    found = adjustment([tests])
    pools = {
        name: np.concatenate([np.asarray(t.statistic)[None], np.asarray(t.null_samples)])
        for name, t in tests.items()
    }
    smallest = []
    for b in range(200):
        order = [b, *(i for i in range(200) if i != b)]
        smallest.append(min(_smallest(_result(pool[order])) for pool in pools.values()))
    for name, test in tests.items():
        p = _smallest(test)
        expected = np.mean(np.array(smallest) <= p + 1e-6)
        assert found(name, p) == pytest.approx(expected)
        assert p <= found(name, p) <= 3 * p + 1e-6


def test_family_wise_level():
    """2000 calibrated data sets: exact for one set of tests, and less for two."""
    wrong = np.zeros(2)
    for seed in range(2000):
        random = np.random.default_rng(seed)
        common = random.normal(size=100)
        pools = [common + random.normal(size=100) for _ in range(4)]
        tests = {str(i): _plain(pool) for i, pool in enumerate(pools)}
        halves = [dict([*tests.items()][:2]), dict([*tests.items()][2:])]
        for place, sets in enumerate(([tests], halves)):
            found = adjustment(sets)
            wrong[place] += any(
                found(name, np.mean(pools[int(name)] >= pools[int(name)][0])) <= LEVEL
                for name in tests
            )
    error = np.sqrt(LEVEL * (1 - LEVEL) / 2000)
    assert abs(wrong[0] / 2000 - LEVEL) < 3 * error
    assert wrong[1] / 2000 < LEVEL + 3 * error


def _plain(pool):
    return CalibrationTestResult(pool[0], None, None, pool[1:])


def test_missing_values_count_against_rejection():
    pool = np.arange(100.0)[::-1].copy()
    assert adjustment([{"all": _plain(pool)}])("all", 0.01) == 0.01
    pool[5:15] = np.nan
    assert adjustment([{"all": _plain(pool)}])("all", 0.11) == pytest.approx(0.11)


def _redrawn(predictions, place):
    key = jax.random.split(jax.random.fold_in(KEY, 1), 999)[place]
    keys = jax.random.split(key, 40)
    return jax.vmap(lambda p, k: p.sample(k))(predictions, keys)


@pytest.mark.slow
def test_tests_of_numbers_see_the_same_redraws():
    random = np.random.default_rng(0)
    loc, scale = random.normal(size=40), random.uniform(0.5, 2, 40)
    predictions = distributions.Normal(jnp.asarray(loc), jnp.asarray(scale))
    groups = np.arange(40) % 2
    found = calibjax.evaluate(KEY, predictions, loc + scale, groups=groups).tests
    for place in (0, 17):
        y = np.asarray(_redrawn(predictions, place))
        np.testing.assert_allclose(
            found["mean errors"].null_samples[place, 0], abs(np.mean(y - loc)), rtol=1e-4
        )
        np.testing.assert_allclose(
            found["groups"].null_samples[place, 1], abs(np.mean((y - loc)[1::2])), rtol=1e-4
        )
        spread = float(residual_spread(predictions, y))
        np.testing.assert_allclose(
            found["spread"].null_samples[place], abs(np.log(spread)), rtol=1e-3, atol=1e-5
        )
        share = np.mean((y - loc) / scale <= 0)
        np.testing.assert_allclose(
            found["coverage"].null_samples["levels"][place, 3], abs(share - 0.5), atol=1e-6
        )
        components = found["calibration"].components.of_kernel("directions, shift")
        score = (y - loc) / scale
        expected = np.mean(np.outer(score, score)[~np.eye(40, dtype=bool)])
        np.testing.assert_allclose(
            components.unbiased.null_samples[place], expected, rtol=1e-3, atol=1e-4
        )


@pytest.mark.slow
def test_tests_of_classes_see_the_same_redraws():
    random = np.random.default_rng(0)
    probs = random.dirichlet(np.ones(3), 40)
    predictions = distributions.Categorical(jnp.asarray(probs))
    features = random.normal(size=(40, 1))
    found = calibjax.evaluate(KEY, predictions, probs.argmax(1), features=features)
    for place in (0, 17):
        y = np.asarray(_redrawn(predictions, place))
        errors = np.eye(3)[y] - probs
        np.testing.assert_allclose(
            found.tests["mean errors"].null_samples[place, 0, :3], abs(errors.mean(0)), atol=1e-5
        )
        own = found.tests["calibration"].components.of_kernel("residuals, near predictions")
        kernel = found.kernels["residuals"]["near predictions"]
        expected = estimators.skce(kernel, predictions, jnp.asarray(y))
        np.testing.assert_allclose(own.unbiased.null_samples[place], expected, atol=1e-5)
        seen = distributions.with_features(predictions, found.arrays["features"])
        expected = estimators.skce(found.other_kernels["features"], seen, jnp.asarray(y))
        own = found.tests["features"].components
        np.testing.assert_allclose(own.unbiased.null_samples[place], expected, atol=1e-5)
