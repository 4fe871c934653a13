"""Rows of the tables of `experiments.chance`."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from experiments.chance.comparisons import (
    ALPHA,
    MEASURES,
    Compared,
    Ranges,
    differences,
    holm,
    pairs_of,
)

QUANTILE = 1.959964  # of the standard normal distribution, two-sided at level 0.05


class Found(NamedTuple):
    """What was found with n samples of one network, or of all networks.

    Attributes:
        family: what is compared.
        group: the network whose methods are compared, or "all".
        models: names of the methods, or of the networks.
        n: number of samples.
        compared: with leading axis: the disjoint data sets of n samples.
        ranges: of all models for the first data set, [M, 4] each, or None.
    """

    family: str
    group: str
    models: tuple[str, ...]
    n: int
    compared: Compared
    ranges: Ranges | None


def share_rows(found: Iterable[Found]) -> list[dict[str, Any]]:
    """Shares of the pairs that are decided, for each family, measure and n."""
    gathered: dict[tuple[str, int], list[Found]] = {}
    for one in found:
        gathered.setdefault((one.family, one.n), []).append(one)
    rows = []
    for (family, n), several in gathered.items():
        for index, measure in enumerate(MEASURES):
            parts = [_decisions(one, index) for one in several]
            row = {"family": family, "n": n, "measure": measure}
            row["pairs"] = sum(part["pairs"] for part in parts)
            row["data sets"] = max(len(one.compared.estimates) for one in several)
            for name in ("decided", "after Holm", "numbers alone", "half-width"):
                values = np.concatenate([part[name].ravel() for part in parts])
                row[name] = float(np.median(values) if name == "half-width" else values.mean())
            for name in ("neither beyond its range", "one beyond", "both beyond"):
                values = [part[name] for part in parts if name in part]
                row[name] = float(np.concatenate(values).mean()) if values else None
            rows.append(row)
    return rows


def _decisions(one: Found, index: int) -> dict[str, Any]:
    """Decisions about the pairs of one network, or of all networks, by one measure."""
    own = Compared(*(np.asarray(x)[:, index] for x in one.compared))
    _, errors, pvalues = differences(own)
    row: dict[str, Any] = {
        "pairs": pvalues.shape[-1],
        "decided": pvalues <= ALPHA,
        "after Holm": holm(pvalues) <= ALPHA,
        "numbers alone": differences(own, numbers_alone=True)[2] <= ALPHA,
        "half-width": QUANTILE * errors,
    }
    if one.ranges is not None:
        first, second = pairs_of(len(one.models))
        beyond = (one.ranges.pvalue[:, index] <= ALPHA).astype(int)
        number = beyond[first] + beyond[second]
        row["neither beyond its range"], row["one beyond"], row["both beyond"] = (
            number == k for k in range(3)
        )
    return row


def model_rows(found: Iterable[Found]) -> list[dict[str, Any]]:
    """Estimate, interval, range of a calibrated model and exact p-value of each model."""
    rows = []
    for one in found:
        if one.ranges is None:
            continue
        for k, model in enumerate(one.models):
            for i, measure in enumerate(MEASURES):
                first = Compared(*(np.asarray(x)[0, i] for x in one.compared))
                center = first.estimates[k] - first.biases[k]
                width = QUANTILE * np.sqrt(max(first.variances[k, k], first.plain[k, k]))
                row = {"family": one.family, "network": one.group, "model": model, "n": one.n}
                row |= {"measure": measure, "estimate": _short(first.estimates[k])}
                row |= {"low": _short(center - width), "high": _short(center + width)}
                row |= {f"calibrated {x}": _short(getattr(one.ranges, x)[k, i]) for x in _PLACES}
                rows.append(row | {"exact p": _short(one.ranges.pvalue[k, i])})
    return rows


_PLACES = ("low", "mean", "high")


def pair_rows(found: Iterable[Found]) -> list[dict[str, Any]]:
    """Difference and adjusted p-value of each pair by each measure, where n is largest."""
    rows = []
    for one in found:
        if one.ranges is None:
            continue
        d, _, pvalues = differences(Compared(*(np.asarray(x)[0] for x in one.compared)))
        adjusted = holm(pvalues)
        for p, (a, b) in enumerate(zip(*pairs_of(len(one.models)), strict=True)):
            row = {"network": one.group, "A": one.models[a], "B": one.models[b], "n": one.n}
            for i, measure in enumerate(MEASURES):
                row |= {
                    f"{measure}, A - B": _short(d[i, p]),
                    f"{measure}, p": _short(adjusted[i, p]),
                }
            rows.append(row)
    return rows


def published_within(one: Found, published: dict[str, float]) -> tuple[int, int]:
    """Pairs of networks whose published SKCE differ by less than the half-width, and all pairs.

    Args:
        one: the comparison of all networks.
        published: unbiased SKCE by network; the others are left out.
    """
    index = MEASURES.index("SKCE")
    own = Compared(*(np.asarray(x)[0, index] for x in one.compared))
    errors, pairs = differences(own)[1], zip(*pairs_of(len(one.models)), strict=True)
    values = [published.get(model, np.nan) for model in one.models]
    d = np.array([values[a] - values[b] for a, b in pairs])
    is_known = np.isfinite(d)
    return int(np.sum(np.abs(d[is_known]) < QUANTILE * errors[is_known])), int(is_known.sum())


def _short(value: Any) -> float:
    """Three digits: as many as these numbers have, in a file that stays small."""
    return float(f"{value:.3g}")
