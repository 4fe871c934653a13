"""Compiled float32 results of every room against NumPy, see `compiled_cases`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from sklearn.isotonic import IsotonicRegression

from calibjax import (
    distances,
    distributions,
    estimators,
    evaluation,
    kernels,
    pairwise,
    risk,
    scores,
)
from tests.compiled_cases import (
    CASES,
    D,
    M,
    N,
    case,
    confidences_data,
    diagonal_normal_data,
    doubles,
    gaussian,
    labels,
    normals,
    pairs,
    simplex,
    squares,
    uniforms,
)

pytestmark = pytest.mark.optimised


@case("distances")
def euclidean():
    x = normals(N, D)
    ours = functools.partial(kernels.gram_matrix, distances.Euclidean())
    return ours, (x,), np.sqrt(squares(*doubles(x, x)))


@case("distances", rtol=1e-4)
def manhattan():
    x = normals(N, M)
    ours = functools.partial(kernels.gram_matrix, distances.Manhattan())
    return ours, (x,), np.abs(pairs(*doubles(x, x))).sum(-1)


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
        return kernels.gram_matrix(distances.Wasserstein(), distributions.Samples(x))

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


@case("kernels")
def of_scaled_points():
    x, scale = normals(N, D), uniforms(D, low=0.1, high=0.5)

    def ours(x, scale):
        return kernels.gram_matrix(kernels.Transformed(scale, kernels.SquaredExponential()), x)

    return ours, (x, scale), np.exp(-0.5 * squares(*2 * [np.multiply(*doubles(x, scale))]))


@case("kernels", rtol=1e-4)
def of_mapped_points():
    x, a = normals(N, D), normals(12, D, width=0.1, seed=6)

    def ours(x, a):
        return kernels.gram_matrix(kernels.Transformed(a, kernels.SquaredExponential()), x)

    y, b = doubles(x, a)
    return ours, (x, a), np.exp(-0.5 * squares(y @ b.T, y @ b.T))


@case("kernels", rtol=1e-4)
def expectations_of_mapped_normals():
    loc, scale, a = normals(130, D), uniforms(130, D), normals(12, D, width=0.1, seed=6)

    def double(loc, scale, a):
        return kernels.gram_matrix(
            functools.partial(
                kernels.double_expectation, kernels.Transformed(a, kernels.SquaredExponential())
            ),
            distributions.DiagNormal(loc, scale),
        )

    m, s, b = doubles(loc, scale, a)
    cov = (b * s[:, None] ** 2) @ b.T
    return double, (loc, scale, a), gaussian(pairs(m @ b.T, m @ b.T), cov[:, None] + cov)


@case("kernels")  # jaxlib 0.10.2: off by 0.6
def expectations_for_several_length_scales():
    loc, scale, scales = normals(100, D), uniforms(100, D, low=0.1, high=0.5), [4.0, 6.0, 10.0]
    y, scales = normals(100, D, seed=5), np.array(scales, np.float32)

    def ours(loc, scale, y, scales):
        def for_one(length_scale):
            kernel = kernels.SquaredExponential(length_scale)
            expect = functools.partial(kernels.single_expectation, kernel)
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


@case("distributions")
def log_density():
    loc, scale, y = (x[:200] for x in diagonal_normal_data())

    def ours(*data):
        return jax.vmap(jax.vmap(_log_prob, (None, None, 0)), (0, 0, None))(*data)

    m, s, z = doubles(loc, scale, y)
    return ours, (loc, scale, y), scipy.stats.norm.logpdf(z, m[:, None], s[:, None]).sum(-1)


def _log_prob(loc, scale, y):
    return distributions.DiagNormal(loc, scale).log_prob(y)


@case("distributions")
def moments_of_mixtures():
    weights, loc, scale = simplex(2000, 3), normals(2000, 3, D), uniforms(2000, 3, D)

    def ours(weights, loc, scale):
        p = distributions.Mixture(weights, distributions.DiagNormal(loc, scale))
        return jax.vmap(lambda p: jnp.stack([p.mean(), p.variance()]))(p)

    w, m, s = doubles(weights, loc, scale)
    w = (w / w.sum(1, keepdims=True))[..., None]
    mean = np.sum(w * m, 1)
    variance = np.sum(w * (s**2 + (m - mean[:, None]) ** 2), 1)
    return ours, (weights, loc, scale), np.stack([mean, variance], 1)


@case("scores")
def likelihood():
    loc, scale, y = data = normals(2000, D), uniforms(2000, D, low=0.1), normals(2000, D, seed=5)

    def ours(loc, scale, y):
        return scores.negative_log_likelihood(distributions.DiagNormal(loc, scale), y)

    m, s, z = doubles(loc, scale, y)
    return ours, data, -np.mean(scipy.stats.norm.logpdf(z, m, s).sum(1))


@case("scores")
def brier():
    probs, y = simplex(N, M), labels(N, M)

    def ours(probs, y):
        return scores.brier_score(distributions.Categorical(probs), y)

    return ours, (probs, y), np.mean(np.sum((doubles(probs)[0] - np.eye(M)[y]) ** 2, 1))


@case("scores")
def brier_parts():
    probs, y = simplex(N, M), labels(N, M)

    def ours(probs, y):
        found = scores.brier_decomposition(distributions.Categorical(probs), y)
        return jnp.stack([found.miscalibration, found.discrimination, found.uncertainty])

    parts = np.zeros(3)
    for p, c in zip(doubles(probs)[0].T, range(M)):
        is_class = (y == c) * 1.0
        fitted = IsotonicRegression(out_of_bounds="clip").fit(p, is_class).predict(p)
        score, best, constant = (np.mean((q - is_class) ** 2) for q in (p, fitted, is_class.mean()))
        parts += score - best, constant - best, constant
    return ours, (probs, y), parts


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


@case("risk")
def of_products():
    probs, y = simplex(N, D), labels(N, D)

    def ours(probs, y):
        return risk.estimation_risk(
            lambda p, q: p.class_probs @ q.class_probs.T, distributions.Categorical(probs), y
        )

    p = doubles(probs)[0]
    residuals = p - np.eye(D)[y]
    losses = (residuals @ residuals.T - p @ p.T) ** 2
    return ours, (probs, y), np.mean(losses[~np.eye(N, dtype=bool)])


@case("pairwise")
def tiles_of_other_sizes():
    x = normals(2 * N, D)

    def ours(x):
        return pairwise.mean_over_pairs(_decay, 0.1, x, tile_size=2 * N)

    gram = np.exp(-0.1 * squares(*doubles(x, x)))
    return ours, (x,), np.mean(gram[~np.eye(2 * N, dtype=bool)])


def _decay(rate, x, y):
    return jnp.exp(-rate * distances.SquaredEuclidean()(x, y))


@case("plotting")
def reliability():
    _, confidences, correct = confidences_data()

    def ours(confidences, correct):
        curve = estimators.reliability_curve(
            jax.random.key(0),
            distributions.Bernoulli(confidences),
            correct,
            binning=estimators.UniformBins(4),
            num_draws=19,
            max_bins=4,
        )
        return jnp.stack([curve.confidence, curve.frequency])

    bins = np.ceil(doubles(confidences)[0] * 4)
    rows = [(confidences[bins == b].mean(), correct[bins == b].mean()) for b in range(1, 5)]
    return ours, (confidences, correct), np.array(rows).T


@case("evaluation")
def residual_spread():
    loc, scale, targets = normals(N), uniforms(N, low=0.5), normals(N, seed=3)

    def ours(loc, scale, targets):
        return evaluation.residual_spread(distributions.Normal(loc, scale), targets)

    m, s, y = doubles(loc, scale, targets)
    return ours, (loc, scale, targets), np.std((y - m) / s)


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    make, tolerances = CASES[name]
    ours, data, expected = make()
    data = [jnp.asarray(x) for x in data]
    result = jax.jit(ours)(*data)
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result, expected, **tolerances)


ROOMS = "distances distributions estimators hypothesis_tests kernels pairwise plotting"


def test_every_room_has_a_case():
    rooms = {name.split("-")[0] for name in CASES}
    assert rooms == {*ROOMS.split(), "evaluation", "recalibration", "risk", "scores"}


SLOW = (
    "estimators-diagonal_normal",
    "estimators-kernel_density",
    "recalibration-local_recalibration",
)


@pytest.mark.parametrize(
    "name", ["kernels-of_scaled_points", *(pytest.param(x, marks=pytest.mark.slow) for x in SLOW)]
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
