"""Raw ensembles of real temperature forecasts, before and after temperature scaling.

The data are 2749 temperature observations with 11-member ensemble forecasts (`temp.csv` of the R
package ensemblepp). The members themselves are the prediction, in two ways:

- members: `Samples` of the 11 members, each as probable as the others;
- mixture: 11 normal distributions of equal weight around the members, with Silverman's bandwidth
  (4 / 33)^{1/5} times the standard deviation of the members of the day.

Temperature scaling spreads both about what it keeps: members about their mean by √T, normal
components about the members by √T. T is fitted to the first half of the rows by the CRPS (members)
or the likelihood (mixture). Everything is evaluated on the second half.

Kernels exp(−d/ℓ_P) exp(−(y − z)²/(2 ℓ_Y²)): d is the Wasserstein distance between ensembles, the
maximum mean discrepancy under the target kernel between mixtures, both positive semi-definite; ℓ_P
is the median heuristic and ℓ_Y the median predicted standard deviation, of the predictions before
scaling, so that before and after can be compared. No target enters them, so the exact tests stay
exact.

The exact test asks whether observations are independent draws *from the prediction*: for members,
whether they are always one of 11 numbers, which no ensemble of finitely many members can satisfy,
so a small p-value is no news there, and how large the SKCE is tells more. It also asks whether
the observations are independent given the predictions. The rows have no dates, but successive ones
are strongly correlated, and later forecasts know earlier observations, so that a small p-value
speaks against calibration *and* independence together.

Run: python -m experiments.ensemble_scaling --data DIR [--output DIR]
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distances, distributions, hypothesis_tests, kernels, scores
from calibjax.recalibration import TemperatureScaling
from experiments.harness import command_line
from experiments.harness.data_files import DataError, existing_file, number_of, read_lines
from experiments.harness.tables import write_table

FOLDER = "temperature_ensemble"
NUM_MEMBERS = 11
MISSING = ("", "NA", "NaN", "nan")
MIN_ROWS = 20
SILVERMAN = (4 / (3 * NUM_MEMBERS)) ** 0.2
COVERAGE = 0.9


def read(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """Reads observations [n] and ensembles [n, 11]; rows with a missing value are left out.

    Raises:
        DataError: if the file is missing, or holds something else.
    """
    path = existing_file(data, FOLDER, "temp.csv")
    header, *lines = read_lines(path)
    expected = ["temp", *(f"tempfc.{k}" for k in range(1, NUM_MEMBERS + 1))]
    found = header.strip().replace('"', "").split(",")
    if found != expected:
        raise DataError(f"--data: expected columns {expected}, got {found} in {path}")
    rows = []
    for i, line in enumerate(lines, start=2):
        values = [number_of(path, i, text, missing=MISSING) for text in line.split(",")]
        if len(values) != len(expected):
            place = f"{len(values)} in row {i} of {path}"
            raise DataError(f"--data: expected {len(expected)} values, got {place}")
        if np.ptp(values[1:]) == 0:  # not where one is missing
            raise DataError(f"--data: expected members that differ, got row {i} of {path}")
        rows.append(values)
    table = np.array(rows).reshape(-1, len(expected))
    complete = np.isfinite(table).all(1)
    if complete.sum() < MIN_ROWS:
        found = f"{complete.sum()} in {path}"
        raise DataError(f"--data: expected {MIN_ROWS} rows or more without gaps, got {found}")
    missing = np.count_nonzero(~complete)
    print(f"{len(table)} rows, {missing} with missing values" + (" left out" if missing else ""))
    return table[complete, 0], table[complete, 1:]


def kernel_of(predictions: Any) -> kernels.Kernel:
    """The kernel of one kind of prediction, with length scales from the predictions."""
    deviations = jnp.sqrt(jax.vmap(lambda p: p.variance())(predictions))
    target = kernels.SquaredExponential(jnp.median(deviations))
    if isinstance(predictions, distributions.Samples):
        distance: Any = distances.Wasserstein()
    else:
        distance = distances.MaximumMeanDiscrepancy(target)
    length_scale = kernels.median_heuristic(distance, predictions)
    return kernels.TensorProduct(kernels.Exponential(length_scale, distance), target)


def row(
    model: str,
    temperature: float,
    kernel: kernels.Kernel,
    predictions: Any,
    y: jax.Array,
    num_samples: int,
) -> dict[str, Any]:
    """SKCE, exact p-value and scores of one model."""
    test = hypothesis_tests.exact_skce_test(
        jax.random.key(0), kernel, predictions, y, num_draws=num_samples
    )
    levels = jnp.array([0.5 - COVERAGE / 2, 0.5 + COVERAGE / 2])
    low, high = jax.vmap(lambda p: jax.vmap(p.icdf)(levels))(predictions).T
    return {
        "model": model,
        "T": temperature,
        "prediction length scale": float(kernel.prediction.length_scale),
        "target length scale": float(kernel.target.length_scale),
        "SKCE": float(test.estimate),
        "exact p": float(test.pvalue),
        "CRPS": float(scores.crps(predictions, y)),
        f"coverage {COVERAGE:.0%}": float(jnp.mean((low <= y) & (y <= high))),
        "mean squared error": float(scores.mean_squared_error(predictions, y)),
    }


@command_line.program
def main() -> None:
    """Reads the data, fits two temperatures, writes a table."""
    parser = command_line.option_parser(__file__, __doc__, data="required")
    parser.add_argument("--num-samples", type=command_line.positive_integer, default=1000)
    run, options = command_line.parse(parser)
    jax.config.update("jax_enable_x64", True)
    observed, members = (jnp.asarray(x) for x in read(run.data))
    half = len(observed) // 2
    bandwidth = SILVERMAN * members.std(1, ddof=1, keepdims=True)
    normals = distributions.Normal(members, jnp.broadcast_to(bandwidth, members.shape))
    models = {
        "members": (distributions.Samples(members), TemperatureScaling(scores.crps)),
        "mixture": (distributions.Mixture(None, normals), TemperatureScaling()),
    }
    rows = []
    for name, (predictions, recalibrator) in models.items():
        earlier, later = (
            jax.tree.map(lambda leaf, part=part: leaf[part], predictions)
            for part in (np.s_[:half], np.s_[half:])
        )
        kernel, y = kernel_of(later), observed[half:]
        temperature = recalibrator.fit(earlier, observed[:half])
        scaled = recalibrator.apply(temperature, later)
        rows.append(row(name, 1.0, kernel, later, y, options.num_samples))
        rows.append(
            row(f"{name}, scaled", float(temperature), kernel, scaled, y, options.num_samples)
        )
    note = (
        f"Rows {half + 1} to {len(observed)} of the file; T fitted to the rows before. Smallest "
        f"possible p-value: {1 / (options.num_samples + 1):.2g}."
    )
    write_table(run.output, "ensemble_scaling", rows, note, show=True)


if __name__ == "__main__":
    main()
