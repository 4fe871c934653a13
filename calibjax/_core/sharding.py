"""Computation follows data: arrays on the devices of a mesh are reduced where they are.

Whoever places arrays on a `jax.sharding.Mesh`, their rows split over its devices, gets sums over
pairs from all of these devices, and nobody has to say so a second time. A function that
`follows_data` looks at its arguments. Their mesh becomes the mesh of the context while the function
is traced, with automatic axes; `devices` tells the code within about it, which splits the work.

- Concrete arrays know their mesh, whatever the type of its axes.
- Traced arrays know it if the axes are explicit (`jax.make_mesh` makes these).
- If the axes are automatic, traced arrays do not know it. The mesh is that of `jax.set_mesh`, and
  without that there is none: the program is right, and XLA alone decides what runs where.
"""

import functools
import math
import types
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import jax
from jax.core import Tracer
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec, SingleDeviceSharding

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
WHOLE = PartitionSpec()  # how arrays are split that every device has


class Devices(NamedTuple):
    """The devices over which rows are split.

    Attributes:
        mesh: their mesh.
        axes: all of its axes that are left to the compiler; rows are split over them together.
    """

    mesh: AbstractMesh
    axes: tuple[str, ...]

    @property
    def number(self) -> int:
        """D."""
        return math.prod(self.mesh.shape[axis] for axis in self.axes)

    @property
    def rows(self) -> PartitionSpec:
        """How arrays with leading axis n are split."""
        return PartitionSpec(self.axes)

    def run(self, function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable:
        """The function as each device runs it on its part of the arguments."""
        # Pair functions, also those of users, need not say which of their numbers differ between
        # devices: nothing is checked, and what is not split has to be the same everywhere.
        return jax.shard_map(
            function,
            mesh=self.mesh,
            in_specs=in_specs,
            out_specs=out_specs,
            axis_names=set(self.axes),
            check_vma=False,
        )


def devices() -> Devices | None:
    """The devices that the function which is being traced has for itself; None for one device.

    A function that runs on each device of its own (within `shard_map`) has one.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.manual_axes:
        return None
    found = Devices(mesh, tuple(mesh.auto_axes))
    return found if found.number > 1 else None


def split_along(axis: int, value: jax.Array) -> jax.Array:
    """An array that is being computed, split over the devices along an axis."""
    found = devices()
    if found is None:
        return value
    return jax.lax.with_sharding_constraint(value, PartitionSpec(*[None] * axis, found.axes))


def is_spread(value: Any) -> bool:
    """Whether a concrete array is split over several devices."""
    is_array = isinstance(value, jax.Array) and not isinstance(value, Tracer)
    return is_array and len(value.sharding.device_set) > 1 and not value.is_fully_replicated


class FollowsData(Generic[Parameters, Result]):
    """A function that is run by the devices on which its arguments are.

    Without a mesh it calls the function, and nothing else.
    """

    def __init__(self, function: Callable[Parameters, Result], rows_at: int | None) -> None:
        functools.update_wrapper(self, function)
        self._function, self._rows_at = function, rows_at

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        sharding = _sharding_of((args, kwargs))
        if sharding is None:
            return self._function(*args, **kwargs)
        mesh = sharding.mesh
        abstract = mesh if isinstance(mesh, AbstractMesh) else mesh.abstract_mesh
        run = self._automatic if abstract.explicit_axes else self._function
        with jax.sharding.use_abstract_mesh(abstract):
            results = run(*args, **kwargs)
            return self._placed(results, mesh, _rows_of((args, kwargs)))

    def __reduce__(self) -> str:
        """Pickled by its name, like the function."""
        return self._function.__qualname__

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """The function as a method."""
        return self if instance is None else types.MethodType(self, instance)

    def _automatic(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        """Results for arguments with explicit axes, which are automatic within the function."""
        mesh = jax.sharding.get_abstract_mesh()
        types = dict.fromkeys(mesh.explicit_axes, AxisType.Auto)
        with jax.sharding.use_abstract_mesh(mesh.update_axis_types(types)):
            args, kwargs = jax.tree.map(_without_types, (args, kwargs))
            return self._function(*args, **kwargs)

    def _placed(self, results: Result, mesh: Any, rows: tuple[int, Any]) -> Result:
        """The results, split like the rows where they have rows, and everywhere otherwise."""

        def placed(leaf: object) -> Any:
            if not isinstance(leaf, jax.Array):
                return leaf
            axes: list[Any] = [None] * leaf.ndim
            if self._rows_at is not None and leaf.shape[self._rows_at] == rows[0]:
                axes[self._rows_at] = rows[1]
            spec = PartitionSpec(*axes)
            is_explicit = jax.sharding.get_abstract_mesh().explicit_axes
            if isinstance(leaf, Tracer):
                return jax.sharding.reshard(leaf, spec) if is_explicit else leaf
            if isinstance(mesh, AbstractMesh) or not (is_explicit or is_spread(leaf)):
                return leaf
            return jax.device_put(leaf, NamedSharding(mesh, spec))

        return jax.tree.map(placed, results)


def follows_data(
    function: Callable[Parameters, Result], *, rows_at: int | None = None
) -> Callable[Parameters, Result]:
    """The function, run by the devices on which its arguments are.

    Args:
        function: a function of arrays.
        rows_at: the axis of the results that is split over the devices where it is as long as the
            data. Without it every device gets the results as a whole.
    """
    return FollowsData(function, rows_at)


def _without_types(leaf: object) -> Any:
    """An argument whose type says nothing of how it is split, like all within a function."""
    if not isinstance(leaf, jax.Array):
        return leaf
    has_mesh = jax.typeof(leaf).sharding.mesh.explicit_axes
    # Under differentiation, arrays without a mesh of their own are given that of the others.
    return jax.sharding.reshard(leaf, WHOLE) if has_mesh or isinstance(leaf, Tracer) else leaf


def _is_on_one(leaf: jax.Array) -> bool:
    """Whether a concrete array is on one device, and in no mesh."""
    return not isinstance(leaf, Tracer) and isinstance(leaf.sharding, SingleDeviceSharding)


def _sharding_of(tree: object) -> NamedSharding | None:
    """How the first array that is split, and says so, is split."""
    return next((found for _, found in _split_arrays(tree)), None)


def _rows_of(tree: object) -> tuple[int, Any]:
    """Number of rows that are split, and the axes over which they are."""
    found = (
        (leaf.shape[0], sharding.spec[0])
        for leaf, sharding in _split_arrays(tree)
        if len(sharding.spec) and sharding.spec[0] is not None
    )
    return next(found, (-1, None))


def _split_arrays(tree: object) -> Iterator[tuple[jax.Array, NamedSharding]]:
    try:
        leaves = jax.tree.leaves(tree)
    except (TypeError, ValueError):
        return  # no pytree, such as a dictionary with keys of several types: the function says so
    for leaf in leaves:
        if not isinstance(leaf, jax.Array) or _is_on_one(leaf):
            continue
        found = jax.typeof(leaf).sharding
        if any(axis is not None for axis in found.spec):
            yield leaf, found
        elif is_spread(leaf) and isinstance(leaf.sharding, NamedSharding):
            yield leaf, leaf.sharding
