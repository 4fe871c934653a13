"""The form of everything that estimates ⟨p − E[e_Y | p], q − E[e_Y | q]⟩ for two predictions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from calibjax import _checks
from calibjax._arithmetic import matmul
from calibjax.risk.samples import checked_points, vectors


class EstimationFunction(NamedTuple):
    """Pure functions that learn a calibration estimation function h, and evaluate it.

        h(p, q) ≈ h*(p, q) = ⟨p − E[e_Y | p], q − E[e_Y | q]⟩,

    so that the mean of h(p_i, p_i) over other predictions estimates the squared calibration error.
    h is symmetric. `fit` and `evaluate` are all that a function of your own needs; the others save
    time. For `cross_validate` they are called with tracers, and have to be functions that live as
    long as the program, or `jax.tree_util.Partial` of such with arrays as arguments: compiled code
    is cached by their identity.

    Attributes:
        fit: (predictions, targets, hyperparameter) → params, a pytree of arrays.
        evaluate: (params, p, q) → values h(p_i, q_j) of two batches, [n, n'].
        factors: (params, p) → two arrays [n, r], left and right, with
            h(p_i, q_j) = Σ_k left(p)_ik right(q)_jk. With them the diagonal takes O(n r), and the
            risk O(n r²).
        refit: (params, hyperparameter) → params for another hyperparameter and the same data, so
            that a whole grid shares what is expensive. Without it `fit` is called again.
        specialise: (predictions, grid) → the estimation function with all sizes fixed that depend
            on values, which compiled code cannot look at; it refuses grids that are wrong.

    Predictions are a batch of n class distributions, or confidences: an array [n], with targets
    0 and 1.

    References: G24 eq. (12) and §3.2.2.
    """

    fit: Callable[[Any, Any, Any], Any]
    evaluate: Callable[[Any, Any, Any], jax.Array]
    factors: Callable[[Any, Any], tuple[jax.Array, jax.Array]] | None = None
    refit: Callable[[Any, Any], Any] | None = None
    specialise: Callable[[Any, Any], "EstimationFunction"] | None = None

    def diagonal(self, params: Any, p: Any) -> jax.Array:
        """Values h(p_i, p_i) of a batch of predictions, [n]."""
        p = checked_points(p)
        if self.factors is not None:
            left, right = self.factors(params, p)
            return jnp.sum(left * right, -1)

        def one(p: Any) -> jax.Array:
            batch = jax.tree.map(lambda leaf: leaf[None], p)
            values = self.evaluate(params, batch, batch)
            _checks.shape("function.evaluate", values, (1, 1), "[n, n'] = (1, 1)")
            return values[0, 0]

        return jax.vmap(one)(p)


def evaluate_factors(factors: Callable, params: Any, p: Any, q: Any) -> jax.Array:
    """Values h(p_i, q_j) from the factors, [n, n']."""
    p = checked_points(p)
    left = factors(params, p)[0]
    q = checked_points(q, vectors(p).shape[1], "q")
    return matmul(left, factors(params, q)[1].T)
