"""Logistic regression on one number, by Newton's method."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_MAX_ITERATIONS = 100


class Line(NamedTuple):
    """Log-odds slope · x + intercept."""

    slope: jax.Array
    intercept: jax.Array


class _State(NamedTuple):
    """Current line, and how far the last step moved the log-odds of a sample."""

    best: Line
    change: jax.Array
    num_steps: jax.Array | int


def log_odds(confidences: jax.Array | np.ndarray) -> jax.Array:
    """log(r / (1 − r)) of confidences clipped to [ε, 1 − ε], with ε their machine precision."""
    eps = jnp.finfo(confidences.dtype).eps
    inside = jnp.clip(confidences, eps, 1 - eps)
    return jnp.log(inside) - jnp.log1p(-inside)


def has_maximum(x: jax.Array, is_one: jax.Array, weights: jax.Array | None = None) -> jax.Array:
    """Whether no threshold separates the numbers of ones from those of zeros, where they count."""
    is_one, is_zero = counting(weights, is_one), counting(weights, ~is_one)
    (low, high), (zero_low, zero_high) = range_of(x, is_one), range_of(x, is_zero)
    return (low < zero_high) & (zero_low < high)


def counting(weights: jax.Array | None, is_in: jax.Array) -> jax.Array:
    """Which of the selected numbers have positive weights."""
    return is_in if weights is None else is_in & (weights > 0)


def range_of(x: jax.Array, is_in: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Smallest and largest of the selected numbers, ∞ and −∞ if there are none."""
    return jnp.min(jnp.where(is_in, x, jnp.inf)), jnp.max(jnp.where(is_in, x, -jnp.inf))


def most_likely(
    exists: jax.Array, x: jax.Array, targets: jax.Array, weights: jax.Array | None = None
) -> Line:
    """The line with the largest likelihood, if it exists; it has derivatives."""
    best = _iterated(exists, *lax.stop_gradient((x, targets, weights)))
    # One more step converges, and its derivatives are those of the implicit function theorem.
    slope, intercept = _newton_step(best, x, targets, weights)
    return Line(best.slope + slope, best.intercept + intercept)


def _iterated(
    exists: jax.Array, x: jax.Array, targets: jax.Array, weights: jax.Array | None
) -> Line:
    """Newton's method from equal probabilities, damped such that every step is an improvement.

    In a direction that moves log-odds by at most δ, the third derivative of the likelihood is at
    most δ times the second. The step log(1 + δ) / δ maximises the resulting lower bound.
    """
    tolerance = jnp.sqrt(jnp.finfo(x.dtype).eps)  # its square is the error after one more step

    def unfinished(s: _State) -> jax.Array:
        return exists & (s.change > tolerance) & (s.num_steps < _MAX_ITERATIONS)

    def step(s: _State) -> _State:
        slope, intercept = _newton_step(s.best, x, targets, weights)
        changes = jnp.abs(slope * x + intercept)
        change = jnp.max(changes if weights is None else jnp.where(weights == 0, 0, changes))
        damping = jnp.log1p(change) / jnp.where(change > 0, change, 1)
        slope, intercept = s.best.slope + damping * slope, s.best.intercept + damping * intercept
        return _State(Line(slope, intercept), change, s.num_steps + 1)

    zero = jnp.zeros((), x.dtype)
    start = _State(Line(zero, zero), jnp.full_like(zero, jnp.inf), 0)
    return lax.while_loop(unfinished, step, start).best


def _newton_step(
    current: Line, x: jax.Array, targets: jax.Array, weights: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Changes of slope and intercept that maximise the likelihood's quadratic approximation."""
    z = current.slope * x + current.intercept
    probs, complements = jax.nn.sigmoid(z), jax.nn.sigmoid(-z)
    residuals = targets * complements - (1 - targets) * probs
    curvatures = probs * complements
    if weights is not None:
        residuals, curvatures = weights * residuals, weights * curvatures
    slopes, total, center = centered(curvatures, x)
    slope = jnp.sum(residuals * (x - center)) / slopes  # orthogonal to the intercept
    return slope, jnp.sum(residuals) / total - center * slope


def centered(curvatures: jax.Array, x: jax.Array) -> tuple[Any, Any, Any]:
    """Information about the slope, that about the intercept at the center, and the center."""
    total = jnp.sum(curvatures)
    center = jnp.sum(curvatures * x) / jnp.where(total > 0, total, 1)
    return jnp.sum(curvatures * jnp.square(x - center)), total, center
