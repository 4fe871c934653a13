"""G24 §5.1, Fig. 1: the risk finds the temperature of a model with known miscalibration.

500 class distributions P_i ~ Dirichlet(0.04, ..., 0.04) with 5 classes, labels Y_i ~ P_i, and a
model that predicts softmax(0.3 log P_i). The estimation functions

    h_θ(p, q) = ⟨p − softmax((θ / 0.3) log p), q − softmax((θ / 0.3) log q)⟩

have one parameter, with h* = h_1: their risk has to be smallest at θ = 1.

The distributions are drawn as logarithms. Their probabilities go down to 1e-145: in float32, 2.5 %
of them would be zero, at which the temperature of the model could not be undone.
"""

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax import risk
from calibjax.distributions import CategoricalLogits
from calibjax.recalibration import TemperatureScaling
from experiments.harness import cells, command_line
from experiments.harness.cells import Store
from experiments.harness.tables import note_of, write_table
from paper_repro.g24.simulation_figures import plot

NAME = "g24_simulation"
CONCENTRATION, NUM_CLASSES = 0.04, 5
SCALE = 0.3  # of the logarithms of the true probabilities, in the predictions
THETAS = np.arange(4, 41) / 20  # 0.2, 0.25, ..., 2


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the experiment.

    Attributes:
        repetitions: number of data sets.
        num_samples: of each data set.
        thetas: the grid; 1 is in it.
    """

    repetitions: int = 100
    num_samples: int = 500
    thetas: tuple[float, ...] = tuple(map(float, THETAS))


SETTINGS = {"quick": Settings(10, 200, tuple(map(float, THETAS[::4]))), "paper": Settings()}


@functools.partial(jax.jit, static_argnames="shape")
def draw(key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Logarithms of the true probabilities, [*shape, 5], and labels, [*shape]."""
    probs_key, label_key = jax.random.split(key)
    concentration = jnp.full((*shape, NUM_CLASSES), CONCENTRATION)
    log_probs = jax.nn.log_softmax(jax.random.loggamma(probs_key, concentration))
    return log_probs, jax.random.categorical(label_key, log_probs)


def evaluate(log_probs: jax.Array, labels: jax.Array, thetas: jax.Array) -> dict[str, jax.Array]:
    """What is found in one data set, of logarithms of probabilities [n, 5] and labels [n].

    Returns:
        risk: of h_θ, [k].
        excess: mean of (h_θ − h*)² over the pairs, which the risk exceeds that of h* by, [k].
        accuracy: of the model.
        error: its squared calibration error, the mean of ‖p_i − P_i‖².
        smallest: the smallest logarithm of a probability.
    """
    predictions, n = CategoricalLogits(SCALE * log_probs), len(labels)
    differences = predictions.class_probs - jnp.exp(log_probs)
    truth = differences @ differences.T
    function = risk.Recalibrated(TemperatureScaling())

    def at(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        values = function.evaluate(SCALE / theta, predictions, predictions)
        squares = jnp.square(values - truth)
        excess = (jnp.sum(squares) - jnp.trace(squares)) / (n * (n - 1))
        return risk.estimation_risk(values, predictions, labels).value, excess

    risks, excess = lax.map(at, thetas)
    return {
        "risk": risks,
        "excess": excess,
        "accuracy": jnp.mean(jnp.argmax(log_probs, 1) == labels),
        "error": jnp.trace(truth) / n,
        "smallest": jnp.min(log_probs),
    }


def results(store: Store, settings: Settings) -> dict[str, np.ndarray]:
    """What `evaluate` returns, with a leading axis of repetitions."""

    def compute() -> dict[str, np.ndarray]:
        samples = draw(cells.key_of(NAME), (settings.repetitions, settings.num_samples))
        thetas = jnp.array(settings.thetas)
        found = lax.map(lambda sample: evaluate(*sample, thetas), samples, batch_size=10)
        return jax.tree.map(np.asarray, found)

    return cells.arrays(store, "risks", dataclasses.asdict(settings), compute)


def write(folder: Path, settings: Settings, found: dict[str, np.ndarray]) -> None:
    """The table of the risks, and what is claimed about them."""
    thetas, risks = np.array(settings.thetas), found["risk"]
    truth = int(np.flatnonzero(thetas == 1)[0])
    minima = risks.argmin(1)
    differences = risks - risks[:, [truth]]
    sd = functools.partial(np.std, axis=0, ddof=1)
    columns = {
        "θ": thetas,
        "mean risk": risks.mean(0),
        "sd": sd(risks),
        "difference from θ = 1": differences.mean(0),
        "sd of it": sd(differences),
        "(h - h*)²": found["excess"].mean(0),
        "minima": np.bincount(minima, minlength=len(thetas)),
    }
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    best = thetas[risks.mean(0).argmin()]
    beside = [i for i in (truth - 1, truth + 1) if i < len(thetas)]
    errors = sd(differences)[beside] / np.sqrt(len(risks))
    scores = [f"{z:.1f}" for z in differences.mean(0)[beside] / errors]
    note = note_of(
        __file__,
        "risks",
        data_sets=len(risks),
        samples=settings.num_samples,
        best=best,
        verdict="confirmed" if best == 1 else "not confirmed",
        scores=" and ".join(scores),
        right=np.sum(minima == truth),
        mean=thetas[minima].mean(),
        sd=thetas[minima].std(ddof=1),
        ratio=sd(risks)[beside].mean() / sd(differences)[beside].mean(),
        accuracy=found["accuracy"].mean(),
        error=found["error"].mean(),
        smallest=found["smallest"].min(),
    )
    write_table(folder, "risks", rows, note)


def run(run: command_line.Run) -> None:
    """Runs the experiment."""
    settings, store = SETTINGS[run.preset], run.store(NAME, __file__)
    found = results(store, settings)
    write(store.folder, settings, found)
    plot(store.folder, np.array(settings.thetas), found["risk"])


if __name__ == "__main__":
    command_line.main(run, __file__, __doc__)
