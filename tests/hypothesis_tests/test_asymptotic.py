"""Asymptotic tests: resampled, by blocks, and sums of weighted chi-squared variables."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from calibjax import distributions, hypothesis_tests, kernels
from calibjax.hypothesis_tests import asymptotic
from calibjax.hypothesis_tests.asymptotic import ChiSquaredSum
from tests import oracles
from tests.estimators.test_kernel import case

KEY = jax.random.key(1)
TEST = functools.partial(hypothesis_tests.asymptotic_skce_test, None)
SPECTRUM, GAMMA, PEARSON, in_blocks = (
    functools.partial(TEST, null=x) for x in ("spectrum", "gamma", "pearson", "blocks")
)


def data_of(name):
    """Kernel, predictions and targets, and the matrix of h by loops."""
    kernel, predictions, targets, h, samples = oracles.cases()[name]
    return (kernel, predictions, targets), oracles.h_matrix(h, samples)


def centred(matrix):
    return matrix - matrix.mean(0) - matrix.mean(1)[:, None] + matrix.mean()


@pytest.mark.parametrize("name", ["normal-None", "categorical-5-label"])
def test_bootstrap_against_a_loop_over_resamples(name, monkeypatch):
    """W19 App. G literally, with the same resamples, whose counts are multinomial."""
    data, h = data_of(name)
    draws = np.random.default_rng(0).integers(0, 23, size=(10, 23))
    counts = np.array([np.bincount(d, minlength=23) for d in draws])
    with monkeypatch.context() as patch:
        patch.setattr(asymptotic, "multinomial_counts", lambda keys, n: jnp.asarray(counts.T))
        asymptotic._bootstrap.clear_cache()
        test = hypothesis_tests.asymptotic_skce_test(KEY, *data, num_draws=10)
    asymptotic._bootstrap.clear_cache()
    i, j = np.triu_indices(23, 1)
    expected = [2 / 23 * centred(h)[d[i], d[j]].sum() for d in draws]
    np.testing.assert_allclose(test.null_samples, expected, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(test.statistic, 23 * oracles.unbiased(h), rtol=1e-10)
    np.testing.assert_allclose(test.estimate, oracles.unbiased(h), rtol=1e-10)
    assert test.pvalue == (1 + np.sum(np.array(expected) >= float(test.statistic))) / 11
    counts = np.asarray(asymptotic.multinomial_counts(jax.random.split(KEY, 20_000), 6))
    assert (counts.sum(0) == 6).all()
    observed = np.bincount(counts[2], minlength=7)[:5]
    expected = 20_000 * stats.binom.pmf(np.arange(5), 6, 1 / 6)
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3


@pytest.mark.parametrize("block_size", [2, 5, 11])
def test_blocks_against_scipy(block_size):
    """The one-sample t statistic of the block estimates, compared with the normal."""
    data, matrix = data_of("categorical-5-label")
    blocks = oracles.block_estimates(matrix, block_size)
    test = in_blocks(*data, block_size=block_size)
    z = stats.ttest_1samp(blocks, 0).statistic
    np.testing.assert_allclose(test.statistic, z, rtol=1e-10)
    np.testing.assert_allclose(test.pvalue, stats.norm.sf(z), rtol=1e-10)
    np.testing.assert_allclose(test.estimate, np.mean(blocks), rtol=1e-10)
    assert test.null_samples is None


def test_sizes_of_kernels_and_evidence():
    """Squares of 1e25 overflow in float32, those of 1e-25 vanish; no p-value is zero."""
    predictions, labels, _ = oracles.categorical_data(40, 3, dtype=np.float32)

    def statistic(factor):
        kernel = kernels.TensorProduct(np.float32(factor) * kernels.Exponential(), kernels.White())
        return in_blocks(kernel, predictions, labels, block_size=4).statistic

    values = [statistic(factor) for factor in (1.0, 1e25, 1e-25)]
    np.testing.assert_allclose(values, values[0], rtol=1e-4)
    predictions = distributions.Normal(jnp.linspace(0, 1, 400), jnp.full(400, 0.1))
    targets = predictions.loc + 3 + 0.01 * jnp.arange(400) % 2
    assert in_blocks(oracles.normal_kernel(), predictions, targets, block_size=2).pvalue > 0


def test_other_nulls_have_no_blocks():
    data, _ = data_of("normal-None")
    with pytest.raises(ValueError, match='block_size: expected None with null="gamma", got 5'):
        GAMMA(*data, block_size=5)


def test_the_default_kernel():
    (_, predictions, targets), _ = data_of("normal-None")
    kernel = kernels.default_kernel(predictions)
    for test in (
        GAMMA,
        hypothesis_tests.skce_confidence_interval,
        functools.partial(hypothesis_tests.skce_margin_test, margin=0.2),
        functools.partial(hypothesis_tests.distribution_free_skce_test, bound=4.0),
    ):
        assert test(None, predictions, targets) == test(kernel, predictions, targets)


WEIGHTS = {"one": [1.0], "two equal": [0.5, 0.5], "ten equal": [0.1] * 10}
WEIGHTS |= {"geometric": 0.5 ** np.arange(30), "harmonic squares": (np.arange(200) + 1.0) ** -2}
WEIGHTS |= {"one and many": [1.0] + [1e-3] * 2000}
Z = (-1.3, -0.5, -1e-3, 0.0, 1e-3, 0.5, 1.0, 2.0, 4.0, 8.0)


def law_of(weights, rank=None, dtype=jnp.float64):
    """Leading weights, followed by zeros so that many laws share a program; and their deviation."""
    weights = np.asarray(weights)
    total, squares = weights.sum(), (weights**2).sum()
    padded = np.zeros(rank or max(30, len(weights)))
    padded[: len(weights)] = weights[: len(padded)]
    law = jax.tree.map(lambda x: jnp.asarray(x, dtype), ChiSquaredSum(padded, total, squares))
    return law, np.sqrt(2 * squares)


def imhof(weights, x):
    """Tail probability by Imhof's integral."""
    weights = np.asarray(weights)
    q = x + weights.sum()

    def integrand(u):
        angle = 0.5 * np.sum(np.arctan(weights * u)) - 0.5 * q * u
        return np.sin(angle) / u * np.exp(-0.25 * np.sum(np.log1p((weights * u) ** 2)))

    return 0.5 + integrate.quad(integrand, 0, np.inf, limit=3000, epsabs=1e-9)[0] / np.pi


LAWS = [(x, 1) for x in ("ten equal", "geometric", "harmonic squares", "one and many")]


@pytest.mark.parametrize(("name", "copies"), [*LAWS, ("geometric", 2), ("geometric", 40)])
@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
def test_numerical_tail_against_imhof(name, copies):
    """Each weight as often as there are copies."""
    law, _ = law_of(WEIGHTS[name])
    weights = np.repeat(WEIGHTS[name], copies)
    _, sd = law_of(weights)
    tail = functools.partial(asymptotic.numerical_tail, law, copies=copies)
    ours = jnp.stack([tail(z * sd) for z in Z])
    np.testing.assert_allclose(ours, [imhof(weights, z * sd) for z in Z], atol=2e-7)
    assert tail(-1.01 * weights.sum()) == 1


EQUAL = [("one", jnp.float64), ("two equal", jnp.float64), ("ten equal", jnp.float32)]


@pytest.mark.parametrize(("name", "dtype"), EQUAL)
def test_equal_weights_are_chi_squared(name, dtype):
    """All tails are exact there, far out too."""
    rank, weight = len(WEIGHTS[name]), WEIGHTS[name][0]
    law, sd = law_of(WEIGHTS[name], dtype=dtype)
    for z in (*Z, 15.0):
        expected = stats.chi2.sf(z * sd / weight + rank, rank)
        for tail in (asymptotic.numerical_tail, asymptotic.gamma_tail, asymptotic.pearson_tail):
            ours = tail(law, jnp.asarray(z * sd, dtype))
            assert ours.dtype == dtype
            tolerance = {"rtol": 1e-8} if dtype == jnp.float64 else {"rtol": 1e-3, "atol": 1e-6}
            np.testing.assert_allclose(ours, expected, **tolerance)


def test_tail_with_a_normal_rest():
    """Many small weights in place of which one normal variable enters."""
    law, sd = law_of(WEIGHTS["one and many"], rank=1)
    np.testing.assert_allclose(law.rest, 2 * 2000 * 1e-6)
    for z in (-1.3, -0.6, -0.5, 0.0, 0.5, 2.0, 6.0):
        expected = asymptotic.numerical_tail(law_of(WEIGHTS["one and many"])[0], z * sd)
        np.testing.assert_allclose(asymptotic.numerical_tail(law, z * sd), expected, atol=2e-4)
    # Nothing but the rest: a normal distribution.
    normal = ChiSquaredSum(jnp.zeros(1), jnp.array(1.0), jnp.array(0.5))
    for z in (-3.0, 0.0, 1.0, 5.0):
        ours = asymptotic.numerical_tail(normal, jnp.array(z))
        np.testing.assert_allclose(ours, stats.norm.sf(z), rtol=1e-9)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("shape", [5e3, 2e4, 1e6, 1e9])
def test_gamma_of_a_large_shape(shape, dtype):
    for x in (-200.0, -3.0, 0.0, 1.0, 3.0):
        ours = asymptotic._tail_of_gamma(jnp.asarray(shape, dtype), jnp.asarray(x, dtype))
        expected = stats.gamma(shape).sf(shape + x * np.sqrt(shape))
        np.testing.assert_allclose(ours, expected, atol=1e-3 if dtype == jnp.float32 else 1e-5)
        assert 0 <= ours <= 1


@pytest.mark.parametrize("num_eigenvalues", [2, 128])
def test_null_against_numpy(num_eigenvalues):
    (kernel, *samples), matrix = data_of("normal-None")
    expected = np.linalg.eigvalsh(centred(matrix) / 23)[::-1]
    null = functools.partial(asymptotic._null, num_eigenvalues=num_eigenvalues)
    statistic, estimate, law = null(kernel, tuple(samples))
    np.testing.assert_allclose(statistic, 23 * oracles.unbiased(matrix), rtol=1e-11)
    np.testing.assert_allclose(estimate, oracles.unbiased(matrix), rtol=1e-11)
    np.testing.assert_allclose(law.total, expected.sum(), rtol=1e-11)
    np.testing.assert_allclose(law.squares, (expected**2).sum(), rtol=1e-11)
    if num_eigenvalues == 128:
        np.testing.assert_allclose(law.weights, expected, atol=1e-14)
    else:  # by iteration, from below, and the rest is left to the normal variable
        assert law.weights.shape == (2,)
        assert (law.weights <= expected[:2] + 1e-14).all()
        np.testing.assert_allclose(law.weights[0], expected[0], rtol=0.1)


@pytest.mark.parametrize("name", ["normal-None", "categorical-5-label"])
def test_pvalues_against_scipy(name):
    """Moments of the eigenvalues; W21 Corollary B.4: s blocks, all eigenvalues s times."""
    data, matrix = data_of(name)
    weights, statistic = np.linalg.eigvalsh(centred(matrix) / 23), 23 * oracles.unbiased(matrix)
    mean, variance = weights.sum(), 2 * (weights**2).sum()
    skewness = 8 * (weights**3).sum() / variance**1.5
    gamma = stats.gamma(mean**2 / variance, loc=-mean, scale=variance / mean)
    np.testing.assert_allclose(GAMMA(*data).pvalue, gamma.sf(statistic), rtol=1e-9)
    pearson = stats.pearson3(skewness, scale=np.sqrt(variance))
    np.testing.assert_allclose(PEARSON(*data).pvalue, pearson.sf(statistic), rtol=1e-9)
    numerical = SPECTRUM(*data)
    assert numerical.null_samples is None
    np.testing.assert_allclose(numerical.pvalue, imhof(weights, statistic), atol=1e-6)
    for size in (5, 11):
        blocks = oracles.block_estimates(matrix, size)
        found, expected = SPECTRUM(*data, block_size=size), size * np.sum(blocks)
        np.testing.assert_allclose(found.estimate, np.mean(blocks), rtol=1e-10)
        np.testing.assert_allclose(found.statistic, expected, rtol=1e-10)
        exact = imhof(np.repeat(weights, len(blocks)), expected)
        np.testing.assert_allclose(found.pvalue, exact, atol=1e-6)


def test_negative_eigenvalues_enter_the_rest():
    """Of kernels that are not positive semi-definite, as those of some distances are."""
    predictions, targets, _ = oracles.normal_data(40)
    kernel = oracles.normal_kernel()
    difference = kernel + kernels.base.Scaled(-0.7, oracles.normal_kernel(0.3))
    _, _, law = asymptotic._null(difference, (predictions, targets), num_eigenvalues=40)
    matrix = np.asarray(asymptotic.sample_matrix(difference, (predictions, targets)))
    expected = np.linalg.eigvalsh(centred(matrix) / 40)
    assert expected[0] < -1e-6
    assert (law.weights >= 0).all()
    np.testing.assert_allclose(law.rest, 2 * np.sum(expected[expected < 0] ** 2), rtol=1e-8)


def at_a_location(kernel, predictions, targets):
    at = {"at_predictions": jax.tree.map(lambda x: x[:1] + 0.2, predictions)}
    at["at_targets"] = jnp.ones(1, int)
    return hypothesis_tests.cme_test(kernel, predictions, targets, **at)


EQUAL_SAMPLES = [(functools.partial(in_blocks, block_size=2), 0.01, n) for n in (10, 16)]
EQUAL_SAMPLES += [(test, 0.3, 8) for test in (SPECTRUM, GAMMA, PEARSON)]
EQUAL_SAMPLES += [(hypothesis_tests.skce_confidence_interval, 0.05, 20), (at_a_location, 0.1, 7)]


@pytest.mark.parametrize(("test", "probability", "n"), EQUAL_SAMPLES)
def test_equal_samples_have_no_scatter(test, probability, n):
    """Calibrated data on which statistics are 0/0 but for rounding; compiled, they are NaN."""
    predictions = distributions.Bernoulli(jnp.full(n, probability, jnp.float32))
    data = oracles.categorical_kernel(), predictions, jnp.zeros(n, int)
    with pytest.raises(ValueError, match="expected (samples|locations)"):
        test(*data)
    found = jax.jit(test)(*data)
    assert jnp.isnan(found.low if hasattr(found, "low") else found.pvalue)


@pytest.mark.parametrize("name", ["normal-None", "normal-3", "categorical-5-label"])
def test_mean_embedding_against_numpy(name):
    arguments, z = case(name)
    test = hypothesis_tests.cme_test(*arguments)
    mean = z.mean(0)
    statistic = 23 * mean @ np.linalg.solve(np.cov(z, rowvar=False), mean)
    np.testing.assert_allclose(test.statistic, statistic, rtol=1e-5)  # condition number 1e6
    np.testing.assert_allclose(test.pvalue, stats.chi2.sf(test.statistic, 7), rtol=1e-9)
    np.testing.assert_allclose(test.estimate, np.mean(mean**2), rtol=1e-10)
    traced = jax.jit(hypothesis_tests.cme_test)(*arguments)
    np.testing.assert_allclose(traced.pvalue, test.pvalue, rtol=1e-5)


def test_singular_covariances_are_refused():
    (kernel, predictions, targets, *locations), _ = case("normal-3")
    twice = jax.tree.map(lambda x: jnp.concatenate([x[:3], x[:1]]), locations)
    far = jax.tree.map(lambda x: x + 1e3, locations)
    for wrong in (twice, far):
        with pytest.raises(ValueError, match="at_predictions, at_targets: expected locations"):
            hypothesis_tests.cme_test(kernel, predictions, targets, *wrong)
        traced = jax.jit(hypothesis_tests.cme_test)(kernel, predictions, targets, *wrong)
        assert jnp.isnan(traced.pvalue)
