"""Exact sums over pairs of points on a line, with exponential kernels, in linear time.

Let x be in ascending order, and r ≥ 0 a rate. The sum of all earlier samples at x_j,

    S_j = Σ_{i<j} e^{−r (x_j − x_i)} f_i = e^{−r (x_j − x_{j−1})} (S_{j−1} + f_{j−1}),

follows from one pass, and Σ_{i<j} e^{−r |x_i − x_j|} f_i f_j = Σ_j f_j S_j. All factors are at most
1, so rounding errors do not grow.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core.arithmetic import einsum, on_cpu
from calibjax._core.environment import jit_long
from calibjax._core.pytree import record, varying_as

_UNROLLED = 8  # steps of a loop
# Numbers in each step, if parts of the line are processed in parallel.
_WIDTH, _ACCELERATOR_WIDTH = 128, 2**15


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
    >>> from calibjax.operators.line import Exponentials, line_forms
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
