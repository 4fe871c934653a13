"""Temperatures of predictions: powers of their densities."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions as D
from calibjax.recalibration.base import tempered
from tests.registry.arguments import in_precision

RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(3, 3))
LOC, SCALE = RNG.normal(size=3), RNG.uniform(0.5, 2, 3)
COV = ROOT @ ROOT.T + np.eye(3)


FAMILIES = D.DiagNormal(LOC, SCALE), D.MvNormal(LOC, COV)
TEMPERATURES = np.array([0.2, 3.0])


@pytest.mark.parametrize("p", FAMILIES, ids=lambda p: type(p).__name__)
def test_density_is_a_power(p):
    """log q − log p / T is the same at all points, and the family is that of p.

    Other families are in the table of `tests.distributions.test_numbers`.
    """
    points = RNG.normal(size=(5, 3))

    @jax.jit
    def log_densities(p):
        scaled = jax.vmap(tempered, (None, 0))(p, TEMPERATURES)
        log_probs = jax.vmap(jax.vmap(type(p).log_prob, (None, 0)), (0, None))
        return scaled, log_probs(scaled, points), p.log_prob(points)

    scaled, theirs, ours = log_densities(p)
    assert type(scaled) is type(p)
    difference = theirs - ours / TEMPERATURES[:, None]
    np.testing.assert_allclose(difference - difference[:, :1], 0, atol=1e-11)
    single = jax.eval_shape(tempered, in_precision(p, np.float32), 2.0)
    assert {leaf.dtype for leaf in jax.tree.leaves(single)} == {np.dtype(np.float32)}


def test_members_and_components_keep_their_means_and_weights():
    for shape, weights in ((7, None), ((7, 2), RNG.dirichlet(np.ones(7)))):
        p = D.Ensemble(RNG.normal(size=shape), weights)
        q = tempered(p, 0.37)
        np.testing.assert_allclose(q.mean(), p.mean(), rtol=1e-12)
        np.testing.assert_allclose(q.variance(), 0.37 * p.variance(), rtol=1e-12)
        np.testing.assert_array_equal(q.weights, p.weights)
    components = D.Normal(jnp.array([0.1, 0.7]), jnp.array([1.0, 2.0]))
    for weights in (jnp.array([0.2, 0.8]), None):
        scaled = tempered(D.Mixture(weights, components), 4.0)
        np.testing.assert_array_equal(scaled.components.loc, components.loc)
        np.testing.assert_array_equal(scaled.weights, weights)
        np.testing.assert_allclose(scaled.components.scale, [2, 4])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_classes_at_extreme_temperatures(dtype):
    """T to 0: the most probable classes share it; T to infinity: all possible classes do."""
    probs = np.array([[0.0, 0.25, 0.75], [0.5, 0.0, 0.5], [1.0, 0.0, 0.0], [1e-30, 0.5, 0.5]])
    binary = np.array([0.0, 1e-30, 0.3, 0.5, 1.0])
    probs, binary = jnp.asarray(probs, dtype), jnp.asarray(binary, dtype)

    @jax.jit
    def values(t):
        def of(p, r, t):
            return tempered(D.Categorical(p), t).probs, tempered(D.Bernoulli(r), t).probs

        return of(probs, binary, t), jax.jacobian(of, (0, 1, 2))(probs, binary, t)

    for t, expected, ones in (
        (1e-30, [[0, 0, 1], [0.5, 0, 0.5], [1, 0, 0], [0, 0.5, 0.5]], [0, 0, 0, 0.5, 1]),
        (1e30, [[0, 0.5, 0.5], [0.5, 0, 0.5], [1, 0, 0], [1 / 3] * 3], [0, 0.5, 0.5, 0.5, 1]),
    ):
        (q, r), slopes = values(jnp.asarray(t, dtype))
        np.testing.assert_allclose(q, expected, rtol=1e-6)
        np.testing.assert_allclose(r, ones, rtol=1e-6)
        assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(slopes))


def test_families_without_powers():
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True, eq=False)
    class Point:
        loc: jax.Array

        def sample(self, key):
            return self.loc

    for p, message in (
        (Point(jnp.array(1.0)), r"tempered is not defined for Point; define"),
        (D.Poisson(jnp.array(3.0)), "tempered is not defined for Poisson"),
        (D.Ensemble(jnp.array([1, 2])), "an Ensemble of integers"),
    ):
        with pytest.raises(NotImplementedError, match=message):
            tempered(p, 2.0)
    drawn = D.monte_carlo(jax.random.key(0), D.Normal(jnp.zeros(2), jnp.ones(2)), 3)
    assert isinstance(tempered(drawn, 2.0), D.Normal)  # draws belong to one temperature
