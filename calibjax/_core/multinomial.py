"""Newton's steps of logistic regression with several classes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from calibjax._core.arithmetic import einsum, matmul


class Step(NamedTuple):
    """A step towards the largest likelihood, and how far it moves the log-odds of a sample."""

    change: jax.Array
    largest: jax.Array


def newton_step(
    features: jax.Array,
    labels: jax.Array,
    log_probs: jax.Array,
    weights: jax.Array,
    slope: jax.Array,
    curvature: jax.Array,
    num_shared: int,
) -> Step:
    """Newton's step, damped such that it is an improvement.

    Where a direction separates classes, the likelihood grows without end, and every step moves the
    log-odds of some sample by one or more, undamped; where there is a maximum, they soon are small.
    Where no step is known for want of digits, it is zero.

    Args:
        features: of each class, of which log-odds are linear functions, [n, m, s].
        labels: [n].
        log_probs: where the step starts, [n, m].
        weights: of the samples, with sum one, [n].
        slope: of the loss, [m, s].
        curvature: that is added to that of the likelihood, on the diagonal, [m, s].
        num_shared: how many features, the last ones, are the same for all classes. A shift of all
            their parameters changes no prediction.
    """
    n, m, s = features.shape
    is_own = labels[:, None] == jnp.arange(m)
    # Likelihoods of log-odds against the own class lose no digits where that is nearly certain.
    others = jnp.where(is_own, 0, jnp.exp(log_probs))
    residuals = jnp.where(is_own, -jnp.sum(others, 1, keepdims=True), others)
    own, pulled, moved = (
        (x[..., None] * features).reshape(n, m * s) for x in (is_own, others, residuals)
    )
    cross = matmul(pulled.T, weights[:, None] * own)
    sizes = weights[:, None] * jnp.abs(residuals)
    blocks = einsum("nc,ncs,nct->cst", sizes, features, features)
    diagonal = einsum("cst,cd->csdt", blocks, jnp.eye(m, dtype=blocks.dtype))
    total = diagonal.reshape(m * s, m * s) - cross - cross.T
    total += jnp.diag(jnp.ravel(curvature)) - matmul(moved.T, weights[:, None] * moved)
    unit = jnp.sqrt(jnp.abs(jnp.diagonal(total)))
    unit = jnp.where(unit > 0, unit, 1)
    scaled = total / unit / unit[:, None]
    # What no prediction depends on has no curvature, and stays: shifts, which are known, and what
    # has a curvature of rounding errors.
    shifts = jnp.tile(jnp.eye(s, dtype=total.dtype), (m, 1))[:, s - num_shared :]
    free = jnp.where(jnp.sum(curvature, 0) == 0, 1, 0)[s - num_shared :]
    shifts = shifts * unit[:, None]
    shifts *= free / jnp.sqrt(jnp.sum(jnp.square(shifts), 0))
    values, vectors = jnp.linalg.eigh(scaled + matmul(shifts, shifts.T))
    least = 8 * m * s * jnp.finfo(total.dtype).eps
    rates = jnp.where(values > least, 1 / jnp.where(values > least, values, 1), 0)
    slope = jnp.ravel(slope) / unit
    slope -= matmul(shifts, matmul(shifts.T, slope))
    change = -(matmul(vectors, rates * matmul(vectors.T, slope)) / unit).reshape(m, s)
    change = jnp.where(jnp.all(jnp.isfinite(change)), change, 0)
    moves = einsum("ncs,cs->nc", features, change)
    moves -= jnp.take_along_axis(moves, labels[:, None], 1)
    largest = jnp.max(jnp.where(weights[:, None] > 0, jnp.abs(moves), 0))
    damping = jnp.log1p(largest) / jnp.where(largest > 0, largest, 1)
    return Step(jnp.where(largest > 0, damping, 1) * change, largest)
