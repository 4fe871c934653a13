"""How far the estimators are from the truth, and what W19 says about them."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.harness.tables import note_of, write_table
from paper_repro.w19.authors_data import MODELS
from paper_repro.w19.estimates_simulation import BETAS, ECES, ESTIMATORS, LABELLINGS
from paper_repro.w19.ground_truth import expected_calibration_error

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


@dataclasses.dataclass(frozen=True)
class Group:
    """Results of one m and a.

    Attributes:
        num_classes: m.
        concentration: a.
        estimates: [data sets, `LABELLINGS`, `ESTIMATORS`].
    """

    num_classes: int
    concentration: float
    estimates: np.ndarray

    @property
    def place(self) -> tuple[int, float]:
        """The numbers m and a."""
        return self.num_classes, self.concentration

    def of(self, share: float, beta: str, estimator: str) -> np.ndarray:
        """Estimates of one cell and estimator, [data sets]; π = 0 is the same for both β."""
        place = LABELLINGS.index((share, beta if share else BETAS[0]))
        return self.estimates[:, place, ESTIMATORS.index(estimator)]

    def true_value(self, share: float, beta: str, estimator: str) -> float:
        """What is estimated: the analytic ECE, or, as in the paper, the mean of SKCE_uq."""
        if estimator in ECES:
            return true_ece(self.num_classes, self.concentration, share, beta)
        return float(self.of(share, beta, unbiased(estimator)).mean())

    def bias(self, share: float, beta: str, estimator: str) -> float:
        """Mean difference from what is estimated."""
        mean = self.of(share, beta, estimator).mean()
        return float(mean - self.true_value(share, beta, estimator))


def unbiased(estimator: str) -> str:
    """SKCE_uq with the bandwidth of another SKCE estimator."""
    return f"unbiased_{estimator.split('_')[1]}"


@functools.cache
def true_ece(num_classes: int, concentration: float, share: float, beta: str) -> float:
    """Analytic expected calibration error."""
    alpha = jnp.full(num_classes, concentration)
    first = jnp.eye(1, num_classes)[0]
    vector = first if beta == "first" else jnp.full(num_classes, 1 / num_classes)
    return float(expected_calibration_error(alpha, vector, share))


def _standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size))


def _cells(groups: list[Group]) -> Iterator[tuple[Group, float, str]]:
    """All cells (m, a, β, π), that of π = 0 once."""
    for group in groups:
        for share, beta in LABELLINGS:
            yield group, share, beta


def block_deviation(group: Group, share: float, beta: str) -> float:
    """Mean difference of SKCE_ul from SKCE_uq on the same data sets, in standard errors."""
    block, unbiased = (group.of(share, beta, f"{x}_median") for x in ("block", "unbiased"))
    return float(np.mean(block - unbiased)) / _standard_error(block - unbiased)


def _ece_rows(groups: list[Group]) -> Iterator[dict[str, Any]]:
    for group in groups:
        for estimator in ECES:
            row: dict[str, Any] = {"m": group.num_classes, "a": group.concentration}
            row["estimator"] = LABELS[estimator]
            for beta in BETAS:
                row[f"true, {beta}"] = group.true_value(1.0, beta, estimator)
            for share, beta in LABELLINGS:
                column = f"π = {share}, {beta}" if share else "π = 0"
                row[column] = group.bias(share, beta, estimator)
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


def _signed(biases: dict[str, float]) -> str:
    return f"bias {', '.join(f'{model} {bias:+.3f}' for model, bias in biases.items())}"


def _claim_rows(groups: list[Group]) -> Iterator[tuple]:
    for group in groups:
        for estimator in ECES if group.place == MODELS["M1"][:2] else ():
            biases = {x: group.bias(*model[2:], estimator) for x, model in MODELS.items()}
            yield (f"{LABELS[estimator]}, Fig. 1", "", _signed(biases))
    places = list(_cells(groups))
    for estimator in ECES:
        biases = [group.bias(*place, estimator) for group, *place in places]
        yield (f"{LABELS[estimator]}, all cells", "", f"bias {_interval(biases)}")
    biases = [group.bias(*place, "biased_median") for group, *place in places]
    yield ("SKCE_b", "biased upwards", f"bias {_interval(biases)}")
    z = [abs(block_deviation(*place)) for place in places]
    text = f"largest difference from SKCE_uq in {len(z)} cells: {max(z):.2f} standard errors"
    yield ("SKCE_ul", "unbiased", text)
    claim = "bias more prominent with more classes, high estimates even for calibrated models"
    for estimator in ECES:
        text = f"mean at π = 0: {_mean_at_zero(groups, estimator)}"
        yield (LABELS[estimator], claim if estimator == ECES[0] else "", text)
    claim = "not affected by the number of classes in the same way"
    yield ("SKCE_b", claim, f"mean at π = 0: {_mean_at_zero(groups, 'biased_median')}")
    counts: dict[int, list[bool]] = {}
    for group, *place in places:
        is_multimodal = num_modes(group.of(*place, "block_median")) > 1
        counts.setdefault(group.num_classes, []).append(is_multimodal)
    text = "; ".join(f"{sum(c)} of {len(c)} cells (m = {m})" for m, c in counts.items())
    yield ("SKCE_ul", "multi-modal in some experiments with 100 and 1000 classes", text)


def write_tables(folder: Path, groups: list[Group]) -> None:
    """Tables of the bias of the ECE, and of what W19 says about the estimators."""
    write_table(folder, "claims", _claim_rows(groups), note_of(__file__, "claims"))
    error = max(
        _standard_error(group.of(share, beta, estimator))
        for group, share, beta in _cells(groups)
        for estimator in ECES
    )
    write_table(folder, "ece_bias", _ece_rows(groups), note_of(__file__, "ece", error=error))
