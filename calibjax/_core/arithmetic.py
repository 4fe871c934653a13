"""Arithmetic with the same results on every device, fast in tiles of pairs.

Pair functions are written for one pair and batched to tiles [rows, columns]. A sum over d
components then reduces the last axis of an array [rows, columns, d]. Compilers turn this into short
scalar loops. Unrolled over the components it is vector arithmetic over the pairs, five to twenty
times faster. Unrolling more than `UNROLLED` components would compile for too long, so longer sums
are loops over blocks of this size.

Matrices of up to `SMALL` dimensions, and the vectors that they multiply, are lists of entries, and
their factorisations are unrolled. Batched linear algebra calls a library once per matrix, which
takes at least ten times as long. Larger vectors and matrices are arrays, and factorisations loop
over the columns.

LAPACK is never called. In jaxlib 0.10 a batched LAPACK kernel occupies a thread of the pool while
it waits for other threads, so two such kernels deadlock on two cores.

Sums of products of arrays are written as `matmul`. On CPUs in float32, jaxlib 0.10.2 miscomputes
`jnp.sum` of a product if elementwise operations follow, one factor belongs to a single sample, and
the result has more than 32 768 entries: its YNN fusion reads the first factor out of bounds.
"""

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, overload

import jax
import jax.numpy as jnp
from jax import export, lax
from jax.typing import ArrayLike, DTypeLike

UNROLLED = 32
SMALL = 10  # dimensions up to which matrices are unrolled
_FEW_SUMMANDS = 1e-3  # times 1/eps: sums of this many equal numbers have relative errors of 1e-3

# By default accelerators multiply float32 matrices with a precision of three digits.
_EXACTLY = {"precision": lax.Precision.HIGHEST}
matmul = functools.partial(jnp.matmul, **_EXACTLY)
tensordot = functools.partial(jnp.tensordot, **_EXACTLY)
einsum = functools.partial(jnp.einsum, **_EXACTLY)


@jax.custom_jvp
def safe_sqrt(x: jax.Array) -> jax.Array:
    """Square root whose derivative at zero is zero instead of infinite."""
    return jnp.sqrt(x)


safe_sqrt.defjvps(lambda dx, root, x: jnp.where(x == 0, 0, 0.5 / jnp.where(x == 0, 1, root)) * dx)


@jax.custom_jvp
def reciprocal(x: jax.Array) -> jax.Array:
    """Reciprocal 1 / x whose derivative needs no division of its own."""
    return 1 / x


# In other units the square of the inverse overflows.
reciprocal.defjvps(lambda dx, inverse, x: -inverse * (inverse * dx))


@jax.custom_jvp
def ratio(x: jax.Array, unit: jax.Array) -> jax.Array:
    """Ratio x / unit whose derivatives avoid powers of the unit, which could overflow."""
    return jnp.divide(x, unit)


ratio.defjvps(
    lambda dx, value, x, unit: reciprocal(unit) * dx,
    lambda d_unit, value, x, unit: -value * (reciprocal(unit) * d_unit),
)


@jax.custom_jvp
def logarithm(x: jax.Array) -> jax.Array:
    """Logarithm whose derivatives avoid powers of x, which could overflow."""
    return jnp.log(x)


logarithm.defjvps(lambda dx, value, x: reciprocal(x) * dx)


def unit_and_rate(largest: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Unit u and rate 1 / u such that squares of differences, in this unit, stay finite.

    The unit is one unless the numbers are so large or small that squares would overflow or
    underflow. It has no derivatives. For two points take the larger unit and the smaller rate.
    """
    largest = lax.stop_gradient(largest)
    limits = jnp.finfo(largest.dtype)
    is_far = (largest < limits.tiny**0.25) | (largest > limits.max**0.4) & jnp.isfinite(largest)
    unit = jnp.where(is_far, jnp.maximum(largest, limits.tiny), 1)
    return unit, 1 / unit


@jax.custom_jvp
def absolute(x: jax.Array) -> jax.Array:
    """Absolute value with derivative zero at zero; JAX's derivative is one there."""
    return jnp.abs(x)


absolute.defjvps(lambda dx, value, x: jnp.sign(x) * dx)


def one_hot(labels: jax.Array, num_classes: int, dtype: DTypeLike) -> jax.Array:
    """One-hot labels, [..., m]; NaN for labels out of range, for which JAX returns zeros."""
    is_label = (labels >= 0) & (labels < num_classes)
    encoded = jax.nn.one_hot(labels, num_classes, dtype=dtype)
    return jnp.where(is_label[..., None], encoded, jnp.nan)


def difference(x: ArrayLike, y: ArrayLike) -> jax.Array:
    """Difference x − y as a floating-point number, also for integers whose difference overflows."""
    if jnp.issubdtype(jnp.result_type(x, y), jnp.floating):
        return jnp.subtract(x, y)
    x, y = jnp.asarray(x, int), jnp.asarray(y, int)
    return jnp.where((x < 0) == (y < 0), (x - y) * 1.0, x * 1.0 - y * 1.0)


def on_cpu() -> bool:
    """Whether JAX's default device is a CPU, where small loop steps are faster than large ones.

    Both kinds of loops give the same values on every platform.
    """
    return jax.default_backend() == "cpu"


def floating_dtype(tree: object) -> jnp.dtype:
    """Common dtype of the floating-point leaves; JAX's default if there are none."""
    dtypes = (jnp.result_type(leaf) for leaf in jax.tree.leaves(tree))
    floating = [d for d in dtypes if jnp.issubdtype(d, jnp.floating)] or [float]
    return jnp.result_type(*floating)


def largest_score(dtype: DTypeLike) -> float:
    """Normal score of the largest level below one."""
    return 8.2 if dtype == jnp.float64 else 5.2


def components(x: ArrayLike) -> list[jax.Array]:
    """List of the components of a short vector; a long one is returned as an array."""
    x = jnp.asarray(x)
    if 1 <= x.size <= UNROLLED and x.ndim == 1:
        return [part.reshape(()) for part in jnp.split(x, x.size)]
    return [x]


def sum_over_components(function: Callable[..., jax.Array], *points: ArrayLike) -> jax.Array:
    """Sum of an elementwise function of the components of arrays of equal shape, a scalar."""
    arrays = [jnp.asarray(x) for x in points]
    size = arrays[0].size

    def added(parts: list[jax.Array]) -> jax.Array:
        lists = (x if isinstance(x, list) else components(x) for x in parts)
        return functools.reduce(jnp.add, (function(*x) for x in zip(*lists, strict=True)))

    if size <= UNROLLED:
        return jnp.sum(added(arrays))  # of one number: a scalar
    rest = size % UNROLLED
    parts = [jnp.split(jnp.ravel(x), [size - rest]) for x in arrays]

    # Without it, derivatives would hold the terms of all components of all pairs of a tile.
    @jax.checkpoint
    def step(before: jax.Array, block: list[jax.Array]) -> tuple[jax.Array, None]:
        return before + added(block), None

    blocks = [part[0].reshape(-1, UNROLLED) for part in parts]
    last = [part[1] for part in parts]
    dtype = jax.eval_shape(function, *(block[0, 0] for block in blocks)).dtype
    first = added(last) if rest else jnp.zeros((), dtype)
    return lax.scan(step, first, blocks)[0]


def weighted_mean(weights: jax.Array, x: jax.Array) -> jax.Array:
    """Σ_k w_k x_k over the leading axis, for weights whose sum is one up to rounding.

    Rounding of the weights causes an error of eps times the values, even if the values are close to
    each other. Averaging the deviations from a first mean removes it.
    """
    rough = tensordot(weights, x, 1)
    centre = jnp.where(jnp.isfinite(rough), rough, 0)
    return rough + jnp.where(jnp.isfinite(rough), tensordot(weights, x - centre, 1), 0)


def mean_and_error(
    values: jax.Array, weights: jax.Array | None, clusters: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Mean of the values of samples and its standard error, sd / √n.

    Weights are scaled such that Σ_i w_i = Σ_i w_i² = n. The variance is then
    Σ_i w_i² (x_i − x̄)² / n² times n / (n − 1), also valid if weights and values are correlated.
    Values with weight zero are ignored. Clusters are numbers in 0, ..., samples − 1. With s_c the
    sum of w_i (x_i − x̄) within cluster c, the variance is Σ_c s_c² / n² times G / (G − 1) for G
    clusters.
    """
    masses = jnp.ones_like(values) if weights is None else weights
    values = values if weights is None else jnp.where(weights > 0, values, 0)
    n = number = jnp.sum(masses)
    mean = jnp.sum(masses * values) / n
    terms = masses * (values - mean)
    if clusters is not None:
        zeros = jnp.zeros_like(values)
        terms = zeros.at[clusters].add(terms)
        number = jnp.sum(zeros.at[clusters].add(masses) > 0)
    squares = jnp.sum(jnp.square(terms)) / n
    return mean, safe_sqrt(squares / n * (number / (number - 1)))


def segment_sums(
    values: jax.Array, index: jax.Array, sizes: jax.Array, weights: jax.Array | None = None
) -> jax.Array:
    """Weighted sums of values [n, ...] over segments of sizes [K]: [K, ...].

    A long sum of equal numbers loses digits: a million times 0.9 has an error of one percent in
    single precision. The deviations from the means are therefore summed again, twice; the sum of
    ten million equal numbers then has an error of 5e-4.
    """

    def summed(values: jax.Array) -> jax.Array:
        values = values if weights is None else (weights * values.T).T
        return jax.ops.segment_sum(values, index, sizes.shape[0])

    n, sums = values.shape[0], summed(values)
    if export.is_symbolic_dim(n) or n <= _FEW_SUMMANDS / jnp.finfo(values.dtype).eps:
        return sums
    divisors = jnp.where(sizes == 0, 1, sizes).astype(values.dtype)
    for _ in range(2):
        means = (sums.T / divisors).T
        # Without a barrier XLA would add them to the sums one by one, where they are lost.
        sums += lax.optimization_barrier(summed(values - means[index]))
    return sums


def weighted_variance(weights: jax.Array, x: jax.Array) -> jax.Array:
    """Σ_k w_k (x_k − mean)² over the leading axis, minus the squared rounding error of the mean."""
    deviations = x - weighted_mean(weights, x)
    rest = tensordot(weights, deviations, 1)
    return tensordot(weights, jnp.square(deviations), 1) - jnp.square(rest)


Vector = list[jax.Array] | jax.Array
Matrix = list[list[jax.Array]] | jax.Array  # the lower triangle, or all entries


class Factor(NamedTuple):
    """Factorisation I + A = L diag(1 + e) Lᵀ for a positive semi-definite A.

    Attributes:
        lower: L, unit lower triangular; the entries below the diagonal, zeros elsewhere.
        excess: e ≥ 0, the pivots minus one; small ones keep their digits.
    """

    lower: Matrix
    excess: Vector

    @property
    def shrinkages(self) -> Vector:
        """1 / (1 + e), whose product is the determinant of (I + A)⁻¹."""
        return jax.tree.map(lambda e: 1 / (1 + e), self.excess)


def _sum_of_products(*lists: Iterable[jax.Array | int]) -> Any:
    """Sum of products as an array; zero for an empty list."""
    terms = [functools.reduce(operator.mul, factors) for factors in zip(*lists, strict=True)]
    return functools.reduce(operator.add, terms) if terms else 0


def vector(x: jax.Array) -> Vector:
    """Components of a vector [d]."""
    return [x[k] for k in range(x.shape[0])] if x.shape[0] <= SMALL else x


def matrix(a: jax.Array) -> Matrix:
    """Entries of a symmetric matrix [d, d]."""
    size = a.shape[0]
    return [[a[i, j] for j in range(i + 1)] for i in range(size)] if size <= SMALL else a


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
    """Lower triangular factor L of A = L Lᵀ, [d, d]; NaN if A is not positive definite."""
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
