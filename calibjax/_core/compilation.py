"""Options of the compiler: for programs that run long, and for those that run once."""

import functools
import os
from collections.abc import Callable
from importlib import metadata
from typing import Any

import jax

from calibjax._core import checks
from calibjax._core.devices import Result

# XLA uses half of the vector registers of processors with AVX-512, unless it is told otherwise.
_OPTIONS: dict[str, Any] = {"xla_cpu_prefer_vector_width": 512}


def jit_long(function: Callable[..., Result], **options: Any) -> Callable[..., Result]:
    """`jax.jit` for a function that runs long, with all vector registers where it is outermost.

    JAX takes options of the compiler for such programs only. Within those of users theirs hold
    (`XLA_FLAGS=--xla_cpu_prefer_vector_width=512`).
    """
    inner = jax.jit(function, **options)
    outermost = jax.jit(function, **options, compiler_options=_OPTIONS)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (outermost if checks.is_outermost(args, kwargs) else inner)(*args, **kwargs)

    return call


def compile_quickly() -> None:
    """Compiles the programs of this process in three quarters of the time, before JAX has started.

    It leaves out a part of XLA, by an option that not all versions have. XLA ends the process where
    it does not know one. What the user has set in the environment stays.
    """
    name, flags = "xla_cpu_use_fusion_emitters", os.environ.get("XLA_FLAGS", "")
    if metadata.version("jaxlib").startswith("0.10.") and name not in flags:
        os.environ["XLA_FLAGS"] = f"--{name}=false {flags}".strip()
