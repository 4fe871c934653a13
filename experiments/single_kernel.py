"""Power of single kernels: which one `default_kernel` is, and what one kernel is weak at.

Each kernel has its own exact test, all of them on the same data sets.

Run: python -m experiments.single_kernel [--num-datasets 500] [--output DIR]
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import hypothesis_tests as tests
from calibjax.distances import TotalVariation, Wasserstein
from calibjax.distributions import Categorical, Mixture, Normal
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
from experiments.harness.tables import note_of, write_table
from experiments.power.bound.models import MODELS, classes_model
from experiments.power.simulation import ALPHA, CALIBRATED, DRAWS, Study, Tests, rates
from experiments.power.tables import table
from experiments.power.w21 import median_kernel
from experiments.synthetic_models import SCALE

DEFAULT, FORMER = "default_kernel", "median heuristic on targets"  # as tutorials have it
SHIFT, LARGE = 0.12, 1000  # in predicted standard deviations; n


# What the laws of `power.bound.models` are called here.
NORMALS = {
    CALIBRATED: CALIBRATED,
    "shifted up": "shift +0.3",
    "shifted down": "shift -0.3",
    "too narrow": "sd x 1.4",
    "too wide": "sd x 0.7",
    "local": "local +2",
    "oscillating": "oscillating",
    "bimodal": "bimodal",
}
CLASSES = {
    CALIBRATED: CALIBRATED,
    "overconfident": "T = 1.25",
    "underconfident": "T = 0.8",
    "one class inflated": "first class x 0.7",
    "label noise": "15 % noise",
    "two classes permuted": "exchanged",
}


def _targets(key: jax.Array, law: Any) -> jax.Array:
    """Targets [n] of a normal law, or of a mixture of two, from the same noise."""
    noise_key, sign_key = jax.random.split(key)
    n = jax.tree.leaves(law)[0].shape[0]
    noise = jax.random.normal(noise_key, (n,))
    if isinstance(law, Mixture):
        is_upper = jax.random.rademacher(sign_key, (n,)) > 0
        law = jax.tree.map(lambda x: jnp.where(is_upper, x[:, 1], x[:, 0]), law.components)
    return law.loc + law.scale * noise


def draw_normals(key: jax.Array, place: Any, n: int) -> tuple[Normal, jax.Array]:
    """Predictions N(m, 0.1²), m uniform on [0, 1], and targets."""
    loc_key, key = jax.random.split(key)
    predictions = Normal(jax.random.uniform(loc_key, (n,)), jnp.full(n, SCALE))
    laws = (MODELS["normals"].laws[name](predictions) for name in NORMALS.values())
    return predictions, jnp.stack([_targets(key, law) for law in laws])[place]


def draw_classes(key: jax.Array, place: Any, n: int) -> tuple[Categorical, jax.Array]:
    """Predictions from a Dirichlet distribution with parameters 1/2, and labels."""
    keys = jax.random.split(key)
    model = classes_model(10, (0.7,))
    predictions = model.predictions(keys[0], n)
    truth = jnp.stack([model.laws[name](predictions).probs for name in CLASSES.values()])[place]
    return predictions, jax.random.categorical(keys[1], jnp.log(truth))


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
        FORMER: median_kernel(SquaredExponential, predictions),
        "normal scores 2": TensorProduct(near, scores[2.0]),
        "normal scores 1 and 4": TensorProduct(near, scores[1.0] + scores[4.0]),
    }


def _pvalues(key: jax.Array, kernels: dict[str, Kernel], *data: Any) -> dict[str, jax.Array]:
    """The p-value of each kernel on its own, from the same redraws."""
    many = tests.aggregated_skce_test(key, *data, kernels=[*kernels.values()], num_draws=DRAWS)
    assert many.components is not None, "of a test of the SKCE"
    each, _ = pooled(many.components)
    return dict(zip(kernels, simulated_pvalue(each[0], each[1:]), strict=True))


def _tests_of(draw: Any, kernels_of: Any) -> Tests:
    """All kernels on one data set."""

    def tests_of(
        data_key: jax.Array, test_key: jax.Array, place: Any, n: int, _: Any
    ) -> dict[str, jax.Array]:
        predictions, targets = draw(data_key, place, n)
        return _pvalues(test_key, kernels_of(predictions), predictions, targets)

    return tests_of


def _draw_shifted(key: jax.Array, place: Any, n: int) -> tuple[Normal, jax.Array]:
    predictions, targets = draw_normals(key, 0, n)
    return predictions, targets + SHIFT * SCALE


STUDIES = (
    Study("single_classes", (*CLASSES,), {250: 1.0}, _tests_of(draw_classes, _of_classes)),
    Study("single_normals", (*NORMALS,), {64: 1.0}, _tests_of(draw_normals, _of_normals)),
    Study(
        "single_shifts",
        ("shifted",),
        {LARGE: 0.5},
        _tests_of(_draw_shifted, _of_normals),
        calibrated=(),
        in_one_program=False,
    ),
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
        note = note_of(__file__, "note", level=100 * ALPHA, draws=DRAWS, shift=SHIFT, number=number)
        write_table(folder, study.name, lines, note, show=True)


if __name__ == "__main__":
    main()
