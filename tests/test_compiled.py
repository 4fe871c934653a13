"""Compiled float32 results of every room against NumPy, at sizes at which compilers tile and fuse.

jaxlib 0.10.2 computes some sums of products wrongly where the result has more than 32 768 entries;
tests with twenty samples do not see it. Here there are about 300, or vectors of thousands of
entries, and more components than are written out one by one.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln, softmax
from scipy.stats import norm

from calibjax import distances, distributions, estimators, kernels, recalibration, scores
from calibjax.estimators.binned import kde_calibration_error
from calibjax.kernels.expectations import single_expectation
from tests import oracles

pytestmark = pytest.mark.optimised
N, D, M = 300, 33, 129  # components of vectors, and classes where differences are cheap
CASES = {}


def case(room, **tolerances):
    """Registers a function that returns ours (compiled, of float32 arrays), data, and NumPy's."""

    def register(make):
        CASES[f"{room}-{make.__name__}"] = make, {"rtol": 2e-5, "atol": 2e-6, **tolerances}
        return make

    return register


def doubles(*arrays):
    return [np.asarray(x, np.float64) for x in arrays]


def normals(n, *shape, seed=0, width=1.0):
    return (width * np.random.default_rng(seed).normal(size=(n, *shape))).astype(np.float32)


def uniforms(n, *shape, low=0.0, high=1.0, seed=1):
    return np.random.default_rng(seed).uniform(low, high, (n, *shape)).astype(np.float32)


def simplex(n, m, seed=2):
    return np.random.default_rng(seed).dirichlet(np.ones(m), n).astype(np.float32)


def labels(n, m, seed=3):
    return np.random.default_rng(seed).integers(0, m, n)


def pairs(x, y):
    return x[:, None] - y


def squares(x, y, axis=-1):
    return np.sum(pairs(x, y) ** 2, axis)


def gaussian(difference, covariance):
    """det(I + S)^(−1/2) exp(−xᵀ (I + S)⁻¹ x / 2)."""
    total = np.eye(difference.shape[-1]) + covariance
    solved = np.linalg.solve(total, difference[..., None])[..., 0]
    return np.exp(-0.5 * np.sum(difference * solved, -1)) / np.sqrt(np.linalg.det(total))


def bracket(y, single, double):
    """k(y, z) − m_p(z) − m_q(y) + M_{p,q} for k = exp(−‖y − z‖² / 2) from its expectations."""
    return np.exp(-0.5 * squares(y, y)) - single - single.T + double


def multivariate_normal_data():
    n, d = 128, 11
    cov = oracles.covariances(n, d, 0.2).astype(np.float32)
    loc = uniforms(n, d)
    noise = np.linalg.cholesky(cov) @ normals(n, d, 1)
    return loc, cov, (loc + noise[..., 0]).astype(np.float32)


def multivariate_normal_h(loc, cov, y):
    """h for k = exp(−‖p − q‖) exp(−‖y − z‖² / 2) of all pairs, W21 D.1."""
    double = gaussian(pairs(loc, loc), cov[:, None] + cov)
    distance = np.sqrt(squares(loc, loc) + squares(cov, cov, (-2, -1)))
    return np.exp(-distance) * bracket(y, gaussian(pairs(y, loc), cov), double)


MV_KERNEL = kernels.TensorProduct(kernels.Exponential(), kernels.SquaredExponential())


@case("estimators", atol=2e-8, rtol=0)  # the value is -7.7e-5; jaxlib 0.10.2 made it 1.0e-3
def multivariate_normal():
    loc, cov, y = data = multivariate_normal_data()

    def ours(loc, cov, y):
        return estimators.skce(MV_KERNEL, distributions.MvNormal(loc, cov), y)

    h = multivariate_normal_h(*doubles(loc, cov, y))
    return ours, data, np.mean(h[~np.eye(len(y), dtype=bool)])


def diagonal_normal_data():
    return normals(256, D), uniforms(256, D, low=0.1, high=0.5), normals(256, D, seed=5)


@functools.cache
def diagonal_normal_h():
    """h for k = exp(−W2(p, q) / 2) exp(−‖y − z‖² / (2 · 4²))."""
    loc, scale, y = doubles(*diagonal_normal_data())

    def expect(x, z, variances):
        terms = 1 + variances / 16
        return np.exp(-0.5 * np.sum(pairs(x, z) ** 2 / 16 / terms, -1)) / np.sqrt(terms.prod(-1))

    single = expect(y, loc, scale**2)
    double = expect(loc, loc, scale[:, None] ** 2 + scale**2)
    distance = np.sqrt(squares(loc, loc) + squares(scale, scale))
    return np.exp(-distance / 2) * bracket(y / 4, single, double)


DIAGONAL_KERNEL = oracles.normal_kernel(4.0, 2.0)


@case("estimators")
def diagonal_normal():
    def ours(loc, scale, y):
        return oracles.calibration_kernel_matrix(
            DIAGONAL_KERNEL, distributions.DiagNormal(loc, scale), y
        )

    return ours, diagonal_normal_data(), diagonal_normal_h()


@case("estimators")
def categorical():
    matrix = oracles.label_matrix(M).astype(np.float32)
    probs, y = simplex(N, M), labels(N, M)

    def ours(matrix, probs, y):
        return oracles.calibration_kernel_matrix(
            oracles.categorical_kernel(0.5, matrix), distributions.Categorical(probs), y
        )

    p, a = doubles(probs, matrix)
    residuals = np.eye(M)[y] - p
    variation = 0.5 * np.abs(pairs(p, p)).sum(-1)
    return ours, (matrix, probs, y), np.exp(-variation / 0.5) * (residuals @ a @ residuals.T)


@case("estimators", rtol=2e-4)
def kernel_density():
    probs, y = simplex(256, D), labels(256, D)

    def ours(probs, y):
        return kde_calibration_error(distributions.Categorical(probs), y, bandwidth=0.1, order=2)

    p = doubles(probs)[0]
    p /= p.sum(1, keepdims=True)
    logs = np.log(p) @ (p / 0.1).T - gammaln(p / 0.1 + 1).sum(1)  # Dirichlet(p / 0.1 + 1) at p
    np.fill_diagonal(logs, -np.inf)
    expected = np.sum((softmax(logs, 1) @ np.eye(D)[y] - p) ** 2) / len(p)
    return ours, (probs, y), expected


def confidences_data(n=400, d=40):
    confidences = uniforms(n, low=0.02, high=0.98)
    return normals(n, d), confidences, (uniforms(n, seed=4) < confidences**1.5).astype(int)


def local_means(features, confidences, values, rate):
    """Means with weights exp(−rate ‖φ − φ'‖₁) within four intervals of confidences."""
    bins = np.ceil(confidences * 4)
    weights = np.exp(-rate * np.abs(pairs(features, features)).sum(-1)) * (bins[:, None] == bins)
    return weights @ values / weights.sum(1)


NEAR = estimators.Neighbourhood.laplacian(0.3, 4)


@case("estimators", atol=1e-5)
def local_errors():
    data = features, confidences, correct = confidences_data()

    def ours(*data):
        return estimators.local_errors(NEAR, *data).error

    x, p = doubles(features, confidences)
    return ours, data, local_means(x, p, p - correct, 1 / (40 * 0.3))


@case("recalibration", atol=1e-5)
def local_recalibration():
    features, confidences, correct = confidences_data()
    method = recalibration.LocalRecalibration(NEAR)

    def ours(x, p, y):
        return method.apply(method.fit(p, y, x), p, x)

    x, p = doubles(features, confidences)
    return ours, (features, confidences, correct), local_means(x, p, correct, 1 / (40 * 0.3))


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
        return x * (2 * norm.cdf(x / s) - 1) + 2 * s * norm.pdf(x / s)

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
