"""Bures distance between covariance matrices."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._core import matrices
from calibjax._core.arithmetic import matmul

_UNROLLED = 5  # for larger d, polar factors would take too long to compile
_ROUNDING = 4  # relative to d times the precision: closer matrices count as equal

Entries = list[list[jax.Array]]


def squared_bures(s: jax.Array, t: jax.Array) -> jax.Array:
    """Squared Bures distance between two positive definite matrices.

        tr(S + T − 2 (S^½ T S^½)^½) = min_U ‖L − K U‖_F²    with S = L Lᵀ, T = K Kᵀ,

    over orthogonal matrices U. The minimum is at the polar factor U of Kᵀ L. The second form is
    never negative, remains accurate where S and T are nearly equal, and is zero if they are equal
    up to rounding. Since U is optimal, differentiation treats it as a constant, which is right for
    the first derivative only.

    Singular matrices, such as those of linear maps, are regularised by the size of rounding errors,
    which leaves half of the digits of the distance. Units do not matter: variances from 1 to 1e-10
    in one matrix leave five digits in float32.

    Args:
        s: S, [d, d].
        t: T, [d, d].

    Returns:
        A scalar.

    Cost: about 15 d³ multiplications for d > 2, vectorised over the pairs up to d = 5.

    References: Bhatia, Jain and Lim (2019), On the Bures-Wasserstein distance between positive
    definite matrices, Thm. 1.

    >>> import jax.numpy as jnp
    >>> print(squared_bures(jnp.diag(jnp.array([1.0, 4.0])), jnp.diag(jnp.array([1.0, 9.0]))))
    1.0
    """
    left, right = map(_root, (s, t))
    rotation = _polar_factor(*lax.stop_gradient((left, right)))
    if isinstance(rotation, list):
        rotated = _multiply(_entries(right), rotation)
        squares = jax.tree.map(lambda x, y: jnp.square(x - y), _entries(left), rotated)
        squared = jax.tree.reduce(operator.add, squares)
    else:
        squared = jnp.sum(jnp.square(left - matmul(right, rotation)))
    rounding = _ROUNDING * s.shape[0] * jnp.finfo(squared.dtype).eps
    is_equal = squared <= jnp.square(rounding) * lax.stop_gradient(jnp.trace(s))
    return jnp.where(is_equal, 0, squared)


def _root(a: jax.Array) -> jax.Array:
    """Cholesky factor; that of a matrix within rounding errors if `a` is singular."""
    size, fixed = a.shape[0], lax.stop_gradient(a)
    rounding = 4 * size * jnp.finfo(a.dtype).eps * jnp.trace(fixed)
    # In units of each variance, since those of a regular matrix may be far apart.
    pivots = jnp.square(jnp.diagonal(matrices.cholesky(fixed))) / jnp.diagonal(fixed)
    is_singular = ~(jnp.min(pivots) > 4e-2 * jnp.finfo(a.dtype).eps)  # NaN if there is no root
    return matrices.cholesky(a + jnp.where(is_singular, rounding, 0) * jnp.eye(size, dtype=a.dtype))


def _entries(a: jax.Array) -> Entries:
    return [[a[i, j] for j in range(a.shape[1])] for i in range(a.shape[0])]


def _transpose(a: Entries) -> Entries:
    return [list(column) for column in zip(*a, strict=True)]


def _multiply(a: Entries, b: Entries) -> Entries:
    columns = _transpose(b)
    return [[matrices.dot(row, column) for column in columns] for row in a]


def _polar_factor(left: jax.Array, right: jax.Array) -> jax.Array | Entries:
    """Orthogonal matrix U such that Uᵀ Kᵀ L is symmetric positive definite."""
    size = left.shape[0]
    # Scaled to unit norm, so that nothing overflows or underflows.
    left, right = (root / jnp.sqrt(jnp.sum(jnp.square(root))) for root in (left, right))
    inverses = (
        matrices.solve_lower(root, jnp.eye(size, dtype=root.dtype)) for root in (left, right)
    )
    if size > _UNROLLED:
        inverse_left, inverse_right = inverses
        return _halley(_newton(matmul(right.T, left), matmul(inverse_right, inverse_left.T)))
    a = _multiply(_entries(right.T), _entries(left))
    if size == 1:
        return [[jnp.ones_like(a[0][0])]]
    if size == 2:
        cosine, sine = a[0][0] + a[1][1], a[1][0] - a[0][1]
        length = jnp.sqrt(jnp.square(cosine) + jnp.square(sine))
        cosine, sine = cosine / length, sine / length
        return [[cosine, -sine], [sine, cosine]]
    inverse_left, inverse_right = map(_entries, inverses)
    return _halley(_newton(a, _multiply(inverse_right, _transpose(inverse_left))))


def _length(a: jax.Array | Entries) -> jax.Array:
    squares = jax.tree.map(lambda x: jnp.sum(jnp.square(x)), a)
    return jnp.sqrt(jax.tree.reduce(operator.add, squares))


def _newton(a: jax.Array | Entries, inverse: jax.Array | Entries) -> jax.Array | Entries:
    """Newton's step ½ (g A + A⁻ᵀ / g) to the polar factor, scaled to unit norm like A itself.

    With inverses from triangular matrices it is accurate even if A is ill-conditioned; the result
    has the square root of the condition number of A.
    """
    scale = jnp.sqrt(_length(inverse) / _length(a))
    new = jax.tree.map(lambda x, y: scale * x + y / scale, a, inverse)
    length = _length(new)
    return jax.tree.map(lambda x: x / length, new)


def _weights(precision: float) -> np.ndarray:
    """Weights (a, b, c) of the iterations that bring singular values from [√ε / 4, 1] to 1."""
    low, rows = np.sqrt(precision) / 4, []
    while 1 - low > precision:
        d = np.cbrt(4 * (1 - low**2) / low**4)
        root = np.sqrt(1 + d)
        a = root + 0.5 * np.sqrt(8 - 4 * d + 8 * (2 - low**2) / (low**2 * root))
        b = (a - 1) ** 2 / 4
        c = a + b - 1
        rows.append((a, b, c))
        low = min(1, low * (a + b * low**2) / (1 + c * low**2))
    return np.array([*rows, (3, 1, 3)])


def _halley(x: jax.Array | Entries) -> jax.Array | Entries:
    """Polar factor by X ← X (a I + b Xᵀ X) (I + c Xᵀ X)⁻¹, dynamically weighted.

    References: Nakatsukasa, Bai and Gygi (2010), Optimizing Halley's iteration for computing the
    matrix polar decomposition.
    """
    dtype = jax.tree.leaves(x)[0].dtype
    weights = jnp.asarray(_weights(float(jnp.finfo(dtype).eps)), dtype)

    def combine(old: jax.Array, new: jax.Array, k: int) -> jax.Array:
        a, b, c = weights[k]
        return (b / c) * old + (a - b / c) * new

    def step_of_entries(k: int, x: Entries) -> Entries:
        columns = _transpose(x)
        gram = [
            [weights[k, 2] * matrices.dot(columns[i], columns[j]) for j in range(i + 1)]
            for i in range(len(x))
        ]
        factored = matrices.factor(gram)
        solved = [matrices.solve(factored, row) for row in x]
        return jax.tree.map(lambda old, new: combine(old, new, k), x, solved)

    def step_of_array(k: int, x: jax.Array) -> jax.Array:
        factored = matrices.factor_array(weights[k, 2] * matmul(x.T, x))
        return combine(x, jax.vmap(lambda row: matrices.solve(factored, row))(x), k)

    step = step_of_entries if isinstance(x, list) else step_of_array
    return lax.fori_loop(0, len(weights), step, x)
