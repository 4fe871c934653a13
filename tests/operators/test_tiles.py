"""Sums over tiles of pairs, rows and weighted means, against all pairs at once."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import operators
from tests import oracles


def laplace(args, x, y):
    """A symmetric pair function with a parameter, of samples (vector, label)."""
    (u, c), (v, d) = x, y
    return (
        args["amplitude"] * jnp.exp(-jnp.sum(jnp.square(u - v)) * args["rate"]) * (1.0 + (c == d))
    )


def directed(args, x, y):
    """A pair function without symmetry."""
    return args * jnp.sin(x - 2 * y)


def product(args, x, y):
    return args * x * y


def data(n, seed=0, d=2):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=(n, d))), jnp.asarray(rng.integers(0, 3, size=n))


ARGS = {"amplitude": np.array(2.0), "rate": np.array(0.3)}


@jax.jit
def dense(args, xs):
    rows = jax.vmap(laplace, (None, None, 0))
    return jax.vmap(rows, (None, 0, None))(args, xs, xs)


def upper(matrix):
    return np.asarray(matrix)[np.triu_indices(len(matrix), 1)]


# Fewer samples than a tile, as many, one more, several tiles, and tiles of any length.
@pytest.mark.parametrize(
    ("n", "tile_size"), [(2, 128), (15, 16), (16, 16), (17, 16), (40, 1), (40, 7), (301, 128)]
)
def test_tiled_equals_dense(n, tile_size):
    xs = data(n)
    matrix = dense(ARGS, xs)
    ours = operators.mean_over_pairs(laplace, ARGS, xs, tile_size=tile_size)
    np.testing.assert_allclose(ours, upper(matrix).mean(), rtol=1e-13)
    ours = operators.mean_over_pairs(laplace, ARGS, xs, tile_size=tile_size, include_diagonal=True)
    np.testing.assert_allclose(ours, matrix.mean(), rtol=1e-13)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(n, 3)))
    ours = sum(operators.quadratic_forms(laplace, ARGS, xs, weights, tile_size=tile_size))
    np.testing.assert_allclose(ours, np.diag(weights.T @ matrix @ weights), rtol=1e-11)


@pytest.mark.parametrize(("n", "m", "tile_size"), [(1, 1, 128), (40, 17, 7), (17, 40, 16)])
def test_between_two_sets(n, m, tile_size):
    rng = np.random.default_rng(0)
    x, y = jnp.asarray(rng.normal(size=n)), jnp.asarray(rng.normal(size=m))
    matrix = np.sin(np.asarray(x)[:, None] - 2 * np.asarray(y))
    weights = jnp.asarray(rng.normal(size=(m, 2)))
    ours = operators.weighted_sums(directed, 1.0, x, y, weights, tile_size=tile_size)
    np.testing.assert_allclose(ours, matrix @ weights, atol=1e-12)


@pytest.mark.parametrize(("n", "block_size"), [(2, 2), (5, 3), (64, 64), (301, 64)])
def test_blocks(n, block_size):
    xs = data(n)
    expected = oracles.block_estimates(np.asarray(dense(ARGS, xs)), block_size)
    ours = operators.block_means(laplace, ARGS, xs, block_size=block_size)
    np.testing.assert_allclose(ours, expected, rtol=1e-13)


def test_gradients_equal_those_of_the_dense_sum():
    u, labels = data(70)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(70, 2)))

    def tiled_forms(args, u, w):
        forms = operators.quadratic_forms(laplace, args, (u, labels), w, tile_size=32)
        return sum(forms) @ jnp.array([1.0, 2])

    def dense_forms(args, u, w):
        return jnp.diag(w.T @ dense(args, (u, labels)) @ w) @ jnp.array([1.0, 2])

    ours = jax.jit(jax.grad(tiled_forms, argnums=(0, 1, 2)))(ARGS, u, weights)
    chex.assert_trees_all_close(
        ours, jax.jit(jax.grad(dense_forms, argnums=(0, 1, 2)))(ARGS, u, weights), rtol=1e-9
    )


def test_float32_sums_lose_nothing():
    """4 500 000 equal terms: added up one by one in float32 they would lose two digits."""
    n = 3000
    xs = jnp.full(n, 0.1, jnp.float32)
    ours = operators.mean_over_pairs(product, jnp.float32(1), xs, tile_size=16)
    np.testing.assert_allclose(ours, np.float32(0.1) * np.float32(0.1), rtol=3e-7)


@pytest.mark.parametrize("differentiate", [False, True])
def test_memory_does_not_grow_with_the_square(differentiate):
    n = 20_000
    function = lambda a, u, c: operators.mean_over_pairs(laplace, a, (u, c))  # noqa: E731
    function = jax.grad(function, argnums=(0, 1)) if differentiate else function
    shapes = jax.ShapeDtypeStruct((n, 2), float), jax.ShapeDtypeStruct((n,), int)
    compiled = jax.jit(function).lower(ARGS, *shapes).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 100 * 8 * n  # n² numbers are 3.2 GB


def of_table(args, x, y):
    """A symmetric pair function of positions in a table of parameters."""
    return jnp.tanh(args[x] * args[y])


def test_gradients_by_many_parameters_need_little_memory():
    positions = jnp.arange(2048) % 1000
    gradient = jax.jit(jax.grad(lambda args: operators.mean_over_pairs(of_table, args, positions)))
    memory = gradient.lower(np.ones(1000)).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 20e6  # not a derivative for each pair and parameter


def softmax_mean(args, x):
    """A ratio of sums over samples, at one point (vector, index of a sample to leave out)."""
    samples, values, rate = args
    point, excluded = x
    logits = jnp.where(jnp.arange(len(samples)) == excluded, -jnp.inf, rate * samples @ point)
    return {"mean": jax.nn.softmax(logits) @ values}


@pytest.mark.parametrize(
    ("n", "tile_size"), [(2, 1), (2, 128), (15, 16), (16, 16), (33, 1), (33, 7), (33, 16)]
)
def test_rows(n, tile_size):
    samples, values = data(n)[0], data(n, 1)[0]
    args, xs = (samples, values, 0.7), (samples, jnp.arange(n))
    ours = operators.map_rows(softmax_mean, args, xs, tile_size=tile_size)["mean"]
    loop = [softmax_mean(args, jax.tree.map(lambda x, j=j: x[j], xs))["mean"] for j in range(n)]
    np.testing.assert_allclose(ours, np.stack(loop), atol=1e-14)


@pytest.mark.parametrize("tile_size", [384, 16])
def test_kernel_means(tile_size):
    """Means within groups for three scales, one of which has a group without samples."""
    (x, groups), (values, _), (points, at) = data(150), data(150, 1), data(90, 2)
    at, scales = jnp.where(at == 2, 3, at), np.array([1e-4, 0.3, 1e4])

    def distance(exponent, x, y):
        return jnp.sum(jnp.abs(x - y) ** exponent)

    means, totals = operators.kernel_means(
        *(distance, lambda scale, d: -d / scale, 1.5, jnp.asarray(scales)),
        *((points, at), (x, groups), values),
        tile_size=tile_size,
    )
    d = np.sum(np.abs(np.asarray(points)[:, None] - x) ** 1.5, -1)
    d = np.where(np.equal.outer(at, groups), d, np.inf)
    nearest = np.where(np.isinf(d).all(1), 0, d.min(1))[:, None]
    weights = np.exp(-(d - nearest) / scales[:, None, None])
    total = weights.sum(-1)
    np.testing.assert_allclose(totals, total, rtol=1e-12)
    expected = weights @ np.asarray(values) / np.where(total == 0, 1, total)[..., None]
    np.testing.assert_allclose(means, expected, rtol=1e-12, atol=1e-13)
