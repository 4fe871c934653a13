"""Times of calls, and how busy the machine is."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax


def machine_load() -> float | None:
    """Mean number of running processes in the last minute, where the system tells."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


class Seconds(NamedTuple):
    """Time of a call: on the clock, and of all threads of the process together."""

    wall: float
    cpu: float


def interleaved_seconds(functions: dict[str, Callable[[], Any]]) -> dict[str, Seconds]:
    """Time of one call of each function; JAX results are waited for."""
    found = {}
    for name, function in functions.items():
        start, start_cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(function())
        found[name] = Seconds(time.perf_counter() - start, time.process_time() - start_cpu)
    return found


def smallest(repetitions: Sequence[dict[str, Seconds]]) -> dict[str, Seconds]:
    """Shortest times of each function."""
    return {
        name: Seconds(*map(min, zip(*(times[name] for times in repetitions), strict=True)))
        for name in repetitions[0]
    }


def minimum_seconds(
    functions: dict[str, Callable[[], Any]], repetitions: int
) -> dict[str, Seconds]:
    """Shortest times of each function over interleaved repetitions, after a call to warm up.

    Interleaving exposes all of them to the same disturbances, and the minimum is what is least
    disturbed. JAX results are waited for.
    """
    interleaved_seconds(functions)
    return smallest([interleaved_seconds(functions) for _ in range(repetitions)])
