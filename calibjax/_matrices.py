"""Arithmetic of small symmetric matrices in tiles of pairs, as `_arithmetic` does for vectors.

Batched linear algebra calls a library once per matrix, which for few dimensions costs ten and
more times the arithmetic. Vectors and matrices of up to `UNROLLED` dimensions are therefore lists
of their entries, of which the factorisations of sums of matrices are written out: they become
vector arithmetic over the pairs. What depends on one sample only is left to the library, as
everything is beyond `UNROLLED` dimensions, where vectors and matrices are arrays.
"""

import functools
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from calibjax._arithmetic import matmul

UNROLLED = 10  # beyond, the compilation would take too long

Vector = list[jax.Array] | jax.Array
Matrix = list[list[jax.Array]] | jax.Array  # the lower triangle, or all entries


class Factor(NamedTuple):
    """Factorisation I + A = L diag(1 + e) Lᵀ for a positive semi-definite A.

    Attributes:
        lower: L, unit lower triangular; in lists without its diagonal.
        excess: e ≥ 0, the pivots minus one, computed such that small ones keep their digits.
    """

    lower: Matrix
    excess: Vector

    @property
    def shrinkages(self) -> Vector:
        """1 / (1 + e), whose product is the determinant of (I + A)⁻¹."""
        if isinstance(self.excess, list):
            return [1 / (1 + e) for e in self.excess]
        return 1 / (1 + self.excess)


def _sum_of_products(*lists: list[jax.Array]) -> jax.Array | int:
    terms = [functools.reduce(operator.mul, factors) for factors in zip(*lists, strict=True)]
    return functools.reduce(operator.add, terms) if terms else 0


def vector(x: jax.Array) -> Vector:
    """Components of a vector [d]."""
    return [x[k] for k in range(x.shape[0])] if x.shape[0] <= UNROLLED else x


def matrix(a: jax.Array) -> Matrix:
    """Entries of a symmetric matrix [d, d]."""
    size = a.shape[0]
    return [[a[i, j] for j in range(i + 1)] for i in range(size)] if size <= UNROLLED else a


def add(x: Any, y: Any) -> Any:
    """Sum of two vectors, or of two matrices."""
    return list(map(add, x, y)) if isinstance(x, list) else x + y


def dot(x: Vector, y: Vector) -> jax.Array:
    """Inner product of two vectors."""
    return _sum_of_products(x, y) if isinstance(x, list) else jnp.sum(x * y)


def multiply(a: Matrix, x: Vector) -> Vector:
    """Product of a symmetric matrix and a vector."""
    if not isinstance(a, list):
        return jnp.sum(a * x, -1)
    rows = ([a[max(i, j)][min(i, j)] for j in range(len(a))] for i in range(len(a)))
    return [_sum_of_products(row, x) for row in rows]


def factor_sample(a: jax.Array) -> Factor:
    """Factors I + A for an array A [d, d] that belongs to one sample."""
    root = jnp.linalg.cholesky(jnp.eye(a.shape[0], dtype=a.dtype) + a)
    rest = jnp.diagonal(a) - jnp.sum(jnp.square(jnp.tril(root, -1)), -1)
    lower, excess = root / jnp.diagonal(root), jnp.where(rest < 0, 0, rest)
    if a.shape[0] > UNROLLED:
        return Factor(lower, excess)
    return Factor([[lower[i, j] for j in range(i)] for i in range(a.shape[0])], vector(excess))


def factor(a: Matrix) -> Factor:
    """Factors I + A, in d³ / 6 multiplications."""
    if not isinstance(a, list):
        return factor_sample(a)
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
    if not isinstance(x, list):
        return solve_triangular(factored.lower, x, lower=True, unit_diagonal=True)
    result = []
    for i, row in enumerate(factored.lower):
        result.append(x[i] - _sum_of_products(row, result))
    return result


def unwhiten(factored: Factor, x: Vector) -> Vector:
    """The vector L⁻ᵀ diag(1 + e)⁻¹ x."""
    if not isinstance(x, list):
        x = factored.shrinkages * x
        return solve_triangular(factored.lower, x, trans=1, lower=True, unit_diagonal=True)
    scaled = list(map(operator.mul, factored.shrinkages, x))
    result = []
    for i in reversed(range(len(x))):
        column = [row[i] for row in factored.lower[i + 1 :]]
        result.insert(0, scaled[i] - _sum_of_products(column, result))
    return result


def solve(factored: Factor, x: Vector) -> Vector:
    """(I + A)⁻¹ x."""
    return unwhiten(factored, whiten(factored, x))


def inverse(factored: Factor) -> Matrix:
    """(I + A)⁻¹, for derivatives of the determinant."""
    shrinkages = factored.shrinkages
    if not isinstance(shrinkages, list):
        identity = jnp.eye(shrinkages.shape[0], dtype=shrinkages.dtype)
        root = solve_triangular(factored.lower, identity, lower=True, unit_diagonal=True)
        return matmul(root.T * shrinkages, root)
    root = []  # L⁻¹ with its diagonal
    for i, row in enumerate(factored.lower):
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
    if not isinstance(a, list):
        return jnp.sum(a * b)
    rows = (
        2 * _sum_of_products(x[:-1], y[:-1]) + x[-1] * y[-1] for x, y in zip(a, b, strict=True)
    )
    return functools.reduce(operator.add, rows)
