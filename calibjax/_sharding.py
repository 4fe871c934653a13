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
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
from jax.core import Tracer
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from calibjax._pytree import PyTree

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


def is_spread(value: Any) -> bool:
    """Whether a concrete array is split over several devices."""
    is_array = isinstance(value, jax.Array) and not isinstance(value, Tracer)
    return is_array and len(value.sharding.device_set) > 1 and not value.is_fully_replicated


def follows_data(
    function: Callable[Parameters, Result], *, rows: int = 0, places: Any = None
) -> Callable[Parameters, Result]:
    """The function, run by the devices on which its arguments are.

    Args:
        function: a function of arrays, usually a compiled one.
        rows: argument whose leading axis decides how rows of the results are split, by place.
        places: for results with rows, the place of their axis, a pytree prefix of the results;
            None for a result that every device gets whole.

    Returns:
        A function with the same arguments. Without a mesh it calls `function`, and nothing else.
    """

    def spec(axis: int | None, split: Any) -> PartitionSpec:
        return WHOLE if axis is None else PartitionSpec(*[None] * axis, split)

    def specs(split: Any) -> Any:
        is_none = lambda axis: axis is None  # noqa: E731
        return jax.tree.map(lambda axis: spec(axis, split), places, is_leaf=is_none)

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        sharding = _sharding_of((args, kwargs))
        if sharding is None:
            return function(*args, **kwargs)
        mesh = sharding.mesh
        abstract = mesh if isinstance(mesh, AbstractMesh) else mesh.abstract_mesh
        split = _split_of(args[rows] if len(args) > rows else ())
        if abstract.explicit_axes:
            with jax.sharding.use_abstract_mesh(abstract):
                return _with_automatic_axes(function, abstract, specs(split), args, kwargs)
        with jax.sharding.use_abstract_mesh(abstract):
            results = function(*args, **kwargs)
        return jax.tree.map(functools.partial(_placed, mesh), specs(split), results)

    return call


def _sharding_of(tree: PyTree) -> NamedSharding | None:
    """How the arrays of a pytree are split, if one of them is and says so."""
    for leaf in jax.tree.leaves(tree):
        if not isinstance(leaf, jax.Array):
            continue
        found = jax.typeof(leaf).sharding
        if any(axis is not None for axis in found.spec):
            return found
        if is_spread(leaf) and isinstance(leaf.sharding, NamedSharding):
            return leaf.sharding
    return None


def _split_of(tree: PyTree) -> Any:
    """The axes over which the leading axis of the arrays is split."""
    for leaf in jax.tree.leaves(tree):
        sharding = _sharding_of(leaf)
        if sharding is not None and len(sharding.spec) and sharding.spec[0] is not None:
            return sharding.spec[0]
    return None


def _with_automatic_axes(
    function: Callable[..., Any], mesh: AbstractMesh, specs: Any, args: Any, kwargs: Any
) -> Any:
    """Results of a function whose arguments have explicit axes, which within it are automatic."""
    leaves, structure = jax.tree.flatten((args, kwargs))
    is_array = [hasattr(leaf, "dtype") for leaf in leaves]

    def of_arrays(*arrays: jax.Array) -> Any:
        remaining = iter(arrays)
        own = [next(remaining) if a else x for a, x in zip(is_array, leaves, strict=True)]
        args, kwargs = jax.tree.unflatten(structure, own)
        return function(*args, **kwargs)

    arrays = [leaf for a, leaf in zip(is_array, leaves, strict=True) if a]
    inner = jax.sharding.auto_axes(of_arrays, axes=mesh.explicit_axes, out_sharding=specs)
    return inner(*arrays)


def _placed(mesh: Any, spec: PartitionSpec, results: PyTree) -> PyTree:
    """Concrete results split as they should be, where the compiler chose otherwise."""
    wanted = NamedSharding(mesh, spec) if not isinstance(mesh, AbstractMesh) else None

    def placed(leaf: Any) -> Any:
        is_concrete = isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)
        if wanted is None or not is_concrete or leaf.sharding.is_equivalent_to(wanted, leaf.ndim):
            return leaf
        return jax.device_put(leaf, wanted)

    return jax.tree.map(placed, results)
