import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, estimators, kernels, record
from calibjax.estimators.kernel import location_pair
from calibjax.kernels.expectations import register_expectations
from calibjax.operators.kernel_matrix import OnLine, Tiled
from calibjax.operators.plan import operator_of
from tests import oracles

ESTIMATORS = {
    "skce": estimators.skce,
    "skce_biased": estimators.skce_biased,
    "skce_block": functools.partial(estimators.skce_block, block_size=3),
}


def _compare(kernel, predictions, targets, matrix):
    found = [f(kernel, predictions, targets) for f in (estimators.skce, estimators.skce_biased)]
    np.testing.assert_allclose(found, [oracles.unbiased(matrix), matrix.mean()], atol=1e-13)


@pytest.mark.parametrize("name", oracles.CASE_NAMES)
def test_against_a_double_loop(name):
    kernel, predictions, targets, h, samples = oracles.cases()[name]
    matrix = oracles.h_matrix(h, samples)
    ours = oracles.calibration_kernel_matrix(kernel, predictions, targets)
    np.testing.assert_allclose(ours, matrix, rtol=0, atol=1e-12)
    _compare(kernel, predictions, targets, matrix)
    for size in (2, 5, 23) if name == "normal-None" else (5,):
        blocks = [
            oracles.unbiased(matrix[b : b + size, b : b + size])
            for b in range(0, 23 - size + 1, size)
        ]
        ours = estimators.skce_block(kernel, predictions, targets, block_size=size)
        np.testing.assert_allclose(ours, np.mean(blocks), atol=1e-13)


@pytest.mark.parametrize("n", [2, 128, 129, pytest.param(257, marks=pytest.mark.slow)])
def test_every_number_of_samples(n):
    predictions, targets, samples = oracles.normal_data(n)
    matrix = oracles.h_matrix(oracles.normal_h, samples)
    _compare(oracles.normal_kernel(), predictions, targets, matrix)


@pytest.mark.slow
def test_float32_has_no_offset():
    """W21's model: below 3e-10 on average, where four plain terms are off by 2e-8."""
    differences = []
    kernel = oracles.normal_kernel()
    for seed in range(10):
        rng = np.random.default_rng(seed)
        loc = rng.uniform(size=1024).astype(np.float32)
        scale = np.full(1024, 0.1, np.float32)
        targets = (loc + scale * rng.normal(size=1024)).astype(np.float32)
        single = distributions.Normal(jnp.asarray(loc), jnp.asarray(scale)), jnp.asarray(targets)
        double = oracles.as_dtype(single, jnp.float64)
        reference = float(estimators.skce(kernel, *double))
        differences.append(float(estimators.skce(kernel, *single)) - reference)
    error = np.std(differences) / np.sqrt(len(differences))
    assert abs(np.mean(differences)) < 3e-10 + 3 * error
    assert error < 1e-10


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        ("skce", "normal-None"),
        ("skce", "categorical-5-label"),
        ("skce_block", "normal-3"),
        pytest.param("skce", "normal-3", marks=pytest.mark.slow),
        pytest.param("skce_biased", "normal-None", marks=pytest.mark.slow),
        pytest.param("skce_block", "categorical-5-label", marks=pytest.mark.slow),
    ],
)
def test_gradients(estimator, name):
    kernel, predictions, targets, _, _ = oracles.cases()[name]
    kernel = oracles.as_dtype(kernel, jnp.float64)

    @jax.jit
    def value(kernel, predictions):
        return ESTIMATORS[estimator](kernel, predictions, targets)

    if name.startswith("normal"):
        jax.test_util.check_grads(value, (kernel, predictions), order=1, modes=["rev"], rtol=1e-4)
    else:  # total variation has kinks, and matrices must stay symmetric
        chex.assert_tree_all_finite(jax.jit(jax.grad(value, argnums=(0, 1)))(kernel, predictions))
        nu = jax.jit(
            lambda s: value(oracles.categorical_kernel(s, kernel.target.matrix), predictions)
        )
        jax.test_util.check_grads(nu, (jnp.array(0.5),), order=1, modes=["rev"])


@pytest.mark.slow
def test_gradients_at_equal_predictions_are_finite():
    predictions = distributions.Normal(jnp.zeros(5), jnp.ones(5))
    for dtype in (jnp.float32, jnp.float64):
        arguments = oracles.as_dtype(
            (oracles.normal_kernel(), predictions, jnp.linspace(-1, 1, 5)), dtype
        )
        chex.assert_tree_all_finite(jax.grad(estimators.skce_biased, argnums=(0, 1, 2))(*arguments))


@pytest.mark.parametrize("family", ["normal", "diagonal", "classes"])
@pytest.mark.parametrize("num_datasets", [2000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_unbiased_means_unbiased(family, num_datasets):
    """Mean over calibrated data sets within three standard errors of zero."""
    n, m = 6, 3

    def predictions_of(key):
        if family == "classes":
            return distributions.Categorical(jax.random.dirichlet(key, jnp.ones(m), (n,)))
        if family == "normal":
            return distributions.Normal(jax.random.uniform(key, (n,)), jnp.full(n, 0.1))
        return distributions.DiagNormal(jax.random.uniform(key, (n, 2)), jnp.full((n, 2), 0.5))

    kernel = oracles.categorical_kernel() if family == "classes" else oracles.normal_kernel()

    def estimate(key):
        keys = jax.random.split(key)
        predictions = predictions_of(keys[0])
        targets = distributions.sample_targets(keys[1], predictions)
        return (
            estimators.skce(kernel, predictions, targets),
            estimators.skce_block(kernel, predictions, targets, block_size=2),
            estimators.skce_biased(kernel, predictions, targets),
        )

    keys = jax.random.split(jax.random.key(7), num_datasets)
    unbiased, block, biased = jax.lax.map(estimate, keys, batch_size=2000)
    for values in (unbiased, block):
        assert abs(values.mean()) < 3 * values.std() / np.sqrt(num_datasets)
    assert biased.mean() > 10 * biased.std() / np.sqrt(num_datasets)


@pytest.mark.parametrize("network", oracles.NETWORKS)
def test_published_cifar10_networks(data_dir, network):
    predictions, targets, published = oracles.cifar10_network(data_dir, network, "errors")
    kernel = oracles.median_kernel(predictions)
    for name, value in (
        ("SKCEb_median", estimators.skce_biased(kernel, predictions, targets)),
        ("SKCEuq_median", estimators.skce(kernel, predictions, targets)),
        ("SKCEul_median", estimators.skce_block(kernel, predictions, targets, block_size=2)),
    ):
        np.testing.assert_allclose(value, published[name], rtol=1e-9)


def test_the_line_is_taken_from_a_thousand_samples_on():
    """Below, all pairs take less time than their order."""
    random = np.random.default_rng(0)
    probs, kernel = random.uniform(size=1000), kernels.Exponential(0.1, distances.TotalVariation())
    labels = (random.uniform(size=1000) < probs).astype(int)
    found = []
    for n in (500, 1000):  # those between may be filled up to 1000 by samples without weight
        data = distributions.Bernoulli(probs[:n]), labels[:n]
        value = estimators.skce(kernels.TensorProduct(kernel, kernels.White()), *data)
        k = np.exp(-np.abs(np.subtract.outer(probs[:n], probs[:n])) / 0.1)
        residual = labels[:n] - probs[:n]
        terms = 2 * k * np.outer(residual, residual)
        expected = (terms.sum() - np.trace(terms)) / (n * (n - 1))
        np.testing.assert_allclose(value, expected, rtol=1e-9)
        found.append(type(operator_of(kernel, data[0], many=False)))
    assert found == [Tiled, OnLine]


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


def _normal_difference(location, sample, length_scale, prediction_scale):
    """Difference k((t, s), (p, y)) − E k((t, s), (p, Z)) for W21's kernel."""
    (m, v), s = location
    (n, w), y = sample
    zero = np.zeros_like(v)
    distance = np.sqrt(np.sum((m - n) ** 2) + np.sum((v - w) ** 2))
    moments = oracles.squared_exponential_moments
    value = moments(s, zero, y, zero, length_scale) - moments(s, zero, n, w, length_scale)
    return np.exp(-distance / prediction_scale) * value


def _class_difference(location, sample, matrix, nu):
    (t, s), (p, y) = location, sample
    value = matrix[s, y] - sum(p[c] * matrix[s, c] for c in range(len(p)))
    return np.exp(-0.5 * np.sum(np.abs(t - p)) / nu) * value


def case(name):
    """Kernel, predictions, targets, test locations, and Z [n, J] by a double loop."""
    kernel, predictions, targets, _, samples = oracles.cases()[name]
    if name.startswith("normal"):
        d = None if name.endswith("None") else int(name.split("-")[1])
        at_predictions, at_targets, locations = oracles.normal_data(7, d, seed=8)
        difference = lambda *pair: _normal_difference(*pair, 0.7, 0.4)  # noqa: E731
    else:
        m = int(name.split("-")[1])
        at_predictions, at_targets, locations = oracles.categorical_data(7, m, seed=8)
        matrix = np.eye(m) if name.endswith("white") else oracles.label_matrix(m)
        difference = lambda *pair: _class_difference(*pair, matrix, 0.5)  # noqa: E731
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normal-None", "categorical-5-label"])
def test_ucme_in_float32_and_gradients(name):
    arguments, z = case(name)
    single = oracles.as_dtype(arguments, jnp.float32)
    value = estimators.ucme(*single)
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, np.mean(z.mean(0) ** 2), atol=1e-3 * z.std() ** 2 / 23)
    chex.assert_tree_all_finite(jax.grad(estimators.ucme, argnums=(0, 1))(*single))


def test_mean_ucme_on_calibrated_data_is_the_variance():
    """E UCME² = mean over the locations of Var(Z_ij) / n."""
    n, kernel = 10, oracles.normal_kernel()
    test, labels, _ = oracles.normal_data(3, seed=1)
    predictions, _, _ = oracles.normal_data(n)

    def evaluate(key):
        targets = distributions.sample_targets(key, predictions)
        z = jax.vmap(
            lambda *t: jax.vmap(lambda *x: location_pair(kernel, t, x))(predictions, targets)
        )(test, labels)
        return estimators.ucme(kernel, predictions, targets, test, labels), jnp.mean(z**2) / n

    ours, variance = jax.jit(jax.vmap(evaluate))(jax.random.split(jax.random.key(0), 4000))
    difference = ours - variance
    assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(4000)
    assert abs(ours.mean()) > 10 * difference.std() / np.sqrt(4000)
