"""`Recalibrated` against closed forms and quadrature with scipy's distribution functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from calibjax import scores
from calibjax.distributions import (
    Beta,
    Categorical,
    Gamma,
    Normal,
    Poisson,
    Recalibrated,
    sample_targets,
    with_features,
)
from calibjax.recalibration import AffineMap, tempered

LEVELS, WANTED = np.array([0.01, 0.3, 0.5, 0.9, 0.999]), np.array([-2.0, 0.1, 1.3, 4.0])


def _number(x):
    return jnp.asarray(x, float)


@pytest.fixture(scope="module")
def shifted():
    """A normal prediction with an affine map: another normal distribution."""
    p = Recalibrated(Normal(_number(1.0), _number(2.0)), AffineMap(_number(0.3), _number(0.8)))
    return p, Normal(_number(1.6), _number(1.6))


def test_affine_map_of_a_normal_distribution(shifted):
    p, q = shifted
    tolerance = 100 * jnp.finfo(p.mean().dtype).eps
    for name, points in (("cdf", WANTED), ("log_prob", WANTED), ("icdf", LEVELS), ("crps", WANTED)):
        found, expected = (jax.vmap(getattr(x, name))(_number(points)) for x in (p, q))
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=name)
    np.testing.assert_allclose([p.mean(), p.variance()], [1.6, 2.56], rtol=20 * tolerance)
    np.testing.assert_allclose(jax.grad(lambda x: x.crps(1.0))(p).map.shift, _slope(q), rtol=1e-4)


def _slope(q):
    return 2.0 * jax.grad(lambda x: x.crps(1.0))(q).loc


@pytest.fixture(scope="module")
def distorted():
    """A gamma distribution with a beta distribution of the integral transform."""
    p = Recalibrated(Gamma(_number(2.5), _number(0.7)), Beta(_number(0.6), _number(1.4)))
    base, law = stats.gamma(2.5, scale=1 / 0.7), stats.beta(0.6, 1.4)
    return p, (lambda y: law.cdf(base.cdf(y))), (lambda y: law.pdf(base.cdf(y)) * base.pdf(y))


def test_density_moments_and_score_by_quadrature(distorted):
    p, cdf, density = distorted
    ys = np.array([0.2, 1.0, 3.0, 12.0])
    np.testing.assert_allclose(jax.vmap(p.cdf)(_number(ys)), cdf(ys), rtol=1e-5)
    found = jax.vmap(p.log_prob)(_number(ys))
    np.testing.assert_allclose(found, np.log(density(ys)), rtol=1e-4)
    moments = [
        integrate.quad(lambda y, k=k: y**k * density(y), 0, np.inf, limit=200)[0] for k in (0, 1, 2)
    ]
    np.testing.assert_allclose(moments[0], 1, atol=1e-6)
    np.testing.assert_allclose(p.mean(), moments[1], rtol=1e-4)
    np.testing.assert_allclose(p.variance(), moments[2] - moments[1] ** 2, rtol=1e-3)
    crps = [
        integrate.quad(lambda t: cdf(t) ** 2, 0, y)[0]
        + integrate.quad(lambda t: (1 - cdf(t)) ** 2, y, np.inf)[0]
        for y in ys
    ]
    np.testing.assert_allclose(jax.vmap(p.crps)(_number(ys)), crps, rtol=1e-4)
    np.testing.assert_allclose(
        jax.vmap(lambda u: p.cdf(p.icdf(u)))(_number(LEVELS)), LEVELS, rtol=1e-5
    )


def test_derivatives_of_quantiles_and_moments(distorted):
    p, _, _ = distorted

    def value(alpha):
        law = Beta(alpha, p.map.beta)
        q = Recalibrated(p.distribution, law)
        return jnp.stack([q.mean(), q.icdf(0.3), q.crps(1.0)])

    step = 1e-3 if p.mean().dtype == jnp.float64 else 3e-2
    low, high = value(_number(0.6 - step)), value(_number(0.6 + step))
    found = jax.jacrev(value)(_number(0.6))
    np.testing.assert_allclose(found, (high - low) / (2 * step), rtol=2e-2)


def test_batches_of_them(distorted):
    p, cdf, _ = distorted
    batch = jax.tree.map(lambda x: jnp.full(2000, x), p)
    draws = sample_targets(jax.random.key(0), batch)
    assert stats.kstest(np.asarray(draws), cdf).pvalue > 0.01
    few, ys = jax.tree.map(lambda x: x[:5], batch), draws[:5]
    mean = scores.crps(with_features(few, ys), ys)
    np.testing.assert_allclose(mean, jnp.mean(jax.vmap(p.crps)(ys)), rtol=1e-5)
    hotter = jax.vmap(tempered, (0, None))(batch, 2.0)
    np.testing.assert_allclose(hotter.distribution.concentration, 1.25)


@pytest.mark.parametrize(
    "distribution",
    [Poisson(jnp.ones(3)), Categorical(jnp.full((3, 2), 0.5))],
)
def test_predictions_that_are_no_continuous_numbers(distribution):
    batch = Recalibrated(distribution, Beta(jnp.ones(3), jnp.ones(3)))
    with pytest.raises(TypeError, match="distribution: expected continuous distributions of a"):
        sample_targets(jax.random.key(0), batch)


def test_maps_without_methods():
    batch = Recalibrated(Normal(jnp.zeros(3), jnp.ones(3)), jnp.ones(3))
    with pytest.raises(TypeError, match="map: expected distributions with a method cdf"):
        sample_targets(jax.random.key(0), batch)
    outside = Recalibrated(Normal(jnp.zeros(3), jnp.ones(3)), Beta(jnp.ones(3), -jnp.ones(3)))
    with pytest.raises(ValueError, match=r"map.beta: expected positive"):
        sample_targets(jax.random.key(0), outside)
