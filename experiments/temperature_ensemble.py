"""Are real temperature forecasts calibrated, before and after statistical postprocessing?

The data are 2749 temperature observations with 11-member ensemble forecasts (`temp.csv` of the R
package ensemblepp). Two predictions are compared:

- raw ensemble: N(member mean, member standard deviation (n − 1 style));
- EMOS (Gneiting et al., 2005): N(a + b mean, sqrt(c + d variance)) with c, d ≥ 0, fitted by
  maximum likelihood to the first half of the rows.

Both are evaluated on the second half: SKCE, p-value of the exact test, PIT histogram, coverage of
central intervals, logarithmic score (mean negative log-density; smaller is better).

Choice of the kernel: exp(−W₂/ℓ_P) exp(−(y − z)²/(2 ℓ_Y²)) with ℓ_P the median heuristic of the
Wasserstein distance on the predictions of the evaluated half, and ℓ_Y their median predicted
standard deviation, the scale on which the predictions commit themselves. As a check of this
choice the wide ℓ_Y, the median heuristic of the predicted means, is reported too. No target is
used in the choice, so the exact test stays exact. Each model has its own kernel; to compare the
SKCE of two models take rows with the same length scales, which is why both models are also
evaluated with the length scales of the raw ensemble.

What the numbers do not say: the rows have no dates, but successive observations are strongly
correlated (the lag-one autocorrelation is in the table's note), so they are most likely in order
of time and the split is earlier versus later, with all that has changed in between (seasons, the
forecast model). The null hypothesis of the exact test is that, given all predictions, the targets
are independent draws from them. Forecast errors of successive days may be dependent even if each
forecast is calibrated by itself, and later forecasts know earlier observations; a small p-value
therefore speaks against calibration *and* conditional independence together. Likewise the
standard errors of the coverages are binomial and ignore dependence. The lag-one autocorrelation
of the normal scores of the PIT values shows how far this matters.

Run: python -m experiments.temperature_ensemble --data DIR [--output DIR]
"""

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.special import ndtri
from matplotlib.figure import Figure

from calibjax import distances, distributions, estimators, hypothesis_tests, kernels
from experiments.harness import command_line
from experiments.harness.data_files import DataError, existing_file, number_of, read_lines
from experiments.harness.figures import save_figure
from experiments.harness.tables import write_table

FOLDER = "temperature_ensemble"
NUM_MEMBERS = 11
MISSING = ("", "NA", "NaN", "nan")
MIN_ROWS = 20  # half of them for four parameters
LEVELS = (0.5, 0.9)


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


def emos(params: Any, mean: jax.Array, variance: jax.Array) -> distributions.Normal:
    """N(a + b mean, sqrt(c + d variance)) for params (a, b, log c, log d)."""
    a, b, log_c, log_d = params
    scale = jnp.sqrt(jnp.exp(log_c) + jnp.exp(log_d) * variance)
    return distributions.Normal(a + b * mean, scale)


def fit_emos(mean: jax.Array, variance: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Maximum-likelihood parameters, and the norm of the gradient there.

    L-BFGS from a fixed start, so the result is deterministic. With c or d going to zero its
    logarithm goes to −∞ and the gradient vanishes all the same.
    """

    def loss(params: Any) -> jax.Array:
        return -emos(params, mean, variance).log_prob(y).mean()

    solver = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(loss)

    def step(carry: Any) -> Any:
        params, state, _, count = carry
        value, grad = value_and_grad(params, state=state)
        updates, state = solver.update(grad, state, params, value=value, grad=grad, value_fn=loss)
        return optax.apply_updates(params, updates), state, optax.tree.norm(grad), count + 1

    def unfinished(carry: Any) -> jax.Array:
        return (carry[2] > 1e-9) & (carry[3] < 1000)

    # Least squares for a and b would do as well; this start needs no data.
    start = jnp.array([0.0, 1.0, 0.0, 0.0], y.dtype)
    carry = start, solver.init(start), jnp.array(jnp.inf, y.dtype), 0
    params = jax.lax.while_loop(unfinished, step, carry)[0]
    return params, jnp.linalg.norm(jax.grad(loss)(params))


def length_scales(predictions: distributions.Normal) -> dict[str, tuple[float, float]]:
    """(ℓ_P, ℓ_Y) chosen from the predictions only."""
    prediction = float(kernels.median_heuristic(distances.Wasserstein(), predictions))
    wide = float(kernels.median_heuristic(distances.Euclidean(), predictions.loc))
    return {
        "median predicted sd": (prediction, float(jnp.median(predictions.scale))),
        "median distance of predicted means": (prediction, wide),
    }


def kernel_of(scales: tuple[float, float]) -> kernels.Kernel:
    """Tensor product of the exponential and the squared exponential kernel."""
    return kernels.TensorProduct(
        kernels.Exponential(scales[0], distances.Wasserstein()),
        kernels.SquaredExponential(scales[1]),
    )


def calibration_rows(models: dict[str, Any], y: jax.Array, num_samples: int) -> list[dict]:
    """SKCE and exact p-value of each model with each choice of the length scales."""
    rows = []
    choices = {
        (source, choice): scales
        for source, predictions in models.items()
        for choice, scales in length_scales(predictions).items()
    }
    for name, predictions in models.items():
        for (source, choice), scales in choices.items():
            if source != name and source != "raw ensemble":
                continue
            kernel = kernel_of(scales)
            test = hypothesis_tests.exact_skce_test(
                jax.random.key(0), kernel, predictions, y, num_draws=num_samples
            )
            rows.append(
                {
                    "model": name,
                    "target length scale is the": choice,
                    "chosen from": source,
                    "prediction length scale": scales[0],
                    "target length scale": scales[1],
                    "SKCE": float(test.estimate),
                    "SKCE biased": float(estimators.skce_biased(kernel, predictions, y)),
                    "exact p": float(test.pvalue),
                }
            )
    return rows


def lag_one(x: np.ndarray) -> float:
    """Lag-one autocorrelation."""
    return float(np.corrcoef(x[1:], x[:-1])[0, 1])


def forecast_row(name: str, predictions: distributions.Normal, y: jax.Array) -> dict[str, Any]:
    """Coverage with standard errors, logarithmic score, bias and spread of one model."""
    pit = np.asarray(predictions.cdf(y))
    row: dict[str, Any] = {"model": name}
    for level in LEVELS:
        coverage = float(np.mean(np.abs(pit - 0.5) <= level / 2))
        row[f"coverage {level:.0%}"] = coverage
        row[f"s.e. {level:.0%}"] = math.sqrt(coverage * (1 - coverage) / len(pit))
    row["log score"] = float(-predictions.log_prob(y).mean())
    row["mean error"] = float((predictions.loc - y).mean())
    row["mean predicted sd"] = float(predictions.scale.mean())
    # PIT values of 0 and 1 to machine precision have no finite normal score.
    clipped = np.clip(pit, 1e-15, 1 - 1e-15)
    row["lag-1 of normal scores"] = lag_one(np.asarray(ndtri(clipped)))
    return row


def figure(models: dict[str, Any], y: jax.Array, folder: Path) -> None:
    """PIT histograms with the range in which nineteen of twenty bars of a uniform sample lie."""
    bins = 20
    fig = Figure(figsize=(4 * len(models), 3), layout="constrained")
    axes = fig.subplots(1, len(models))
    spread = 1.96 * math.sqrt((bins - 1) / len(y))
    for axis, (name, predictions) in zip(axes, models.items(), strict=True):
        axis.hist(predictions.cdf(y), bins=bins, range=(0, 1), density=True, color="C0")
        axis.axhline(1, color="k", lw=1)
        axis.axhspan(1 - spread, 1 + spread, color="k", alpha=0.2, lw=0)
        axis.set(title=name, xlabel="probability integral transform", xlim=(0, 1))
    axes[0].set_ylabel("density")
    save_figure(folder, "temperature_ensemble", fig)


@command_line.program
def main() -> None:
    """Reads the data, fits EMOS, writes two tables and a figure."""
    parser = command_line.option_parser(__file__, __doc__, data="required")
    parser.add_argument("--num-samples", type=command_line.positive_integer, default=1000)
    run, options = command_line.parse(parser)
    jax.config.update("jax_enable_x64", True)
    observed, members = read(run.data)
    half = len(observed) // 2
    mean, variance = jnp.asarray(members.mean(1)), jnp.asarray(members.var(1, ddof=1))
    params, slope = jax.jit(fit_emos)(mean[:half], variance[:half], jnp.asarray(observed[:half]))
    if not slope < 1e-6:
        raise SystemExit(f"the EMOS fit has not converged: norm of the gradient {slope:.1e}")
    models = {
        "raw ensemble": distributions.Normal(mean[half:], jnp.sqrt(variance[half:])),
        "EMOS": emos(params, mean[half:], variance[half:]),
    }
    y = jnp.asarray(observed[half:])
    a, b, c, d = (float(x) for x in (*params[:2], *jnp.exp(params[2:])))
    note = (
        f"Rows {half + 1} to {len(observed)} of the file; EMOS fitted to the rows before: a = "
        f"{a:.4f}, b = {b:.4f}, c = {c:.4g}, d = {d:.4g}. Lag-one autocorrelation of the "
        f"observations: {lag_one(observed):.2f}; standard errors ignore dependence."
    )
    rows = calibration_rows(models, y, options.num_samples)
    write_table(run.output, "temperature_ensemble_skce", rows, note, show=True)
    rows = [forecast_row(name, predictions, y) for name, predictions in models.items()]
    write_table(run.output, "temperature_ensemble_scores", rows, note, show=True)
    figure(models, y, run.output)


if __name__ == "__main__":
    main()
