"""Power of the tests beside that of the likelihood ratio test, which no test exceeds.

Every alternative is a known law of the targets given the predictions. The most powerful test
against it (Neyman and Pearson) ranks its likelihood ratio among those of targets drawn from the
predictions; it is no test that anybody could use, but a bound. All alternatives share predictions
and noise. Cells are stored, so that a run that was interrupted goes on where it was.

Run: python -m experiments.power.bound [--only normals …] [--output DIR]
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import hypothesis_tests as tests
from calibjax.distances import TotalVariation, Wasserstein
from calibjax.distributions import Bernoulli, Categorical, Gamma, Mixture, Normal
from calibjax.kernels import (
    Constant,
    Exponential,
    Fisher,
    NormalScore,
    SquaredExponential,
    TensorProduct,
    White,
    median_heuristic,
)
from calibjax.recalibration import AffineScaling, TemperatureScaling
from experiments.harness import command_line
from experiments.harness.cells import Job, finished, key_of
from experiments.harness.command_line import program
from experiments.harness.figures import COLORS, add_legend, panels, save_figure
from experiments.harness.tables import note_of, write_table
from experiments.power.simulation import ALPHA, CALIBRATED, DRAWS
from experiments.synthetic_models import SCALE

BOUND, AGGREGATED, DEFAULT = "likelihood ratio", "aggregated", "default kernel"
NUM_SETS, PER_CELL = 500, 50
_LR_DRAWS = 999
_TIED = 1e-3  # log ratios that differ by less are the same sum in another order
_SHAPE = 4.0  # of a gamma distribution, whose skewness is one
_MODES = 0.9, 0.19**0.5  # their distance from the mean, and the width of each

Law = Callable[[Any], Any]  # n predictions → the n distributions that targets are drawn from


class Affine(NamedTuple):
    """The law of shift + sign · (a variable)."""

    distribution: Any
    shift: jax.Array
    sign: jax.Array

    def sample(self, key: jax.Array) -> jax.Array:
        """One draw."""
        return self.shift + self.sign * self.distribution.sample(key)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log density."""
        return self.distribution.log_prob(self.sign * (y - self.shift))


def _wrong(shift: Callable[[jax.Array], Any] = lambda m: 0.0, factor: float = 1.0) -> Law:
    """Errors of the mean m, in standard deviations, and a factor of these."""
    return lambda p: Normal(p.loc + shift(p.loc) * p.scale, factor * p.scale)


def _local(value: float) -> Law:
    return _wrong(lambda m: value * ((m > 0.4) & (m < 0.5)))


def _bimodal(p: Normal) -> Mixture:
    center, width = _MODES
    modes = p.loc[:, None] + center * p.scale[:, None] * jnp.array([-1.0, 1.0])
    return Mixture(None, Normal(modes, width * p.scale[:, None] * jnp.ones(2)))


def _skewed(sign: float) -> Law:
    def law(p: Normal) -> Affine:
        rate = _SHAPE**0.5 / p.scale
        shift = p.loc - sign * _SHAPE / rate
        return Affine(Gamma(jnp.full_like(rate, _SHAPE), rate), shift, jnp.full_like(rate, sign))

    return law


def _binary(truth: Callable[[jax.Array], jax.Array]) -> Law:
    return lambda p: Bernoulli(jnp.clip(truth(p.probs), 0, 1))


def _of_logits(truth: Callable[[jax.Array], jax.Array]) -> Law:
    return _binary(lambda p: jax.nn.sigmoid(truth(jnp.log(p) - jnp.log1p(-p))))


def _local_probability(value: float) -> Law:
    return _binary(lambda p: p + value * ((p > 0.6) & (p < 0.8)))


def _classes(truth: Callable[[jax.Array], jax.Array]) -> Law:
    """From weights that are proportional to the true probabilities."""

    def law(p: Categorical) -> Categorical:
        weights = truth(jnp.maximum(p.probs, 1e-30))
        return Categorical(weights / jnp.sum(weights, 1, keepdims=True))

    return law


def _exchanged(p: jax.Array) -> jax.Array:
    swapped = p[:, jnp.arange(p.shape[1]).at[1:3].set(jnp.array([2, 1]))]
    return 0.4 * p + 0.6 * swapped


class Model(NamedTuple):
    """Predictions of one kind.

    Attributes:
        num_samples: n.
        predictions: (key, n) → batch.
        laws: by name; the first is calibrated.
        statistics: tests of one kind of error, made exact.
    """

    num_samples: int
    predictions: Callable[[jax.Array, int], Any]
    laws: dict[str, Law]
    statistics: tuple[str, ...]


def _normals(key: jax.Array, n: int) -> Normal:
    return Normal(jax.random.uniform(jax.random.split(key)[0], (n,)), jnp.full(n, SCALE))


def _logits(key: jax.Array, n: int) -> Bernoulli:
    return Bernoulli(jax.nn.sigmoid(1.5 * jax.random.normal(key, (n,))))


def _dirichlet(key: jax.Array, n: int) -> Categorical:
    return Categorical(jax.random.dirichlet(key, jnp.full(10, 0.5), (n,)))


MODELS = {
    "normals": Model(
        64,
        _normals,
        {
            CALIBRATED: _wrong(),
            "shift +0.3": _wrong(lambda _: 0.3),
            "shift -0.3": _wrong(lambda _: -0.3),
            "sd x 1.4": _wrong(factor=1.4),
            "sd x 0.7": _wrong(factor=0.7),
            "local +2": _local(2.0),
            "local -2": _local(-2.0),
            "oscillating": _wrong(lambda m: 0.8 * jnp.sin(8 * jnp.pi * m)),
            "bimodal": _bimodal,
            "skewed +": _skewed(1.0),
            "skewed -": _skewed(-1.0),
        },
        ("pit_ks", "berkowitz"),
    ),
    "binary": Model(
        200,
        _logits,
        {
            CALIBRATED: _binary(lambda p: p),
            "T = 1.25": _of_logits(lambda x: x / 1.25),
            "T = 0.8": _of_logits(lambda x: x / 0.8),
            "logit +0.3": _of_logits(lambda x: x + 0.3),
            "logit -0.3": _of_logits(lambda x: x - 0.3),
            "local +0.15": _local_probability(0.15),
            "local -0.15": _local_probability(-0.15),
            "wave": _binary(lambda p: p + 0.1 * jnp.sin(6 * jnp.pi * p)),
        },
        ("spiegelhalter", "hosmer_lemeshow", "cox", "cumulative_difference"),
    ),
    "classes_10": Model(
        250,
        _dirichlet,
        {
            CALIBRATED: _classes(lambda p: p),
            "T = 1.25": _classes(lambda p: p ** (1 / 1.25)),
            "T = 0.8": _classes(lambda p: p ** (1 / 0.8)),
            "first class x 0.4": _classes(lambda p: p.at[:, 0].multiply(0.4)),
            "first class x 1.6": _classes(lambda p: p.at[:, 0].multiply(1.6)),
            "15 % noise": _classes(lambda p: 0.85 * p + 0.15 / p.shape[1]),
            "exchanged": _classes(_exchanged),
        },
        ("spiegelhalter",),
    ),
}


def single_kernels(predictions: Any) -> tuple[Any, Any]:
    """A kernel with length scales of the median heuristic, and that of a score test."""
    if isinstance(predictions, Normal):
        scale = median_heuristic(Wasserstein(), predictions)
        target = SquaredExponential(jnp.median(predictions.scale))
        one = TensorProduct(SquaredExponential(scale, Wasserstein()), target)
        return one, TensorProduct(Constant(), NormalScore(Fisher(AffineScaling())))
    scale = median_heuristic(TotalVariation(), predictions)
    one = TensorProduct(Exponential(scale, TotalVariation()), White())
    return one, TensorProduct(Constant(), Fisher(TemperatureScaling()))


def pvalues(key: jax.Array, model: Model, predictions: Any, targets: jax.Array) -> dict[str, Any]:
    """p-values of all tests of one data set."""
    median, score = single_kernels(predictions)
    data = predictions, targets
    found = {
        AGGREGATED: tests.aggregated_skce_test(key, *data, num_draws=DRAWS),
        DEFAULT: tests.exact_skce_test(key, None, *data, num_draws=DRAWS),
        "median heuristic": tests.exact_skce_test(key, median, *data, num_draws=DRAWS),
        "score test": tests.exact_skce_test(key, score, *data, num_draws=DRAWS, statistic="biased"),
    }
    for name in model.statistics:
        found[name] = tests.exact_test(key, getattr(tests, name), *data, num_draws=DRAWS)
    return {name: test.pvalue for name, test in found.items()}


def rejected(key: jax.Array, model: Model) -> dict[str, list[bool]]:
    """Which of the alternatives each test rejects, on one set of predictions."""
    keys = jax.random.split(key, 5)
    predictions = model.predictions(keys[0], model.num_samples)
    laws = {name: law(predictions) for name, law in model.laws.items()}
    null = drawn(keys[3], laws[CALIBRATED], _LR_DRAWS)
    found: dict[str, list[bool]] = {}
    for law in laws.values():
        targets = drawn(keys[1], law, 1)
        of_law = pvalues(keys[2], model, predictions, targets[0])
        ratios = (log_prob(law, y) - log_prob(laws[CALIBRATED], y) for y in (targets, null))
        of_law[BOUND] = randomised(keys[4], *ratios)[0]
        for test, p in of_law.items():
            found.setdefault(test, []).append(bool(p <= ALPHA + 1e-6))
    return found


@functools.partial(jax.jit, static_argnames="number")
def drawn(key: jax.Array, law: Any, number: int) -> jax.Array:
    """Several sets of targets, [number, n]; numbers of the same type for all laws of a model."""

    def one(key: jax.Array) -> jax.Array:
        size = jax.tree.leaves(law)[0].shape[0]
        return jax.vmap(lambda k, p: p.sample(k))(jax.random.split(key, size), law)

    return jax.vmap(one)(jax.random.split(key, number))


@jax.jit
def log_prob(law: Any, targets: jax.Array) -> jax.Array:
    """Log density of each set of targets, [number]."""
    return jax.vmap(lambda y: jnp.sum(jax.vmap(lambda p, y: p.log_prob(y))(law, y)))(targets)


def randomised(key: jax.Array, values: jax.Array, null: jax.Array) -> jax.Array:
    """p-values that are uniform under the null: what ties with a value counts in part."""
    values, null = (jnp.nan_to_num(x, neginf=-1e30) for x in (values, null))
    above = jnp.sum(null > values[:, None] + _TIED, 1)
    ties = jnp.sum(jnp.abs(null - values[:, None]) <= _TIED, 1)
    return (above + jax.random.uniform(key, values.shape) * (1 + ties)) / (1 + null.size)


def counts(name: str, first: int) -> dict[str, list[int]]:
    """How many of the sets of predictions of a cell are rejected, by test and alternative."""
    model = MODELS[name]
    keys = jax.random.split(key_of(f"power/bound/{name}/{model.num_samples}"), NUM_SETS)
    each = [rejected(key, model) for key in keys[first : first + PER_CELL]]
    return {test: np.sum([x[test] for x in each], 0).tolist() for test in each[0]}


def rows(name: str, cells: list[dict[str, list[int]]]) -> list[dict[str, Any]]:
    """A line for each alternative, in percent."""
    first = [BOUND, AGGREGATED, DEFAULT]
    order = [*first, *sorted({*cells[0]}.difference(first))]
    total = {test: np.sum([cell[test] for cell in cells], 0) * 100 / NUM_SETS for test in order}
    start = {"predictions": name, "n": MODELS[name].num_samples}
    return [
        start | {"targets": law} | {test: float(rates[i]) for test, rates in total.items()}
        for i, law in enumerate(MODELS[name].laws)
    ]


def draw(folder: Path, tables: dict[str, list[dict[str, Any]]]) -> None:
    """Writes the figure power_bound: a panel for each kind of predictions, a row for each law."""
    heights = [len(lines) for lines in tables.values()]
    shape = {"height_ratios": heights, "sharex": True}
    figure, grid = panels(len(tables), 1, 0.25 * sum(heights) / len(tables) + 0.3, **shape)
    for axes, (name, lines) in zip(grid[:, 0], tables.items(), strict=True):
        for y, line in enumerate(lines):
            rates = {test: x for test, x in line.items() if isinstance(x, float)}
            others = [x for test, x in rates.items() if test not in (BOUND, AGGREGATED)]
            axes.plot(others, [y] * len(others), "o", color="0.6", mfc="none", label="other tests")
            axes.plot(line[AGGREGATED], y, "D", color=COLORS[0], label="aggregated_skce_test")
            axes.plot(line[BOUND], y, "|", color="black", ms=12, mew=2, label=f"{BOUND}: the bound")
        axes.axvline(100 * ALPHA, color="0.5", linestyle="--", linewidth=1, label="level")
        axes.set_yticks(range(len(lines)), [line["targets"] for line in lines])
        axes.set_title(f"{name}, n = {lines[0]['n']}", loc="left")
        axes.invert_yaxis()
    axes.set_xlabel("data sets that are rejected (%)")
    add_legend(figure, 4)
    save_figure(folder, "power_bound", figure)


@program
def main() -> None:
    """Writes a table for each kind of predictions, and a figure of them."""
    parser = command_line.option_parser(__file__, __doc__, only=MODELS)
    run, options = command_line.parse(parser)
    store = run.store("power/bound", __file__)
    note = note_of(__file__, "note", level=100 * ALPHA, draws=DRAWS, bound=BOUND, number=NUM_SETS)
    tables = {}
    for name in options.only:
        firsts = range(0, NUM_SETS, PER_CELL)
        jobs = [Job(f"{name}/{i}", {}, functools.partial(counts, name, i)) for i in firsts]
        tables[name] = rows(name, finished(store, name, jobs))
        write_table(run.folder("power"), f"power_bound_{name}", tables[name], note, show=True)
    draw(run.folder("power"), tables)


if __name__ == "__main__":
    main()
