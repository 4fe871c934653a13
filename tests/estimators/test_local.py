import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, kernels
from calibjax.estimators import Neighbourhood, UniformBins, lce, local_errors, mlce
from calibjax.hypothesis_tests import local_calibration_test

RNG = np.random.default_rng(0)
N, D, BINS = 400, 3, 6
FEATURES = RNG.normal(size=(N, D))
CONFIDENCES = RNG.uniform(size=N)
CONFIDENCES[:4] = 0, 1, 0.5, 1 / 3  # the ends of bins
CORRECT = (RNG.uniform(size=N) < CONFIDENCES**1.5).astype(int)
DATA = FEATURES, CONFIDENCES, CORRECT  # as NumPy arrays: float64 in tests only
AT = RNG.normal(size=(40, D)), RNG.uniform(size=40)
GAMMAS = np.array([1e-9, 0.05, 0.3, 1e9])


def intervals(confidences, num_bins=BINS):
    edges = np.linspace(0, 1, num_bins + 1)
    return np.array(
        [max(k for k in range(num_bins) if k == 0 or edges[k] < p) for p in confidences]
    )


def loop(points, places, distance):
    """Errors, standard errors, those under calibration and sizes, from the definitions."""
    bins, rows = intervals(CONFIDENCES), []
    for x, b in zip(points, intervals(places)):
        inside = bins == b
        distances = distance(x, FEATURES[inside])
        weights = np.exp(-(distances - distances.min()))
        weights /= weights.sum()
        c, r = CONFIDENCES[inside], (CONFIDENCES - CORRECT)[inside]
        error, squares = weights @ r, np.sum(weights**2)
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = weights @ (r - error) ** 2 * squares / (1 - squares)
        known = squares <= 1 / 1.999
        rows.append(
            (
                error,
                np.sqrt(spread) if known else np.inf,
                np.sqrt(np.sum(weights**2 * c * (1 - c))),
                1 / squares,
            )
        )
    return np.array(rows).T


def test_plain_numpy():
    near = Neighbourhood.laplacian(GAMMAS, BINS)
    ours, curve = local_errors(near, *DATA), lce(near, *DATA)
    for g, gamma in enumerate(GAMMAS):
        laplacian = lambda x, y: np.abs(x - y).sum(1) / (D * gamma)  # noqa: B023, E731
        expected = loop(FEATURES, CONFIDENCES, laplacian)
        for name, values in zip(vars(ours), expected):
            rtol = 1e-7 if name == "standard_error" else 1e-10  # a difference of squares
            np.testing.assert_allclose(getattr(ours, name)[g], values, rtol=rtol, atol=1e-12)
        np.testing.assert_allclose(curve[g], np.abs(expected[0]), atol=1e-12)
    np.testing.assert_array_equal(mlce(near, *DATA), curve.max(1))


@pytest.mark.parametrize(
    ("kernel", "distance"),
    [
        (
            kernels.SquaredExponential(jnp.array([0.5, 2.0])),
            lambda x, y: np.sum((x - y) ** 2, 1) / (2 * np.array([[0.5], [2.0]]) ** 2),
        ),
        (  # no kernel of a distance
            kernels.Exponential(0.5) * kernels.SquaredExponential(2.0),
            lambda x, y: (
                np.sqrt(np.sum((x - y) ** 2, 1)) / 0.5 + np.sum((x - y) ** 2, 1) / (2 * 2.0**2)
            ),
        ),
    ],
)
def test_any_kernel_and_binning(kernel, distance):
    ours = lce(Neighbourhood(kernel, UniformBins(BINS)), *DATA, at=AT)
    for g, one in enumerate(np.atleast_2d(ours)):
        choose = lambda x, y: np.atleast_2d(distance(x, y))[g]  # noqa: B023, E731
        np.testing.assert_allclose(one, np.abs(loop(*AT, choose)[0]), atol=1e-12)


def _row_case(dtype):
    rng = np.random.default_rng(1)
    features = np.round(rng.normal(size=(300, 1)), 1).astype(dtype)  # many ties
    confidences = rng.uniform(size=300).astype(dtype)
    correct = (rng.uniform(size=300) < confidences).astype(int)
    return (features, confidences, correct), rng.uniform(0.1, 2, 300).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("unit", "weighted"),
    [(1.0, False), (1e-7, True), (1e7, True)],
)
def test_one_feature(dtype, weighted, unit):
    """Against means over all pairs in NumPy; the errors, and those of a test's redraws."""
    (features, confidences, correct), weights = _row_case(dtype)
    weights = weights if weighted else None
    gammas = np.array([1e-3, 0.3, 1e3])
    data = unit * features, confidences

    def neighbourhood(scale):
        return Neighbourhood(
            kernels.Exponential(unit * scale, distances.Manhattan()), UniformBins(BINS)
        )

    near = neighbourhood(gammas)
    found = local_errors(near, *data, correct, weights=weights)
    bins, (x, c) = intervals(confidences), (features[:, 0].astype(float), confidences.astype(float))
    r = c - correct
    for g, gamma in enumerate(gammas):
        w = np.exp(-np.abs(np.subtract.outer(x, x)) / gamma) * np.equal.outer(bins, bins)
        w = w * (1 if weights is None else weights.astype(float))
        w /= w.sum(1, keepdims=True)
        size = 1 / np.square(w).sum(1)
        many = size > 1.999
        spread = (w @ r**2 - (w @ r) ** 2) / np.where(many, size - 1, 1)
        tolerance = {"rtol": 0, "atol": 1e-12 if dtype == np.float64 else 2e-6}
        np.testing.assert_allclose(found.error[g], w @ r, **tolerance)
        variance = np.square(found.standard_error[g])
        np.testing.assert_allclose(variance[many], spread[many], **tolerance)
        null = np.sqrt(w**2 @ (c * (1 - c)))
        np.testing.assert_allclose(found.null_standard_error[g], null, **tolerance)
        np.testing.assert_allclose(found.effective_size[g] / size, np.ones(300), **tolerance)
    one = neighbourhood(0.3)
    test = local_calibration_test(
        jax.random.key(0), one, *data, correct, weights=weights, num_draws=19
    )
    np.testing.assert_allclose(test.statistic, np.abs(found.error[1]), rtol=0, atol=1e-5)
