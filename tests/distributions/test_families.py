"""Draws, derivatives, tails and ends of the families; their numbers are in `test_numbers.py`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from calibjax import distributions as d

ONE = [0.7, 1.0, 4.5, 60.0]
TWO = [0.4, 2.0, 1.3, 3.0]
LOC = [0.3, -1.0, 2.0, 0.25]
HIGH = [0.7, 1.0, 3.3, 3.25]
# Ours, arguments of four distributions, SciPy's as a function of them, and points of the support.
NUMBERS, POSITIVE = [-3.0, 0.4, 2.5, 9.0], [0.01, 0.4, 2.5, 9.0]
FAMILIES = {
    "Normal": (d.Normal, (LOC, TWO), stats.norm, NUMBERS),
    "Laplace": (d.Laplace, (LOC, TWO), stats.laplace, NUMBERS),
    "Beta": (d.Beta, (ONE, TWO), stats.beta, [0.01, 0.4, 0.8, 0.97]),
    "Poisson": (d.Poisson, (ONE,), stats.poisson, [0, 3, 1, 50]),
    "StudentT": (d.StudentT, (ONE, LOC, TWO), stats.t, NUMBERS),
    "Logistic": (d.Logistic, (LOC, TWO), stats.logistic, NUMBERS),
    "LogNormal": (
        *(d.LogNormal, (LOC, TWO)),
        *(lambda loc, scale: stats.lognorm(scale, scale=np.exp(loc)), POSITIVE),
    ),
    "Gamma": (
        *(d.Gamma, (ONE, TWO)),
        *(lambda shape, rate: stats.gamma(shape, scale=1 / np.asarray(rate)), POSITIVE),
    ),
    "Uniform": (
        *(d.Uniform, (LOC, HIGH)),
        *(lambda low, high: stats.uniform(low, np.subtract(high, low)), [0.35, 0.9, 2.2, 2.5]),
    ),
    "GeneralizedNormal": (
        *(d.GeneralizedNormal, (LOC, TWO, ONE)),
        *(lambda loc, scale, power: stats.gennorm(power, loc, scale), [0.5, -1.5, 3.0, 2.9]),
    ),
    "NegativeBinomial": (
        *(d.NegativeBinomial, (TWO, ONE)),
        *(lambda mean, k: stats.nbinom(k, np.divide(k, np.add(mean, k))), [0, 3, 1, 12]),
    ),
}
DISCRETE = "NegativeBinomial", "Poisson"
OTHERS = [x for x in FAMILIES if x not in ("Beta", "Poisson")]  # that SciPy knows in the tails


def _both(name, dtype=np.float64):
    ours, arguments, theirs, y = FAMILIES[name]
    points = np.array(y, int if name in DISCRETE else dtype)
    return ours(*(jnp.array(a, dtype) for a in arguments)), theirs(*arguments), points


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


def check_derivatives(name, methods):
    """By all parameters and, of continuous families, by the value: those of central differences."""
    make, arguments, *_, y = FAMILIES[name]
    points, step = np.transpose([*arguments, y]), 1e-6
    n, d = points.shape

    def values(x):
        p, y = make(*x[:-1]), jnp.round(x[-1]).astype(int) if name in DISCRETE else x[-1]
        return jnp.stack([getattr(p, m)(jnp.asarray(0.3) if m == "icdf" else y) for m in methods])

    unit = np.where(points == 0, 1, np.abs(points))
    steps = step * np.concatenate([np.zeros((1, d)), np.eye(d), -np.eye(d)])
    both = jax.jit(jax.vmap(lambda x: (values(x), jax.jacrev(values)(x))))
    found, slopes = both((points + unit * steps[:, None]).reshape(-1, d))
    assert np.all(np.isfinite(slopes))
    found = found.reshape(-1, n, len(methods))
    differences = (found[1 : d + 1] - found[d + 1 :]) / (2 * step)  # [d, n, methods]
    ours = np.moveaxis(slopes[:n] * unit[:, None], -1, 0)
    np.testing.assert_allclose(ours, differences, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_derivatives(name):
    check_derivatives(name, ("log_prob", "cdf", *["icdf"] * (name not in DISCRETE)))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - {"GeneralizedNormal", "StudentT"}))
def test_derivatives_of_the_crps(name):
    """Which Student's family does not have for the first row, and the other one not at all."""
    check_derivatives(name, ("crps",))


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=pytest.mark.slow) if x in DISCRETE else x for x in OTHERS]
)
def test_slopes_in_the_tails_are_finite(name):
    p, theirs, y = _both(name, np.float32)
    tails = np.clip([theirs.ppf(1e-30), theirs.isf(1e-30)], -1e30, 1e30).astype(y.dtype)

    @jax.jit
    @jax.grad
    def slopes_of(p):
        values = jax.vmap(lambda x: jnp.stack([p.log_prob(x), p.cdf(x)]))(tails)
        return jnp.sum(jnp.where(jnp.isfinite(values), values, 0))

    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(slopes_of(p)))


@pytest.mark.parametrize("name", [n for n in OTHERS if n not in DISCRETE])
def test_levels_at_and_beyond_the_ends(name):
    p, reference, _ = _both(name)
    ends, outside = np.array([[0.0], [1.0]]), [-0.5, 1.5, np.nan]
    quantiles = np.asarray(jax.jit(jax.vmap(p.icdf))(np.r_[ends.ravel(), outside]))
    np.testing.assert_allclose(quantiles[:2], reference.ppf(ends), atol=1e-300)
    assert np.isnan(quantiles[2:]).all()
    beyond = np.stack([quantiles[:2], quantiles[:2] + 2 * ends - 1])  # or at the ends
    levels, densities = jax.jit(jax.vmap(jax.vmap(lambda y: (p.cdf(y), p.log_prob(y)))))(beyond)
    np.testing.assert_allclose(levels, np.broadcast_to(ends, (2, 2, 4)), rtol=1e-15, atol=1e-100)
    np.testing.assert_array_equal(densities[1], np.full((2, 4), -np.inf))


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
def test_large_negative_binomials(dtype):
    """Means and concentrations up to 1e6, against SciPy."""
    grids = np.meshgrid([1e3, 1e5, 1e6], [1e-2, 1e2, 1.1e4, 1e6], [0.001, 0.99])
    mean, k, level = (grid.ravel().astype(dtype) for grid in grids)
    digits = 1e-5
    exact = stats.nbinom(k.astype(float), k.astype(float) / (k.astype(float) + mean))
    y = exact.ppf(level.astype(float)).astype(np.int32)
    values = jax.jit(lambda p: (p.cdf(y), p.log_prob(y), p.icdf(level)))
    levels, densities, quantiles = values(d.NegativeBinomial(mean, k))
    np.testing.assert_allclose(levels, exact.cdf(y), rtol=0, atol=digits)
    np.testing.assert_allclose(densities, exact.logpmf(y), rtol=digits)
    np.testing.assert_allclose(exact.cdf(quantiles), exact.cdf(y), rtol=0, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_densities_of_gamma_near_zero(dtype):
    """Also where shape / (rate · y) overflows; slopes are finite."""
    tiny = float(np.finfo(dtype).tiny)
    shape = np.array([0.5, 1, 2, 5, 1e4, 1e4, 0.5, 3, 0.5, 1, 2], dtype)
    rate = np.array([1, 1, 1e-10, 1, 1, 1e30, 1, 1, 2, 2, 2], dtype)
    y = np.array([2 * tiny, 2 * tiny, 1e-10, 8 * tiny, 2e-34, 2 * tiny, 1e-4, 0.5, 0, 0, 0], dtype)
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


def test_quantiles_of_poisson_between_which_single_precision_has_no_numbers():
    """At counts whose neighbours are 2 to 64 apart bisection has to come to an end, too."""
    rate, level = np.float32([3e7, 5e7, 1e9]), np.float32([1e-6, 0.3, 0.9])
    icdf = jax.jit(d.Poisson.icdf)
    ours = icdf(d.Poisson(rate), level)
    expected = stats.poisson.ppf(level, rate.astype(float))
    np.testing.assert_allclose(ours, expected, rtol=2e-7)
    largest = np.iinfo(ours.dtype).max
    beyond = icdf(d.Poisson(np.float32([3.0 * largest] * 3)), level)
    assert np.all(beyond == np.iinfo(ours.dtype).min)


def test_ends_of_beta():
    """At 0 and 1 the density is 0, infinite, or finite; outside it is zero."""
    rows = [[1, 2, 0], [1, 2, 1], [0.5, 0.5, 0], [2, 2, 0], [2, 2, 1.5], [1, 1, 1]]
    level = np.array([0, 1, 0, 1, 0.5, 0.3])
    alpha, beta, y = np.array(rows).T
    values = jax.jit(lambda p: (p.log_prob(y), p.cdf(y), p.icdf(level)))
    densities, levels, quantiles = values(d.Beta(alpha, beta))
    np.testing.assert_allclose(np.exp(densities), [2, 0, np.inf, 0, 0, 1], rtol=1e-14)
    np.testing.assert_array_equal(levels, [0, 1, 0, 0, 1, 1])
    np.testing.assert_allclose(quantiles, [0, 1, 0, 1, 0.5, 0.3], rtol=1e-7)


def test_gradients_by_a_parameter_of_one_at_the_edge():
    """Of (alpha − 1) log y at y = 0: −∞, as the largest number, and what it is elsewhere."""

    def log_density(alpha, y):
        return d.Beta(alpha, jnp.array(3.0)).log_prob(y)

    slopes = [jax.jit(jax.grad(log_density))(jnp.array(1.0), y) for y in (0.0, 0.5)]
    expected = np.log(0.5) + 1 + 1 / 2 + 1 / 3  # log y + ψ(4) − ψ(1)
    np.testing.assert_allclose(slopes[1], expected, rtol=1e-12)
    assert slopes[0] < -1e308
    masked = jax.jit(jax.grad(lambda alpha: 0 * log_density(alpha, 0.0)))(jnp.array(1.0))
    assert masked == 0  # of a sample without weight
    gamma = lambda alpha, y: d.Gamma(alpha, jnp.array(2.0)).log_prob(y)  # noqa: E731
    slopes = [jax.jit(jax.grad(gamma))(jnp.array(1.0), y) for y in (0.0, 0.5, -1.0)]
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
