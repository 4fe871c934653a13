"""From samples to decisions: measures of all models, pairs, and what is within chance.

Two models are compared by d, the difference of the two estimates on the same samples, and decided
at level 0.05 if d is far enough from zero by both of two rules:

- by the numbers alone, z = d / s with s from the plain paired bootstrap;
- without the bias of the estimates, z = (d − bias) / s. For ECE and class-wise ECE, bias and s are
  from the bootstrap of Fang and Santos (`binned_errors`), for the kernel density the bias is the
  mean of the bootstrap minus the estimate.

The SKCE is unbiased, both rules are one, and s² is the variance of the difference of two
U-statistics (`kernel_errors`). The p-value is the larger of the two. The first rule does not see
that one of two models is only sharper, or has more bins. The second alone calls up to a fifth of
equal models different, where bins are neither clearly wrong nor clearly right; both together
keep their level in the simulation.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.special import ndtr  # comes with scikit-learn

from experiments.chance import binned_errors, density_errors, kernel_errors

MEASURES = ("ECE", "class-wise ECE", "SKCE", "density")
ALPHA = 0.05
DENSITY_RESAMPLES = 100  # at most; they cost n² each


class Compared(NamedTuple):
    """What is known about M models from one set of samples; leading axis: the four measures.

    Attributes:
        estimates: [4, M].
        biases: [4, M].
        variances: of the differences of two models, on the diagonal of one model alone, [4, M, M].
        plain: the same from the plain bootstrap, [4, M, M].
    """

    estimates: jax.Array | np.ndarray
    biases: jax.Array | np.ndarray
    variances: jax.Array | np.ndarray
    plain: jax.Array | np.ndarray


def _of_differences(draws: jax.Array) -> jax.Array:
    """Variances of the differences of two rows, on the diagonal of one row, [M, M]."""
    covariance = jnp.atleast_2d(jnp.cov(draws))
    own = jnp.diagonal(covariance)
    return own[:, None] + own - 2 * covariance + jnp.diag(own)


def resample_counts(key: jax.Array, number: int, n: int) -> jax.Array:
    """How often each sample is in each resample, [R, n]."""

    def one(key: jax.Array) -> jax.Array:
        chosen = jax.random.randint(key, (n,), 0, n)
        return jnp.zeros(n, jnp.float32).at[chosen].add(1)

    return lax.map(one, jax.random.split(key, number))


@functools.partial(jax.jit, static_argnames="num_resamples")
def compare(key: jax.Array, probs: jax.Array, labels: jax.Array, num_resamples: int) -> Compared:
    """All measures of all models on the same samples.

    Args:
        key: of the resamples.
        probs: predictions, [M, n, m], n ≥ 5.
        labels: [n].
        num_resamples: R; kernel densities take 100 of them at most.
    """
    counts = resample_counts(key, num_resamples, len(labels))
    found = []
    for bins in (binned_errors.top_label_bins, binned_errors.class_bins):
        errors = binned_errors.resampled(bins(probs, labels), counts)
        variances = _of_differences(errors.noise), _of_differences(errors.plain)
        found.append((errors.estimates, jnp.mean(errors.noise, 1), *variances))
    moments = kernel_errors.moments(probs, labels)
    variances = kernel_errors.variances(moments)
    found.append((moments.estimates, jnp.zeros_like(moments.estimates), variances, variances))

    def density(p: jax.Array) -> tuple[jax.Array, jax.Array]:
        correct = (jnp.argmax(p, 1) == labels).astype(p.dtype)
        none = jnp.zeros((0, len(labels)))
        some = counts[:DENSITY_RESAMPLES]
        errors = density_errors.errors(jnp.max(p, 1), correct, some, none)
        return errors.estimate, errors.resampled

    estimates, draws = lax.map(density, probs)
    variances = _of_differences(draws)
    found.append((estimates, jnp.mean(draws, 1) - estimates, variances, variances))
    return Compared(*(jnp.stack(x) for x in zip(*found, strict=True)))


@functools.partial(jax.jit, static_argnames="number")
def redraw(key: jax.Array, probs: jax.Array, number: int) -> jax.Array:
    """Labels drawn from the predictions, [B, n]."""
    limits = jnp.cumsum(probs, 1)[:, :-1] / jnp.sum(probs, 1, keepdims=True)

    def one(key: jax.Array) -> jax.Array:
        level = jax.random.uniform(key, (len(probs), 1), probs.dtype)
        return jnp.sum(level >= limits, 1)

    return lax.map(one, jax.random.split(key, number))


def pool(key: jax.Array, probs: jax.Array, labels: jax.Array, num_redraws: int) -> np.ndarray:
    """All measures of one model: with the observed labels first, then with redrawn ones.

    Args:
        key: of the redraws.
        probs: [n, m].
        labels: [n].
        num_redraws: B.

    Returns:
        [4, B + 1].
    """
    drawn = jnp.concatenate([labels[None], redraw(key, probs, num_redraws)])
    top_label, class_wise = _binned_pool(probs, drawn)
    correct = (drawn == jnp.argmax(probs, 1)).astype(probs.dtype)
    none = jnp.zeros((0, len(labels)))
    density = density_errors.errors(jnp.max(probs, 1), correct[0], none, correct).redrawn
    found = top_label, class_wise, kernel_errors.redrawn(probs, drawn), density
    return np.stack([np.asarray(x) for x in found])


_binned_pool = jax.jit(binned_errors.redrawn)


class Ranges(NamedTuple):
    """What a calibrated model gives, [4] each.

    Attributes:
        low, high: 2.5 % and 97.5 % quantiles of the measure with redrawn labels.
        mean: its mean.
        pvalue: exact, (1 + #{T_b ≥ T}) / (B + 1).
    """

    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    pvalue: np.ndarray


def ranges_of(values: np.ndarray) -> Ranges:
    """Ranges from a `pool`, [4, B + 1]."""
    observed, drawn = values[:, :1], values[:, 1:]
    low, high = np.quantile(drawn, (ALPHA / 2, 1 - ALPHA / 2), axis=1)
    count = np.sum(drawn >= observed - 1e-12 * np.abs(observed), 1)
    return Ranges(low, high, drawn.mean(1), (1 + count) / values.shape[1])


def pairs_of(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the first and second model of all pairs."""
    return np.triu_indices(number, 1)


def differences(
    found: Any, *, numbers_alone: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Differences of all pairs, their standard errors and p-values, [..., P].

    Models that predict the same have the difference 0 and the p-value 1.

    Args:
        found: a `Compared`, with any leading axes.
        numbers_alone: whether only the first rule is applied; otherwise differences are without
            their bias, and standard errors and p-values are the larger ones of both rules.
    """
    values, biases = np.asarray(found.estimates), np.asarray(found.biases)
    alone = _tested(values, np.asarray(found.plain))
    if numbers_alone:
        return alone
    d, errors, pvalues = _tested(values - biases, np.asarray(found.variances))
    return d, np.maximum(errors, alone[1]), np.maximum(pvalues, alone[2])


def _tested(values: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Differences of all pairs of values [..., M], standard errors and p-values."""
    first, second = pairs_of(values.shape[-1])
    d = values[..., first] - values[..., second]
    errors = np.sqrt(np.maximum(variances[..., first, second], 0))
    z = np.divide(d, errors, out=np.zeros_like(d), where=errors > 0)
    return d, errors, 2 * ndtr(-np.abs(z))


def holm(pvalues: np.ndarray) -> np.ndarray:
    """p-values adjusted for their number by Holm's method, along the last axis."""
    order = np.argsort(pvalues, -1)
    factors = np.arange(pvalues.shape[-1], 0, -1)
    stepped = np.maximum.accumulate(np.take_along_axis(pvalues, order, -1) * factors, -1)
    adjusted = np.empty_like(pvalues)
    np.put_along_axis(adjusted, order, np.minimum(stepped, 1), -1)
    return adjusted
