import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distributions, estimators, hypothesis_tests, kernels
from calibjax.hypothesis_tests import asymptotic
from tests import oracles

KEY = jax.random.key(1)
in_blocks = functools.partial(hypothesis_tests.asymptotic_skce_test, None, null="blocks")


@pytest.mark.parametrize("name", ["normal-None", "categorical-5-label"])
def test_bootstrap_against_a_loop_over_resamples(name, monkeypatch):
    """W19 App. G literally, with the same resamples."""
    kernel, predictions, targets, _, _ = oracles.cases()[name]
    draws = np.random.default_rng(0).integers(0, 23, size=(10, 23))
    counts = np.array([np.bincount(d, minlength=23) for d in draws])
    monkeypatch.setattr(asymptotic, "multinomial_counts", lambda keys, n: jnp.asarray(counts.T))
    asymptotic._bootstrap.clear_cache()
    test = hypothesis_tests.asymptotic_skce_test(KEY, kernel, predictions, targets, num_draws=10)
    h = np.asarray(oracles.calibration_kernel_matrix(kernel, predictions, targets))
    centered = h - h.mean(0) - h.mean(1)[:, None] + h.mean()
    pairs = np.array([(i, j) for i in range(23) for j in range(i + 1, 23)])
    expected = [2 / 23 * centered[d[pairs[:, 0]], d[pairs[:, 1]]].sum() for d in draws]
    np.testing.assert_allclose(test.null_samples, expected, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(test.statistic, 23 * oracles.unbiased(h), rtol=1e-12)
    np.testing.assert_allclose(test.estimate, oracles.unbiased(h), rtol=1e-12)
    assert test.pvalue == (1 + np.sum(np.array(expected) >= float(test.statistic))) / 11
    asymptotic._bootstrap.clear_cache()


def test_resampling_counts_are_multinomial():
    counts = np.asarray(asymptotic.multinomial_counts(jax.random.split(KEY, 20_000), 6))
    assert (counts.sum(0) == 6).all()
    observed = np.bincount(counts[2], minlength=7)[:5]
    expected = 20_000 * stats.binom.pmf(np.arange(5), 6, 1 / 6)
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3


@pytest.mark.slow
def test_bootstrap_approximates_the_null_distribution_of_many_samples():
    """Quantiles of n SKCE over calibrated data sets, and their bootstrap approximation."""
    kernel, n = oracles.normal_kernel(), 256
    predictions = distributions.Normal(jnp.linspace(0, 1, n), jnp.full(n, 0.1))

    def statistic(key):
        targets = distributions.sample_targets(key, predictions)
        return n * estimators.skce(kernel, predictions, targets)

    exact = jax.lax.map(statistic, jax.random.split(KEY, 1000), batch_size=100)
    targets = distributions.sample_targets(jax.random.key(5), predictions)
    test = hypothesis_tests.asymptotic_skce_test(KEY, kernel, predictions, targets)
    for level in (0.5, 0.9):
        assert abs(np.mean(exact <= np.quantile(test.null_samples, level)) - level) < 0.06


@pytest.mark.parametrize("block_size", [2, 5, 11])
def test_block_test_against_scipy(block_size):
    """The one-sample t statistic of the block estimates, compared with the normal."""
    kernel, predictions, targets, h, samples = oracles.cases()["categorical-5-label"]
    matrix = oracles.h_matrix(h, samples)
    starts = range(0, 23 - block_size + 1, block_size)
    blocks = [oracles.unbiased(matrix[np.ix_(*[np.arange(b, b + block_size)] * 2)]) for b in starts]
    test = in_blocks(kernel, predictions, targets, block_size=block_size)
    z = stats.ttest_1samp(blocks, 0).statistic
    np.testing.assert_allclose(test.statistic, z, rtol=1e-10)
    np.testing.assert_allclose(test.pvalue, stats.norm.sf(z), rtol=1e-10)
    np.testing.assert_allclose(test.estimate, np.mean(blocks), rtol=1e-10)
    assert test.null_samples is None


def test_block_pvalue_is_never_zero():
    predictions = distributions.Normal(jnp.linspace(0, 1, 400), jnp.full(400, 0.1))
    targets = predictions.loc + 3 + 0.01 * jnp.arange(400) % 2
    test = in_blocks(oracles.normal_kernel(), predictions, targets, block_size=2)
    assert test.pvalue > 0


@pytest.mark.parametrize("num_blocks", [3, 5, 8])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_equal_blocks_give_no_pvalue(num_blocks, dtype):
    """Calibrated data on which the statistic is 0/0 but for rounding."""
    predictions = distributions.Bernoulli(jnp.full(2 * num_blocks, 0.01, dtype))
    arguments = oracles.categorical_kernel(), predictions, jnp.zeros(2 * num_blocks, int)
    with pytest.raises(ValueError, match="block estimates that differ"):
        in_blocks(*arguments, block_size=2)
    traced = jax.jit(functools.partial(in_blocks, block_size=2))(*arguments)
    assert jnp.isnan(traced.pvalue)


def test_block_test_does_not_depend_on_the_size_of_the_kernel():
    """Squares of 1e25 overflow in float32, those of 1e-25 vanish."""
    generator = np.random.default_rng(0)
    probs = generator.dirichlet(np.ones(3), 40).astype(np.float32)
    data = distributions.Categorical(jnp.asarray(probs)), jnp.asarray(generator.integers(0, 3, 40))

    def statistic(factor):
        kernel = kernels.TensorProduct(np.float32(factor) * kernels.Exponential(), kernels.White())
        return in_blocks(kernel, *data, block_size=4).statistic

    values = [statistic(factor) for factor in (1.0, 1e25, 1e-25)]
    np.testing.assert_allclose(values, values[0], rtol=1e-4)


def test_blocks_need_a_size_and_others_have_none():
    kernel, predictions, targets, _, _ = oracles.cases()["normal-None"]
    with pytest.raises(ValueError, match="block_size: expected an integer"):
        in_blocks(kernel, predictions, targets, block_size=12)
    with pytest.raises(ValueError, match='block_size: expected None with null="gamma", got 5'):
        in_blocks(kernel, predictions, targets, null="gamma", block_size=5)


def test_the_default_kernel():
    _, predictions, targets, _, _ = oracles.cases()["normal-None"]
    kernel = kernels.default_kernel(predictions)
    tests = (
        functools.partial(hypothesis_tests.asymptotic_skce_test, None, null="gamma"),
        functools.partial(hypothesis_tests.skce_margin_test, margin=0.2),
        functools.partial(hypothesis_tests.distribution_free_skce_test, bound=4.0),
    )
    for test in (hypothesis_tests.skce_confidence_interval, *tests):
        assert test(None, predictions, targets) == test(kernel, predictions, targets)
