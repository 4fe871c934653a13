import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, estimators, kernels, record
from calibjax.kernels.expectations import register_expectations
from tests import oracles

KEY = jax.random.key(0)
NAMES = ("normal-None", "normal-3", "categorical-5-white", "categorical-5-label")


def expected_normal_diagonal(p, h):
    """E h((p, Y), (p, Y)) of a scalar normal p = (loc, scale) by Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    values = [h(p, p[0] + p[1] * x, p, p[0] + p[1] * x) for x in nodes]
    return np.dot(weights, values) / weights.sum()


def expected_class_diagonal(p, h):
    return sum(p[c] * h(p, c, p, c) for c in range(len(p)))


@pytest.mark.parametrize("name", NAMES)
def test_against_loops(name):
    kernel, predictions, targets, h, samples = oracles.cases()[name]
    ours = estimators.skce_dispersion(kernel, predictions, targets)
    if name == "normal-3":  # of independent components: 1 − Π (1 + 2 s² / ℓ²)^(−1/2)
        expected = [1 - np.prod(1 / np.sqrt(1 + 2 * (p[1] / 0.7) ** 2)) for p, _ in samples]
    else:
        rule = expected_normal_diagonal if name == "normal-None" else expected_class_diagonal
        expected = [rule(p, h) for p, _ in samples]
    terms = np.array([h(p, y, p, y) for p, y in samples]) - expected
    np.testing.assert_allclose(ours.value, terms.mean(), rtol=1e-9, atol=1e-12)
    error = np.sqrt(np.sum((terms - terms.mean()) ** 2) / (len(terms) - 1) / len(terms))
    np.testing.assert_allclose(ours.standard_error, error, rtol=1e-9)


def test_is_linear_in_the_kernel_and_goes_through_jit():
    kernel, predictions, targets, _, _ = oracles.cases()["categorical-5-label"]
    other = kernels.TensorProduct(kernels.Exponential(2.0), kernels.White())
    value = lambda k: estimators.skce_dispersion(k, predictions, targets).value  # noqa: E731
    np.testing.assert_allclose(
        value(kernel + 2.0 * other), value(kernel) + 2 * value(other), rtol=1e-10
    )
    traced = jax.jit(estimators.skce_dispersion)(kernel, predictions, targets)
    np.testing.assert_allclose(traced.value, value(kernel), rtol=1e-12)


@record
class Product(kernels.Kernel):
    """y z, whose expectations are moments."""

    def __call__(self, y, z):
        return y * z

    def expected_norm(self, p):
        return p.loc**2 + p.scale**2


register_expectations(
    Product,
    distributions.Normal,
    mean=lambda kernel, p, z: p.loc * z,
    inner=lambda kernel, p, q: p.loc * q.loc,
)


def diagonal_cases():
    """Target kernels and predictions of every way to the expectation of k(Z, Z)."""
    probs = jnp.array([0.2, 0.3, 0.5])
    label = kernels.LabelKernel(jnp.asarray(oracles.label_matrix(3)))
    normal = distributions.Normal(jnp.array(0.5), jnp.array(2.0))
    mixture = distributions.Mixture(
        jnp.array([0.25, 0.75]), distributions.Categorical(jnp.stack([probs, probs[::-1]]))
    )
    two = distributions.Normal(jnp.array([0.0, 1.0]), jnp.array([1.0, 0.5]))
    normals = distributions.Mixture(jnp.array([0.4, 0.6]), two)
    smooth = kernels.SquaredExponential(0.5)
    draws = distributions.Ensemble(jnp.array([0.1, 1.5, 3.0]))
    return {
        "stationary": (smooth, normal, lambda z: 1.0),
        "sum": (smooth + 2.0 * smooth, normal, lambda z: 3.0),
        "product": (smooth * smooth, draws, lambda z: 1.0),
        "moments": (Product(), normal, lambda z: z * z),
        "white": (kernels.White(), distributions.Poisson(jnp.array(3.0)), lambda z: 1.0),
        "label": (label, distributions.Categorical(probs), lambda z: label(z, z)),
        "label sum": (label + kernels.White(), mixture, lambda z: label(z, z) + 1),
        "mixture": (smooth, normals, lambda z: 1.0),
        "draws": (smooth, draws, lambda z: 1.0),
    }


@pytest.mark.parametrize("name", diagonal_cases())
def test_expectations_on_the_diagonal_against_draws(name):
    kernel, p, on_diagonal = diagonal_cases()[name]
    z = jax.vmap(p.sample)(jax.random.split(KEY, 4000))
    values = np.asarray(jax.vmap(lambda z: jnp.asarray(on_diagonal(z), float))(z))
    np.testing.assert_allclose(jax.vmap(lambda z: kernel(z, z) * 1.0)(z), values, rtol=1e-6)
    error = values.std() / np.sqrt(len(values))
    ours = kernels.expectations.diagonal_expectation(kernel, p)
    assert abs(float(ours) - values.mean()) <= 4 * error + 1e-6


SIGNS = {"narrow": (1.4, 1), "wide": (0.7, -1), "calibrated": (1.0, 0)}


@pytest.mark.parametrize("name", SIGNS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_sign_and_standard_error(name, dtype):
    """400 data sets of 50: the mean within four standard errors of zero, or clearly not."""
    factor, sign = SIGNS[name]
    num_datasets, n = 400, 50

    @jax.jit
    @functools.partial(jax.vmap)
    def spread(key):
        keys = jax.random.split(key)
        loc = jax.random.uniform(keys[0], (n,), dtype)
        predictions = distributions.Normal(loc, jnp.full(n, 0.1, dtype))
        targets = loc + 0.1 * factor * jax.random.normal(keys[1], (n,), dtype)
        kernel = kernels.TensorProduct(
            kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
        )
        return estimators.skce_dispersion(kernel, predictions, targets)

    estimates = spread(jax.random.split(KEY, num_datasets))
    values, errors = np.asarray(estimates.value), np.asarray(estimates.standard_error)
    assert values.dtype == dtype
    score = values.mean() / (values.std() / np.sqrt(num_datasets))
    assert abs(score) < 4 if sign == 0 else sign * score > 20
    # The mean standard error is the standard deviation, whose own error is 1 / √(2 · 400).
    assert abs(errors.mean() / values.std() - 1) < 0.15
