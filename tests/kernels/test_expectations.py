import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, estimators, hypothesis_tests, kernels
from calibjax.kernels import expectations
from calibjax.kernels.expectations import features, four_terms, prepare_features
from calibjax.kernels.expectations.normal import centered_without_offset
from tests import compiled, oracles


def _normal(loc, scale):
    return distributions.Normal(jnp.asarray(loc), jnp.asarray(scale))


@pytest.mark.parametrize("size", [1, 5, 32, 33, 50])
def test_number_of_components_does_not_matter(size):
    rng = np.random.default_rng(size)
    loc, other, y, z = rng.normal(size=(4, size))
    scale, other_scale = rng.uniform(0.1, 0.5, size=(2, size))
    p = distributions.DiagNormal(jnp.asarray(loc), jnp.asarray(scale))
    q = distributions.DiagNormal(jnp.asarray(other), jnp.asarray(other_scale))
    kernel = kernels.SquaredExponential(5.0)
    zero = np.zeros(size)
    expect = lambda *a: oracles.squared_exponential_moments(*a, 5.0)  # noqa: E731
    four = (
        expect(y, zero, z, zero)
        - expect(loc, scale, z, zero)
        - expect(y, zero, other, other_scale)
        + expect(loc, scale, other, other_scale)
    )
    plain = compiled.centered_kernel(kernel, p, jnp.asarray(y), q, jnp.asarray(z))
    np.testing.assert_allclose(plain, four, atol=1e-14)
    stable = centered_without_offset(kernel, p, jnp.asarray(y), q, jnp.asarray(z))
    np.testing.assert_allclose(stable, four, atol=1e-14)


@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("d", [None, 3])
def test_float32_bracket_equals_the_four_terms(scale, d):
    """The form for low precision, evaluated in float64, is the same function."""
    predictions, targets, _ = oracles.normal_data(40, d, seed=1)
    predictions = type(predictions)(predictions.loc, predictions.scale * scale)
    kernel = kernels.SquaredExponential(0.7)
    index = jnp.arange(20)
    p, q = (jax.tree.map(lambda x: x[i], predictions) for i in (index, index + 20))  # noqa: B023
    y, z = targets[index], targets[index + 20]
    four = jax.jit(jax.vmap(lambda *a: four_terms(kernel, *a)))(p, y, q, z)
    stable = jax.jit(jax.vmap(lambda *a: centered_without_offset(kernel, *a)))(p, y, q, z)
    np.testing.assert_allclose(stable, four, atol=3e-15)


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


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize("family", ["label", "white", "product"])
def test_class_expectations_by_sums(m, family):
    rng = np.random.default_rng(m)
    p, q = rng.dirichlet(np.ones(m), size=2)
    matrix = oracles.label_matrix(m)
    kernel = {
        "label": kernels.LabelKernel(jnp.asarray(matrix)),
        "white": kernels.White(),
        "product": kernels.LabelKernel(jnp.asarray(matrix)) * kernels.White(),
    }[family]
    labels = range(m)
    values = np.array([[kernel(c, d) for d in labels] for c in labels])
    ours = distributions.Categorical(jnp.asarray(p)), distributions.Categorical(jnp.asarray(q))
    for z in labels:
        single = sum(p[c] * values[c, z] for c in labels)
        np.testing.assert_allclose(
            compiled.single_expectation(kernel, ours[0], z), single, rtol=1e-13
        )
    double = sum(p[c] * q[d] * values[c, d] for c in labels for d in labels)
    np.testing.assert_allclose(compiled.double_expectation(kernel, *ours), double, rtol=1e-13)


def test_missing_pairs_name_both_types_and_monte_carlo():
    p = _normal(0.0, 1.0)
    with pytest.raises(NotImplementedError, match=r"Exponential under Normal.*Monte Carlo"):
        compiled.single_expectation(kernels.Exponential(1.0), p, 0.0)


def test_labels_out_of_range_are_not_clamped_under_jit():
    p, labels = distributions.Categorical(jnp.array([0.5, 0.5])), kernels.LabelKernel(jnp.eye(2))
    for y in (2, -1):
        assert jnp.isnan(jax.jit(labels)(y, 0))
        for kernel in (kernels.White(), labels):
            assert jnp.isnan(
                jax.jit(lambda y, k=kernel: compiled.centered_kernel(k, p, y, p, 0))(y)
            )


@pytest.mark.parametrize("name", [n for n in oracles.CASE_NAMES if n != "normal-3"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_features_reproduce_the_centered_kernel(name, dtype):
    kernel, predictions, targets, _, _ = oracles.cases()[name]
    target_kernel = kernel.target
    exact = jax.vmap(
        jax.vmap(lambda *a: compiled.centered_kernel(target_kernel, *a), (None, None, 0, 0)),
        (0, 0, None, None),
    )(predictions, targets, predictions, targets)
    target_kernel, predictions, targets = oracles.as_dtype(
        (target_kernel, predictions, targets), dtype
    )
    prepared = prepare_features(target_kernel, predictions, targets)
    found = jax.vmap(lambda p, y: features(target_kernel, prepared, p, y))(predictions, targets)
    assert found.dtype == dtype
    np.testing.assert_allclose(found @ found.T, exact, atol=1e-14 if dtype == jnp.float64 else 5e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_targets_far_apart_have_features_where_there_are_many(dtype):
    """One frequency for sixteen samples; by the four terms in NumPy, for every twentieth sample."""
    rng, scale = np.random.default_rng(0), np.exp(0.3 * np.random.default_rng(1).normal(size=4000))
    loc = rng.uniform(-15, 15, 4000)
    y = loc + scale * rng.normal(size=4000)
    loc, scale, y = (x.astype(dtype) for x in (loc, scale, y))
    predictions, kernel = _normal(loc, scale), kernels.SquaredExponential(0.4)
    some = jax.tree.map(lambda x: x[::20], predictions)
    assert prepare_features(kernel, some, y[::20]) is None
    prepared = prepare_features(kernel, predictions, jnp.asarray(y))
    found = jax.vmap(lambda p, y: features(kernel, prepared, p, y))(some, jnp.asarray(y[::20]))
    assert found.shape[1] > 200
    loc, scale, y = (x[::20].astype(float) for x in (loc, scale, y))

    def expected(x, z, variance):
        difference, total = np.subtract.outer(x, z), 0.4**2 + variance
        return 0.4 / np.sqrt(total) * np.exp(-(difference**2) / (2 * total))

    m = expected(loc, y, np.square(scale)[:, None])
    both = expected(loc, loc, np.add.outer(np.square(scale), np.square(scale)))
    centered = expected(y, y, 0.0) - m - m.T + both
    np.testing.assert_allclose(
        found @ found.T, centered, rtol=0, atol=1e-13 if dtype == np.float64 else 1e-5
    )


@pytest.mark.parametrize("name", ["normal-None", "categorical-5-white"])
def test_features_of_sums_and_multiples(name):
    kernel, predictions, targets, _, _ = oracles.cases()[name]
    combined = 0.5 * (kernel.target + 3.0 * kernel.target)
    one, two = (
        jax.vmap(lambda p, y, k=k, f=f: features(k, f, p, y))(predictions, targets)
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


def _multivariate(rng):  # every pair has the same rounding errors
    cov = 1e-4 * (oracles.covariances(1, 3)[0] + 0.1 * np.eye(3))
    loc = rng.uniform(size=(1024, 3)).astype(np.float32)
    targets = loc + rng.normal(size=(1024, 3)) @ np.linalg.cholesky(cov).T
    return distributions.MvNormal(loc, np.tile(cov.astype(np.float32), (1024, 1, 1))), targets


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "target", "limit"),
    [
        (_mixture, kernels.SquaredExponential(1.0), 0.01),
        (_multivariate, kernels.SquaredExponential(1.0), 0.002),
    ],
)
def test_float32_has_no_offset(data, target, limit):
    """Its systematic error is a small part of the estimator's standard deviation."""
    kernel = kernels.TensorProduct(kernels.Exponential(3.0), target)
    pairs = []
    for seed in range(8):
        predictions, targets = data(np.random.default_rng(seed))
        targets = targets.astype(np.float32) if targets.dtype == float else targets
        exact = oracles.as_dtype((predictions, targets), np.float64)
        pairs.append([estimators.skce(kernel, *x) for x in ((predictions, targets), exact)])
        assert pairs[-1][0].dtype == np.float32
    single, double = np.array(pairs, float).T
    assert abs(np.mean(single - double)) < limit * np.std(double)
