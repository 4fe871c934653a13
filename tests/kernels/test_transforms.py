import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import kernels
from calibjax.distributions import (
    DiagNormal,
    Laplace,
    Mixture,
    MvNormal,
    Normal,
    Poisson,
    Samples,
)
from calibjax.kernels import SquaredExponential, Transformed
from calibjax.kernels.expectations import features, prepare_features
from tests import compiled, oracles

RNG = np.random.default_rng(0)
SCALE = np.array([0.5, -2.0, 1.5])
WIDE = RNG.normal(size=(2, 3))  # a projection
TALL = np.concatenate([WIDE, WIDE])  # a map to a subspace: singular covariances


def _normals(n=2):
    return [
        DiagNormal(jnp.asarray(RNG.normal(size=3)), jnp.asarray(RNG.uniform(0.5, 2, 3)))
        for _ in range(n)
    ]


def _all_terms(kernel, p, y, q, z):
    return jnp.stack(
        [
            kernel(y, z),
            compiled.single_expectation(kernel, p, z),
            compiled.double_expectation(kernel, p, q),
            compiled.centered_kernel(kernel, p, y, q, z),
        ]
    )


all_terms = jax.jit(_all_terms)


def test_factors_of_dimensions_are_length_scales():
    """The product of one-dimensional kernels with length scales 1 / |a_d|."""
    (p, q), (y, z) = _normals(), RNG.normal(size=(2, 3))
    ours = all_terms(Transformed(jnp.asarray(SCALE), SquaredExponential(1.0)), p, y, q, z)
    product = 1.0
    for d in range(3):
        one, two = (Normal(x.loc[d], x.scale[d]) for x in (p, q))
        kernel = SquaredExponential(1 / abs(SCALE[d]))
        product = product * all_terms(kernel, one, y[d], two, z[d])[:3]
    np.testing.assert_allclose(ours[:3], product, rtol=1e-13)
    full = [MvNormal(x.loc, jnp.diag(x.scale**2)) for x in (p, q)]
    rotated = all_terms(
        Transformed(jnp.diag(SCALE), SquaredExponential(1.0)), full[0], y, full[1], z
    )
    np.testing.assert_allclose(rotated, ours, rtol=1e-12)


@pytest.mark.parametrize("matrix", [WIDE, TALL], ids=["wide", "tall"])
def test_matrices(matrix):
    """Against the formula with explicit inverse and determinant, from independent components."""
    (p, q), (y, z) = _normals(), RNG.normal(size=(2, 3))

    def gaussian(difference, variances):
        total = np.eye(len(matrix)) + matrix @ np.diag(variances) @ matrix.T
        moved = matrix @ difference
        return np.linalg.det(total) ** -0.5 * np.exp(-0.5 * moved @ np.linalg.inv(total) @ moved)

    s, t = np.square(p.scale), np.square(q.scale)
    expected = [gaussian(y - z, 0 * s), gaussian(p.loc - z, s), gaussian(p.loc - q.loc, s + t)]
    expected.append(expected[0] - expected[1] - gaussian(q.loc - y, t) + expected[2])
    kernel = Transformed(jnp.asarray(matrix), SquaredExponential(1.0))
    np.testing.assert_allclose(all_terms(kernel, p, y, q, z), expected, rtol=1e-9)
    full = [MvNormal(x.loc, jnp.diag(x.scale**2)) for x in (p, q)]
    np.testing.assert_allclose(all_terms(kernel, full[0], y, full[1], z), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("family", "kernel"), [(Normal, SquaredExponential), (Laplace, kernels.Exponential)]
)
def test_a_number_is_a_length_scale(family, kernel):
    p, q = family(jnp.array(0.3), jnp.array(0.7)), family(jnp.array(-0.2), jnp.array(0.4))
    ours = all_terms(Transformed(-2.0, kernel(1.0)), p, jnp.array(0.1), q, jnp.array(0.9))
    plain = all_terms(kernel(0.5), p, jnp.array(0.1), q, jnp.array(0.9))
    np.testing.assert_allclose(ours, plain, rtol=1e-11)


def test_maps_of_distributions_have_the_moments_of_the_mapped_variable():
    p, q = _normals()
    mixture = Mixture(jnp.array([0.3, 0.7]), jax.tree.map(lambda *x: jnp.stack(x), p, q))
    samples = Samples(jnp.asarray(RNG.normal(size=(5, 3))))
    full = MvNormal(p.loc, jnp.asarray(oracles.covariances(1, 3)[0]))
    for scale in (jnp.asarray(2.0), jnp.asarray(SCALE), jnp.asarray(WIDE)):
        matrix = scale if scale.ndim == 2 else jnp.diag(scale * jnp.ones(3))
        for one in (p, full):
            covariance = one.cov if isinstance(one, MvNormal) else jnp.diag(one.variance())
            mapped = one.linear_map(scale)
            np.testing.assert_allclose(mapped.mean(), matrix @ one.mean(), rtol=1e-12)
            expected = matrix @ covariance @ matrix.T
            np.testing.assert_allclose(mapped.variance(), jnp.diag(expected), rtol=1e-12)
            if isinstance(mapped, MvNormal):
                np.testing.assert_allclose(mapped.cov, expected, rtol=1e-12)
        for one in (mixture, samples):
            mapped = one.linear_map(scale)
            np.testing.assert_allclose(mapped.mean(), matrix @ one.mean(), rtol=1e-12)
    assert isinstance(p.linear_map(SCALE), DiagNormal)
    assert p.linear_map(SCALE).scale.min() > 0


def test_features_of_the_inner_kernel():
    predictions, targets, _ = oracles.normal_data(11)
    kernel = Transformed(jnp.asarray(2.0), SquaredExponential(1.0))
    prepared = prepare_features(kernel, predictions, targets)

    @jax.jit
    def matrices(predictions, targets):
        found = jax.vmap(lambda p, y: features(kernel, prepared, p, y))(predictions, targets)
        samples = predictions, targets
        return found @ found.T, kernels.gram_matrix(
            lambda a, b: compiled.centered_kernel(kernel, *a, *b), samples
        )

    np.testing.assert_allclose(*matrices(predictions, targets), atol=1e-14)
    predictions, targets, _ = oracles.normal_data(5, 3)
    kernel = Transformed(jnp.asarray(WIDE), SquaredExponential(1.0))
    assert prepare_features(kernel, predictions, targets) is None


@pytest.mark.slow
def test_gradient_with_respect_to_the_matrix():
    (p, q), (y, z) = _normals(), RNG.normal(size=(2, 3))

    @jax.jit
    @jax.value_and_grad
    def value(matrix):
        return compiled.centered_kernel(Transformed(matrix, SquaredExponential(1.0)), p, y, q, z)

    direction = RNG.normal(size=TALL.shape)
    slope = (value(TALL + 1e-5 * direction)[0] - value(TALL - 1e-5 * direction)[0]) / 2e-5
    np.testing.assert_allclose(jnp.sum(value(TALL)[1] * direction), slope, rtol=1e-6)


def test_missing_maps_are_named_and_can_be_defined():
    kernel = Transformed(2.0, SquaredExponential())
    with pytest.raises(NotImplementedError, match=r"kernel Transformed under Poisson.*linear_map"):
        compiled.single_expectation(kernel, Poisson(jnp.array(1.0)), 1.0)
    with pytest.raises(NotImplementedError, match=r"Transformed of Poisson predictions.*define"):
        kernel(Poisson(jnp.array(1.0)), Poisson(jnp.array(1.0)))

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True, eq=False)
    class Point:
        value: jax.Array

        def sample(self, key):
            return self.value

    kernels.register_expectations(
        SquaredExponential,
        Point,
        single=lambda kernel, p, z: kernel(p.value, z),
        double=lambda kernel, p, q: kernel(p.value, q.value),
    )
    Point.linear_map = lambda p, scale: Point(scale * p.value)
    ours = compiled.single_expectation(kernel, Point(jnp.array(1.0)), 1.5)
    np.testing.assert_allclose(ours, np.exp(-0.5), rtol=1e-14)
