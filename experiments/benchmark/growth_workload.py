"""What is timed as the number of samples n, or the size m of a prediction, grows; in float32.

Run: python -m experiments.benchmark.growth_workload NAME SIZE

It prints the median seconds of up to five calls, those of the one before, which compiles, and the
growth of the peak memory in bytes.
"""

import functools
import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.calibration import calibration_curve

from calibjax import (
    distances,
    distributions,
    estimators,
    hypothesis_tests,
    kernels,
    risk,
    streaming,
)
from experiments.benchmark import local, workload
from experiments.benchmark.memory import peak, resident
from experiments.benchmark.reference import FAST, Reference

NUM_REDRAWS = 199
NUM_LANDMARKS = 64
NUM_LOCATIONS = 10
BATCH = 10_000  # of the stream
FIXED = 2048  # samples where their size grows
KEY = jax.random.key(1)
SMOOTH = kernels.SquaredExponential(1.0, distances.Wasserstein())
BINS = estimators.UniformBins(15)
QUADRATIC, LINEAR = 2, 1


class Workload(NamedTuple):
    """A function that is timed.

    Attributes:
        evaluate: function of the data.
        data: the data of one size.
        growth: power of the size with which its cost grows.
        over: what the size is, "n" or "m".
    """

    evaluate: Callable[..., Any]
    data: Callable[[int], tuple[Any, ...]]
    growth: int
    over: str = "n"


def normals(num_samples: int) -> tuple[Any, ...]:
    """Scalar normal predictions."""
    return workload.normal_samples(num_samples, jnp.float32)


def confidences(num_samples: int) -> tuple[Any, ...]:
    """Probabilities of an event, and whether it happened."""
    keys = jax.random.split(jax.random.key(3))
    probs = jax.random.uniform(keys[0], (num_samples,), jnp.float32)
    return distributions.Bernoulli(probs), jax.random.bernoulli(keys[1], probs).astype(jnp.int32)


def classes(num_classes: int) -> tuple[Any, ...]:
    """Predictions of m classes."""
    predictions, labels = workload.class_samples(FIXED, num_classes)
    return distributions.Categorical(predictions.probs.astype(jnp.float32)), labels


def vectors(dimension: int) -> tuple[Any, ...]:
    """Normal predictions of m independent components."""
    data = workload.diagonal_samples(FIXED, dimension)
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), data)


def ensembles(num_members: int) -> tuple[Any, ...]:
    """Predictions as m draws each."""
    draws = jax.random.normal(jax.random.key(4), (FIXED, num_members + 1), jnp.float32)
    return distributions.Samples(draws[:, 1:]), draws[:, 0]


def mixtures(num_components: int) -> tuple[Any, ...]:
    """Mixtures of m normal distributions."""
    loc = jax.random.normal(jax.random.key(5), (FIXED, num_components), jnp.float32)
    components = distributions.Normal(loc, jnp.full_like(loc, 0.5))
    weights = jnp.full_like(loc, 1 / num_components)
    return distributions.Mixture(weights, components), loc[:, 0]


def low_rank_kernel(predictions: distributions.Normal) -> kernels.TensorProduct:
    """A kernel with random landmarks."""
    landmarks = kernels.choose_landmarks(SMOOTH, predictions, NUM_LANDMARKS, key=KEY)
    return kernels.TensorProduct(
        kernels.LowRank(SMOOTH, landmarks), kernels.SquaredExponential(0.5)
    )


def _locations() -> tuple[distributions.Normal, jax.Array]:
    loc = jnp.linspace(0, 1, NUM_LOCATIONS)
    return distributions.Normal(loc, jnp.full(NUM_LOCATIONS, 0.2)), loc


def _streamed(predictions: distributions.Normal, targets: jax.Array) -> jax.Array:
    kernel = low_rank_kernel(predictions)
    test = streaming.ExactSKCETest(KEY, kernel, num_draws=NUM_REDRAWS)
    update = jax.jit(test.update)
    state = test.init()
    for start in range(0, targets.size, BATCH):
        batch = jax.tree.map(lambda x: x[start : start + BATCH], (predictions, targets))  # noqa: B023
        state = update(state, *batch)
    return test.result(state).pvalue


def _skce(predictions: Any, targets: jax.Array) -> jax.Array:
    distance = distances.MaximumMeanDiscrepancy(kernels.SquaredExponential(1.0))
    target_kernel = kernels.SquaredExponential(1.0)
    if isinstance(predictions, distributions.Categorical):
        distance, target_kernel = distances.TotalVariation(), kernels.White()
    elif isinstance(predictions, distributions.DiagNormal):
        distance = distances.Wasserstein()
    kernel = kernels.TensorProduct(kernels.Exponential(1.0, distance), target_kernel)
    return estimators.skce(kernel, predictions, targets)


def _block(predictions: distributions.Normal, targets: jax.Array) -> jax.Array:
    size = min(1024, targets.size)
    return estimators.skce_block(workload.KERNEL, predictions, targets, block_size=size)


def _exact(predictions: Any, targets: jax.Array, kernel: Any = None) -> jax.Array:
    kernel = workload.KERNEL if kernel is None else kernel
    return hypothesis_tests.exact_skce_test(
        KEY, kernel, predictions, targets, num_draws=NUM_REDRAWS
    ).pvalue


def _simulated(test: Callable[..., Any], predictions: Any, targets: jax.Array) -> jax.Array:
    """A test with a key, a kernel and a number of draws."""
    return test(KEY, workload.KERNEL, predictions, targets, num_draws=NUM_REDRAWS).pvalue


def _aggregated(predictions: Any, targets: jax.Array) -> jax.Array:
    return hypothesis_tests.aggregated_skce_test(
        KEY, predictions, targets, num_draws=NUM_REDRAWS
    ).pvalue


def _consistency(predictions: Any, targets: jax.Array) -> jax.Array:
    statistic = functools.partial(estimators.ece, binning=BINS)
    return hypothesis_tests.consistency_test(
        KEY, statistic, predictions, targets, num_draws=NUM_REDRAWS
    ).pvalue


def _mlce(num_samples: int) -> tuple[Any, ...]:
    return local.samples(num_samples, 50)


def _ridge(predictions: Any, targets: jax.Array) -> jax.Array:
    grid = risk.KernelRidge().grid(targets.size)
    return risk.squared_calibration_error(
        KEY, risk.KernelRidge(), grid, predictions, targets
    ).estimate


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


def _c_loop(predictions: distributions.Normal, targets: jax.Array) -> float:
    arrays = (np.asarray(x, float) for x in (predictions.loc, predictions.scale, targets))
    return _reference().skce(*arrays)


@functools.cache
def _reference() -> Reference:
    return Reference(*FAST)


def _curve_of_scikit_learn(predictions: distributions.Bernoulli, targets: jax.Array) -> Any:
    return calibration_curve(np.asarray(targets), np.asarray(predictions.probs), n_bins=15)


WORKLOADS: dict[str, Workload] = {
    "skce": Workload(workload.value, normals, QUADRATIC),
    "skce_c": Workload(_c_loop, normals, QUADRATIC),
    "skce_numpy": Workload(_dense, normals, QUADRATIC),
    "gradient_of_skce": Workload(workload.gradient, normals, QUADRATIC),
    "exact_skce_test": Workload(_exact, normals, QUADRATIC),
    "aggregated_skce_test": Workload(_aggregated, normals, QUADRATIC),
    "bootstrap_skce_test": Workload(
        functools.partial(_simulated, hypothesis_tests.bootstrap_skce_test), normals, QUADRATIC
    ),
    "spectrum_skce_test": Workload(
        functools.partial(_simulated, hypothesis_tests.spectrum_skce_test), normals, QUADRATIC
    ),
    "gamma_skce_test": Workload(
        lambda p, y: hypothesis_tests.gamma_skce_test(workload.KERNEL, p, y).pvalue,
        normals,
        QUADRATIC,
    ),
    "distribution_free_skce_test": Workload(
        lambda p, y: hypothesis_tests.distribution_free_skce_test(workload.KERNEL, p, y).pvalue,
        normals,
        QUADRATIC,
    ),
    "mlce": Workload(lambda *data: local.curve(data, data), _mlce, QUADRATIC),
    "mmce": Workload(
        lambda p, y: estimators.mmce(kernels.Exponential(0.2), p, y), confidences, QUADRATIC
    ),
    "kde_calibration_error": Workload(
        lambda p, y: estimators.kde_calibration_error(p, y, bandwidth=0.05, order=1.0),
        confidences,
        QUADRATIC,
    ),
    "squared_calibration_error": Workload(_ridge, confidences, LINEAR),
    "skce_block": Workload(_block, normals, LINEAR),
    "ucme": Workload(
        lambda p, y: estimators.ucme(workload.KERNEL, p, y, *_locations()), normals, LINEAR
    ),
    "cme_test": Workload(
        lambda p, y: hypothesis_tests.cme_test(workload.KERNEL, p, y, *_locations()).pvalue,
        normals,
        LINEAR,
    ),
    "ece": Workload(lambda p, y: estimators.ece(p, y, binning=BINS), confidences, LINEAR),
    "curve_scikit_learn": Workload(_curve_of_scikit_learn, confidences, LINEAR),
    "consistency_test_of_ece": Workload(_consistency, confidences, LINEAR),
    "skce_low_rank": Workload(
        lambda p, y: estimators.skce(low_rank_kernel(p), p, y), normals, LINEAR
    ),
    "exact_skce_test_low_rank": Workload(
        lambda p, y: _exact(p, y, low_rank_kernel(p)), normals, LINEAR
    ),
    "streaming_exact": Workload(_streamed, normals, LINEAR),
    "skce_of_classes": Workload(_skce, classes, LINEAR, "m"),
    "skce_of_vectors": Workload(_skce, vectors, LINEAR, "m"),
    "skce_of_ensembles": Workload(_skce, ensembles, QUADRATIC, "m"),
    "skce_of_mixtures": Workload(_skce, mixtures, QUADRATIC, "m"),
}


def main(name: str, size: int) -> None:
    """Calls once, and then up to five times more, within a minute."""
    found = WORKLOADS[name]
    data = jax.block_until_ready(found.data(size))
    before, seconds = resident(), []
    while len(seconds) < 6 and sum(seconds) < (60 if len(seconds) < 2 else 10):
        start = time.perf_counter()
        jax.block_until_ready(found.evaluate(*data))
        seconds.append(time.perf_counter() - start)
    later = float(np.median(seconds[1:])) if len(seconds) > 1 else math.nan
    print(json.dumps({"seconds": later, "first": seconds[0], "bytes": peak() - before}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
