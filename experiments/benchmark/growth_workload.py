"""What is timed as the number of samples grows: scalar normal predictions in float32.

Run: python -m experiments.benchmark.growth_workload NAME NUM_SAMPLES

It prints the seconds of a second call, of the first one, which compiles, and the growth of the peak
memory in bytes.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distances, distributions, estimators, hypothesis_tests, kernels, streaming
from experiments.benchmark import local, workload
from experiments.benchmark.memory import peak, resident
from experiments.benchmark.reference import FAST, Reference

NUM_REDRAWS = 199
NUM_LANDMARKS = 64
BATCH = 10_000  # of the stream
KEY = jax.random.key(1)
SMOOTH = kernels.SquaredExponential(1.0, distances.Wasserstein())
Data = tuple[distributions.Normal, jax.Array]


def low_rank_kernel(predictions: distributions.Normal) -> kernels.TensorProduct:
    """A kernel with random landmarks."""
    landmarks = kernels.choose_landmarks(SMOOTH, predictions, NUM_LANDMARKS, key=KEY)
    return kernels.TensorProduct(
        kernels.LowRank(SMOOTH, landmarks), kernels.SquaredExponential(0.5)
    )


def _streamed(predictions: distributions.Normal, targets: jax.Array) -> jax.Array:
    kernel = low_rank_kernel(predictions)
    test = streaming.ExactSKCETest(KEY, kernel, num_samples=NUM_REDRAWS)
    update = jax.jit(test.update)
    state = test.init()
    for start in range(0, targets.size, BATCH):
        batch = jax.tree.map(lambda x: x[start : start + BATCH], (predictions, targets))  # noqa: B023
        state = update(state, *batch)
    return test.result(state).pvalue


def _exact(predictions: distributions.Normal, targets: jax.Array, kernel: Any = None) -> jax.Array:
    kernel = workload.KERNEL if kernel is None else kernel
    test = hypothesis_tests.exact_skce_test(
        KEY, kernel, predictions, targets, num_samples=NUM_REDRAWS
    )
    return test.pvalue


def _bootstrap(predictions: distributions.Normal, targets: jax.Array) -> jax.Array:
    return hypothesis_tests.bootstrap_skce_test(
        KEY, workload.KERNEL, predictions, targets, num_samples=NUM_REDRAWS
    ).pvalue


def _aggregated(predictions: distributions.Normal, targets: jax.Array) -> jax.Array:
    return hypothesis_tests.aggregated_skce_test(
        KEY, predictions, targets, num_samples=NUM_REDRAWS
    ).pvalue


def _cme(predictions: distributions.Normal, targets: jax.Array) -> jax.Array:
    test_predictions = distributions.Normal(jnp.linspace(0, 1, 10), jnp.full(10, 0.2))
    return hypothesis_tests.cme_test(
        workload.KERNEL, predictions, targets, test_predictions, jnp.linspace(0, 1, 10)
    ).pvalue


def _mlce(predictions: distributions.Normal, targets: jax.Array) -> jax.Array:
    data = local.samples(targets.size, 50)
    return local.curve(data, data)


def _dense(predictions: distributions.Normal, targets: jax.Array) -> float:
    """What a user would write with NumPy: matrices of all pairs."""
    m, s, y = (np.asarray(x, float) for x in (predictions.loc, predictions.scale, targets))
    variance = 1 + s**2
    both = variance[:, None] + s**2
    distance = np.sqrt((m[:, None] - m) ** 2 + (s[:, None] - s) ** 2)
    single = np.exp(-((y - m[:, None]) ** 2) / 2 / variance[:, None]) / np.sqrt(variance)[:, None]
    double = np.exp(-((m[:, None] - m) ** 2) / 2 / both) / np.sqrt(both)
    h = np.exp(-distance) * (np.exp(-((y[:, None] - y) ** 2) / 2) - single - single.T + double)
    return (h.sum() - np.trace(h)) / len(y) / (len(y) - 1)


def _c_loop() -> Callable[..., float]:
    fast = Reference(*FAST)

    def evaluate(predictions: distributions.Normal, targets: jax.Array) -> float:
        arrays = (np.asarray(x, float) for x in (predictions.loc, predictions.scale, targets))
        return fast.skce(*arrays)

    return evaluate


QUADRATIC, LINEAR = "quadratic", "linear"
# How the cost grows, and how to make the function. Blocks have 1024 samples, `cme_test` ten
# locations, `mlce` 40 bandwidths and 50 features, kernels of low rank 64 landmarks.
WORKLOADS: dict[str, tuple[str, Callable[[], Callable[..., Any]]]] = {
    "skce": (QUADRATIC, lambda: workload.value),
    "skce_c": (QUADRATIC, _c_loop),
    "skce_numpy": (QUADRATIC, lambda: _dense),
    "gradient_of_skce": (QUADRATIC, lambda: workload.gradient),
    "exact_skce_test": (QUADRATIC, lambda: _exact),
    "aggregated_skce_test": (QUADRATIC, lambda: _aggregated),
    "bootstrap_skce_test": (QUADRATIC, lambda: _bootstrap),
    "mlce": (QUADRATIC, lambda: _mlce),
    "skce_block": (
        LINEAR,
        lambda: (
            lambda p, y: estimators.skce_block(workload.KERNEL, p, y, block_size=min(1024, y.size))
        ),
    ),
    "cme_test": (LINEAR, lambda: _cme),
    "skce_low_rank": (
        LINEAR,
        lambda: lambda p, y: estimators.skce(low_rank_kernel(p), p, y),
    ),
    "exact_skce_test_low_rank": (
        LINEAR,
        lambda: lambda p, y: _exact(p, y, low_rank_kernel(p)),
    ),
    "streaming_exact": (LINEAR, lambda: _streamed),
}


def main(name: str, num_samples: int) -> None:
    """Calls once, and again where that takes less than a minute."""
    function = WORKLOADS[name][1]()
    data = jax.block_until_ready(workload.normal_samples(num_samples, jnp.float32))
    before, seconds = resident(), []
    while len(seconds) < 2 and sum(seconds) < 60:
        start = time.perf_counter()
        jax.block_until_ready(function(*data))
        seconds.append(time.perf_counter() - start)
    again = seconds[1] if len(seconds) == 2 else math.nan
    print(json.dumps({"seconds": again, "first": seconds[0], "bytes": peak() - before}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
