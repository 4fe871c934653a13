import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from calibjax import distances, distributions, kernels
from calibjax.kernels.stationary import PowerExponential
from tests import oracles, registry
from tests.registry import families
from tests.registry.arguments import in_precision

CALLS = {
    name: call
    for name, call in registry.calls().items()
    if name.startswith("kernels.gram_matrix[") and "points" not in name
}


@pytest.mark.parametrize("name", CALLS)
def test_matrices_are_symmetric_and_positive_semi_definite(name):
    matrix = np.asarray(CALLS[name].function(**CALLS[name].values(float)))
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-14)
    assert np.linalg.eigvalsh(matrix)[0] > -1e-12


@pytest.mark.parametrize(
    "name", [x if "B" in x else pytest.param(x, marks=pytest.mark.slow) for x in families.FAMILIES]
)
def test_calibration_kernels_are_symmetric_and_positive_semi_definite(name):
    """Also of equal predictions; but for draws, whose pairs with themselves are left out."""
    family = families.FAMILIES[name]
    values = in_precision({k: x.value for k, x in family.parameters.items()}, float)
    rows = np.array([0, 1, 2, 3, 4, 0, 1])
    p = jax.tree.map(lambda x: jnp.asarray(x)[rows], family.make(**values))
    y = jnp.asarray(in_precision(family.targets.value, float))[: len(rows)]
    matrix = np.asarray(oracles.calibration_kernel_matrix(family.kernel, p, y))
    np.testing.assert_allclose(matrix, matrix.T, rtol=0, atol=1e-12)
    assert "Ensemble" in name or np.linalg.eigvalsh(matrix)[0] > -1e-7


def test_matrices_of_pairs_of_predictions_and_labels():
    rng, labels = np.random.default_rng(0), np.arange(12) % 3
    probs, matrix = rng.dirichlet(np.ones(3), 12), oracles.label_matrix(3)
    near = kernels.Exponential(0.7, distances.TotalVariation())
    product = kernels.TensorProduct(near, kernels.LabelKernel(matrix))
    found = kernels.gram_matrix(product, (distributions.Categorical(probs), labels))
    variation = 0.5 * np.abs(probs[:, None] - probs).sum(-1)
    expected = np.exp(-variation / 0.7) * matrix[labels][:, labels]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_ranges_of_values():
    label = kernels.LabelKernel(np.array([[1.0, -0.5], [-0.5, 2.0]]))
    assert label.value_range() == (-0.5, 2)
    assert (2.0 * label + kernels.White()).value_range() == (-1, 5)
    assert (label * label).value_range() == (-1, 4)


def test_values_from_the_formulas():
    factor = kernels.Constant(4.0).factor(distributions.Bernoulli(jnp.ones(2)))
    np.testing.assert_array_equal(factor @ factor.T, np.full((2, 2), 4))
    x, y = np.array([0.0, 0.0]), np.array([3.0, 4.0])
    np.testing.assert_allclose(kernels.SquaredExponential(2.0)(x, y), np.exp(-25 / 8), rtol=1e-14)
    np.testing.assert_allclose(kernels.Exponential(2.0)(x, y), np.exp(-2.5), rtol=1e-14)
    np.testing.assert_allclose(PowerExponential(2.0, 0.5)(x, y), np.exp(-np.sqrt(2.5)), rtol=1e-14)
    np.testing.assert_allclose(PowerExponential()(x, y), kernels.Exponential()(x, y))
    for nu in (1.5, 2.5):
        kernel = kernels.Matern(2.0, nu=nu)
        z = np.sqrt(2 * nu) * 2.5  # by the definition for every smoothness, with Bessel functions
        expected = 2 ** (1 - nu) / scipy.special.gamma(nu) * z**nu * scipy.special.kv(nu, z)
        np.testing.assert_allclose(kernel(x, y), expected, rtol=1e-13)
    of_labels = kernels.LabelKernel(jnp.arange(4.0).reshape(2, 2))
    assert of_labels(1, 0) == of_labels(True, False) == 2


def test_algebra():
    first, second = kernels.SquaredExponential(0.5), kernels.Exponential(2.0)
    x, y = 0.3, 1.1
    np.testing.assert_allclose((first + second)(x, y), first(x, y) + second(x, y))
    np.testing.assert_allclose(sum([first, second])(x, y), first(x, y) + second(x, y))
    np.testing.assert_allclose((first * second)(x, y), first(x, y) * second(x, y))
    np.testing.assert_allclose((0.25 * first)(x, y), 0.25 * first(x, y))
    np.testing.assert_allclose((first * jnp.array(0.25))(x, y), 0.25 * first(x, y))


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
        (distances.Manhattan(mean=True), _bernoulli, 1),
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
