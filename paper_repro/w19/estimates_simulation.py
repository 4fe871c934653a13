"""Estimates of calibration errors on many data sets of the generative models of W19 App. J.2.

Distances, kernels and bins depend on the predictions only. So the predictions are drawn once for
all shares π and label distributions β, and nine vectors of labels are drawn for each data set of
predictions, independently given the predictions; π = 0 serves both β. In each cell the data sets
are independent, as if drawn for this cell alone; estimates of different cells are uncorrelated
where their means given the predictions do not vary, and comparisons between cells are sharper.

All estimators of a data set are sums over n × n matrices. With the probability P_i[y_j] of the
label of another sample, ⟨e_{y_i} − p_i, e_{y_j} − p_j⟩ is

    δ_{y_i y_j} − P_i[y_j] − P_j[y_i] + ⟨p_i, p_j⟩,

and the same two label matrices δ and P_i[y_j], summed over the samples that share a bin with i, are
the number of labels y_i in the bin and their expected number, which is all that the ECE needs. Each
vector of labels thus costs O(n²), whatever the number of classes. The tests compare every value
with `calibjax.estimators`.
"""

import base64
import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax import distances, estimators, kernels
from calibjax.distributions import Categorical
from experiments.harness import cells
from paper_repro.w19.ground_truth import mean_total_variation
from paper_repro.w19.simulation import BINS_PER_CLASS

NAME = "w19_estimates"
# Of each part of a bin that is split, as in the code of the paper. Its App. J.1.1 says that a bin
# has to have at least 10 samples to be split.
MIN_BIN_SIZE = 5
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
BETAS = ("uniform", "first")
# (π, β) of each vector of labels; with π = 0 there is no β.
LABELLINGS = ((0.0, None), *((share, beta) for beta in BETAS for share in SHARES[1:]))
BANDWIDTHS = ("median", "mean")
SKCES = ("biased", "unbiased", "block")
# Columns of the estimates: first the two binnings, then SKCE by SKCE both bandwidths.
ECES = ("ece_uniform", "ece_median_variance")
ESTIMATORS = (*ECES, *(f"{skce}_{bandwidth}" for skce in SKCES for bandwidth in BANDWIDTHS))
_ROWS_AT_ONCE = 50


def labelling(share: float, beta: str) -> int:
    """Position of (π, β) in `LABELLINGS`."""
    return LABELLINGS.index((share, beta if share else None))


def label_distribution(beta: str | None, num_classes: int) -> np.ndarray:
    """β as a vector, [m]; uniform for None."""
    return np.eye(1, num_classes)[0] if beta == "first" else np.full(num_classes, 1 / num_classes)


class SharedParts(NamedTuple):
    """What all vectors of labels of one data set of predictions share.

    Attributes:
        probs: predictions, [n, m].
        inner: ⟨p_i, p_j⟩, [n, n].
        kernel: exp(−TV(p_i, p_j) / ν) for the two bandwidths ν, [2, n, n].
        same_bin: one where i and j share a bin, of the two binnings, [2, n, n].
    """

    probs: jax.Array
    inner: jax.Array
    kernel: jax.Array
    same_bin: jax.Array


def distance_matrix(predictions: Categorical) -> jax.Array:
    """Total variation distances, [n, n]; each is computed about once, in blocks of rows."""
    n = len(predictions.probs)
    matrix = jnp.zeros((n, n), predictions.probs.dtype)
    for start in range(0, n, _ROWS_AT_ONCE):
        rows = Categorical(predictions.probs[start : start + _ROWS_AT_ONCE])
        columns = Categorical(predictions.probs[start:])
        block = kernels.gram_matrix(distances.TotalVariation(), rows, columns)
        matrix = matrix.at[start : start + _ROWS_AT_ONCE, start:].set(block)
        matrix = matrix.at[start:, start : start + _ROWS_AT_ONCE].set(block.T)
    return matrix


def _entry(matrix: jax.Array, i: jax.Array, j: jax.Array) -> jax.Array:
    return matrix[i, j]


def median_of(matrix: jax.Array) -> jax.Array:
    """The median of known distances, [n, n], over the full matrix, as in the code of the paper."""
    entry = jax.tree_util.Partial(_entry, matrix)
    return kernels.median_heuristic(entry, jnp.arange(len(matrix)), include_diagonal=True)


def shared_parts(probs: jax.Array, mean_distance: jax.Array) -> SharedParts:
    """Matrices of one data set.

    Args:
        probs: predictions, [n, m].
        mean_distance: expectation of their total variation distance, the second bandwidth.
    """
    predictions = Categorical(probs)
    matrix = distance_matrix(predictions)
    scales = jnp.stack([median_of(matrix), mean_distance])
    binnings = (estimators.UniformBins(BINS_PER_CLASS), estimators.MedianVarianceBins(MIN_BIN_SIZE))
    bins = jnp.stack([binning(predictions) for binning in binnings])
    return SharedParts(
        probs,
        probs @ probs.T,
        jnp.exp(-matrix / scales[:, None, None]),
        (bins[:, :, None] == bins[:, None, :]).astype(probs.dtype),
    )


def _skces(kernel: jax.Array, bracket: jax.Array) -> jax.Array:
    """SKCE_b, SKCE_uq and SKCE_ul from k_ij [2, n, n] and its factor [n, n] or [2, n, n], [6]."""
    values = kernel * bracket
    n = values.shape[-1]
    total = jnp.sum(values, (1, 2))
    diagonal = jnp.sum(jnp.diagonal(values, axis1=1, axis2=2), -1)
    first = jnp.arange(0, n - 1, 2)
    pairs = jnp.mean(values[:, first, first + 1], -1)
    return jnp.concatenate([total / n**2, (total - diagonal) / (n * (n - 1)), pairs])


def estimate(shared: SharedParts, labels: jax.Array) -> jax.Array:
    """All estimates for labels [n], in the order of `ESTIMATORS`."""
    n = labels.size
    of_labels = shared.probs.T[labels]  # P_j[y_i]
    equal = (labels[:, None] == labels).astype(shared.probs.dtype)
    skces = _skces(shared.kernel, equal - of_labels - of_labels.T + shared.inner)
    # Σ |S − C| over classes and bins, with sums S of predictions and counts C of labels: where C is
    # zero it is S, and the S of all classes and bins add up to n.
    counts = jnp.sum(shared.same_bin * equal, -1)
    sums = jnp.sum(shared.same_bin * of_labels, -1)
    total = n + jnp.sum((jnp.abs(sums - counts) - sums) / counts, -1)
    return jnp.concatenate([total / (2 * n), skces])


def expected_skces(shared: SharedParts, share: jax.Array, beta: jax.Array) -> jax.Array:
    """Expectations of the six SKCE estimates given the predictions.

    Labels come from q_i = p_i + π (β − p_i), so that the factor of k_ij has the expectation
    π² ⟨β − p_i, β − p_j⟩ for i ≠ j, and 1 − 2 ⟨q_i, p_i⟩ + ‖p_i‖² for i = j. The bandwidths may
    depend on the predictions.
    """
    along = shared.probs @ beta
    bracket = share**2 * (jnp.sum(beta**2) - along[:, None] - along + shared.inner)
    norms = jnp.diagonal(shared.inner)
    diagonal = 1 - 2 * (norms + share * (along - norms)) + norms
    return _skces(shared.kernel, jnp.where(jnp.eye(len(norms), dtype=bool), diagonal, bracket))


def draw_labels(
    key: jax.Array, predictions: Categorical, share: jax.Array, beta: jax.Array
) -> jax.Array:
    """Labels [n] of the generative model with π = `share` and β = `beta`, [m]."""
    n = len(predictions.probs)
    label_key, choice_key, other_key = jax.random.split(key, 3)
    others = jax.vmap(Categorical(beta).sample)(jax.random.split(other_key, n))
    is_other = jax.random.uniform(choice_key, (n,)) < share
    return jnp.where(is_other, others, predictions.sample(label_key))


def _estimate_all(key: jax.Array, gammas: jax.Array, mean_distance: jax.Array) -> Any:
    """Estimates [9, 8] and expected SKCEs [9, 6] of one data set."""
    predictions = Categorical(gammas / jnp.sum(gammas, -1, keepdims=True))
    shared = shared_parts(predictions.probs, mean_distance)
    keys = jax.random.split(key, len(LABELLINGS))
    shares = jnp.array([share for share, _ in LABELLINGS])
    betas = jnp.array([label_distribution(beta, gammas.shape[1]) for _, beta in LABELLINGS])
    labels = jax.vmap(draw_labels, (0, None, 0, 0))(keys, predictions, shares, betas)
    estimates = lax.map(functools.partial(estimate, shared), labels)
    return estimates, lax.map(lambda args: expected_skces(shared, *args), (shares, betas))


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Data sets that are computed and stored together.

    Attributes:
        num_classes: m.
        concentration: a of the predictions Dir(a, …, a).
        index: number of the chunk.
        data_sets: number of data sets of predictions in it.
        num_samples: n of each data set.
    """

    num_classes: int
    concentration: float
    index: int
    data_sets: int
    num_samples: int

    @property
    def name(self) -> str:
        """Name of the chunk, which determines its data sets."""
        return f"m{self.num_classes}_a{self.concentration}/{self.index:03d}"


def draw_gammas(key: jax.Array, chunk: Chunk) -> np.ndarray:
    """Gamma variables that normalised are Dir(a, …, a), [data_sets, n, m].

    NumPy draws them exactly and some 20 times as fast as `jax.random.loggamma` on a CPU. For
    a = 0.1 they are above 1e-160 unless exactly zero, which has probability 2⁻⁵³ for each; so rows
    can be divided by their sums, and every prediction sums to one.
    """
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    shape = chunk.data_sets, chunk.num_samples, chunk.num_classes
    return generator.standard_gamma(chunk.concentration, shape)


@functools.cache
def compiled(data_sets: int, num_samples: int, num_classes: int) -> Callable:
    """Compiled function of keys [d], gammas [d, n, m] and a bandwidth, for all threads."""

    def one(mean_distance: jax.Array, args: Any) -> Any:
        return _estimate_all(*args, mean_distance)

    def batch(keys: jax.Array, gammas: jax.Array, mean_distance: jax.Array) -> Any:
        return lax.map(functools.partial(one, mean_distance), (keys, gammas))

    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), data_sets))
    gammas = jax.ShapeDtypeStruct((data_sets, num_samples, num_classes), jnp.float64)
    return jax.jit(batch).lower(keys, gammas, jax.ShapeDtypeStruct((), jnp.float64)).compile()


def _packed(array: jax.Array) -> str:
    return base64.b64encode(np.asarray(array, "<f4").tobytes()).decode()


def unpacked(text: str, num_columns: int) -> np.ndarray:
    """Estimates or expectations of a chunk, [data_sets, labellings, columns] in float32."""
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(-1, len(LABELLINGS), num_columns)


def simulate(chunk: Chunk) -> dict[str, Any]:
    """Estimates and expected SKCEs of a chunk, packed, and the seconds they took."""
    start = time.perf_counter()
    gamma_key, label_key = jax.random.split(cells.key_of(f"{NAME}/{chunk.name}"))
    keys = jax.random.split(label_key, chunk.data_sets)
    mean_distance = mean_total_variation(jnp.full(chunk.num_classes, chunk.concentration))
    evaluate = compiled(chunk.data_sets, chunk.num_samples, chunk.num_classes)
    estimates, expected = evaluate(keys, draw_gammas(gamma_key, chunk), mean_distance)
    result = {"estimates": _packed(estimates), "expected": _packed(expected)}
    return {**result, "seconds": time.perf_counter() - start}
