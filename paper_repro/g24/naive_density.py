"""The kernel density ratio of G24 eq. (25) as it is printed, in float32, with its NaNs.

G24 App. B: "For a small fraction of inputs, this implementation returns NaN as prediction. We
remove these instances from the risk and calibration estimation." At a confidence that is 1 in
float32 the logarithm of 1 − c is −∞, which a kernel around a training sample with confidence 1
multiplies by zero. These are the predictions that a network is surest of. They are nearly all right
and add nothing to the risk, so that a risk in which they are missing is that of the others: by a
share s of missing ones the mean over pairs grows by 1/(1 − s)², its root by 1/(1 − s).

Where no kernel is large enough for float32 the ratio is 0/0. That is NaN too, or, where the
denominator is kept above 1e-10, a ratio of zero: "clipped" below.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LEAST_SUM = {"as printed": 0.0, "clipped": 1e-10}


class Samples(NamedTuple):
    """Confidences, and whether they were right, [n] each."""

    confidences: jax.Array
    correct: jax.Array


@jax.jit
def naive_residuals(training: Samples, points: jax.Array, bandwidth: jax.Array) -> jax.Array:
    """Confidences minus their ratios by beta kernels, for each of `LEAST_SUM`, [2, t]."""
    training = jax.tree.map(lambda x: x.astype(jnp.float32), training)
    points, h = points.astype(jnp.float32)[:, None], bandwidth.astype(jnp.float32)
    a, b = training.confidences / h + 1, (1 - training.confidences) / h + 1
    log_constants = lax.lgamma(a) + lax.lgamma(b) - lax.lgamma(a + b)
    log_kernels = (a - 1) * jnp.log(points) + (b - 1) * jnp.log(1 - points) - log_constants
    kernels = jnp.exp(log_kernels)
    sums = jnp.sum(kernels, 1)
    hits = jnp.sum(kernels * training.correct, 1)
    ratios = [hits / jnp.maximum(sums, jnp.float32(least)) for least in LEAST_SUM.values()]
    return points[:, 0] - jnp.stack(ratios)


def risk_of_the_rest(errors: np.ndarray, residuals: np.ndarray) -> float:
    """Mean of (e_i e_j − g_i g_j)² over the pairs i ≠ j of samples where g is no NaN."""
    is_there = np.isfinite(residuals)
    e, g = (np.asarray(x, np.float64)[is_there] for x in (errors, residuals))
    n = len(e)
    total = (e @ e) ** 2 - 2 * (e @ g) ** 2 + (g @ g) ** 2
    return float((total - np.sum((e**2 - g**2) ** 2)) / (n * (n - 1)))


def cross_validated(
    samples: Samples, tuning: np.ndarray, folds: np.ndarray, grid: np.ndarray
) -> dict[str, np.ndarray]:
    """Risks of the naive ratio in folds that are given.

    Args:
        samples: all samples.
        tuning: which of them are in folds.
        folds: the fold of each of these.
        grid: bandwidths, [k].

    Returns:
        risks, missing: without NaNs, and the share of NaNs, [2, F, k].
        saturated: share of confidences that are 1 in float32, scalar.
    """
    chosen = jax.tree.map(lambda x: np.asarray(x)[tuning], samples)
    shape = len(LEAST_SUM), folds.max() + 1, len(grid)
    risks, missing = np.zeros(shape), np.zeros(shape)
    for fold in range(shape[1]):
        is_out = folds == fold
        training, (points, correct) = (
            jax.tree.map(lambda x, at=at: jnp.asarray(x[at]), chosen) for at in (~is_out, is_out)
        )
        for i, bandwidth in enumerate(grid):
            residuals = np.asarray(naive_residuals(training, points, jnp.asarray(bandwidth)))
            for j, values in enumerate(residuals):
                risks[j, fold, i] = risk_of_the_rest(points - correct, values)
                missing[j, fold, i] = np.mean(np.isnan(values))
    is_one = chosen.confidences.astype(np.float32) == 1
    return {"risks": risks, "missing": missing, "saturated": np.array(is_one.mean())}
