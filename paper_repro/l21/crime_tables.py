"""Tables of L21 §5.3, columns "Setting 1", "published / ours", and the claims about them."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.stats  # comes with scikit-learn

from experiments.harness.tables import note_of, published_rows, write_table
from paper_repro.l21.embeddings import LENGTH_SCALES
from paper_repro.l21.methods import CLIPS, GLOBAL, GROUP_WISE, LOCAL

LEVEL = 0.05
VERDICTS = ("confirmed", "refuted", "undecided")
NLL, OTHER_NLL = (f"NLL_{clip:g}" for clip in CLIPS)
# L21 Tables 1 and 3: mean and standard deviation over 60 networks, by quantity and method; the
# ECE is in per cent.
PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {}
for _row in published_rows(__file__):
    _numbers = float(_row["mean"]), float(_row["sd"])
    PUBLISHED.setdefault(_row["quantity"], {})[_row["method"]] = _numbers
TABLE_EPOCHS = (1, 5, 10, 20, 30, 40, 50, 75, 100, 125, 150, 175, 200)


class Summary(NamedTuple):
    """Mean and standard deviation over networks; None where they are too few."""

    mean: float | None
    deviation: float | None

    def times(self, factor: float) -> "Summary":
        """The same in another unit."""
        return Summary(*(None if x is None else factor * x for x in self))


@dataclasses.dataclass(frozen=True)
class Results:
    """Results of each network, by variant of the experiment: see `crime.evaluate`."""

    variants: dict[str, list[dict[str, Any]]]

    def values(self, variant: str, method: str, name: str) -> np.ndarray:
        """One quantity for each network, [seeds] or [seeds, length scales].

        Networks for which the method was left out are not among them.
        """
        found = (result["methods"].get(method) for result in self.variants[variant])
        return np.array([metrics[name] for metrics in found if metrics is not None], float)

    def mean_and_sd(self, variant: str, method: str, name: str) -> Summary:
        """Mean and standard deviation over the networks, None where they are too few."""
        values = self.values(variant, method, name)
        mean = float(values.mean()) if len(values) > 0 else None
        return Summary(mean, float(values.std(ddof=1)) if len(values) > 1 else None)


# A column is identified by what it is about and "mean" or "sd"; both stand side by side.
Column = str | tuple[str, ...]


def columns_of(of: Column, summary: Sequence[Any]) -> dict[Column, Any]:
    """Mean and standard deviation as two columns."""
    of = (of,) if isinstance(of, str) else of
    return dict(zip(((*of, "mean"), (*of, "sd")), summary, strict=True))


def names_of(row: dict[Column, Any]) -> dict[Column, str]:
    """Names of the columns of `columns_of`: "a, b" of the mean, and "a, sd" beside it."""
    pairs = (column for column in row if isinstance(column, tuple))
    return {x: ", ".join((*x[:-2], "sd") if x[-1] == "sd" else x[:-1]) for x in pairs}


def maximum_rows(results: Results) -> Iterator[dict[Column, Any]]:
    """Rows of Table 1."""
    for method, numbers in PUBLISHED["maximum"].items():
        row: dict[Column, Any] = {"method": method} | columns_of("published", numbers)
        for variant in results.variants:
            row |= columns_of(variant, results.mean_and_sd(variant, method, "maximum"))
            row[f"{variant}: floor"] = results.mean_and_sd(variant, method, "floor").mean
        yield row


def score_rows(results: Results, variants: list[str]) -> Iterator[dict[Column, Any]]:
    """Rows of Table 3."""
    scores = {"ECE (%)": ("ECE", 100), "NLL": (NLL, 1), "Brier": ("Brier", 1)}
    for method in (*GLOBAL, *LOCAL):
        row: dict[Column, Any] = {"method": method}
        for label, (name, factor) in scores.items():
            row |= columns_of((label, "published"), PUBLISHED[name.split("_")[0]][method])
            for variant in variants:
                found = results.mean_and_sd(variant, method, name).times(factor)
                row |= columns_of((label, variant), found)
        for variant in variants:
            for label, name in ((f"NLL, ε = {CLIPS[1]:g}", OTHER_NLL), ("infinite", "infinite")):
                row[f"{label}, {variant}"] = results.mean_and_sd(variant, method, name).mean
        yield row


class Comparison(NamedTuple):
    """Differences of two methods over the networks.

    Attributes:
        difference: mean difference.
        error: its standard error.
        better: number of negative differences.
        student: p-value.
        wilcoxon: p-value.
        verdict: one of `VERDICTS`.
    """

    difference: float
    error: float
    better: int
    student: float
    wilcoxon: float
    verdict: str


class ClaimRow(NamedTuple):
    """A `Comparison`, after what is compared."""

    variant: str
    local: str
    other: str
    difference: float
    error: float
    better: int
    student: float
    wilcoxon: float
    verdict: str

    @property
    def kind(self) -> tuple[str, str]:
        """What is compared with all other methods."""
        return self.variant, self.local


def comparison(differences: np.ndarray, pairs: int) -> Comparison:
    """Compares two methods, one of this many pairs."""
    num = len(differences)
    if not np.any(differences):  # of which the tests know nothing
        return Comparison(0.0, 0.0, 0, 1.0, 1.0, "undecided")
    mean, error = differences.mean(), differences.std(ddof=1) / np.sqrt(num)
    student = scipy.stats.ttest_1samp(differences, 0).pvalue
    wilcoxon = scipy.stats.wilcoxon(differences).pvalue
    signed_ranks = np.sign(differences) @ scipy.stats.rankdata(np.abs(differences))
    is_clear = pairs * max(student, wilcoxon) <= LEVEL and mean * signed_ranks > 0
    verdict = ("confirmed" if mean < 0 else "refuted") if is_clear else "undecided"
    better = int(np.sum(differences < 0))
    numbers = float(mean), float(error), better, float(student), float(wilcoxon)
    return Comparison(*numbers, verdict)


def claim_rows(results: Results) -> list[ClaimRow]:
    """Rows of the table of claims."""
    pairs = list(itertools.product(LOCAL, (*GLOBAL, *GROUP_WISE)))
    rows = []
    for variant, (ours, other) in itertools.product(results.variants, pairs):
        one, two = (results.values(variant, method, "maximum") for method in (ours, other))
        rows.append(ClaimRow(variant, ours, other, *comparison(one - two, len(pairs))))
    return rows


def summary(rows: list[ClaimRow]) -> str:
    """How many of the comparisons with global methods have which verdict."""
    kinds = dict.fromkeys(row.kind for row in rows)
    lines = []
    for kind in kinds:
        chosen = [row for row in rows if row.kind == kind and row.other in GLOBAL]
        counts = {x: sum(row.verdict == x for row in chosen) for x in VERDICTS}
        found = ", ".join(f"{count} {x}" for x, count in counts.items())
        lines.append(f"- {', '.join(kind)}, against the {len(chosen)} global methods: {found}")
    return "\n".join(lines)


def curve_rows(results: Results) -> Iterator[dict[str, Any]]:
    """Rows of the table of curves."""
    embeddings = zip(LENGTH_SCALES, LOCAL, strict=True)
    kinds = itertools.product(list(results.variants)[:2], ("MLCE", "mean LCE"), embeddings)
    for variant, quantity, (embedding, local) in kinds:
        name = f"{quantity} curve ({embedding})"
        ours = results.values(variant, local, name).mean(0)
        is_lower = np.array([ours < results.values(variant, x, name).mean(0) for x in GLOBAL])
        row: dict[str, Any] = {"variant": variant, "quantity": quantity, "LoRe": local}
        row |= dict(zip(GLOBAL, map(int, is_lower.sum(1)), strict=True))
        yield row | {"all": int(is_lower.all(0).sum())}


def write_tables(folder: Path, results: Results, redraws: int) -> None:
    """Writes Tables 1 and 3, and those of claims and curves."""
    seeds = len(next(iter(results.variants.values())))
    rows = list(maximum_rows(results))
    every = [result for found in results.variants.values() for result in found]
    groups = [np.array([x["groups"] for x in found]) for found in results.variants.values()]
    sizes = [", ".join(f"{x:.0f}" for x in sizes.mean(0)) for sizes in groups]
    note = note_of(
        __file__,
        "maximum",
        seeds=seeds,
        redraws=redraws,
        sizes=", or ".join(dict.fromkeys(sizes)),
        missing=sum(result["groups without temperature"] for result in every),
        of=sum(len(result["groups"]) for result in every),
    )
    write_table(folder, "table_1", rows, note, names=names_of(rows[0]))
    variants = list(results.variants)[:2]  # groups have no part in these
    note = note_of(__file__, "scores", seeds=seeds, clip=CLIPS[0], other=CLIPS[1])
    scores = list(score_rows(results, variants))
    write_table(folder, "table_3", scores, note, names=names_of(scores[0]))
    rows = claim_rows(results)
    pairs = len(LOCAL) * len((*GLOBAL, *GROUP_WISE))
    note = note_of(__file__, "claims", seeds=seeds, pairs=pairs, level=LEVEL) + "\n" + summary(rows)
    write_table(folder, "claims", rows, note)
    note = note_of(__file__, "curves", seeds=seeds)
    write_table(folder, "curves", curve_rows(results), note)


def write_training(folder: Path, networks: dict[str, np.ndarray]) -> None:
    """Scores on the validation part while the networks are trained, without recalibration."""
    names = ("accuracy", "NLL", "Brier", "confidence")
    curves = {name: networks[name] for name in names}
    rows = []
    for epoch in TABLE_EPOCHS:
        if epoch <= len(curves["accuracy"]):
            at = {name: curve[epoch - 1].astype(float) for name, curve in curves.items()}
            row: dict[str, Any] = {"epoch": epoch}
            row |= {name: float(values.mean()) for name, values in at.items()}
            excess = float(np.mean(at["confidence"] - at["accuracy"]))
            rows.append(row | {"confidence - accuracy": excess})
    best = networks["best epoch"]
    note = (
        f"Means over {len(best)} networks on the validation part, which is the calibration part. "
        "The validation accuracy is largest in epoch "
        f"{np.mean(best):.0f} on average (median {np.median(best):.0f}, {best.min()} to "
        f"{best.max()}), after which training is stopped in the variant of this name. Published "
        "without recalibration: ECE 0.151, NLL 0.96, Brier score 0.17."
    )
    write_table(folder, "training", rows, note)
