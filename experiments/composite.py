"""Levels of tests after recalibration: fitted anew in every redraw, and in three other ways.

True recalibrations of the kind that is fitted are undone, so that every rejection is an error:
classes with temperature 1.5; numbers with shift 0.3 and scale 1.4 of their normal scores, whose
scales differ by a third, and likewise of eleven members.

`composite_levels` has the rejection rates of `composite_calibration_test`, in single precision.
`composite_ways` has those of `aggregated_skce_test` of predictions that were recalibrated with
their own targets (naive), with another half of the data (split), and with other folds
(cross-fitted).

Cells are stored, so that a run that was interrupted goes on where it was.

Run: python -m experiments.composite [--num-datasets 500] [--only ways levels] [--output DIR]
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from calibjax import recalibration
from calibjax.distributions import (
    Bernoulli,
    CategoricalLogits,
    Ensemble,
    Gamma,
    Normal,
    StudentT,
)
from calibjax.distributions import sample_targets as draw
from calibjax.hypothesis_tests import aggregated_skce_test, composite_calibration_test
from calibjax.hypothesis_tests.aggregated import repaired_by
from calibjax.recalibration import AffineScaling, TemperatureScaling
from calibjax.recalibration.numbers import AffineMap
from experiments.harness import command_line
from experiments.harness.cells import Case, Store, keys_of, simulated
from experiments.harness.tables import write_table
from experiments.power.simulation import ALPHA, DRAWS, pvalues, pvalues_of_each, tally

NAME = "composite"
TEMPERATURE, SHIFT, SCALE = 1.5, 0.3, 1.4
MEMBERS = 11
Data = tuple[Any, jax.Array]


def two_classes(key: jax.Array, n: int) -> Data:
    """Log-odds N(0, 1.5²)."""
    keys = jax.random.split(key)
    x = 1.5 * jax.random.normal(keys[0], (n,))
    truth = Bernoulli(jax.nn.sigmoid(x / TEMPERATURE))
    return Bernoulli(jax.nn.sigmoid(x)), draw(keys[1], truth)


def ten_classes(key: jax.Array, n: int) -> Data:
    """Probabilities from the Dirichlet distribution with all parameters ½."""
    keys = jax.random.split(key)
    predictions = CategoricalLogits(jnp.log(jax.random.dirichlet(keys[0], jnp.full(10, 0.5), (n,))))
    return predictions, draw(keys[1], TemperatureScaling().apply(TEMPERATURE, predictions))


def numbers(family: str, key: jax.Array, n: int) -> Data:
    """Predictions of a family, whose scales are 1 to 4/3."""
    keys = jax.random.split(key, 3)
    x, scale = (
        jax.random.uniform(k, (n,), minval=a, maxval=a + b)
        for k, a, b in ((keys[0], 0.0, 10.0), (keys[1], 1.0, 1 / 3))
    )
    predictions = {
        "normal": lambda: Normal(x, scale),
        "Student's t": lambda: StudentT(jnp.full(n, 4.0), x, scale),
        "gamma": lambda: Gamma(1 + x / 3, scale),
    }[family]()
    params = AffineMap(jnp.asarray(SHIFT), jnp.asarray(SCALE))
    return predictions, draw(keys[2], AffineScaling().apply(params, predictions))


def ensembles(key: jax.Array, n: int) -> Data:
    """Members and targets from the same normal distributions, then members shifted and scaled."""
    keys = jax.random.split(key)
    predictions, _ = numbers("normal", keys[0], n)
    loc, scale = predictions.loc[:, None], predictions.scale[:, None]
    drawn = loc + scale * jax.random.normal(keys[1], (n, MEMBERS + 1))
    params = AffineMap(jnp.asarray(SHIFT), jnp.asarray(SCALE))
    return AffineScaling().apply(params, Ensemble(drawn[:, 1:])), drawn[:, 0]


DATA = {"two classes": two_classes, "ten classes": ten_classes, "ensembles": ensembles} | {
    family: functools.partial(numbers, family) for family in ("normal", "Student's t", "gamma")
}
_TEMPERATURE, _AFFINE = ("TemperatureScaling", "two classes"), ("AffineScaling", "normal")
_LEVELS = (
    _TEMPERATURE,
    ("BetaCalibration", "two classes"),
    ("IsotonicRegression", "two classes"),
    ("TemperatureScaling", "ten classes"),
    *(("AffineScaling", of) for of in ("normal", "Student's t", "gamma", "ensembles")),
)
SIZES = dict.fromkeys(_LEVELS, (64, 256, 1024))
WAYS = dict.fromkeys((_TEMPERATURE, _LEVELS[2], _AFFINE), (64, 256))


def method_of(case: tuple[str, str]) -> Any:
    """The recalibration of a case."""
    options = {"smooth": False} if case[0] == "IsotonicRegression" else {}
    return getattr(recalibration, case[0])(**options)


def refitted(
    data: jax.Array, tests: jax.Array, case: tuple[str, str], n: int
) -> dict[str, jax.Array]:
    """The composite test of one data set."""
    found = composite_calibration_test(
        tests, method_of(case), *DATA[case[1]](data, n), num_draws=DRAWS
    )
    return {"refitted": found.pvalue}


def all_ways(
    data: jax.Array, tests: jax.Array, _: Any, case: tuple[str, str], n: int
) -> dict[str, jax.Array]:
    """Tests of one data set after recalibration in different ways."""
    method, (predictions, targets) = method_of(case), DATA[case[1]](data, n)
    first, second = (
        jax.tree.map(lambda x, s=s: x[s], (predictions, targets))
        for s in (slice(n // 2), slice(n // 2, n))
    )
    after = method.apply(method.fit(*first), second[0])
    after = after if hasattr(after, "sample") else Bernoulli(after)
    crossed = method.cross_fitted(tests, predictions, targets)
    pairs = {
        "naive": (repaired_by(method, predictions, targets), targets),
        "split": (after, second[1]),
        "cross-fitted": (crossed, targets),
    }
    return {
        name: aggregated_skce_test(tests, *pair, num_draws=DRAWS).pvalue
        for name, pair in pairs.items()
    }


def _counts(tests: Any, case: tuple[str, str, int], span: tuple[int, int]) -> dict[str, Any]:
    *kind, n = case
    label = f"{NAME}/{'/'.join(map(str, case))}"
    keys = keys_of(label, "data", span), keys_of(label, "tests", span)
    if tests is refitted:
        with jax.enable_x64(False):  # several times as fast
            return tally(pvalues_of_each(tests, keys, tuple(kind), n))
    return tally(pvalues(tests, keys, 0, (tuple(kind), n), DRAWS * n**2))


def rates(store: Store, sizes: Any, tests: Any, num_datasets: int) -> list[dict[str, Any]]:
    """Lines of a table."""
    cases = {
        (*kind, n): Case(
            f"{tests.__name__}/{'_'.join(kind)}/{n}".replace(" ", "_"),
            num_datasets,
            n,
            {"draws": DRAWS},
        )
        for n in (64, 256, 1024)
        for kind, of_kind in sizes.items()
        if n in of_kind
    }
    lines = []
    for case, chunks in simulated(store, NAME, cases, functools.partial(_counts, tests)).items():
        line = dict(zip(("fitted", "predictions", "n"), case, strict=True))
        for test in chunks[0]:
            line[test] = sum(chunk[test]["rejected"] for chunk in chunks) / cases[case].number
        undefined = sum(chunk[test]["undefined"] for chunk in chunks for test in chunk)
        number = cases[case].number
        error = math.sqrt(ALPHA * (1 - ALPHA) / number)
        lines.append(line | {"without p-value": undefined, "s.e.": error, "data sets": number})
    return lines


@command_line.program
def main() -> None:
    """Writes the tables composite_levels and composite_ways."""
    parser = command_line.option_parser(__file__, __doc__, only=("levels", "ways"))
    parser.add_argument("--num-datasets", type=command_line.positive_integer, default=500)
    run, options = command_line.parse(parser)
    store = run.store(NAME, __file__)
    note = (
        f"Shares of data sets that are rejected at level {ALPHA}, {DRAWS} redraws; s.e.: of a rate "
        f"of {ALPHA}. Made by `python -m experiments.{NAME} --num-datasets {options.num_datasets}`."
    )
    for name, sizes, tests in (("ways", WAYS, all_ways), ("levels", SIZES, refitted)):
        if name in options.only:
            lines = rates(store, sizes, tests, options.num_datasets)
            write_table(store.folder, f"{NAME}_{name}", lines, note, show=True)


if __name__ == "__main__":
    main()
