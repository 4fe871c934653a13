"""Samples on stretches of a line, which are joined end to end."""

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.arithmetic import einsum
from calibjax._core.pytree import record
from calibjax.kernels.line import Exponentials
from calibjax.pairwise.line import coefficients_of, decayed, forms_between, sent_on
from calibjax.streaming.base import State, summed


@record
class Stretch(State):
    """What samples on a stretch of a line have been, and what they send beyond its ends.

    Attributes:
        ends: embeddings of the first and of the last sample, [2, d]. They differ in one coordinate.
        moments: Σ_i z_i^k e^{−z_i} f_i with the distances z_i from the first sample, and from the
            last one, times each rate of the kernel, [..., 2, T, K, r].
    """

    ends: jax.Array
    moments: jax.Array


def offsets_of(embedded: jax.Array) -> jax.Array:
    """Places on a line that is parallel to an axis, from the first of the points, [n, d] → [n]."""
    return jnp.sum(embedded - embedded[0], 1)


def ends_of(embedded: jax.Array) -> jax.Array:
    """First and last of points as for `offsets_of`, [2, d]; NaN if they are on no such line."""
    offsets = offsets_of(embedded)
    ends = embedded[jnp.stack([jnp.argmin(offsets), jnp.argmax(offsets)])]
    is_line = jnp.sum(jnp.any(embedded != embedded[0], 0)) <= 1
    return jnp.where(is_line, ends, jnp.nan)


def _gaps(a: Stretch, b: Stretch) -> tuple[jax.Array, jax.Array]:
    """From the last sample of a to the first of b, and the other way round; zero if one is empty.

    All coordinates but one are equal, so that the sum over them is a distance with a sign.
    """
    is_empty, up = _is_empty(a) | _is_empty(b), jnp.sum(b.ends[0] - a.ends[1])
    return jnp.where(is_empty, 0, up), jnp.where(is_empty, 0, jnp.sum(a.ends[0] - b.ends[1]))


def _is_empty(stretch: Stretch) -> jax.Array:
    return stretch.counts["samples"] == 0


def _are_in_line(a: Stretch, b: Stretch) -> jax.Array:
    """Whether all ends differ in at most one coordinate, and the stretches do not overlap."""
    differ = jnp.any(jnp.concatenate([a.ends, b.ends]) != a.ends[0], 0)
    are_apart = (jnp.sum(differ) <= 1) & (jnp.maximum(*_gaps(a, b)) >= 0)
    return (_is_empty(a) | _is_empty(b) | are_apart) & ~jnp.any(jnp.isnan(b.ends))


def refuse_apart(name: str, a: Stretch, b: Stretch) -> None:
    """Refuses known stretches that do not lie end to end on one line."""
    if not checks.is_concrete(a, b) or bool(_are_in_line(a, b)):
        return
    if np.any(np.isnan(b.ends)):
        raise ValueError(
            f"{name}: expected points on a line, such as probabilities of two classes or normals "
            "with a common scale, got some that differ in two coordinates or more"
        )
    number, others = int(a.counts["samples"]), int(b.counts["samples"])
    raise ValueError(
        f"{name}: expected predictions of which none lies among the {number} in the state, on the "
        f"same line as these, got {others} of which some do, or are on another line"
    )


@jax.jit
def joined(own: Exponentials, a: Stretch, b: Stretch) -> Stretch:
    """The samples of two stretches that lie end to end, in either order; NaN of others.

    Pairs with one sample in each are a distance x from the last of the lower samples, the gap
    between the stretches, and a distance y from the first of the upper ones apart, and the moments
    of such sums are those of their terms.
    """
    is_valid, gaps = _are_in_line(a, b), _gaps(a, b)
    a_ends = jnp.where(_is_empty(a), b.ends[:1], a.ends)
    b_ends = jnp.where(_is_empty(b), a_ends[1:], b.ends)
    is_lower = gaps[0] >= 0  # a, or one of them is empty

    def chosen(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.where(is_lower, x, y), jnp.where(is_lower, y, x)

    low_ends, high_ends = chosen(a_ends, b_ends)
    low, high = (jnp.moveaxis(x, -4, 0) for x in chosen(a.moments, b.moments))

    def sent(moments: jax.Array, start: jax.Array, end: jax.Array) -> jax.Array:
        distance = jnp.abs(jnp.sum(end - start))
        return sent_on(decayed(distance * own.rates, own.num_moments), moments)

    coefficients = coefficients_of(own.polynomials, own.rates)
    pairs = forms_between(coefficients, sent(low[1], low_ends[1], high_ends[0]), high[0])
    between = 2 * einsum("t,...tr->...", own.factors, pairs)
    both = summed(a, b)
    forms = both.sums["forms"].plus(jnp.where(is_valid, between, jnp.nan))
    first = low[0] + sent(high[0], high_ends[0], low_ends[0])
    last = high[1] + sent(low[1], low_ends[1], high_ends[1])
    ends, moments = jnp.stack([low_ends[0], high_ends[1]]), jnp.stack([first, last], -4)
    return Stretch(both.counts, both.sums | {"forms": forms}, ends, moments)
