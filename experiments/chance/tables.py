"""Rows of the tables of `experiments.chance`."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from calibjax.hypothesis_tests import holm
from experiments.chance.comparisons import ALPHA, QUANTILE, Compared, differences, pairs_of
from experiments.chance.measures import MEASURES


class Found(NamedTuple):
    """What was found with n samples of one network, or of all networks.

    Attributes:
        family: what is compared.
        group: the network whose methods are compared, or "all".
        models: names of the methods, or of the networks.
        n: number of samples.
        compared: of each of some disjoint data sets of n samples.
        is_largest: whether no larger n was looked at.
    """

    family: str
    group: str
    models: tuple[str, ...]
    n: int
    compared: list[Compared]
    is_largest: bool


def share_rows(found: Iterable[Found]) -> list[dict[str, Any]]:
    """Shares of the pairs that are decided, for each family, n and measure."""
    gathered: dict[tuple[str, int], list[Found]] = {}
    for one in found:
        gathered.setdefault((one.family, one.n), []).append(one)
    rows = []
    for (family, n), several in gathered.items():
        parts = [_decisions(compared) for one in several for compared in one.compared]
        number = sum(len(pairs_of(len(one.models))[0]) for one in several)
        for i, measure in enumerate(MEASURES):
            own = {name: np.concatenate([part[name][i] for part in parts]) for name in parts[0]}
            widths = own.pop("widths")
            row = {"family": family, "n": n, "measure": measure, "pairs": number}
            row |= {name: float(values.mean()) for name, values in own.items()}
            row["within chance below"] = float(np.median(widths))
            rows.append(row | {"for 9 of 10 pairs": float(np.quantile(widths, 0.9))})
    return rows


def _decisions(compared: Compared) -> dict[str, np.ndarray]:
    """Decisions about the pairs of one network, or of all networks, [4, P] each."""
    pairs = differences(compared)
    first, second = pairs_of(compared.estimates.shape[1])
    is_in = compared.pvalues > ALPHA
    return {
        "decided": np.asarray(holm(pairs.pvalue)) <= ALPHA,
        "decided alone": pairs.pvalue <= ALPHA,
        "nothing to rank": is_in[:, first] & is_in[:, second],
        "widths": QUANTILE * pairs.error,
    }


def model_rows(found: Iterable[Found]) -> list[dict[str, Any]]:
    """Estimate, standard error, range of a calibrated model and exact p-value of each model."""
    rows = []
    for one in found:
        first = one.compared[0]
        for k, model in enumerate(one.models):
            row = {"family": one.family, "network": one.group, "model": model, "n": one.n}
            for i, measure in enumerate(MEASURES):
                row[measure] = _short(first.estimates[i, k])
                row[f"{measure}, s.e."] = _short(np.sqrt(first.variances[i, k, k]))
                row[f"{measure}, low"] = _short(first.low[i, k])
                row[f"{measure}, high"] = _short(first.high[i, k])
                row[f"{measure}, p"] = _short(first.pvalues[i, k])
            rows.append(row)
    return rows


def pair_rows(found: Iterable[Found]) -> list[dict[str, Any]]:
    """Difference and adjusted p-value of each pair by each measure, where n is largest."""
    rows = []
    for one in found:
        if not one.is_largest:
            continue
        pairs = differences(one.compared[0])
        adjusted = np.asarray(holm(pairs.pvalue))
        for p, (a, b) in enumerate(zip(*pairs_of(len(one.models)), strict=True)):
            row = {"family": one.family, "network": one.group, "n": one.n}
            row |= {"A": one.models[a], "B": one.models[b]}
            for i, measure in enumerate(MEASURES):
                row[f"{measure}, A - B"] = _short(pairs.difference[i, p])
                row[f"{measure}, p"] = _short(adjusted[i, p])
            rows.append(row)
    return rows


def published_within(one: Found, published: dict[str, float]) -> tuple[int, int]:
    """Pairs of networks whose published SKCE differ by less than the half-width, and all pairs.

    Args:
        one: the comparison of all networks.
        published: unbiased SKCE by network; the others are left out.
    """
    error = differences(one.compared[0]).error[MEASURES.index("SKCE")]
    values = np.array([published.get(model, np.nan) for model in one.models])
    first, second = pairs_of(len(values))
    d = np.abs(values[first] - values[second])
    is_known = np.isfinite(d)
    return int(np.sum(d[is_known] < QUANTILE * error[is_known])), int(is_known.sum())


def _short(value: Any) -> float:
    """Three digits: as many as these numbers have, in a file that stays small."""
    return float(f"{value:.3g}")
