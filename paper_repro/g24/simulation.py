"""G24 §5.1, Fig. 1: the risk finds the temperature of a model with known miscalibration.

500 class distributions P_i ~ Dirichlet(0.04, ..., 0.04) with 5 classes, labels Y_i ~ P_i, and a
model that predicts softmax(0.3 log P_i). The estimation functions

    h_θ(p, q) = ⟨p − softmax((θ / 0.3) log p), q − softmax((θ / 0.3) log q)⟩

have one parameter, with h* = h_1: their risk has to be smallest at θ = 1.

Data sets are drawn as in the published `simulations.py`, by NumPy's legacy generator. The function
behind Fig. 1 does not set a seed; ours is 0. `simulation.csv` holds what that function returns
after `np.random.seed(0)`, and the curve of Fig. 1, read off the picture in the published notebook.
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
from experiments.harness.tables import note_of, published_rows, write_table
from paper_repro.g24.simulation_figures import plot

NAME = "g24_simulation"
SCALE = 0.3  # of the logarithms of the true probabilities, in the predictions
PUBLISHED = {  # by column
    name: np.array([float(row[name]) for row in published_rows(__file__)])
    for name in published_rows(__file__)[0]
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the experiment.

    Attributes:
        repetitions: number of data sets.
        step: of the grid log2 θ = -5, ..., 5, in the units of the paper, 0.05; a divisor of 10, the
            step of the published table.
    """

    repetitions: int = 100
    step: int = 1

    @property
    def thetas(self) -> np.ndarray:
        """The grid, which includes 1."""
        return 2 ** np.arange(-5, 5, 0.05)[:: self.step]


SETTINGS = {"quick": Settings(10, 10), "medium": Settings(), "paper": Settings()}


def draw(
    random: np.random.RandomState, concentration: float = 0.04, classes: int = 5, num: int = 500
) -> tuple[np.ndarray, np.ndarray]:
    """True probabilities, [num, classes], and labels, [num], in the order of the published code."""
    probs = random.dirichlet(np.full(classes, concentration), size=num)
    return probs, np.array([random.choice(classes, p=p) for p in probs])


@jax.jit
def evaluate(log_probs: jax.Array, labels: jax.Array, thetas: jax.Array) -> dict[str, jax.Array]:
    """Risks on one data set, of logarithms of true probabilities [n, 5] and labels [n].

    Returns:
        risk: of h_θ, [k].
        excess: mean of (h_θ − h*)² over the pairs, which the risk exceeds that of h* by, [k].
        accuracy: of the model.
        error: its squared calibration error, the mean of ‖p_i − P_i‖².
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
    accuracy = jnp.mean(jnp.argmax(log_probs, 1) == labels)
    return {"risk": risks, "excess": excess, "accuracy": accuracy, "error": jnp.trace(truth) / n}


def results(store: Store, settings: Settings) -> dict[str, np.ndarray]:
    """Results of `evaluate`, with a leading axis of repetitions."""

    def compute() -> dict[str, np.ndarray]:
        random = np.random.RandomState(0)
        samples = [draw(random) for _ in range(settings.repetitions)]
        found = [evaluate(jnp.log(probs), labels, settings.thetas) for probs, labels in samples]
        return jax.tree.map(lambda *values: np.stack(values), *found)

    return cells.arrays(store, "risks", dataclasses.asdict(settings), compute)


def write(folder: Path, settings: Settings, found: dict[str, np.ndarray]) -> None:
    """The table of the risks at the parameters of the published table."""
    thetas, risks = settings.thetas, found["risk"]
    truth = int(np.abs(thetas - 1).argmin())
    minima, differences = risks.argmin(1), risks - risks[:, [truth]]
    sd = functools.partial(np.std, axis=0, ddof=1)
    rows = slice(None, None, 10 // settings.step)
    code, figure = PUBLISHED["code mean"], PUBLISHED["figure mean"]
    ours = risks.mean(0)[rows]
    z = (ours - figure) / np.hypot(PUBLISHED["figure sd"] / 10, sd(risks)[rows] / len(risks) ** 0.5)
    columns = {
        "θ": thetas[rows],
        "risk": ours,
        "published code": code,
        "published, Fig. 1": figure,
        "z": z,
        "sd": sd(risks)[rows],
        "published code, sd": PUBLISHED["code sd"],
        "published, Fig. 1, sd": PUBLISHED["figure sd"],
        "difference from θ = 1": differences.mean(0)[rows],
        "sd of it": sd(differences)[rows],
        "(h - h*)²": found["excess"].mean(0)[rows],
    }
    beside = [truth - 1, truth + 1]
    note = note_of(
        __file__,
        "risks",
        data_sets=len(risks),
        best=thetas[risks.mean(0).argmin()],
        equality=np.abs(ours / code - 1).max(),
        largest=np.abs(z).max(),
        right=np.sum(minima == truth),
        mean=thetas[minima].mean(),
        sd=thetas[minima].std(ddof=1),
        ratio=sd(risks)[beside].mean() / sd(differences)[beside].mean(),
        accuracy=found["accuracy"].mean(),
        error=found["error"].mean(),
    )
    table = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    write_table(folder, "risks", table, note)


def run(run: command_line.Run) -> None:
    """Runs the experiment."""
    settings, store = SETTINGS[run.preset], run.store(NAME, __file__)
    found = results(store, settings)
    write(store.folder, settings, found)
    plot(store.folder, settings.thetas, found["risk"], PUBLISHED)


if __name__ == "__main__":
    command_line.main(run, __file__, __doc__)
