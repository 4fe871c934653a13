"""W21 App. A.1: quantiles of a linear regression look calibrated, a calibration test disagrees.

Features are uniform on [−1, 1], targets sin(πX) + |1 + X| ε with ε ~ N(0, 0.15²). A linear model
with constant variance is fitted by ordinary least squares to 100 pairs and tested on 50 others.
Fig. 1 shows Fig. 4 and Fig. 5 side by side. All random numbers are those of the authors' script.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distances, kernels
from calibjax.distributions import Normal
from calibjax.estimators import skce
from calibjax.estimators.kernel import sample_matrix
from calibjax.hypothesis_tests import exact_skce_test
from experiments.harness import cells, command_line
from experiments.harness.tables import write_table
from paper_repro.julia_random import rand, randn
from paper_repro.w21.draws import Stream, draw_resamples, started
from paper_repro.w21.ols_figures import LIMIT, NUM_CELLS, Conditional, grid, plot

NAME = "w21_ols"
SEED = 1234
NUM_TRAINING, NUM_VALIDATION = 100, 50
NOISE = 0.15  # standard deviation of ε
RESAMPLES, REDRAWS = 100_000, 9_999


def paper_kernel() -> kernels.TensorProduct:
    """The kernel of all experiments of W21: exp(−W₂(p, p')) exp(−(y − y')² / 2)."""
    return kernels.TensorProduct(
        kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    )


def draw_pairs(stream: Stream, num_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and targets, [num_samples] each."""
    x = np.array([-1 + 2 * rand(stream.state) for _ in range(num_samples)])
    noise = np.array([randn(stream.state) for _ in range(num_samples)])
    return x, np.sin(np.pi * x) + NOISE * np.abs(1 + x) * noise


def fit_line(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Least-squares coefficients (intercept, slope) and standard deviation of the residuals."""
    design = np.stack([np.ones_like(x), x], axis=1)
    coefficients = np.linalg.lstsq(design, y)[0]
    return coefficients, float(np.std(design @ coefficients - y, ddof=1))


def predict(model: tuple[np.ndarray, float], x: np.ndarray) -> Normal:
    """Predicted distributions at the features."""
    (intercept, slope), scale = model
    return Normal(jnp.asarray(intercept + slope * x), jnp.full(x.shape, scale))


@jax.jit
def bootstrap_pvalue(matrix: jax.Array, counts: jax.Array) -> jax.Array:
    """Share of resamples whose statistic is at least that of the data, as in CalibrationTests.jl.

    `asymptotic_skce_test` has the same statistic and counts the data as one more resample.

    Args:
        matrix: h of all pairs of samples, [n, n].
        counts: how often each resample contains each sample, [B, n].
    """
    n, counts = len(matrix), counts.astype(matrix.dtype)
    scale, diagonal = n / (n - 1), jnp.diagonal(matrix)
    forms = jnp.sum((counts @ matrix) * counts, 1) - counts @ diagonal
    draws = scale * forms - 2 * counts @ matrix.sum(1)
    statistic = scale**2 * (matrix.sum() - diagonal.sum()) - matrix.sum()
    return jnp.mean((draws >= statistic).astype(matrix.dtype))


class Experiment(NamedTuple):
    """The authors' data, the model, and the resamples of the test.

    Attributes:
        training: features and targets, [100] each.
        model: coefficients and standard deviation.
        predictions: of the validation data.
        targets: of the validation data, [50].
        counts: how often each resample contains each sample, [100 000, 50].
    """

    training: tuple[np.ndarray, np.ndarray]
    model: tuple[np.ndarray, float]
    predictions: Normal
    targets: jax.Array
    counts: np.ndarray


def draw_experiment() -> Experiment:
    """All that the script draws, in its order."""
    stream = started(SEED)
    training = draw_pairs(stream, NUM_TRAINING)
    model = fit_line(*training)
    x, y = draw_pairs(stream, NUM_VALIDATION)
    counts = np.empty((RESAMPLES, NUM_VALIDATION), np.uint8)
    draw_resamples(stream, counts)
    return Experiment(training, model, predict(model, x), jnp.asarray(y), counts)


class Row(NamedTuple):
    """A quantity, published and ours."""

    quantity: str
    published: str | None
    ours: float


def rows(experiment: Experiment) -> list[Row]:
    """The p-values, published and ours."""
    samples = experiment.predictions, experiment.targets
    bootstrap = bootstrap_pvalue(sample_matrix(paper_kernel(), samples), experiment.counts)
    # The paper's statistic; the default of the library sees predictions that are too wide, too.
    exact = exact_skce_test(
        cells.key_of(NAME), paper_kernel(), *samples, num_draws=REDRAWS, statistic="biased"
    )
    estimate = skce(paper_kernel(), *samples)
    return [
        Row(f"p-value, bootstrap, {RESAMPLES} resamples", "< 0.05", float(bootstrap)),
        Row(f"p-value, exact, {REDRAWS} redraws", None, float(exact.pvalue)),
        Row(f"SKCE of {NUM_VALIDATION} validation pairs, unbiased", None, float(estimate)),
    ]


def draw(experiment: Experiment) -> dict[str, Any]:
    """What is drawn: conditional distributions, training data, quantiles."""
    x, y = grid(NUM_CELLS, 1.0), grid(NUM_CELLS, LIMIT)
    truth = Normal(jnp.sin(jnp.pi * x), NOISE * jnp.abs(1 + x))
    models = {"data": truth, "linear model": predict(experiment.model, x)}
    density = jax.vmap(lambda p: jnp.exp(jax.vmap(p.log_prob)(jnp.asarray(y))))
    return {
        "conditionals": [Conditional(k, np.asarray(density(p))) for k, p in models.items()],
        "training": experiment.training,
        "levels": np.asarray(experiment.predictions.cdf(experiment.targets)),
    }


def run(run: command_line.Run) -> None:
    """Runs the experiment, which is the same in all presets."""
    folder, experiment = run.folder(NAME), draw_experiment()
    note = "Data and resamples are those of the authors' script, drawn from its seed."
    write_table(folder, "pvalues", rows(experiment), note)
    plot(folder, **draw(experiment))


if __name__ == "__main__":
    command_line.main(run, __file__, __doc__)
