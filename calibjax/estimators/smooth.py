"""Smooth calibration error of binary probabilities."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax.distributions.base import Distribution
from calibjax.estimators.reliability import checked_binary

_HALVINGS = 10  # of the interval in which the bandwidth is searched
_SMALLEST = 1e-3  # bandwidth
_GRID, _POINTS = 2000, 200  # twice the grid of residuals, points of the integral; more for h < .01


def smooth_ece(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    bandwidth: float | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Smooth ECE: the mean size of the residuals after they are smoothed over the predictions.

        smECE_h = ∫₀¹ |n⁻¹ Σ_i (p_i − y_i) k_h(p_i, t)| dt

    with the Gaussian kernel of bandwidth h, reflected at 0 and 1. As in relplot it is cut off at
    ± 1/2 and divided by its own mass, not n: up to h = 0.15 that is the same to 1 %, beyond it is
    larger than the formula. Unlike the ECE the number has no bins, and is continuous in the
    predictions; that of the formula is, within constants, the smallest distance to a calibrated
    model.
    Without a bandwidth it is h* with smECE_{h*} = h*, found by ten halvings of [0, 1]. Like every
    distance it is positive for calibrated models, too: `hypothesis_tests.exact_test` with a
    bandwidth says what they have.

    Args:
        predictions: batch of n binary predictions, `Bernoulli`, as `estimators.top_label` and other
            lenses make them of several classes.
        targets: labels 0 or 1, [n].
        bandwidth: h in [0.001, 1], a Python number; None to find h*, of known values.
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind, or without a bandwidth values are traced.
        ValueError: if shapes or values are wrong.

    Cost: O(n) and a convolution of some thousand numbers, eleven times without a bandwidth.

    References: Błasiok and Nakkiran (2023), Smooth ECE, Definition 4 and Theorem 9. The numbers are
    those of their package relplot, which has a grid of 1001 residuals, and means over 200 points.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, estimators
    >>> predictions = distributions.Bernoulli(jnp.full(100, 0.7))
    >>> print(f"{estimators.smooth_ece(predictions, jnp.arange(100) % 2):.3f}")
    0.200
    """
    checks.same_rows(predictions=predictions, targets=targets, weights=weights)
    predictions, targets = checked_binary(predictions, targets)
    weights = checks.sample_weights(weights, predictions)
    data = predictions.probs, targets, weights
    if bandwidth is not None:
        if not checks.is_concrete(bandwidth):
            raise TypeError(f"bandwidth: expected a number that is known, got {bandwidth}")
        width = float(checks.positive_scalar("bandwidth", bandwidth))
        if not _SMALLEST <= width <= 1:
            raise ValueError(f"bandwidth: expected a number in [{_SMALLEST}, 1], got {width}")
        return _at(data, width)
    if not checks.is_concrete(data):
        raise TypeError("bandwidth: expected a number, since predictions or targets are traced")
    low, high = 0.0, 1.0  # the error is above the first bandwidth, and not above the second
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_above = middle < _SMALLEST or middle < float(_at(data, middle))
        low, high = (middle, high) if is_above else (low, middle)
    return _at(data, high)


def _at(data: tuple[jax.Array, jax.Array, jax.Array | None], width: float) -> jax.Array:
    grid = max(_GRID, round(20 / width)) // 2 + 1
    return _error(*data, width, grid=grid, points=max(_POINTS, round(10 / width)))


@functools.partial(jax.jit, static_argnames=("grid", "points"))
def _error(
    probs: jax.Array,
    targets: jax.Array,
    weights: jax.Array | None,
    width: ArrayLike,
    *,
    grid: int,
    points: int,
) -> jax.Array:
    is_bad = jnp.any(jnp.isnan(probs) | ((targets != 0) & (targets != 1)))
    used = jnp.ones_like(probs) if weights is None else weights
    places = jnp.clip((probs * (grid - 1)).astype(int), 0, grid - 2)
    above = probs * (grid - 1) - places
    distances = np.linspace(0, 1, grid) - 0.5
    kernel = jnp.exp(-0.5 * jnp.square(distances.astype(probs.dtype) / width))
    at = np.linspace(0, grid - 1, points)
    left = np.clip(at.astype(int), 0, grid - 2)
    share = (at - left).astype(probs.dtype)

    def smoothed(values: jax.Array) -> jax.Array:
        """Kernel sums of the values at the points."""
        found = jnp.zeros(grid, probs.dtype).at[places].add((1 - above) * values)
        found = found.at[places + 1].add(above * values)
        mirrored = jnp.concatenate([found[:0:-1], found, found[-2::-1]])
        sums = jax.scipy.signal.fftconvolve(mirrored, kernel, "valid")[grid // 2 :][:grid]
        return sums[left] * (1 - share) + sums[left + 1] * share

    size = jnp.sum(jnp.abs(smoothed(used * (probs - targets)))) / jnp.sum(smoothed(used))
    return jnp.where(is_bad, jnp.nan, size)
