"""Exact sums over pairs of points on a line, with exponential kernels, in linear time.

Let x be in ascending order, and r ≥ 0 a rate. The sum of all earlier samples at x_j,

    S_j = Σ_{i<j} e^{−r (x_j − x_i)} f_i = e^{−r (x_j − x_{j−1})} (S_{j−1} + f_{j−1}),

follows from one pass, and Σ_{i<j} e^{−r |x_i − x_j|} f_i f_j = Σ_j f_j S_j. All factors are at most
1, so rounding errors do not grow. A kernel q(z) e^{−z} with a polynomial q of z = r |x_i − x_j|,
such as a Matérn kernel, needs the moments

    M_k = Σ_{i<j} z_ij^k e^{−z_ij} f_i,

which follow from the moments of the previous sample by the binomial theorem: over a distance z, M_k
becomes e^{−z} Σ_l C(k, l) z^{k−l} M_l.
"""

import dataclasses
import functools
import itertools
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
_FAR = 1e3  # the exponential is zero, and its products with powers are not NaN


@record
class Exponentials:
    """Terms of a kernel Σ_t c_t q_t(r_t d) exp(−r_t d) with polynomials q_t for which q_t(0) = 1.

    Attributes:
        factors: c, [T].
        rates: r, [T].
        polynomials: coefficients of q in ascending order.
    """

    factors: jax.Array
    rates: jax.Array
    polynomials: tuple[tuple[float, ...], ...] = dataclasses.field(metadata={"static": True})

    @property
    def coefficients(self) -> jax.Array:
        """Coefficients of c q, [T, K], padded with zeros."""
        rows = itertools.zip_longest(*self.polynomials, fillvalue=0.0)
        columns = jnp.asarray(list(rows), self.rates.dtype).reshape(-1, self.rates.size)
        return (self.factors * columns).T


def decayed(distance: jax.Array, num_moments: int) -> jax.Array:
    """z^k e^{−z} for k < K, [..., K]."""
    z = jnp.minimum(distance, _FAR) if num_moments > 1 else distance
    return jnp.stack([z**k * jnp.exp(-z) if k else jnp.exp(-z) for k in range(num_moments)], -1)


def sent_on(decay: jax.Array, moments: jax.Array, product: Callable = jnp.multiply) -> jax.Array:
    """Moments [..., K, c] after distances with a decay [..., K]."""
    sent = []
    for k in range(moments.shape[-2]):
        terms = [
            math.comb(k, m) * product(decay[..., k - m, None], moments[..., m, :])
            for m in range(k + 1)
        ]
        sent.append(sum(terms[1:], terms[0]))
    return jnp.stack(sent, -2)


def _sums_before(
    decays: Callable[[jax.Array], jax.Array], positions: jax.Array, values: jax.Array, number: int
) -> jax.Array:
    """Moments at each sample from previous samples, [n, T, K, c].

    The line is cut into parts, which are processed in parallel. With √n parts, rounding errors are
    those of √n steps.

    Args:
        decays: z^k e^{−z} over distances, [..., T, K].
        positions: of the samples in ascending order, [n].
        values: contribution of each sample to the moments, [n, 1 or T, K, c].
        number: number of parts.
    """
    filled = jnp.pad(positions, (0, -len(positions) % number), mode="edge")
    at = filled.reshape(number, -1)
    f = jnp.moveaxis(_in_parts(values, number), 1, 0)  # [L, parts, ...]
    first = at[:, :1]
    steps = jnp.moveaxis(decays(jnp.diff(at, axis=1, prepend=first)), 1, 0)

    def step(sent: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        decay, value = row
        sent = sent_on(decay, sent)
        return sent + value, sent

    start = jnp.zeros((number, steps.shape[2], *f.shape[3:]), f.dtype)
    start = varying_as(start, (steps, f))
    total, before = lax.scan(step, start, (steps, f), unroll=_UNROLLED)
    # Moments from previous parts at the first sample of a part are passed on to its samples.
    is_before = jnp.tri(number, k=-1, dtype=bool)
    sender = jnp.where(is_before, at[:, -1], first)
    across = jnp.where(is_before[..., None, None], decays(first - sender), 0)
    sums = functools.partial(einsum, "abtu,btc->atc")
    arrived = sent_on(across, total, sums)
    before += jnp.moveaxis(sent_on(decays(at - first), arrived[:, None]), 1, 0)
    return jnp.moveaxis(before, 0, 1).reshape(-1, *before.shape[2:])[: len(values)]


def _in_parts(values: jax.Array, number: int) -> jax.Array:
    """Rows cut into parts, the last one padded with zeros, [number, L, ...]."""
    pad = (0, -len(values) % number), *[(0, 0)] * (values.ndim - 1)
    return jnp.pad(values, pad).reshape(number, -1, *values.shape[1:])


@jit_long
def line_forms(values: jax.Array, positions: jax.Array, terms: Exponentials) -> jax.Array:
    """Σ_{i<j} K_ij f_ic f_jc of a kernel on a line, [c].

    It has derivatives of all orders. Derivatives between samples at one place are returned as zero,
    except second derivatives of Matérn kernels.

    Args:
        values: f, [n, c].
        positions: x in ascending order, [n].
        terms: T terms of the kernel.

    Cost: O(n T c) time and memory, and K (K + 1) / 2 times as much for K coefficients.

    >>> import jax.numpy as jnp
    >>> from calibjax.operators.line import Exponentials, line_forms
    >>> values, positions = jnp.array([[1.0], [2.0], [3.0]]), jnp.array([0.0, 0.0, 5.0])
    >>> terms = Exponentials(jnp.array([1.0]), jnp.array([100.0]), ((1.0,),))  # of equal points
    >>> print(line_forms(values, positions, terms))
    [2.]
    """
    rates, coefficients = terms.rates, terms.coefficients
    width = (rates.size + 1) * coefficients.shape[1] * values.shape[1]
    # With √n parts rounding errors are those of √n steps, and n numbers connect the parts.
    root, most = math.isqrt(len(values)), len(values) // 32
    number = max(_WIDTH // width, root)
    number = number if on_cpu() else min(_ACCELERATOR_WIDTH // width, 4 * root)
    number = max(1, min(most, number))
    # Derivatives by a position follow from its contributions to and from other places. Samples at
    # one place have no such derivatives, and are summed separately.
    num_moments = coefficients.shape[1]
    fixed = lax.stop_gradient(positions)
    change = (positions - fixed)[:, None] * rates
    # Contributions of values to the moments, [n, 1, K, c], are to order zero only.
    moments = jnp.pad(values[:, None, None], ((0, 0), (0, 0), (0, num_moments - 1), (0, 0)))
    sent = sent_on(decayed(-change, num_moments), moments)  # [n, T, K, c]
    every = jnp.concatenate([sent, moments], 1)

    def decays(distance: jax.Array) -> jax.Array:
        elsewhere = jnp.where(distance == 0, 0, _FAR).astype(distance.dtype)
        scaled = jnp.concatenate([distance[..., None] * rates, elsewhere[..., None]], -1)
        return decayed(scaled, num_moments)

    before = _sums_before(decays, fixed, every, number)
    n = len(values)
    places = jnp.arange(n)
    first = lax.cummax(jnp.where(jnp.diff(fixed, prepend=fixed[:1]) > 0, places, 0))
    received = sent_on(decayed(change, num_moments), before[first, :-1])
    alike = jnp.sum(coefficients[:, 0]) * before[:, -1, 0]  # [n, c]
    products = values * (einsum("tk,ntkc->nc", coefficients, received) + alike)
    # In two steps: a long sum of single numbers loses digits.
    total = jnp.sum(jnp.sum(_in_parts(products, number), 1), 0)
    if num_moments == 1:
        return total
    # Zero, for second derivatives of q(z) e^{−z} = 1 − a z² + … at one place.
    q = jnp.pad(coefficients, ((0, 0), (0, 1)))
    squares = jnp.square(rates)
    squares = jnp.where(jnp.isfinite(squares), squares, 0)
    curvature = jnp.sum(jnp.where(q[:, 1] == q[:, 0], q[:, 2] - q[:, 0] / 2, 0) * squares)
    powers = [values * jnp.power((positions - fixed)[:, None], k) for k in range(3)]
    zeroth, one, two = (jax.ops.segment_sum(power, first, n) for power in powers)
    return total + curvature * jnp.sum(zeroth * two - jnp.square(one), 0)
