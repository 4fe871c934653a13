import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, estimators, hypothesis_tests, kernels
from calibjax.kernels import expectations
from calibjax.kernels.expectations import features, prepare_features
from tests import compiled, oracles
from tests.registry.arguments import in_precision


@pytest.mark.parametrize("size", [1, 5, 33])
def test_number_of_components_does_not_matter(size):
    """Few are written out; against the four terms in NumPy."""
    rng = np.random.default_rng(size)
    loc, other, y, z = rng.normal(size=(4, size))
    scale, other_scale = 10 ** rng.uniform(-3, 1, size=(2, size))
    p = distributions.DiagNormal(jnp.asarray(loc), jnp.asarray(scale))
    q = distributions.DiagNormal(jnp.asarray(other), jnp.asarray(other_scale))
    kernel = kernels.SquaredExponential(5.0)
    expected = oracles.normal_h((loc, scale), y, (other, other_scale), z, 5.0, np.inf)
    found = jax.jit(expectations.centered_kernel)(kernel, p, jnp.asarray(y), q, jnp.asarray(z))
    np.testing.assert_allclose(found, expected, atol=1e-14)


@pytest.mark.parametrize("family", ["normal", "multivariate"])
def test_float32_keeps_five_digits_of_narrow_predictions(family):
    """By the four terms of NumPy in float64, which cancel to 1e-6 of themselves."""
    rng, n, scale = np.random.default_rng(3), 200, 1e-3
    loc, y = np.float32(rng.normal(size=(2, 2, n, 2)))
    spread = np.float32(scale * np.exp(0.3 * rng.normal(size=(2, n, 2))))
    y = np.float32(loc + spread * y)
    if family == "normal":
        predictions = [distributions.DiagNormal(*x) for x in zip(loc, spread)]
    else:
        cov = np.square(spread)[..., None] * np.eye(2, dtype=np.float32)
        predictions = [distributions.MvNormal(*x) for x in zip(loc, cov)]
    kernel = kernels.SquaredExponential(np.float32(1.0))
    centered = functools.partial(compiled.centered_kernel, kernel)
    p, q = predictions
    found = jax.vmap(centered)(p, y[0], q, y[1])
    assert found.dtype == np.float32
    one, two = (zip(zip(*x[:2]), x[2]) for x in zip(*(x.astype(float) for x in (loc, spread, y))))
    expected = [oracles.normal_h(*a, *b, 1.0, np.inf) for a, b in zip(one, two)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3 * np.std(expected))


@pytest.mark.parametrize("scale", [1e-8, 1e-4, 1e4, 1e8])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_extreme_scales_stay_finite(scale, dtype):
    """Predictions much narrower or wider than the length scale; values and gradients."""
    kernel = kernels.SquaredExponential(jnp.asarray(1.0, dtype))
    p = distributions.DiagNormal(jnp.zeros(3, dtype), jnp.full(3, scale, dtype))
    q = distributions.DiagNormal(jnp.full(3, scale, dtype), jnp.full(3, 2 * scale, dtype))
    y, z = jnp.full(3, 3 * scale, dtype), jnp.full(3, -scale, dtype)
    value, gradient = jax.jit(jax.value_and_grad(expectations.centered_kernel, argnums=(0, 1, 2)))(
        kernel, p, y, q, z
    )
    assert value.dtype == dtype
    assert abs(value) <= 4
    chex.assert_tree_all_finite((value, gradient))


@pytest.mark.parametrize("size", [1e20, 1e30])
def test_far_targets(size):
    """The kernel is zero there, and was NaN."""
    n, targets = 6, np.float32([0.3, size, -size, 0.1, size, 0.5])
    kernel = oracles.normal_kernel()
    samples = [((0.0, 1.0), y) for y in targets.astype(float)]
    expected = oracles.unbiased(oracles.h_matrix(oracles.normal_h, samples))
    predictions = distributions.Normal(np.zeros(n, np.float32), np.ones(n, np.float32))
    np.testing.assert_allclose(estimators.skce(kernel, predictions, targets), expected, rtol=1e-5)


def test_labels_out_of_range_are_not_clamped_under_jit():
    p, labels = distributions.Categorical(jnp.array([0.5, 0.5])), kernels.LabelKernel(jnp.eye(2))
    for y in (2, -1):
        assert jnp.isnan(jax.jit(labels)(y, 0))
        for kernel in (kernels.White(), labels):
            assert jnp.isnan(
                jax.jit(lambda y, k=kernel: compiled.centered_kernel(k, p, y, p, 0))(y)
            )


def test_targets_far_apart_have_features_where_there_are_many():
    """One frequency for sixteen samples; by the four terms in NumPy, for every twentieth sample."""
    rng, scale = np.random.default_rng(0), np.exp(0.3 * np.random.default_rng(1).normal(size=4000))
    loc = rng.uniform(-15, 15, 4000)
    y = loc + scale * rng.normal(size=4000)
    predictions, kernel = distributions.Normal(loc, scale), kernels.SquaredExponential(0.4)
    some = jax.tree.map(lambda x: x[::20], predictions)
    assert prepare_features(kernel, some, y[::20]) is None
    prepared = prepare_features(kernel, predictions, jnp.asarray(y))
    of_samples = jax.jit(jax.vmap(functools.partial(features, kernel, prepared)))
    found = of_samples(some, jnp.asarray(y[::20]))
    assert found.shape[1] > 200
    loc, scale, y = (x[::20] for x in (loc, scale, y))

    def expected(x, z, variance):
        difference, total = np.subtract.outer(x, z), 0.4**2 + variance
        return 0.4 / np.sqrt(total) * np.exp(-(difference**2) / (2 * total))

    m = expected(loc, y, np.square(scale)[:, None])
    both = expected(loc, loc, np.add.outer(np.square(scale), np.square(scale)))
    centered = expected(y, y, 0.0) - m - m.T + both
    np.testing.assert_allclose(found @ found.T, centered, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ["normal-None", "categorical-5-white"])
def test_features_of_sums_and_multiples(name):
    kernel, predictions, targets, _, _ = oracles.cases()[name]
    combined = 0.5 * (kernel.target + 3.0 * kernel.target)
    one, two = (
        jax.jit(jax.vmap(lambda p, y, k=k, f=f: features(k, f, p, y)))(predictions, targets)
        for k in (kernel.target, combined)
        for f in [prepare_features(k, predictions, targets)]
    )
    np.testing.assert_allclose(two @ two.T, 2 * one @ one.T, atol=1e-14)
    test = functools.partial(hypothesis_tests.exact_skce_test, jax.random.key(0), num_draws=19)
    ours = test(kernels.TensorProduct(kernel.prediction, combined), predictions, targets)
    expected = test(2.0 * kernel, predictions, targets)  # by pairs
    assert ours.pvalue == expected.pvalue
    np.testing.assert_allclose(ours.estimate, expected.estimate, rtol=1e-10)


def _mixture(rng):  # of narrow components, where the four terms cancel to 1e-4 of themselves
    weights = rng.dirichlet(np.ones(3), 400).astype(np.float32)
    loc, scale = 0.05 * rng.normal(size=(400, 3)), rng.uniform(0.005, 0.05, (400, 3))
    parts = distributions.Normal(loc.astype(np.float32), scale.astype(np.float32))
    chosen = np.arange(400), (weights.cumsum(1) < rng.uniform(0, 0.999, (400, 1))).sum(1)
    return distributions.Mixture(weights, parts), loc[chosen] + scale[chosen] * rng.normal(size=400)


@pytest.mark.slow
def test_float32_has_no_offset():
    """Its systematic error is a small part of the estimator's standard deviation."""
    kernel = kernels.TensorProduct(kernels.Exponential(3.0), kernels.SquaredExponential(1.0))
    pairs = []
    for seed in range(8):
        predictions, targets = _mixture(np.random.default_rng(seed))
        targets = targets.astype(np.float32)
        exact = in_precision((predictions, targets), np.float64)
        pairs.append([estimators.skce(kernel, *x) for x in ((predictions, targets), exact)])
        assert pairs[-1][0].dtype == np.float32
    single, double = np.array(pairs, float).T
    assert abs(np.mean(single - double)) < 0.01 * np.std(double)
