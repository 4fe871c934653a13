import jax
import numpy as np
from scipy import stats

from calibjax import distributions, kernels
from calibjax.kernels.expectations import (
    double_expectation,
    single_expectation,
)

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


def test_expectations_by_sums():
    rate, other, count, length_scale = _settings()
    white, smooth = jax.vmap(_expectations)(rate, other, count.astype(int), length_scale)
    for i in range(len(rate)):
        r, s, ell = (float(x[i]) for x in (rate, other, length_scale))
        expected = _sums(r, s, count[i], lambda x, y: (x == y) * 1.0)
        np.testing.assert_allclose([v[i] for v in white], expected, atol=1e-10)
        gauss = lambda x, y: np.exp(-((x - y) ** 2) / (2 * ell**2))  # noqa: B023, E731
        expected = _sums(r, s, count[i], gauss)
        np.testing.assert_allclose([v[i] for v in smooth], expected, atol=1e-10)
