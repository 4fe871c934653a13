"""The estimators and tests of W21 App. A.2, and the authors' data sets that they are applied to."""

import functools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax.distributions import DiagNormal, Normal
from calibjax.estimators import skce, skce_biased, skce_block
from calibjax.estimators.kernel import sample_matrix
from calibjax.hypothesis_tests import asymptotic_skce_test, cme_test, exact_skce_test, exact_test
from experiments.harness import cells
from paper_repro.w21.draws import (
    SCALE,
    draw_data_sets,
    draw_identifier,
    draw_locations,
    started,
)
from paper_repro.w21.ols import bootstrap_pvalue, paper_kernel

SEED = 100
MODELS = ("calibrated", "uncalibrated")
DIMENSIONS = (1, 10)
SIZES = (4, 16, 64, 256, 1024)
DATA_SETS = 500
RESAMPLES = 1000  # of each bootstrap test
TRUTH = 1000  # data sets, and samples of each, whose mean estimate is the authors' true SKCE
REDRAWS = 199  # of the exact tests


class Draws(NamedTuple):
    """Data sets that a procedure is applied to.

    Attributes:
        c: means of the predictions, [data sets, n].
        targets: [data sets, n, d].
        counts: how often resamples contain each sample, [data sets, B, n].
        keys: for what is not drawn from the authors' stream, [data sets].
        locations: means of the test predictions and test targets, [10, d] each; None for estimates.
    """

    c: np.ndarray
    targets: np.ndarray
    counts: np.ndarray
    keys: jax.Array
    locations: tuple[np.ndarray, np.ndarray] | None


def samples_of(c: jax.Array, targets: jax.Array) -> tuple[Any, jax.Array]:
    """Predictions N(c 1, 0.1² I) and targets; c is [n], or the means [n, d]."""
    if targets.shape[1] == 1:
        c = c.reshape(-1)
        return Normal(c, jnp.full_like(c, SCALE)), targets[:, 0]
    loc = jnp.broadcast_to(c.reshape(len(c), -1), targets.shape)
    return DiagNormal(loc, jnp.full_like(loc, SCALE)), targets


def _estimate(estimator: Callable[..., jax.Array]) -> Callable[[Draws], jax.Array]:
    return lambda x: estimator(paper_kernel(), *samples_of(x.c, x.targets))


def _in_blocks(function: Callable[..., Any], choose_size: Callable[[int], int]) -> Any:
    def evaluate(x: Draws) -> Any:
        size = choose_size(len(x.c))
        return function(paper_kernel(), *samples_of(x.c, x.targets), block_size=size)

    return evaluate


def _block_test(choose_size: Callable[[int], int]) -> Callable[[Draws], jax.Array]:
    test = functools.partial(asymptotic_skce_test, None, null="blocks")
    evaluate = _in_blocks(test, choose_size)
    return lambda x: evaluate(x).pvalue


def _bootstrap_test(x: Draws) -> jax.Array:
    return bootstrap_pvalue(sample_matrix(paper_kernel(), samples_of(x.c, x.targets)), x.counts)


def _exact_test(x: Draws) -> jax.Array:
    samples = paper_kernel(), *samples_of(x.c, x.targets)
    return exact_skce_test(x.keys, *samples, num_draws=REDRAWS, statistic="biased").pvalue


def _cme(x: Draws, samples: tuple[Any, jax.Array]) -> Any:
    return cme_test(paper_kernel(), *samples, *samples_of(*x.locations))


def _cme_test(x: Draws) -> jax.Array:
    pvalue = _cme(x, samples_of(x.c, x.targets)).pvalue
    # Rarely, at n = 16, the covariance is singular up to rounding: such data are not rejected.
    return jnp.where(jnp.isnan(pvalue), 1, pvalue)


def _exact_cme_test(x: Draws) -> jax.Array:
    def statistic(*samples: Any) -> jax.Array:
        value = _cme(x, samples).statistic
        return jnp.where(jnp.isnan(value), 0, value)

    samples = samples_of(x.c, x.targets)
    return exact_test(x.keys, statistic, *samples, num_draws=REDRAWS).pvalue


class Procedure(NamedTuple):
    """An estimator, whose value is the estimate, or a test, whose value is the p-value.

    Attributes:
        label: name in tables, that of the published ones where they have it.
        slug: name in files.
        evaluate: value of one data set.
        sizes: smallest and largest n that it is applied to.
        resamples: resamples of the authors, B.
    """

    label: str
    slug: str
    evaluate: Callable[[Draws], jax.Array]
    sizes: tuple[int, int] = (2, 1024)
    resamples: int = 0


def _two(num_samples: int) -> int:
    return 2


UNBIASED = Procedure("SKCE (B = n)", "unbiased", _estimate(skce))
ESTIMATORS = (
    Procedure("SKCE", "biased", _estimate(skce_biased)),
    Procedure("SKCE (B = 2)", "block_2", _in_blocks(skce_block, _two)),
    Procedure("SKCE (B = √n)", "block_sqrt", _in_blocks(skce_block, math.isqrt)),
    UNBIASED,
)
TESTS = (
    Procedure("SKCE (B = 2)", "block_2", _block_test(_two)),
    Procedure("SKCE (B = √n)", "block_sqrt", _block_test(math.isqrt)),
    Procedure("SKCE (B = n)", "bootstrap", _bootstrap_test, resamples=RESAMPLES),
    # With n ≤ J the covariance of the CME test is singular.
    Procedure("CME", "cme", _cme_test, (11, 1024)),
)
# Applied to the data sets of the last two of the authors' tests; the level of an exact test holds
# for every number of redraws.
EXACT_TESTS = {
    "bootstrap": Procedure("exact (ours)", "exact", _exact_test, (2, 64)),
    "cme": Procedure("exact CME (ours)", "exact_cme", _exact_cme_test, (11, 64)),
}


class Place(NamedTuple):
    """Where a cell of the published tables is in the authors' stream.

    Attributes:
        kind: "estimates" or "tests".
        model: "calibrated" or "uncalibrated".
        dimension: d of the targets.
        slug: of the procedure, or "truth".
        num_samples: n of each data set.
    """

    kind: str
    model: str
    dimension: int
    slug: str
    num_samples: int

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"{self.kind}/{self.model}_d{self.dimension}_n{self.num_samples}_{self.slug}"


def places(kind: str, model: str) -> Iterator[tuple[Place, Procedure]]:
    """All cells of a model in the authors' order, each with the authors' procedure."""
    for d in DIMENSIONS:
        if kind == "estimates" and model == "uncalibrated":
            yield Place(kind, model, d, "truth", TRUTH), UNBIASED
        for procedure in TESTS if kind == "tests" else ESTIMATORS:
            for n in SIZES:
                yield Place(kind, model, d, procedure.slug, n), procedure


def stream(kind: str, model: str) -> Iterator[tuple[Place, Procedure, Iterator[Draws]]]:
    """All cells of a model in the authors' order, whose seed is set before.

    Args:
        kind: "estimates" or "tests".
        model: the model.

    Yields:
        The place, the authors' procedure, and its data sets in parts, which are drawn when they are
        asked for; those that are not are drawn before the next cell.
    """
    generator = started(SEED)
    locations: dict[int, Any] = {} if kind == "tests" else dict.fromkeys(DIMENSIONS)

    def parts(place: Place, resamples: int) -> Iterator[Draws]:
        n, d = place.num_samples, place.dimension
        number = TRUTH if place.slug == "truth" else DATA_SETS
        size = number if n <= 64 else number // 50
        keys = jax.random.split(cells.key_of(place.name), number)
        for first in range(0, number, size):
            c, targets = np.empty((size, n)), np.empty((size, n, d))
            counts = np.empty((size, resamples, n), np.uint16)
            draw_data_sets(generator, model == "calibrated", c, targets, counts)
            yield Draws(c, targets, counts, keys[first : first + size], locations[d])

    for place, procedure in places(kind, model):
        if kind == "tests" and place.dimension not in locations:
            locations[place.dimension] = draw_locations(generator, place.dimension)
        if place.slug != "truth":
            draw_identifier(generator)
        rest = parts(place, procedure.resamples)
        yield place, procedure, rest
        for _ in rest:
            pass


@functools.cache
def _compiled(procedure: Procedure, tree: Any, shapes: tuple[Any, ...]) -> Callable[[Draws], Any]:
    def evaluate_all(draws: Draws) -> jax.Array:
        one = lambda parts: procedure.evaluate(Draws(*parts, draws.locations))  # noqa: E731
        return lax.map(one, draws[:-1])

    return jax.jit(evaluate_all).lower(jax.tree.unflatten(tree, shapes)).compile()


def _timed(call: Callable[[], jax.Array]) -> tuple[np.ndarray, float]:
    """The result of a call, and its shortest time; calls are repeated for 0.1 s."""
    times: list[float] = []
    while sum(times) < 0.1:
        start = time.perf_counter()
        result = np.asarray(call())
        times.append(time.perf_counter() - start)
    return result, min(times)


def evaluate(procedures: list[Procedure], parts: Iterator[Draws]) -> list[dict[str, Any]]:
    """Values of procedures on the same data sets, and the seconds that each takes for one of them.

    Returns:
        For each procedure `values`, [data sets], and `seconds`, in the part that took least.
    """
    values: list[list[float]] = [[] for _ in procedures]
    seconds = [math.inf for _ in procedures]
    for draws in parts:
        leaves, tree = jax.tree.flatten(draws)
        shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
        for i, procedure in enumerate(procedures):
            evaluate_all = _compiled(procedure, tree, shapes)
            part, shortest = _timed(functools.partial(evaluate_all, draws))
            values[i] += part.tolist()
            seconds[i] = min(seconds[i], shortest / len(draws.c))
    return [{"values": v, "seconds": s} for v, s in zip(values, seconds, strict=True)]
