"""Arithmetic that is the same on every device and fast in tiles of pairs.

Pair functions are written for one pair and batched to tiles [rows, columns]. A sum over d
components then reduces the last axis of an array [rows, columns, d], which compilers do in short
scalar loops. Written out over the components it becomes vector arithmetic over the pairs, five to
twenty times faster. Beyond `UNROLLED` components the compilation would take too long; sums over
more of them are loops over that many at a time.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike, DTypeLike

UNROLLED = 32
_FEW_SUMMANDS = 1e-3  # times 1/eps: sums of this many equal numbers have relative errors of 1e-3

# Accelerators multiply float32 matrices with three digits unless they are told otherwise.
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
    """Ratio x / unit whose derivatives do not take powers of the unit, which overflow."""
    return jnp.divide(x, unit)


ratio.defjvps(
    lambda dx, value, x, unit: reciprocal(unit) * dx,
    lambda d_unit, value, x, unit: -value * (reciprocal(unit) * d_unit),
)


@jax.custom_jvp
def logarithm(x: jax.Array) -> jax.Array:
    """Logarithm whose derivatives do not take powers of x, which overflow, either."""
    return jnp.log(x)


logarithm.defjvps(lambda dx, value, x: reciprocal(x) * dx)


def unit_and_rate(largest: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A unit u and 1 / u in which differences of numbers up to the largest have finite squares.

    It is one unless the numbers are so large or small that squares would overflow or underflow,
    and has no derivatives. For two points take the larger unit and the smaller rate.
    """
    largest = lax.stop_gradient(largest)
    limits = jnp.finfo(largest.dtype)
    is_far = (largest < limits.tiny**0.25) | (largest > limits.max**0.4) & jnp.isfinite(largest)
    unit = jnp.where(is_far, jnp.maximum(largest, limits.tiny), 1)
    return unit, 1 / unit


@jax.custom_jvp
def absolute(x: jax.Array) -> jax.Array:
    """Absolute value whose derivative at zero is zero, where JAX's is one."""
    return jnp.abs(x)


absolute.defjvps(lambda dx, value, x: jnp.sign(x) * dx)


def one_hot(labels: jax.Array, num_classes: int, dtype: DTypeLike) -> jax.Array:
    """One-hot encoded labels, [..., m]; NaN for labels out of range, which JAX makes zeros."""
    is_label = (labels >= 0) & (labels < num_classes)
    encoded = jax.nn.one_hot(labels, num_classes, dtype=dtype)
    return jnp.where(is_label[..., None], encoded, jnp.nan)


def difference(x: ArrayLike, y: ArrayLike) -> jax.Array:
    """Difference x − y as a floating-point number, also of integers where it would overflow."""
    dtype = jnp.result_type(x, y)
    if not (jnp.issubdtype(dtype, jnp.integer) or dtype == jnp.bool_):
        return jnp.subtract(x, y)
    if dtype == jnp.bool_ or jnp.iinfo(dtype).bits < 32:
        dtype = jnp.dtype(jnp.int32)
    x, y = jnp.asarray(x, dtype), jnp.asarray(y, dtype)
    if jnp.issubdtype(dtype, jnp.unsignedinteger):
        return jnp.where(x < y, -((y - x) * 1.0), (x - y) * 1.0)
    return jnp.where((x < 0) == (y < 0), (x - y) * 1.0, x * 1.0 - y * 1.0)


def on_cpu() -> bool:
    """Whether JAX computes on a CPU unless told otherwise: loops are fast there, large steps slow.

    Both ways have the same values, on all platforms.
    """
    return jax.default_backend() == "cpu"


def floating_dtype(tree: object) -> jnp.dtype:
    """Common dtype of the floating-point leaves, JAX's own where there are none."""
    dtypes = (jnp.result_type(leaf) for leaf in jax.tree.leaves(tree))
    floating = [d for d in dtypes if jnp.issubdtype(d, jnp.floating)] or [float]
    return jnp.result_type(*floating)


def largest_score(dtype: DTypeLike) -> float:
    """The normal score of a level that differs from one by the last digit."""
    return 8.2 if dtype == jnp.float64 else 5.2


def components(x: ArrayLike) -> list[jax.Array]:
    """The components of a vector one by one if they are few, otherwise the array as it is."""
    x = jnp.asarray(x)
    if 1 <= x.size <= UNROLLED and x.ndim == 1:
        return [part.reshape(()) for part in jnp.split(x, x.size)]
    return [x]


def map_components(
    function: Callable[..., jax.Array], *points: ArrayLike | list[jax.Array]
) -> list[jax.Array]:
    """Elementwise function of the components of points (arrays, or lists of components)."""
    lists = (x if isinstance(x, list) else components(x) for x in points)
    return [function(*parts) for parts in zip(*lists, strict=True)]


def sum_over_components(function: Callable[..., jax.Array], *points: ArrayLike) -> jax.Array:
    """Sum of an elementwise function of the components of arrays of equal shape, a scalar."""
    return fold_components(jnp.add, 0, function, *points)


def fold_components(
    combine: Callable[..., jax.Array],
    identity: float,
    function: Callable[..., jax.Array],
    *points: ArrayLike,
) -> jax.Array:
    """`sum_over_components` with another associative function than the sum, and its identity."""
    arrays = [jnp.asarray(x) for x in points]
    size = arrays[0].size

    def folded(parts: list[jax.Array]) -> jax.Array:
        return functools.reduce(combine, map_components(function, *parts))

    if size <= UNROLLED:
        return jnp.sum(folded(arrays))  # of one number: a scalar
    rest = size % UNROLLED
    parts = [jnp.split(jnp.ravel(x), [size - rest]) for x in arrays]

    # Without it, derivatives would hold the terms of all components of all pairs of a tile.
    @jax.checkpoint
    def step(before: jax.Array, block: list[jax.Array]) -> tuple[jax.Array, None]:
        return combine(before, folded(block)), None

    blocks = [part[0].reshape(-1, UNROLLED) for part in parts]
    last = [part[1] for part in parts]
    dtype = jax.eval_shape(function, *(block[0, 0] for block in blocks)).dtype
    first = folded(last) if rest else jnp.full((), identity, dtype)
    return lax.scan(step, first, blocks)[0]


def dot(x: list[jax.Array], weights: list[jax.Array]) -> jax.Array:
    """Sum of products of components, which are scalars."""
    return functools.reduce(jnp.add, map(jnp.multiply, x, weights))


def weighted_mean(weights: jax.Array, x: jax.Array) -> jax.Array:
    """Σ_k w_k x_k over the leading axis, for weights whose sum is one up to rounding.

    Rounded weights times values far from zero are off by eps times the values, however close to
    each other these are. So the deviations from such a mean are averaged again.
    """
    rough = tensordot(weights, x, 1)
    centre = jnp.where(jnp.isfinite(rough), rough, 0)
    return rough + jnp.where(jnp.isfinite(rough), tensordot(weights, x - centre, 1), 0)


def mean_and_error(
    values: jax.Array, weights: jax.Array | None, clusters: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Mean of the values of samples and its standard error, sd / √n.

    With weights, whose sum n is that of their squares, the variance is Σ_i w_i² (x_i − x̄)² / n²
    times n / (n − 1), which is right for weights that have to do with the values as well. Values
    that do not count may be anything. With clusters in 0, ..., samples − 1 it is the sum of the
    squares of Σ_i w_i (x_i − x̄) within each of G clusters / n², times G / (G − 1).
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
    """Sums of values [n, ...] of each segment, [K, ...], of given sizes [K], with their weights.

    A long sum of numbers that are equal, or of few values, loses digits: a million times 0.9 in
    single precision has an error of a percent. So √n blocks are summed by themselves where there
    are not too many segments, and the deviations from the means are summed again, twice if there
    are as many segments as samples, of which ten million equal ones have an error of 5e-4.
    """
    n, number = len(values), len(sizes)
    if n <= _FEW_SUMMANDS / jnp.finfo(values.dtype).eps:
        return jax.ops.segment_sum(_weighted(values, weights), index, number)
    blocks = max(1, min(math.isqrt(n), n // number))
    is_inside = (index >= 0) & (index < number)
    place = jnp.arange(n, dtype=jnp.int32) // -(-n // blocks) * number + index
    place = jnp.where(is_inside, place, blocks * number)

    def summed(values: jax.Array) -> jax.Array:
        partial_sums = jax.ops.segment_sum(_weighted(values, weights), place, blocks * number)
        return jnp.sum(partial_sums.reshape(blocks, number, *partial_sums.shape[1:]), 0)

    sums, divisors = summed(values), jnp.where(sizes == 0, 1, sizes).astype(values.dtype)
    for _ in range(1 if blocks > 1 else 2):
        means = (sums.T / divisors).T
        # Without a barrier XLA would add them to the sums one by one, where they are lost.
        sums += lax.optimization_barrier(summed(values - means[index]))
    return sums


def _weighted(values: jax.Array, weights: jax.Array | None) -> jax.Array:
    return values if weights is None else (weights * values.T).T


def weighted_variance(weights: jax.Array, x: jax.Array) -> jax.Array:
    """Σ_k w_k (x_k − mean)² over the leading axis, less the square of the error of the mean."""
    deviations = x - weighted_mean(weights, x)
    rest = tensordot(weights, deviations, 1)
    return tensordot(weights, jnp.square(deviations), 1) - jnp.square(rest)
