"""The kernel of W19, and the tests that are compared in its Fig. 2 and 36."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax import distances, kernels
from calibjax._core.pytree import record
from calibjax.distributions import Categorical
from calibjax.estimators import ece
from calibjax.hypothesis_tests import (
    asymptotic_skce_test,
    consistency_test,
    distribution_free_skce_test,
    exact_skce_test,
)

Binning = Callable[[Any], jax.Array]

BINS_PER_CLASS = 10


@record
class PreparedCategorical(Categorical):
    """Class predictions that carry along what every one of the many resamples needs again.

    Attributes:
        probs: class probabilities, [m].
        bins: bin of the prediction, an integer.
        cumulative: cumulative sums of the probabilities, [m].
    """

    bins: jax.Array
    cumulative: jax.Array

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one label by inversion, from the same random number in both precisions.

        Single precision suffices: it changes the probability of a label by less than 2⁻²³.
        """
        level = jax.random.uniform(key, (), jnp.float32).astype(self.cumulative.dtype)
        label = jnp.sum(self.cumulative <= level * self.cumulative[-1])
        return jnp.minimum(label, self.cumulative.size - 1)


def prepare(probs: jax.Array, bins: jax.Array) -> PreparedCategorical:
    """Predictions with probabilities [n, m] and bins [n]."""
    return PreparedCategorical(probs, bins, jnp.cumsum(probs, -1))


def carried_bins(predictions: PreparedCategorical) -> jax.Array:
    """The binning that reads what `prepare` was given."""
    return predictions.bins


def w19_kernel(scale: jax.Array) -> kernels.TensorProduct:
    """The kernel of W19: exp(−TV(p, p') / ν) δ."""
    prediction = kernels.Exponential(scale, distances.TotalVariation())
    return kernels.TensorProduct(prediction, kernels.White())


@dataclasses.dataclass(frozen=True)
class Procedure:
    """A test.

    Attributes:
        label: name in tables and figures, that of W19 where it has one.
        slug: name in files.
        evaluate: (key, kernel, predictions, targets, draws) → p-value.
        dtype: precision of its data.
    """

    label: str
    slug: str
    evaluate: Callable[..., jax.Array]
    dtype: Any = jnp.float64


def _distribution_free(
    estimator: str, block_size: int | None, key: jax.Array, *samples: Any
) -> jax.Array:
    *samples, _ = samples
    test = distribution_free_skce_test(*samples, estimator=estimator, block_size=block_size)
    return test.pvalue


def _block(key: jax.Array, kernel: Any, predictions: Any, targets: Any, draws: int) -> jax.Array:
    samples = kernel, predictions, targets
    return asymptotic_skce_test(None, *samples, null="blocks", block_size=2).pvalue


def _bootstrap(key: jax.Array, *samples: Any) -> jax.Array:
    *samples, draws = samples
    return asymptotic_skce_test(key, *samples, num_draws=draws).pvalue


def _exact(key: jax.Array, *samples: Any) -> jax.Array:
    *samples, draws = samples
    # As many redraws at once as stay in the cache together with those of the whole batch.
    test = exact_skce_test(key, *samples, num_draws=draws, statistic="biased", batch_size=25)
    return test.pvalue


def consistency(
    binning: Binning, key: jax.Array, kernel: Any, predictions: Any, targets: Any, draws: int
) -> jax.Array:
    """p-value of consistency resampling with the ECE; no kernel is needed."""
    statistic = functools.partial(ece, binning=binning, notion="canonical")
    # Few redraws at once, whose sums in bins stay in the cache with those of the whole batch.
    test = consistency_test(key, statistic, predictions, targets, num_draws=draws, batch_size=4)
    return test.pvalue


EXACT = Procedure("exact (ours)", "exact", _exact, jnp.float32)
TESTS = (
    Procedure("C", "consistency", functools.partial(consistency, carried_bins)),
    Procedure("D_b", "free_biased", functools.partial(_distribution_free, "biased", None)),
    Procedure("D_uq", "free_unbiased", functools.partial(_distribution_free, "unbiased", None)),
    Procedure("D_ul", "free_block", functools.partial(_distribution_free, "block", 2)),
    Procedure("A_uq", "bootstrap", _bootstrap),
    Procedure("A_l", "block", _block),
    EXACT,
)
