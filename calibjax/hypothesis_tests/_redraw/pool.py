"""Statistics of redrawn targets, in batches and over devices."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._core import checks
from calibjax._core.batches import Result, jit_long, map_batches, map_shared
from calibjax._core.pytree import PyTree, T
from calibjax.distributions.sampling import draw
from calibjax.hypothesis_tests._redraw.features import Parts
from calibjax.hypothesis_tests._redraw.plan import Plan
from calibjax.hypothesis_tests.result import CalibrationTestResult, simulated_result
from calibjax.hypothesis_tests.simulation import checked_batch_size

_LARGE = 2**16  # samples, whose targets are drawn for one key after the other


def rank_among_redraws(
    key: jax.Array,
    statistic: Callable[[T, Any, Any], Any],
    data: T,
    predictions: PyTree,
    targets: PyTree,
    *,
    adjust: bool = False,
    draws: str = "targets resampled under the null",
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
        statistic: (data, predictions, targets) → values, compiled once for equal ones.
        data: what it needs; in a closure it would be compiled as a constant.
        predictions: what targets are redrawn from.
        targets: the observed ones.
        num_draws: the user's.
        batch_size: the user's.
        num_bytes: memory of one redraw.
        redraw: (key, predictions) → targets, the same object in all calls.
    """
    key = checks.random_key(key)
    each = jax.eval_shape(lambda: statistic(data, predictions, targets))
    numbers_each = sum(leaf.size for leaf in jax.tree.leaves(each))
    num_draws = checks.number_of_draws("num_draws", num_draws, numbers_each=numbers_each)
    batch_size = checked_batch_size(batch_size, num_bytes)
    keys = jax.random.split(key, num_draws)
    return _pool(statistic, redraw, batch_size, keys, data, predictions, targets)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _pool(
    statistic: Callable[[T, Any, Any], Any],
    redraw: Callable[[jax.Array, Any], Any],
    batch_size: int,
    keys: jax.Array,
    data: T,
    predictions: PyTree,
    targets: PyTree,
) -> tuple[PyTree, PyTree]:
    def evaluate(given: tuple[T, PyTree], ys: PyTree) -> PyTree:
        return jax.vmap(functools.partial(statistic, *given))(ys)

    def redrawn(given: tuple[T, PyTree], key: jax.Array) -> PyTree:
        return redraw(key, given[1])

    values = over_pool(keys, redrawn, evaluate, (data, predictions), targets, batch_size)
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


@functools.partial(jit_long, static_argnames="batch_size")
def _evaluated(keys: jax.Array, plan: Plan, *, batch_size: int) -> Parts:
    def redraw(plan: Plan, key: jax.Array) -> PyTree:
        return draw(key, plan.predictions)

    def evaluate(plan: Plan, targets: PyTree) -> Parts:
        return plan.family(plan.predictions, targets, weights=plan.weights)

    return over_pool(keys, redraw, evaluate, plan, plan.targets, batch_size)


def over_pool(
    keys: jax.Array,
    redraw: Callable[[Any, jax.Array], T],
    evaluate: Callable[[Any, T], Result],
    data: PyTree,
    targets: T,
    batch_size: int,
) -> Result:
    """Values of a function of batches of targets: of the observed ones first, then of redrawn ones.

    Args:
        keys: a random key for each redraw, [B].
        redraw: (data, key) → targets, [n, ...].
        evaluate: (data, targets [b, n, ...]) → a pytree of values, [b, ...] each.
        data: what both need; a pytree of arrays.
        targets: the observed ones, [n, ...].
        batch_size: largest b.

    Returns:
        The pytree of values, [B + 1, ...] each.
    """
    # The random bits of one large data set fit in a cache better than those of several.
    is_large = max(leaf.shape[0] for leaf in jax.tree.leaves(targets)) >= _LARGE

    def pool(given: tuple[Any, T], items: tuple[jax.Array, jax.Array]) -> Result:
        data, targets = given
        one = functools.partial(redraw, data)

        def batch(items: tuple[jax.Array, jax.Array]) -> Result:
            keys, is_observed = items
            drawn = jax.lax.map(one, keys) if is_large else jax.vmap(one)(keys)

            def chosen(y: jax.Array, z: jax.Array) -> jax.Array:
                return jnp.where(is_observed.reshape(-1, *[1] * y.ndim), y, z)

            return evaluate(data, jax.tree.map(chosen, targets, drawn))

        return map_batches(items, batch, batch_size)

    # In one program all have the same rounding errors, which are all that is left of a kernel that
    # is much wider than the data: the observed value must then be one of many.
    items = jnp.concatenate([keys[:1], keys]), jnp.arange(keys.size + 1) == 0
    return map_shared(pool, (data, targets), items)
