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

KEY = jax.random.key(1)
NAMES = ("normal-None", "normal-3", "categorical-5-white", "categorical-5-label")
WEIGHTS = {"one": [1.0], "two equal": [0.5, 0.5], "ten equal": [0.1] * 10}
WEIGHTS |= {"geometric": 0.5 ** np.arange(30), "harmonic squares": (np.arange(200) + 1.0) ** -2}
WEIGHTS |= {"one and many": [1.0] + [1e-3] * 2000}
ANALYTIC = tuple(
    functools.partial(hypothesis_tests.asymptotic_skce_test, None, null=null)
    for null in ("spectrum", "gamma", "pearson")
)
SPECTRUM, GAMMA, PEARSON = ANALYTIC
Z = (-1.3, -0.5, -1e-3, 0.0, 1e-3, 0.5, 1.0, 2.0, 4.0, 8.0)


def _law(weights, rank=None, dtype=jnp.float64):
    """Leading weights, followed by zeros so that many laws share a program."""
    weights = np.asarray(weights)
    total, squares = weights.sum(), (weights**2).sum()
    padded = np.zeros(rank or max(30, len(weights)))
    padded[: len(weights)] = weights[: len(padded)]
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), ChiSquaredSum(padded, total, squares))


def _eigenvalues(matrix):
    """Those of the centred matrix, divided by the number of samples."""
    centered = matrix - matrix.mean(0) - matrix.mean(1)[:, None] + matrix.mean()
    return np.linalg.eigvalsh(centered / len(matrix))


def _imhof(weights, x):
    """Tail probability by Imhof's integral."""
    weights = np.asarray(weights)
    q = x + weights.sum()

    def integrand(u):
        angle = 0.5 * np.sum(np.arctan(weights * u)) - 0.5 * q * u
        return np.sin(angle) / u * np.exp(-0.25 * np.sum(np.log1p((weights * u) ** 2)))

    return 0.5 + integrate.quad(integrand, 0, np.inf, limit=3000, epsabs=1e-9)[0] / np.pi


@pytest.mark.parametrize("name", ["ten equal", "geometric", "harmonic squares", "one and many"])
@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
def test_numerical_tail_against_imhof(name):
    law = _law(WEIGHTS[name])
    sd = float(jnp.sqrt(2 * law.squares))
    ours = jnp.stack([asymptotic.numerical_tail(law, z * sd) for z in Z])
    expected = [_imhof(WEIGHTS[name], z * sd) for z in Z]
    np.testing.assert_allclose(ours, expected, atol=2e-7)


EQUAL = [(name, jnp.float64) for name in ("one", "two equal", "ten equal")]


@pytest.mark.parametrize(("name", "dtype"), [*EQUAL, ("ten equal", jnp.float32)])
def test_equal_weights_are_chi_squared(name, dtype):
    """All tails are exact there, far out too."""
    rank, weight = len(WEIGHTS[name]), WEIGHTS[name][0]
    law = _law(WEIGHTS[name], dtype=dtype)
    sd = weight * np.sqrt(2 * rank)
    for z in (*Z, 15.0):
        expected = stats.chi2.sf(z * sd / weight + rank, rank)
        for tail in (asymptotic.numerical_tail, asymptotic.gamma_tail, asymptotic.pearson_tail):
            ours = tail(law, jnp.asarray(z * sd, dtype))
            assert ours.dtype == dtype
            tolerance = {"rtol": 1e-8} if dtype == jnp.float64 else {"rtol": 1e-3, "atol": 1e-6}
            np.testing.assert_allclose(ours, expected, **tolerance)


def test_tail_with_a_normal_rest():
    """Many small weights in place of which one normal variable enters."""
    weights = WEIGHTS["one and many"]
    law = _law(weights, rank=1)
    np.testing.assert_allclose(law.rest, 2 * 2000 * 1e-6)
    sd = float(jnp.sqrt(2 * law.squares))
    for z in (-1.3, -0.6, -0.5, 0.0, 0.5, 2.0, 6.0):
        expected = asymptotic.numerical_tail(_law(weights), z * sd)
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


@pytest.mark.parametrize(
    ("name", "num_eigenvalues"), [*((name, 128) for name in NAMES), ("normal-None", 2)]
)
def test_null_against_numpy(name, num_eigenvalues):
    kernel, predictions, targets, h, samples = oracles.cases()[name]
    matrix = oracles.h_matrix(h, samples)
    expected = _eigenvalues(matrix)[::-1]
    statistic, estimate, law = asymptotic._null(
        kernel, (predictions, targets), num_eigenvalues=num_eigenvalues
    )
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
def test_moment_approximations_against_scipy(name):
    kernel, predictions, targets, h, samples = oracles.cases()[name]
    matrix = oracles.h_matrix(h, samples)
    weights = _eigenvalues(matrix)
    statistic = 23 * oracles.unbiased(matrix)
    mean, variance = weights.sum(), 2 * (weights**2).sum()
    skewness = 8 * (weights**3).sum() / variance**1.5
    gamma = stats.gamma(mean**2 / variance, loc=-mean, scale=variance / mean)
    data = kernel, predictions, targets
    np.testing.assert_allclose(GAMMA(*data).pvalue, gamma.sf(statistic), rtol=1e-9)
    pearson = stats.pearson3(skewness, scale=np.sqrt(variance))
    np.testing.assert_allclose(PEARSON(*data).pvalue, pearson.sf(statistic), rtol=1e-9)
    numerical = SPECTRUM(*data)
    assert numerical.null_samples is None
    expected = asymptotic.numerical_tail(_law(weights[::-1]), jnp.asarray(statistic))
    np.testing.assert_allclose(numerical.pvalue, expected, rtol=1e-9)


def _data(family, n, mild):
    if family == "normal":
        predictions, targets, _ = oracles.normal_data(n)
        return oracles.normal_kernel(), predictions, targets + 0.02 * mild
    predictions, targets, _ = oracles.categorical_data(n, 10)
    changed = jnp.arange(n) < 0.03 * n * mild
    return oracles.categorical_kernel(), predictions, jnp.where(changed, 0, targets)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["normal", "classes"])
@pytest.mark.parametrize("mild", [0, 1])
def test_approximations_against_the_bootstrap(family, mild):
    """The whole tail function: the bar of 0.03, and where moments do not meet it."""
    kernel, *data = _data(family, 300, mild)
    bootstrap = hypothesis_tests.asymptotic_skce_test(KEY, kernel, *data, num_draws=10_000)
    _, _, law = asymptotic._null(kernel, tuple(data), num_eigenvalues=128)
    for p in (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99):
        x = jnp.quantile(bootstrap.null_samples, 1 - p)
        limit = 0.03 + 3 * np.sqrt(p * (1 - p) / 10_000)
        more = {
            "numerical": 0,
            "pearson": 0.08 if p > 0.5 and family == "normal" else 0,
            "gamma": 0.05 if p > 0.2 and family == "normal" else 0.01,
        }
        for name, allowed in more.items():
            assert abs(getattr(asymptotic, f"{name}_tail")(law, x) - p) < limit + allowed
    difference = abs(SPECTRUM(kernel, *data).pvalue - bootstrap.pvalue)
    assert difference < 0.03 + 4 * bootstrap.pvalue_standard_error


def test_negative_eigenvalues_enter_the_rest():
    """Of kernels that are not positive semi-definite, as those of some distances are."""
    predictions, targets, _ = oracles.normal_data(40)
    kernel = oracles.normal_kernel()
    difference = kernel + kernels.base.Scaled(-0.7, oracles.normal_kernel(0.3))
    _, _, law = asymptotic._null(difference, (predictions, targets), num_eigenvalues=40)
    matrix = asymptotic.sample_matrix(difference, (predictions, targets))
    expected = _eigenvalues(matrix)
    assert expected[0] < -1e-6
    assert (law.weights >= 0).all()
    negative = expected[expected < 0]
    np.testing.assert_allclose(law.rest, 2 * np.sum(negative**2), rtol=1e-8)


@pytest.mark.slow
def test_strong_miscalibration_has_digits_and_no_zeros():
    predictions, targets, _ = oracles.normal_data(300, calibrated=False)
    data = oracles.normal_kernel(), predictions, targets
    for test in ANALYTIC:
        assert 0 < test(*data).pvalue < 1e-8


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_constant_kernels_have_no_null_distribution(dtype):
    predictions = distributions.Bernoulli(jnp.full(8, 0.3, dtype))
    data = oracles.categorical_kernel(), predictions, jnp.zeros(8, int)
    for test in ANALYTIC:
        with pytest.raises(ValueError, match="predictions, targets: expected samples that differ"):
            test(*data)
        if dtype == jnp.float32:
            assert jnp.isnan(jax.jit(test)(*data).pvalue)


@pytest.mark.parametrize("copies", [2, 40])
@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
def test_sums_of_copies(copies):
    """Each weight as often as there are copies: a chi-squared law, Imhof's integral, and draws."""
    for name in ("one", "geometric"):
        weights = np.repeat(WEIGHTS[name], copies)
        law, sd = _law(WEIGHTS[name]), np.sqrt(2 * np.sum(weights**2))
        tail = functools.partial(asymptotic.numerical_tail, law, copies=copies)
        exact = functools.partial(_imhof, weights)
        if name == "one":
            exact = lambda x: stats.chi2.sf(x + copies, copies)  # noqa: E731
        ours = jnp.stack([tail(z * sd) for z in Z])
        np.testing.assert_allclose(ours, [exact(z * sd) for z in Z], atol=2e-7)
        assert tail(-1.01 * weights.sum()) == 1


@pytest.mark.parametrize(("name", "block_size"), [("normal-3", 5), ("categorical-5-white", 11)])
def test_blocks_against_plain_loops(name, block_size):
    """W21 Corollary B.4: s blocks, all eigenvalues s times, Imhof's integral."""
    kernel, predictions, targets, h, samples = oracles.cases()[name]
    matrix, blocks = oracles.h_matrix(h, samples), 23 // block_size
    places = [np.arange(b * block_size, (b + 1) * block_size) for b in range(blocks)]
    total = sum(oracles.unbiased(matrix[np.ix_(own, own)]) for own in places)
    weights = np.repeat(_eigenvalues(matrix), blocks)
    numerical = SPECTRUM(kernel, predictions, targets, block_size=block_size)
    np.testing.assert_allclose(numerical.estimate, total / blocks, rtol=1e-10)
    np.testing.assert_allclose(numerical.statistic, block_size * total, rtol=1e-10)
    np.testing.assert_allclose(numerical.pvalue, _imhof(weights, block_size * total), atol=1e-6)
