import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distributions, kernels
from calibjax.kernels.expectations import (
    double_expectation,
    features,
    prepare_features,
    single_expectation,
)
from tests import compiled, oracles

Poisson = distributions.Poisson


def _settings():
    """30 random settings, and special ones: equal, tiny, large and distant rates."""
    rng = np.random.default_rng(0)
    rate = 10 ** rng.uniform(-2, 3, 30)
    near = np.maximum(rate + 3 * np.sqrt(rate) * rng.normal(size=30), 1e-3)
    other = np.where(rng.uniform(size=30) < 0.7, near, 10 ** rng.uniform(-2, 3, 30))
    count = rng.poisson(other)
    length_scale = 10 ** rng.uniform(-1.5, 2, 30)
    special = np.array(
        [
            [3.0, 3.0, 3, 1.0],
            [12.5, 12.5, 9, 2.0],
            [12.5, 12.5, 9, 1.999],
            [1e-3, 1e-3, 0, 1.0],
            [1e-3, 900.0, 0, 1.0],
            [900.0, 1e-3, 900, 5.0],
            [5e3, 5.1e3, 5000, 1.0],
            [5e3, 5e3, 5000, 1e3],
        ]
    ).T
    columns = (rate, other, count, length_scale)
    return [np.concatenate([a, b]) for a, b in zip(columns, special)]


def _support(rate):
    counts = np.arange(max(0, int(rate - 12 * np.sqrt(rate) - 30)), int(rate + 12 * rate**0.5 + 40))
    return counts, stats.poisson.pmf(counts, rate)


def _sums(rate, other, count, kernel):
    """Both expectations by sums over all counts that matter."""
    (x, v), (y, w) = _support(rate), _support(other)
    return v @ kernel(x, count), v @ kernel(x[:, None], y) @ w


@jax.jit
def _expectations(rate, other, count, length_scale):
    p, q = Poisson(rate), Poisson(other)
    expectations = single_expectation, double_expectation
    return [
        [one(kernel, p, value) for one, value in zip(expectations, (count, q), strict=True)]
        for kernel in (kernels.White(), kernels.SquaredExponential(length_scale))
    ]


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (np.float64, 1e-10)])
def test_expectations_by_sums(dtype, tolerance):
    rate, other, count, length_scale = _settings()
    rate, other, length_scale = (x.astype(dtype) for x in (rate, other, length_scale))
    white, smooth = jax.vmap(_expectations)(rate, other, count.astype(int), length_scale)
    assert white[0].dtype == smooth[0].dtype == smooth[1].dtype == dtype
    for i in range(len(rate)):
        r, s, ell = (float(x[i]) for x in (rate, other, length_scale))
        expected = _sums(r, s, count[i], lambda x, y: (x == y) * 1.0)
        np.testing.assert_allclose([v[i] for v in white], expected, atol=tolerance)
        gauss = lambda x, y: np.exp(-((x - y) ** 2) / (2 * ell**2))  # noqa: B023, E731
        expected = _sums(r, s, count[i], gauss)
        np.testing.assert_allclose([v[i] for v in smooth], expected, atol=tolerance)


@pytest.mark.slow
def test_gradients():
    """Finite and right, also for equal rates, and for counts far away."""
    kernel = kernels.White()

    def value(x, count):
        p, q, smooth = Poisson(x[0]), Poisson(x[1]), kernels.SquaredExponential(x[2])
        double = compiled.double_expectation(kernel + smooth, p, q)
        return double - compiled.single_expectation(kernel + smooth, p, count)

    points = np.array([[3.0, 3.0, 1.5], [20.0, 20.5, 1.0], [2.0, 800.0, 3.0], [50.0, 40.0, 9.0]])
    for point, count in zip(points, (2, 20, 2, 45), strict=True):
        oracles.check_gradients(lambda x: value(x, count), point[None], 1e-4, 1e-7)  # noqa: B023


def test_features_reproduce_the_centered_kernel():
    kernel = kernels.SquaredExponential(1.5)
    predictions, targets = _data(20, np.float64)
    prepare = prepare_features
    root = prepare(kernel, predictions, targets)
    found = jax.vmap(lambda p, y: features(kernel, root, p, y))(predictions, targets)
    pair = lambda x, y: compiled.centered_kernel(kernel, *x, *y)  # noqa: E731
    expected = jax.jit(lambda s: kernels.gram_matrix(pair, s))((predictions, targets))
    np.testing.assert_allclose(found @ found.T, expected, atol=1e-10)
    # Not for many counts, and not for what is traced.
    assert prepare(kernel, Poisson(100 * predictions.rate), targets) is None
    traced = []
    jax.eval_shape(lambda p: traced.append(prepare(kernel, p, targets)), predictions)
    assert traced == [None]


def _data(n, dtype, seed=0):
    rng = np.random.default_rng(seed)
    rate = rng.uniform(0.5, 10, n).astype(dtype)
    return Poisson(jnp.asarray(rate)), jnp.asarray(rng.poisson(rate))
