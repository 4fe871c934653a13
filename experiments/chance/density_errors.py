"""The kernel-density error of the top label: resampled, and with redrawn labels.

    1/n Σ_i (c(r_i) − r_i)²,   c(r_i) = Σ_{j≠i} k(r_i; r_j) correct_j / Σ_{j≠i} k(r_i; r_j),

with the confidences r and the beta kernel of `estimators.kde_calibration_error`, of which it is
half the value for `top_label(…)` and order 2. One bandwidth serves all models. In a resample each
sample counts as often as it was drawn, but never for itself.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

BANDWIDTH = 0.01
EDGE = 1e-6  # confidences are kept this far from 0 and 1, where logarithms are infinite
TILE = 256


class Density(NamedTuple):
    """Errors of one model.

    Attributes:
        estimate: of the data.
        resampled: of the resampled data, [R].
        redrawn: with redrawn labels, [B].
    """

    estimate: jax.Array
    resampled: jax.Array
    redrawn: jax.Array


def log_weights(points: jax.Array, samples: jax.Array) -> jax.Array:
    """Logarithm of the kernel around the samples [n] at the points [k], up to constants, [k, n]."""
    x = 1 / BANDWIDTH

    def entropy(r: jax.Array) -> jax.Array:
        return r * jnp.log(r) + (1 - r) * jnp.log1p(-r)

    def remainder(a: jax.Array) -> jax.Array:
        return lax.lgamma(a + 1) - a * jnp.log(a) + a

    height = -entropy(samples) * x - remainder(samples * x) - remainder((1 - samples) * x)
    crossed = samples * jnp.log(points)[:, None] + (1 - samples) * jnp.log1p(-points)[:, None]
    return crossed * x + height


@jax.jit
def errors(
    confidences: jax.Array, correct: jax.Array, counts: jax.Array, redrawn: jax.Array
) -> Density:
    """Errors of one model.

    Args:
        confidences: [n].
        correct: [n], 0 or 1.
        counts: how often each sample is in each resample, [R, n].
        redrawn: `correct` of redrawn labels, [B, n].

    Cost: n² (2 R + B) multiplications in matrix products of float32, O(n · tile) memory.
    """
    n, tile = len(confidences), min(TILE, len(confidences))
    r = jnp.clip(confidences, EDGE, 1 - EDGE)
    weights = jnp.concatenate([jnp.ones((1, n)), counts]).T.astype(jnp.float32)
    outcomes = jnp.concatenate([weights * correct[:, None], redrawn.T], 1)
    columns = jnp.concatenate([weights, outcomes], 1).astype(jnp.float32)
    number = weights.shape[1]

    def row(of_rows: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        points, places, times = of_rows
        is_own = places[:, None] == jnp.arange(n)
        values = jnp.where(is_own, -jnp.inf, log_weights(points, r))
        values = values - jnp.max(values, 1, keepdims=True)
        values = jnp.exp(values.astype(jnp.float32))
        sums = jnp.matmul(values, columns)
        totals = sums[:, :number]
        empty = totals == 0  # no other sample is near: nothing is learned there
        safe = jnp.where(empty, 1, totals)
        means = jnp.where(empty, points[:, None], sums[:, number : 2 * number] / safe)
        others = jnp.where(empty[:, :1], points[:, None], sums[:, 2 * number :] / safe[:, :1])
        squares = (means - points[:, None]) ** 2 * times
        nulls = (others - points[:, None]) ** 2 * times[:, :1]
        return jnp.sum(squares.astype(r.dtype), 0), jnp.sum(nulls.astype(r.dtype), 0)

    pad = -n % tile
    padded = (
        jnp.pad(r, (0, pad), constant_values=0.5).reshape(-1, tile),
        jnp.arange(n + pad).reshape(-1, tile),
        jnp.pad(weights, ((0, pad), (0, 0))).reshape(-1, tile, number),
    )
    own, nulls = (jnp.sum(x, 0) / n for x in lax.map(row, padded))
    return Density(own[0], own[1:], nulls)
