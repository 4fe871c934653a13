"""Minima of smooth functions of few numbers."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

_MAX_ITERATIONS = 100


def minimum(
    loss: Callable[[jax.Array], jax.Array], start: jax.Array, exists: jax.Array | bool = True
) -> jax.Array:
    """A local minimum, by L-BFGS; the start if it is known that there is none.

    Args:
        loss: function of a vector [k], of the size of one.
        start: [k].
        exists: whether to look for it.
    """
    solver = optax.lbfgs()
    tolerance = jnp.finfo(start.dtype).eps ** (2 / 3)

    def unfinished(state: tuple) -> jax.Array:
        _, _, largest_slope, count = state
        return exists & (largest_slope > tolerance) & (count < _MAX_ITERATIONS)

    def step(state: tuple) -> tuple:
        x, memory, _, count = state
        value, slope = jax.value_and_grad(loss)(x)
        change, memory = solver.update(slope, memory, x, value=value, grad=slope, value_fn=loss)
        return optax.apply_updates(x, change), memory, jnp.max(jnp.abs(slope)), count + 1

    first = start, solver.init(start), jnp.full((), jnp.inf, start.dtype), 0
    return lax.while_loop(unfinished, step, first)[0]


class _Damped(NamedTuple):
    """A point, what is known there, and the damping of the step from it."""

    x: jax.Array
    value: jax.Array
    slope: jax.Array
    curvature: jax.Array
    damping: jax.Array
    is_done: jax.Array
    num_steps: jax.Array | int


def newton_minimum(
    loss: Callable[[jax.Array], jax.Array], start: jax.Array, exists: jax.Array | bool = True
) -> jax.Array:
    """A local minimum of a function of two or three numbers, by Newton's method.

    Steps that are no improvement are taken back, and damped more (Levenberg and Marquardt), so that
    it is as robust as L-BFGS and needs fewer steps, in particular where many are mapped over.
    Arguments are those of `minimum`.
    """
    identity = jnp.eye(start.size, dtype=start.dtype)
    tolerance = 4 * float(jnp.finfo(start.dtype).eps)

    def known(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        def slope(x: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            value, slope = jax.value_and_grad(loss)(x)
            return slope, (value, slope)

        curvature, found = jax.jacfwd(slope, has_aux=True)(x)  # which traces the loss only once
        return *found, curvature

    def unfinished(s: _Damped) -> jax.Array:
        return exists & ~s.is_done & (s.num_steps <= _MAX_ITERATIONS)

    def step(s: _Damped) -> _Damped:
        size = jnp.max(jnp.abs(s.curvature))
        size = jnp.where(size > 0, size, 1)
        damped = s.curvature + s.damping * size * identity
        change = -jnp.linalg.solve(damped, s.slope)
        falls = -jnp.sum(change * s.slope)
        x = s.x + change
        found = known(x)
        is_finite = jnp.all(jnp.isfinite(jnp.concatenate([found[1], found[2].reshape(-1)])))
        is_first = s.num_steps == 0
        is_better = is_first | (falls > 0) & is_finite & (found[0] <= s.value)
        # At a distance of rounding errors from the minimum values cannot be compared.
        is_done = (falls >= 0) & (falls <= tolerance * (1 + jnp.abs(s.value))) & ~is_first
        kept = jax.tree.map(lambda new, old: jnp.where(is_better, new, old), (x, *found), s[:4])
        calmer = jnp.where(s.damping > 1e-4, s.damping / 10, 0)
        damping = jnp.where(is_better, calmer, jnp.maximum(10 * s.damping, 1e-3))
        x, value, slope, curvature = kept
        return _Damped(x, value, slope, curvature, damping, is_done, s.num_steps + 1)

    # The first step stays where it is and finds out what is known there: `known` is compiled once.
    zero = jnp.zeros((), start.dtype)
    first = _Damped(start, zero, jnp.zeros_like(start), identity, zero, jnp.zeros((), bool), 0)
    return lax.while_loop(unfinished, step, first).x
