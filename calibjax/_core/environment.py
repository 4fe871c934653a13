"""Devices, batches, options of the compiler, optional packages, HTML."""

import functools
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from html import escape
from importlib import metadata
from types import ModuleType
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from calibjax._core import checks
from calibjax._core.pytree import PyTree, T

Result = TypeVar("Result")


def map_shared(function: Callable[[Any, T], Result], data: PyTree, items: T) -> Result:
    """Applies a function to a batch of items, divided equally among the devices.

    Args:
        function: (data, items), with items of leading axis m ≥ 1, to values with the same axis.
        data: further arguments, copied to all devices; the function must not close over arrays.
        items: a pytree with leading axis N.

    Returns:
        The values, with leading axis N, on all devices.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.size <= 1 or mesh.manual_axes:  # one device, or inside `shard_map`
        return function(data, items)
    number, axes = jax.tree.leaves(items)[0].shape[0], mesh.axis_names
    size = -(-number // mesh.size)

    def part(data: PyTree, items: T) -> Result:
        places = jnp.minimum(jax.lax.axis_index(axes) * size + jnp.arange(size), number - 1)
        values = function(data, jax.tree.map(lambda leaf: leaf[places], items))
        return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, axes, tiled=True), values)

    # Users' kernels need not declare which of their values vary between devices.
    whole = PartitionSpec()
    run = jax.shard_map(part, mesh=mesh, in_specs=whole, out_specs=whole, check_vma=False)
    values = run(*jax.tree.map(jnp.asarray, (data, items)))
    return jax.tree.map(lambda leaf: leaf[:number], values)


BATCH_BYTES = 2**24  # default memory of the draws in one batch: about the size of a cache


def default_batch_size(bytes_per_draw: int) -> int:
    """Default number of draws that are evaluated at once."""
    return max(1, BATCH_BYTES // bytes_per_draw)


def map_batches(items: T, evaluate: Callable[[T], Result], batch_size: int) -> Result:
    """Applies `evaluate` to all items of a pytree with leading axis, in batches.

    Args:
        items: pytree of arrays, [N, ...] each.
        evaluate: items of a batch, [b, ...] each, to a pytree of values, [b, ...] each.
        batch_size: largest b.

    Returns:
        The pytree of values, [N, ...] each.
    """
    number = jax.tree.leaves(items)[0].shape[0]
    num_batches = -(-number // batch_size)
    size = -(-number // num_batches)

    def split(x: jax.Array) -> jax.Array:
        padded = jnp.concatenate([x, x[: num_batches * size - number]])
        return padded.reshape(num_batches, size, *x.shape[1:])

    values = lax.map(evaluate, jax.tree.map(split, items))
    shape = (num_batches * size,)
    return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[2:])[:number], values)


# Optimisations that the command line disables for all other programs.
_ALL: dict[str, Any] = {}
if "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ:
    _ALL |= {"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False}
# Programs with these compile in a quarter of the time, and run up to five times as long.
_QUICK: dict[str, Any] = {"xla_backend_optimization_level": 0}
if metadata.version("jaxlib").startswith("0.10."):  # other versions may not know them
    _QUICK |= {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
_FEW = 2**16  # numbers, up to which compiling costs more than some fifty runs


def _jit_with(
    compiler_options: dict[str, Any], is_applied: Callable[[Any], bool], function: Any, options: Any
) -> Callable[..., Any]:
    """`jax.jit` with compiler options, which JAX applies to outermost programs only."""
    inner = jax.jit(function, **options)
    outermost = jax.jit(function, **options, compiler_options=compiler_options)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        is_chosen = checks.is_outermost(args, kwargs) and is_applied(args)
        return (outermost if is_chosen else inner)(*args, **kwargs)

    return call


def jit_long(function: Callable[..., Result], **options: Any) -> Callable[..., Result]:
    """`jax.jit` for a function that runs long: fully optimised, also on the command line."""
    return _jit_with(_ALL, lambda args: True, function, options)


def jit_quick(function: Callable[..., Result], **options: Any) -> Callable[..., Result]:
    """`jax.jit` for a function of samples, less optimised on CPUs if there are few."""
    return _jit_with(_QUICK, _are_few, function, options)


def _are_few(args: Any) -> bool:
    return sum(map(np.size, jax.tree.leaves(args))) <= _FEW and jax.default_backend() == "cpu"


def compile_quickly() -> None:
    """Reduces the compile time of this process by a quarter; call it before JAX starts.

    It disables a part of XLA by an option that not all versions have; XLA aborts on unknown
    options. Options that the user has set in the environment are kept.
    """
    name, flags = "xla_cpu_use_fusion_emitters", os.environ.get("XLA_FLAGS", "")
    if metadata.version("jaxlib").startswith("0.10.") and name not in flags:
        os.environ["XLA_FLAGS"] = f"--{name}=false {flags}".strip()


def imported(module: str, use: str, extra: str) -> ModuleType:
    """Imports a module of an optional dependency.

    Args:
        module: its name.
        use: beginning of the error message: which function needs which package.
        extra: the extra of calibjax that installs the package.

    Raises:
        ImportError: if it is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        advice = f"pip install 'calibjax[{extra}]'"
        raise ImportError(f"{use}, which is not installed: {advice}") from error


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """HTML lines of a table whose first column names the rows.

    Args:
        header: names of the columns; the list and single names may be empty.
        rows: the cells, one for each column.
    """
    yield "<table>"
    labels = [escape(label or "quantity", quote=True) for label in header]
    if labels:
        kinds = ['scope="col"' + (' class="number"' if i else "") for i in range(len(labels))]
        cells = "".join(f"<th {k}>{x}</th>" for k, x in zip(kinds, labels, strict=True))
        yield f"<thead><tr>{cells}</tr></thead>"
    yield "<tbody>"
    for name, *cells in rows:
        # The labels are for narrow screens, which show one cell below the other.
        marks = [f' class="number" data-label="{x}"' for x in labels[1:]] or [""] * len(cells)
        values = "".join(f"<td{m}>{escape(x)}</td>" for m, x in zip(marks, cells, strict=True))
        yield f'<tr><th scope="row">{escape(name)}</th>{values}</tr>'
    yield "</tbody></table>"


def code(text: str) -> str:
    """HTML of program text."""
    return f"<pre><code>{escape(text)}</code></pre>"


def paragraph(text: str, kind: str = "") -> str:
    """HTML paragraph, with an optional class."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"
