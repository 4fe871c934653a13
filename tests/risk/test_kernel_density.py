import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from calibjax.distributions import Categorical
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
    """Residuals of points for all bandwidths, [k, n, m]."""
    function = KernelDensity()
    params = function.fit(train, labels, 0.1)

    def at(bandwidth):
        left, right = function.factors(function.refit(params, bandwidth), points)
        return (left + right) / 2

    return jax.lax.map(at, bandwidths)


@pytest.mark.parametrize("make", [interior, boundary])
def test_against_scipy(make):
    train, labels = make(25, 3)
    ours = residuals(
        Categorical(jnp.asarray(train)),
        jnp.asarray(labels),
        Categorical(jnp.asarray(POINTS)),
        jnp.asarray(BANDWIDTHS),
    )
    for h, value in zip(BANDWIDTHS, ours, strict=True):
        ratios = np.array([proportions_oracle(q, train, labels, h) for q in POINTS])
        # Densities have logarithms of up to 700/h, and scipy's lose their digits.
        np.testing.assert_allclose(value, POINTS - ratios, atol=max(1e-12, 1e-12 / h))


def test_confidences_against_beta_densities():
    rng = np.random.default_rng(0)
    train, labels = rng.uniform(size=40), rng.integers(0, 2, size=40)
    points = np.append(rng.uniform(size=9), [0, 1])
    h = jnp.array([0.02, 0.3, 0.4, 1.0])
    ours = residuals(*map(jnp.asarray, (train, labels, points)), h)
    for bandwidth, value in zip(h, ours, strict=True):
        weights = [
            scipy.stats.beta.pdf(points[:9], c / bandwidth + 1, (1 - c) / bandwidth + 1)
            for c in train
        ]
        errors = points[:9] - labels @ np.array(weights) / np.sum(weights, 0)
        np.testing.assert_allclose(value[:9, 0], errors, atol=1e-12)


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
            assert results[-1].dtype == dtype
            assert KernelDensity().fit(*args[:2], 0.1).bandwidth.dtype == dtype
            assert np.isfinite(results[-1]).all()
        for h, one, two in zip(bandwidths, *results, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-5 if h >= 1e-3 else 1)
