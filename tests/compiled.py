"""Functions of one pair of samples, each compiled as one program and not operation by operation."""

import jax

from calibjax.kernels import expectations
from calibjax.kernels.expectations import double_expectation, single_expectation

centered_kernel = jax.jit(expectations.centered_kernel)
single_expectation = jax.jit(single_expectation)
double_expectation = jax.jit(double_expectation)


def num_compiled(function):
    """How many programs are compiled while a function runs."""
    programs = []
    listener = lambda name, *_, **__: programs.append(name)  # noqa: E731
    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        function()
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
    return programs.count("/jax/core/compile/backend_compile_duration")
