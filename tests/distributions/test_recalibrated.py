"""`Recalibrated` against closed forms and quadrature with scipy's distribution functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from calibjax import record, scores
from calibjax.distributions import Beta, Normal, sample_targets, with_features
from calibjax.distributions.composed import Recalibrated
from calibjax.recalibration import TemperatureScaling

LEVELS = np.array([0.01, 0.3, 0.5, 0.9, 0.999])


def _number(x):
    return jnp.asarray(x, float)


@record
class Power:
    """A map with formulas: what Beta(alpha, 1) is, and compiles in no time."""

    alpha: jax.Array

    def cdf(self, level):
        return level**self.alpha

    def icdf(self, level):
        return level ** (1 / self.alpha)

    def log_prob(self, level):
        return jnp.log(self.alpha) + (self.alpha - 1) * jnp.log(level)


P = Recalibrated(Normal(_number(1.0), _number(2.0)), Power(_number(0.6)))
BASE, LAW = stats.norm(1, 2), stats.beta(0.6, 1)


def cdf(y):
    return LAW.cdf(BASE.cdf(y))


def density(y):
    return LAW.pdf(BASE.cdf(y)) * BASE.pdf(y)


def test_density_moments_and_score_by_quadrature():
    ys = np.array([0.2, 1.0, 3.0, 12.0])
    low, high = BASE.interval(1 - 1e-14)

    @jax.jit
    def values(p, y, u):
        of_numbers = jax.vmap(lambda y: (p.cdf(y), p.log_prob(y), p.crps(y)))(y)
        return *of_numbers, jax.vmap(lambda u: p.cdf(p.icdf(u)))(u), p.mean(), p.variance()

    levels, log_density, crps, again, mean, variance = values(P, _number(ys), _number(LEVELS))
    np.testing.assert_allclose(levels, cdf(ys), rtol=1e-5)
    np.testing.assert_allclose(log_density, np.log(density(ys)), rtol=1e-4)
    moments = [
        integrate.quad(lambda y, k=k: y**k * density(y), low, high, limit=200)[0] for k in (0, 1, 2)
    ]
    np.testing.assert_allclose(moments[0], 1, atol=1e-6)
    np.testing.assert_allclose(mean, moments[1], rtol=1e-4)
    np.testing.assert_allclose(variance, moments[2] - moments[1] ** 2, rtol=1e-3)
    expected = [
        integrate.quad(lambda t: cdf(t) ** 2, low, y)[0]
        + integrate.quad(lambda t: (1 - cdf(t)) ** 2, y, high)[0]
        for y in ys
    ]
    np.testing.assert_allclose(crps, expected, rtol=1e-4)
    np.testing.assert_allclose(again, LEVELS, rtol=1e-5)


def test_batches_of_them():
    batch = jax.tree.map(lambda x: jnp.full(2000, x), P)
    draws = sample_targets(jax.random.key(0), batch)
    assert stats.kstest(np.asarray(draws), cdf).pvalue > 0.01
    few, ys = jax.tree.map(lambda x: x[:5], batch), draws[:5]
    mean = scores.crps(with_features(few, ys), ys)
    np.testing.assert_allclose(mean, jnp.mean(jax.jit(jax.vmap(P.crps))(ys)), rtol=1e-5)
    hotter = TemperatureScaling().apply(2.0, batch)
    expected = TemperatureScaling().apply(2.0, batch.distribution)
    jax.tree.map(np.testing.assert_allclose, hotter.distribution, expected)


@pytest.mark.parametrize("alpha", [0.3, 2.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_densities_far_outside_are_finite(alpha, dtype):
    """Where the distribution function is 0 or 1 to the last digit."""
    p = Recalibrated(Normal(dtype(0), dtype(1)), Beta(dtype(alpha), dtype(alpha)))
    values = jax.jit(jax.vmap(p.log_prob))(np.array([-12, -8, -5.5, 5.5, 8, 12], dtype))
    assert np.all(np.isfinite(values))
    assert np.all(np.diff(values[:3]) > 0)
    assert np.all(np.diff(values[3:]) < 0)
