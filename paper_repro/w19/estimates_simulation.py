"""The eight calibration error estimates of W19 App. J.2.3 on the authors' data sets.

Bins are those of `calibjax`. All estimators of the SKCE are sums over the pairs of samples of

    k_ij ⟨e_{y_i} − p_i, e_{y_j} − p_j⟩ = k_ij (δ_{y_i y_j} − P_i[y_j] − P_j[y_i] + ⟨p_i, p_j⟩)

with k_ij = exp(−TV(p_i, p_j) / ν). There are 720 000 data sets, so that the sums are loops that
numba compiles; the tests compare every value with `calibjax.estimators`.
"""

import functools

import jax
import jax.numpy as jnp
import numba
import numpy as np
from jax import lax

from calibjax.distributions import Categorical
from calibjax.estimators import MedianVarianceBins, UniformBins
from paper_repro.julia_random import State
from paper_repro.w19 import authors_data
from paper_repro.w19.authors_data import Model
from paper_repro.w19.ground_truth import mean_total_variation
from paper_repro.w19.procedures import BINS_PER_CLASS

NAME = "w19_estimates"
# Of each part of a bin that is split, as in the code of the paper. Its App. J.1.1 says that a bin
# has to have at least 10 samples to be split.
MIN_BIN_SIZE = 5
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
BETAS = ("uniform", "first")
# (π, β) of each m and a; with π = 0 there is no β.
LABELLINGS = ((0.0, BETAS[0]), *((share, beta) for beta in BETAS for share in SHARES[1:]))
BANDWIDTHS = ("median", "mean")
SKCES = ("biased", "unbiased", "block")
# Columns of the estimates: first the two binnings, then SKCE by SKCE both bandwidths.
ECES = ("ece_uniform", "ece_median_variance")
ESTIMATORS = (*ECES, *(f"{skce}_{bandwidth}" for skce in SKCES for bandwidth in BANDWIDTHS))
BINNINGS = (UniformBins(BINS_PER_CLASS), MedianVarianceBins(MIN_BIN_SIZE))


@functools.partial(jax.jit, static_argnames="binning")
def bins_of(probs: jax.Array, binning: UniformBins | MedianVarianceBins) -> jax.Array:
    """Bins of predictions [data sets, n, m], [data sets, n]."""
    return lax.map(lambda probs: binning(Categorical(probs)), probs)


# Sums may be reordered, which is what makes them fast.
@numba.njit(cache=True, fastmath={"reassoc", "contract", "nsz"})
def total_variations(probs):
    """TV(p_i, p_j) of all pairs i < j of predictions [n, m], row by row."""
    n, m = probs.shape
    distances = np.empty(n * (n - 1) // 2)
    r = 0
    for i in range(n):
        for j in range(i + 1, n):
            total = 0.0
            for k in range(m):
                total += abs(probs[i, k] - probs[j, k])
            distances[r] = total / 2
            r += 1
    return distances


def median_of_matrix(distances: np.ndarray, n: int) -> float:
    """The median of the full matrix of distances, as in the code of the paper, n ≥ 3.

    Sorted, its n² entries are n zeros of the diagonal, then each pair twice.
    """
    places = (n**2 - 1) // 2 - n, n**2 // 2 - n
    low, high = places[0] // 2, places[1] // 2
    parts = np.partition(distances, (low, high))
    return (parts[low] + parts[high]) / 2


@numba.njit(cache=True)
def ece(probs, labels, bins):
    """Σ over bins and classes of |sum of predictions − number of labels| / (2n)."""
    residuals = np.zeros((bins.max() + 1, probs.shape[1]))
    for i in range(len(bins)):
        residuals[bins[i]] += probs[i]
        residuals[bins[i], labels[i]] -= 1
    return np.abs(residuals).sum() / (2 * len(bins))


@numba.njit(cache=True)
def brackets(probs, labels, inner):
    """⟨e_{y_i} − p_i, e_{y_j} − p_j⟩ of all pairs i < j, row by row, from ⟨p_i, p_j⟩, [n, n]."""
    n, r = len(labels), 0
    values = np.empty(n * (n - 1) // 2)
    for i in range(n):
        for j in range(i + 1, n):
            value = inner[i, j] - probs[i, labels[j]] - probs[j, labels[i]]
            values[r] = value + 1 if labels[i] == labels[j] else value
            r += 1
    return values


def skces(probs: np.ndarray, labels: np.ndarray, kernels: np.ndarray) -> np.ndarray:
    """SKCE_b, SKCE_uq and SKCE_ul with each of the kernels.

    Args:
        probs: predictions, [n, m].
        labels: labels, [n].
        kernels: k_ij of all pairs i < j, row by row, [number of kernels, n (n − 1) / 2].

    Returns:
        [3, number of kernels].
    """
    n, inner = len(labels), probs @ probs.T
    rows = np.arange(0, n - 1, 2)
    blocks = rows * (2 * n - rows - 1) // 2  # where the pairs (0, 1), (2, 3), … are
    values = kernels * brackets(probs, labels, inner)
    diagonal = np.sum(np.diag(inner) - 2 * probs[np.arange(n), labels] + 1)
    pairs = 2 * values.sum(-1)
    biased, unbiased = (pairs + diagonal) / n**2, pairs / (n * (n - 1))
    return np.stack([biased, unbiased, values[:, blocks].mean(-1)])


def estimate(probs: np.ndarray, labels: np.ndarray, bins: np.ndarray, mean: float) -> np.ndarray:
    """All estimates of one data set in the order of `ESTIMATORS`.

    Args:
        probs: predictions, [n, m].
        labels: labels, [n].
        bins: those of the two binnings, [2, n].
        mean: expectation of the total variation distance, the second bandwidth.
    """
    distances = total_variations(probs)
    scales = np.array([median_of_matrix(distances, len(labels)), mean])
    eces = [ece(probs, labels, one) for one in bins]
    return np.append(eces, skces(probs, labels, np.exp(-distances / scales[:, None])))


def simulate(model: Model, state: State, data_sets: int) -> dict[str, np.ndarray]:
    """`estimates` [data_sets, 8] of the next data sets of a model."""
    probs, labels = authors_data.draw(state, model, data_sets)
    mean = float(mean_total_variation(jnp.full(model.num_classes, model.concentration)))
    bins = np.stack([bins_of(probs, binning) for binning in BINNINGS], 1)
    samples = zip(probs, labels, bins, strict=True)
    return {"estimates": np.array([estimate(*sample, mean) for sample in samples])}
