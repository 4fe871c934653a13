"""Tables and figure of `experiments.estimator_bias`."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from scipy.stats import rankdata  # comes with scikit-learn

from calibjax import plotting
from calibjax.plotting.figures import CURVE_COLORS
from experiments.estimator_bias_simulation import BASELINES, TUNED
from experiments.harness.figures import save_figure
from experiments.harness.tables import note_of, write_table

CHOICE = "smallest risk"
SHOWN = "5 sharp"  # model of the right panel of the figure
_UNIT = 1000  # errors of CCE² in the table


class Case(NamedTuple):
    """What was found for a model and a number of samples.

    Attributes:
        name: of the model, which begins with its number of classes.
        num_samples: n of each data set.
        truth: CCE².
        truth_error: its standard error.
        size: √E h*².
        found: results of `estimator_bias_simulation.evaluate`, [data sets, ...] each.
    """

    name: str
    num_samples: int
    truth: float
    truth_error: float
    size: float
    found: dict[str, np.ndarray]

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return int(self.name.split()[0])

    @property
    def tuned(self) -> list[str]:
        """The tuned estimators."""
        return [name for name in TUNED if f"{name} risk" in self.found]

    def best(self, name: str) -> np.ndarray:
        """Grid point of smallest risk in each data set, [data sets, 1]."""
        return self.found[f"{name} risk"].argmin(1)[:, None]

    def at_best(self, name: str, field: str) -> np.ndarray:
        """Values at the grid point of smallest risk, [data sets]."""
        return np.take_along_axis(self.found[f"{name} {field}"], self.best(name), 1)[:, 0]

    def chosen(self) -> np.ndarray:
        """Index of the tuned estimator of smallest risk in each data set, [data sets]."""
        return np.argmin([self.at_best(name, "risk") for name in self.tuned], 0)

    def estimates(self) -> dict[str, np.ndarray]:
        """Estimates of CCE² in each data set, [data sets] for each estimator."""
        values = {name: self.found[name] for name in BASELINES if name in self.found}
        tuned = {name: self.at_best(name, "estimate") for name in self.tuned}
        choice = np.choose(self.chosen(), list(tuned.values()))
        return values | tuned | {CHOICE: choice}


def rmse(errors: np.ndarray) -> np.ndarray:
    """Root of the mean square over data sets."""
    return np.sqrt(np.mean(np.square(errors), 0))


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's correlation of x and y over the grid, [data sets, k], mean over the data sets."""
    x, y = (rankdata(values, axis=1) for values in (x, y))
    x, y = (values - values.mean(1, keepdims=True) for values in (x, y))
    scales = np.sqrt(np.sum(x * x, 1) * np.sum(y * y, 1))
    return float(np.mean(np.sum(x * y, 1) / scales))


def error_row(case: Case) -> dict[str, Any]:
    """Bias, its standard error and RMSE of all estimators, in thousandths."""
    row: dict[str, Any] = {"model": case.name, "n": case.num_samples}
    row["100 CCE"] = f"{100 * math.sqrt(case.truth):.1f}"
    row["CCE²"] = f"{_UNIT * case.truth:.1f}"
    row |= dict.fromkeys((*BASELINES, *TUNED, CHOICE))
    for name, values in case.estimates().items():
        errors = _UNIT * (values - case.truth)
        deviation = math.hypot(errors.std(ddof=1) / math.sqrt(errors.size), case.truth_error)
        row[name] = f"{errors.mean():+.1f} ± {deviation:.1f} ({rmse(errors):.1f})"
    return row


def choice_row(case: Case, name: str) -> dict[str, Any]:
    """How well the risk chooses the hyperparameter of an estimator."""
    estimate, risk, excess, ratio = (
        case.found[f"{name} {field}"] for field in ("estimate", "risk", "excess", "ratio")
    )
    errors = np.abs(estimate - case.truth)
    tuned = case.estimates()[name]
    reported = case.found[f"{name} errors"][:, 0]
    roots = np.sign(tuned) * np.sqrt(np.abs(tuned))
    return {
        "model": case.name,
        "n": case.num_samples,
        "estimator": name,
        "chosen %": f"{100 * np.mean(case.chosen() == case.tuned.index(name)):.0f}",
        "RMSE": f"{_UNIT * rmse(tuned - case.truth):.1f}",
        "best": f"{_UNIT * rmse(errors).min():.1f}",
        "RMS h - h*": f"{_UNIT * math.sqrt(case.at_best(name, 'excess').mean()):.1f}",
        "best h": f"{_UNIT * math.sqrt(excess.min(1).mean()):.1f}",
        "h = 0": f"{_UNIT * case.size:.1f}",
        "corr.": f"{rank_correlation(risk, errors):.2f}",
        "edge %": f"{100 * np.mean(case.best(name) == risk.shape[1] - 1):.0f}",
        "ratio": f"{np.abs(ratio).max():.2f}",
        "s.e. / sd": f"{reported.mean() / tuned.std(ddof=1):.2f}",
        "100 root": f"{100 * roots.mean():.1f}",
    }


def write(folder: Path, cases: list[Case], command: str) -> None:
    """Writes the tables estimator_bias and estimator_bias_choice."""
    sizes = [len(case.found[BASELINES[0]]) for case in cases]
    values = {"choice": CHOICE, "least": min(sizes), "most": max(sizes), "command": command}
    note = note_of(__file__, "errors", **values)
    write_table(folder, "estimator_bias", [error_row(case) for case in cases], note)
    rows = [choice_row(case, name) for case in cases for name in case.tuned]
    write_table(folder, "estimator_bias_choice", rows, note_of(__file__, "choice"))


def plot(folder: Path, cases: list[Case]) -> None:
    """Errors of the tuned estimators; error on the diagonal against that of h for one model."""
    cases = [case for case in cases if case.num_samples == cases[0].num_samples]
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
    _plot_errors(left, [case for case in cases if case.num_classes <= 10])
    _plot_diagonal(right, next(case for case in cases if case.name == SHOWN))
    save_figure(folder, "estimator_bias", figure)


def _plot_errors(axis: Any, cases: list[Case]) -> None:
    """Errors of the tuned estimators that there are for all models."""
    labels = [case.name.replace(" ", "\n") for case in cases]
    errors = [
        {name: values - case.truth for name, values in case.estimates().items()} for case in cases
    ]
    names = (*TUNED[1:], CHOICE)
    means = {name: np.array([one[name].mean() for one in errors]) for name in names}
    bars = {name: np.array([one[name].std(ddof=1) for one in errors]) for name in names}
    plotting.estimate_comparison(labels, means, errors=bars, ylabel="estimate - CCE²", ax=axis)
    axis.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    axis.set_title(f"n = {cases[0].num_samples}: mean and sd", fontsize="medium")
    axis.tick_params(axis="x", labelsize=7)
    axis.legend(frameon=False, fontsize="small")


def _plot_diagonal(axis: Any, case: Case) -> None:
    """Error on the diagonal against that of h over the grids, means over the data sets."""
    for color, name in zip(CURVE_COLORS, case.tuned, strict=False):
        x = np.sqrt(case.found[f"{name} excess"].mean(0))
        y = np.abs(case.found[f"{name} diagonal"]).mean(0)
        axis.loglog(x, y, "o-", color=color, markersize=3.5, linewidth=0.8, label=name)
        chosen = np.bincount(case.best(name)[:, 0]).argmax()
        axis.loglog(x[chosen], y[chosen], "*", color=color, markersize=11)
    limits = np.array(axis.get_xlim())
    factor = math.sqrt(case.num_classes - 1)
    axis.loglog(limits, factor * limits, "--", color="0.6", linewidth=0.8, label="bound")
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set(xlabel="√E (h - h*)²", ylabel="|E h(p, p) - CCE²|")
    axis.set_title(f"{case.name}; stars: risk's choice", fontsize="medium")
    axis.legend(frameon=False, fontsize="small")
