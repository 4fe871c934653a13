import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, estimators, hypothesis_tests, kernels
from calibjax.hypothesis_tests.components import STATISTICS, simulated_pvalue, skce_components
from tests import oracles

KEY = jax.random.key(0)
exact = hypothesis_tests.exact_skce_test


def pool_in_loops(unbiased, diagonal, n):
    """The statistics of a pool, written from the formulas."""
    nv = (n - 1) * unbiased + diagonal
    rest = (n - 1) * unbiased + diagonal.mean()

    def z(x):
        x = np.cbrt(x)
        return (x - x.mean()) / x.std()

    scores = z(nv), z(rest), z(diagonal)
    return scores, np.max([scores[0], scores[1], np.abs(scores[2])], 0)


def rank(pool):
    return (1 + sum(t >= pool[0] for t in pool[1:])) / len(pool)


@pytest.mark.parametrize("name", ["normal-None", "categorical-5-label"])
def test_against_loops(name):
    kernel, predictions, targets, h, samples = oracles.cases()[name]
    test = exact(KEY, kernel, predictions, targets, num_draws=40)
    matrix = oracles.h_matrix(h, samples)
    n, parts = len(matrix), test.components
    np.testing.assert_allclose(parts.biased.statistic, matrix.mean(), rtol=1e-9)
    np.testing.assert_allclose(parts.unbiased.statistic, oracles.unbiased(matrix), rtol=1e-9)
    np.testing.assert_allclose(parts.dispersion.statistic, np.trace(matrix) / n, rtol=1e-9)
    np.testing.assert_allclose(test.estimate, oracles.unbiased(matrix), rtol=1e-9)
    unbiased, diagonal = (
        np.r_[part.statistic, part.null_samples] for part in (parts.unbiased, parts.dispersion)
    )
    scores, pool = pool_in_loops(unbiased, diagonal, n)
    ours = parts.biased, parts.unbiased, parts.dispersion
    np.testing.assert_allclose([part.z for part in ours], [s[0] for s in scores], rtol=1e-8)
    np.testing.assert_allclose(np.r_[test.statistic, test.null_samples], pool, rtol=1e-8)
    assert test.pvalue == pytest.approx(rank(pool), rel=1e-12)
    assert parts.biased.pvalue == pytest.approx(rank((n - 1) * unbiased + diagonal), rel=1e-12)
    assert parts.unbiased.pvalue == pytest.approx(rank(unbiased), rel=1e-12)
    assert parts.dispersion.pvalue == pytest.approx(rank(np.abs(scores[2])), rel=1e-12)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_statistics_rank_what_they_name(statistic):
    kernel, predictions, targets, _, _ = oracles.cases()["categorical-5-white"]
    test = exact(KEY, kernel, predictions, targets, num_draws=50, statistic=statistic)
    if statistic != "omnibus":
        assert test.pvalue == getattr(test.components, statistic).pvalue
    parts = test.components
    expected = {
        "omnibus": max(parts.biased.z, parts.unbiased.z, abs(parts.dispersion.z)),
        "biased": estimators.skce_biased(kernel, predictions, targets),
        "unbiased": estimators.skce(kernel, predictions, targets),
        "dispersion": abs(parts.dispersion.z),
    }
    np.testing.assert_allclose(test.statistic, expected[statistic], rtol=1e-10)
    assert test.null_samples.shape == (50,)


def test_of_squares_the_biased_skce_alone_counts():
    rng = np.random.default_rng(0)
    unbiased, diagonal = rng.normal(size=(20, 2)), rng.gamma(3, size=(20, 2))
    options = {"num_targets": 7, "ranked": "omnibus"}
    several = options | {"family": jax.tree.structure([0, 0]), "squares": (False, True)}
    pool, parts = skce_components(jnp.asarray(unbiased), jnp.asarray(diagonal), **several)
    root = np.cbrt(6 * unbiased + diagonal)[:, 1]
    np.testing.assert_allclose(pool[:, 1], (root - root.mean()) / root.std(), rtol=1e-10)
    assert parts.of_kernel("1").largest == "biased"
    alone, _ = skce_components(*map(jnp.asarray, (unbiased[:, 0], diagonal[:, 0])), **options)
    np.testing.assert_allclose(pool[:, 0], alone, rtol=1e-12)


def test_a_constant_diagonal_has_no_say():
    """(y − p)² is 1/4 for p = 1/2 whatever comes."""
    kernel = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    predictions = distributions.Bernoulli(jnp.full(12, 0.5, jnp.float32))
    test = exact(KEY, kernel, predictions, jnp.ones(12, int), num_draws=99)
    assert test.components.dispersion.z == 0
    assert test.components.dispersion.pvalue == 1
    assert test.pvalue == 0.01


def test_draws_that_are_no_numbers_count_against_rejection():
    unbiased, diagonal = jnp.linspace(3.0, 0.0, 20), jnp.linspace(2.0, 1.0, 20)
    components = functools.partial(skce_components, num_targets=5, ranked="omnibus")
    pool, parts = components(unbiased.at[3].set(jnp.nan), diagonal.at[3].set(jnp.nan))
    assert jnp.isnan(pool[3])
    assert jnp.isfinite(pool[0])
    np.testing.assert_allclose(parts.biased.pvalue, 2 / 20)
    pool, parts = components(unbiased.at[0].set(jnp.nan), diagonal)
    assert jnp.isnan(pool[0])
    assert jnp.isnan(parts.biased.pvalue)


def test_prints_what_was_seen():
    predictions = distributions.Normal(jnp.zeros(64), jnp.ones(64))
    z = jax.random.normal(jax.random.key(1), (64,))
    test = functools.partial(exact, KEY, oracles.normal_kernel(), predictions, num_draws=100)
    wide, narrow = test(0.5 * z), test(2 * z)
    assert "targets scatter less: underconfident" in str(wide)
    assert "targets scatter more: overconfident" in str(narrow)
    assert wide.components.largest == narrow.components.largest == "dispersion"


@pytest.mark.parametrize("ranked", STATISTICS)
def test_equal_data_sets_tie(ranked):
    """Also where their sums were taken in another order, and have other rounding errors."""
    rng, n = np.random.default_rng(0), 4096
    diagonal = 0.2 + 0.3 / np.sqrt(n) * rng.normal(size=40)
    unbiased = 1e-3 * diagonal / n * rng.normal(size=40)
    order = np.arange(40) % 20  # each data set twice
    diagonal, unbiased = diagonal[order], unbiased[order]
    eps = np.finfo(float).eps
    found = []
    for _ in range(5):
        noise = eps * rng.normal(size=(2, 40))
        noisy = unbiased + 30 * noise[0] * diagonal / n, diagonal * (1 + 3 * noise[1])
        statistic, components = skce_components(*noisy, num_targets=n, ranked=ranked)
        parts = components.biased, components.unbiased, components.dispersion
        found.append([simulated_pvalue(statistic[0], statistic[1:]), *(p.pvalue for p in parts)])
    assert all(pvalues == found[0] for pvalues in found)
