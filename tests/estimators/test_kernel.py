import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, estimators, kernels
from calibjax.estimators import kernel as linear_sums
from calibjax.kernels.line import line_of_many
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
@pytest.mark.parametrize("name", oracles.CASE_NAMES)
def test_laws(name):
    kernel, predictions, targets, _, _ = oracles.cases()[name]
    matrix = np.asarray(oracles.calibration_kernel_matrix(kernel, predictions, targets))
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-15)
    assert np.linalg.eigvalsh(matrix)[0] > -1e-12
    order = np.random.default_rng(0).permutation(23)
    shuffled = jax.tree.map(lambda x: x[order], (predictions, targets))
    for estimator in (estimators.skce, estimators.skce_biased):
        value = estimator(kernel, predictions, targets)
        np.testing.assert_allclose(estimator(kernel, *shuffled), value, atol=1e-15)
        traced = jax.jit(estimator)(kernel + 2.0 * kernel, predictions, targets)
        np.testing.assert_allclose(traced, 3 * value, rtol=1e-12, atol=1e-15)
    assert estimators.skce_biased(kernel, predictions, targets) >= 0


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


def test_the_line_is_taken_from_a_thousand_samples_on(monkeypatch):
    """Below, all pairs take less time than their order."""
    seen = []
    line = linear_sums._sums_on_line
    monkeypatch.setattr(linear_sums, "_sums_on_line", lambda *args: seen.append(1) or line(*args))
    random = np.random.default_rng(0)
    probs, kernel = random.uniform(size=1000), kernels.Exponential(0.1, distances.TotalVariation())
    labels = (random.uniform(size=1000) < probs).astype(int)
    found = []
    assert line_of_many(kernel, distributions.Bernoulli(probs[:999]), 999) is None
    for n in (500, 1000):  # those between may be filled up to 1000 by samples without weight
        data = distributions.Bernoulli(probs[:n]), labels[:n]
        value = estimators.skce(kernels.TensorProduct(kernel, kernels.White()), *data)
        k = np.exp(-np.abs(np.subtract.outer(probs[:n], probs[:n])) / 0.1)
        residual = labels[:n] - probs[:n]
        terms = 2 * k * np.outer(residual, residual)
        expected = (terms.sum() - np.trace(terms)) / (n * (n - 1))
        np.testing.assert_allclose(value, expected, rtol=1e-9)
        found.append(len(seen))
    assert found == [0, 1]
