import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import kernels
from calibjax.estimators import Neighbourhood, UniformBins, lce, local_errors, mlce

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
