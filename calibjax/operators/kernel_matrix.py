"""Matrices of kernels on predictions, used through products only.

An operator is a record with the methods of `Operator`. A kernel on predictions may return its own
from a method `operator(predictions)`; otherwise `plan.operator_of` chooses among those here.

Sums over pairs of points on a line, with exponential kernels, are exact and take linear time. Let x
be in ascending order, and r ≥ 0 a rate. The sum of all earlier samples at x_j,

    S_j = Σ_{i<j} e^{−r (x_j − x_i)} f_i = e^{−r (x_j − x_{j−1})} (S_{j−1} + f_{j−1}),

follows from one pass, and Σ_{i<j} e^{−r |x_i − x_j|} f_i f_j = Σ_j f_j S_j. All factors are at most
1, so rounding errors do not grow.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core.arithmetic import einsum, matmul, on_cpu
from calibjax._core.environment import jit_long
from calibjax._core.pytree import PyTree, record, varying_as
from calibjax.operators.tiles import BLOCK_SIZE, feature_sums, quadratic_forms, weighted_sums

_COLUMNS = 16  # values of many samples on a line whose forms are computed at once
_UNROLLED = 8  # steps of a loop
# Numbers in each step, if parts of the line are processed in parallel.
_WIDTH, _ACCELERATOR_WIDTH = 128, 2**15
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
class Exponentials:
    """Terms of a kernel Σ_t c_t exp(−r_t d).

    Attributes:
        factors: c, [T].
        rates: r, [T].
    """

    factors: jax.Array
    rates: jax.Array


def _sums_before(
    decays: Callable[[jax.Array], jax.Array], positions: jax.Array, values: jax.Array, number: int
) -> jax.Array:
    """Sums at each sample over the previous samples, [n, T, c].

    The line is cut into parts, which are processed in parallel. With √n parts, rounding errors are
    those of √n steps.

    Args:
        decays: exp(−r d) for distances d, [..., T].
        positions: of the samples in ascending order, [n].
        values: of each sample, [n, T, c].
        number: number of parts.
    """
    filled = jnp.pad(positions, (0, -len(positions) % number), mode="edge")
    at = filled.reshape(number, -1)
    f = jnp.moveaxis(_in_parts(values, number), 1, 0)  # [L, parts, T, c]
    first = at[:, :1]
    steps = jnp.moveaxis(decays(jnp.diff(at, axis=1, prepend=first)), 1, 0)[..., None]

    def step(sent: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        decay, value = row
        return decay * sent + value, decay * sent

    start = varying_as(jnp.zeros_like(f, shape=f.shape[1:]), (steps, f))
    total, before = lax.scan(step, start, (steps, f), unroll=_UNROLLED)
    # Sums of previous parts at the first sample of a part are passed on to its samples.
    is_before = jnp.tri(number, k=-1, dtype=bool)
    sender = jnp.where(is_before, at[:, -1], first)
    across = jnp.where(is_before[..., None], decays(first - sender), 0)
    arrived = einsum("abt,btc->atc", across, total)
    before += jnp.moveaxis(decays(at - first)[..., None] * arrived[:, None], 1, 0)
    return jnp.moveaxis(before, 0, 1).reshape(-1, *before.shape[2:])[: len(values)]


def _in_parts(values: jax.Array, number: int) -> jax.Array:
    """Rows cut into parts, the last one padded with zeros, [number, L, ...]."""
    pad = (0, -len(values) % number), *[(0, 0)] * (values.ndim - 1)
    return jnp.pad(values, pad).reshape(number, -1, *values.shape[1:])


@jit_long
def line_forms(values: jax.Array, positions: jax.Array, terms: Exponentials) -> jax.Array:
    """Σ_{i<j} K_ij f_ic f_jc of a kernel on a line, [c].

    It has derivatives of all orders. Derivatives between samples at one place are returned as zero.

    Args:
        values: f, [n, c].
        positions: x in ascending order, [n].
        terms: T terms of the kernel.

    Cost: O(n T c) time and memory.

    >>> import jax.numpy as jnp
    >>> from calibjax.operators.kernel_matrix import Exponentials, line_forms
    >>> values, positions = jnp.array([[1.0], [2.0], [3.0]]), jnp.array([0.0, 0.0, 5.0])
    >>> terms = Exponentials(jnp.array([1.0]), jnp.array([100.0]))  # of equal points
    >>> print(line_forms(values, positions, terms))
    [2.]
    """
    rates, width = terms.rates, (terms.rates.size + 1) * values.shape[1]
    # With √n parts rounding errors are those of √n steps, and n numbers connect the parts.
    root, most = math.isqrt(len(values)), len(values) // 32
    number = max(_WIDTH // width, root)
    number = number if on_cpu() else min(_ACCELERATOR_WIDTH // width, 4 * root)
    number = max(1, min(most, number))
    # Derivatives by a position follow from its contributions to and from other places. Samples at
    # one place have no such derivatives, and are summed separately.
    fixed = lax.stop_gradient(positions)
    change = ((positions - fixed)[:, None] * rates)[..., None]  # [n, T, 1]
    every = jnp.concatenate([jnp.exp(change) * values[:, None], values[:, None]], 1)

    def decays(distance: jax.Array) -> jax.Array:
        elsewhere = (distance == 0).astype(distance.dtype)[..., None]
        return jnp.concatenate([jnp.exp(-distance[..., None] * rates), elsewhere], -1)

    before = _sums_before(decays, fixed, every, number)
    places = jnp.arange(len(values))
    first = lax.cummax(jnp.where(jnp.diff(fixed, prepend=fixed[:1]) > 0, places, 0))
    received = jnp.exp(-change) * before[first, :-1]
    alike = jnp.sum(terms.factors) * before[:, -1]  # [n, c]
    products = values * (einsum("t,ntc->nc", terms.factors, received) + alike)
    # In two steps: a long sum of single numbers loses digits.
    return jnp.sum(jnp.sum(_in_parts(products, number), 1), 0)


@record
class OnLine(Operator):
    """Σ_t c_t exp(−r_t |x_i − x_j|), for points on a line: linear time, exact.

    Attributes:
        order: order of the points on the line, [n].
        positions: positions in this order, [n].
        terms: factors c and rates r, `Exponentials`.
    """

    order: jax.Array
    positions: jax.Array
    terms: Exponentials

    def forms(self, values: jax.Array) -> Forms:
        """Forms in n T c steps along the line; for many samples a few c at once."""
        upper = jax.checkpoint(lambda f: line_forms(f.T, self.positions, self.terms))
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
