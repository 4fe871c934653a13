"""Redraws, the engine of every test that ranks a statistic among resampled ones.

One program evaluates a function of the observed targets and of B redrawn ones, in batches. Under
the hypothesis these B + 1 values are exchangeable, so the rank of the observed value is uniform.
"""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.environment import Result, default_batch_size, jit_long, map_batches, map_shared
from calibjax._core.pytree import Numbers, PyTree, T
from calibjax.distributions import Ensemble
from calibjax.distributions.base import Distribution, check_draws, draw
from calibjax.distributions.composed import bare
from calibjax.hypothesis_tests.result import CalibrationTestResult, simulated_result
from calibjax.kernels import Kernel
from calibjax.operators.plan import Plan, plan_of

Means = tuple[jax.Array, jax.Array]  # of h off and on the diagonal
_MANY = 1e11  # evaluations of kernels, which take minutes on any device


def rank_among_redraws(*data: Any, adjust: bool = False, **options: Any) -> CalibrationTestResult:
    """Test with a statistic of checked data; arguments are those of `observed_and_redrawn`."""
    observed, null_samples = observed_and_redrawn(*data, **options)
    return simulated_result(observed, null_samples, observed, adjust=adjust)


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
    """Observed statistic, and the statistics of redrawn targets, [B, ...], by one program.

    Args:
        key: the user's random key.
        statistic: (data, predictions, targets) → values, compiled once for equal ones.
        data: first argument of the statistic; in a closure it would be compiled as a constant.
        predictions: distributions from which targets are redrawn.
        targets: the observed ones.
        num_draws: B, as given by the user.
        batch_size: as given by the user.
        num_bytes: memory of one redraw.
        redraw: (key, predictions) → targets, the same object in all calls.
    """
    if redraw is draw:
        check_draws(predictions, targets)
    batch_size = batch_size or default_batch_size(num_bytes)
    keys = jax.random.split(key, num_draws)
    return _pool(statistic, redraw, batch_size, keys, data, predictions, targets)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _pool(
    statistic: Any, redraw: Any, batch_size: int, keys: jax.Array, data: Any, *samples: PyTree
) -> tuple[PyTree, PyTree]:
    predictions, targets = samples

    def evaluate(given: tuple[Any, PyTree], ys: PyTree) -> PyTree:
        return jax.vmap(functools.partial(statistic, *given))(ys)

    def redrawn(given: tuple[Any, PyTree], key: jax.Array) -> PyTree:
        return redraw(key, given[1])

    values = over_pool(keys, redrawn, evaluate, (data, predictions), targets, batch_size)
    # The statistic need not depend on all of the data.
    observed = checks.nan_with(jax.tree.map(lambda x: x[0], values), predictions, targets)
    return observed, jax.tree.map(lambda x: x[1:], values)


def means_of_redraws(
    key: jax.Array,
    members: Sequence[tuple[Any, Kernel]],
    predictions: Distribution,
    targets: jax.Array,
    weights: jax.Array | None,
    *,
    num_draws: int,
    batch_size: int | None = None,
) -> tuple[Means, jax.Array | int]:
    """Means of h off and on the diagonal for the observed targets, then for redrawn ones.

    Each kernel is a pair (reduction, kernel), and the data are checked. All redraws keep the
    weights of the samples.

    Returns:
        Both means, [B + 1, K] each, and the (effective) number of samples.
    """
    check_draws(predictions, targets)
    n = number_with_pairs(predictions, weights)
    plan = plan_of(members, predictions, targets)
    work = plan.num_by_pairs * num_draws * checks.leading_size("targets", targets) ** 2 / 2
    if work > _MANY:
        warnings.warn(
            f"{work:.1e} evaluations of kernels on pairs of samples will take minutes to hours; "
            "choose fewer num_draws, fewer samples, or kernels that need no pairs, such as "
            "kernels.SquaredExponential on targets with kernels.Nystrom on predictions",
            stacklevel=5,
        )
    size = batch_size or default_batch_size(plan.num_bytes)
    keys, data = jax.random.split(key, num_draws), (plan, predictions, weights)
    return over_pool(keys, _redrawn, _means, data, targets, size), n


def _redrawn(data: tuple[Plan, Distribution, Any], key: jax.Array) -> PyTree:
    return draw(key, data[1])


def _means(data: tuple[Plan, Distribution, Any], targets: PyTree) -> Means:
    plan, predictions, weights = data
    return as_means(number_of(predictions, weights), *plan.sums(predictions, targets, weights))


@functools.partial(jit_long, static_argnames=("redraw", "evaluate", "batch_size"))
def over_pool(
    keys: jax.Array,
    redraw: Callable[[Any, jax.Array], T],
    evaluate: Callable[[Any, T], Result],
    data: PyTree,
    targets: T,
    batch_size: int,
) -> Result:
    """Values of a function of targets, the observed ones first, then the redrawn ones.

    Args:
        keys: a random key for each redraw, [B].
        redraw: (data, key) → targets, [n, ...]; it and `evaluate` are compiled once each.
        evaluate: (data, targets [b, n, ...]) → a pytree of values, [b, ...] each.
        data: what both need; a pytree of arrays.
        targets: the observed ones, [n, ...].
        batch_size: largest b.

    Returns:
        The pytree of values, [B + 1, ...] each.
    """

    def pool(given: tuple[Any, T], items: tuple[jax.Array, jax.Array]) -> Result:
        data, targets = given
        one = functools.partial(redraw, data)

        def batch(items: tuple[jax.Array, jax.Array]) -> Result:
            keys, is_observed = items
            # One by one: a program for the random bits of many keys takes seconds to compile.
            drawn = jax.lax.map(one, keys)

            def chosen(y: jax.Array, z: jax.Array) -> jax.Array:
                return jnp.where(is_observed.reshape(-1, *[1] * y.ndim), y, z)

            return evaluate(data, jax.tree.map(chosen, targets, drawn))

        return map_batches(items, batch, batch_size)

    # In one program all values have the same rounding errors. With a kernel much wider than the
    # data only these are left, and the observed value must then tie with the others.
    items = jnp.concatenate([keys[:1], keys]), jnp.arange(keys.size + 1) == 0
    return map_shared(pool, (data, targets), items)


def as_means(n: jax.Array | int, off_diagonal: jax.Array, diagonal: jax.Array) -> Means:
    """Means of h from its sums off and on the diagonal, over n samples."""
    return off_diagonal / n / (n - 1), diagonal / n  # n² may overflow


def number_of(predictions: Distribution, weights: jax.Array | None) -> jax.Array | int:
    """Number of samples n, or the effective number with weights."""
    length = checks.leading_size("predictions", predictions)
    return length if weights is None else jnp.sum(weights)


def number_with_pairs(predictions: Distribution, weights: jax.Array | None) -> jax.Array | int:
    """`number_of` samples; refuses weights of which one sample has all, up to rounding."""
    number, dtype = number_of(predictions, weights), floating_dtype(predictions)
    if checks.is_concrete(number) and float(number) - 1 <= 8 * float(jnp.finfo(dtype).eps):
        raise ValueError(
            f"weights: expected at least two that count, got one sample, rounded to {dtype}"
        )
    return number


def warn_of_members(predictions: Distribution) -> None:
    """Warns if targets would be resampled from the members of ensembles."""
    if isinstance(bare(predictions), Ensemble):
        words = "predictions: targets are resampled from the draws; ensemble_skce_test is exact"
        warnings.warn(f"{words} for every number of members", UserWarning, stacklevel=4)


def values_of(data: tuple[Callable[..., Any], Any], *samples: Any) -> PyTree:
    """Floating-point values of a user's statistic of predictions and targets.

    Args:
        data: `Partial(statistic)`, and weights or None.
        samples: predictions and targets.
    """

    def number(leaf: Numbers) -> jax.Array:
        leaf = jnp.asarray(checks.real("statistic", leaf))
        return leaf.astype(jnp.result_type(leaf, jnp.float32))  # counts are integers

    statistic, weights = data
    options = {} if weights is None else {"weights": weights}
    values = jax.tree.map(number, statistic(*samples, **options))
    if not any(map(jnp.size, jax.tree.leaves(values))):
        raise ValueError("statistic: expected a function that returns numbers, got none")
    return values
