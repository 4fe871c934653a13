"""p-values of the tests of W19 Fig. 2 on the authors' data sets, in the authors' conventions.

Tests without random numbers are those of `calibjax`. Consistency resampling and the bootstrap draw
from the generator that draws the data sets: a data set begins where the resamples of the one before
end. So the p-values are counted in loops of this module, which draw like the authors' ones
(CalibrationTests.jl 0.2.0); the tests compare them with the formulas.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numba
import numpy as np
from jax import lax
from jax.scipy.stats import norm
from scipy.spatial.distance import squareform

from calibjax.distributions import Categorical
from calibjax.estimators import UniformBins
from calibjax.hypothesis_tests import asymptotic_skce_test, distribution_free_skce_test
from experiments.harness import cells
from paper_repro.julia_random import State, rand, rand_range
from paper_repro.w19 import authors_data
from paper_repro.w19.authors_data import MODELS, NUM_SAMPLES
from paper_repro.w19.estimates_simulation import brackets, ece, median_of_matrix, total_variations
from paper_repro.w19.procedures import BINS_PER_CLASS, EXACT, prepare, w19_kernel

NAME = "w19_tests"
DRAWS = 1000
_NUM_PAIRS = NUM_SAMPLES // 2


def _bound(samples: Any, estimator: str) -> jax.Array:
    """The distribution-free bound; that of the square where an estimate is below zero."""
    block_size = 2 if estimator == "block" else None
    test = distribution_free_skce_test(*samples, estimator=estimator, block_size=block_size)
    square = jax.numpy.exp(-_NUM_PAIRS * test.estimate**2 / 8)
    return jax.numpy.where(test.estimate < 0, square, test.pvalue)


def _asymptotic_linear(samples: Any) -> jax.Array:
    """With the variance of the blocks divided by their number instead of one less."""
    test = asymptotic_skce_test(None, *samples, null="blocks", block_size=2)
    return norm.sf(test.statistic * (_NUM_PAIRS / (_NUM_PAIRS - 1)) ** 0.5)


# By the labels of Fig. 2; a function of (kernel, predictions, labels).
WITHOUT_DRAWS: dict[str, Callable[[Any], jax.Array]] = {
    "D_b": functools.partial(_bound, estimator="biased"),
    "D_uq": functools.partial(_bound, estimator="unbiased"),
    "D_ul": functools.partial(_bound, estimator="block"),
    "A_l": _asymptotic_linear,
}


def scale_of(probs: np.ndarray) -> float:
    """The length scale of the kernel: the median of the full matrix of distances."""
    return median_of_matrix(total_variations(probs), len(probs))


@jax.jit
def _without_draws(scales: jax.Array, probs: jax.Array, labels: jax.Array) -> dict[str, jax.Array]:
    def of_data_set(sample: Any) -> dict[str, jax.Array]:
        scale, probs, labels = sample
        samples = w19_kernel(scale), Categorical(probs), labels
        return {label: pvalue(samples) for label, pvalue in WITHOUT_DRAWS.items()}

    return lax.map(of_data_set, (scales, probs, labels))


def without_draws(model: str, state: State, data_sets: int) -> dict[str, np.ndarray]:
    """p-values of `WITHOUT_DRAWS` on the next data sets of a model."""
    probs, labels = authors_data.draw(state, MODELS[model], data_sets)
    pvalues = _without_draws(np.array([scale_of(x) for x in probs]), probs, labels)
    return {label: np.asarray(values) for label, values in pvalues.items()}


@jax.jit
def _exact(keys: jax.Array, *data: jax.Array) -> jax.Array:
    def of_data_set(sample: Any) -> jax.Array:
        key, scale, probs, labels = sample
        predictions = prepare(probs, labels)  # whose bins no kernel needs
        return EXACT.evaluate(key, w19_kernel(scale), predictions, labels, DRAWS)

    return lax.map(of_data_set, (keys, *data))


def exact(model: str, state: State, data_sets: int) -> dict[str, np.ndarray]:
    """p-values of our exact test on the next data sets of a model, with our own redraws."""
    key = cells.key_of(f"{NAME}/{model}/{state.words.sum()}/exact")
    probs, labels = authors_data.draw(state, MODELS[model], data_sets)
    scales = np.array([scale_of(x) for x in probs])
    data = scales.astype(EXACT.dtype), probs.astype(EXACT.dtype), labels
    return {EXACT.label: np.asarray(_exact(jax.random.split(key, data_sets), *data))}


@numba.njit(cache=True)
def consistency_eces(state, probs, bins, draws):
    """ECE of consistency resamples: predictions with replacement, then a label for each of them."""
    n, m = probs.shape
    rows, residuals = np.empty(n, np.int64), np.empty((bins.max() + 1, m))
    cumulated, eces = np.empty((n, m)), np.zeros(draws)
    for i in range(n):
        cumulated[i] = np.cumsum(probs[i])
    for draw in range(draws):
        for i in range(n):
            rows[i] = rand_range(state, n) - 1
        residuals[:] = 0
        for i in rows:
            cell, level, label = bins[i], rand(state), 0
            while cumulated[i, label] < level and label < m - 1:
                label += 1
            residuals[cell, label] -= 1
            for k in range(m):
                residuals[cell, k] += probs[i, k]
        for cell in range(len(residuals)):
            for k in range(m):
                eces[draw] += abs(residuals[cell, k]) / (2 * n)
    return eces


_bins = jax.jit(lambda probs: UniformBins(BINS_PER_CLASS)(Categorical(probs)))


def consistency_pvalue(state: State, probs: np.ndarray, labels: np.ndarray) -> float:
    """Share of consistency resamples whose ECE is at least that of the data set."""
    bins = np.asarray(_bins(probs))
    return np.mean(consistency_eces(state, probs, bins, DRAWS) >= ece(probs, labels, bins))


@numba.njit(cache=True)
def resample_counts(state, n, draws):
    """How often each of n samples is in each resample with replacement, [draws, n]."""
    counts = np.zeros((draws, n))
    for count in counts:
        for _ in range(n):
            count[rand_range(state, n) - 1] += 1
    return counts


def bootstrap_pvalue(state: State, probs: np.ndarray, labels: np.ndarray) -> float:
    """Share of resamples X* of X with T(X*) ≥ n / (n − 1) SKCE_uq − SKCE_b.

    T(X*) is the mean of h over the pairs of different places of the resample, minus twice that over
    the pairs of a sample of the resample and one of the data set.

    References: W19 Theorem 3, App. H.
    """
    n, distances = len(labels), total_variations(probs)
    inner = probs @ probs.T
    kernel = np.exp(-distances / median_of_matrix(distances, n))
    matrix = squareform(kernel * brackets(probs, labels, inner))
    diagonal = np.diag(inner) - 2 * probs[np.arange(n), labels] + 1
    rows = matrix.sum(1)
    statistic = (rows.sum() * (2 * n - 1) / (n - 1) ** 2 - diagonal.sum()) / n**2
    counts = resample_counts(state, n, DRAWS)
    # Different places may hold the same sample.
    forms = np.sum((counts @ matrix) * counts, 1) + np.square(counts) @ diagonal
    within = (forms - counts @ diagonal) / (n * (n - 1))
    across = counts @ (rows + diagonal) / n**2
    return np.mean(within >= statistic + 2 * across)


# By the labels of Fig. 2; a function of (generator, predictions, labels).
WITH_DRAWS = {"C": consistency_pvalue, "A_uq": bootstrap_pvalue}


def with_draws(label: str, model: str, state: State, data_sets: int) -> dict[str, np.ndarray]:
    """p-values of a test of `WITH_DRAWS` on the next data sets of a model, one after the other."""
    values = []
    for _ in range(data_sets):
        probs, labels = authors_data.draw(state, MODELS[model], 1)
        values.append(WITH_DRAWS[label](state, probs[0], labels[0]))
    return {label: np.array(values)}
