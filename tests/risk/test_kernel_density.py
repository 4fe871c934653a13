import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from calibjax.distributions import Bernoulli, Categorical
from calibjax.estimators.binned import kde_calibration_error
from calibjax.risk import KernelDensity
from tests.estimators.test_kernel_density import boundary, interior, proportions_oracle

BANDWIDTHS = np.array([1e-5, 1e-3, 0.05, 1.0])  # of one length everywhere: it compiles once
# Zeros, and numbers whose densities underflow.
POINTS = np.array(
    [
        *([1, 0, 0], [0.5, 0.5, 0], [0, 1e-30, 1], [1e-200, 1, 1e-300], [1 - 1e-12, 0, 1e-12]),
        *([0.2, 0.3, 0.5], [1 / 3, 1 / 3, 1 / 3], [0, 1, 0]),
    ]
)


@jax.jit
def residuals(train, labels, points, bandwidths):
    """Residuals of points for all bandwidths, [k, n, m], and values left out, [k, n]."""
    function = KernelDensity()
    params = function.fit(train, labels, 0.1)

    def at(bandwidth):
        params_at = function.refit(params, bandwidth)
        left, right = function.factors(params_at, points)
        return (left + right) / 2, params_at.leave_one_out()

    return jax.lax.map(at, bandwidths)


@pytest.mark.parametrize("make", [interior, boundary])
def test_against_scipy(make):
    train, labels = make(25, 3)
    ours, left_out = residuals(
        Categorical(jnp.asarray(train)),
        jnp.asarray(labels),
        Categorical(jnp.asarray(POINTS)),
        jnp.asarray(BANDWIDTHS),
    )
    for h, value, mean in zip(BANDWIDTHS, ours, jnp.mean(left_out, 1), strict=True):
        ratios = np.array([proportions_oracle(q, train, labels, h) for q in POINTS])
        # Densities have logarithms of up to 700/h, and scipy's lose their digits.
        np.testing.assert_allclose(value, POINTS - ratios, atol=max(1e-12, 1e-12 / h))
        expected = kde_calibration_error(
            Categorical(jnp.asarray(train)), jnp.asarray(labels), bandwidth=h, order=2
        )
        np.testing.assert_allclose(mean, expected, rtol=1e-12)


def test_confidences_against_beta_densities():
    rng = np.random.default_rng(0)
    train, labels = rng.uniform(size=40), rng.integers(0, 2, size=40)
    points = np.append(rng.uniform(size=9), [0, 1])
    h = jnp.array([0.02, 0.3, 0.4, 1.0])
    ours, left_out = residuals(*map(jnp.asarray, (train, labels, points)), h)
    for bandwidth, value, mean in zip(h, ours, jnp.mean(left_out, 1), strict=True):
        weights = [
            scipy.stats.beta.pdf(points[:9], c / bandwidth + 1, (1 - c) / bandwidth + 1)
            for c in train
        ]
        errors = points[:9] - labels @ np.array(weights) / np.sum(weights, 0)
        np.testing.assert_allclose(value[:9, 0], errors, atol=1e-12)
        both = kde_calibration_error(
            Bernoulli(jnp.asarray(train)), jnp.asarray(labels), bandwidth=bandwidth, order=2
        )
        np.testing.assert_allclose(mean, both / 2, rtol=1e-12)


def test_numbers_everywhere_in_float32():
    """Saturated and equal predictions, tiny numbers, any bandwidth; close to float64."""
    train, labels = boundary(25, 3, seed=1)
    train[10:16] = [1, 0, 0]
    train[20:24] = np.array([[1, 1e-37, 0], [0, 1, 1e-36], [0.5, 0.5, 2e-38], [1, 0, 1e-30]])
    for bandwidths in (BANDWIDTHS, [1e-12, 1e-4, 0.1, 1e6]):
        results = []
        for dtype in (np.float32, np.float64):
            rows = (train, np.where(POINTS < 1e-38, 0, POINTS), np.asarray(bandwidths))
            rows = [jnp.asarray(x.astype(np.float32).astype(dtype)) for x in rows]
            args = Categorical(rows[0]), jnp.asarray(labels), Categorical(rows[1])
            results.append(residuals(*args, rows[2]))
            assert all(x.dtype == dtype and np.isfinite(x).all() for x in results[-1])
        for single, double in zip(*results, strict=True):
            for h, one, two in zip(bandwidths, single, double, strict=True):
                np.testing.assert_allclose(one, two, atol=1e-5 if h >= 1e-3 else 1)
