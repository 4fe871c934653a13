"""Draws under the null hypothesis, in batches."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._core import checks
from calibjax._core.batches import default_batch_size
from calibjax._core.pytree import Numbers, PyTree
from calibjax.distributions import Ensemble
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare
from calibjax.operators.tiles import TILE_SIZE


def bytes_of_tile(num_samples: int) -> int:
    """Memory of a statistic that works on tiles of pairs."""
    return 16 * min(num_samples, TILE_SIZE) ** 2


def warn_of_members(predictions: Distribution) -> None:
    """Warns where targets would be resampled from the members of ensembles."""
    if isinstance(bare(predictions), Ensemble):
        words = "predictions: targets are resampled from the draws; ensemble_skce_test is exact"
        warnings.warn(f"{words} for every number of members", UserWarning, stacklevel=4)


def multinomial_counts(keys: jax.Array, num_samples: int) -> jax.Array:
    """Number of copies of each of n samples in a resample with replacement per key, [n, keys]."""

    def count(key: jax.Array) -> jax.Array:
        draws = jax.random.randint(key, (num_samples,), 0, num_samples)
        return jnp.zeros(num_samples, jnp.int32).at[draws].add(1)

    return jax.vmap(count, out_axes=1)(keys)


def checked_batch_size(batch_size: int | None, num_bytes: int) -> int:
    """The number of draws that are evaluated at once, by default by the memory of one."""
    return batch_size or default_batch_size(num_bytes)


@dataclasses.dataclass(frozen=True)
class Bound:
    """A function with its first arguments, equal to another one if they are."""

    function: Callable[..., Any]
    first: tuple[Any, ...]

    def __call__(self, *others: Any) -> Any:
        """The value."""
        return self.function(*self.first, *others)


def checked_statistic(statistic: Callable[..., Any]) -> Callable[..., Any]:
    """The statistic as (weights or None, predictions, targets) → floating-point values."""
    return Bound(_values, (statistic,))


def _values(statistic: Callable[..., Any], weights: Any, *samples: Any) -> PyTree:
    def number(leaf: Numbers) -> jax.Array:
        leaf = jnp.asarray(checks.real("statistic", leaf))
        return leaf.astype(jnp.result_type(leaf, jnp.float32))  # counts are numbers, too

    options = {} if weights is None else {"weights": weights}
    values = jax.tree.map(number, statistic(*samples, **options))
    if not any(map(jnp.size, jax.tree.leaves(values))):
        raise ValueError("statistic: expected a function that returns numbers, got none")
    return values
