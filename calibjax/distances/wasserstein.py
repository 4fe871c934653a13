"""Wasserstein distances within a family and of mixtures, and optimal transport."""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from calibjax._core import arithmetic, checks
from calibjax._core.arithmetic import floating_dtype, matmul, safe_sqrt, unit_and_rate
from calibjax._core.pytree import PyTree, record, varying_as
from calibjax.distances.elementary import Distance, Euclidean
from calibjax.distributions import DiagNormal, Ensemble, Laplace, Mixture, MvNormal, Normal

_UNROLLED = 5  # for larger d, polar factors would take too long to compile
_ROUNDING = 4  # relative to d times the precision: closer matrices count as equal

Entries = list[list[jax.Array]]


def squared_bures(s: jax.Array, t: jax.Array) -> jax.Array:
    """Squared Bures distance between two positive definite matrices.

        tr(S + T − 2 (S^½ T S^½)^½) = min_U ‖L − K U‖_F²    with S = L Lᵀ, T = K Kᵀ,

    over orthogonal matrices U. The minimum is at the polar factor U of Kᵀ L. The second form is
    never negative, remains accurate if S and T are nearly equal, and is zero if they are equal up
    to rounding. The first derivative treats the optimal U as a constant.

    Singular matrices are regularised by the size of rounding errors, which leaves half of the
    digits of the distance. Accuracy does not depend on units: variances from 1 to 1e-10 in one
    matrix leave five digits in float32.

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
    squared = _smallest_square(*map(_root, (s, t)))
    rounding = _ROUNDING * s.shape[0] * jnp.finfo(squared.dtype).eps
    is_equal = squared <= jnp.square(rounding) * lax.stop_gradient(jnp.trace(s))
    # Zero, with the derivatives of the square.
    return jnp.where(is_equal, squared - lax.stop_gradient(squared), squared)


@jax.custom_jvp
def _smallest_square(left: Any, right: Any) -> jax.Array:
    """min_U ‖L − K U‖_F²."""
    difference = _difference(left, right, _polar_factor(left, right))
    return _inner(difference, difference)


@_smallest_square.defjvp
def _smallest_square_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    rotation = _polar_factor(*primals)
    difference, change = (_difference(left, right, rotation) for left, right in (primals, tangents))
    return _inner(difference, difference), 2 * _inner(difference, change)


def _difference(left: Any, right: Any, rotation: Any) -> Any:
    """L − K U."""
    if not isinstance(rotation, list):
        return left - matmul(right, rotation)
    columns = list(zip(*rotation, strict=True))
    rotated = [[_dot(row, column) for column in columns] for row in right]
    pairs = zip(_filled(left), rotated, strict=True)
    return [[x - y for x, y in zip(*rows, strict=True)] for rows in pairs]


def _inner(a: Any, b: Any) -> jax.Array:
    """Inner product of two matrices."""
    products = jax.tree.map(lambda x, y: jnp.sum(x * y), a, b)
    return jax.tree.reduce(operator.add, products)


def _root(a: jax.Array) -> Any:
    """Cholesky factor; that of a matrix within rounding errors if `a` is singular."""
    size, fixed = a.shape[0], lax.stop_gradient(a)
    rounding = 4 * size * jnp.finfo(a.dtype).eps * jnp.trace(fixed)
    # In units of each variance, since those of a regular matrix may be far apart.
    pivots = jnp.square(_diagonal(_cholesky(fixed))) / jnp.diagonal(fixed)
    is_singular = ~(jnp.min(pivots) > 4e-2 * jnp.finfo(a.dtype).eps)  # NaN if there is no root
    return _cholesky(a + jnp.where(is_singular, rounding, 0) * jnp.eye(size, dtype=a.dtype))


def _cholesky(a: jax.Array) -> jax.Array | Entries:
    """The factor; written out for few dimensions, where loops take longer to compile."""
    size = a.shape[0]
    if size > _UNROLLED:
        return arithmetic.cholesky(a)
    a = 0.5 * (a + a.T)  # derivatives are symmetric too
    rows: Entries = []
    for i in range(size):
        row: list[jax.Array] = []
        for j in range(i):
            row.append((a[i, j] - _dot(row, rows[j])) / rows[j][j])
        rows.append([*row, jnp.sqrt(a[i, i] - _dot(row, row))])
    return rows


def _diagonal(lower: jax.Array | Entries) -> jax.Array:
    return jnp.stack([row[-1] for row in lower]) if isinstance(lower, list) else lower.diagonal()


def _inverse(lower: Entries) -> Entries:
    """Inverse of a lower triangular matrix."""
    rows: Entries = []
    for i, row in enumerate(lower):
        scale = 1 / row[i]
        columns = ([rows[k][j] for k in range(j, i)] for j in range(i))
        rows.append([*(-scale * _dot(row[j:], x) for j, x in enumerate(columns)), scale])
    return rows


def _filled(lower: Entries) -> list[list[Any]]:
    """With the zeros above the diagonal."""
    return [[*row, *[0] * (len(lower) - len(row))] for row in lower]


def _dot(x: Iterable[jax.Array], y: Iterable[jax.Array]) -> Any:
    """Inner product of as many entries as both have; the others are zero."""
    terms = list(map(operator.mul, x, y))
    return functools.reduce(operator.add, terms) if terms else 0


def _polar_factor(left: Any, right: Any) -> jax.Array | Entries:
    """Orthogonal matrix U such that Uᵀ Kᵀ L is symmetric positive definite."""
    size = len(left)
    # Scaled to unit norm, so that nothing overflows or underflows.
    left, right = map(_of_unit_norm, (left, right))
    if size > _UNROLLED:
        identity = jnp.eye(size, dtype=left.dtype)
        inverse_left, inverse_right = (arithmetic.solve_lower(x, identity) for x in (left, right))
        return _halley(_newton(matmul(right.T, left), matmul(inverse_right, inverse_left.T)))
    # Columns from their ends on, which are zero above the diagonal.
    left_columns, right_columns = (
        [[root[k][j] for k in reversed(range(j, size))] for j in range(size)]
        for root in (left, right)
    )
    a = [[_dot(x, y) for y in left_columns] for x in right_columns]
    if size == 1:
        return [[jnp.ones_like(a[0][0])]]
    if size == 2:
        cosine, sine = a[0][0] + a[1][1], a[1][0] - a[0][1]
        length = jnp.sqrt(jnp.square(cosine) + jnp.square(sine))
        cosine, sine = cosine / length, sine / length
        return [[cosine, -sine], [sine, cosine]]
    inverse_left = _inverse(left)
    inverse = [[_dot(x, y) for y in inverse_left] for x in _inverse(right)]
    return _halley(_newton(a, inverse))


def _length(a: jax.Array | Entries) -> jax.Array:
    return jnp.sqrt(_inner(a, a))


def _of_unit_norm(a: Any) -> Any:
    length = _length(a)
    return jax.tree.map(lambda x: x / length, a)


def _newton(a: jax.Array | Entries, inverse: jax.Array | Entries) -> jax.Array | Entries:
    """Newton's step ½ (g A + A⁻ᵀ / g) to the polar factor, scaled to unit norm like A itself.

    With inverses from triangular matrices it is accurate even if A is ill-conditioned; the result
    has the square root of the condition number of A.
    """
    scale = jnp.sqrt(_length(inverse) / _length(a))
    new = jax.tree.map(lambda x, y: scale * x + y / scale, a, inverse)
    return _of_unit_norm(new)


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
        columns = list(zip(*x, strict=True))
        gram = [
            [weights[k, 2] * _dot(columns[i], columns[j]) for j in range(i + 1)]
            for i in range(len(x))
        ]
        factored = arithmetic.factor(gram)
        solved = [arithmetic.solve(factored, row) for row in x]
        return jax.tree.map(lambda old, new: combine(old, new, k), x, solved)

    def step_of_array(k: int, x: jax.Array) -> jax.Array:
        factored = arithmetic.factor(weights[k, 2] * matmul(x.T, x))
        return combine(x, jax.vmap(lambda row: arithmetic.solve(factored, row))(x), k)

    step = step_of_entries if isinstance(x, list) else step_of_array
    return lax.fori_loop(0, len(weights), step, x)


@functools.singledispatch
def _squared(p: object, q: object) -> jax.Array:
    got = f"{checks.described(p)} and {checks.described(q)}"
    advice = "use distances.MixtureWasserstein for mixtures, TotalVariation for classes, and "
    advice += "MaximumMeanDiscrepancy for others, or add a family with Wasserstein.register"
    raise NotImplementedError(f"Wasserstein is not defined for {got}; {advice}")


def _rule(p: object, q: object) -> Callable[[Any, Any], jax.Array]:
    """The squared distance of two members of the family of p and q."""
    return _squared.dispatch(type(p) if type(p) is type(q) else object)


class _Embedded(NamedTuple):
    """A rule for families whose distance is the Euclidean one of two points, divided by √m.

    Attributes:
        points: (p, q) → both points, arrays or pytrees, and m.
    """

    points: Callable[[Any, Any], tuple[Any, Any, int]]

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        x, y, square = self.points(p, q)
        return Euclidean().squared(x, y) / square


def _laplace_points(p: Laplace, q: Laplace) -> tuple[Any, Any, int]:
    # Twice the same coordinate: products of it would leave rounding errors of a distance of zero.
    one, two = ((x.loc, x.scale, x.scale) for x in (p, q))
    return one, two, 1


def _order_statistics(p: Ensemble, q: Ensemble) -> tuple[Any, Any, int]:
    shapes = [jnp.shape(x.values) for x in (p, q)]
    if shapes[0] != shapes[1] or len(shapes[0]) != 1 or (p.weights, q.weights) != (None, None):
        expected = "equally many, equally likely numbers (ensembles of one size without weights)"
        raise NotImplementedError(f"Wasserstein: expected {expected}, got shapes {shapes}")
    return jnp.sort(p.values), jnp.sort(q.values), shapes[0][0]


# Independent normal components: the distance of the vectors (loc, scale).
_squared.register(Normal, _Embedded(lambda p, q: (p, q, 1)))
_squared.register(DiagNormal, _Embedded(lambda p, q: (p, q, 1)))
_squared.register(Laplace, _Embedded(_laplace_points))
_squared.register(Ensemble, _Embedded(_order_statistics))


@_squared.register
def _(p: MvNormal, q: MvNormal) -> jax.Array:
    return Euclidean().squared(p.loc, q.loc) + squared_bures(p.cov, q.cov)


@record
class Wasserstein(Distance):
    """2-Wasserstein distance W₂(p, q) between two distributions of the same family.

    For normal distributions with independent components
    W₂² = ‖loc_p − loc_q‖² + ‖scale_p − scale_q‖²; for Laplace distributions
    W₂² = (loc_p − loc_q)² + 2 (scale_p − scale_q)²; for normal distributions with covariances S, T

        W₂² = ‖loc_p − loc_q‖² + tr(S + T − 2 (S^½ T S^½)^½),

    with the Bures distance of the covariances. For covariances that do not commute, this distance
    does not embed in a Hilbert space, and kernels exp(−W₂^ν) need not be positive semi-definite:
    exp(−W₂² / 2) between four thin normals, with axes 45 degrees apart, has the eigenvalue −0.06.
    Derivatives are exact.

    For `Ensemble` it is the distance of the empirical distributions, W₂² = m⁻¹ Σ_k (z_(k) −
    z'_(k))² with the sorted draws: scalars without weights, in equal numbers. For two `Mixture`s,
    use `MixtureWasserstein`, an upper bound.

    Cost: the number of parameters. For full covariances about 15 d³ multiplications if d > 2,
    vectorised over the pairs for d ≤ 5; beyond, ten times as slow.

    Raises:
        NotImplementedError: if the distance between the two families is not defined.

    References: W21 D.1 (normal), D.2 (Laplace); Bhatia, Jain and Lim (2019) for full covariances.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> p = Normal(jnp.array(0.0), jnp.array(1.0))
    >>> q = Normal(jnp.array(3.0), jnp.array(5.0))
    >>> print(Wasserstein()(p, q))
    5.0
    """

    def squared(self, p: PyTree, q: PyTree) -> jax.Array:
        """Squared 2-Wasserstein distance."""
        return _rule(p, q)(p, q)

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        """2-Wasserstein distance."""
        rule = _rule(p, q)
        if not isinstance(rule, _Embedded):
            return safe_sqrt(rule(p, q))
        x, y, square = rule.points(p, q)
        return Euclidean()(x, y) / math.sqrt(square)

    def squared_in_units(self, p: PyTree, q: PyTree, unit: jax.Array) -> jax.Array:
        """Squared 2-Wasserstein distance in units of a constant."""
        rule = _rule(p, q)
        if not isinstance(rule, _Embedded):
            return rule(p, q) * jnp.square(1 / unit)
        x, y, square = rule.points(p, q)
        return Euclidean().squared_in_units(x, y, math.sqrt(square) * unit)

    def embedding(self, points: PyTree) -> jax.Array | None:
        """Vectors (loc, scale) of independent components, or sorted draws."""
        rule = _rule(points, points)
        if not isinstance(rule, _Embedded):
            return None
        xs, _, squares = jax.vmap(lambda p: rule.points(p, p))(points)
        return Euclidean().embedding(xs) / jnp.sqrt(1.0 * squares)[:, None]

    @staticmethod
    def register(distribution_type: type, squared: Callable[[Any, Any], jax.Array]) -> None:
        """Add a family; `squared(p, q)` is W₂² of two of its members."""
        _squared.register(distribution_type, squared)


_PIVOTS_PER_NODE = 50  # random problems need two to five, for 2 to 100 rows and columns


def transport_cost(weights_p: jax.Array, weights_q: jax.Array, cost: jax.Array) -> jax.Array:
    """Smallest cost min_π Σ_ij π_ij cost_ij among π ≥ 0 with marginals `weights_p`, `weights_q`.

    Its gradient with respect to the cost is the optimal plan π, a vertex with at most K + K' − 1
    positive entries. Its gradient with respect to the weights are the dual potentials (minus their
    weighted mean, because weights are divided by their sum). If several plans or potentials are
    optimal, the subgradient is one of them. Second derivatives hold the optimal basis fixed.

    Args:
        weights_p: probabilities, [K]; zeros are allowed. Weights are divided by their sum.
        weights_q: probabilities, [K'].
        cost: finite, [K, K'].

    Returns:
        The cost, a scalar; NaN if weights or costs are not finite, or weights are negative.

    Accuracy: the plan is optimal for costs rounded to 2^−t of their range and weights rounded to
    multiples of 2^−s. Zero weights are rounded to one such unit, but their part of the plan is
    zero. Errors are of marginals, and of the cost relative to the largest cost:

    | weights on each side | dtype | t | s | error |
    | --- | --- | --- | --- | --- |
    | up to 10 | float64 | 57 | 52 | |
    | up to 10 | float32 | 25 | 25 | 1e-6 |
    | 100 | float64 | 54 | 52 | |
    | 100 | float32 | 22 | 22 | 2e-5 if most weights are zero |

    Cost: about K + K' to 5 (K + K') pivots of (K + K')² operations each, and O((K + K')²) memory;
    5 × 5 problems take some 10 µs each, and 10 × 10 problems 50 µs.

    >>> import jax, jax.numpy as jnp
    >>> cost = jnp.array([[0.0, 1.0, 4.0], [1.0, 0.0, 1.0]])
    >>> weights = jnp.array([0.5, 0.5]), jnp.array([0.25, 0.25, 0.5])
    >>> print(transport_cost(*weights, cost))
    0.75
    >>> print(jax.grad(transport_cost, 2)(*weights, cost))  # the plan
    [[0.25 0.25 0.  ]
     [0.   0.   0.5 ]]
    """
    dtype = jnp.result_type(weights_p, weights_q, cost)
    p, q, cost = (jnp.asarray(x, dtype) for x in (weights_p, weights_q, cost))
    return _smallest_cost(p / jnp.sum(p), q / jnp.sum(q), cost)


@jax.custom_jvp
def _smallest_cost(p: jax.Array, q: jax.Array, cost: jax.Array) -> jax.Array:
    return jnp.sum(_optimum(p, q, cost)[0] * cost)


@_smallest_cost.defjvp
def _smallest_cost_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    plan, row_potential, column_potential = _optimum(*primals)
    dp, dq, dcost = tangents
    change = jnp.sum(plan * dcost) + jnp.sum(row_potential * dp) + jnp.sum(column_potential * dq)
    return jnp.sum(plan * primals[2]), change


@jax.custom_jvp
def _optimum(p: jax.Array, q: jax.Array, cost: jax.Array) -> tuple[jax.Array, ...]:
    """The plan [K, K'], and the potentials of rows and columns."""
    return _solution(p, q, cost)[:3]


@_optimum.defjvp
def _optimum_jvp(primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    """With the same basis, where flows are linear in the weights and potentials in the costs."""
    *values, arc, inverse = _solution(*primals)
    dp, dq, dcost = tangents
    inverse = inverse.astype(dcost.dtype)
    flow = matmul(inverse, jnp.concatenate([dp, dq]))
    plan = jnp.zeros(dcost.size, dcost.dtype).at[arc].add(flow).reshape(dcost.shape)
    potential = matmul(jnp.ravel(dcost)[arc], inverse)
    return tuple(values), (plan, potential[: len(dp)], potential[len(dp) :])


@jax.jit
def _solution(p: jax.Array, q: jax.Array, cost: jax.Array) -> tuple[jax.Array, ...]:
    """The plan [K, K'], the potentials of rows and columns, and arcs and inverse of the basis.

    The problem is solved in integers, which makes the method exact, and therefore finite: nothing
    depends on tolerances. Supplies are perturbed by one, and the last demand by the number of rows,
    so that there are no ties: no flow in any basis is zero, and every pivot lowers the total cost.

    References: Dantzig (1951); for the perturbation Charnes (1952).
    """
    num_rows, num_nodes = len(cost), sum(cost.shape)
    integer = jnp.int32 if cost.dtype == jnp.float32 else jnp.int64
    size = jnp.iinfo(integer).bits
    # Reduced costs are sums of up to 2 n costs.
    unit = 2.0 ** (size - 1 - math.ceil(math.log2(2 * num_nodes)))
    low, span = jnp.min(cost), jnp.max(cost) - jnp.min(cost)
    scaled = jnp.where(jnp.isfinite(span) & (span > 0), (cost - low) / span, 0)
    whole_cost = jnp.round(scaled * unit).astype(integer)
    # Low bits of the flows are kept for the perturbation: each row in a part of the tree changes
    # the balance of that part by one, and no balance may reach half a unit of the flows.
    free = num_rows.bit_length() + 1
    bits = min(size - 2 - free, jnp.finfo(jnp.float64).nmant)
    supply, demand = (_whole_weights(w, bits, integer) << free for w in (p, q))
    supply, demand = supply + 1, demand.at[-1].add(num_rows)

    start = jnp.int32(0), _first_basis(supply, demand, whole_cost), jnp.bool_(False)
    _, basis, is_optimal = lax.while_loop(
        lambda state: ~state[2] & (state[0] < _PIVOTS_PER_NODE * num_nodes),
        lambda state: (state[0] + 1, *_pivot(whole_cost, state[1])),
        varying_as(start, (p, q, cost)),
    )
    flow = (basis.flow + (1 << (free - 1))) >> free  # without the perturbation
    plan = jnp.zeros(cost.size, cost.dtype)
    plan = plan.at[basis.arc].set(flow.astype(cost.dtype) * 2.0**-bits).reshape(cost.shape)
    plan = jnp.where((p > 0)[:, None] & (q > 0), plan, 0)
    potential = basis.price.astype(cost.dtype) * (span / unit)
    is_valid = is_optimal & jnp.isfinite(span) & jnp.all(p >= 0) & jnp.all(q >= 0)
    solution = plan, potential[:num_rows] + low, potential[num_rows:]
    valid = jax.tree.map(lambda x: jnp.where(is_valid, x, jnp.nan), solution)
    return *valid, basis.arc, basis.inverse


def _whole_weights(weights: jax.Array, bits: int, dtype: DTypeLike) -> jax.Array:
    """Weights as positive integers with sum 2^bits; the largest absorbs the rounding errors."""
    whole = jnp.maximum(jnp.round(weights * 2.0**bits).astype(dtype), 1)
    return whole.at[jnp.argmax(weights)].add((1 << bits) - jnp.sum(whole, dtype=dtype))


class _Basis(NamedTuple):
    """A basic solution: a spanning tree of n = K + K' nodes, which are the rows, then the columns.

    Column v of the inverse is the path from the root, which is the last column, to node v: the
    coefficients ±1 of the arcs on it, which add up to a unit at v alone.
    """

    arc: jax.Array  # [n − 1], the arc from row i to column j as i K' + j
    flow: jax.Array  # [n − 1]
    price: jax.Array  # [n], dual variables, with cost_ij = price_i + price_j on all arcs
    inverse: jax.Array  # [n − 1, n]


def _first_basis(supply: jax.Array, demand: jax.Array, cost: jax.Array) -> _Basis:
    """By the north-west corner rule from the opposite corner.

    Between equal distributions the result is the identity.
    """
    num_rows, num_columns = cost.shape
    ends = [jnp.cumsum(x[::-1], dtype=x.dtype) for x in (supply, demand)]
    upto = jnp.sort(jnp.concatenate([ends[0], ends[1][:-1]]))
    rows, columns = (jnp.sum(end >= upto[:, None], 1, dtype=jnp.int32) - 1 for end in ends)
    # Every arc leads from a node of the arc before it to a new node.
    is_row_new = jnp.diff(rows, prepend=num_rows) != 0
    nodes = jnp.stack([rows, num_rows + columns])
    new, old = jnp.where(is_row_new, nodes, nodes[::-1])

    def attach(k: jax.Array, inverse: jax.Array) -> jax.Array:
        return inverse.at[:, new[k]].set((jnp.arange(upto.size) == k) - inverse[:, old[k]])

    inverse = jnp.zeros((upto.size, num_rows + num_columns), jnp.int8)
    inverse = lax.fori_loop(0, upto.size, attach, varying_as(inverse, (new, old)))
    price = jnp.sum(inverse * cost[rows, columns][:, None], 0, dtype=cost.dtype)
    return _Basis(rows * num_columns + columns, jnp.diff(upto, prepend=0), price, inverse)


def _pivot(cost: jax.Array, basis: _Basis) -> tuple[_Basis, jax.Array]:
    """Exchanges an arc for the one that lowers the cost fastest; if none does, it is optimal.

    Flow moves from the arcs on the path between the ends of the entering arc to this arc, until one
    of them is empty, which leaves.
    """
    arc, flow, price, inverse = basis
    num_rows, num_columns = cost.shape
    reduced = jnp.ravel(cost - price[:num_rows, None] - price[num_rows:])
    smallest = jnp.min(reduced)
    entering = jnp.max(jnp.where(reduced == smallest, jnp.arange(cost.size, dtype=arc.dtype), 0))
    is_optimal = smallest >= 0
    losses = inverse[:, entering // num_columns] + inverse[:, num_rows + entering % num_columns]
    losses = jnp.where(is_optimal, 0, losses)
    step = jnp.min(jnp.where(losses > 0, flow, jnp.iinfo(flow.dtype).max))
    leaves = (losses > 0) & (flow == step)  # one arc, as there are no ties
    row = inverse[jnp.argmax(leaves)]
    exchanged = _Basis(
        jnp.where(leaves, entering, arc),
        jnp.where(leaves, step, flow - losses * step),
        price + row * smallest,
        inverse - (losses - leaves)[:, None] * row,
    )
    return exchanged, is_optimal


def _power(x: jax.Array, exponent: float) -> jax.Array:
    """x^exponent for x ≥ 0, with derivative zero at zero where it would be infinite."""
    is_zero = x == 0
    return jnp.where(is_zero, 0, jnp.where(is_zero, 1, x) ** exponent)


def _pairs(function: Callable[[Any, Any], jax.Array], p: Mixture, q: Mixture) -> jax.Array:
    """A function of all pairs of components, [k, k']."""
    if not (isinstance(p, Mixture) and isinstance(q, Mixture)):
        got = f"{checks.described(p)} and {checks.described(q)}"
        got += "; a single distribution is Mixture(None, components) with one component"
        raise NotImplementedError(f"MixtureWasserstein: expected two mixtures, got {got}")
    row = jax.vmap(function, in_axes=(None, 0))
    return jax.vmap(row, in_axes=(0, None))(p.components, q.components)


@record
class MixtureWasserstein(Distance):
    """Mixture-Wasserstein distance MW_s between two `Mixture`s.

    MW_s(p, q) = (min_π Σ_ij π_ij W₂(p_i, q_j)^s)^{1/s}, where π couples the weights of the
    components and W₂ is the distance `Wasserstein` of two components. It is a metric, and for
    s ≤ 2 no smaller than the Wasserstein distance W_s of the mixtures themselves. The mixtures may
    have different numbers of components.

    **Kernels with it need not be positive semi-definite.** W21 Theorem D.1 states that exp(−λ
    MW_s^ν) is, but the theorem is false: its proof uses one coupling for all pairs. A
    counterexample are the 45 mixtures of two equally likely normal distributions with means and
    standard deviations in {0, 1, 2}: with λ = 0.5 and ν = 2 the smallest eigenvalue is −0.39.
    Estimates and tests need positive semi-definite kernels, such as those with
    `MaximumMeanDiscrepancy`, which is also cheaper.

    Attributes:
        order: s ≥ 1, a number (static: each order is compiled separately).

    Raises:
        NotImplementedError: if one of the two is not a `Mixture` (a single distribution is
            `Mixture(None, components)` with one component), or `Wasserstein` is not defined for
            the components.
        TypeError: if the order is not a number.
        ValueError: if it is below one.

    Cost: K K' distances W₂ and one transport problem, see
    `calibjax.distances.wasserstein.transport_cost`; gradients at distance zero are zero.

    References: W21 eq. (D.2); Delon and Desolneux (2020) for s = 2.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Mixture, Normal
    >>> p = Mixture(jnp.array([0.5, 0.5]), Normal(jnp.array([0.0, 2.0]), jnp.array([1.0, 1.0])))
    >>> q = Mixture(None, Normal(jnp.array([2.0]), jnp.array([1.0])))
    >>> print(MixtureWasserstein(order=1)(p, q), MixtureWasserstein().squared(p, q))
    1.0 2.0
    """

    order: float = dataclasses.field(default=2, metadata={"static": True})

    def __call__(self, p: Mixture, q: Mixture) -> jax.Array:
        """Mixture-Wasserstein distance."""
        unit, _ = unit_and_rate(jnp.max(_pairs(Wasserstein(), p, q)))
        return unit * _power(self._transport(p, q, unit), 1 / self.order)

    def squared(self, p: Mixture, q: Mixture) -> jax.Array:
        """Squared mixture-Wasserstein distance."""
        return self.squared_in_units(p, q, jnp.ones((), floating_dtype((p, q))))

    def squared_in_units(self, p: Mixture, q: Mixture, unit: jax.Array) -> jax.Array:
        """Squared mixture-Wasserstein distance in units of a constant."""
        return _power(self._transport(p, q, unit), 2 / self.order)

    def _transport(self, p: Mixture, q: Mixture, unit: jax.Array) -> jax.Array:
        """min_π Σ_ij π_ij W₂(p_i, q_j)^s in units of a constant."""

        def cost(one: PyTree, two: PyTree) -> jax.Array:
            return _power(Wasserstein().squared_in_units(one, two, unit), self.order / 2)

        costs = _pairs(cost, p, q)
        total = transport_cost(p.mixing_probs, q.mixing_probs, costs)
        return jnp.where(total == 0, 0, total)  # a kink, where the derivative is set to zero

    def check_values(self, name: str) -> None:
        """Refuses orders that are not finite numbers ≥ 1."""
        if not 1 <= checks.real(f"{name}.order", self.order) < math.inf:
            raise ValueError(f"{name}.order: expected a finite number >= 1, got {self.order}")
