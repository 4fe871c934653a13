"""The SKCE of several models on the same samples: paired moments, and redrawn labels.

The kernel is exp(−TV(p, q)) δ(y, z), the same for all models: the length scale of the median
heuristic is 0.98 to 1 for these networks. With residuals r = e_y − p,

    h_ij = exp(−TV(p_i, p_j)) ⟨r_i, r_j⟩.

The library has no function yet for the paired moments. Tiles are of float32, their sums of float64.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

TILE = 256


class Moments(NamedTuple):
    """What the comparison of M models needs of their matrices h without diagonals.

    Attributes:
        estimates: unbiased SKCE, [M].
        rows: means of the rows, [M, n].
        products: means of h_a h_b, [M, M].
    """

    estimates: jax.Array
    rows: jax.Array
    products: jax.Array


def kernel_tile(xs: jax.Array, ys: jax.Array) -> jax.Array:
    """exp(−TV) between predictions [k, m] and [l, m], [k, l].

    The sum over classes is written out: XLA then keeps it in registers, which is seven times as
    fast as a reduction of an array [k, l, m].
    """
    total = jnp.zeros((len(xs), len(ys)), xs.dtype)
    for x, y in zip(xs.T, ys.T, strict=True):
        total = total + jnp.abs(x[:, None] - y)
    return jnp.exp(-0.5 * total)


def _padded(array: jax.Array, axis: int, tile: int) -> jax.Array:
    """With zeros up to a multiple of the tile; a residual of zero makes h zero."""
    width = [(0, 0)] * array.ndim
    width[axis] = (0, -array.shape[axis] % tile)
    return jnp.pad(array, width)


def _tiles(array: jax.Array, tile: int) -> jax.Array:
    """[M, n, m] as [n / tile, M, tile, m]."""
    array = _padded(array, 1, tile)
    return jnp.moveaxis(array.reshape(len(array), -1, tile, array.shape[-1]), 1, 0)


@jax.jit
def moments(probs: jax.Array, labels: jax.Array) -> Moments:
    """Moments of h of all models.

    Args:
        probs: predictions, [M, n, m].
        labels: [n].

    Cost: M n² m evaluations, O(M (n m + tile²)) memory.
    """
    num_models, n, num_classes = probs.shape
    tile = min(TILE, n)
    probs = probs.astype(jnp.float32)
    residuals = jax.nn.one_hot(labels, num_classes, dtype=probs.dtype) - probs
    places = jnp.arange(n + -n % tile).reshape(-1, tile)
    tiles = _tiles(probs, tile), _tiles(residuals, tile), places

    def values(x: jax.Array, r: jax.Array, y: jax.Array, s: jax.Array) -> jax.Array:
        return kernel_tile(x, y) * jnp.matmul(r, s.T)

    def row(of_rows: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        def step(total: tuple, of_columns: tuple) -> tuple:
            h = jax.vmap(values)(*of_rows[:2], *of_columns[:2])
            h = jnp.where(of_rows[2][:, None] == of_columns[2], 0, h)
            flat = h.reshape(num_models, -1)
            products = jnp.matmul(flat, flat.T).astype(jnp.float64)
            return (total[0] + jnp.sum(h, -1).astype(jnp.float64), total[1] + products), None

        zeros = jnp.zeros((num_models, tile)), jnp.zeros((num_models, num_models))
        return lax.scan(step, zeros, tiles)[0]

    rows, products = lax.map(row, tiles)
    rows = jnp.moveaxis(rows, 0, 1).reshape(num_models, -1)[:, :n] / (n - 1)
    return Moments(jnp.mean(rows, 1), rows, jnp.sum(products, 0) / n / (n - 1))


@jax.jit
def variances(found: Moments) -> jax.Array:
    """Variances of the differences of two models, [M, M]; on the diagonal of each model alone.

    With g = h_a − h_b, ζ₂ the mean of g² and S² the variance of the row means of g, where σ² = ζ₂ −
    U²,

        ζ₁ = max(((n − 1)² S² / (n − 2) − σ²) / (n − 4), 0),
        v = 4 (n − 2) ζ₁ / (n (n − 1)) + 2 σ² / (n (n − 1)).

    ζ₁ is unbiased; the second term keeps the test valid where both models are calibrated.
    """
    n = found.rows.shape[1]

    def of_differences(products: jax.Array) -> jax.Array:
        own = jnp.diagonal(products)
        return own[:, None] + own - 2 * products + jnp.diag(own)

    rows = found.rows - found.estimates[:, None]
    squares = of_differences(jnp.matmul(rows, rows.T) / (n - 1))  # S²
    u = found.estimates
    zeta_2 = of_differences(found.products)
    spread = zeta_2 - of_differences(u[:, None] * u)  # σ²
    zeta_1 = jnp.maximum(((n - 1) ** 2 * squares / (n - 2) - spread) / (n - 4), 0)
    return (4 * (n - 2) * zeta_1 + 2 * spread) / (n * (n - 1))


def redrawn(probs: jax.Array, labels: jax.Array) -> np.ndarray:
    """Unbiased SKCE of one model for many vectors of labels, [B].

    Most samples have the same label in nearly all redraws, and two samples contribute a kernel
    value where their labels are equal. So class by class only those samples matter that have the
    class in any of the redraws.

    Args:
        probs: predictions, [n, m].
        labels: [B, n].
    """
    n, num_classes = probs.shape
    drawn = np.asarray(labels)
    present = np.zeros((n, num_classes), bool)
    present[np.arange(n), drawn] = True
    size = _rounded(int(present.sum(0).max()), n)
    members = np.argsort(~present, axis=0, kind="stable")[:size].T
    is_member = np.take_along_axis(present.T, members, 1)
    compact = jnp.asarray(drawn, jnp.int16 if num_classes > 127 else jnp.int8)
    return np.asarray(_redrawn(probs, compact, jnp.asarray(members), jnp.asarray(is_member)))


def _rounded(size: int, n: int) -> int:
    """A few sizes for all models, so that few programs are compiled: 2^k or 3 · 2^(k − 1)."""
    power = 2 ** max(8, math.ceil(math.log2(size)))
    return min(n, 3 * power // 4 if size <= 3 * power // 4 else power)


@jax.jit
def _redrawn(
    probs: jax.Array, labels: jax.Array, members: jax.Array, is_member: jax.Array
) -> jax.Array:
    """`redrawn` with the samples of each class, [m, s]."""
    n, num_classes = probs.shape
    probs32 = probs.astype(jnp.float32)

    def of_class(one: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        c, chosen, is_chosen = one
        own = probs32[chosen]
        marks = ((labels[:, chosen] == c) & is_chosen).T.astype(jnp.float32)
        tile = min(TILE, len(chosen))

        def row(of_rows: tuple[jax.Array, jax.Array]) -> jax.Array:
            products = of_rows[1] * jnp.matmul(kernel_tile(of_rows[0], own), marks)
            return jnp.sum(products.astype(jnp.float64), 0)

        tiles = (_padded(x, 0, tile).reshape(-1, tile, x.shape[1]) for x in (own, marks))
        return jnp.sum(lax.map(row, tuple(tiles)), 0)

    same = jnp.sum(lax.map(of_class, (jnp.arange(num_classes), members, is_member)), 0)
    smoothed = _smoothed(probs32, probs)  # Σ_j k_ij p_j

    def of_labels(y: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = y.astype(jnp.int32)[:, None]
        crossed = jnp.sum(jnp.take_along_axis(smoothed, y, 1))
        norms = 1 - 2 * jnp.take_along_axis(probs, y, 1)[:, 0] + jnp.sum(probs**2, 1)
        return crossed, jnp.sum(norms)

    crossed, diagonal = lax.map(of_labels, labels)
    return (same - 2 * crossed + jnp.sum(probs * smoothed) - diagonal) / n / (n - 1)


def _smoothed(probs32: jax.Array, weights: jax.Array) -> jax.Array:
    """The kernel matrix times weights, [n, c]."""
    n, tile = len(probs32), min(TILE, len(probs32))

    def row(xs: jax.Array) -> jax.Array:
        return jnp.matmul(kernel_tile(xs, probs32).astype(weights.dtype), weights)

    tiles = _padded(probs32, 0, tile).reshape(-1, tile, probs32.shape[1])
    return lax.map(row, tiles).reshape(-1, weights.shape[1])[:n]
