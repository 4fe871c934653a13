"""Compiled float32 results of every room, at sizes at which compilers tile and fuse.

jaxlib 0.10.2 computes some sums of products wrongly where the result has more than 32 768 entries;
tests with twenty samples, which compare with NumPy, do not see it. Here there are about 300, or
vectors of thousands of entries, and more components than are written out one by one. The same
functions in float64 and without `jit`, of which each operation is a program, say what is right.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, estimators, kernels, scores
from calibjax.estimators.binned import kde_calibration_error
from calibjax.kernels.expectations import single_expectation
from tests import oracles

pytestmark = pytest.mark.optimised
N, D = 300, 33  # components of vectors
CASES = {}


def case(room, *data, **tolerances):
    """Registers a function of float32 arrays and labels."""

    def register(function):
        name = f"{room}-{function.__name__}"
        CASES[name] = function, data, {"rtol": 2e-5, "atol": 2e-6, **tolerances}
        return function

    return register


def normals(n, *shape, seed=0, width=1.0):
    return (width * np.random.default_rng(seed).normal(size=(n, *shape))).astype(np.float32)


def uniforms(n, *shape, low=0.0, high=1.0, seed=1):
    return np.random.default_rng(seed).uniform(low, high, (n, *shape)).astype(np.float32)


def simplex(n, m, seed=2):
    return np.random.default_rng(seed).dirichlet(np.ones(m), n).astype(np.float32)


MV_KERNEL = kernels.TensorProduct(kernels.Exponential(), kernels.SquaredExponential())
COV = oracles.covariances(128, 11, 0.2).astype(np.float32)
NOISE = (np.linalg.cholesky(COV) @ normals(128, 11, 1))[..., 0]


# The value is -7.7e-5; jaxlib 0.10.2 made it 1.0e-3.
@case("estimators", uniforms(128, 11), COV, uniforms(128, 11) + NOISE, atol=2e-8, rtol=0)
def multivariate_normal(loc, cov, y):
    return estimators.skce(MV_KERNEL, distributions.MvNormal(loc, cov), y)


@case("estimators", simplex(256, D), np.arange(256) % D, rtol=2e-4)
def kernel_density(probs, y):
    return kde_calibration_error(distributions.Categorical(probs), y, bandwidth=0.1, order=2)


@case("distances", simplex(N, D))
def total_variation(probs):
    return kernels.gram_matrix(distances.TotalVariation(), distributions.Categorical(probs))


@case("distances", normals(N, 40))
def wasserstein_of_samples(values):
    return kernels.gram_matrix(distances.Wasserstein(), distributions.Ensemble(values))


# jaxlib 0.10.2: off by 0.6
@case(
    "kernels",
    *(normals(100, D), uniforms(100, D, low=0.1, high=0.5), normals(100, D, seed=5)),
    np.float32([4.0, 6.0, 10.0]),
)
def expectations_for_several_length_scales(loc, scale, y, scales):
    def at(length_scale, p, z):
        return single_expectation(kernels.SquaredExponential(length_scale), p, z)

    of_all = jax.vmap(jax.vmap(jax.vmap(at, (None, 0, None)), (None, None, 0)), (0, None, None))
    return of_all(scales, distributions.DiagNormal(loc, scale), y)


@case("scores", simplex(3000, 12), normals(3000, 12), uniforms(3000, 12, low=0.1), normals(3000))
def ranked_probability_of_mixtures(weights, loc, scale, y):
    return scores.crps(distributions.Mixture(weights, distributions.Normal(loc, scale)), y)


@case(
    "scores",
    *(simplex(N, 5), normals(N, 5), uniforms(N, 5, low=0.3), normals(N)),
    **{"rtol": 1e-4, "atol": 1e-5},
)
def ranked_probability_of_all_mixtures_at_all_targets(weights, loc, scale, y):
    """Followed by anything elementwise: a sum of products that jaxlib 0.10.2 computes wrongly."""
    p = distributions.Mixture(weights, distributions.Normal(loc, scale))
    return jnp.sqrt(jax.vmap(lambda y: jax.vmap(lambda p: p.crps(y))(p))(y))


def wide(data):
    """The same numbers in float64."""
    return [jnp.asarray(x, float) if x.dtype == np.float32 else jnp.asarray(x) for x in data]


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    function, data, tolerances = CASES[name]
    result = jax.jit(function)(*map(jnp.asarray, data))
    assert result.dtype == jnp.float32
    with jax.disable_jit():
        expected = function(*wide(data))
    np.testing.assert_allclose(result, expected, **tolerances)


def test_gradients():
    """With respect to all arrays, against float64, which is computed by other code."""
    function, data, _ = CASES["estimators-kernel_density"]
    index = [i for i, x in enumerate(data) if x.dtype == np.float32]

    @jax.jit
    def slopes(*data):
        def total(*data):
            values = function(*data)
            weights = normals(*values.shape or (1,), seed=7)
            return jnp.vdot(values, jnp.asarray(weights, values.dtype))

        return jax.grad(total, index)(*data)

    for narrow, exact in zip(slopes(*map(jnp.asarray, data)), slopes(*wide(data))):
        assert narrow.dtype == jnp.float32
        np.testing.assert_allclose(narrow, exact, atol=1e-4 * np.abs(exact).max())
