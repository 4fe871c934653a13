"""The generative models of W19 §7 and the tests that are compared on them.

A test is applied to many data sets in batches. The random numbers of its draws are shared by the
data sets of one batch, which leaves each p-value as it is and makes the draws several times
cheaper; different batches, and the data sets themselves, have random numbers of their own.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax import distances, kernels
from calibjax._core.pytree import record
from calibjax.distributions import Categorical
from calibjax.estimators import UniformBins, ece
from calibjax.hypothesis_tests import (
    asymptotic_skce_test,
    consistency_test,
    distribution_free_skce_test,
    exact_skce_test,
)
from experiments.harness import cells

Binning = Callable[[Any], jax.Array]

NAME = "w19_tests"  # of the experiment, which its random numbers depend on
NUM_CLASSES = 10
CONCENTRATION = 0.1
BINS_PER_CLASS = 10
# (π, β): with probability π a label is drawn from β, otherwise from the prediction.
MODELS = {"M1": (0.0, "first"), "M2": (0.5, "first"), "M3": (1.0, "uniform")}


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


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Data sets that are computed and stored together.

    Attributes:
        model: "M1", "M2" or "M3".
        index: number of the chunk.
        data_sets: number of data sets in it, a multiple of `batch_size`.
        batch_size: number of data sets that share the random numbers of their tests.
        num_samples: n of each data set.
        draws: resamples or redraws of each test.
    """

    model: str
    index: int
    data_sets: int
    batch_size: int
    num_samples: int
    draws: int

    @property
    def name(self) -> str:
        """Name of the chunk, which determines its data sets."""
        return f"{self.model}/{self.index:03d}"


def draw_data_set(key: jax.Array, model: str, num_samples: int) -> tuple[jax.Array, jax.Array]:
    """Predictions Dir(0.1, …, 0.1), [n, 10], and labels, [n]."""
    share, beta = MODELS[model]
    return _draw_data_set(key, share, beta == "uniform", num_samples)


def _draw_data_set(
    key: jax.Array, share: float, is_uniform: bool, num_samples: int
) -> tuple[jax.Array, jax.Array]:
    prediction_key, label_key, choice_key, other_key = jax.random.split(key, 4)
    concentration = jnp.full(NUM_CLASSES, CONCENTRATION)
    probs = jax.random.dirichlet(prediction_key, concentration, (num_samples,))
    predicted = jax.random.categorical(label_key, jnp.log(probs))
    others = jax.random.randint(other_key, (num_samples,), 0, NUM_CLASSES)
    others = jnp.where(is_uniform, others, 0)
    is_predicted = jax.random.uniform(choice_key, (num_samples,)) < 1 - share
    return probs, jnp.where(is_predicted, predicted, others)


@functools.partial(jax.jit, static_argnames="num_samples")
def _draw_data_sets(
    keys: jax.Array, share: float, is_uniform: bool, *, num_samples: int
) -> tuple[jax.Array, jax.Array]:
    return jax.vmap(lambda key: _draw_data_set(key, share, is_uniform, num_samples))(keys)


@jax.jit
def _prepare_data_sets(probs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Length scale and bins of each data set [b, s, n, m] in batches.

    The length scale is the median over the full matrix of distances, its zero diagonal included,
    as in the code of the paper.
    """

    def one(probs: jax.Array) -> tuple[jax.Array, jax.Array]:
        predictions = Categorical(probs)
        distance = distances.TotalVariation()
        scale = kernels.median_heuristic(distance, predictions, include_diagonal=True)
        return scale, UniformBins(BINS_PER_CLASS)(predictions)

    return lax.map(jax.vmap(one), probs)


@functools.cache
def _compiled(procedure: Procedure, draws: int, shapes: tuple) -> Callable:
    """p-values of data sets (keys [b], scales, probs, bins, targets [b, s, …]), [b, s]."""

    def one(key: Any, scale: Any, probs: Any, bins: Any, targets: Any) -> jax.Array:
        predictions = prepare(probs.astype(procedure.dtype), bins)
        kernel = w19_kernel(scale.astype(procedure.dtype))
        return procedure.evaluate(key, kernel, predictions, targets, draws)

    batch = jax.vmap(one, in_axes=(None, 0, 0, 0, 0))
    return jax.jit(lambda *args: lax.map(lambda x: batch(*x), args)).lower(*shapes).compile()


def _timed(function: Callable, *args: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    result = jax.block_until_ready(function(*args))
    return result, time.perf_counter() - start


def chunk_data(chunk: Chunk) -> tuple[jax.Array, jax.Array]:
    """Predictions and labels of the data sets of a chunk, in batches, [b, s, n, …]."""
    keys = jax.random.split(cells.key_of(f"{NAME}/{chunk.name}/data"), chunk.data_sets)
    share, beta = MODELS[chunk.model]
    data = _draw_data_sets(keys, share, beta == "uniform", num_samples=chunk.num_samples)
    return jax.tree.map(lambda x: x.reshape(-1, chunk.batch_size, *x.shape[1:]), data)


def simulate(chunk: Chunk, procedures: tuple[Procedure, ...]) -> dict[str, Any]:
    """p-values of tests on the data sets of a chunk.

    Returns:
        `pvalues` by slug, [data_sets] each, with 1 where the block test has none because all
        block estimates are equal; `undefined`, the number of those by slug; `seconds` by slug,
        without compilation, and of "length scale and bins".
    """
    probs, targets = chunk_data(chunk)
    _prepare_data_sets.lower(probs).compile()
    (scales, bins), seconds = _timed(_prepare_data_sets, probs)
    result: dict[str, Any] = {"pvalues": {}, "undefined": {}}
    result["seconds"] = {"length scale and bins": seconds}
    for procedure in procedures:
        key = cells.key_of(f"{NAME}/{chunk.name}/{procedure.slug}")
        data_sets = jax.random.split(key, probs.shape[0]), scales, probs, bins, targets
        shapes = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in data_sets)
        evaluate = _compiled(procedure, chunk.draws, shapes)
        values, result["seconds"][procedure.slug] = _timed(evaluate, *data_sets)
        values = np.asarray(values, np.float64).ravel()
        result["undefined"][procedure.slug] = int(np.isnan(values).sum())
        result["pvalues"][procedure.slug] = np.where(np.isnan(values), 1, values).tolist()
    return result
