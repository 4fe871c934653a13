"""The synthetic models of W21 App. A.2 and the estimators and tests that are compared on them."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax.distributions import DiagNormal, Normal, sample_targets
from calibjax.estimators import skce, skce_biased, skce_block
from calibjax.hypothesis_tests import (
    asymptotic_skce_test,
    cme_test,
    exact_skce_test,
    exact_test,
)
from experiments.harness import cells
from paper_repro.w21.locations import draw_test_locations
from paper_repro.w21.ols import paper_kernel

SCALE = 0.1
SHIFTED_MEAN = 0.1
NUM_LOCATIONS = 10


@dataclasses.dataclass(frozen=True)
class Procedure:
    """An estimator, whose value is the estimate, or a test, whose value is the p-value.

    Attributes:
        label: name in tables, that of the published ones where they have it.
        slug: name in files.
        evaluate: (key, predictions, targets, draws) → value.
        draws: what is drawn for a simulated p-value, "resamples", "redraws" or "CME redraws";
            None where nothing is simulated.
        min_samples: smallest n that it accepts.
    """

    label: str
    slug: str
    evaluate: Callable[..., jax.Array]
    draws: str | None = None
    min_samples: int = 2


Evaluate = Callable[[jax.Array, Any, jax.Array, Any], Any]  # of a `Procedure`


def _estimate(estimator: Callable[..., jax.Array]) -> Evaluate:
    return lambda key, predictions, targets, draws: estimator(paper_kernel(), predictions, targets)


def _in_blocks(function: Callable[..., Any], choose_size: Callable[[int], int]) -> Evaluate:
    def evaluate(key: jax.Array, predictions: Any, targets: jax.Array, draws: None) -> Any:
        size = choose_size(targets.shape[0])
        return function(paper_kernel(), predictions, targets, block_size=size)

    return evaluate


def _pvalue_in_blocks(choose_size: Callable[[int], int]) -> Evaluate:
    in_blocks = functools.partial(asymptotic_skce_test, None, null="blocks")
    test = _in_blocks(in_blocks, choose_size)
    return lambda *arguments: test(*arguments).pvalue


def _bootstrap_test(key: jax.Array, predictions: Any, targets: jax.Array, draws: int) -> jax.Array:
    test = asymptotic_skce_test(key, paper_kernel(), predictions, targets, num_draws=draws)
    return test.pvalue


def _exact_test(key: jax.Array, predictions: Any, targets: jax.Array, draws: int) -> jax.Array:
    samples = paper_kernel(), predictions, targets
    return exact_skce_test(key, *samples, num_draws=draws, statistic="biased").pvalue


def _locations(key: jax.Array, targets: jax.Array) -> dict[str, Any]:
    """Test locations of the CME test, drawn anew for each data set."""
    locations = draw_test_locations(key, NUM_LOCATIONS, *targets.shape[1:], scale=SCALE)
    return dict(zip(("at_predictions", "at_targets"), locations, strict=True))


def _cme_test(key: jax.Array, predictions: Any, targets: jax.Array, draws: None) -> jax.Array:
    test = cme_test(None, paper_kernel(), predictions, targets, **_locations(key, targets))
    # Rarely, at n = 16, the covariance is singular up to rounding: such data are not rejected.
    return jnp.where(jnp.isnan(test.pvalue), 1, test.pvalue)


def _exact_cme_test(key: jax.Array, predictions: Any, targets: jax.Array, draws: int) -> jax.Array:
    location_key, test_key = jax.random.split(key)
    locations = _locations(location_key, targets)

    def statistic(predictions: Any, targets: jax.Array) -> jax.Array:
        value = cme_test(None, paper_kernel(), predictions, targets, **locations).statistic
        return jnp.where(jnp.isnan(value), 0, value)

    return exact_test(test_key, statistic, predictions, targets, num_draws=draws).pvalue


def _two(num_samples: int) -> int:
    return 2


ESTIMATORS = (
    Procedure("SKCE", "biased", _estimate(skce_biased)),
    Procedure("SKCE (B = 2)", "block_2", _in_blocks(skce_block, _two)),
    Procedure("SKCE (B = √n)", "block_sqrt", _in_blocks(skce_block, math.isqrt)),
    Procedure("SKCE (B = n)", "unbiased", _estimate(skce)),
)
EXACT = Procedure("exact (ours)", "exact", _exact_test, "redraws")
# With n ≤ J the covariance of the CME test is singular.
CME = Procedure("CME", "cme", _cme_test, min_samples=NUM_LOCATIONS + 1)
EXACT_CME = Procedure(
    "exact CME (ours)", "exact_cme", _exact_cme_test, "CME redraws", NUM_LOCATIONS + 1
)
TESTS = (
    Procedure("SKCE (B = 2)", "block_2", _pvalue_in_blocks(_two)),
    Procedure("SKCE (B = √n)", "block_sqrt", _pvalue_in_blocks(math.isqrt)),
    Procedure("SKCE (B = n)", "bootstrap", _bootstrap_test, "resamples"),
    EXACT,
    CME,
    EXACT_CME,
)


@dataclasses.dataclass(frozen=True)
class Simulation:
    """What is repeated over independent data sets.

    Attributes:
        model: "calibrated" or "uncalibrated".
        dimension: d of the targets.
        num_samples: n of each data set.
        data_sets: number of data sets.
        draws: resamples or redraws of each test; None for estimators and block tests.
        timing: seconds that runs over all data sets are repeated for, to find their fastest.
    """

    model: str
    dimension: int
    num_samples: int
    data_sets: int
    draws: int | None = None
    timing: float = 0.0

    @property
    def name(self) -> str:
        """Name of the kind of data set, which determines the data sets."""
        return f"{self.model}/d{self.dimension}/n{self.num_samples}"


def draw_data_set(
    key: jax.Array, calibrated: jax.Array, dimension: int, num_samples: int
) -> tuple[Any, jax.Array]:
    """Predictions N(c 1, 0.1² I) with c ~ U(0, 1), and targets.

    They are drawn from the predictions if the model is calibrated, else with 0.1 as mean of the
    first component.
    """
    location_key, target_key = jax.random.split(key)
    c = jax.random.uniform(location_key, (num_samples,))
    if dimension == 1:
        loc, shifted, family = c, jnp.full_like(c, SHIFTED_MEAN), Normal
    else:
        loc = jnp.broadcast_to(c[:, None], (num_samples, dimension))
        shifted, family = loc.at[:, 0].set(SHIFTED_MEAN), DiagNormal
    scale = jnp.full_like(loc, SCALE)
    truth = family(jnp.where(calibrated, loc, shifted), scale)
    return family(loc, scale), sample_targets(target_key, truth)


@functools.partial(jax.jit, static_argnames=("dimension", "num_samples"))
def _draw_data_sets(
    keys: jax.Array, calibrated: jax.Array, *, dimension: int, num_samples: int
) -> tuple[Any, jax.Array]:
    return jax.vmap(lambda key: draw_data_set(key, calibrated, dimension, num_samples))(keys)


@functools.cache
def _compiled(procedure: Procedure, draws: int | None, shapes: tuple, tree: Any) -> Callable:
    """Values of all data sets (keys, predictions, targets), [data_sets]; serves both models."""

    def evaluate_all(data_sets: tuple[jax.Array, Any, jax.Array]) -> jax.Array:
        return lax.map(lambda data_set: procedure.evaluate(*data_set, draws), data_sets)

    return jax.jit(evaluate_all).lower(jax.tree.unflatten(tree, shapes)).compile()


def _is_faster_one_by_one(procedure: Procedure, simulation: Simulation) -> bool:
    # The exact test of scalar normals works with matrix products, but only where it can see the
    # values, that is not under jit. Below this size its overhead per call costs more than that.
    return procedure is EXACT and simulation.dimension == 1 and simulation.num_samples >= 1024


def _evaluate_one_by_one(
    procedure: Procedure, draws: int | None, data_sets: Any
) -> tuple[list[float], float]:
    """Values of all data sets, and the shortest time of one of them."""
    values, times = [], []
    for i in range(jax.tree.leaves(data_sets)[0].shape[0]):
        data_set = jax.tree.map(lambda leaf, i=i: leaf[i], data_sets)
        start = time.perf_counter()
        values.append(float(procedure.evaluate(*data_set, draws)))
        times.append(time.perf_counter() - start)
    return values, min(times)


def _evaluate_together(
    procedure: Procedure, simulation: Simulation, data_sets: Any
) -> tuple[list[float], float]:
    """Values of all data sets, and the mean time of one in the fastest of some runs over all."""
    leaves, tree = jax.tree.flatten(data_sets)
    shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
    evaluate_all = _compiled(procedure, simulation.draws, shapes, tree)
    times: list[float] = []
    while not times or sum(times) < simulation.timing:
        start = time.perf_counter()
        values = jax.block_until_ready(evaluate_all(data_sets))
        times.append(time.perf_counter() - start)
    return np.asarray(values).tolist(), min(times) / simulation.data_sets


def simulate(procedure: Procedure, simulation: Simulation, purpose: str = "") -> dict[str, Any]:
    """Values of an estimator or a test on independent data sets.

    All procedures see the same data sets, so that their differences vary less.

    Args:
        procedure: the estimator or test.
        simulation: the model, sizes and numbers.
        purpose: another purpose gets other, independent data sets.

    Returns:
        `values` [data_sets], and `seconds`, the time of one evaluation after compilation.
    """
    data_key = cells.key_of(f"{purpose}/{simulation.name}/data")
    test_key = cells.key_of(f"{purpose}/{simulation.name}/{procedure.slug}")
    samples = _draw_data_sets(
        jax.random.split(data_key, simulation.data_sets),
        simulation.model == "calibrated",
        dimension=simulation.dimension,
        num_samples=simulation.num_samples,
    )
    data_sets = jax.random.split(test_key, simulation.data_sets), *samples
    if _is_faster_one_by_one(procedure, simulation):
        values, seconds = _evaluate_one_by_one(procedure, simulation.draws, data_sets)
    else:
        values, seconds = _evaluate_together(procedure, simulation, data_sets)
    return {"values": values, "seconds": seconds}
