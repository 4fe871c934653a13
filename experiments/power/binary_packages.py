"""Binary predictions: the aggregated test beside the tests of the package probcal.

Data sets are those of the bound study, n = 200: log-odds with standard deviation 1.5, and laws of
the labels that are wrong in known ways. All tests see the same data.

Run: python -m experiments.power.binary_packages [--num-datasets 500] [--output DIR]
"""

import functools
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

from calibjax import hypothesis_tests
from experiments.harness import command_line
from experiments.harness.cells import cell, key_of
from experiments.harness.command_line import program
from experiments.harness.tables import write_table
from experiments.power.bound.models import MODELS
from experiments.power.simulation import ALPHA, DRAWS

NUM_SAMPLES = 200
OURS = "aggregated_skce_test"


def package_tests() -> dict[str, Callable[[np.ndarray, np.ndarray, int], Any]]:
    """The tests of probcal, (labels, probabilities, seed) → result, by name."""
    metrics = importlib.import_module("probcal.metrics")

    def skce(y: np.ndarray, p: np.ndarray, seed: int) -> Any:
        return metrics.skce_test(y, p, n_boot=DRAWS, random_state=seed)

    return {
        "probcal, skce_test": skce,
        "probcal, calibration_test": lambda y, p, _: metrics.calibration_test(y, p),
        "probcal, hosmer_lemeshow": lambda y, p, _: metrics.hosmer_lemeshow(y, p),
        "probcal, spiegelhalter_z": lambda y, p, _: metrics.spiegelhalter_z(y, p),
    }


def pvalues(name: str, num_datasets: int) -> dict[str, list[float]]:
    """p-values of all data sets of one law, by test."""
    model, tests = MODELS["binary"], package_tests()
    found: dict[str, list[float]] = {test: [] for test in (OURS, *tests)}
    keys = jax.random.split(key_of(f"power/binary_packages/{name}"), num_datasets)
    for seed, key in enumerate(keys):
        of_predictions, of_labels, of_test = jax.random.split(key, 3)
        predictions = model.predictions(of_predictions, NUM_SAMPLES)
        law = model.laws[name](predictions)
        draws = jax.random.split(of_labels, NUM_SAMPLES)
        labels = jax.vmap(lambda k, p: p.sample(k))(draws, law)
        ours = hypothesis_tests.aggregated_skce_test(of_test, predictions, labels, num_draws=DRAWS)
        found[OURS].append(float(ours.pvalue))
        numbers = np.asarray(labels, float), np.asarray(predictions.probs, float)
        for test, theirs in tests.items():
            found[test].append(float(theirs(*numbers, seed).p_value))
    return found


@program
def main() -> None:
    """Writes the table power_binary_packages."""
    parser = command_line.option_parser(__file__, __doc__)
    parser.add_argument("--num-datasets", type=command_line.positive_integer, default=500)
    run, options = command_line.parse(parser)
    if importlib.util.find_spec("probcal") is None:
        raise SystemExit("probcal is not installed: pip install probcal")
    store, number = run.store("power/binary_packages", __file__), options.num_datasets
    rows: dict[str, dict[str, Any]] = {}
    for name in tqdm(MODELS["binary"].laws, unit="cell"):
        found = cell(store, name, {"number": number}, functools.partial(pvalues, name, number))
        for test, of_test in found.items():
            rejected = 100 * float(np.mean(np.array(of_test) <= ALPHA + 1e-6))
            rows.setdefault(test, {"test": test})[name] = rejected
    version = importlib.metadata.version("probcal")
    note = (
        f"Rejections in percent at level {100 * ALPHA:.0f} %, {number} data sets of n = "
        f"{NUM_SAMPLES} binary predictions, {DRAWS} redraws; standard error at most "
        f"{50 / number**0.5:.1f}. probcal {version}: its test of the SKCE is a bootstrap with one "
        f"kernel, calibration_test is Cox's. Made by `python -m experiments.power.binary_packages "
        f"--num-datasets {number}`."
    )
    write_table(run.folder("power"), "power_binary_packages", list(rows.values()), note, show=True)


if __name__ == "__main__":
    main()
