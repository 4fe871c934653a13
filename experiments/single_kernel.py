"""Power of single kernels: which one `default_kernel` is, and what one kernel is weak at.

Each kernel has its own exact test, all of them on the same data sets, made as in
`experiments.power`.

Run: python -m experiments.single_kernel [--num-datasets 500] [--output DIR]
"""

from typing import Any

import jax
import numpy as np

from calibjax import hypothesis_tests as tests
from calibjax.distances import TotalVariation, Wasserstein
from calibjax.hypothesis_tests.components import pooled
from calibjax.hypothesis_tests.pools import simulated_pvalue
from calibjax.kernels import (
    Exponential,
    Kernel,
    NormalScore,
    Pearson,
    SquaredExponential,
    TensorProduct,
    White,
    median_heuristic,
)
from experiments.harness import command_line
from experiments.harness.command_line import program
from experiments.harness.tables import write_table
from experiments.power import classes, normals
from experiments.power.simulation import ALPHA, DRAWS, Study, rates
from experiments.power.tables import table
from experiments.synthetic_models import SCALE

DEFAULT, FORMER = "default_kernel", "median heuristic on targets"  # as tutorials have it
SHIFT, LARGE = 0.12, 1000  # in predicted standard deviations; n


def _of_classes(predictions: Any) -> dict[str, Kernel]:
    near = Exponential(median_heuristic(TotalVariation(), predictions), TotalVariation())
    return {
        DEFAULT: tests.default_kernel(predictions),
        FORMER: TensorProduct(near, White()),
        "residuals and equality": TensorProduct(near, Pearson() + 4.0 * White()),
    }


def _of_normals(predictions: Any) -> dict[str, Kernel]:
    near = SquaredExponential(median_heuristic(Wasserstein(), predictions), Wasserstein())
    scores = {width: NormalScore(SquaredExponential(width)) for width in (1.0, 2.0, 4.0)}
    return {
        DEFAULT: tests.default_kernel(predictions),
        FORMER: normals.median_kernel(SquaredExponential, predictions),
        "normal scores 2": TensorProduct(near, scores[2.0]),
        "normal scores 1 and 4": TensorProduct(near, scores[1.0] + scores[4.0]),
    }


def _pvalues(key: jax.Array, kernels: dict[str, Kernel], *data: Any) -> dict[str, jax.Array]:
    """The p-value of each kernel on its own, from the same redraws."""
    many = tests.aggregated_skce_test(key, *data, kernels=[*kernels.values()], num_samples=DRAWS)
    assert many.components is not None, "of a test of the SKCE"
    each, _ = pooled(many.components)
    return dict(zip(kernels, simulated_pvalue(each[0], each[1:]), strict=True))


def pvalues_of_classes(
    data_key: jax.Array, test_key: jax.Array, place: Any, n: int, _: Any
) -> dict[str, jax.Array]:
    """All kernels on one data set."""
    predictions, targets = classes.draw(data_key, place, n)
    return _pvalues(test_key, _of_classes(predictions), predictions, targets)


def pvalues_of_normals(
    data_key: jax.Array, test_key: jax.Array, place: Any, n: int, _: Any
) -> dict[str, jax.Array]:
    """All kernels on one data set."""
    predictions, targets = normals.draw(data_key, place, n)
    return _pvalues(test_key, _of_normals(predictions), predictions, targets)


def pvalues_of_shifts(
    data_key: jax.Array, test_key: jax.Array, place: Any, n: int, _: Any
) -> dict[str, jax.Array]:
    """All kernels on one large data set."""
    predictions, targets = normals.draw(data_key, 0, n)
    targets = targets + SHIFT * SCALE
    return _pvalues(test_key, _of_normals(predictions), predictions, targets)


STUDIES = (
    Study("single_classes", classes.CLASSES.alternatives, {250: 1.0}, pvalues_of_classes),
    Study("single_normals", normals.NORMALS.alternatives, {64: 1.0}, pvalues_of_normals),
    Study(
        "single_shifts",
        ("shifted",),
        {LARGE: 0.5},
        pvalues_of_shifts,
        calibrated=(),
        in_one_program=False,
    ),
)
NOTE = (
    "Rejections in percent at level {level:.0f} %, {draws} draws; alternatives as in the tables of "
    "experiments.power, or targets shifted by {shift} predicted standard deviations. One kernel "
    "each in an exact test. Made by `python -m experiments.single_kernel --num-datasets {number}`."
)


@program
def main() -> None:
    """Writes a table for each study."""
    parser = command_line.option_parser(__file__, __doc__)
    parser.add_argument("--num-datasets", type=command_line.positive_integer, default=500)
    run, options = command_line.parse(parser)
    folder = run.folder("single_kernel")
    for study in STUDIES:
        store = run.store(f"power/{study.name}", __file__)
        lines = table(study, rates(store, study, options.num_datasets))
        for line in lines:
            wrong = [line[name] for name in study.alternatives if name not in study.calibrated]
            line |= {"worst": min(wrong), "median": float(np.median(wrong))}
        number = options.num_datasets
        note = NOTE.format(level=100 * ALPHA, draws=DRAWS, shift=SHIFT, number=number)
        write_table(folder, study.name, lines, note, show=True)


if __name__ == "__main__":
    main()
