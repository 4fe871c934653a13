import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import eigh_tridiagonal

from calibjax import distributions, estimators, kernels
from tests import compiled

Beta = distributions.Beta


def _gauss_jacobi(alpha, beta, size=150):
    """Nodes and weights for expectations under Beta(alpha, beta), by Golub and Welsch."""
    a, b, k = beta - 1, alpha - 1, np.arange(1, size)
    total = 2 * k + a + b
    diagonal = np.append(
        (b - a) / (a + b + 2), (b**2 - a**2) / np.where(total == 0, 1, total) / (total + 2)
    )
    off = 4 * (1 + a) * (1 + b) / (2 + a + b) ** 2 / (3 + a + b)
    k, total = k[1:], total[1:]
    rest = 4 * k * (k + a) * (k + b) * (k + a + b) / total**2 / (total + 1) / (total - 1)
    nodes, vectors = eigh_tridiagonal(diagonal, np.sqrt(np.append(off, rest)))
    return 0.5 + 0.5 * nodes, vectors[0] ** 2


def _settings():
    """30 random settings, and special ones: extreme parameters at the narrowest length scale."""
    rng = np.random.default_rng(0)
    parameters = 10 ** rng.uniform(-1, 4, (4, 30))
    parameters[2:, :10] = parameters[:2, :10] * rng.uniform(0.8, 1.2, (2, 10))
    columns = np.vstack([parameters, rng.uniform(size=30), 10 ** rng.uniform(-1.3, 1, 30)])
    special = np.array(
        [
            [0.1, 0.1, 0.1, 0.1, 0.0, 0.04],
            [0.1, 1e4, 1e4, 0.1, 1.0, 0.04],
            [1e4, 1e4, 1e4, 1e4, 0.5, 0.04],
            [1.0, 1.0, 1.0, 1.0, 0.3, 0.1],
        ]
    ).T
    return np.hstack([columns, special])


@jax.jit
@jax.vmap
def _expectations(a, b, c, d, z, length_scale):
    kernel = kernels.SquaredExponential(length_scale)
    p, q = Beta(a, b), Beta(c, d)
    single = compiled.single_expectation(kernel, p, z)
    other = compiled.single_expectation(kernel, q, a / (a + b))
    centered = compiled.centered_kernel(kernel, p, a / (a + b), q, z)
    return single, other, compiled.double_expectation(kernel, p, q), centered


def test_expectations_by_quadrature():
    settings = _settings()
    values = np.array(_expectations(*settings)).T
    for (a, b, c, d, z, ell), ours in zip(settings.T, values):
        gauss = lambda x, y: np.exp(-((x - y) ** 2) / (2 * ell**2))  # noqa: B023, E731
        (x, v), (y, w) = _gauss_jacobi(a, b), _gauss_jacobi(c, d)
        mean = a / (a + b)
        expected = v @ gauss(x, z), w @ gauss(y, mean), v @ gauss(x[:, None], y) @ w
        bracket = gauss(mean, z) - expected[0] - expected[1] + expected[2]
        np.testing.assert_allclose(ours, [*expected, bracket], atol=1e-9)


def test_narrow_kernels_are_not_a_number():
    """A length scale that the polynomials do not resolve never gives a wrong number."""
    columns = np.tile([[2.0], [3.0], [1.0], [0.5], [0.4], [0.02]], (1, 34))
    columns[5, 1:] = np.geomspace(0.02, 0.1, 33)
    values = np.array(_expectations(*columns))
    assert np.isnan(values[:, 0]).all()
    assert np.isfinite(values[:, columns[5] >= 0.04]).all()


def test_kernels_that_are_too_narrow_are_refused():
    beta = distributions.Beta(jnp.ones(4), jnp.ones(4))
    mixture = distributions.Mixture(None, jax.tree.map(lambda x: x[:, None], beta))
    narrow = kernels.SquaredExponential(0.02)
    for target, predictions in ((narrow, beta), (2.0 * narrow + narrow, mixture)):
        kernel = kernels.TensorProduct(kernels.Exponential(), target)
        with pytest.raises(ValueError, match=r"kernel.target: expected .* got Squared.*0\.02"):
            estimators.skce(kernel, predictions, jnp.full(4, 0.5))
    kernel = kernels.TensorProduct(kernels.Exponential(), narrow)  # known where data are traced
    with pytest.raises(ValueError, match="expected a length scale >= 0.04 for Beta predictions"):
        jax.jit(lambda *data: estimators.skce(kernel, *data))(beta, jnp.full(4, 0.5))
