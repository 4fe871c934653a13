"""G24 §5.2 and App. B, Tables 1 to 5, Fig. 2 to 4: estimators of the calibration error compared.

On the test sets of networks of --data: four for CIFAR-10 (folder `cifar10_networks`), and of the
folders `cifar10_logits` and `cifar100_logits` those of the architectures of the paper, ResNet-110
and a DenseNet (121 layers, the paper: 40), and ResNet-50 for CIFAR-100. All of them are other
people's trainings than those of the paper, whose logits are not at hand: published numbers
beside them are of a network with the same name at best. ImageNet (Table 4) is left out. Without
--data it is a linear classifier of handwritten digits (`paper_repro.data.stand_in`).

Top-label calibration is that of confidences and correctness, canonical calibration that of all
classes. 80 % of the samples are for 5-fold cross-validation of the hyperparameter of each
estimator, with the grids of App. B, and 20 % for the estimate, all of the 10 000 test images, as in
the paper: its grids depend on the number of samples, and its standard errors on their number in a
fold. The logits of validation images, which some networks have, are not used for that reason. All
estimators of a network have the same split and the same folds.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from calibjax import estimators, record, risk
from calibjax.distributions import Categorical, CategoricalLogits
from experiments.harness import cells, command_line
from experiments.harness.cells import Store
from experiments.harness.data_files import digest
from experiments.harness.stand_in import marked
from paper_repro.data import cifar, stand_in
from paper_repro.data.cifar import CIFAR10, EXPECTED
from paper_repro.data.classifiers import NETWORKS, read_logits
from paper_repro.g24 import networks_figures, networks_tables, paper_tables, published_code

NAME = "g24_networks"
TEST_FRACTION, NUM_FOLDS = 0.2, 5
# Largest errors of entries of kernel matrices: of confidences, where it is about their rounding,
# and of all classes. The ranks of those of CIFAR-100 are too high for less in a few minutes.
CONFIDENCES_TOLERANCE = 1e-14
TOLERANCES = {"cifar10": 1e-9, "cifar100": 3e-4}
EXACTNESS = (
    f"Kernel matrices are exact to {CONFIDENCES_TOLERANCE:g} (top-label), "
    f"{' and '.join(f'{value:g}' for value in TOLERANCES.values())} "
    f"(canonical, {' and '.join(TOLERANCES)})."
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the experiment.

    Attributes:
        num_samples: the first samples are taken, this many of them; None for all.
        cifar10: names of networks of `cifar.CIFAR10`.
        logits: names of networks of `cifar.LOGITS`.
    """

    num_samples: int | None
    cifar10: tuple[str, ...]
    logits: tuple[str, ...] = ()


# The architectures of the paper, and the network that was here first.
LOGITS = (
    "cifar10_logits_resnet110",
    "cifar10_logits_densenet121",
    "cifar100_resnet50",
    "cifar100_resnet110",
    "cifar100_densenet121",
)
SETTINGS = {
    "quick": Settings(400, NETWORKS[:1]),
    "medium": Settings(2000, NETWORKS[:3]),
    "paper": Settings(None, NETWORKS, LOGITS),
}


class Network(NamedTuple):
    """Predictions of a network for all classes, and labels, [n]."""

    name: str
    predictions: Any
    labels: jax.Array

    @property
    def data(self) -> str:
        """Name of the data set."""
        return self.name.split("_")[0]

    def samples(self, notion: str) -> tuple[Any, jax.Array]:
        """What is looked at under a notion of calibration: predictions and targets."""
        if notion == "canonical":
            return self.predictions, self.labels
        confidences, correct = estimators.top_label(self.predictions, self.labels)
        return confidences.probs, correct


class Estimator(NamedTuple):
    """An estimation function, its grid for n training samples, and the tolerance that it has.

    Attributes:
        function: the estimation function.
        grid: n → hyperparameters, [k].
        tolerance: of kernel matrices; None if there are no such matrices.
    """

    function: risk.EstimationFunction
    grid: Callable[[int], jax.Array]
    tolerance: float | None = None

    def grid_for(self, network: Network) -> np.ndarray:
        """The grid for the training samples of a fold of a network."""
        num_tuning = len(network.labels) - round(TEST_FRACTION * len(network.labels))
        return np.asarray(self.grid(num_tuning - num_tuning // NUM_FOLDS))


@record
class Zero(risk.EstimationFunction):
    """h = 0: what an estimator has to beat if it finds any miscalibration at all."""

    def fit(self, predictions: Any, targets: Any, hyperparameter: Any) -> tuple[()]:
        """Nothing."""
        return ()

    def factors(self, params: tuple[()], p: Any) -> tuple[jax.Array, jax.Array]:
        """Zeros, [n, 1]."""
        zeros = jnp.zeros((len(jax.tree.leaves(p)[0]), 1))
        return zeros, zeros


ZEROS = Estimator(Zero(), lambda n: jnp.zeros(1))
BINS = Estimator(risk.Binning(), risk.Binning().grid)
DENSITIES = Estimator(risk.KernelDensity(), risk.KernelDensity().grid)


def _kernel_ridges(tolerance: float, *, canonical: bool) -> dict[str, Estimator]:
    return {
        "kkr": Estimator(
            risk.KernelRidge(tolerance=tolerance),
            functools.partial(risk.KernelRidge().grid, canonical=canonical),
            tolerance,
        ),
        "ukkr": Estimator(
            risk.KernelRidge(two_step=True, tolerance=tolerance),
            functools.partial(risk.KernelRidge(two_step=True).grid, canonical=canonical),
            tolerance,
        ),
    }


ESTIMATORS = {  # by data set and notion; there are no bins of many classes
    data: {
        "top-label": {
            "h = 0": ZEROS,
            "15 bins": BINS._replace(grid=lambda n: jnp.array([15])),
            "bins": BINS,
            "kde": DENSITIES,
            **_kernel_ridges(CONFIDENCES_TOLERANCE, canonical=False),
        },
        "canonical": {
            "h = 0": ZEROS,
            "kde": DENSITIES,
            **_kernel_ridges(tolerance, canonical=True),
        },
    }
    for data, tolerance in TOLERANCES.items()
}
ESTIMATORS["digits"] = ESTIMATORS["cifar10"]  # the stand-in data has ten classes, too


def read_networks(run: command_line.Run, settings: Settings) -> list[Network]:
    """The networks of --data with their first test samples, in float64.

    Raises:
        DataError: if a file is missing, or holds something else.
    """
    found = []
    if run.data is not None and (run.data / CIFAR10).is_dir():
        for name in settings.cifar10:
            data = cifar.read_cifar10(run.data, name)
            probs, labels = (jnp.asarray(x[: settings.num_samples]) for x in data)
            found.append(Network(f"cifar10_{name}", Categorical(probs), labels))
    for name in settings.logits:
        if run.data is not None and run.data.joinpath(*cifar.LOGITS[name]).is_dir():
            part, chosen = read_logits(run.data, name).evaluation, slice(settings.num_samples)
            logits, labels = jnp.asarray(part.logits[chosen]), jnp.asarray(part.labels[chosen])
            found.append(Network(name, CategoricalLogits(logits), labels))
    return found


def evaluate(network: Network, notion: str, estimator: Estimator) -> dict[str, np.ndarray]:
    """The result of one estimator.

    Returns:
        grid, risks: hyperparameters, [k], and the risk in each fold, [F, k].
        tuning: indices of the samples that are in folds.
        folds, losses, test_values: of the `risk.cross_validate` at the best grid point only.
        estimate, standard_error, sampling_error, root, root_standard_error: of the
            `risk.squared_calibration_error`, scalars.
        num_nan: number of losses and values that are NaN, at all grid points.
        seconds: time that it took, with compilation.
    """
    predictions, targets = network.samples(notion)
    start = time.perf_counter()
    result = risk.squared_calibration_error(
        cells.key_of(f"{NAME}/{network.name}"),  # one split for all estimators
        estimator.function,
        estimator.grid_for(network),
        predictions,
        targets,
        num_folds=NUM_FOLDS,
        test_fraction=TEST_FRACTION,
    )
    validation, best = result.cross_validation, int(result.cross_validation.best)
    scalars = ("estimate", "standard_error", "sampling_error", "root", "root_standard_error")
    values = validation.losses, validation.test_values
    return {name: np.asarray(getattr(result, name)) for name in scalars} | {
        "grid": np.asarray(validation.grid),
        "risks": np.asarray(validation.risks),
        "tuning": np.asarray(result.tuning),
        "folds": np.asarray(validation.folds),
        "losses": np.asarray(validation.losses[best]),
        "test_values": np.asarray(validation.test_values[:, best]),
        "num_nan": np.array(sum(int(jnp.sum(jnp.isnan(x))) for x in values)),
        "seconds": np.array(time.perf_counter() - start),
    }


def finished_cells(
    store: Store,
    settings: Settings,
    networks: list[Network],
    chosen: dict[str, dict[str, dict[str, Estimator]]],
) -> dict[tuple[str, str, str], dict[str, np.ndarray]]:
    """Results by network, notion and estimator, computed or read."""
    digests = {x.name: digest(*jax.tree.leaves(x.predictions), x.labels) for x in networks}
    places = [(x, notion) for x in networks for notion in chosen.get(x.data, ())]
    total = sum(len(chosen[network.data][notion]) for network, notion in places)
    finished = {}
    with tqdm(total=total, desc=NAME, unit="estimator") as bar:
        for network, notion in places:
            for name, estimator in chosen[network.data][notion].items():
                bar.set_description(f"{NAME}: {network.name}, {notion}, {name}")
                compute = functools.partial(evaluate, network, notion, estimator)
                path = f"{network.name}/{notion}/{name}".replace(",", "").replace(" ", "_")
                parameters = {
                    "num_samples": settings.num_samples,
                    "data": digests[network.name],
                    "tolerance": estimator.tolerance,
                    "grid": estimator.grid_for(network).tolist(),
                }
                found = cells.arrays(store, path, parameters, compute)
                finished[network.name, notion, name] = found
                bar.update()
    return finished


def run(run: command_line.Run) -> None:
    """Runs the experiment; without networks it runs on stand-in data."""
    settings, store = SETTINGS[run.preset], run.store(NAME, __file__)
    if networks := read_networks(run, settings):
        write_all(store, settings, networks)
        published_code.write_tables(store, run.data)
    else:
        with marked(NAME, stand_in.WHAT, EXPECTED):
            part, chosen = stand_in.digits().evaluation, slice(settings.num_samples)
            logits, labels = jnp.asarray(part.logits[chosen]), jnp.asarray(part.labels[chosen])
            network = Network("digits_linear", CategoricalLogits(logits), labels)
            write_all(store, settings, [network])


def write_all(store: Store, settings: Settings, networks: list[Network]) -> None:
    """Writes all tables and figures of the networks."""
    results = finished_cells(store, settings, networks, ESTIMATORS)
    networks_tables.write_tables(store.folder, results, EXACTNESS)
    paper_tables.write_tables(store.folder, results)
    networks_figures.plot(store.folder, results)


if __name__ == "__main__":
    command_line.main(run, __file__, __doc__, data=True)
