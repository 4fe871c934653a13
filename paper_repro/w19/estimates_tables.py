"""Tables of the distributions of estimates, and of how far the estimators are from the truth."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.harness.tables import note_of, write_table
from paper_repro.w19.estimates_simulation import (
    BETAS,
    ECES,
    ESTIMATORS,
    LABELLINGS,
    SHARES,
    label_distribution,
    labelling,
    unpacked,
)
from paper_repro.w19.ground_truth import expected_calibration_error
from paper_repro.w19.simulation import CONCENTRATION, MODELS, NUM_CLASSES

LABELS = {
    "ece_uniform": "ECE, uniform bins",
    "ece_median_variance": "ECE, data-dependent bins",
    "biased_median": "SKCE_b, median heuristic",
    "biased_mean": "SKCE_b, mean distance",
    "unbiased_median": "SKCE_uq, median heuristic",
    "unbiased_mean": "SKCE_uq, mean distance",
    "block_median": "SKCE_ul, median heuristic",
    "block_mean": "SKCE_ul, mean distance",
}

# π = 0, then for each β the others
ECE_CELLS = ((0.0, BETAS[0]), *((share, beta) for beta in BETAS for share in SHARES[1:]))


@dataclasses.dataclass(frozen=True)
class Group:
    """Results of one m and a.

    Attributes:
        num_classes: m.
        concentration: a.
        estimates: [data sets, `LABELLINGS`, `ESTIMATORS`].
        expected: expectations of the SKCE estimates given the predictions, the same without ECEs.
        seconds: what the chunks took, added up over the threads.
    """

    num_classes: int
    concentration: float
    estimates: np.ndarray
    expected: np.ndarray
    seconds: float

    @property
    def place(self) -> tuple[int, float]:
        """The numbers m and a."""
        return self.num_classes, self.concentration

    @classmethod
    def from_cells(cls, num_classes: int, concentration: float, results: list[dict]) -> "Group":
        """Puts the chunks together."""
        columns = {"estimates": len(ESTIMATORS), "expected": len(ESTIMATORS) - len(ECES)}
        arrays = {
            name: np.concatenate([unpacked(result[name], count) for result in results])
            for name, count in columns.items()
        }
        seconds = sum(result["seconds"] for result in results)
        return cls(num_classes, concentration, **arrays, seconds=seconds)

    def of(self, share: float, beta: str, estimator: str) -> np.ndarray:
        """Estimates of one cell and estimator, [data sets]."""
        values = self.estimates[:, labelling(share, beta), ESTIMATORS.index(estimator)]
        return values.astype(np.float64)

    def expected_of(self, share: float, beta: str, estimator: str) -> np.ndarray:
        """Expectations of SKCE estimates given the predictions, [data sets]."""
        column = ESTIMATORS.index(estimator) - len(ECES)
        return self.expected[:, labelling(share, beta), column].astype(np.float64)

    def true_value(self, share: float, beta: str, estimator: str) -> float:
        """What is estimated: the analytic ECE, or the mean over all data sets of the SKCE."""
        if estimator in ECES:
            return true_ece(self.num_classes, self.concentration, share, beta)
        if share == 0:
            return 0.0  # instead of rounding errors
        return float(self.expected_of(share, beta, unbiased(estimator)).mean())

    def errors(self, share: float, beta: str, estimator: str) -> np.ndarray:
        """Differences from what is estimated, for each data set; their mean is the bias."""
        estimates = self.of(share, beta, estimator)
        if estimator in ECES:
            return estimates - self.true_value(share, beta, estimator)
        if estimator.startswith("biased"):
            estimator = unbiased(estimator)
        return estimates - self.expected_of(share, beta, estimator)


def unbiased(estimator: str) -> str:
    """SKCE_uq with the bandwidth of another SKCE estimator."""
    return f"unbiased_{estimator.split('_')[1]}"


@functools.cache
def true_ece(num_classes: int, concentration: float, share: float, beta: str) -> float:
    """Analytic expected calibration error."""
    alpha = jnp.full(num_classes, concentration)
    vector = jnp.asarray(label_distribution(beta, num_classes))
    return float(expected_calibration_error(alpha, vector, share))


def _standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size))


def rounded(value: float, digits: int = 5) -> float:
    """A number with this many significant digits."""
    return float(f"{value:.{digits}g}")


def _cells(groups: list[Group]) -> Iterator[tuple[Group, float, str]]:
    """All cells (m, a, β, π), that of π = 0 once."""
    for group in groups:
        for share, beta in LABELLINGS:
            yield group, share, beta or BETAS[0]


def _estimate_rows(groups: list[Group]) -> Iterator[tuple]:
    for group, share, beta in _cells(groups):
        for estimator, label in LABELS.items():
            values, errors = (f(share, beta, estimator) for f in (group.of, group.errors))
            numbers = [values.mean(), values.std(ddof=1), group.true_value(share, beta, estimator)]
            numbers += [errors.mean(), _standard_error(errors)]
            cell = *group.place, beta if share else "any", share, label
            yield (*cell, *map(rounded, numbers))


def deviation(group: Group, share: float, beta: str, estimator: str) -> float:
    """Mean difference of SKCE estimates from their expectations, in standard errors."""
    errors = group.of(share, beta, estimator) - group.expected_of(share, beta, estimator)
    return float(errors.mean()) / _standard_error(errors)


def _random_cells(groups: list[Group]) -> list[tuple[Group, float, str]]:
    """The cells whose labels are not all the same."""
    return [place for place in _cells(groups) if place[1:] != (1.0, "first")]


def expected_largest(count: int) -> float:
    """Mean of the largest of this many independent |z|, z standard normal."""
    grid = np.linspace(0, 10, 10_001)
    below = np.array([math.erf(x / math.sqrt(2)) for x in grid]) ** count
    return float(np.sum(1 - below) * grid[1])


def _unbiasedness_rows(groups: list[Group]) -> Iterator[tuple]:
    places = _random_cells(groups)
    for estimator in ESTIMATORS[len(ECES) :]:
        z = np.array([deviation(*place, estimator) for place in places])
        smallest, largest = None, None
        if estimator.startswith("biased"):
            exact = [
                group.expected_of(share, beta, estimator).mean()
                - group.true_value(share, beta, estimator)
                for group, share, beta in places
            ]
            smallest, largest = float(min(exact)), float(max(exact))
        yield (
            LABELS[estimator],
            z.size,
            smallest,
            largest,
            float(z.mean()),
            float(np.sqrt(np.mean(z**2))),
            float(np.abs(z).max()),
            expected_largest(z.size),
        )


def _ece_rows(groups: list[Group]) -> Iterator[dict[str, Any]]:
    for group in groups:
        for estimator in ECES:
            row: dict[str, Any] = {"m": group.num_classes, "a": group.concentration}
            row["estimator"] = LABELS[estimator]
            for beta in BETAS:
                row[f"true, {beta}"] = group.true_value(1.0, beta, estimator)
            for share, beta in ECE_CELLS:
                column = f"π = {share}, {beta}" if share else "π = 0"
                row[column] = float(group.errors(share, beta, estimator).mean())
            yield row


def num_modes(values: np.ndarray) -> int:
    """Number of maxima of the smoothed histogram that are separated by clear valleys."""
    counts, _ = np.histogram(values, np.linspace(*np.quantile(values, [0.001, 0.999]), 101))
    heights = np.convolve(counts, np.ones(7) / 7, "same")
    modes, is_rising, extreme = 0, True, 0.0
    for height in heights:
        extreme = max(extreme, height) if is_rising else min(extreme, height)
        if is_rising and height < 0.8 * extreme:
            modes += extreme > 0.02 * heights.max()
            is_rising, extreme = False, height
        elif not is_rising and height > max(extreme / 0.8, 0.02 * heights.max()):
            is_rising, extreme = True, height
    return int(modes)


def _interval(values: Iterable[float]) -> str:
    values = list(values)
    return f"{min(values):.2g} to {max(values):.2g}"


def _mean_at_zero(groups: list[Group], estimator: str) -> str:
    """Means of the estimates of calibrated models."""
    return "; ".join(
        f"{group.of(0.0, BETAS[0], estimator).mean():.2g} (m = {group.num_classes}, "
        f"a = {group.concentration:g})"
        for group in groups
    )


Biases = Callable[[str, float, str], str]


def _first_figure_rows(group: Group, published: Biases | None) -> Iterator[tuple]:
    """The biases of the ECE in the models of Fig. 1.

    Args:
        group: the results of its m and a.
        published: (estimator, π, β) → published mean minus published true value; None without.
    """
    for estimator in ECES:
        ours = {model: group.errors(*MODELS[model], estimator).mean() for model in MODELS}
        theirs = published and {model: published(estimator, *MODELS[model]) for model in MODELS}
        yield (f"{LABELS[estimator]}, Fig. 1", _signed(theirs or {}), _signed(ours))


def _signed(biases: dict[str, float]) -> str:
    parts = (f"{model} {bias:+.3f}" for model, bias in biases.items())
    return f"bias {', '.join(parts)}" if biases else ""


def _claim_rows(groups: list[Group], published: Biases | None) -> Iterator[tuple]:
    for group in groups:
        if group.place == (NUM_CLASSES, CONCENTRATION):
            yield from _first_figure_rows(group, published)
    places = list(_cells(groups))
    for estimator in ECES:
        biases = [group.errors(*place, estimator).mean() for group, *place in places]
        yield (f"{LABELS[estimator]}, all cells", "", f"bias {_interval(biases)}")
    biases = [group.errors(*place, "biased_median").mean() for group, *place in places]
    yield ("SKCE_b", "biased upwards", f"bias {_interval(biases)}")
    for skce in ("unbiased", "block"):
        z = [abs(deviation(*place, f"{skce}_median")) for place in _random_cells(groups)]
        text = f"largest deviation in {len(z)} cells: {max(z):.2f} standard errors"
        label = LABELS[f"{skce}_median"].split(",")[0]
        yield (label, "unbiased" if skce == "block" else "(unbiased by theory)", text)
    claim = "bias more prominent with more classes, high estimates even for calibrated models"
    for estimator in ECES:
        text = f"mean at π = 0: {_mean_at_zero(groups, estimator)}"
        yield (LABELS[estimator], claim if estimator == ECES[0] else "", text)
    claim = "not affected by the number of classes in the same way"
    yield ("SKCE_b", claim, f"mean at π = 0: {_mean_at_zero(groups, 'biased_median')}")
    counts = {m: [] for m in sorted({group.num_classes for group in groups})}
    for group, *place in places:
        counts[group.num_classes].append(num_modes(group.of(*place, "block_median")) > 1)
    text = "; ".join(f"{sum(c)} of {len(c)} cells (m = {m})" for m, c in counts.items())
    yield ("SKCE_ul", "multi-modal in some experiments with 100 and 1000 classes", text)


def write_tables(folder: Path, groups: list[Group], published: Biases | None = None) -> None:
    """Tables of all estimates, of the bias of the estimators, and of what W19 says about them.

    Args:
        folder: where to.
        groups: the results.
        published: the biases of the ECE in Fig. 1, see `_first_figure_rows`.
    """
    note = note_of(__file__, "estimates", data_sets=len(groups[0].estimates))
    write_table(folder, "estimates", _estimate_rows(groups), note)
    note = note_of(__file__, "unbiasedness", cells=len(_random_cells(groups)))
    rows = _unbiasedness_rows(groups)
    write_table(folder, "unbiasedness", rows, note)
    write_table(folder, "claims", _claim_rows(groups, published), note_of(__file__, "claims"))
    error = max(
        _standard_error(group.errors(share, beta, estimator))
        for group, share, beta in _cells(groups)
        for estimator in ECES
    )
    write_table(folder, "ece_bias", _ece_rows(groups), note_of(__file__, "ece", error=error))
