"""Matrices of kernels on predictions, used through products only.

An operator is a record with the methods of `Operator`. A kernel on predictions may return its own
from a method `operator(predictions)`; otherwise `plan.operator_of` chooses among those here.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._core.arithmetic import matmul
from calibjax._core.pytree import PyTree, record
from calibjax.operators import line as lines
from calibjax.operators.tiles import BLOCK_SIZE, feature_sums, quadratic_forms, weighted_sums

_COLUMNS = 16  # values of many samples on a line whose forms are computed at once
Forms = tuple[jax.Array, jax.Array]
Features = Callable[[Any, Any], jax.Array]  # (args, xs) → features of m samples, [c, m]


class Operator:
    """Symmetric matrix K, [n, n], that need not be stored.

    Rows and columns are in the order of the predictions. A record of your own defines `@` and
    `diagonal`, which are traced; override `forms` to save time or memory. There are often hundreds
    of columns c: features of targets times redraws.
    """

    def forms(self, values: jax.Array) -> Forms:
        """Σ_{i≠j} v_ci K_ij v_cj and Σ_i K_ii v_ci² for values v, [c, n], [c] each."""
        on = matmul(jnp.square(values), self.diagonal)
        return jnp.sum(values * (self @ values.T).T, 1) - on, on

    def __matmul__(self, values: jax.Array) -> jax.Array:
        """K v for values v, [n, c]."""
        raise NotImplementedError(f"{type(self).__name__} does not define __matmul__(values)")

    @property
    def diagonal(self) -> jax.Array:
        """K_ii, [n]."""
        raise NotImplementedError(f"{type(self).__name__} does not define its diagonal")


@record
class Tiled(Operator):
    """Matrix of values function(args, x_i, x_j), evaluated in tiles.

    Attributes:
        args: first argument of the function.
        points: n points, a pytree with leading axis n.
        function: pair function (static).
    """

    args: Any
    points: Any
    function: Callable[[Any, Any, Any], jax.Array] = dataclasses.field(metadata={"static": True})

    def forms(self, values: jax.Array) -> Forms:
        """Forms from n² / 2 values of the function, and products of matrices."""
        return quadratic_forms(self.function, self.args, self.points, values.T)

    def __matmul__(self, values: jax.Array) -> jax.Array:
        """Product from n² values of the function."""
        return weighted_sums(self.function, self.args, self.points, self.points, values)

    @property
    def diagonal(self) -> jax.Array:
        """Values of pairs of a point with itself."""
        return jax.vmap(self.function, (None, 0, 0))(self.args, self.points, self.points)


@record
class LowRank(Operator):
    """K = F Fᵀ with a factor F, [n, s]."""

    factor: jax.Array

    def forms(self, values: jax.Array) -> Forms:
        """Forms in n s c multiplications."""
        on = matmul(jnp.square(values), self.diagonal)
        return jnp.sum(jnp.square(matmul(values, self.factor)), 1) - on, on

    def sums_of(self, features: Features, args: Any, xs: PyTree, weights: Any) -> Forms:
        """Σ_i w_i F_is f_c(x_i), [s, c], and Σ_i w_i² K_ii f_c(x_i)², [c]."""
        factor = self.factor if weights is None else self.factor * weights[:, None]
        norms = jnp.sum(jnp.square(factor), 1, keepdims=True)
        sums, squares = feature_sums(features, args, xs, factor, norms)
        return sums, squares[0]

    def __matmul__(self, values: jax.Array) -> jax.Array:
        """Product in 2 n s c multiplications."""
        return matmul(self.factor, matmul(self.factor.T, values))

    @property
    def diagonal(self) -> jax.Array:
        """Squared norms of the rows of F."""
        return jnp.sum(jnp.square(self.factor), 1)


@record
class OnLine(Operator):
    """Σ_t c_t exp(−r_t |x_i − x_j|), for points on a line: linear time, exact.

    Attributes:
        order: order of the points on the line, [n].
        positions: positions in this order, [n].
        terms: factors c and rates r, `lines.Exponentials`.
    """

    order: jax.Array
    positions: jax.Array
    terms: lines.Exponentials

    def forms(self, values: jax.Array) -> Forms:
        """Forms in n T c steps along the line; for many samples a few c at once."""
        upper = jax.checkpoint(lambda f: lines.line_forms(f.T, self.positions, self.terms))
        on, values = self.diagonal[0] * jnp.sum(jnp.square(values), 1), values[:, self.order]
        number, n = values.shape
        if n <= BLOCK_SIZE or number <= _COLUMNS:
            return 2 * upper(values), on
        filled = jnp.pad(values, ((0, -number % _COLUMNS), (0, 0)))
        forms = jax.lax.map(upper, filled.reshape(-1, _COLUMNS, n)).ravel()
        return 2 * forms[:number], on

    def __matmul__(self, values: jax.Array) -> jax.Array:
        """Product: half the derivative of the forms."""
        total = lambda values: sum(map(jnp.sum, self.forms(values)))  # noqa: E731
        return jax.grad(total)(values.T).T / 2

    @property
    def diagonal(self) -> jax.Array:
        """Sum of the factors, [n]."""
        return jnp.broadcast_to(jnp.sum(self.terms.factors), self.positions.shape)
