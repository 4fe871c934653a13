"""The centered matrix of the calibration kernel, without storing it.

With H_ij = h(X_i, X_j), row means r_i and their mean g, the centered matrix is
H̃_ij = H_ij − r_i − r_j + g. H̃ determines the asymptotic null distribution of the SKCE, and the
spread of the row means dominates the estimator's variance if the model is not calibrated.
"""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax import operators
from calibjax.distributions.base import DataSet
from calibjax.estimators.kernel import sample_pair
from calibjax.kernels import Kernel

_TILE_SIZE = 512  # with many columns matrix products dominate, and large ones are more efficient


def diagonal(kernel: Kernel, samples: DataSet) -> jax.Array:
    """H_ii, [n]."""
    return jax.vmap(sample_pair, in_axes=(None, 0, 0))(kernel, samples, samples)


def row_means(kernel: Kernel, samples: DataSet) -> jax.Array:
    """r_i = n⁻¹ Σ_j H_ij, [n], in n² evaluations."""
    dtype = jax.eval_shape(diagonal, kernel, samples).dtype
    n = jax.tree.leaves(samples)[0].shape[0]
    ones = jnp.ones((n, 1), dtype)
    return operators.weighted_sums(sample_pair, kernel, samples, samples, ones)[:, 0] / n


def centered_diagonal(entries: jax.Array, rows: jax.Array) -> jax.Array:
    """H̃_ii, [n], from the entries H_ii and the row means."""
    return entries - 2 * rows + rows.mean()


def squared_pair(args: tuple[Kernel, Any], x: DataSet, y: DataSet) -> jax.Array:
    """h² in units of a squared size."""
    kernel, size = args
    return jnp.square(sample_pair(kernel, x, y) / size)


def centered_mean_square(kernel: Kernel, samples: DataSet, rows: jax.Array) -> jax.Array:
    """n⁻² Σ_ij H̃_ij², from the row means, in n² / 2 evaluations."""
    squares = operators.mean_over_pairs(squared_pair, (kernel, 1), samples, include_diagonal=True)
    return jnp.maximum(squares - 2 * jnp.mean(jnp.square(rows)) + jnp.square(rows.mean()), 0)


def centered_product(
    kernel: Kernel, samples: DataSet, vectors: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """H̃ V for V [n, c], and the row means r [n], together in n² evaluations."""
    centered = vectors - vectors.mean(0)
    weights = jnp.concatenate([centered, jnp.ones_like(vectors[:, :1])], 1)
    sums = operators.weighted_sums(
        sample_pair, kernel, samples, samples, weights, tile_size=_TILE_SIZE
    )
    product = sums[:, :-1]
    return product - product.mean(0), sums[:, -1] / vectors.shape[0]
