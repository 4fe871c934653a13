import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from calibjax import distributions, estimators, hypothesis_tests, kernels
from calibjax.kernels import expectations
from tests import oracles


def _data(n, k, seed=0, width=1.0):
    """Calibrated mixtures of normals and targets drawn from them."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(k), n)
    loc, scale = rng.normal(size=(n, k)) * width, rng.uniform(0.1, 1, (n, k)) * width
    predictions = distributions.Mixture(
        jnp.asarray(weights), distributions.Normal(jnp.asarray(loc), jnp.asarray(scale))
    )
    return predictions, distributions.sample_targets(jax.random.key(seed), predictions)


def _kernel(length_scale=0.7):
    return kernels.TensorProduct(kernels.Exponential(2.0), kernels.SquaredExponential(length_scale))


def _mixture_h(p, y, q, z, length_scale):
    """h with k_P = exp(−‖difference of all parameters‖ / 2), all sums as loops."""
    point = ([1.0], [y], [0.0]), ([1.0], [z], [0.0])

    def expect(one, two):
        return sum(
            w * v * oracles.squared_exponential_moments(m, s, n, t, length_scale)
            for w, m, s in zip(*one)
            for v, n, t in zip(*two)
        )

    bracket = expect(*point) - expect(p, point[1]) - expect(point[0], q) + expect(p, q)
    distance = np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(p, q)))
    return np.exp(-distance / 2) * bracket


@pytest.mark.parametrize("num_components", [1, 3, pytest.param(7, marks=pytest.mark.slow)])
def test_all_pairs_of_components_enter(num_components):
    predictions, targets = _data(6, num_components)
    parts = (predictions.weights, predictions.components.loc, predictions.components.scale)
    samples = list(zip(zip(*map(np.asarray, parts)), np.asarray(targets)))
    expected = oracles.h_matrix(functools.partial(_mixture_h, length_scale=0.7), samples)
    ours = oracles.calibration_kernel_matrix(_kernel(), predictions, targets)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-12)


def test_identical_components_are_one_distribution():
    """CalibrationErrors.jl gives 0.75 of this value."""
    rng = np.random.default_rng(1)
    one = distributions.Normal(*jnp.asarray(rng.uniform(0.2, 1, (2, 9))))
    two = distributions.Mixture(None, jax.tree.map(lambda x: jnp.stack([x, x], 1), one))
    y, z = jnp.asarray(rng.normal(size=(2, 9)))
    function = jax.vmap(
        functools.partial(expectations.centered_kernel, kernels.SquaredExponential())
    )
    roll = functools.partial(jax.tree.map, lambda x: jnp.roll(x, 1, 0))
    np.testing.assert_allclose(
        function(two, y, roll(two), z), function(one, y, roll(one), z), rtol=0, atol=1e-15
    )


@pytest.mark.slow
def test_skce_of_calibrated_mixtures_has_mean_zero():
    """5000 data sets of n = 10; with the error of CalibrationErrors.jl it is not zero."""
    kernel = _kernel()

    def skipping(p, y, q, z):
        """h without the pair of the second component of p and the first of q."""
        rest, first = (jax.tree.map(lambda x, i=i: x[i], m.components) for i, m in ((1, p), (0, q)))
        skipped = expectations.centered_kernel(kernel.target, rest, y, first, z)
        all_pairs = expectations.centered_kernel(kernel.target, p, y, q, z)
        skipped = p.weights[1] * q.weights[0] * skipped
        return kernel.prediction(p, q) * (all_pairs - skipped)

    def estimates(key):
        loc_key, scale_key, weight_key, target_key = jax.random.split(key, 4)
        weight = jax.random.uniform(weight_key, (10,))
        predictions = distributions.Mixture(
            jnp.stack([weight, 1 - weight], 1),
            distributions.Normal(
                2 * jax.random.normal(loc_key, (10, 2)),
                jax.random.uniform(scale_key, (10, 2), minval=0.2),
            ),
        )
        targets = distributions.sample_targets(target_key, predictions)
        later, earlier = (
            jax.tree.map(lambda x, i=i: x[i], (predictions, targets))
            for i in jnp.tril_indices(10, -1)
        )
        skipping_value = jnp.mean(jax.vmap(skipping)(*later, *earlier))
        return estimators.skce(kernel, predictions, targets), skipping_value

    keys = jax.random.split(jax.random.key(5), 5000)
    for values, is_zero in zip(jax.jit(jax.vmap(estimates))(keys), (True, False), strict=True):
        limit = 3 * values.std() / np.sqrt(values.size)
        assert abs(values.mean()) < limit if is_zero else values.mean() > limit


@pytest.mark.slow
def test_gradients_agree_with_finite_differences():
    predictions, targets = _data(5, 6, seed=2)

    def function(kernel, logits, components, targets):
        mixtures = distributions.Mixture(jax.nn.softmax(logits), components)
        return estimators.skce(kernel, mixtures, targets)

    point = (_kernel(), jnp.log(predictions.weights), predictions.components, targets)
    check_grads(jax.jit(function), point, order=1, modes=["rev"])


@pytest.mark.slow
def test_float32_has_no_offset():
    """Narrow components, where the four terms cancel to 1e-4 of themselves."""
    predictions, targets = _data(400, 3, seed=3, width=0.05)
    centered = functools.partial(expectations.centered_kernel, kernels.SquaredExponential())
    matrix = jax.jit(jax.vmap(jax.vmap(centered, (None, None, 0, 0)), (0, 0, None, None)))
    exact = np.asarray(matrix(predictions, targets, predictions, targets))
    single = oracles.as_dtype((predictions, targets), jnp.float32)
    ours = matrix(*single, *single)
    assert ours.dtype == jnp.float32
    off_diagonal = ~np.eye(400, dtype=bool)
    spread = np.sqrt(2 * np.mean(exact[off_diagonal] ** 2)) / 400  # of the unbiased estimator
    offset = np.mean((np.asarray(ours, float) - exact)[off_diagonal])
    assert abs(offset) < 0.01 * spread


@pytest.mark.slow
def test_exact_test_by_features_is_the_biased_estimator():
    predictions, targets = _data(8, 5, seed=4)
    test = hypothesis_tests.exact_skce_test(
        jax.random.key(0), _kernel(), predictions, targets, num_draws=19, statistic="biased"
    )
    np.testing.assert_allclose(
        test.statistic, estimators.skce_biased(_kernel(), predictions, targets), rtol=1e-12
    )
    expected = estimators.skce(_kernel(), predictions, targets)
    np.testing.assert_allclose(test.estimate, expected, rtol=1e-10)


def test_components_without_rule_are_named():
    predictions = distributions.Mixture(None, distributions.Normal(*jnp.ones((2, 3, 2))))
    kernel = kernels.TensorProduct(kernels.Exponential(), kernels.Exponential())
    with pytest.raises(NotImplementedError, match="Exponential under Normal predictions"):
        estimators.skce(kernel, predictions, jnp.zeros(3))
