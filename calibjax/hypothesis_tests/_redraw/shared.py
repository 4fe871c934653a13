"""Exact tests of several data sets with the same predictions, which share their redraws.

Given the predictions all data sets have one null distribution. A pool holds the targets of the data
sets, and behind them the redrawn ones, [R + B, n, ...]; every data set is ranked among the latter.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.batches import default_batch_size, map_batches
from calibjax._core.pytree import PyTree
from calibjax.distributions.base import Distribution
from calibjax.distributions.sampling import draw
from calibjax.hypothesis_tests._redraw.components import skce_components
from calibjax.hypothesis_tests._redraw.family import number_of
from calibjax.hypothesis_tests._redraw.plan import family_of
from calibjax.hypothesis_tests._redraw.pvalues import simulated_pvalue
from calibjax.hypothesis_tests.checked_kernels import checked_family
from calibjax.hypothesis_tests.directions import are_squares
from calibjax.hypothesis_tests.result import skce_result
from calibjax.hypothesis_tests.simulation import bytes_of_tile


@functools.partial(jax.jit, static_argnames=("n", "num_data_sets", "num_draws"))
def resampled(
    key: jax.Array,
    predictions: Distribution,
    truth: Distribution,
    weights: jax.Array | None = None,
    *,
    n: int,
    num_data_sets: int,
    num_draws: int,
) -> tuple[Any, jax.Array | None, PyTree]:
    """Some n of the predictions, with replacement, their weights, and targets from their truth."""
    keys = jax.random.split(key, 3)
    rows = jax.random.randint(keys[0], (n,), 0, jax.tree.leaves(predictions)[0].shape[0])
    given = predictions, truth, weights
    predictions, truth, weights = jax.tree.map(lambda leaf: leaf[rows], given)
    weights = checks.sample_weights(weights, predictions)

    def drawn(key: jax.Array, law: Distribution, number: int) -> jax.Array:
        return jax.vmap(lambda k: draw(k, law))(jax.random.split(key, number))

    targets = drawn(keys[1], truth, num_data_sets), drawn(keys[2], predictions, num_draws)
    pool = jax.tree.map(lambda y, z: jnp.concatenate([y.astype(z.dtype), z]), *targets)
    return predictions, weights, pool


def pvalues_of_kernels(
    kernels: Callable[[Any], PyTree],
    ranked: str | None,
    keys: jax.Array,
    predictions: Distribution,
    truth: Distribution,
    weights: jax.Array | None = None,
    **sizes: int,
) -> np.ndarray:
    """p-values of `exact_skce_test` with one of its statistics, or of the aggregated test.

    Args:
        kernels: predictions → kernels; a loop over the sets plans anew how they are evaluated.
        ranked: the statistic; None for the aggregated test.
        keys: one for each set of predictions, [S].
        predictions: the given ones.
        truth: the distributions of their targets.
        weights: theirs, or None.
        sizes: n, num_data_sets R, num_draws B.

    Returns:
        The p-values, [S, R].
    """
    sets = (resampled(key, predictions, truth, weights, **sizes) for key in keys)
    return np.stack(
        [
            pvalues_of_pool(kernels(own), ranked, own, pool, sizes["num_data_sets"], used)
            for own, used, pool in sets
        ]
    )


def pvalues_of_pool(
    kernels: PyTree,
    ranked: str | None,
    predictions: Distribution,
    pool: jax.Array,
    num_data_sets: int,
    weights: jax.Array | None = None,
) -> jax.Array:
    """p-values [R] of a pool of targets [R + B, n, ...], see `pvalues_of_kernels`."""
    # Kernels are as exact as they have to be up to the largest targets that they are planned for.
    widest = jax.tree.map(
        lambda y: y[0].at[:2].set(jnp.stack([y.min((0, 1)), y.max((0, 1))])), pool
    )
    members, structure = checked_family(kernels, predictions, widest)
    first = jax.tree.map(lambda y: jnp.swapaxes(y, 0, 1), pool)
    n = number_of(predictions, weights)
    return _ranked(
        family_of(members, predictions, widest),
        predictions,
        first,
        weights,
        n,
        num_data_sets=num_data_sets,
        ranked=ranked or "omnibus",
        structure=None if ranked else structure,
        squares=() if ranked else are_squares(members),
    )


@functools.partial(jax.jit, static_argnames=("num_data_sets", "ranked", "structure", "squares"))
def _ranked(
    family: Any,
    predictions: Distribution,
    targets: jax.Array,
    weights: jax.Array | None,
    n: jax.Array | int,
    *,
    num_data_sets: int,
    ranked: str,
    structure: Any,
    squares: tuple[bool, ...],
) -> jax.Array:
    """p-values for targets [n, R + B, ...], the samples first."""
    pool = jax.tree.map(lambda y: jnp.swapaxes(y, 0, 1), targets)
    evaluate = functools.partial(family, predictions, weights=weights)
    parts = map_batches(pool, evaluate, default_batch_size(family.num_bytes))
    if structure is None:
        parts = jax.tree.map(lambda x: x[:, 0], parts)

    def pvalue(own: PyTree) -> jax.Array:
        null = jax.tree.map(lambda x: x[num_data_sets:], parts)
        unbiased, diagonal = jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), own, null)
        pool, components = skce_components(
            unbiased,
            diagonal,
            num_targets=n,
            ranked=ranked,
            family=structure,
            squares=squares,
        )
        return skce_result(pool, components, own[0], draws="redrawn targets").pvalue

    return jax.lax.map(pvalue, jax.tree.map(lambda x: x[:num_data_sets], parts))


def pvalues_of_statistic(
    statistic: Callable[..., Any],
    keys: jax.Array,
    predictions: Distribution,
    truth: Distribution,
    weights: jax.Array | None = None,
    **sizes: int,
) -> jax.Array:
    """p-values [S, R] of `exact_test` with a checked statistic, see `pvalues_of_kernels`."""

    def of_set(key: jax.Array, *given: Any) -> jax.Array:
        predictions, own, pool = resampled(key, *given, **sizes)
        evaluate = jax.vmap(functools.partial(statistic, own, predictions))
        values = map_batches(pool, evaluate, default_batch_size(bytes_of_tile(sizes["n"])))
        if not (jax.tree_util.all_leaves([values]) and values.ndim == 1):
            shapes = jax.tree.map(lambda x: x.shape[1:], values)
            raise ValueError(f"test: expected a statistic that is one number, got shapes {shapes}")
        number = sizes["num_data_sets"]
        return simulated_pvalue(values[:number], values[number:, None])

    def of_sets(keys: jax.Array, *others: Any) -> jax.Array:
        return jax.lax.map(lambda key: of_set(key, *others), keys)

    return jax.jit(of_sets)(keys, predictions, truth, weights)
