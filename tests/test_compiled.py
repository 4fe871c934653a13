"""Compiled float32 results of every room against NumPy, see `compiled_cases`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from calibjax import distances, distributions, kernels, scores
from calibjax.kernels.expectations import single_expectation
from tests.compiled_cases import (
    CASES,
    D,
    N,
    case,
    doubles,
    normals,
    pairs,
    simplex,
    squares,
    uniforms,
)

pytestmark = pytest.mark.optimised


@case("distances")
def total_variation():
    probs = simplex(N, D)

    def ours(probs):
        return kernels.gram_matrix(distances.TotalVariation(), distributions.Categorical(probs))

    return ours, (probs,), 0.5 * np.abs(pairs(*doubles(probs, probs))).sum(-1)


@case("distances")
def wasserstein_of_samples():
    values = normals(N, 40)

    def ours(x):
        return kernels.gram_matrix(distances.Wasserstein(), distributions.Ensemble(x))

    x = np.sort(doubles(values)[0], 1)
    return ours, (values,), np.sqrt(squares(x, x) / 40)


@case("distances", atol=1e-3)  # the root of a difference
def mean_discrepancy_of_normals():
    loc, scale = normals(N, D, width=0.3), uniforms(N, D, low=0.5)
    distance = distances.MaximumMeanDiscrepancy(kernels.SquaredExponential(4.0))

    def ours(*p):
        return kernels.gram_matrix(distance, distributions.DiagNormal(*p))

    m, s = doubles(loc, scale)
    terms = 1 + (s[:, None] ** 2 + s**2) / 16
    double = np.exp(-0.5 * np.sum(pairs(m, m) ** 2 / 16 / terms, -1)) / np.sqrt(terms.prod(-1))
    squared = np.diag(double)[:, None] - 2 * double + np.diag(double)
    return ours, (loc, scale), np.sqrt(np.maximum(squared, 0))


@case("kernels")  # jaxlib 0.10.2: off by 0.6
def expectations_for_several_length_scales():
    loc, scale, scales = normals(100, D), uniforms(100, D, low=0.1, high=0.5), [4.0, 6.0, 10.0]
    y, scales = normals(100, D, seed=5), np.array(scales, np.float32)

    def ours(loc, scale, y, scales):
        def for_one(length_scale):
            kernel = kernels.SquaredExponential(length_scale)
            expect = functools.partial(single_expectation, kernel)
            rows = jax.vmap(expect, (None, 0))
            return jax.vmap(rows, (0, None))(distributions.DiagNormal(loc, scale), y)

        return jax.vmap(for_one)(scales)

    m, s, z, ls = doubles(loc, scale, y, scales)
    terms = 1 + (s[:, None] / ls[:, None, None, None]) ** 2
    squared = (pairs(m, z) / ls[:, None, None, None]) ** 2
    return (
        ours,
        (loc, scale, y, scales),
        np.exp(-0.5 * np.sum(squared / terms, -1)) / np.sqrt(terms.prod(-1)),
    )


def crps_of_mixtures(w, m, s, z):
    """CRPS of normal mixtures [n, k] at targets, [..., n]."""

    def distance(x, s):
        return x * (2 * scipy.stats.norm.cdf(x / s) - 1) + 2 * s * scipy.stats.norm.pdf(x / s)

    between = distance(m[:, :, None] - m[:, None], np.hypot(s[:, :, None], s[:, None]))
    values = np.sum(w * distance(z[..., None] - m, s), -1)
    return values - 0.5 * np.einsum("ij,ijk,ik->i", w, between, w)


@case("scores")
def ranked_probability_of_mixtures():
    n, k = 3000, 12
    data = (simplex(n, k), normals(n, k), uniforms(n, k, low=0.1), normals(n))

    def ours(weights, loc, scale, y):
        return scores.crps(distributions.Mixture(weights, distributions.Normal(loc, scale)), y)

    w, m, s, z = doubles(*data)
    return ours, data, np.mean(crps_of_mixtures(w / w.sum(1, keepdims=True), m, s, z))


@case("scores", rtol=1e-4, atol=1e-5)
def ranked_probability_of_all_mixtures_at_all_targets():
    """Followed by anything elementwise: a sum of products that jaxlib 0.10.2 computes wrongly."""
    n, k = 300, 5
    data = simplex(n, k), normals(n, k), uniforms(n, k, low=0.3), normals(n)

    def ours(weights, loc, scale, y):
        p = distributions.Mixture(weights, distributions.Normal(loc, scale))
        at = jax.vmap(lambda y: jax.vmap(lambda p: p.crps(y))(p))
        return jnp.sqrt(at(y))

    w, m, s, z = doubles(*data)
    values = crps_of_mixtures(w / w.sum(1, keepdims=True), m, s, z[:, None])
    return ours, data, np.sqrt(values)


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    make, tolerances = CASES[name]
    ours, data, expected = make()
    data = [jnp.asarray(x) for x in data]
    result = jax.jit(ours)(*data)
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result, expected, **tolerances)


SLOW = ("estimators-diagonal_normal", "recalibration-local_recalibration")


@pytest.mark.parametrize(
    "name", ["estimators-kernel_density", *(pytest.param(x, marks=pytest.mark.slow) for x in SLOW)]
)
def test_gradients(name):
    """With respect to all arrays, against float64, which is computed by other code."""
    ours, data, expected = CASES[name][0]()
    weights = normals(*np.shape(expected) or (1,), seed=7).astype(np.float64)
    index = [i for i, x in enumerate(data) if np.issubdtype(x.dtype, np.floating)]

    @jax.jit
    def slopes(*data):
        def total(*data):
            return jnp.vdot(ours(*data), jnp.asarray(weights, data[index[0]].dtype))

        return jax.grad(total, index)(*data)

    wide = slopes(*(jnp.asarray(x, float) if i in index else x for i, x in enumerate(data)))
    for narrow, exact in zip(slopes(*map(jnp.asarray, data)), wide):
        assert narrow.dtype == jnp.float32
        np.testing.assert_allclose(narrow, exact, atol=1e-4 * np.abs(exact).max())
