"""Power of single kernels: which one `default_kernel` is, and what one kernel is weak at.

Each kernel has its own exact test, all of them on the same data sets: those of `experiments.power`.

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

FORMER = "median heuristic, targets"  # as tutorials have it


def _of_classes(predictions: Any) -> dict[str, Kernel]:
    median = median_heuristic(TotalVariation(), predictions)
    near = {scale: Exponential(scale * median, TotalVariation()) for scale in (0.5, 1.0, 2.0)}
    residuals = {
        f"residuals, {scale:g} median": TensorProduct(k_p, Pearson()) for scale, k_p in near.items()
    }
    return {
        FORMER: TensorProduct(near[1.0], White()),
        **residuals,
        "residuals and equality, 1 median": TensorProduct(near[1.0], Pearson() + 4.0 * White()),
    }


def _of_normals(predictions: Any) -> dict[str, Kernel]:
    median = median_heuristic(Wasserstein(), predictions)
    near = {x: Exponential(x * median, Wasserstein()) for x in (0.5, 1.0)}
    scores = {width: NormalScore(SquaredExponential(width)) for width in (0.5, 1.0, 2.0, 4.0)}
    smooth = SquaredExponential(median, Wasserstein())
    return {
        FORMER: normals.median_kernel(SquaredExponential, predictions),
        **{f"scores {x:g}, 1 median": TensorProduct(near[1.0], scores[x]) for x in (1.0, 2.0, 4.0)},
        "scores 2, 1/2 median": TensorProduct(near[0.5], scores[2.0]),
        "scores 1 + 4, 1 median": TensorProduct(near[1.0], scores[1.0] + scores[4.0]),
        "scores 1/2 + 2, 1 median": TensorProduct(near[1.0], scores[0.5] + scores[2.0]),
        "scores 1/2 + 4, 1 median": TensorProduct(near[1.0], scores[0.5] + scores[4.0]),
        "scores 1 + 4, 1/2 median": TensorProduct(near[0.5], scores[1.0] + scores[4.0]),
        "scores 2, 1 median, smooth": TensorProduct(smooth, scores[2.0]),
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


STUDIES = (
    Study("single_classes", classes.CLASSES.alternatives, {250: 1.0}, pvalues_of_classes),
    Study("single_normals", normals.NORMALS.alternatives, {64: 1.0}, pvalues_of_normals),
)


@program
def main() -> None:
    """Writes the tables single_classes and single_normals."""
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
        note = (
            f"Rejections in percent at level {100 * ALPHA:.0f} %, {DRAWS} draws, by the exact test "
            "with one kernel; alternatives as in the table of experiments.power. Made by "
            f"`python -m experiments.single_kernel --num-datasets {options.num_datasets}`."
        )
        write_table(folder, study.name, lines, note, show=True)


if __name__ == "__main__":
    main()
