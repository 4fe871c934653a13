"""Compiled programs: for the whole width of the processor, or kept when functions are redefined."""

import contextlib
import contextvars
import functools
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.extend.backend import backends

from calibjax._core import checks
from calibjax._core.pytree import PyTree
from calibjax._core.sharding import Result

_MAX_PROGRAMS = 32  # compiled ones that are kept
_PROGRAMS: dict[Any, Any] = {}
_LOCK = threading.Lock()

# Programs are compiled in three quarters of the time without this part of XLA. It ends the process
# where it does not know an option, and nobody knows what later versions have.
_VERSION = tuple(map(int, metadata.version("jaxlib").split(".")[:2]))
_QUICK = {"xla_cpu_use_fusion_emitters": False} if _VERSION == (0, 10) else {}
# What hardly runs at all, such as sums over the draws of a test, is compiled in a sixth of it.
_PLAIN = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
# What runs for long is optimised also where JAX is told to leave out most optimisations.
_WELL = {"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False}
Effort = Literal["full", "well", "less", "least"]
_EFFORTS: dict[Effort, dict[str, Any]] = {
    "full": {},
    "well": _QUICK | _WELL,
    "less": _QUICK,
    "least": _QUICK | _PLAIN,
}
# XLA uses half of the vector registers of processors with AVX-512, unless it is told otherwise.
_WIDE = {"xla_cpu_prefer_vector_width": 512}


def jit(
    function: Callable[..., Result],
    *,
    effort: Effort = "full",
    runs_long: Callable[..., bool] | None = None,
    **options: Any,
) -> Callable[..., Result]:
    """`jax.jit`, with options for the compiler where nothing is traced.

    What takes longer to compile than to run is compiled with `less` effort, what works on a few
    thousand numbers, or passes over the data once in a test that passes over them hundreds of
    times, with the `least`, and what runs for long `well`, whatever holds elsewhere: calls whose
    arguments `runs_long` says so of, too.
    """
    compiled = jax.jit(function, **options)

    def outermost(effort: Effort) -> tuple[dict[str, Any] | None, Callable[..., Result]]:
        settings = _EFFORTS[effort] or None
        if settings is None:
            return None, compiled
        return settings, jax.jit(function, **options, compiler_options=settings)

    usual, long = outermost(effort), outermost("well")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        settings, program = long if runs_long is not None and runs_long(*args, **kwargs) else usual
        chosen = program if settings and checks.is_outermost(args, kwargs) else compiled
        return chosen(*args, **kwargs)

    call.compiled = compiled  # pyright: ignore[reportAttributeAccessIssue]
    return call


def all_quickly() -> None:
    """Compiles all programs of this process quickly, before JAX has started.

    What the user has set in the environment stays.
    """
    for name, value in _QUICK.items():
        flags = os.environ.get("XLA_FLAGS", "")
        if name not in flags:
            os.environ["XLA_FLAGS"] = f"--{name}={str(value).lower()} {flags}".strip()


def wide_jit(function: Callable[..., Result], **options: Any) -> Callable[..., Result]:
    """`jax.jit`, with vectors as wide as the processor has them where nothing is traced.

    JAX takes options for the compiler only for programs that are not part of others: within those
    of users, their options hold (`XLA_FLAGS=--xla_cpu_prefer_vector_width=512`).
    """
    plain = jax.jit(function, **options)
    wide = jax.jit(function, **options, compiler_options=_WIDE)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (wide if checks.is_outermost(args, kwargs) else plain)(*args, **kwargs)

    return call


_ONE_PLATFORM = contextvars.ContextVar("only for the platform of this process", default=False)


@contextlib.contextmanager
def for_one_platform() -> Iterator[None]:
    """Programs that are traced within are for the platform of this process, if it has but one.

    They are right on all others, too, but not as fast: for code that computes at once what it
    traces, which saves a part of the tracing.
    """
    token = _ONE_PLATFORM.set(len(backends()) == 1)
    try:
        yield
    finally:
        _ONE_PLATFORM.reset(token)


def platform_dependent(*operands: Any, cpu: Callable[..., Any], default: Callable[..., Any]) -> Any:
    """One of two functions with the same values, whichever is faster where it is computed."""
    if _ONE_PLATFORM.get():
        return (cpu if "cpu" in backends() else default)(*operands)
    return jax.lax.platform_dependent(*operands, cpu=cpu, default=default)


def outside_of_traces() -> contextlib.AbstractContextManager[Any]:
    """A context in which what is known is computed while a program is being traced.

    It is `jax.ensure_compile_time_eval()` only where something is traced: in it, all constants of
    programs, too, are computed by programs of their own.
    """
    return contextlib.nullcontext() if checks.is_outermost() else jax.ensure_compile_time_eval()


def compiled_once(
    function: Callable[..., Result], first: PyTree, *others: Any, effort: Effort = "full"
) -> Result:
    """Value of a function of arrays, which is compiled once for all calls with an equal program.

    Functions are traced in every call, which takes about a tenth of the time of compiling, and
    their programs are compared, with all the constants in them. So a function that is defined again
    is not compiled again where it is the same, and is where what it reads from outside has changed.
    Calls with traced arguments, or of a function that has such in it, are part of the outer
    program. Functions that have to know the arguments behind the first find them as constants. The
    `effort` is that of `jit`.
    """
    if not checks.is_concrete(first, others):
        return function(first, *others)
    settings = _EFFORTS[effort] or None
    # Python's numbers stay weakly typed; compiled programs are called with arrays.
    first, others = jax.tree.map(jnp.asarray, (first, others))
    arguments: tuple = (first, *others)
    try:
        traced = jax.jit(function).trace(*arguments)
    except Exception:
        traced = None  # the error, if it is another one, comes again
    if traced is None:
        arguments = (first,)
        traced = jax.jit(lambda first: function(first, *others)).trace(first)
    num_arrays = len(jax.tree.leaves(arguments))
    if len(traced.jaxpr.in_avals) > num_arrays or not checks.is_concrete(traced.jaxpr.consts):
        return function(first, *others)  # it reads traced values from outside
    return _compiled(traced, arguments, settings)(*arguments)


def _compiled(
    traced: Any, arguments: tuple[Any, ...], settings: dict[str, Any] | None
) -> Callable[..., Any]:
    """The compiled program of a traced function, that of an earlier one if they are equal."""
    lowered = traced.lower()
    text = lowered.as_text()
    # What the text does not say: the functions that are called back, and constants that JAX, if
    # asked to, hands over as arguments. JAX adds its options to the class of `config` when it is
    # imported, which no type checker sees.
    if "callback" in text or jax.config.jax_use_simplified_jaxpr_constants:  # pyright: ignore
        return lowered.compile(settings)
    types = tuple(traced.jaxpr.in_avals), tuple(traced.jaxpr.out_avals)
    structures = jax.tree.structure((arguments, traced.out_info))
    devices = tuple(leaf.sharding for leaf in jax.tree.leaves(arguments))
    program = hashlib.sha256(text.encode()).digest(), types, structures, devices, str(settings)
    with _LOCK:
        compiled = _PROGRAMS.pop(program, None)  # to be the last one
    compiled = lowered.compile(settings) if compiled is None else compiled
    with _LOCK:
        _PROGRAMS[program] = compiled
        while len(_PROGRAMS) > _MAX_PROGRAMS:
            _PROGRAMS.pop(next(iter(_PROGRAMS)))
    return compiled
