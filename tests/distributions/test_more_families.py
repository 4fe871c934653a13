"""Families without expectations in closed form, against SciPy and quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from calibjax import distributions as d

LEVELS = np.array([0.001, 0.3, 0.5, 0.975])
ONE = [0.7, 1.0, 4.5, 60.0]
TWO = [0.4, 2.0, 1.3, 3.0]
LOC = [0.3, -1.0, 2.0, 0.0]
HIGH = [0.7, 1.0, 3.3, 3.0]
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
        [0.35, 0.9, 0.0, 3.5],
    ),
    "GeneralizedNormal": (
        d.GeneralizedNormal,
        (LOC, TWO, ONE),
        lambda loc, scale, power: stats.gennorm(power, loc, scale),
        (LOC, TWO, ONE),
        [0.3, -1.5, 3.0, 2.9],
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FAMILIES)
def test_agrees_with_scipy(name, dtype):
    p, reference, y = _both(name, dtype)
    tolerance = 3e-5 if dtype == np.float32 else 1e-11
    density = reference.logpmf if name in DISCRETE else reference.logpdf
    with np.errstate(divide="ignore"):
        pairs = (p.log_prob(y), density(y)), (p.cdf(y), reference.cdf(y))
    mean, variance = reference.stats()
    for ours, theirs in (*pairs, (p.mean(), mean), (p.variance(), variance)):
        assert ours.dtype == dtype
        finite = np.isfinite(theirs) & np.isfinite(ours)
        if name != "StudentT":  # SciPy has infinite means where ours are NaN
            assert np.array_equal(np.isfinite(theirs), np.isfinite(ours))
        np.testing.assert_allclose(
            np.asarray(ours)[finite], np.asarray(theirs)[finite], rtol=tolerance, atol=tolerance
        )
    for level in LEVELS if dtype == np.float64 else ():
        ours, theirs = p.icdf(level), reference.ppf(level)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_draws_have_the_distribution(name):
    p, reference, _ = _both(name)
    keys = jax.random.split(jax.random.key(1), 4000)
    draws = np.asarray(jax.vmap(lambda key: p.sample(key))(keys))
    if name in DISCRETE:
        error = np.sqrt(reference.var() / 4000)
        np.testing.assert_array_less(np.abs(draws.mean(0) - reference.mean()), 4 * error)
        zeros = reference.pmf(0)
        error = np.sqrt(zeros * (1 - zeros) / 4000)
        np.testing.assert_array_less(np.abs((draws == 0).mean(0) - zeros), 4 * error)
        return
    levels = reference.cdf(draws)
    for column in levels.T:  # four families, one test in a thousand fails each
        assert stats.kstest(column, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("name", OTHERS)
def test_gradients_are_finite(name):
    p, theirs, y = _both(name, np.float32)
    tails = np.clip([theirs.ppf(1e-30), theirs.isf(1e-30)], -1e30, 1e30).astype(y.dtype)

    @jax.jit
    @jax.grad
    def slopes_of(p):
        values = [f(x) for x in (y, *tails) for f in (p.log_prob, p.cdf)]
        return sum(jnp.sum(jnp.where(jnp.isfinite(x), x, 0)) for x in values)

    slopes = slopes_of(p)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(slopes))


@pytest.mark.slow
def test_derivatives_at_the_median_and_far_away():
    p = d.StudentT(*(jnp.float32(x) for x in (3.0, 1.0, 2.0)))
    q = d.GeneralizedNormal(*(jnp.float32(x) for x in (1.0, 2.0, 5.0)))
    for one in (p, q):
        slope = jax.grad(one.cdf)(jnp.float32(1.0))
        np.testing.assert_allclose(slope, jnp.exp(one.log_prob(1.0)), rtol=1e-5)
    assert jnp.isfinite(jax.grad(p.cdf)(jnp.float32(1e30)))
    assert jnp.isfinite(jax.grad(p.crps)(jnp.float32(1e15)))


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


@pytest.mark.parametrize(
    ("family", "parameter"),
    [(lambda x: d.StudentT(x, 0.0, 1.5), 2.0), (lambda x: d.Gamma(x, 2.0), 1.0)],
)
def test_slope_of_the_crps_where_formulas_meet(family, parameter):
    @jax.jit
    def crps(x):
        return family(x).crps(0.7)

    step = 1e-5
    expected = (crps(parameter + step) - crps(parameter - step)) / (2 * step)
    np.testing.assert_allclose(jax.jit(jax.grad(crps))(parameter), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_negative_binomials(dtype):
    """Means and concentrations of 1e5 and 1e6: against SciPy, sums, and the limit of a gamma."""
    with jax.enable_x64(dtype is np.float64):
        grids = np.meshgrid([1e3, 1e5, 1e6], [1e-2, 1e2, 1.1e4, 1e6])
        mean, k = (grid.ravel().astype(dtype) for grid in grids)
        p = d.NegativeBinomial(jnp.asarray(mean), jnp.asarray(k))
        exact = stats.nbinom(k.astype(float), k.astype(float) / (k.astype(float) + mean))
        digits = 1e-5 if dtype is np.float32 else 1e-9
        for level in (0.001, 0.5, 0.99):
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
        wide = d.NegativeBinomial(jnp.asarray(1e6, dtype), jnp.asarray(0.01, dtype))
        drawn = jax.vmap(wide.sample)(jax.random.split(jax.random.key(0), 4000))
        share = np.mean(np.asarray(drawn) > 3e7)
        np.testing.assert_allclose(share, stats.gamma.sf(0.3, 0.01), atol=0.006)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_derivatives_of_laplace(dtype):
    """Also at the mean, and where an exponential of the other side would overflow."""
    y = jnp.array([-2000.0, -1.0, 0.5, 1.0, 3000.0], dtype)
    p = d.Laplace(jnp.full(5, 0.5, dtype), jnp.full(5, 2.0, dtype))
    slopes = lambda f: jax.jit(jax.vmap(jax.grad(f, argnums=(0, 1))))(p, y)  # noqa: E731
    d_p, d_y = slopes(lambda p, y: p.cdf(y))
    density, z = np.exp(p.log_prob(y)), (y - 0.5) / 2
    for ours, expected in ((d_y, density), (d_p.loc, -density), (d_p.scale, -density * z)):
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours, expected, rtol=1e-6)
    d_p, d_y = slopes(lambda p, y: p.log_prob(y))
    np.testing.assert_allclose(d_y, -np.sign(z) / 2, rtol=1e-6)
    np.testing.assert_allclose(d_p.scale, (np.abs(z) - 1) / 2, rtol=1e-6)


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
