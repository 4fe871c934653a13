import jax
import numpy as np
import pytest

from calibjax import distributions, estimators, kernels
from tests import oracles


@pytest.mark.parametrize("name", oracles.CASE_NAMES)
def test_against_a_double_loop(name):
    kernel, predictions, targets, h, samples = oracles.cases()[name]
    matrix = oracles.h_matrix(h, samples)
    ours = oracles.calibration_kernel_matrix(kernel, predictions, targets)
    np.testing.assert_allclose(ours, matrix, rtol=0, atol=1e-12)
    found = [f(kernel, predictions, targets) for f in (estimators.skce, estimators.skce_biased)]
    np.testing.assert_allclose(found, [oracles.unbiased(matrix), matrix.mean()], atol=1e-13)
    for size in (2, 5, 23) if name == "normal-None" else (5,):
        ours = estimators.skce_block(kernel, predictions, targets, block_size=size)
        expected = np.mean(oracles.block_estimates(matrix, size))
        np.testing.assert_allclose(ours, expected, atol=1e-13)
    two = kernel, predictions[:2], targets[:2]
    found = estimators.skce(*two), estimators.skce_block(*two, block_size=2)
    np.testing.assert_allclose(found, matrix[0, 1], atol=1e-13)


KEY = jax.random.key(0)


def expected_normal_diagonal(p, h):
    """E h((p, Y), (p, Y)) of a scalar normal p = (loc, scale) by Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    values = [h(p, p[0] + p[1] * x, p, p[0] + p[1] * x) for x in nodes]
    return np.dot(weights, values) / weights.sum()


def expected_class_diagonal(p, h):
    return sum(p[c] * h(p, c, p, c) for c in range(len(p)))


@pytest.mark.parametrize("name", oracles.CASE_NAMES)
def test_dispersion_against_loops(name):
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
    two = estimators.skce_dispersion(kernel, predictions[:2], targets[:2])
    np.testing.assert_allclose(two.value, terms[:2].mean(), rtol=1e-9, atol=1e-12)


def test_expectations_on_the_diagonal():
    """E k(Z, Z) of every way to it: 1 of stationary kernels, sums over classes of others."""
    probs, matrix = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]), oracles.label_matrix(3)
    smooth, label = kernels.SquaredExponential(0.5), kernels.LabelKernel(matrix)
    normals, classes = distributions.Normal(np.zeros(2), np.ones(2)), distributions.Categorical
    mixtures = distributions.Mixture(np.array([0.25, 0.75]), classes(probs))
    mean = np.array([0.25, 0.75]) @ probs @ np.diag(matrix)
    for kernel, p, expected in (
        (smooth, normals[0], 1),
        (smooth * smooth, distributions.Ensemble(np.array([0.1, 1.5, 3.0])), 1),
        (smooth, distributions.Mixture(np.array([0.4, 0.6]), normals), 1),
        (label, classes(probs[0]), probs[0] @ np.diag(matrix)),
        (label + kernels.White(), mixtures, mean + 1),
    ):
        found = kernels.expectations.diagonal_expectation(kernel, p)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def _normal_difference(location, sample, length_scale=0.7):
    """Difference k((t, s), (p, y)) − E k((t, s), (p, Z)) for W21's kernel."""
    (m, v), s = location
    (n, w), y = sample
    zero = np.zeros_like(v)
    distance = np.sqrt(np.sum((m - n) ** 2) + np.sum((v - w) ** 2))
    moments = oracles.squared_exponential_moments
    value = moments(s, zero, y, zero, length_scale) - moments(s, zero, n, w, length_scale)
    return np.exp(-distance / 0.4) * value


def case(name):
    """Kernel, predictions, targets, test locations, and Z [n, J] by a double loop."""
    kernel, predictions, targets, _, samples = oracles.cases()[name]
    if name.startswith("normal"):
        d = None if name.endswith("None") else int(name.split("-")[1])
        at_predictions, at_targets, locations = oracles.normal_data(7, d, seed=8)
        difference = _normal_difference
    else:
        m = int(name.split("-")[1])
        at_predictions, at_targets, locations = oracles.categorical_data(7, m, seed=8)
        matrix = np.eye(m) if name.endswith("white") else oracles.label_matrix(m)

        def difference(location, sample):
            (t, s), (p, y) = location, sample
            value = matrix[s, y] - sum(p[c] * matrix[s, c] for c in range(m))
            return np.exp(-0.5 * np.sum(np.abs(t - p)) / 0.5) * value

    z = np.array([[difference(location, sample) for location in locations] for sample in samples])
    return (kernel, predictions, targets, at_predictions, at_targets), z


@pytest.mark.parametrize("name", oracles.CASE_NAMES)
def test_ucme_against_loops(name):
    arguments, z = case(name)
    value = estimators.ucme(*arguments)
    np.testing.assert_allclose(value, np.mean(z.mean(0) ** 2), rtol=1e-11)
    kernel, *data = arguments
    traced = jax.jit(estimators.ucme)(kernel + 2.0 * kernel, *data)
    np.testing.assert_allclose(traced, 9 * value, rtol=1e-12)
