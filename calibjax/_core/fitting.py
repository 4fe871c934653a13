"""Minimisation of smooth functions, logistic regression, isotonic regression."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import cho_factor, cho_solve
from jax.scipy.sparse.linalg import cg

from calibjax._core.pytree import Weights, varying_as

_MAX_ITERATIONS = 100
_MAX_STEPS = 50  # of Newton's method for linear maps of classes


class Step(NamedTuple):
    """Newton step of a multinomial regression, with properties of its starting point.

    The properties are the largest change of the log-odds of a sample, the largest slope, and the
    mean probability of the classes that were not observed.
    """

    change: jax.Array
    largest: jax.Array
    steepest: jax.Array
    missed: jax.Array


def newton_step(
    linear: Callable[[jax.Array, jax.Array], jax.Array],
    features: jax.Array,
    labels: jax.Array,
    weights: jax.Array,
    ridge: jax.Array,
    x: jax.Array,
) -> Step:
    """Newton step from x for `softmax_minimum`, damped to be an improvement.

    Conjugate gradients that stop early still optimise the quadratic approximation along their
    direction, so every damped step is an improvement. If a direction separates the classes, the
    likelihood has no maximum, and every undamped step moves the log-odds of some sample by at least
    one. If there is a maximum, the steps soon become small. The step is zero if rounding leaves
    none.
    """
    is_own = labels[:, None] == jnp.arange(features.shape[1])
    pull = jax.linear_transpose(lambda x: linear(features, x), x)
    pull_squares = jax.linear_transpose(lambda x: linear(jnp.square(features), x), x)

    def relative(change: jax.Array) -> jax.Array:
        """Changes of the log-odds against the observed class."""
        moves = linear(features, change)
        return moves - jnp.take_along_axis(moves, labels[:, None], 1)

    # Log-odds against the observed class keep their digits if it is nearly certain.
    probs = jax.nn.softmax(features + linear(features, x))
    others = jnp.where(is_own, 0, probs)
    missed = jnp.sum(others, 1, keepdims=True)
    sizes = weights[:, None] * probs
    slope = pull(weights[:, None] * jnp.where(is_own, -missed, others))[0] + 2 * ridge * x
    unit = pull_squares(sizes * jnp.where(is_own, missed, 1 - probs))[0] + 2 * ridge
    unit = jnp.where(unit > 0, unit, 1)

    # Without it, rounding errors move far in directions without effect on predictions.
    rounding = 8 * x.size * jnp.finfo(x.dtype).eps

    def curved(change: jax.Array) -> jax.Array:
        moves = relative(change)
        moves -= jnp.sum(others * moves, 1, keepdims=True)
        return pull(sizes * moves)[0] + (2 * ridge + rounding * unit) * change

    change, _ = cg(curved, -slope, tol=1e-3, maxiter=_MAX_ITERATIONS, M=lambda x: x / unit)
    change = jnp.where(jnp.all(jnp.isfinite(change)), change, 0)
    largest = jnp.max(jnp.where(weights[:, None] > 0, jnp.abs(relative(change)), 0))
    damping = jnp.log1p(largest) / jnp.where(largest > 0, largest, 1)
    return Step(damping * change, largest, jnp.max(jnp.abs(slope)), jnp.sum(weights * missed[:, 0]))


def softmax_minimum(
    linear: Callable[[jax.Array, jax.Array], jax.Array],
    features: jax.Array,
    labels: jax.Array,
    weights: jax.Array,
    ridge: jax.Array,
) -> jax.Array:
    """Minimises cross-entropy plus a ridge penalty, by a matrix-free Newton method.

        Σ_i w_i log Σ_c exp(l_ic − l_iy) + Σ_j r_j θ_j²,   l = features + linear(features, θ)

    Args:
        linear: function (x, θ) → [n, m], linear in θ, and in x up to a constant. Its coefficients
            at x² must be the squares of its coefficients at x.
        features: logits [n, m] for θ = 0.
        labels: [n].
        weights: of the samples, with sum one, [n].
        ridge: r, of the shape of the parameters.
    """
    ridge = varying_as(ridge, (features, labels, weights))
    tolerance = math.sqrt(jnp.finfo(ridge.dtype).eps)

    def step(state: tuple) -> tuple:
        x, _, count = state
        newton = newton_step(linear, features, labels, weights, ridge, x)
        return x + newton.change, newton.largest, count + 1

    unfinished = lambda state: (state[1] > tolerance) & (state[2] < _MAX_STEPS)  # noqa: E731
    start = jnp.zeros_like(ridge), jnp.full((), jnp.inf, ridge.dtype), 0
    return lax.while_loop(unfinished, step, varying_as(start, (features, labels, weights)))[0]


def newton_minimum(
    loss: Callable[[jax.Array], jax.Array], start: jax.Array, exists: jax.Array | bool = True
) -> jax.Array:
    """Local minimum of a function of two or three numbers, by Newton's method.

    Steps without improvement are undone and damped more (Levenberg and Marquardt). The method is as
    robust as L-BFGS and takes fewer steps, in particular under `vmap`.

    Args:
        loss: function of a vector [k], scaled to values of order one.
        start: [k].
        exists: whether to search; otherwise the result is the start.
    """
    identity = jnp.eye(start.size, dtype=start.dtype)
    tolerance = 4 * float(jnp.finfo(start.dtype).eps)

    def expansion(x: jax.Array) -> tuple[jax.Array, ...]:
        """The point, with value, slope and curvature."""

        def slope(x: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            value, slope = jax.value_and_grad(loss)(x)
            return slope, (value, slope)

        # which traces the loss only once
        curvature, value_and_slope = jax.jacfwd(slope, has_aux=True)(x)
        return x, *value_and_slope, curvature

    def unfinished(state: tuple) -> jax.Array:
        _, _, is_done, count = state
        return exists & ~is_done & (count <= _MAX_ITERATIONS)

    def step(state: tuple) -> tuple:
        (x, value, slope, curvature), damping, _, count = state
        size = jnp.max(jnp.abs(curvature))
        size = jnp.where(size > 0, size, 1)
        damped = curvature + damping * size * identity
        change = -cho_solve(cho_factor(damped), slope)  # NaN, and then damped, without a minimum
        falls = -jnp.sum(change * slope)
        new = expansion(x + change)
        is_finite = jnp.all(jnp.isfinite(jnp.concatenate([new[2], new[3].reshape(-1)])))
        is_better = (falls >= 0) & is_finite & (new[1] <= value)
        # So close to the minimum, differences of values are rounding errors.
        is_done = (falls >= 0) & (falls <= tolerance * (1 + jnp.abs(value))) & (value < jnp.inf)
        kept = jax.tree.map(lambda new, old: jnp.where(is_better, new, old), new, state[0])
        calmer = jnp.where(damping > 1e-4, damping / 10, 0)
        damping = jnp.where(is_better, calmer, jnp.maximum(10 * damping, 1e-3))
        return kept, damping, is_done, count + 1

    # The first step does not move and evaluates the start, so `expansion` is compiled only once.
    zero = jnp.zeros((), start.dtype)
    first = (start, zero + jnp.inf, jnp.zeros_like(start), identity), zero, jnp.zeros((), bool), 0
    return lax.while_loop(unfinished, step, varying_as(first, (start, exists)))[0][0]


class Line(NamedTuple):
    """Log-odds slope · x + intercept."""

    slope: jax.Array
    intercept: jax.Array


def log_odds(confidences: jax.Array | np.ndarray) -> jax.Array:
    """log(r / (1 − r)) of confidences clipped to [ε, 1 − ε], with ε their machine precision."""
    eps = jnp.finfo(confidences.dtype).eps
    inside = jnp.clip(confidences, eps, 1 - eps)
    return jnp.log(inside) - jnp.log1p(-inside)


def has_maximum(x: jax.Array, is_one: jax.Array, weights: Weights = None) -> jax.Array:
    """Whether a maximum exists: no threshold separates the classes, among positive weights."""
    is_one, is_zero = counting(weights, is_one), counting(weights, ~is_one)
    (low, high), (zero_low, zero_high) = range_of(x, is_one), range_of(x, is_zero)
    return (low < zero_high) & (zero_low < high)


def counting(weights: Weights, is_in: jax.Array) -> jax.Array:
    """Mask of the selected numbers with positive weights."""
    return is_in if weights is None else is_in & (weights > 0)


def range_of(x: jax.Array, is_in: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Smallest and largest of the selected numbers, ∞ and −∞ if there are none."""
    return jnp.min(jnp.where(is_in, x, jnp.inf)), jnp.max(jnp.where(is_in, x, -jnp.inf))


def most_likely(
    exists: jax.Array, x: jax.Array, targets: jax.Array, weights: Weights = None
) -> Line:
    """Line of maximum likelihood, if it exists; differentiable."""
    masses = jnp.ones_like(x) if weights is None else weights
    # Log-odds with mean zero and variance one: the slope and the intercept are almost independent.
    center = jnp.sum(masses * x) / jnp.sum(masses)
    unit = jnp.sqrt(jnp.sum(masses * jnp.square(x - center)) / jnp.sum(masses))
    center, unit = lax.stop_gradient((center, jnp.where(exists, unit, 1)))

    def loss(line: jax.Array, x: jax.Array, targets: jax.Array, masses: jax.Array) -> jax.Array:
        z = line[0] * ((x - center) / unit) + line[1]
        return jnp.sum(masses * (jax.nn.softplus(z) - targets * z)) / jnp.sum(masses)

    data = x, targets, masses
    fixed = lax.stop_gradient(data)
    best = newton_minimum(lambda line: loss(line, *fixed), jnp.zeros(2, x.dtype), exists)
    # One more step converges, and its derivatives are those of the implicit function theorem.
    curvature = lax.stop_gradient(jax.hessian(loss)(best, *data))
    best -= cho_solve(cho_factor(curvature), jax.grad(loss)(best, *data))
    return Line(best[0] / unit, best[1] - best[0] * center / unit)


def centered(curvatures: jax.Array, x: jax.Array) -> tuple[Any, Any, Any]:
    """Information on the slope, information on the intercept at the center, and the center."""
    total = jnp.sum(curvatures)
    center = jnp.sum(curvatures * x) / jnp.where(total > 0, total, 1)
    return jnp.sum(curvatures * jnp.square(x - center)), total, center


def isotonic_means(inputs: jax.Array, outputs: jax.Array, weights: Weights = None) -> jax.Array:
    """Non-decreasing function of the inputs with least squared error to the outputs.

    All adjacent violators are pooled at once until none is left: about log n rounds for
    independent data.

    Args:
        inputs: increasing, [n]; equal ones share a value.
        outputs: 0 or 1, [n].
        weights: of the errors, [n]; zero only for copies of inputs with positive weight.

    Returns:
        Values at the inputs, [n].
    """
    weights = jnp.ones_like(outputs) if weights is None else weights
    columns = jnp.stack([weights * outputs, weights], 1)

    def pool(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        is_start, _ = state
        means, first = _block_means(lax.stop_gradient(columns), is_start)
        rises = (first == 0) | (means[first - 1] < means)
        return is_start & rises, jnp.any(is_start & ~rises)

    is_start = jnp.pad(inputs[1:] != inputs[:-1], (1, 0), constant_values=True)
    first = varying_as((is_start, jnp.array(True)), (is_start, columns))
    is_start, _ = lax.while_loop(lambda state: state[1], pool, first)
    return _block_means(columns, is_start)[0]


def _block_means(columns: jax.Array, is_start: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean over the block of each position, and first position of the block, [n] each.

    The sums are weighted outputs and weights, [n, 2].
    """
    n = is_start.size
    first = lax.cummax(jnp.where(is_start, jnp.arange(n, dtype=jnp.int32), 0))
    sums, totals = jax.ops.segment_sum(columns, first, n, indices_are_sorted=True)[first].T
    return sums / jnp.where(totals == 0, 1, totals), first
