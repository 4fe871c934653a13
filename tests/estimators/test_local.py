import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, kernels
from calibjax.estimators import Neighbourhood, UniformBins, lce, local_errors, mlce
from calibjax.estimators.local import local_problem
from calibjax.kernels import line

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
    ("unit", "shape", "weighted"),
    [
        (1.0, kernels.Exponential, False),
        (1e-7, kernels.Exponential, True),
        (1e-7, kernels.Matern, False),
        (1e7, functools.partial(kernels.Matern, nu=2.5), True),
    ],
)
def test_one_feature_in_linear_time(dtype, weighted, unit, shape, monkeypatch):
    """Against sums over all pairs, which `test_plain_numpy` compares with NumPy."""
    (features, confidences, correct), weights = _row_case(dtype)
    options = {"weights": weights if weighted else None}
    scales = unit * np.array([1e-3, 0.3, 1e3])
    near = Neighbourhood(shape(scales, distances.Manhattan()), UniformBins(BINS))
    data = near, unit * features, confidences, correct
    assert local_problem(*data, **options).row is not None
    found = local_errors(*data, **options)
    with monkeypatch.context() as patch:
        patch.setattr("calibjax.estimators.local.row_of", lambda *_: None)
        expected = local_errors(*data, **options)
    atol = 1e-12 if dtype == np.float64 else 2e-6
    np.testing.assert_allclose(found.error, expected.error, rtol=0, atol=atol)
    np.testing.assert_allclose(
        found.null_standard_error, expected.null_standard_error, rtol=0, atol=atol
    )
    np.testing.assert_allclose(found.effective_size, expected.effective_size, rtol=atol)
    many = np.asarray(expected.effective_size) > 1.999
    variances = (np.square(x.standard_error)[many] for x in (found, expected))
    np.testing.assert_allclose(*variances, rtol=0, atol=atol)


def test_what_counts_nothing_has_no_row():
    """Its own place may be far from all that counts."""
    (features, confidences, correct), weights = _row_case(float)
    near, weights = Neighbourhood.laplacian(1e-9, BINS), np.where(weights < 1, 0, weights)
    assert local_problem(near, features, confidences, correct, weights=weights).row is None
    assert local_problem(near, features, confidences, correct, (AT[0][:, :1], AT[1])).row is None
    assert np.isfinite(lce(near, features, confidences, correct, weights=weights)).all()


@pytest.mark.parametrize("spacing", ["grid", "uniform"])
def test_rounding_errors_of_many_samples(spacing):
    """In single precision those of √n steps, beside double precision."""
    n, rng = 100_000, np.random.default_rng(0)
    x = np.sort(np.linspace(0, 1, n) if spacing == "grid" else rng.uniform(size=n))
    x, r = x.astype(np.float32)[:, None], rng.uniform(-0.5, 0.5, (n, 1)).astype(np.float32)

    def sums(scale, dtype):
        kernel, points = kernels.Exponential(scale), jnp.asarray(x, dtype)
        row = line.row_of(kernel, points, jnp.zeros(n, int))
        return line.means_in_row(kernel, row, jnp.asarray(r, dtype))

    for scale in (0.01, 10.0):
        (means, totals), (expected, exact) = (sums(scale, t) for t in (jnp.float32, float))
        np.testing.assert_allclose(totals, exact, rtol=2e-5)
        np.testing.assert_allclose(means, expected, rtol=0, atol=2e-6)


def test_derivatives_in_a_row(monkeypatch):
    """By length scale and confidences, as those of the means over pairs."""
    (features, confidences, correct), _ = _row_case(float)

    def value(scale, confidences):
        near = Neighbourhood(kernels.Exponential(scale), lambda p: (p.probs > 0.5).astype(int))
        return jnp.sum(local_errors(near, features, confidences, correct).error ** 2)

    gradients = jax.grad(value, (0, 1))
    found = gradients(0.3, jnp.asarray(confidences))
    with monkeypatch.context() as patch:
        patch.setattr("calibjax.estimators.local.row_of", lambda *_: None)
        expected = gradients(0.3, jnp.asarray(confidences))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
