"""Statistics of redrawn targets, in batches and over devices."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._core import checks
from calibjax._core.batches import map_batches
from calibjax._core.compilation import compiled_once, jit
from calibjax._core.pytree import PyTree, T
from calibjax._core.sharding import WHOLE, Result, devices
from calibjax.distributions.sampling import draw
from calibjax.hypothesis_tests._redraw.features import Parts
from calibjax.hypothesis_tests._redraw.plan import Plan
from calibjax.hypothesis_tests.result import CalibrationTestResult, simulated_result
from calibjax.hypothesis_tests.simulation import checked_batch_size
from calibjax.pairwise.tiles import TILE_SIZE

_SMALL = 8 * TILE_SIZE**2  # bytes of data that every device may hold: a tile
_LARGE = 2**16  # samples, whose targets are drawn for one key after the other
_LONG = 5e7  # numbers of predictions, times redraws, from which on optimised programs pay


def rank_among_redraws(
    key: jax.Array,
    statistic: Callable[[T, Any, Any], Any],
    data: T,
    predictions: PyTree,
    targets: PyTree,
    *,
    adjust: bool = False,
    draws: str = "redrawn targets",
    **options: Any,
) -> CalibrationTestResult:
    """The test with a statistic of checked data; arguments are those of `observed_and_redrawn`."""
    observed, null_samples = observed_and_redrawn(
        key, statistic, data, predictions, targets, **options
    )
    return simulated_result(observed, null_samples, observed, draws=draws, adjust=adjust)


def observed_and_redrawn(
    key: jax.Array,
    statistic: Callable[[T, Any, Any], Any],
    data: T,
    predictions: PyTree,
    targets: PyTree,
    *,
    num_draws: int,
    batch_size: int | None = None,
    num_bytes: int = 1,
    redraw: Callable[[jax.Array, Any], Any] = draw,
) -> tuple[PyTree, PyTree]:
    """Values of a statistic, and those of redrawn targets, [B, ...], all by one program.

    Args:
        key: the user's random key.
        statistic: (data, predictions, targets) → values.
        data: what it needs; in a closure it would be compiled as a constant.
        predictions: what targets are redrawn from.
        targets: the observed ones.
        num_draws: the user's.
        batch_size: the user's.
        num_bytes: memory of one redraw.
        redraw: (key, predictions) → targets.
    """
    key = checks.random_key(key)
    each = jax.eval_shape(lambda: statistic(data, predictions, targets))
    numbers_each = sum(leaf.size for leaf in jax.tree.leaves(each))
    num_draws = checks.number_of_draws("num_draws", num_draws, numbers_each=numbers_each)
    batch_size = checked_batch_size(batch_size, num_bytes)
    keys = jax.random.split(key, num_draws)
    pool = functools.partial(_pool, statistic, redraw, batch_size)
    num_values = sum(leaf.size for leaf in jax.tree.leaves(predictions))
    effort = "well" if num_draws * num_values >= _LONG else "less"
    return compiled_once(pool, keys, data, predictions, targets, effort=effort)


def _pool(
    statistic: Callable[[T, Any, Any], Any],
    redraw: Callable[[jax.Array, Any], Any],
    batch_size: int,
    keys: jax.Array,
    data: T,
    predictions: PyTree,
    targets: PyTree,
) -> tuple[PyTree, PyTree]:
    evaluate = jax.vmap(functools.partial(statistic, data, predictions))
    values = over_pool(keys, lambda k: redraw(k, predictions), evaluate, targets, batch_size)
    # The statistic need not depend on all of the data.
    observed = checks.nan_with(jax.tree.map(lambda x: x[0], values), predictions, targets)
    return observed, jax.tree.map(lambda x: x[1:], values)


def evaluate_plan(key: jax.Array, plan: Plan, *, num_draws: int, batch_size: int | None) -> Parts:
    """Means of h off and on the diagonal for the observed targets, then for redrawn ones.

    The weights of the samples stay; the options are the user's.

    Returns:
        Both means, [B + 1, K] each.
    """
    number = checks.number_of_draws("num_draws", num_draws)
    keys = jax.random.split(checks.random_key(key), number)  # by one program for all tests
    return _evaluated(keys, plan, batch_size=checked_batch_size(batch_size, plan.family.num_bytes))


def _is_long(keys: jax.Array, plan: Plan, **_: int) -> bool:
    """Whether optimised sums of kernels pay."""
    return keys.size * sum(map(jnp.size, jax.tree.leaves(plan.predictions))) >= _LONG / 10


@functools.partial(jit, static_argnames="batch_size", effort="less", runs_long=_is_long)
def _evaluated(keys: jax.Array, plan: Plan, *, batch_size: int) -> Parts:
    num_draws, split = keys.size, devices()

    def pool(plan: Plan, keys: jax.Array) -> Parts:
        evaluate = functools.partial(plan.family, plan.predictions, weights=plan.weights)
        redraw = lambda key: draw(key, plan.predictions)  # noqa: E731
        return over_pool(keys, redraw, evaluate, plan.targets, batch_size)

    if split is None or sum(leaf.nbytes for leaf in jax.tree.leaves(plan)) > _SMALL:
        return pool(plan, keys)
    # Little data are cheaper to copy than to hand round: each device evaluates some redraws.
    number = -(-num_draws // split.number)
    places = jnp.minimum(jnp.arange(number * split.number), num_draws - 1)
    parts = split.run(pool, (WHOLE, split.rows), split.rows)(plan, keys[places])

    def joined(part: jax.Array) -> jax.Array:
        of_devices = part.reshape(split.number, number + 1, -1)
        redraws = of_devices[:, 1:].reshape(-1, part.shape[1])[:num_draws]
        return jnp.concatenate([part[:1], redraws])

    return jax.tree.map(joined, parts)


def over_pool(
    keys: jax.Array,
    redraw: Callable[[jax.Array], T],
    evaluate: Callable[[T], Result],
    targets: T,
    batch_size: int,
) -> Result:
    """Values of a function of batches of targets: of the observed ones first, then of redrawn ones.

    Args:
        keys: a random key for each redraw, [B].
        redraw: key → targets, [n, ...].
        evaluate: targets [b, n, ...] → a pytree of values, [b, ...] each.
        targets: the observed ones, [n, ...].
        batch_size: largest b.

    Returns:
        The pytree of values, [B + 1, ...] each.
    """
    # The random bits of one large data set fit in a cache better than those of several.
    is_large = max(leaf.shape[0] for leaf in jax.tree.leaves(targets)) >= _LARGE

    def batch(items: tuple[jax.Array, jax.Array]) -> Result:
        keys, is_observed = items
        drawn = jax.lax.map(redraw, keys) if is_large else jax.vmap(redraw)(keys)

        def chosen(y: jax.Array, z: jax.Array) -> jax.Array:
            return jnp.where(is_observed.reshape(-1, *[1] * y.ndim), y, z)

        return evaluate(jax.tree.map(chosen, targets, drawn))

    # In one program all have the same rounding errors, which are all that is left of a kernel that
    # is much wider than the data: the observed value must then be one of many.
    items = jnp.concatenate([keys[:1], keys]), jnp.arange(keys.size + 1) == 0
    return map_batches(items, batch, batch_size)
