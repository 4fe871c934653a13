"""How far from the truth are calibration errors whose estimator was tuned by risk?

Run: python -m experiments.estimator_bias [--preset quick|full] [--output DIR]
"""

import functools
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from tqdm import tqdm

from experiments import reporting
from experiments.estimator_bias_simulation import (
    Functions,
    model,
    rank_for,
    setting_of,
    simulate,
    size_of_truth,
    training_size,
    true_error,
)
from experiments.estimator_bias_tables import Case, plot, write
from paper_repro import cells

NAME = "estimator_bias"
# Number of classes m, α, and what the predictions or labels differ in from calibrated ones.
MODELS = {
    "2 calibrated": functools.partial(model, 2, 0.5),
    "2 mixed": functools.partial(model, 2, 0.5, share=0.25),
    "2 sharp": functools.partial(model, 2, 0.5, sharpness=2.0),
    "5 calibrated": functools.partial(model, 5, 0.2),
    "5 sharp": functools.partial(model, 5, 0.2, sharpness=2.0),
    "5 blunt": functools.partial(model, 5, 0.04, sharpness=0.3),  # G24 §5.1
    "10 calibrated": functools.partial(model, 10, 0.1),  # M1 of W19
    "10 mixed": functools.partial(model, 10, 0.1, share=0.25),
    "10 sharp": functools.partial(model, 10, 0.1, sharpness=2.0),
    "100 sharp": functools.partial(model, 100, 0.01, sharpness=2.0),
}


class Preset(NamedTuple):
    """Sizes of the experiment.

    Attributes:
        num_datasets: for each number of samples those of each number of classes.
        num_draws: predictions that a true error is the mean of, fewer for more than ten classes.
        chunk: data sets in one cell.
    """

    num_datasets: dict[int, dict[int, int]]
    num_draws: int
    chunk: int


PRESETS = {
    "quick": Preset({200: {2: 20, 5: 20}}, 10_000, 20),
    "full": Preset(
        {500: {2: 100, 5: 100, 10: 100, 100: 40}, 2000: {2: 40, 5: 40, 10: 20}}, 10**6, 20
    ),
}


@functools.cache
def functions_for(num_classes: int, num_samples: int) -> Functions:
    """Estimation functions that all models of one number of classes share, and compile once."""
    ranks = [
        rank_for(build().draw_predictions(cells.key_of(name), training_size(num_samples)))
        for name, build in MODELS.items()
        if int(name.split()[0]) == num_classes
    ]
    return Functions(num_classes, num_samples, max(ranks))


def run_case(folder: Path, preset: Preset, name: str, num_samples: int) -> Case:
    """All data sets of a model."""
    num_classes = int(name.split()[0])
    num_draws = 10 * preset.num_draws // max(10, num_classes)
    truth = true_error(folder, name, MODELS[name](), num_draws)
    number = preset.num_datasets[num_samples][num_classes]
    functions = functions_for(num_classes, num_samples)
    chunks = [
        simulate(folder, name, MODELS[name](), functions, first, first + preset.chunk)
        for first in tqdm(range(0, number, preset.chunk), desc=f"{name}, n = {num_samples}")
    ]
    found = {field: np.concatenate([chunk[field] for chunk in chunks]) for field in chunks[0]}
    size = float(size_of_truth(setting_of(name, MODELS[name](), num_samples)))
    return Case(name, num_samples, truth["value"], truth["error"], size, found)


def run_all(folder: Path, preset: Preset) -> list[Case]:
    """All models and numbers of samples of a preset."""
    return [
        run_case(folder, preset, name, num_samples)
        for num_samples, numbers in preset.num_datasets.items()
        for name in MODELS
        if int(name.split()[0]) in numbers
    ]


def main() -> None:
    """Writes the tables and the figure."""
    parser = reporting.option_parser(__doc__)
    parser.add_argument("--preset", choices=tuple(PRESETS), default="quick", help="default: quick")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    folder = options.output / NAME / options.preset
    cases = run_all(folder, PRESETS[options.preset])
    command = f"`python -m experiments.estimator_bias --preset {options.preset}`"
    write(folder, cases, command)
    plot(folder, cases)


if __name__ == "__main__":
    main()
