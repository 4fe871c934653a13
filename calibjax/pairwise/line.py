"""Sums over pairs of points on a line, with exponential kernels: in linear time, and exact.

Let x be in ascending order, and r ≥ 0 a rate. What all earlier samples send to x_j,

    S_j = Σ_{i<j} e^{−r (x_j − x_i)} f_i = e^{−r (x_j − x_{j−1})} (S_{j−1} + f_{j−1}),

follows from one pass, and Σ_{i<j} e^{−r |x_i − x_j|} f_i f_j = Σ_j f_j S_j. All factors are at
most 1, so that rounding errors do not grow.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core.compilation import jit, platform_dependent
from calibjax._core.pytree import PyTree
from calibjax.pairwise import tiles
from calibjax.pairwise.tiles import Args, Point

_BLOCK = 512  # samples whose features are held at once
_UNROLLED = 8  # steps of a loop
# Numbers that each step is for, where parts of the line can be walked along side by side.
_WIDTH, _ACCELERATOR_WIDTH = 128, 2**15


def _walk(start: jax.Array, factors: jax.Array, values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What each sample gets from those before, [L, ..., c], and the next one from all of them.

    Args:
        start: what the samples before the first one send to it, [..., c].
        factors: by which all that is sent shrinks from the sample before to each, [L, ...]; the
            first one should be one.
        values: f, [L, ..., c].
    """

    def step(sent: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        factor, value = row
        sent = factor[..., None] * sent
        return sent + value, sent

    return lax.scan(step, start, (factors, values), unroll=_UNROLLED)


@jit
def line_forms(values: jax.Array, positions: jax.Array, rates: jax.Array) -> jax.Array:
    """Σ_{i<j} e^{−r_t |x_i − x_j|} f_ic f_jc, [T, c], with derivatives of all orders.

    Args:
        values: f, [n, c].
        positions: x in ascending order, [n].
        rates: r ≥ 0, [T].

    Cost: O(n T c) time and memory.

    >>> import jax.numpy as jnp
    >>> from calibjax.pairwise import line_forms
    >>> values, positions = jnp.array([[1.0], [2.0], [3.0]]), jnp.array([0.0, 0.0, 5.0])
    >>> print(line_forms(values, positions, jnp.array([0.0, 100.0])))  # all pairs, equal ones
    [[11.]
     [ 2.]]
    """
    width = max(1, rates.size + 1) * values.shape[1]
    parts = [max(1, min(len(values) // 32, w // width)) for w in (_WIDTH, _ACCELERATOR_WIDTH)]
    cpu, other = (functools.partial(_forms_in_parts, number) for number in parts)
    return platform_dependent(values, positions, rates, cpu=cpu, default=other)


def _forms_in_parts(
    number: int, values: jax.Array, positions: jax.Array, rates: jax.Array
) -> jax.Array:
    """`line_forms` with the line cut into parts, along which one walks side by side."""
    # Off the diagonal the kernel is e^{r x_i} e^{−r x_j}, so all derivatives by positions are those
    # of what is sent and received. Samples at the same place have no such derivatives, and are
    # summed by themselves, as if by a kernel that is zero elsewhere.
    fixed = lax.stop_gradient(positions)
    change = (positions - fixed)[:, None] * rates
    sent = jnp.exp(change)[..., None] * values[:, None]  # [n, T, c]
    received = jnp.exp(-change)[..., None] * values[:, None]
    every = jnp.concatenate([sent, values[:, None]], 1)

    def factors(distance: jax.Array) -> jax.Array:
        decay = jnp.exp(-distance[..., None] * rates)
        return jnp.concatenate([decay, (distance == 0)[..., None].astype(decay.dtype)], -1)

    n, length = len(values), -(-len(values) // number)
    pad = number * length - n
    x = jnp.pad(fixed, (0, pad), mode="edge").reshape(number, length)
    f = jnp.pad(every, ((0, pad), (0, 0), (0, 0)))
    f = jnp.moveaxis(f.reshape(number, length, *f.shape[1:]), 1, 0)  # [L, parts, T + 1, c]
    gaps = jnp.diff(x, prepend=x[:, :1]).T
    last, before = _walk(jnp.zeros(f.shape[1:], f.dtype), factors(gaps), f)
    # What the parts before send to the first sample of each part goes on to all of its samples.
    is_before = jnp.tri(number, k=-1, dtype=bool)[..., None]
    distances = jnp.where(is_before[..., 0], x[:, :1] - x[:, -1], 0)
    across = jnp.where(is_before, factors(distances), 0)
    arrived = jnp.einsum("abt,btc->atc", across, last, precision=lax.Precision.HIGHEST)
    before += factors((x - x[:, :1]).T)[..., None] * arrived
    before = jnp.moveaxis(before, 0, 1).reshape(number * length, *f.shape[2:])[:n]
    places = jnp.arange(n)
    first = lax.cummax(jnp.where(jnp.diff(fixed, prepend=fixed[:1]) > 0, places, 0))
    terms = received * before[first, :-1] + (values * before[:, -1])[:, None]
    # In two steps, since a long sum of single numbers loses digits.
    terms = jnp.pad(terms, ((0, pad), (0, 0), (0, 0))).reshape(number, length, *terms.shape[1:])
    return jnp.sum(jnp.sum(terms, 1), 0)


@functools.partial(jit, static_argnames="function")
def line_sums(
    function: Callable[[Args, Point], jax.Array],
    args: Args,
    xs: Point,
    weights: jax.Array | None,
    positions: jax.Array,
    rates: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """`line_forms` of features w_i f_c(x_i), and Σ_i w_i² f_c(x_i)², [T, c] and [c].

    For many features, of which few samples' are held at once.

    Args:
        function: features of m samples, (args, xs) → [c, m].
        args: pytree that is handed to each call.
        xs: samples in the order of their positions, a pytree with leading axis n.
        weights: w, [n], or None.
        positions: in ascending order, [n].
        rates: r ≥ 0, [T].

    Cost: n evaluations, O(n T c) time and O(n + T c) memory beside `xs`.
    """
    n = len(positions)
    weights = jnp.ones_like(positions) if weights is None else weights
    gaps = jnp.diff(positions, prepend=positions[:1])

    def features(xs: Point, weights: jax.Array) -> jax.Array:
        return function(args, xs).T * weights[:, None]

    def in_blocks(xs: Point, weights: jax.Array, positions: jax.Array) -> PyTree:
        number = -(-n // _BLOCK)
        size = -(-n // number)

        def step(state: tuple, index: jax.Array) -> tuple[PyTree, None]:
            # The last block starts earlier, so that it is full; what it had before is left out.
            start = jnp.minimum(index * size, n - size)
            is_own = start + jnp.arange(size) >= index * size
            cut = lambda leaf: lax.dynamic_slice_in_dim(leaf, start, size)  # noqa: E731
            values = features(jax.tree.map(cut, xs), jnp.where(is_own, cut(weights), 0))
            factors = jnp.exp(-jnp.where(is_own, cut(gaps), 0)[:, None] * rates)
            sent, *totals = state
            sent, before = _walk(sent, factors, values[:, None])
            terms = jnp.sum(values[:, None] * before, 0), jnp.sum(jnp.square(values), 0)
            return (sent, *map(tiles.add, totals, terms)), None

        one = jax.eval_shape(features, jax.tree.map(lambda leaf: leaf[:1], xs), weights[:1])
        zero = jnp.zeros((rates.size, one.shape[1]), one.dtype)
        start = zero, (zero, zero), (zero[0], zero[0])
        _, *totals = lax.scan(jax.checkpoint(step), start, jnp.arange(number))[0]
        return tuple(total + lost for total, lost in totals)

    def at_once(xs: Point, weights: jax.Array, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
        values = features(xs, weights)
        return line_forms(values, positions, rates), jnp.sum(jnp.square(values), 0)

    return platform_dependent(xs, weights, positions, cpu=in_blocks, default=at_once)
