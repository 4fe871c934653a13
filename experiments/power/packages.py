"""Multicalibration: the exact test of groups beside the p-value of the package MCGrad.

Binary predictions and three categorical features of four values; groups are the values of one
feature and of two at a time, 60 in all, which overlap. MCGrad (Meta; its `mce_pvalue`) chooses its
own segments from the same features. Its documentation says that the p-value is not adjusted for
their number, and expects the adjustment to be small.

Run: python -m experiments.power.packages [--num-datasets 1000] [--output DIR]
"""

import functools
import importlib.metadata
import importlib.util
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from calibjax import hypothesis_tests
from calibjax.distributions import Bernoulli
from experiments.harness import command_line
from experiments.harness.cells import cell
from experiments.harness.command_line import program
from experiments.harness.tables import write_table
from experiments.power.simulation import ALPHA, DRAWS

NUM_SAMPLES, NUM_FEATURES, NUM_VALUES = 1000, 3, 4
EFFECTS = {"calibrated": 0.0, "one group too low": 0.25, "one group too high": -0.25}


def draw(seed: int, effect: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, predicted probabilities and labels; where two features are zero, p is off."""
    generator = np.random.default_rng([seed, int(100 * effect) % 1000])
    features = generator.integers(0, NUM_VALUES, (NUM_SAMPLES, NUM_FEATURES))
    probs = generator.uniform(0.2, 0.8, NUM_SAMPLES)
    is_off = (features[:, 0] == 0) & (features[:, 1] == 0)
    labels = generator.uniform(size=NUM_SAMPLES) < np.clip(probs + effect * is_off, 0, 1)
    return features, probs, labels.astype(int)


def groups_of(features: np.ndarray) -> np.ndarray:
    """Memberships of the values of one feature, and of pairs of two, [n, 60]."""
    single = features[:, :, None] == np.arange(NUM_VALUES)
    pairs = [
        (single[:, i, :, None] & single[:, j, None, :]).reshape(len(features), -1)
        for i, j in itertools.combinations(range(NUM_FEATURES), 2)
    ]
    return np.concatenate([single.reshape(len(features), -1), *pairs], 1)


@jax.jit
def exact(key: jax.Array, probs: jax.Array, labels: jax.Array, groups: jax.Array) -> jax.Array:
    """Smallest adjusted p-value, and smallest p-value."""
    test = hypothesis_tests.group_calibration_test(
        key, Bernoulli(probs), labels, groups, num_draws=DRAWS
    )
    return jnp.stack([jnp.min(test.adjusted_pvalue), jnp.min(test.pvalue)])


def mcgrad(features: np.ndarray, probs: np.ndarray, labels: np.ndarray) -> float:
    """p-value of the package."""
    pandas, metrics = map(importlib.import_module, ("pandas", "mcgrad.metrics"))
    names = [f"x{i}" for i in range(NUM_FEATURES)]
    frame = pandas.DataFrame(features.astype(str), columns=names)
    frame = frame.assign(label=labels, score=probs)
    error = metrics.MulticalibrationError(
        frame, "label", "score", categorical_segment_columns=names
    )
    return float(error.mce_pvalue)


def pvalues(effect: float, num_datasets: int) -> dict[str, Any]:
    """p-values of all data sets, by test."""
    found: dict[str, list[float]] = {"exact": [], "unadjusted": [], "mcgrad": []}
    for seed in range(num_datasets):
        features, probs, labels = draw(seed, effect)
        groups = jnp.asarray(groups_of(features))
        key = jax.random.key(seed)
        ours = exact(key, jnp.asarray(probs), jnp.asarray(labels), groups)
        found["exact"].append(float(ours[0]))
        found["unadjusted"].append(float(ours[1]))
        found["mcgrad"].append(mcgrad(features, probs, labels))
    return found


TESTS = {
    "exact": "group_calibration_test, 60 groups",
    "unadjusted": "the same, smallest p-value without adjustment",
    "mcgrad": "MCGrad, mce_pvalue",
}


@program
def main() -> None:
    """Writes the table power_packages."""
    parser = command_line.option_parser(__file__, __doc__)
    parser.add_argument("--num-datasets", type=command_line.positive_integer, default=1000)
    run, options = command_line.parse(parser)
    for package in ("mcgrad", "pandas"):
        if importlib.util.find_spec(package) is None:
            raise SystemExit(f"{package} is not installed: pip install mcgrad")
    store, number = run.store("power/packages", __file__), options.num_datasets
    rows = {test: {"test": name} for test, name in TESTS.items()}
    for alternative, effect in tqdm(EFFECTS.items(), unit="cell"):
        compute = functools.partial(pvalues, effect, number)
        found = cell(store, alternative, {"effect": effect, "number": number}, compute)
        for test, row in rows.items():
            row[alternative] = 100 * float(np.mean(np.array(found[test]) <= ALPHA))
    version = importlib.metadata.version("mcgrad")
    note = (
        f"Rejections in percent at level {100 * ALPHA:.0f} %, {number} data sets of n = "
        f"{NUM_SAMPLES} binary predictions; where two of three features are zero (a sixteenth of "
        f"the samples) the probability of a one is 0.25 higher or lower than predicted. MCGrad "
        f"{version}. Made by `python -m experiments.power.packages --num-datasets {number}`."
    )
    write_table(run.folder("power"), "power_packages", list(rows.values()), note, show=True)


if __name__ == "__main__":
    main()
