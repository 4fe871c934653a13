import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from calibjax import distances, distributions, kernels
from calibjax.kernels.stationary import PowerExponential

RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(12, 3))
PROBS = distributions.Categorical(RNG.dirichlet(np.ones(3), size=12))
NORMALS = distributions.DiagNormal(RNG.normal(size=(12, 3)), RNG.uniform(0.5, 2, size=(12, 3)))
LABELS = np.arange(12) % 3
ROOT = RNG.normal(size=(3, 3))
KERNELS = {
    "squared exponential": (kernels.SquaredExponential(0.7), POINTS),
    "exponential": (kernels.Exponential(0.7), POINTS),
    "power exponential": (PowerExponential(0.7, 1.5), POINTS),
    "Matern 3/2": (kernels.Matern(0.7), POINTS),
    "Matern 5/2": (kernels.Matern(0.7, nu=2.5), POINTS),
    "Laplacian": (kernels.Exponential(0.7, distances.Manhattan()), POINTS),
    "exponential of wasserstein": (kernels.Exponential(0.7, distances.Wasserstein()), NORMALS),
    "gaussian of wasserstein": (kernels.SquaredExponential(0.7, distances.Wasserstein()), NORMALS),
    "exponential of total variation": (kernels.Exponential(0.7, distances.TotalVariation()), PROBS),
    "white": (kernels.White(), LABELS),
    "labels": (kernels.LabelKernel(ROOT @ ROOT.T), LABELS),
    "sum": (kernels.SquaredExponential(0.7) + 2.0 * kernels.Exponential(0.3), POINTS),
    "product": (kernels.SquaredExponential(0.7) * kernels.Exponential(0.3), POINTS),
    "tensor product": (
        kernels.TensorProduct(
            kernels.Exponential(0.7, distances.TotalVariation()), kernels.White()
        ),
        (PROBS, LABELS),
    ),
}


def _case(name):
    return jax.tree.map(jnp.asarray, KERNELS[name])


@pytest.mark.parametrize("name", KERNELS)
def test_positive_semidefinite_and_symmetric(name):
    matrix = np.asarray(kernels.gram_matrix(*_case(name)))
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-14)
    assert np.linalg.eigvalsh(matrix)[0] > -1e-12


def test_values_from_the_formulas():
    x, y = np.array([0.0, 0.0]), np.array([3.0, 4.0])
    np.testing.assert_allclose(kernels.SquaredExponential(2.0)(x, y), np.exp(-25 / 8), rtol=1e-14)
    np.testing.assert_allclose(kernels.Exponential(2.0)(x, y), np.exp(-2.5), rtol=1e-14)
    np.testing.assert_allclose(PowerExponential(2.0, 0.5)(x, y), np.exp(-np.sqrt(2.5)), rtol=1e-14)
    for nu in (1.5, 2.5):
        kernel = kernels.Matern(2.0, nu=nu)
        z = np.sqrt(2 * nu) * 2.5  # by the definition for every smoothness, with Bessel functions
        expected = 2 ** (1 - nu) / scipy.special.gamma(nu) * z**nu * scipy.special.kv(nu, z)
        np.testing.assert_allclose(kernel(x, y), expected, rtol=1e-13)
    assert kernels.LabelKernel(jnp.arange(4.0).reshape(2, 2))(1, 0) == 2


def test_algebra():
    first, second = kernels.SquaredExponential(0.5), kernels.Exponential(2.0)
    x, y = 0.3, 1.1
    np.testing.assert_allclose((first + second)(x, y), first(x, y) + second(x, y))
    np.testing.assert_allclose(sum([first, second])(x, y), first(x, y) + second(x, y))
    np.testing.assert_allclose((first * second)(x, y), first(x, y) * second(x, y))
    np.testing.assert_allclose((0.25 * first)(x, y), 0.25 * first(x, y))
    np.testing.assert_allclose((first * jnp.array(0.25))(x, y), 0.25 * first(x, y))


def test_gram_matrix_between_two_sets():
    matrix = kernels.gram_matrix(distances.Euclidean(), jnp.arange(3.0), jnp.arange(2.0))
    np.testing.assert_array_equal(matrix, [[0, 1], [1, 0], [2, 1]])


@pytest.mark.parametrize(
    "kind",
    [
        kernels.SquaredExponential,
        kernels.Exponential,
        PowerExponential,
        kernels.Matern,
        functools.partial(kernels.Matern, nu=2.5),
    ],
)
def test_length_scales_whose_squares_overflow_give_the_limits(kind):
    x = jnp.zeros((), jnp.float32)
    for length_scale in (1e-45, 1e-25, jnp.float32(1e-25)):
        assert kind(length_scale)(x, x) == 1
        assert kind(length_scale)(x, x + 1) == 0
        assert kind(length_scale)(x, x + 1e20) == 0
        assert kind(1e-30)(x, x + 1e10) == 0
    for length_scale in (1e25, jnp.float32(3e38)):
        assert kind(length_scale)(x, x + 1) == 1
    for length_scale in (0.0, -1.0):  # which nobody has checked where they are traced
        assert jnp.isnan(kind(length_scale)(x, x + 1))


def _bernoulli(x):
    return distributions.Bernoulli(jnp.sum(x))


@pytest.mark.parametrize(
    ("distance", "point", "unit"),
    [
        (distances.Euclidean(), jnp.asarray, 1),
        (distances.Euclidean(), lambda x: jnp.stack([3 * x, 4 * x]), 5),
        (distances.Manhattan(), jnp.asarray, 1),
        (distances.Manhattan(mean=True), _bernoulli, 1),
        (distances.TotalVariation(), _bernoulli, 1),
        (distances.MaximumMeanDiscrepancy(kernels.White()), _bernoulli, 2**0.5),
        (
            distances.Wasserstein(),
            lambda x: distributions.MvNormal(jnp.stack([x, x]), jnp.eye(2)),
            2**0.5,
        ),
    ],
)
def test_second_derivatives_where_points_are_equal(distance, point, unit):
    """Of 1 − a d² + …, in all orders of differentiation."""
    curvatures = [
        (kernels.SquaredExponential(0.7, distance), 1),
        (kernels.Matern(0.7, distance), 3),
        (kernels.Matern(0.7, distance, nu=2.5), 5 / 3),
        (PowerExponential(0.7, 2.0, distance), 2),
        (PowerExponential(0.7, 1.5, distance), 0),  # none: zero by convention
        (kernels.Exponential(0.7, distance), 0),
    ]

    def values(x, y):
        return jnp.stack([kernel(point(x), point(y)) for kernel, _ in curvatures])

    expected = -np.array([a for _, a in curvatures]) * unit**2 / 0.49
    at = jnp.array(0.25)
    forward = jax.jit(jax.jacfwd(jax.jacrev(values)))(at, at)
    np.testing.assert_allclose(forward, expected, rtol=1e-12)
    mapped = jax.jit(jax.vmap(jax.jacrev(jax.jacfwd(values)), (0, None)))(at[None], at)
    np.testing.assert_allclose(mapped[0], expected, rtol=1e-12)
