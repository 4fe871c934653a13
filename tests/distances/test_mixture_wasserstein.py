import functools
import warnings

import jax
import numpy as np
import pytest

from calibjax import distances, kernels
from calibjax.distances import MixtureWasserstein
from calibjax.distributions import Mixture, Normal

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # POT probes for libraries that are not there
    import ot


def random_mixtures(rng, num_samples, num_components):
    weights = rng.dirichlet(np.ones(num_components), num_samples)
    loc = rng.normal(size=(num_samples, num_components))
    scale = rng.uniform(0.1, 2, size=(num_samples, num_components))
    return Mixture(weights, Normal(loc, scale))


def brute_force(p, q, order):
    """MW_s to the power of s, by POT."""
    a, b = p.components, q.components
    squared = (a.loc[:, None] - b.loc) ** 2 + (a.scale[:, None] - b.scale) ** 2
    return ot.emd2(p.weights, q.weights, squared ** (order / 2))


@pytest.mark.parametrize("order", [1, 2.5])
def test_distances_are_those_of_pot(order):
    rng = np.random.default_rng(0)
    ps, qs = random_mixtures(rng, 8, 3), random_mixtures(rng, 7, 4)
    distance = MixtureWasserstein(order=order)
    values = jax.jit(lambda ps, qs: kernels.gram_matrix(distance, ps, qs))(ps, qs)
    expected = [[brute_force(p, q, order) for q in qs] for p in ps]
    np.testing.assert_allclose(values, np.array(expected) ** (1 / order), rtol=1e-12)


def test_equal_components_have_the_distance_of_one():
    p, q = (Normal(np.array([m]), np.array([s])) for m, s in ((0.3, 1.0), (-0.5, 0.2)))
    repeated = jax.tree.map(lambda x: np.repeat(x, 2), q)
    value = jax.jit(MixtureWasserstein())(Mixture(None, p), Mixture(None, repeated))
    np.testing.assert_allclose(value, distances.Wasserstein()(p, q), rtol=1e-14)


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0))
def values_and_gradients(p, q):
    """Distances of order 1, and their squares of order 2, with gradients."""
    functions = MixtureWasserstein(order=1), MixtureWasserstein().squared
    return [jax.value_and_grad(f, argnums=(0, 1))(p, q) for f in functions]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_mixtures(dtype):
    weights = np.array([0.3, 0.0, 0.5, 0.2], dtype)
    loc = np.array([0.1, 0.1 + 1e-4, 0.1, 3.0], dtype)  # two are equal, a third is close
    p = Mixture(weights, Normal(loc, loc))
    orders = np.array([[0, 1, 2, 3], [3, 2, 1, 0]])
    for value, gradients in values_and_gradients(p, jax.tree.map(lambda x: x[orders], p)):
        assert value.dtype == dtype
        np.testing.assert_array_equal(value, 0)
        for leaf in jax.tree.leaves(gradients):
            np.testing.assert_array_equal(leaf, 0)


def test_kernels_need_not_be_positive_semi_definite():
    """All mixtures of two equally likely components in {0, 1, 2}²: W21 Theorem D.1 is false."""
    points = [(loc, scale) for loc in range(3) for scale in range(3)]
    pairs = np.array([(a, b) for i, a in enumerate(points) for b in points[i:]], float)
    assert len(pairs) == 45
    mixtures = Mixture(None, Normal(pairs[..., 0], pairs[..., 1]))
    squared = jax.jit(
        lambda x: jax.vmap(lambda p: jax.vmap(lambda q: MixtureWasserstein().squared(p, q))(x))(x)
    )(mixtures)

    def smallest(exponent, factor):
        matrix = np.exp(-factor * np.asarray(squared) ** (exponent / 2))
        return np.linalg.eigvalsh(matrix)[0]

    settings = [(2, 0.5), (2, 0.1), (1, 0.1), (1, 0.5), (1, 1.0)]
    found = [round(smallest(*s), 3) for s in settings]
    np.testing.assert_allclose(found, [-0.39, -0.25, -0.041, -0.019, 0.15], atol=5e-3)
