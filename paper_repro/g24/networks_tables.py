"""Tables of G24 §5.2 and App. B: risks and estimates of several estimators."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm  # comes with scikit-learn

from experiments.harness.tables import note_of, published_rows, write_table

Results = dict[tuple[str, str, str], dict[str, np.ndarray]]  # by network, notion, estimator

LEVEL = 0.05
# Folds share training data, which jackknife errors do not know. For means over F folds Nadeau and
# Bengio (2003) have errors √(1 + F · tested / trained) times as large.
INFLATION = 1.5
ZERO = "h = 0"
TOP_LABEL = ("15 bins", "bins", "kde", "kkr", "ukkr")


class Claim(NamedTuple):
    """A finding of the paper: in all pairs the first estimator has the smaller risk.

    Attributes:
        text: what is said.
        data, notion: what it is about; "" for all.
        kind: "better", "not worse" or "equal".
        pairs: of estimators, "first < second", with semicolons between them.
    """

    text: str
    data: str
    notion: str
    kind: str
    pairs: str


CLAIMS = [Claim(**row) for row in published_rows(__file__, "claims")]


class Comparison(NamedTuple):
    """Difference of the risks of two estimators, with its standard error."""

    difference: float
    standard_error: float

    @property
    def z(self) -> float:
        """0 where both chose the same function."""
        return self.difference / self.standard_error if self.standard_error > 0 else 0.0


def compare(results: Results) -> dict[tuple[str, str, str, str], Comparison]:
    """All pairs of estimators of each network and notion, in both orders."""
    return {
        (*first, second[2]): risk_difference(results[first], results[second])
        for first, second in itertools.permutations(results, 2)
        if first[:2] == second[:2]
    }


def risk_difference(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> Comparison:
    """Mean over the folds of the differences of both risks, on the same folds.

    The standard error is √(Σ_f v_f) / F with the jackknife variance v_f of the difference in fold
    f, a U-statistic (Arvesen, 1969), from the differences of the mean losses of each sample.
    """
    losses, folds = first["losses"] - second["losses"], first["folds"]
    means, variances = [], []
    for fold in range(folds.max() + 1):
        own = losses[folds == fold].astype(np.float64)
        n = own.size
        means.append(own.mean())
        variances.append(4 * (n - 1) / n * np.sum((own - own.mean()) ** 2) / (n - 2) ** 2)
    return Comparison(float(np.mean(means)), float(np.sqrt(np.sum(variances)) / len(means)))


def critical_value(pairs: dict[Any, Comparison]) -> float:
    """What |z| has to be above, two-sided, with Bonferroni's correction for all comparisons."""
    return float(norm.isf(LEVEL / 2 / max(1, len(pairs) // 2)))


def selected(found: dict[str, np.ndarray]) -> tuple[float, bool]:
    """The hyperparameter of smallest risk, and whether it is at the edge of its grid."""
    best = int(found["risks"].mean(0).argmin())
    is_edge = found["grid"].size > 1 and best in (0, found["grid"].size - 1)
    return float(found["grid"][best]), is_edge


def root_risk(found: dict[str, np.ndarray]) -> tuple[float, float]:
    """100 √risk at the selected hyperparameter, and its standard error over the folds."""
    risks = found["risks"][:, found["risks"].mean(0).argmin()]
    error = 100 * np.sqrt(risks).std(ddof=1) / np.sqrt(len(risks))
    return float(100 * np.sqrt(risks.mean())), float(error)


FACTORS = {
    "estimate": 1e4,
    "standard_error": 1e4,
    "sampling_error": 1e4,
    "root": 100,
    "root_standard_error": 100,
    "seconds": 1,
}


def estimator_rows(results: Results) -> Iterator[tuple]:
    """Rows of the main table; h = 0 has no estimate."""
    for (network, notion, name), found in results.items():
        root, error = root_risk(found)
        values = (f"{root:.3f}", f"{error:.2g}")
        rest = [float(found[x]) * factor if name != ZERO else None for x, factor in FACTORS.items()]
        chosen = None if name == ZERO else selected_text(found)
        yield (network, notion, name, chosen, *values, *rest)


def selected_text(found: dict[str, np.ndarray]) -> str:
    """The hyperparameter of smallest risk; "(edge)" says that it is at an end of its grid."""
    value, is_edge = selected(found)
    return f"{value:.3g}{' (edge)' if is_edge else ''}"


def difference_rows(
    results: Results, pairs: dict[tuple[str, str, str, str], Comparison], names: list[str]
) -> Iterator[dict[str, Any]]:
    """Differences from the estimators before it, for each estimator."""
    critical = critical_value(pairs)
    for network, notion, name in results:
        row: dict[str, Any] = {"network": network, "notion": notion, "estimator": name}
        for other in names[:-1]:
            found = pairs.get((network, notion, name, other))
            is_before = found is not None and names.index(other) <= names.index(name)
            row[f"minus {other}"] = difference_text(found, critical) if is_before else None
        if name != ZERO:
            yield row


def winner_rows(
    results: Results, pairs: dict[tuple[str, str, str, str], Comparison]
) -> Iterator[tuple]:
    """The best estimators of each network and notion."""
    critical = critical_value(pairs)
    for key in dict.fromkeys(key[:2] for key in results):
        names = [name for *place, name in results if tuple(place) == key and name != ZERO]
        if not names:
            continue
        risks = {name: results[*key, name]["risks"].mean(0).min() for name in names}
        best = min(risks, key=risks.get)
        close = [x for x in names if x != best and pairs[*key, x, best].z <= critical]
        against_zero = {x: pairs[*key, x, ZERO] for x in names}
        detecting = [
            f"{x}{_stars(z, critical)}" for x, z in against_zero.items() if z.z < -critical
        ]
        texts = (", ".join(x) or "none" for x in (close, detecting))
        yield (*key, best, *texts)


def claim_rows(pairs: dict[tuple[str, str, str, str], Comparison]) -> Iterator[tuple]:
    """What is found of the paper's claims."""
    critical = critical_value(pairs)
    for claim in CLAIMS:
        scores = [
            found.z
            for (network, notion, *names), found in pairs.items()
            if network.startswith(claim.data)
            and notion.startswith(claim.notion)
            and " < ".join(names) in claim.pairs.split("; ")
        ]
        if not scores:
            continue
        z = np.array(scores)
        if claim.kind == "equal":
            z = np.abs(z)
        support, against = (
            [int(np.sum(sign * z > factor * critical)) for factor in (1, INFLATION)]
            for sign in (-1, 1)
        )
        if support[1] == z.size:
            verdict = "confirmed"
        elif against[1]:
            verdict = "contradicted"
        else:
            verdict = "doubtful" if against[0] else "not contradicted"
        sign = int(np.sum(z < 0)) if claim.kind != "equal" else None
        counts = support[0], against[0], support[1], against[1]
        yield (claim.text, z.size, *counts, sign, verdict)


def difference_text(found: Comparison, critical: float) -> str:
    """A difference with its standard error, and stars where it is significant."""
    text = f"{1e4 * found.difference:.3g} ± {1e4 * found.standard_error:.2g}"
    return text + _stars(found, critical)


def _stars(found: Comparison, critical: float) -> str:
    """One if the difference is significant, two if it is so with larger errors."""
    return "\\*" * _num_exceeded(found, critical)


def _num_exceeded(found: Comparison, critical: float) -> int:
    return sum(abs(found.z) > factor * critical for factor in (1, INFLATION))


def write_tables(folder: Path, results: Results, exactness: str) -> None:
    """Writes the tables of estimators, of differences, winners and claims."""
    pairs = compare(results)
    names = sorted({key[2] for key in results}, key=[ZERO, *TOP_LABEL].index)
    num_nan = sum(int(found["num_nan"]) for found in results.values())
    note = note_of(__file__, "estimators", num_nan=num_nan, exactness=exactness)
    write_table(folder, "estimators", estimator_rows(results), note)
    note = _differences_note(results, pairs, exactness)
    columns = ("network", "notion", "estimator", *(f"minus {name}" for name in names[:-1]))
    rows = difference_rows(results, pairs, names)  # of which h = 0 alone has none
    write_table(folder, "differences", rows, note, names=dict(zip(columns, columns, strict=True)))
    note = note_of(__file__, "winners", inflation=INFLATION)
    write_table(folder, "winners", winner_rows(results, pairs), note)
    note = note_of(__file__, "claims", inflation=INFLATION)
    write_table(folder, "claims", claim_rows(pairs), note)


def _differences_note(
    results: Results, pairs: dict[tuple[str, str, str, str], Comparison], exactness: str
) -> str:
    critical, without = critical_value(pairs), {x: z for x, z in pairs.items() if ZERO not in x}
    ratios = [_ratio(results[key[:3]], found) for key, found in without.items()]
    counts = {}
    for suffix, group in (("", pairs), ("_without", without)):
        exceeded = np.array([_num_exceeded(found, critical) for found in group.values()])
        counts[f"num{suffix}"] = exceeded.size // 2  # both orders are there
        counts[f"found{suffix}"] = np.sum(exceeded > 0) // 2
        counts[f"robust{suffix}"] = np.sum(exceeded > 1) // 2
    return note_of(
        __file__,
        "differences",
        level=LEVEL,
        critical=critical,
        ratio=np.median(ratios or [0]),
        inflation=INFLATION,
        exactness=exactness,
        **counts,
    )


def _ratio(found: dict[str, np.ndarray], comparison: Comparison) -> float:
    """Standard error of a risk over the folds by that of a difference; 0 for equal functions."""
    risks = found["risks"][:, found["risks"].mean(0).argmin()]
    error = risks.std(ddof=1) / np.sqrt(len(risks))
    return error / comparison.standard_error if comparison.standard_error > 0 else 0.0
