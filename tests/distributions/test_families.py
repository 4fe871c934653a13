"""Draws, derivatives, tails and ends of the families; their numbers are in `test_numbers.py`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from calibjax import distributions as d
from tests import oracles

ONE = [0.7, 1.0, 4.5, 60.0]
TWO = [0.4, 2.0, 1.3, 3.0]
LOC = [0.3, -1.0, 2.0, 0.25]
HIGH = [0.7, 1.0, 3.3, 3.25]
# ours and SciPy's arguments, [4] each, and points of the support
FAMILIES = {
    "Normal": (d.Normal, (LOC, TWO), stats.norm, (LOC, TWO), [-3.0, 0.4, 2.5, 9.0]),
    "Laplace": (d.Laplace, (LOC, TWO), stats.laplace, (LOC, TWO), [-3.0, 0.4, 2.5, 9.0]),
    "Beta": (d.Beta, (ONE, TWO), stats.beta, (ONE, TWO), [0.01, 0.4, 0.8, 0.97]),
    "Poisson": (d.Poisson, (ONE,), stats.poisson, (ONE,), [0, 3, 1, 50]),
    "StudentT": (d.StudentT, (ONE, LOC, TWO), stats.t, (ONE, LOC, TWO), [-3.0, 0.4, 2.5, 9.0]),
    "Logistic": (d.Logistic, (LOC, TWO), stats.logistic, (LOC, TWO), [-3.0, 0.4, 2.5, 9.0]),
    "LogNormal": (
        d.LogNormal,
        (LOC, TWO),
        lambda loc, scale: stats.lognorm(scale, scale=np.exp(loc)),
        (LOC, TWO),
        [0.01, 0.4, 2.5, 9.0],
    ),
    "Gamma": (
        d.Gamma,
        (ONE, TWO),
        lambda shape, rate: stats.gamma(shape, scale=1 / np.asarray(rate)),
        (ONE, TWO),
        [0.01, 0.4, 2.5, 20.0],
    ),
    "Uniform": (
        d.Uniform,
        (LOC, HIGH),
        lambda low, high: stats.uniform(low, np.subtract(high, low)),
        (LOC, HIGH),
        [0.35, 0.9, 2.2, 2.5],
    ),
    "GeneralizedNormal": (
        d.GeneralizedNormal,
        (LOC, TWO, ONE),
        lambda loc, scale, power: stats.gennorm(power, loc, scale),
        (LOC, TWO, ONE),
        [0.5, -1.5, 3.0, 2.9],
    ),
    "NegativeBinomial": (
        d.NegativeBinomial,
        (TWO, ONE),
        lambda mean, k: stats.nbinom(k, np.divide(k, np.add(mean, k))),
        (TWO, ONE),
        [0, 3, 1, 12],
    ),
}
DISCRETE = "NegativeBinomial", "Poisson"
OTHERS = [x for x in FAMILIES if x not in ("Beta", "Poisson")]  # that SciPy knows in the tails


def _both(name, dtype=np.float64):
    ours, arguments, theirs, same, y = FAMILIES[name]
    points = np.array(y, int if name in DISCRETE else dtype)
    return ours(*(jnp.array(a, dtype) for a in arguments)), theirs(*same), points


@pytest.mark.parametrize("name", FAMILIES)
def test_draws_have_the_distribution(name):
    """Kolmogorov's test and the rank correlation of neighbours, of four batches in float32."""
    p, reference, _ = _both(name, np.float32)
    batch = jax.tree.map(lambda x: jnp.repeat(x, 4000), p)
    draws = np.asarray(d.sample_targets(jax.random.key(5), batch)).reshape(4, 4000).T
    if name in DISCRETE:
        np.testing.assert_allclose(p.mean(), reference.mean(), rtol=1e-6)
        error = np.sqrt(reference.var() / 4000)
        np.testing.assert_array_less(np.abs(draws.mean(0) - reference.mean()), 4 * error)
        zeros = reference.pmf(0)
        error = np.sqrt(zeros * (1 - zeros) / 4000)
        np.testing.assert_array_less(np.abs((draws == 0).mean(0) - zeros), 4 * error + 1e-9)
        return
    assert draws.dtype == np.float32
    for column in reference.cdf(draws.astype(float)).T:
        assert stats.kstest(column, "uniform").pvalue > 1e-3
        assert abs(stats.spearmanr(column[1:], column[:-1]).statistic) < 3.3 / np.sqrt(4000)


METHODS = {
    "log_prob": lambda p, y: p.log_prob(y),
    "cdf": lambda p, y: p.cdf(y),
    "crps": lambda p, y: p.crps(y),
    "icdf": lambda p, y: p.icdf(jnp.asarray(0.3)),
}
INVERTIBLE = [x for x in FAMILIES if x not in DISCRETE]
WITHOUT_CRPS = "GeneralizedNormal", "StudentT"  # which is infinite for the first row
DERIVATIVES = [
    *((name, method) for name in FAMILIES for method in ("log_prob", "cdf")),
    *(pytest.param(x, "crps", marks=pytest.mark.slow) for x in FAMILIES if x not in WITHOUT_CRPS),
    *((name, "icdf") for name in INVERTIBLE),
]


@pytest.mark.parametrize(("name", "method"), DERIVATIVES)
def test_derivatives(name, method):
    """By all parameters and, of continuous families, by the value."""
    make, arguments, *_, y = FAMILIES[name]

    def value(x):
        point = jnp.round(x[-1]).astype(int) if name in DISCRETE else x[-1]
        return METHODS[method](make(*x[:-1]), point)

    oracles.check_gradients(value, np.transpose([*arguments, y]), 1e-6, 1e-6)


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=pytest.mark.slow) if x in DISCRETE else x for x in OTHERS]
)
def test_slopes_in_the_tails_are_finite(name):
    p, theirs, y = _both(name, np.float32)
    tails = np.clip([theirs.ppf(1e-30), theirs.isf(1e-30)], -1e30, 1e30).astype(y.dtype)

    @jax.jit
    @jax.grad
    def slopes_of(p):
        values = [f(x) for x in tails for f in (p.log_prob, p.cdf)]
        return sum(jnp.sum(jnp.where(jnp.isfinite(x), x, 0)) for x in values)

    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(slopes_of(p)))


@pytest.mark.parametrize("name", [n for n in OTHERS if n not in DISCRETE])
def test_levels_at_and_beyond_the_ends(name):
    p, reference, _ = _both(name)
    for level in (0.0, 1.0):
        end = p.icdf(level)
        np.testing.assert_allclose(end, reference.ppf(level), atol=1e-300)
        for beyond in (end, end + 2 * level - 1):
            np.testing.assert_array_equal(p.cdf(beyond), np.full(4, level))
        np.testing.assert_array_equal(p.log_prob(beyond), np.full(4, -np.inf))
    for level in (-0.5, 1.5, np.nan):
        assert np.isnan(p.icdf(level)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_densities_of_gamma_near_zero(dtype):
    """Also where rate · y underflows, or shape / (rate · y) overflows; slopes are finite."""
    tiny = float(np.finfo(dtype).tiny)
    shape = np.array([0.5, 1, 2, 5, 1e4, 1e4, 0.5, 3, 0.5, 1, 2], dtype)
    rate = np.array([1e-30, 1, 1e-30, 1, 1, 1e30, 1, 1, 2, 2, 2], dtype)
    y = np.array([2 * tiny, 2 * tiny, 1e-10, 2 * tiny, 1e-35, 2 * tiny, 1e-4, 0.5, 0, 0, 0], dtype)
    p = d.Gamma(jnp.asarray(shape), jnp.asarray(rate))
    a, b, x = (v.astype(float) for v in (shape, rate, y))
    with np.errstate(divide="ignore"):
        log_x = np.log(x)
    expected = a * np.log(b) + special.xlogy(a - 1, x) - b * x - special.gammaln(a)
    expected[8] = np.inf
    size = np.abs(a * np.log(b)) + np.where(x > 0, np.abs(a * log_x), 0) + special.gammaln(a) + 1
    found = jax.jit(lambda p: p.log_prob(jnp.asarray(y)))(p)
    np.testing.assert_allclose(found[8:], expected[8:], rtol=1e-6)
    np.testing.assert_array_less(abs(found - expected)[:8], 4 * np.finfo(dtype).eps * size[:8])
    slopes = jax.jit(jax.grad(lambda p: jnp.sum(p.log_prob(jnp.asarray(y))[:8])))(p)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))
    assert np.isnan(d.Gamma(jnp.asarray(shape), jnp.asarray(np.nan)).log_prob(y)).all()


def test_crps_of_wide_log_normal_distributions():
    p, exact = (d.LogNormal(dtype(0), dtype(8)) for dtype in (jnp.float32, jnp.float64))
    np.testing.assert_allclose(p.crps(jnp.float32(0.5)), exact.crps(0.5), rtol=1e-4)
    np.testing.assert_allclose(exact.crps(0.0), exact.crps(1e-300), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "df"), [(lambda x: d.StudentT(x, 0.0, 1.5), 2.0), (lambda x: d.Gamma(x, 2.0), 1.0)]
)
def test_slope_of_the_crps_where_formulas_meet(family, df):
    oracles.check_gradients(lambda x: family(x[0]).crps(0.7), np.array([[df]]), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
def test_large_negative_binomials(dtype):
    """Means and concentrations of 1e5 and 1e6: against SciPy, sums, and the limit of a gamma."""
    grids = np.meshgrid([1e3, 1e5, 1e6], [1e-2, 1e2, 1.1e4, 1e6])
    mean, k = (grid.ravel().astype(dtype) for grid in grids)
    p, digits = d.NegativeBinomial(mean, k), 1e-5 if dtype is np.float32 else 1e-9
    exact = stats.nbinom(k.astype(float), k.astype(float) / (k.astype(float) + mean))
    for level in (0.001, 0.99):
        y = exact.ppf(level).astype(np.int32)
        np.testing.assert_allclose(p.cdf(y), exact.cdf(y), rtol=0, atol=digits)
        np.testing.assert_allclose(p.log_prob(y), exact.logpmf(y), rtol=max(digits, 1e-7))
        found = p.icdf(jnp.full(mean.shape, level, dtype))
        np.testing.assert_allclose(exact.cdf(found), exact.cdf(y), rtol=0, atol=1e-3)
    one = d.NegativeBinomial(jnp.asarray(1e5, dtype), jnp.asarray(1e5, dtype))
    exact = stats.nbinom(1e5, 0.5)
    y, counts = 100300, np.arange(95000, 105000)
    loss = np.sum((exact.cdf(counts) - (counts >= y)) ** 2)
    np.testing.assert_allclose(one.crps(jnp.asarray(y)), loss, rtol=max(digits, 1e-8) * 10)
    slope = jax.grad(lambda mean, k: d.NegativeBinomial(mean, k).cdf(y))
    change = stats.nbinom.cdf(y, 1e5, 1e5 / (2e5 + np.array([1, -1])))
    wanted = (change[0] - change[1]) / 2
    np.testing.assert_allclose(slope(one.mean(), one.concentration), wanted, rtol=1e-3)


def test_quantiles_of_poisson_between_which_single_precision_has_no_numbers():
    """At counts whose neighbours are 2 to 64 apart bisection has to come to an end, too."""
    rate, level = np.float32([3e7, 5e7, 1e9]), np.float32([1e-6, 0.3, 0.9])
    ours = d.Poisson(rate).icdf(level)
    expected = stats.poisson.ppf(level, rate.astype(float))
    np.testing.assert_allclose(ours, expected, rtol=2e-7)
    largest = np.iinfo(ours.dtype).max
    beyond = d.Poisson(np.float32([3.0 * largest])).icdf(level[:1])
    assert int(beyond[0]) == np.iinfo(ours.dtype).min


@pytest.mark.slow
def test_draws_of_poisson_at_a_large_rate():
    """In float32, where log-probabilities by log-gamma functions have no digits."""
    p = d.Poisson(jnp.full(20_000, 1e6, jnp.float32))
    draws = np.asarray(jax.jit(d.sample_targets)(jax.random.key(0), p))
    assert stats.kstest((draws - 1e6) / 1e3, stats.norm.cdf).pvalue > 1e-3


def test_ends_of_beta():
    """At 0 and 1 the density is 0, infinite, or finite; outside it is zero."""
    rows = [[1, 2, 0], [1, 2, 1], [0.5, 0.5, 0], [2, 2, 0], [2, 2, 1.5], [1, 1, 1]]
    level = np.array([0, 1, 0, 1, 0.5, 0.3])
    alpha, beta, y = np.array(rows).T
    p = d.Beta(alpha, beta)
    np.testing.assert_allclose(np.exp(p.log_prob(y)), [2, 0, np.inf, 0, 0, 1], rtol=1e-14)
    np.testing.assert_array_equal(p.cdf(y), [0, 1, 0, 0, 1, 1])
    np.testing.assert_allclose(p.icdf(level), [0, 1, 0, 1, 0.5, 0.3], rtol=1e-7)


def test_gradients_by_a_parameter_of_one_at_the_edge():
    """Of (alpha − 1) log y at y = 0: −∞, as the largest number, and what it is elsewhere."""

    def log_density(alpha, y):
        return d.Beta(alpha, jnp.array(3.0)).log_prob(y)

    slopes = [jax.grad(log_density)(jnp.array(1.0), y) for y in (0.0, 0.5)]
    expected = np.log(0.5) + 1 + 1 / 2 + 1 / 3  # log y + ψ(4) − ψ(1)
    np.testing.assert_allclose(slopes[1], expected, rtol=1e-12)
    assert slopes[0] < -1e308
    masked = jax.grad(lambda alpha: 0 * log_density(alpha, 0.0))(jnp.array(1.0))
    assert masked == 0  # of a sample without weight
    gamma = lambda alpha, y: d.Gamma(alpha, jnp.array(2.0)).log_prob(y)  # noqa: E731
    slopes = [jax.grad(gamma)(jnp.array(1.0), y) for y in (0.0, 0.5, -1.0)]
    np.testing.assert_allclose(slopes[1:], [np.euler_gamma, 0], rtol=1e-12)
    assert slopes[0] < -1e308


def test_dirichlet_on_the_boundary():
    p = d.Dirichlet(np.tile([1.0, 0.5, 3.0, 2.0], (3, 1)))
    y = np.array([[0, 0.5, 0.3, 0.2], [0.5, 0, 0.3, 0.2], [0.5, 0.3, 0, 0.2]])
    expected = stats.dirichlet.logpdf([1e-14, 0.5 - 1e-14, 0.3, 0.2], p.concentration[0])
    np.testing.assert_allclose(p.log_prob(y), [expected, np.inf, -np.inf], rtol=1e-12)


def test_draws_do_not_underflow():
    p = d.Dirichlet(jnp.full((50, 1000), 0.1, np.float32))
    draws = jax.jit(d.sample_targets)(jax.random.key(0), p)
    assert draws.dtype == np.float32
    np.testing.assert_allclose(draws.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(draws.var(), p.variance()[0, 0], rtol=0.15)
