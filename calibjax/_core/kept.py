"""Compiled programs that are kept for other processes, and found without tracing.

JAX keeps compiled programs as well, but has to trace and to lower a function before it knows which
program that needs, which takes most of the time of small ones. Here a program goes by the name of
the function, the structure, shapes and precisions of its arguments, and everything else that
decides what it computes: the source of this package, the versions of JAX, its settings. What cannot
be described in this way is left to JAX.

Only the command line keeps programs like this, in a folder of the user, whose files it trusts as it
trusts the package: they are pickles.
"""

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import os
import pickle
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache import compilation_cache

from calibjax._core.checks.arrays import has_64_bits
from calibjax._core.files import write
from calibjax._core.pytree import PyTree

_PREFIX = "calibjax-"


class Unknown(Exception):
    """A program that cannot be known by what it is called with."""


class Kept:
    """Programs in a folder.

    Attributes:
        found, made: number of programs that were read, and that were compiled.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._programs = folder, dict[str, tuple[Any, Any]]()
        self._process = _process()
        self.found = self.made = 0

    def value(
        self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...], options: Any
    ) -> PyTree:
        """Value of a function of arrays.

        Args:
            name: of the function, with all that is not an array.
            function: called with the arguments.
            arguments: pytrees of arrays and numbers.
            options: for the compiler, or None.

        Raises:
            Unknown: if the program cannot be known, before anything is done.
        """
        settings = has_64_bits(), jax.config.values["jax_disable_most_optimizations"]
        text = repr((self._process, settings, options, name, _like(arguments)))
        key = hashlib.sha256(text.encode()).hexdigest()
        leaves, structure = jax.tree.flatten(arguments)
        leaves = jax.device_put(leaves)  # by one call, without a program
        if key not in self._programs:
            self._programs[key] = self._read(key) or self._made(
                key, function, leaves, structure, options
            )
        program, result = self._programs[key]
        return jax.tree.unflatten(result, program(*leaves))

    def _read(self, key: str) -> tuple[Any, Any] | None:
        """A program and the structure of its value; None if there is none that can be read."""
        try:
            kept = pickle.loads((self._folder / f"{_PREFIX}{key}").read_bytes())
            if kept["key"] != key:
                raise ValueError("renamed")
            program = serialize_executable.deserialize_and_load(
                *kept["program"], execution_devices=jax.devices()[:1]
            )
        except FileNotFoundError:
            return None
        except Exception:  # whatever a wrong file raises: it is compiled again, and replaced
            return None
        self.found += 1
        return program, jax.tree.structure(kept["value"])

    def _made(
        self, key: str, function: Callable[..., Any], leaves: list, structure: Any, options: Any
    ) -> tuple[Any, Any]:
        """Compiles a program and keeps it."""
        value = None

        def flat(*leaves: jax.Array) -> list[Any]:
            nonlocal value
            found, value = jax.tree.flatten(function(*jax.tree.unflatten(structure, leaves)))
            return found

        given = {} if options is None else {"compiler_options": options}
        lowered = jax.jit(flat, keep_unused=True, **given).lower(*leaves)
        with _without_cache_of_jax():
            program = lowered.compile()
        self.made += 1
        assert value is not None, "traced"
        example = jax.tree.unflatten(value, range(value.num_leaves))
        serialized = serialize_executable.serialize(program)
        kept = {"key": key, "program": serialized, "value": example}
        try:
            write(self._folder / f"{_PREFIX}{key}", pickle.dumps(kept))
        except OSError as error:
            warnings.warn(f"a compiled program is not kept: {error}", RuntimeWarning, stacklevel=2)
        return program, value


@contextlib.contextmanager
def _without_cache_of_jax() -> Iterator[None]:
    """What XLA has read from JAX's own cache it cannot write again as a whole."""
    name = "jax_enable_compilation_cache"
    before = jax.config.values[name]
    try:
        jax.config.update(name, False)
        compilation_cache.reset_cache()  # which looks at the setting once
        yield
    finally:
        jax.config.update(name, before)
        compilation_cache.reset_cache()


def name_of(function: Callable[..., Any], static: Mapping[str, Any]) -> str:
    """The name of a function with the arguments that are not arrays.

    Raises:
        Unknown: if it, or one of them, is nothing that a name stands for.
    """
    return f"{_static(function)}{_static(dict(static))}"


def _process() -> str:
    """What decides which programs this process compiles, beside its settings."""
    source = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        source.update(path.read_bytes())
    settings = {k: v for k, v in os.environ.items() if k.startswith(("JAX_", "XLA_"))}
    for own in ("JAX_COMPILATION_CACHE_DIR",):  # which do not
        settings.pop(own, None)
    packages = "jax", "jaxlib", "numpy", "optax"  # which trace and compile
    versions = [metadata.version(name) for name in packages], sys.version
    devices = [(x.device_kind, x.client.platform_version) for x in jax.devices()]
    return repr((source.hexdigest(), versions, devices, sorted(settings.items())))


def _like(value: object) -> str:
    """What arguments are like: their structure, and shapes and precisions of the arrays."""
    if isinstance(value, Tracer):
        raise Unknown
    if value is None or isinstance(value, bool | int | float):
        return type(value).__name__
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        if isinstance(value, jax.Array) and value.devices() != {jax.devices()[0]}:
            raise Unknown
        return f"{value.dtype}{value.shape}{getattr(value, 'weak_type', False)}"
    if isinstance(value, jax.tree_util.Partial):
        return f"{_static(value.func)}{_like(value.args)}{_like(value.keywords)}"
    return _parts(value, _like)


def _static(value: object) -> str:
    """What is not an array, by its value; functions of this package and of JAX by their names."""
    if value is None or isinstance(value, bool | int | float | str | bytes | np.dtype | type):
        return repr(value)
    if isinstance(value, jax.Array | np.ndarray | np.generic) and not isinstance(value, Tracer):
        known = np.asarray(value)
        return f"{known.dtype}{known.shape}{hashlib.sha256(known.tobytes()).hexdigest()}"
    if isinstance(value, functools.partial):
        return f"{_static(value.func)}{_static(value.args)}{_static(value.keywords)}"
    if isinstance(value, types.MethodType):
        return f"{_static(value.__self__)}.{value.__name__}"
    if isinstance(value, jax.tree_util.PyTreeDef):
        return str(value)
    if callable(value) and not dataclasses.is_dataclass(value):
        return _function(value)
    return _parts(value, _static)


def _function(value: object) -> str:
    """The name of a function, by which it can be found."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if module is None or module.split(".")[0] not in ("calibjax", "jax"):
        raise Unknown
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not value:
        raise Unknown
    return f"{module}.{name}"


def _parts(value: object, described: Callable[[Any], str]) -> str:
    """A container or record by what is in it; fields that are not arrays by their values."""
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, tuple | list):
        return f"{name}{[described(x) for x in value]}"
    if isinstance(value, dict):
        return f"{name}{[(_static(key), described(x)) for key, x in value.items()]}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            x.name: (_static if x.metadata.get("static") else described)(getattr(value, x.name))
            for x in dataclasses.fields(value)
        }
        return f"{name}{fields}"
    raise Unknown


def bound(
    signature: inspect.Signature, static: frozenset[str], args: tuple, kwargs: dict
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of a call by name: those that are static, and those that are arrays."""
    found = signature.bind(*args, **kwargs)
    found.apply_defaults()
    given = found.arguments
    arrays = {name: value for name, value in given.items() if name not in static}
    return {name: given[name] for name in given if name in static}, arrays
