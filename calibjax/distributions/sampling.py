"""Draws from batches of distributions."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax.distributions.base import Distribution


def sample_targets(key: jax.Array, predictions: Distribution) -> jax.Array:
    """Draws one target from each prediction of a batch: y_i ~ p_i, independently.

    Args:
        key: a JAX random key.
        predictions: a batch of n distributions.

    Returns:
        The targets, [n] or [n, d]; where traced parameters are invalid, NaN, or the smallest
        integer, which estimators and tests treat as NaN.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if the parameters have wrong shapes or values.

    Cost: n draws.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax.distributions import Normal, sample_targets
    >>> predictions = Normal(loc=jnp.array([1.0, 10.0]), scale=jnp.array([1e-3, 1e-3]))
    >>> sample_targets(jax.random.key(0), predictions).round()
    Array([ 1., 10.], dtype=float32)
    """
    key, predictions = checks.random_key(key), checks.batch(predictions)
    checks.method("predictions", predictions, "sample")
    targets = draw(key, predictions)
    if checks.is_concrete(predictions):
        return targets
    # Counts and labels cannot be NaN; the smallest integer stands for it.
    return checks.missing_where(checks.missing_rows(predictions), targets)


def check_draws(predictions: Distribution, targets: jax.Array) -> None:
    """Refuses predictions without `sample`, or whose draws are not shaped like the targets."""
    checks.method("predictions", predictions, "sample")
    drawn = _drawn.eval_shape(predictions)
    shapes, expected = (jax.tree.map(jnp.shape, tree) for tree in (drawn, targets))
    if shapes != expected:
        raise ValueError(
            f"predictions.sample: expected draws of the shape of the targets, {expected} for the "
            f"whole batch, got {shapes}"
        )


@jax.jit  # whose shapes are kept
def _drawn(predictions: Distribution) -> jax.Array:
    return draw(jax.random.key(0), predictions)


@jax.jit
def draw(key: jax.Array, predictions: Distribution) -> jax.Array:
    """`sample_targets` without the checks."""
    keys = jax.random.split(key, jax.tree.leaves(predictions)[0].shape[0])
    return draw_each(keys, predictions)


def draw_each(keys: jax.Array, predictions: Distribution) -> jax.Array:
    """One target from each prediction, for random keys [n] of which none is used elsewhere."""
    if not getattr(predictions, "is_inverted", False):
        return jax.vmap(lambda p, k: p.sample(k))(predictions, keys)
    drawn: Any = predictions
    levels = _uniform(keys, floating_dtype(predictions))
    return jax.vmap(lambda p, level: p.sample_at(level))(drawn, levels)


def _uniform(keys: jax.Array, dtype: DTypeLike) -> jax.Array:
    """A uniform number in [0, 1) for each key, [n]: its own bits, which are random as they are."""
    words = jax.random.key_data(keys)
    bits = words[..., 0]
    if jnp.finfo(dtype).bits == 64:
        bits = bits.astype(jnp.uint64) << 32 | words[..., 1]
    digits = jnp.finfo(dtype).nmant
    shift = jnp.iinfo(bits.dtype).bits - digits
    return (bits >> shift).astype(dtype) * jnp.array(2.0**-digits, dtype)
