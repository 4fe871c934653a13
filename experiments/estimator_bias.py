"""How far from the truth are calibration errors whose estimator was tuned by risk?

The estimators of Gruber and Bach (2024), each tuned by the risk in their pipeline, on models whose
squared canonical calibration error CCE² = E h*(p, p) is known: calibrated ones, those of Widmann et
al. (2019), and softmax-distorted ones as in G24 §5.1, with 2 to 100 classes and 500 or 2000
samples. What was found (full preset, errors of CCE² in thousandths; the tables have the rest):

- On calibrated models, where the truth is 0, all tuned estimates are too large: kernel ridge
  regression by 0.1 to 1.4, kernel densities by 1 to 25, which as roots are 0.5 to 2 % and 3 to
  16 %. Bins, for two classes, are off by 2 to 7. No estimate by kkr was negative.
- On uncalibrated models the kernel ridge estimates are too small, with 5 and more classes by a
  third to nearly all at 500 samples and by a tenth to three quarters at 2000: the function of
  smallest risk is shrunken. With few samples h = 0 is hardly worse: for "10 sharp" and 500 samples
  √E (h − h*)² is 12.6 where the risk chooses and 13.0 for h = 0, the estimate 9.1 instead of 38.3.
- The risk does what it is for. √E (h − h*)² at the chosen hyperparameter is at most 1.13 times the
  smallest on the grid for five and more uncalibrated classes (1.5 times for two). But that is no
  good guide to the best estimate: in the example, the RMSE of ukkr is 7.8 at the best fixed grid
  point, and 30.0 at that of smallest risk; over the grid, risk and error of the estimate are
  negatively correlated there (−0.32).
- A risk that is small enough bounds the error. If h is an inner product of vectors that sum to
  zero, as bins, kde and ukkr are, h − h* has at most m − 1 positive and m − 1 negative eigenvalues,
  whose sum is E (h − h*)(p, p) and the sum of whose squares is E (h − h*)²:

      |E h(p, p) − CCE²| ≤ √((m − 1) E (h − h*)²)

  with no condition of continuity as in Theorem 2 of G24. The largest ratio of the two sides was
  1.00: the bound is sharp. For kkr, which is no such product, it was 1.21. For 500 samples and five
  or ten classes the right side is nearly CCE² itself.
- The estimator of smallest risk of all has an RMSE of at most 1.3 times that of the best single
  one on uncalibrated models, but for "5 sharp" (1.7 times) and "10 sharp" (2.3 times) with 500
  samples. For two calibrated classes it is kde or bins, which are worse, in 41 to 46 % of the data
  sets, by chance. Where kernel densities fail, for 100 classes with an error of 683, it never is.
- Without tuning, kernel densities with the bandwidth of largest likelihood are useless near the
  faces of the simplex: errors of 64 to 960 from five classes on. For two uncalibrated classes 15
  debiased bins, with no tuning and no sample kept apart, have a smaller RMSE than what the risk
  chooses in all four cases.
- The standard error over the folds is 0.01 to 0.31 of the true standard deviation of the estimate.
- The canonical grid of penalties in G24 App. B ends too early: on "5 blunt", the model of G24 §5.1,
  ukkr is at its edge in 82 % of the data sets of 500 samples and all of 2000, kkr in all of 2000.

Run: python -m experiments.estimator_bias [--preset quick|full] [--output DIR]
"""

import functools
from typing import NamedTuple

import jax
import numpy as np
from tqdm import tqdm

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
from experiments.harness import cells, command_line
from experiments.harness.cells import Store

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
    "100 sharp": functools.partial(model, 100, 0.04, sharpness=2.0),
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


def run_case(store: Store, preset: Preset, name: str, num_samples: int) -> Case:
    """All data sets of a model."""
    num_classes = int(name.split()[0])
    num_draws = 10 * preset.num_draws // max(10, num_classes)
    truth = true_error(store, name, MODELS[name](), num_draws)
    number = preset.num_datasets[num_samples][num_classes]
    functions = functions_for(num_classes, num_samples)
    chunks = [
        simulate(store, name, MODELS[name](), functions, first, first + preset.chunk)
        for first in tqdm(range(0, number, preset.chunk), desc=f"{name}, n = {num_samples}")
    ]
    found = {field: np.concatenate([chunk[field] for chunk in chunks]) for field in chunks[0]}
    size = float(size_of_truth(setting_of(name, MODELS[name](), num_samples)))
    return Case(name, num_samples, truth["value"], truth["error"], size, found)


def run_all(store: Store, preset: Preset) -> list[Case]:
    """All models and numbers of samples of a preset."""
    return [
        run_case(store, preset, name, num_samples)
        for num_samples, numbers in preset.num_datasets.items()
        for name in MODELS
        if int(name.split()[0]) in numbers
    ]


@command_line.program
def main() -> None:
    """Writes the tables and the figure."""
    parser = command_line.option_parser(__file__, __doc__, presets=tuple(PRESETS))
    run, _ = command_line.parse(parser)
    jax.config.update("jax_enable_x64", True)
    store = run.store(NAME, __file__)
    cases = run_all(store, PRESETS[run.preset])
    command = f"`python -m experiments.estimator_bias --preset {run.preset}`"
    write(store.folder, cases, command)
    plot(store.folder, cases)


if __name__ == "__main__":
    main()
