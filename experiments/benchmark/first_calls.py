"""What the first call of a function costs, and the second: the tables of what you wait for.

Run: python -m experiments.benchmark.first_calls        (docs/limits.md)
     python -m experiments.benchmark.first_calls all    (docs/first_calls.md)

Each call of the first table has a fresh process without a cache on disk, n = 500 and the defaults
of its function. The second table has all functions that the tests register, with the few samples
that they have there; before each call all programs are dropped. CPU seconds are those of all
threads, which other work on the machine hardly changes; wall seconds do.
"""

import json
import os
import subprocess
import sys
import time

import jax
import numpy as np

import calibjax
from calibjax import distributions, estimators, hypothesis_tests, kernels

N = 500
KEY = jax.random.key(0)
CALLS = {
    "estimators.skce": lambda kernel, p, y: estimators.skce(kernel, p, y),
    "exact_skce_test": lambda kernel, *data: hypothesis_tests.exact_skce_test(KEY, kernel, *data),
    "aggregated_skce_test": lambda _, *data: hypothesis_tests.aggregated_skce_test(KEY, *data),
    "evaluate": lambda _, *data: calibjax.evaluate(KEY, *data),
}
PREDICTIONS = {
    "three classes": lambda rng: distributions.Categorical(rng.dirichlet(np.ones(3), N)),
    "normals": lambda rng: distributions.Normal(rng.normal(size=N), rng.uniform(0.3, 1, N)),
}


def measured(call: str, family: str) -> list[tuple[float, float]]:
    """CPU and wall seconds of two calls in this process."""
    predictions = PREDICTIONS[family](np.random.default_rng(0))
    targets = distributions.sample_targets(KEY, predictions)
    kernel, seconds = kernels.default_kernel(predictions), []
    for _ in range(2):
        before = time.process_time(), time.perf_counter()
        jax.block_until_ready(CALLS[call](kernel, predictions, targets))
        seconds.append((time.process_time() - before[0], time.perf_counter() - before[1]))
    return seconds


def cell(call: str, family: str) -> str:
    """CPU seconds of both calls with wall seconds in parentheses, from a fresh process."""
    variables = {k: v for k, v in os.environ.items() if k[:4] not in ("JAX_", "XLA_")}
    variables |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    command = [sys.executable, "-m", "experiments.benchmark.first_calls", call, family]
    found = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    two_digits = lambda x: f"{x:.0f}" if x >= 10 else f"{x:.2g}"  # noqa: E731
    return ", ".join("{} ({})".format(*map(two_digits, x)) for x in json.loads(found.stdout))


def print_all() -> None:
    """Of the registered calls of each function, the one whose first call takes longest."""
    from tests import registry
    from tests.compiled import num_compiled
    from tests.registry.outcomes import evaluate

    slowest: dict[str, tuple[float, float, int]] = {}
    for call in registry.calls().values():
        values = call.values(np.float32)
        jax.clear_caches()
        begin = time.process_time()
        programs = num_compiled(lambda call=call, values=values: evaluate(call, values))
        middle = time.process_time()
        evaluate(call, values)
        found = middle - begin, time.process_time() - middle, programs
        name = call.name.split("[")[0]
        slowest[name] = max(slowest.get(name, found), found)
    print("| function | first call (s) | again (s) | programs |\n| --- | --- | --- | --- |")
    for name, (first, again, programs) in sorted(slowest.items()):
        print(f"| `{name}` | {first:.2f} | {again:.3f} | {programs} |")


def main() -> None:
    """Prints a table, or with a call and a family what this process measures."""
    if sys.argv[1:] == ["all"]:
        return print_all()
    if sys.argv[1:]:
        return print(json.dumps(measured(*sys.argv[1:])))
    print(f"| call, n = {N} |", *(f"{x}: first, second |" for x in PREDICTIONS))
    print("| --- |" + " --- |" * len(PREDICTIONS))
    for call in CALLS:
        print(f"| `{call}` |", *(f"{cell(call, x)} |" for x in PREDICTIONS), flush=True)


if __name__ == "__main__":
    main()
