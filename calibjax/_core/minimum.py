"""Minima of smooth functions of few numbers."""

from collections.abc import Callable

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
