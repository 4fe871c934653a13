"""Estimators inside of a compiled evaluation loop: how often are they traced?

A network of `experiments.training` is trained with its loss, and judged on other data after every
40 steps: NLL, ECE of the top label, SKCE and excess of the spread, in one compiled function of the
parameters, the kernel and the data. All of these change in the course of the loop: the parameters
with every step, the data from one fold to another, and the length scale of the kernel, which
follows the predictions of the moment. Python runs the body of a compiled function only when it is
traced. A counter in it says how often that is, and the program fails if it is more than once.

The second table has the whole loop, training and evaluation, as one program: a `lax.scan` over
epochs, whose body contains both, traced once as well, with the same numbers.

Run: python -m experiments.jit_pipeline [--num-epochs 10] [--output DIR]
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from calibjax import distances, estimators, kernels, scores
from experiments.harness import cells, command_line
from experiments.harness.tables import write_table
from experiments.training import networks
from experiments.training.problems import PROBLEMS, parts

NAME = "jit_pipeline"
STEPS = 40  # of training in an epoch
NUM_CLASSES = PROBLEMS["simulated"].num_classes
DISTANCE = distances.TotalVariation()


class Measures(NamedTuple):
    """What is computed after every epoch."""

    nll: jax.Array
    ece: jax.Array
    skce: jax.Array
    excess: jax.Array


class Counted:
    """A function that counts how often its body runs, which is how often it is traced."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Counts from zero."""
        self.function, self.traces = function, 0

    def __call__(self, *arguments: Any) -> Any:
        """Runs it."""
        self.traces += 1
        return self.function(*arguments)

    def once(self) -> int:
        """The number of traces; raises an AssertionError unless it is one."""
        if self.traces != 1:
            raise AssertionError(f"expected one trace, got {self.traces}")
        return self.traces


def evaluate(params: Any, length_scale: jax.Array, x: jax.Array, labels: jax.Array) -> Measures:
    """Scores and calibration errors of the network on one fold."""
    predictions = networks.predict(params, x)
    prediction_kernel = kernels.Exponential(length_scale, DISTANCE)
    kernel = kernels.TensorProduct(prediction_kernel, kernels.White())
    top = estimators.top_label(predictions, labels)
    return Measures(
        scores.negative_log_likelihood(predictions, labels),
        estimators.ece(*top, binning=estimators.UniformBins(10)),
        estimators.skce(kernel, predictions, labels),
        estimators.skce_spread(kernel, predictions, labels).value,
    )


def epoch(carry: tuple, keys: jax.Array, x: jax.Array, labels: jax.Array) -> tuple:
    """Parameters and state of the optimizer after some steps."""

    def step(carry: tuple, key: jax.Array) -> tuple[tuple, None]:
        params, state = carry
        rows = jax.random.choice(key, len(x), (networks.BATCH,), replace=False)
        gradient = jax.grad(networks.loss)(params, 1.0, x[rows], labels[rows])
        updates, state = networks.OPTIMIZER.update(gradient, state)
        return (optax.apply_updates(params, updates), state), None

    return jax.lax.scan(step, carry, keys)[0]


class Loop(NamedTuple):
    """Where a loop begins, and its data: for training, and two folds [2, n, ...] to judge by."""

    carry: tuple
    keys: jax.Array
    training: tuple[jax.Array, jax.Array]
    folds: tuple[jax.Array, jax.Array]


def prepared(num_epochs: int) -> Loop:
    """A loop on the simulated problem."""
    training, _, evaluation = parts(PROBLEMS["simulated"].draw(0))
    start, key = jax.random.split(cells.key_of(NAME))
    params = networks.init(start, training.x.shape[1], NUM_CLASSES)
    keys = jax.random.split(key, (num_epochs, STEPS))
    half = len(evaluation.labels) // 2
    folds = (
        jnp.asarray(evaluation.x).reshape(2, half, -1),
        jnp.asarray(evaluation.labels).reshape(2, half),
    )
    data = jnp.asarray(training.x), jnp.asarray(training.labels)
    return Loop((params, networks.OPTIMIZER.init(params)), keys, data, folds)


def length_scale_of(params: Any, x: jax.Array) -> jax.Array:
    """The median total variation distance of the predictions."""
    return kernels.median_heuristic(DISTANCE, networks.predict(params, x))


def python_loop(loop: Loop) -> tuple[list[dict[str, Any]], list[Measures]]:
    """A loop in Python around two compiled functions: rows of the table, and the measures."""
    counted = Counted(evaluate)
    compiled, train = jax.jit(counted), jax.jit(epoch)
    carry, rows, found = loop.carry, [], []
    for number, keys in enumerate(loop.keys):
        carry = train(carry, keys, *loop.training)
        x, labels = (values[number % 2] for values in loop.folds)
        scale = length_scale_of(carry[0], x)
        begin = time.perf_counter()
        measures = jax.block_until_ready(compiled(carry[0], scale, x, labels))
        rows.append(
            {
                "epoch": number + 1,
                "fold": number % 2 + 1,
                "length scale": float(scale),
                **{k: float(v) for k, v in measures._asdict().items()},
                "milliseconds": 1000 * (time.perf_counter() - begin),
                "traces so far": counted.once(),
            }
        )
        found.append(measures)
    return rows, found


def one_program(loop: Loop) -> tuple[Measures, dict[str, Any]]:
    """The same as one compiled function: measures of all epochs, and the row of the table."""
    counted = Counted(evaluate)

    @jax.jit
    def run(loop: Loop) -> Measures:
        def one(carry: tuple, inputs: tuple) -> tuple[tuple, Measures]:
            keys, fold = inputs
            carry = epoch(carry, keys, *loop.training)
            x, labels = (values[fold] for values in loop.folds)
            return carry, counted(carry[0], length_scale_of(carry[0], x), x, labels)

        folds = jnp.arange(len(loop.keys)) % 2
        return jax.lax.scan(one, loop.carry, (loop.keys, folds))[1]

    times = []
    for _ in range(2):
        begin = time.perf_counter()
        measures = jax.block_until_ready(run(loop))
        times.append(time.perf_counter() - begin)
    row = {
        "epochs": len(loop.keys),
        "seconds, first call": times[0],
        "seconds, second call": times[1],
        "traces": counted.once(),
    }
    return measures, row


@command_line.program
def main(arguments: list[str] | None = None) -> None:
    """Writes the tables jit_pipeline and jit_pipeline_scan."""
    parser = command_line.option_parser(__file__, __doc__)
    parser.add_argument("--num-epochs", type=command_line.positive_integer, default=10)
    run, options = command_line.parse(parser, arguments)
    loop = prepared(options.num_epochs)
    rows, found = python_loop(loop)
    measures, row = one_program(loop)
    for one, other in zip(jax.tree.map(lambda *x: jnp.stack(x), *found), measures, strict=True):
        if not jnp.allclose(one, other, rtol=1e-3, atol=1e-5):
            raise AssertionError(f"expected the same numbers from both loops, got {one}, {other}")
    note = (
        f"{len(loop.folds[1][0])} samples in each fold, float32; the first row includes tracing "
        "and compilation. Made by `python -m "
        f"experiments.jit_pipeline --num-epochs {options.num_epochs}`."
    )
    write_table(run.folder(NAME), NAME, rows, note, show=True)
    write_table(run.folder(NAME), f"{NAME}_scan", [row], "See jit_pipeline.md.", show=True)


if __name__ == "__main__":
    main()
