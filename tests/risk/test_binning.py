import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions
from calibjax.risk import Binning


def sample(n, seed=0):
    """Confidences, a third of them on edges of bins and at 0 and 1, and what came."""
    rng = np.random.default_rng(seed)
    confidences = rng.uniform(0.3, 1, size=n)
    confidences[: n // 3] = rng.integers(0, 11, size=n // 3) / 10
    correct = rng.uniform(size=n) < confidences**2
    return confidences, correct.astype(int)


def factors_oracle(train, correct, points, num_bins):
    """Conf − acc of the interval of each point, by loops."""

    def interval(c):
        return max(np.ceil(c * num_bins), 1)

    values = []
    for point in points:
        members = [i for i, c in enumerate(train) if interval(c) == interval(point)]
        total = sum(float(train[i]) - correct[i] for i in members)
        values.append(total / len(members) if members else 0.0)
    return np.array(values)


def test_against_loops():
    (train, correct), (points, _) = sample(60), sample(20, 1)
    points = np.append(points, 0.15)  # no training sample is near
    function = Binning(100)

    @jax.jit
    def values(num_bins):
        params = function.fit(jnp.asarray(train), jnp.asarray(correct), num_bins)
        p, q = jnp.asarray(points), jnp.asarray(points[:7])
        return function.evaluate(params, p, q), function.diagonal(params, p)

    grid = np.append(Binning().grid(2), [1, 3, 7])
    results = jax.lax.map(values, jnp.asarray(grid))
    for num_bins, value, diagonal in zip(grid, *results, strict=True):
        expected = factors_oracle(train, correct, points, num_bins)
        np.testing.assert_allclose(value, np.outer(expected, expected[:7]), atol=1e-14)
        np.testing.assert_allclose(diagonal, expected**2, atol=1e-14)
    assert factors_oracle(train, correct, points, 20)[-1] == 0
    two = [distributions.Categorical(np.stack([1 - x, x], 1)) for x in (train, points)]
    residuals, _ = function.factors(function.fit(two[0], correct.astype(int), 7), two[1])
    expected = factors_oracle(train, correct, points, 7)
    np.testing.assert_allclose(residuals[:, 1], expected, atol=1e-14)


def debiased_oracle(train, correct, points, num_bins):
    """Mean product of the residuals of two different samples, by loops over pairs."""

    def members(c):
        return [i for i, x in enumerate(train) if np.ceil(x * num_bins) == np.ceil(c * num_bins)]

    def mean(one, two):
        products = [(train[i] - correct[i]) * (train[j] - correct[j]) for i in one for j in two]
        same = [(train[i] - correct[i]) ** 2 for i in one if i in two]
        num = len(products) - len(same)
        return (sum(products) - sum(same)) / num if num else 0.0

    groups = [members(c) for c in points]
    return np.array([[mean(one, two) for two in groups] for one in groups])


def test_debiased_against_pairs_of_samples():
    (train, correct), (points, _) = sample(40, 3), sample(20, 4)
    points = np.append(np.maximum(points, 0.01), [0.15, 0.34])  # of no sample, and of one
    train = np.append(np.where(train > 0.4, train, 0.5), 0.35)
    correct = np.append(correct, 1)
    function = Binning(debias=True)
    params = function.fit(*map(jnp.asarray, (train, correct)), 9)
    expected = debiased_oracle(train, correct, points, 9)
    points = jnp.asarray(points)
    np.testing.assert_allclose(function.evaluate(params, points, points), expected, atol=1e-14)
    diagonal = function.diagonal(params, points)
    np.testing.assert_allclose(diagonal, np.diagonal(expected), atol=1e-14)
    assert diagonal.min() < 0
    np.testing.assert_array_equal(diagonal[-2:], 0)
    assert params.counts[3] == 1  # which products with other intervals know


def test_empty_intervals_and_gradients():
    function, correct = Binning(), jnp.array([1, 0, 1])
    params = function.fit(jnp.array([0.95, 0.85, 0.8]), correct, 4)
    np.testing.assert_array_equal(params.counts[:4], [0, 0, 0, 3])
    np.testing.assert_array_equal(function.diagonal(params, jnp.array([0.1, 0.6])), 0)
    mean = lambda x: jnp.mean(function.diagonal(function.fit(x, correct, 2.0), x))  # noqa: E731
    # (mean − 2/3)² has the derivative 2 (mean − 2/3) / 3.
    slopes = jax.jit(jax.grad(mean))(jnp.array([0.95, 0.85, 0.8]))
    np.testing.assert_allclose(slopes, 2 * (2.6 / 3 - 2 / 3) / 3, rtol=1e-12)
    with pytest.raises(ValueError, match=r"whole numbers between 1 and 100 .max_bins., got .*2\.5"):
        function.fit(jnp.array([0.95, 0.85, 0.8]), correct, 2.5)
