"""Transportation problems in integers, many at once, by the network simplex method.

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
