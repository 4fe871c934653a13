"""Tables of what is not in G24: debiased bins, and what its kernel density ratio lacks."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.harness import stand_in
from experiments.harness.tables import note_of, write_table
from paper_repro.g24.naive_density import LEAST_SUM
from paper_repro.g24.networks_tables import (
    Results,
    compare,
    difference_text,
    selected_text,
)
from paper_repro.g24.published import NETWORKS, PUBLISHED

# G24 Table 4, for 15 bins, bins, kkr and ukkr all together, and kde.
IMAGENET = {
    "DenseNet-161": (12.17, 12.31),
    "ResNet-152": (12.57, 12.77),
    "PNASNet-5": (10.63, 10.63),
}


class DebiasedRow(NamedTuple):
    """Risk and estimate of one kind of bins."""

    network: str
    estimator: str
    bins: str
    risk: str
    minus_plain: str | None
    estimate: float
    error: float


def debiased_rows(results: Results) -> Iterator[DebiasedRow]:
    """Rows of the table of debiased bins."""
    names = ("15 bins", "15 debiased bins", "bins", "debiased bins", "ukkr")
    chosen = {key: x for key, x in results.items() if key[1] == "top-label" and key[2] in names}
    pairs = compare(chosen)
    for network in dict.fromkeys(key[0] for key in chosen):
        for name in names:
            found = chosen[network, "top-label", name]
            plain = name.replace("debiased ", "")
            pair = pairs.get((network, "top-label", name, plain))
            yield DebiasedRow(
                network,
                name,
                selected_text(found) if name != "ukkr" else "",
                f"{100 * np.sqrt(found['risks'].mean(0).min()):.3f}",
                difference_text(pair) if pair else None,
                1e4 * float(found["estimate"]),
                1e4 * float(found["standard_error"]),
            )


class NaiveRow(NamedTuple):
    """Risks of the naive and of the stable ratio."""

    network: str
    saturated: float
    stable: float
    printed: float
    printed_missing: float
    expected: float
    clipped: float
    clipped_missing: float


NAIVE_NAMES = {
    "printed": "as printed",
    "printed_missing": "as printed: missing",
    "clipped_missing": "clipped: missing",
}


def naive_rows(
    stable: dict[str, dict[str, np.ndarray]], naive: dict[str, dict[str, np.ndarray]]
) -> Iterator[NaiveRow]:
    """Rows of the table of ratios, by name of the network."""
    for network, found in naive.items():
        best = found["risks"].mean(1).argmin(-1)  # of each of LEAST_SUM
        places = range(len(LEAST_SUM)), slice(None), best
        roots = [100 * np.sqrt(found["risks"][i].mean(0)[best[i]]) for i in places[0]]
        missing = [float(found["missing"][i].mean(0)[best[i]]) for i in places[0]]
        root = 100 * float(np.sqrt(stable[network]["risks"].mean(0).min()))
        expected = root / (1 - missing[0])
        yield NaiveRow(
            network,
            float(found["saturated"]),
            root,
            float(roots[0]),
            missing[0],
            expected,
            float(roots[1]),
            missing[1],
        )


class ImpliedRow(NamedTuple):
    """Published risks, and what would explain them."""

    data: str
    network: str
    smallest: float
    kde: float
    missing: float


def implied_rows() -> Iterator[ImpliedRow]:
    """Rows of the table of published risks of kde for the top label."""
    published = []
    for data in ("cifar10", "cifar100"):
        of = PUBLISHED[data, "top-label"]
        others = [numbers for name, numbers in of.items() if name != "kde"]
        for network, kde, *rest in zip(NETWORKS, of["kde"], *others, strict=True):
            published.append((data, network, min(rest), kde))
    published += [("ImageNet", network, *numbers) for network, numbers in IMAGENET.items()]
    for data, network, smallest, kde in published:
        yield ImpliedRow(data, network, smallest, kde, 1 - smallest / kde)


def write_tables(
    folder: Path,
    results: Results,
    stable: dict[str, dict[str, np.ndarray]],
    naive: dict[str, dict[str, np.ndarray]],
    power: float,
) -> None:
    """Writes the tables of debiased bins and of kernel density ratios."""
    names = {"minus_plain": "minus plain", "error": "±", "risk": "100 √risk"}
    write_table(
        folder, "debiased_bins", debiased_rows(results), note_of(__file__, "debiased"), names=names
    )
    note = note_of(__file__, "naive", power=power)
    rows = naive_rows(stable, naive)
    write_table(folder, "naive_density", rows, note, names=NAIVE_NAMES)
    if not stand_in.header():
        write_table(folder, "published_density", implied_rows(), note_of(__file__, "implied"))
