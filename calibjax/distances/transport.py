"""Exact optimal transport between discrete distributions, by the network simplex method.

Transportation problems in integers, many at once, by the network simplex method.

Integers make the method exact, and therefore finite: nothing depends on tolerances. Problems lie
along the last axis, so that all arithmetic is on long vectors. Reductions over the other axes are
`jnp` reductions or scans on purpose: if they were unrolled, XLA would fuse them into their
consumers, and evaluate them again for each entry of these.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from calibjax._core.arithmetic import on_cpu
from calibjax._core.environment import map_batches

_WORD = 32  # arcs per word of a set
_PIVOTS_PER_NODE = 50  # random problems need two to five, for 2 to 100 rows and columns


class Tree(NamedTuple):
    """Basic solutions of b problems with K rows and L columns: spanning trees of n = K + L nodes.

    Nodes are the rows, then the columns; the root is the last column. Sets of the n − 1 arcs are
    stored as bits of words.
    """

    path: jax.Array  # [words, n, b], the arcs between the root and each node
    row_below: jax.Array  # [words, b], the arcs whose row is farther from the root
    arc: jax.Array  # [n − 1, b], the arc from row i to column j as i L + j
    flow: jax.Array  # [n − 1, b]
    price: jax.Array  # [n, b], dual variables, with cost_ij = price_i + price_j on all arcs


def free_bits(num_rows: int) -> int:
    """Number of low bits of the flows that are reserved for the perturbation.

    Each row in a part of the tree changes the balance of that part by one, and no balance may reach
    half a unit of the flows.
    """
    return num_rows.bit_length() + 1


def cost_bits(num_nodes: int, dtype: jnp.dtype) -> int:
    """Number of bits that costs may have: reduced costs are sums of up to 2 n of them."""
    return jnp.iinfo(dtype).bits - 1 - math.ceil(math.log2(2 * num_nodes))


def solve(supply: jax.Array, demand: jax.Array, cost: jax.Array) -> tuple[Tree, jax.Array]:
    """Minimises Σ cost_ij flow_ij subject to Σ_j flow_ij = supply_i, Σ_i flow_ij = demand_j.

    Supplies are perturbed by one, and the last demand by the number of rows, so that there are no
    ties: no flow in any basis is zero, and every pivot lowers the total cost. The flows returned
    have the perturbation in them.

    Args:
        supply: [K, b], positive multiples of 2^free_bits(K).
        demand: [L, b], positive multiples of it with the same sum.
        cost: [K, L, b], from 0 to 2^cost_bits(K + L, dtype).

    Returns:
        The last trees, and whether they are optimal, [b]: they are, unless the inputs are invalid,
        or the limit of 50 n pivots is reached.

    References: Dantzig (1951); for the perturbation Charnes (1952).
    """
    num_nodes = cost.shape[0] + cost.shape[1]
    supply, demand = supply + 1, demand.at[-1].add(cost.shape[0])

    def improvable(state: tuple) -> jax.Array:
        count, _, optimal = state
        return ~jnp.all(optimal) & (count < _PIVOTS_PER_NODE * num_nodes)

    def improve(state: tuple) -> tuple:
        count, tree, _ = state
        return count + 1, *_pivot(cost, tree)

    tree = _corner_rule(supply, demand, cost)
    start = jnp.int32(0), tree, jnp.zeros(cost.shape[2:], bool)
    _, tree, optimal = lax.while_loop(improvable, improve, start)
    return tree, optimal


def _index(size: int) -> jax.Array:
    """0, ..., size − 1 as a column."""
    return jnp.arange(size, dtype=jnp.int32)[:, None]


def _pick(values: jax.Array, index: jax.Array) -> jax.Array:
    """values[..., index[k], k] for all k, [..., b]."""
    chosen = jnp.where(_index(values.shape[-2]) == index, values, 0)
    return jnp.sum(chosen, -2, dtype=values.dtype)


def _pack(members: jax.Array) -> jax.Array:
    """Sets of arcs as words: [n − 1, b] → [words, b]."""
    num_words = -(-members.shape[0] // _WORD)
    filled = jnp.pad(members, ((0, num_words * _WORD - members.shape[0]), (0, 0)))
    bits = jnp.uint32(1) << _index(_WORD).astype(jnp.uint32)
    words = jnp.where(filled.reshape(num_words, _WORD, -1), bits, 0)
    return jnp.sum(words, 1, dtype=jnp.uint32)


def _unpack(words: jax.Array, num_arcs: int) -> jax.Array:
    """Undoes `_pack`."""
    bits = (words[:, None] >> _index(_WORD).astype(jnp.uint32)) & 1
    return (bits != 0).reshape(-1, words.shape[-1])[:num_arcs]


def _corner_rule(supply: jax.Array, demand: jax.Array, cost: jax.Array) -> Tree:
    """The first tree, by the north-west corner rule from the opposite corner.

    Fills the cells on a path from the last row and column to the first. Whichever of the current
    row and column is used up is followed by its predecessor, a new node whose parent is the other
    one. Between equal distributions the result is the identity.
    """
    (num_rows, num_problems), num_columns = supply.shape, demand.shape[0]
    num_arcs = num_rows + num_columns - 1
    amounts = jnp.concatenate([supply, demand])
    nodes = _index(num_rows + num_columns)

    # Cells by diagonals, [i + j, i]: along the path, i + j falls by one from cell to cell.
    wide = jnp.pad(cost, ((0, 0), (0, num_rows), (0, 0))).reshape(-1, num_problems)
    wide = wide[: num_rows * num_arcs].reshape(num_rows, num_arcs, num_problems)
    diagonals = jnp.moveaxis(wide, 1, 0)[::-1]
    bits = _pack(jnp.eye(num_arcs, dtype=bool)).T[..., None]  # [n − 1, words, 1]

    def step(state: tuple, cells: tuple) -> tuple:
        i, j, new_is_row, row_left, column_left, path, row_below, price = state
        diagonal, bit = cells
        row, column = i, num_rows + j
        new, old = jnp.where(new_is_row, row, column), jnp.where(new_is_row, column, row)
        is_new = nodes == new
        path = jnp.where(is_new, (_pick(path, old) | bit)[:, None], path)
        price = jnp.where(is_new, _pick(diagonal, i) - _pick(price, old), price)
        row_below = jnp.where(new_is_row, row_below | bit, row_below)

        flow, arc = jnp.minimum(row_left, column_left), i * num_columns + j
        row_used = row_left < column_left
        i, j = jnp.where(row_used, i - 1, i), jnp.where(row_used, j, j - 1)
        following = _pick(amounts, jnp.where(row_used, i, num_rows + j))
        row_left = jnp.where(row_used, following, row_left - flow)
        column_left = jnp.where(row_used, column_left - flow, following)
        return (i, j, row_used, row_left, column_left, path, row_below, price), (arc, flow)

    words = jnp.zeros((bits.shape[1], num_problems), jnp.uint32)
    first = (
        jnp.full(num_problems, num_rows - 1, jnp.int32),
        jnp.full(num_problems, num_columns - 1, jnp.int32),
        jnp.ones(num_problems, bool),
        supply[-1],
        demand[-1],
        jnp.zeros((bits.shape[1], *amounts.shape), jnp.uint32),
        words,
        jnp.zeros(amounts.shape, cost.dtype),
    )
    (*_, path, row_below, price), (arc, flow) = lax.scan(step, first, (diagonals, bits))
    return Tree(path, row_below, arc, flow, price)


def _entering_arc(cost: jax.Array, price: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The arc with the smallest reduced cost cost_ij − price_i − price_j, and this cost, [b]."""
    num_rows, num_columns, _ = cost.shape
    row_price, column_price = price[:num_rows], price[num_rows:]

    def lower(smallest: jax.Array, row: tuple) -> tuple[jax.Array, None]:
        cost, price = row
        return jnp.minimum(smallest, cost - price - column_price), None

    smallest, _ = lax.scan(lower, jnp.zeros_like(column_price), (cost, row_price))
    smallest = jnp.min(smallest, 0)

    def find(arc: jax.Array, row: tuple) -> tuple[jax.Array, None]:
        i, cost, price = row
        arcs = i * num_columns + _index(num_columns)
        return jnp.where(cost - price - column_price == smallest, arcs, arc), None

    rows = jnp.arange(num_rows, dtype=jnp.int32), cost, row_price
    entering, _ = lax.scan(find, jnp.zeros(column_price.shape, jnp.int32), rows)
    return jnp.max(entering, 0), smallest


def _pivot(cost: jax.Array, tree: Tree) -> tuple[Tree, jax.Array]:
    """Exchanges an arc for the one that lowers the cost fastest; if none does, it is optimal.

    The entering arc from row i to column j closes a cycle with the paths from the root to i and j.
    Flow moves along the cycle until an arc is empty; this is the leaving arc. The subtree below it
    is then attached to the entering arc.
    """
    path, row_below, arc, flow, price = tree
    num_rows, num_columns, _ = cost.shape
    num_arcs = arc.shape[0]
    entering, reduced = _entering_arc(cost, price)
    optimal = reduced >= 0
    to_row = _pick(path[:, :num_rows], entering // num_columns)
    to_column = _pick(path[:, num_rows:], entering % num_columns)
    cycle = jnp.where(optimal, 0, to_row ^ to_column)

    # On the way around the cycle from i, an arc entered at its row opposes the entering arc.
    against = cycle & ~(to_row ^ row_below)
    loses, gains = _unpack(against, num_arcs), _unpack(cycle ^ against, num_arcs)
    step = jnp.min(jnp.where(loses, flow, jnp.iinfo(flow.dtype).max), 0)
    leaves = loses & (flow == step)  # one arc, as there are no ties
    change = jnp.where(gains, step, jnp.where(loses, -step, 0))
    flow = jnp.where(leaves, step, flow + change)
    arc = jnp.where(leaves, entering, arc)

    leaving = _pack(leaves)
    cut_off = jnp.any((path & leaving[:, None]) != 0, 0)
    with_row = jnp.any((to_row & leaving) != 0, 0)
    is_row = _index(price.shape[0]) < num_rows
    price = price + jnp.where(cut_off, jnp.where(is_row == with_row, reduced, -reduced), 0)

    # Between the leaving and the entering arc, the order of nodes is reversed.
    above = lax.reduce_and(jnp.where(cut_off, path, ~jnp.uint32(0)), (1,))
    turned = jnp.where(with_row, to_row, to_column) & ~above
    row_below = (row_below ^ turned) & ~leaving | jnp.where(with_row, leaving, 0)
    path = jnp.where(cut_off, path ^ (cycle & ~leaving)[:, None], path)
    return Tree(path, row_below, arc, flow, price), optimal


# Numbers of problems solved at once: one fits the cache of a core, the other fills an accelerator.
_TOGETHER_ON_CPU, _TOGETHER = 512, 65536

Problem = tuple[jax.Array, jax.Array, jax.Array]  # weights of rows and columns, cost
Solution = tuple[jax.Array, jax.Array, jax.Array]  # plan, potentials of rows and columns


def transport_cost(weights_p: jax.Array, weights_q: jax.Array, cost: jax.Array) -> jax.Array:
    """Smallest cost min_π Σ_ij π_ij cost_ij among π ≥ 0 with marginals `weights_p`, `weights_q`.

    Its gradient with respect to the cost is the optimal plan π, a vertex of the set of plans with
    at most K + K' − 1 positive entries, and with respect to the weights the dual potentials (minus
    their weighted mean, because weights are divided by their sum). Where several plans or
    potentials are optimal, one of them is the subgradient that is returned. Second derivatives are
    zero.

    Args:
        weights_p: probabilities, [K]; zeros are allowed. Weights are divided by their sum.
        weights_q: probabilities, [K'].
        cost: finite, [K, K'].

    Returns:
        The cost, a scalar; NaN if weights or costs are not finite, or weights are negative.

    Accuracy: the plan is optimal for costs rounded to 2^−t of their range and weights rounded to
    multiples of 2^−s, zero weights to one such unit (their part of the plan is zero nevertheless).
    With up to ten weights on each side, t = 57 and s = 52 in float64, and t = s = 25 in float32,
    where marginals, and the cost relative to the largest cost, are right to 1e-6. With a hundred,
    t = 54 and s = 52, and t = s = 22 in float32 (2e-5 if most weights are zero).

    Cost: about K + K' to 5 (K + K') pivots of K K' operations each. Problems batched by `vmap` are
    solved together, 10 × 10 problems in 5 to 10 µs each, with O(K K') memory per problem.

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
    return jnp.sum(_solution(p, q, cost)[0] * cost)


@_smallest_cost.defjvp
def _smallest_cost_jvp(primals: Problem, tangents: Problem) -> tuple[jax.Array, jax.Array]:
    plan, row_potential, column_potential = _solution(*lax.stop_gradient(primals))
    dp, dq, dcost = tangents
    change = jnp.sum(plan * dcost) + jnp.sum(row_potential * dp) + jnp.sum(column_potential * dq)
    return jnp.sum(plan * primals[2]), change


@jax.jit
def _solution(p: jax.Array, q: jax.Array, cost: jax.Array) -> Solution:
    """Solution of one problem: [K, K'], [K], [K']."""
    return jax.tree.map(lambda x: x[..., 0], _solve(p[:, None], q[:, None], cost[..., None]))


@custom_vmap
def _solve(p: jax.Array, q: jax.Array, cost: jax.Array) -> Solution:
    """Solutions of b problems, along the last axis: [K, b], [K', b], [K, K', b]."""
    size = _TOGETHER_ON_CPU if on_cpu() else _TOGETHER
    if cost.shape[-1] <= size:
        return _solve_together(p, q, cost)

    def part(problems: Problem) -> Solution:
        solution = _solve_together(*(jnp.moveaxis(x, 0, -1) for x in problems))
        return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), solution)

    problems = jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), (p, q, cost))
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), map_batches(problems, part, size))


@_solve.def_vmap
def _solve_batch(size: int, batched: list, *problem: jax.Array) -> tuple[Solution, tuple]:
    """A batch of batches is one larger batch."""

    def merge(x: jax.Array, is_batched: bool) -> jax.Array:
        x = jnp.moveaxis(x, 0, -1) if is_batched else jnp.repeat(x[..., None], size, -1)
        return x.reshape(*x.shape[:-2], -1)

    def separate(x: jax.Array) -> jax.Array:
        return jnp.moveaxis(x.reshape(*x.shape[:-1], -1, size), -1, 0)

    solution = _solve(*map(merge, problem, batched))
    return jax.tree.map(separate, solution), (True, True, True)


def _solve_together(p: jax.Array, q: jax.Array, cost: jax.Array) -> Solution:
    """`_solve` in one go: rounds to integers, solves, and converts the solution back."""
    num_rows, num_columns, num_problems = cost.shape
    integer = jnp.int32 if cost.dtype == jnp.float32 else jnp.int64
    unit = 2.0 ** cost_bits(num_rows + num_columns, integer)
    low, span = jnp.min(cost, (0, 1)), jnp.max(cost, (0, 1)) - jnp.min(cost, (0, 1))
    scaled = jnp.where(jnp.isfinite(span) & (span > 0), (cost - low) / span, 0)
    whole_cost = jnp.round(scaled * unit).astype(integer)

    free = free_bits(num_rows)
    bits = min(jnp.iinfo(integer).bits - 2 - free, jnp.finfo(jnp.float64).nmant)
    supply, demand = (_whole_weights(w, bits, integer) << free for w in (p, q))
    tree, optimal = solve(supply, demand, whole_cost)

    flow = (tree.flow + (1 << (free - 1))) >> free  # without the perturbation
    plan = jnp.zeros((num_rows * num_columns, num_problems), cost.dtype)
    plan = plan.at[tree.arc, jnp.arange(num_problems)].set(flow.astype(cost.dtype) * 2.0**-bits)
    plan = jnp.where((p > 0)[:, None] & (q > 0), plan.reshape(cost.shape), 0)
    potential = tree.price.astype(cost.dtype) * (span / unit)

    valid = optimal & jnp.isfinite(span) & jnp.all(p >= 0, 0) & jnp.all(q >= 0, 0)
    solution = plan, potential[:num_rows] + low, potential[num_rows:]
    return jax.tree.map(lambda x: jnp.where(valid, x, jnp.nan), solution)


def _whole_weights(weights: jax.Array, bits: int, dtype: jnp.dtype) -> jax.Array:
    """Weights as positive integers with sum 2^bits; the largest absorbs the rounding errors."""
    whole = jnp.maximum(jnp.round(weights * 2.0**bits).astype(dtype), 1)
    missing = (1 << bits) - jnp.sum(whole, 0, dtype=dtype)
    is_largest = jnp.arange(weights.shape[0])[:, None] == jnp.argmax(weights, 0)
    return whole + jnp.where(is_largest, missing, 0)
