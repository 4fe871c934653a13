"""Statistics of redrawn targets, in batches and over devices."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax import _checks, pairwise
from calibjax._batches import default_batch_size, map_batches
from calibjax._compilation import jit
from calibjax._pytree import PyTree
from calibjax._sharding import WHOLE, devices
from calibjax.distributions.base import Distribution
from calibjax.distributions.sampling import draw
from calibjax.hypothesis_tests.featured import Parts
from calibjax.hypothesis_tests.pool_statistics import Family

_SMALL = 8 * pairwise.TILE_SIZE**2  # bytes of data that every device may hold: a tile


def checked_batch_size(batch_size: int | None, family: Family) -> int:
    """The number of redraws that are evaluated at once."""
    if batch_size is None:
        batch_size = default_batch_size(family.num_bytes)
    return _checks.size_in_range("batch_size", batch_size, 1)


@functools.partial(jit, static_argnames=("num_draws", "batch_size"))
def evaluate_pool(
    key: jax.Array,
    family: Family,
    predictions: Distribution,
    targets: ArrayLike,
    weights: jax.Array | None = None,
    *,
    num_draws: int,
    batch_size: int,
) -> Parts:
    """Means of h off and on the diagonal for the observed targets, then for redrawn ones.

    The weights of the samples stay.

    Returns:
        Both means, [B + 1, K] each.
    """
    keys, split = jax.random.split(key, num_draws), devices()
    data = family, predictions, targets, weights

    def pool(data: tuple[Family, Any, Any, Any], keys: jax.Array) -> Parts:
        family, predictions, targets, weights = data
        evaluate = functools.partial(family, predictions, weights=weights)
        return over_pool(keys, lambda key: draw(key, predictions), evaluate, targets, batch_size)

    if split is None or sum(leaf.nbytes for leaf in jax.tree.leaves(data)) > _SMALL:
        return pool(data, keys)
    # Little data are cheaper to copy than to hand round: each device evaluates some redraws.
    number = -(-num_draws // split.number)
    places = jnp.minimum(jnp.arange(number * split.number), num_draws - 1)
    parts = split.run(pool, (WHOLE, split.rows), split.rows)(data, keys[places])

    def joined(part: jax.Array) -> jax.Array:
        of_devices = part.reshape(split.number, number + 1, -1)
        redraws = of_devices[:, 1:].reshape(-1, part.shape[1])[:num_draws]
        return jnp.concatenate([part[:1], redraws])

    return jax.tree.map(joined, parts)


def over_pool(
    keys: jax.Array,
    redraw: Callable[[jax.Array], Any],
    evaluate: Callable[[Any], Any],
    targets: PyTree,
    batch_size: int,
) -> PyTree:
    """Values of a function of batches of targets: of the observed ones first, then of redrawn ones.

    Args:
        keys: a random key for each redraw, [B].
        redraw: key → targets, [n, ...].
        evaluate: targets [b, n, ...] → a pytree of values, [b, ...] each.
        targets: the observed ones, [n, ...].
        batch_size: largest b.

    Returns:
        The pytree of values, [B + 1, ...] each.
    """

    def batch(items: tuple[jax.Array, jax.Array]) -> PyTree:
        keys, is_observed = items
        drawn = jax.vmap(redraw)(keys)

        def chosen(y: jax.Array, z: jax.Array) -> jax.Array:
            return jnp.where(is_observed.reshape(-1, *[1] * y.ndim), y, z)

        return evaluate(jax.tree.map(chosen, targets, drawn))

    # In one program all have the same rounding errors, which are all that is left of a kernel that
    # is much wider than the data: the observed value is then one of many, as it has to be.
    items = jnp.concatenate([keys[:1], keys]), jnp.arange(keys.size + 1) == 0
    return map_batches(items, batch, batch_size)
