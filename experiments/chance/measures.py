"""Four calibration errors of one model: of its labels, of redrawn ones, and sample by sample.

What is found for each measure T are its values for the observed labels and for labels that are
redrawn from the predictions, and influences ψ_i of the samples, whose standard deviation divided by
√n is the standard error of T. With residuals r_i = e_{y_i} − p_i, confidences c_i and outcomes o_i:

- binned errors T = Σ_b |θ_b|, where θ_b is the sum over a bin of (prediction − outcome) / n, have
  ψ_i = sign(θ_b(i)) (prediction − outcome); the class-wise error is the mean over classes;
- the unbiased SKCE T with the kernel k = exp(−TV) δ has h_ij = k(p_i, p_j) ⟨r_i, r_j⟩ and
  ψ_i = 2 Σ_{j≠i} h_ij / (n − 1) − T. Its variance counts the second term of that of a U-statistic
  twice, so that standard errors are not too small where a model is calibrated;
- the kernel-density error T = 1/n Σ_i (m_i − c_i)², where m_i is the mean of the outcomes of the
  other samples with the weights of the beta kernel of `estimators.kde_calibration_error`, of which
  T is half the value for the top label and order 2, has
  ψ_i = 2 (m_i − c_i) (o_i − c_i) − (m_i − c_i)².

Cost: n² (m + B) operations and a matrix [n, n] of float32; sums are of float64.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln  # comes with scikit-learn

from calibjax import distances, kernels
from calibjax.binnings import interval_index
from calibjax.distributions import Categorical

MEASURES = ("ECE", "class-wise ECE", "SKCE", "density")
NUM_BINS = 15
BANDWIDTH = 0.01  # of the kernel density, the same for all models
EDGE = 1e-6  # confidences are kept this far from 0 and 1, where logarithms are infinite


class Measured(NamedTuple):
    """All measures of one model.

    Attributes:
        values: with the observed labels first, then with redrawn ones, [4, 1 + B].
        influences: of the samples on the observed values, [4, n].
    """

    values: np.ndarray
    influences: np.ndarray


def measure(
    rng: np.random.Generator, probs: np.ndarray, labels: np.ndarray, redraws: int
) -> Measured:
    """All measures of one model.

    Args:
        rng: of the redraws.
        probs: predictions, [n, m].
        labels: [n].
        redraws: B.
    """
    drawn = np.stack([labels, *redrawn(rng, probs, redraws)])
    top, confidences = probs.argmax(1), probs.max(1)
    correct = drawn == top
    found = (
        binned(confidences[:, None], np.where(correct, 0, -1)),
        binned(probs, drawn),
        skce(probs, drawn),
        density(confidences, correct),
    )
    return Measured(*map(np.stack, zip(*found, strict=True)))


def redrawn(rng: np.random.Generator, probs: np.ndarray, number: int) -> np.ndarray:
    """Labels drawn from the predictions, [B, n]."""
    limits = np.cumsum(probs, 1)[:, :-1] / np.sum(probs, 1, keepdims=True)
    levels = rng.random((number, len(probs), 1))
    return np.array([np.sum(level >= limits, 1) for level in levels]).reshape(number, len(probs))


def binned(predicted: np.ndarray, happened: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values [1 + B] and influences [n] of a binned error, the mean over columns.

    Args:
        predicted: probabilities of events, [n, columns].
        happened: column of what happened in each redraw, −1 for none of them, [1 + B, n].
    """
    n, columns = predicted.shape
    size = NUM_BINS * columns
    bins = interval_index(jnp.asarray(predicted), NUM_BINS)
    places = np.asarray(bins) + NUM_BINS * np.arange(columns)
    expected = np.bincount(places.ravel(), predicted.ravel(), size)
    gaps = np.empty((len(happened), size))
    for gap, events in zip(gaps, happened, strict=True):
        (which,) = np.nonzero(events >= 0)
        gap[:] = expected - np.bincount(places[which, events[which]], minlength=size)
    residuals = predicted - (happened[0][:, None] == np.arange(columns))
    influences = np.mean(np.sign(gaps[0])[places] * residuals, 1)
    return np.abs(gaps).sum(1) / n / columns, influences


@jax.jit
def _kernel_matrix(probs: jax.Array) -> jax.Array:
    kernel = kernels.Exponential(jnp.ones((), probs.dtype), distances.TotalVariation())
    return kernels.gram_matrix(kernel, Categorical(probs))


def skce(probs: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values [1 + B] and influences [n] of the unbiased SKCE.

    With k_ii = 0 it is Σ_ij k_ij (δ(y_i, y_j) − 2 p_i(y_j) + ⟨p_i, p_j⟩) / n (n − 1). The first sum
    is taken class by class, over the samples that have the class in any of the redraws: most have
    the same label in nearly all of them.

    Args:
        probs: predictions, [n, m].
        labels: [1 + B, n].
    """
    n, num_classes = probs.shape
    kernel = np.array(_kernel_matrix(jnp.asarray(probs, jnp.float32)))
    np.fill_diagonal(kernel, 0)
    smoothed = kernel @ probs.astype(np.float32)  # Σ_j k_ij p_j, [n, m]
    total = np.full(len(labels), np.sum(probs * smoothed))
    rows = np.arange(n)
    sums = np.einsum("nm,nm->n", probs, smoothed) - smoothed[rows, labels[0]]
    for c in range(num_classes):
        (own,) = np.nonzero((labels == c).any(0))
        marks = (labels[:, own] == c).astype(np.float32).T
        products = kernel[np.ix_(own, own)] @ marks
        total += np.sum(products * marks, 0, dtype=float)
        (observed,) = np.nonzero(labels[0] == c)
        crossed = kernel[:, observed].sum(1, dtype=float)
        sums += crossed * ((labels[0] == c) - probs[:, c])
    total -= 2 * np.sum(smoothed[rows, labels], 1, dtype=float)
    values = total / n / (n - 1)
    return values, 2 * sums / (n - 1) - values[0]


def density(confidences: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values and influences of the kernel-density error; what is correct is [1 + B, n]."""
    c, x = np.clip(confidences, EDGE, 1 - EDGE), 1 / BANDWIDTH
    height = -sum(gammaln(a * x + 1) for a in (c, 1 - c))
    points = np.stack([np.log(c), np.log1p(-c)], 1)
    places = np.stack([c, 1 - c])
    logarithms = x * points @ places + height
    np.fill_diagonal(logarithms, -np.inf)
    logarithms -= logarithms.max(1, keepdims=True)
    weights = np.exp(logarithms.astype(np.float32))
    means = weights @ correct.T.astype(np.float32) / weights.sum(1, keepdims=True)
    gaps = means - c[:, None]
    own = gaps[:, 0]
    return np.mean(gaps**2, 0), 2 * own * (correct[0] - c) - own**2
