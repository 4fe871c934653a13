"""Work that is shared among the devices of `jax.set_mesh`, all of which have all of the data."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from calibjax._core.pytree import PyTree, T

Result = TypeVar("Result")


def map_shared(function: Callable[[Any, T], Result], data: PyTree, items: T) -> Result:
    """Values of a function of a batch of items, of which every device computes an equal part.

    Args:
        function: (data, items), with items of leading axis m ≥ 1, to values with the same axis.
        data: what else it needs, which is copied to all devices; its closure has no arrays.
        items: a pytree with leading axis N.

    Returns:
        The values, with leading axis N, on all devices.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.size <= 1 or mesh.manual_axes:  # one device, or a program that has one for itself
        return function(data, items)
    number, axes = jax.tree.leaves(items)[0].shape[0], mesh.axis_names
    size = -(-number // mesh.size)

    def part(data: PyTree, items: T) -> Result:
        places = jnp.minimum(jax.lax.axis_index(axes) * size + jnp.arange(size), number - 1)
        values = function(data, jax.tree.map(lambda leaf: leaf[places], items))
        return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, axes, tiled=True), values)

    # Kernels of users need not say which of their numbers differ between devices.
    whole = PartitionSpec()
    run = jax.shard_map(part, mesh=mesh, in_specs=whole, out_specs=whole, check_vma=False)
    values = run(*jax.tree.map(jnp.asarray, (data, items)))
    return jax.tree.map(lambda leaf: leaf[:number], values)
