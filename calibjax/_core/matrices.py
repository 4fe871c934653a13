"""Arithmetic of small symmetric matrices in tiles of pairs, as `arithmetic` does for vectors.

Vectors and matrices of up to `UNROLLED` dimensions are lists of their entries, and factorisations
are written out, so that they become vector arithmetic over the pairs. Batched linear algebra
calls a library once per matrix, which takes ten and more times as long. Beyond, vectors and
matrices are arrays, and factorisations loop over the columns, as do those of single samples,
which would only take time to compile if they were written out.

The library is not called at all: in jaxlib 0.10 a batched LAPACK kernel waits, within a thread of
the pool, for other threads of it, so that two kernels at a time wait forever on two cores.

Sums of products of arrays are written as `matmul`. As products under `jnp.sum` with something
elementwise after it, jaxlib 0.10.2 computes them wrongly on CPUs, in float32, if one factor belongs
to one sample and the result has more than 32 768 entries: its YNN fusion makes a matrix product of
them and reads the first factor at places where it has no entries.
"""

import functools
import operator
from collections.abc import Iterable
from typing import Any, NamedTuple, overload

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core.arithmetic import matmul

UNROLLED = 10  # beyond, the compilation would take too long

Vector = list[jax.Array] | jax.Array
Matrix = list[list[jax.Array]] | jax.Array  # the lower triangle, or all entries


class Factor(NamedTuple):
    """Factorisation I + A = L diag(1 + e) Lᵀ for a positive semi-definite A.

    Attributes:
        lower: L, unit lower triangular; the entries below the diagonal, zeros elsewhere.
        excess: e ≥ 0, the pivots minus one, computed such that small ones keep their digits.
    """

    lower: Matrix
    excess: Vector

    @property
    def shrinkages(self) -> Vector:
        """1 / (1 + e), whose product is the determinant of (I + A)⁻¹."""
        return jax.tree.map(lambda e: 1 / (1 + e), self.excess)


def _sum_of_products(*lists: Iterable[jax.Array | int]) -> Any:
    """An array; zero if there is no product."""
    terms = [functools.reduce(operator.mul, factors) for factors in zip(*lists, strict=True)]
    return functools.reduce(operator.add, terms) if terms else 0


def vector(x: jax.Array) -> Vector:
    """Components of a vector [d]."""
    return [x[k] for k in range(x.shape[0])] if x.shape[0] <= UNROLLED else x


def matrix(a: jax.Array) -> Matrix:
    """Entries of a symmetric matrix [d, d]."""
    size = a.shape[0]
    return [[a[i, j] for j in range(i + 1)] for i in range(size)] if size <= UNROLLED else a


def dot(x: Vector, y: Vector) -> jax.Array:
    """Inner product of two vectors."""
    if isinstance(x, list) or isinstance(y, list):
        return _sum_of_products(x, y)
    return matmul(x, y)


def multiply(a: Matrix, x: Vector) -> Vector:
    """Product of a symmetric matrix and a vector."""
    if not (isinstance(a, list) or isinstance(x, list)):
        return matmul(a, x)
    rows = ([a[max(i, j)][min(i, j)] for j in range(len(a))] for i in range(len(a)))
    return [_sum_of_products(row, x) for row in rows]


def cholesky(a: jax.Array) -> jax.Array:
    """Lower triangular factor L of an array A = L Lᵀ [d, d]; NaN where A is not definite."""
    return _cholesky(0.5 * (a + a.T))  # derivatives are symmetric too


@jax.custom_jvp
def _cholesky(a: jax.Array) -> jax.Array:
    index = jnp.arange(a.shape[0])

    def eliminate(k: int, rest: jax.Array) -> jax.Array:
        column = jnp.where(index >= k, rest[:, k], 0) / jnp.sqrt(rest[k, k])
        updated = jnp.where(index > k, rest - column[:, None] * column, rest)
        return jnp.where(index == k, column[:, None], updated)

    return jnp.tril(lax.fori_loop(0, a.shape[0], eliminate, a))


@_cholesky.defjvp
def _cholesky_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    """L Φ(L⁻¹ dA L⁻ᵀ), where Φ takes the lower triangle and half of the diagonal."""
    root = _cholesky(*primals)
    half = solve_lower(root, tangents[0])
    whitened = solve_lower(root, half.T)
    lower = jnp.tril(whitened) - 0.5 * jnp.diag(jnp.diagonal(whitened))
    return root, matmul(root, lower)


def solve_lower(root: jax.Array, x: jax.Array) -> jax.Array:
    """L⁻¹ x for a lower triangular L [d, d] and a vector [d] or a matrix [d, m]."""
    diagonal = jnp.diagonal(root).reshape(-1, *(1,) * (x.ndim - 1))
    return _forward(jnp.tril(root, -1) / jnp.diagonal(root), x) / diagonal


def _forward(lower: jax.Array, x: jax.Array) -> jax.Array:
    """(I + L)⁻¹ x for a strictly lower triangular L."""
    column = (slice(None), *(None,) * (x.ndim - 1))
    return lax.fori_loop(0, x.shape[0], lambda k, x: x - lower[:, k][column] * x[k], x)


def _backward(lower: jax.Array, x: jax.Array) -> jax.Array:
    """(I + L)⁻ᵀ x for a strictly lower triangular L and a vector [d]."""
    last = x.shape[0] - 1
    return lax.fori_loop(0, last, lambda i, x: x - lower[last - i] * x[last - i], x)


def factor_sample(a: jax.Array) -> Factor:
    """Factors I + A for an array A [d, d] that belongs to one sample."""
    lower, excess = _factor_array(a)
    if a.shape[0] > UNROLLED:
        return Factor(lower, excess)
    return Factor([list(vector(row))[:i] for i, row in enumerate(lower)], vector(excess))


def _factor_array(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    root = cholesky(jnp.eye(a.shape[0], dtype=a.dtype) + a)
    below = jnp.tril(root, -1)
    excess = jnp.diagonal(a) - jnp.sum(jnp.square(below), -1)
    return below / jnp.diagonal(root), jnp.where(excess < 0, 0, excess)


def factor(a: Matrix) -> Factor:
    """Factors I + A, in d³ / 6 multiplications."""
    if not isinstance(a, list):
        return Factor(*_factor_array(a))
    lower, excess, shrinkages = [], [], []
    for i, row in enumerate(a):
        scaled = []  # L_ij (1 + e_j)
        for j in range(i):
            scaled.append(row[j] - _sum_of_products(scaled, lower[j]))
        lower.append(list(map(operator.mul, scaled, shrinkages)))
        rest = row[i] - _sum_of_products(scaled, lower[i])
        excess.append(jnp.where(rest < 0, 0, rest))  # which only rounding makes negative
        shrinkages.append(1 / (1 + excess[i]))
    return Factor(lower, excess)


def whiten(factored: Factor, x: Vector) -> Vector:
    """L⁻¹ x."""
    lower = factored.lower
    if not (isinstance(lower, list) or isinstance(x, list)):
        return _forward(lower, x)
    result = []
    for i, row in enumerate(lower):
        result.append(x[i] - _sum_of_products(row, result))
    return result


@overload
def solve(factored: Factor, x: list[jax.Array]) -> list[jax.Array]: ...
@overload
def solve(factored: Factor, x: jax.Array) -> jax.Array: ...
def solve(factored: Factor, x: Vector) -> Vector:
    """(I + A)⁻¹ x = L⁻ᵀ diag(1 + e)⁻¹ L⁻¹ x."""
    lower, shrinkages, x = factored.lower, factored.shrinkages, whiten(factored, x)
    if not (isinstance(lower, list) or isinstance(shrinkages, list) or isinstance(x, list)):
        return _backward(lower, shrinkages * x)
    scaled = list(map(operator.mul, shrinkages, x))
    result = []
    for i in reversed(range(len(x))):
        column = [row[i] for row in lower[i + 1 :]]
        result.insert(0, scaled[i] - _sum_of_products(column, result))
    return result


def inverse(factored: Factor) -> Matrix:
    """(I + A)⁻¹, for derivatives of the determinant."""
    lower, shrinkages = factored.lower, factored.shrinkages
    if not (isinstance(lower, list) or isinstance(shrinkages, list)):
        identity = jnp.eye(shrinkages.shape[0], dtype=shrinkages.dtype)
        root = _forward(lower, identity)
        return matmul(root.T * shrinkages, root)
    root = []  # L⁻¹ with its diagonal
    for i, row in enumerate(lower):
        below = [
            -row[j] - _sum_of_products(row[j + 1 :], [root[k][j] for k in range(j + 1, i)])
            for j in range(i)
        ]
        root.append([*below, 1])

    def entry(i: int, j: int) -> jax.Array:
        return _sum_of_products(shrinkages[i:], *([row[k] for row in root[i:]] for k in (i, j)))

    return [[entry(i, j) for j in range(i + 1)] for i in range(len(root))]


def inner(a: Matrix, b: Matrix) -> jax.Array:
    """Inner product tr(A B) of two symmetric matrices."""
    if not (isinstance(a, list) or isinstance(b, list)):
        return dot(a.ravel(), b.ravel())
    rows = (2 * _sum_of_products(x[:-1], y[:-1]) + x[-1] * y[-1] for x, y in zip(a, b, strict=True))
    return functools.reduce(operator.add, rows)
