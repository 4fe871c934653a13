import functools

import jax.numpy as jnp
import numpy as np

from calibjax.distributions import Categorical
from calibjax.kernels import Exponential, SquaredExponential, nystrom


def plain(matrix, size):
    """Pivoted Cholesky decomposition by loops, until `size` pivots."""
    rest, features, pivots = matrix.copy(), [], []
    for _ in range(size):
        pivot = int(np.argmax(np.diagonal(rest)))
        features.append(rest[pivot] / np.sqrt(rest[pivot, pivot]))
        pivots.append(pivot)
        rest = rest - np.outer(features[-1], features[-1])
    return np.array(features).T, pivots, np.abs(rest).max()


def test_against_plain_loops():
    probs = np.random.default_rng(0).dirichlet(np.ones(4), 90)
    matrix = np.exp(-0.5 * np.square(probs[:, None] - probs).sum(-1) / 0.2**2)
    found = nystrom.decompose(
        SquaredExponential(0.2), Categorical(jnp.asarray(probs)), 1e-9, size=70
    )
    features, pivots, residual = plain(matrix, 70)
    assert found.rank == 70
    np.testing.assert_array_equal(found.pivots, pivots)
    np.testing.assert_allclose(found.features, features, atol=1e-10)
    np.testing.assert_allclose(found.residual, residual, rtol=1e-8)
    rows = found.features[found.pivots]
    np.testing.assert_array_equal(rows, np.tril(rows))


def test_stops_at_the_tolerance():
    """Also for points that are there several times, and only for one."""
    tolerance = 1e-5
    points = jnp.asarray(np.tile(np.random.default_rng(1).uniform(size=9), 5), jnp.float32)
    matrix = np.exp(-np.abs(np.subtract.outer(points, points)))
    found = nystrom.decompose(Exponential(), points, tolerance, size=20)
    assert found.rank == 9
    assert found.features.dtype == jnp.float32
    assert found.residual <= tolerance
    np.testing.assert_array_equal(found.features[:, 9:], 0)
    np.testing.assert_allclose(found.features @ found.features.T, matrix, atol=1e-6)
    found = nystrom.decompose(Exponential(), jnp.full(45, points[0]), tolerance, size=20)
    assert (found.rank, found.residual) == (1, 0)


def test_numerical_rank():
    confidences = jnp.asarray(np.random.default_rng(2).uniform(size=100))
    search = functools.partial(nystrom.numerical_rank, tolerance=1e-12, limit=20)
    found = nystrom.decompose(SquaredExponential(), confidences, 1e-12, size=20)
    assert 8 <= found.rank < 16
    assert search(SquaredExponential(), confidences) == 16
    assert search(SquaredExponential(), jnp.broadcast_to(confidences[:1], 100)) == 8
    assert search(SquaredExponential(0.01), confidences) is None
