"""Tables of G24 §5.2 and App. B: risks and estimates of several estimators."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm  # comes with scikit-learn

from calibjax import risk
from experiments.harness.tables import write_table

Results = dict[tuple[str, str, str], dict[str, np.ndarray]]  # by network, notion, estimator

LEVEL = 0.05
# Folds share training data, which jackknife errors do not know. For means over F folds Nadeau and
# Bengio (2003) have errors √(1 + F · tested / trained) times as large.
INFLATION = 1.5
ZERO = "h = 0"
# G24 Tables 1, 2, 3 and 5: 100 √risk of LeNet-5, DenseNet-40, ResNetWide-32, ResNet-110 and
# ResNet-110 SD.
PUBLISHED = {
    ("cifar10", "top-label"): {
        "15 bins": (14.96, 6.14, 5.03, 5.4, 4.73),
        "bins": (14.96, 6.12, 5.03, 5.39, 4.72),
        "kde": (14.98, 13.7, 12.31, 7.46, 10.65),
        "kkr": (14.96, 6.13, 5.03, 5.39, 4.72),
        "ukkr": (14.96, 6.11, 5.03, 5.38, 4.72),
    },
    ("cifar100", "top-label"): {
        "15 bins": (18.51, 20.66, 18.40, 18.67, 17.18),
        "bins": (18.50, 20.43, 18.24, 18.61, 17.11),
        "kde": (18.50, 23.74, 23.28, 19.69, 18.21),
        "kkr": (18.50, 20.52, 18.29, 18.59, 17.11),
        "ukkr": (18.50, 20.51, 18.28, 18.61, 17.12),
    },
    ("cifar10", "canonical"): {
        "kde": (13.53, 5.13, 4.22, 4.46, 3.89),
        "kkr": (13.53, 5.13, 4.22, 4.47, 3.89),
        "ukkr": (13.53, 5.13, 4.22, 4.47, 3.89),
    },
    ("cifar100", "canonical"): {
        "kde": (8.38, 5.61, 4.98, 5.14, 4.79),
        "kkr": (8.36, 5.56, 5.00, 5.16, 4.80),
        "ukkr": (8.35, 5.56, 5.01, 5.16, 4.80),
    },
}
TOP_LABEL = ("15 bins", "bins", "kde", "kkr", "ukkr")


class Claim(NamedTuple):
    """A finding of the paper: in all pairs the first estimator has the smaller risk.

    Attributes:
        text: what is said.
        data, notion: what it is about; "" for all.
        pairs: of estimators.
        kind: "better", "not worse" or "equal".
    """

    text: str
    data: str
    notion: str
    pairs: tuple[tuple[str, str], ...]
    kind: str = "better"


def _first(name: str, others: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((name, other) for other in others if other != name)


CLAIMS = (
    Claim(
        "kde is the worst, top-label (Tables 1 and 2)",
        "",
        "top-label",
        tuple((other, "kde") for other in TOP_LABEL if other != "kde"),
    ),
    Claim(
        "ukkr is better than or equal to all, top-label on CIFAR-10 (Table 1)",
        "cifar10_",
        "top-label",
        _first("ukkr", TOP_LABEL),
        "not worse",
    ),
    Claim(
        "optimised bins are the best, top-label on CIFAR-100 (§5.2)",
        "cifar100_",
        "top-label",
        _first("bins", TOP_LABEL),
    ),
    Claim(
        "no difference, canonical on CIFAR-10 (Table 5)",
        "cifar10_",
        "canonical",
        tuple(itertools.combinations(("kde", "kkr", "ukkr"), 2)),
        "equal",
    ),
    Claim(
        "kde is the best (sometimes), canonical on CIFAR-100 (Table 3)",
        "cifar100_",
        "canonical",
        _first("kde", ("kkr", "ukkr")),
    ),
    Claim("ukkr is better than kkr, canonical (§5.2)", "", "canonical", (("ukkr", "kkr"),)),
)


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
    difference = jax.jit(risk.risk_difference)  # one compilation for each number of samples

    def validation(found: dict[str, np.ndarray]) -> risk.CrossValidation:
        losses, values = found["losses"][None], found["test_values"][:, None]
        return risk.CrossValidation(
            jnp.zeros(1), jnp.asarray(found["folds"]), jnp.asarray(losses), jnp.asarray(values)
        )

    pairs = {}
    for first, second in itertools.permutations(results, 2):
        if first[:2] == second[:2]:
            found = difference(validation(results[first]), validation(results[second]))
            values = float(found.difference), float(found.standard_error)
            pairs[*first, second[2]] = Comparison(*values)
    return pairs


def critical_value(pairs: dict[Any, Comparison]) -> float:
    """What |z| has to be above, two-sided, with Bonferroni's correction for all comparisons."""
    return float(norm.isf(LEVEL / 2 / max(1, len(pairs) // 2)))


def selected(found: dict[str, np.ndarray]) -> tuple[float, bool]:
    """The hyperparameter of smallest risk, and whether it is at the edge of its grid."""
    best = int(found["risks"].mean(0).argmin())
    is_edge = found["grid"].size > 1 and best in (0, found["grid"].size - 1)
    return float(found["grid"][best]), is_edge


def estimator_rows(results: Results) -> Iterator[list[Any]]:
    """Rows of the main table."""
    for (network, notion, name), found in results.items():
        value, is_edge = selected(found)
        best = int(found["risks"].mean(0).argmin())
        risks = found["risks"][:, best]
        row = [network, notion, name, f"{value:.3g}{' (edge)' if is_edge else ''}"]
        error = 100 * np.sqrt(risks).std(ddof=1) / np.sqrt(len(risks))
        row += [f"{100 * np.sqrt(risks.mean()):.3f}", f"{error:.2g}"]
        published = PUBLISHED.get((network.split("_")[0], notion), {}).get(name)
        row += [f"{min(published[1:])}-{max(published[1:])}" if published else None]
        if name == ZERO:
            yield [network, notion, name, None, *row[4:7], *[None] * 6]
            continue
        scalars = ("estimate", "standard_error", "sampling_error", "root", "root_standard_error")
        factors = (1e4, 1e4, 1e4, 100, 100)
        row += [float(found[x]) * factor for x, factor in zip(scalars, factors, strict=True)]
        yield [*row, float(found["seconds"])]


ESTIMATORS_NOTE = """
In form Tables 1, 2, 3 and 5 and Fig. 2 to 4 of G24. "100 √risk": root of the mean risk over the
held out folds, at the selected hyperparameter; se: standard error over the 5 folds of the roots
(the paper does not say of what). "Published": range over the paper's networks except for LeNet-5,
*other networks* than ours. "(edge)": the selected hyperparameter is at an end of its grid. h = 0
is what says that nothing is miscalibrated.

Estimates of the squared error, times 10⁴, and of its root with its sign, times 100, on the 20 % of
the samples that are in no fold; ± is the standard error over the folds as in the paper, which is
what comes from fitting only, "sampling" that over the test samples. Values that are no numbers, in
all cells and at all grid points: {num_nan}. Seconds with compilation, on two cores that were shared
with other programs.
{exactness}
"""
DIFFERENCES_NOTE = """
Risk of the estimator of the row minus that of the column, times 10⁴, ± its standard error
(jackknife, from the same samples in the same folds). \\*: significant at the level {level} with
Bonferroni's correction for all {num} comparisons, |z| > {critical:.2f}. What both choices have in
common, such as the noise of the labels, cancels: the standard error of a risk over the folds is
{ratio:.0f} times that of a difference, in the median of those without h = 0. That the smallest risk
of a grid was taken is not corrected for.

The errors take folds to be independent, but these share training data: in simulations of bins and
ukkr (see `calibjax.risk.risk_difference`) z had standard deviations of 1.0 to 1.1 over data sets,
and up to 1.4 about the difference of the functions that were fitted. \\*\\*: significant also with
errors {inflation} times as large (the factor of Nadeau and Bengio, 2003). Of the {num} comparisons
{found} are significant, {robust} with the larger errors; without h = 0 {found_without} and
{robust_without} of {num_without}.
{exactness}
"""
WINNERS_NOTE = """
Smallest risk, and who is not significantly worse; who is significantly better than h = 0, that is,
finds any miscalibration; \\*\\*: with errors {inflation} times as large too. See `differences.md`.
"""
CLAIMS_NOTE = """
Findings of G24 on our networks: comparisons that are significantly for and against it (any that
differ are against "no difference"), and those that are so with standard errors {inflation} times as
large too, since the errors may be too small (`differences.md`); "sign": comparisons where the
difference at least has the sign of the claim. One rule for all: confirmed if all comparisons are
for it, contradicted if one is against it, each with the larger errors; else doubtful if one is
against it with the errors as they are; else not contradicted, which is no support.
"""


def difference_rows(
    results: Results, pairs: dict[tuple[str, str, str, str], Comparison], names: list[str]
) -> Iterator[list[Any]]:
    """Differences from the estimators before it, for each estimator."""
    critical = critical_value(pairs)
    for network, notion, name in results:
        row: list[Any] = [network, notion, name]
        for other in names[:-1]:
            found = pairs.get((network, notion, name, other))
            if found is None or names.index(other) > names.index(name):
                row.append(None)
                continue
            row.append(_difference(found, critical))
        if name != ZERO:
            yield row


def winner_rows(
    results: Results, pairs: dict[tuple[str, str, str, str], Comparison]
) -> Iterator[list[Any]]:
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
        yield [*key, best, ", ".join(close) or "none", ", ".join(detecting) or "none"]


def claim_rows(pairs: dict[tuple[str, str, str, str], Comparison]) -> Iterator[list[Any]]:
    """What is found of the paper's claims."""
    critical = critical_value(pairs)
    for claim in CLAIMS:
        scores = [
            found.z
            for (network, notion, *names), found in pairs.items()
            if network.startswith(claim.data)
            and notion.startswith(claim.notion)
            and tuple(names) in claim.pairs
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
        yield [claim.text, z.size, support[0], against[0], support[1], against[1], sign, verdict]


WIDER_NOTE = """
The same with grids that go on to smaller penalties, since the best penalties are often at the ends
of those of App. B: hyperparameter, risk (times 10⁴, its difference from that on the grid of App. B
and that of ukkr from kkr, ± standard errors), and estimate (times 10⁴). \\*: significant with
Bonferroni's correction for the {num} comparisons of ukkr with kkr, \\*\\*: with errors {inflation}
times as large too. That risks hardly differ does not say that the estimates agree: the risk is
about h(p, q) of two predictions, the estimate about h(p, p), which for ukkr is the square of what
was fitted, its noise included.

{exactness}
With smaller penalties it would be this that regularises: grids go on for nine more steps, or as
long as penalties are not below it ("edge" may be that limit). Where kkr is missing its grid of
App. B ends there or below already, and stands for it.
"""


def wider_rows(results: Results) -> Iterator[list[Any]]:
    """Rows of the table of wider grids."""
    chosen = {key: x for key, x in results.items() if key[2].split(",")[0] in ("kkr", "ukkr")}
    pairs = compare(chosen)
    kkr = {key[:2]: key[2] for key in chosen if key[2].startswith("kkr")}  # the wider, if there
    compared = {
        key: found for key, found in pairs.items() if key[2:] == ("ukkr, wider", kkr[key[:2]])
    }
    critical = critical_value({**compared, **{key[::-1]: x for key, x in compared.items()}})
    for network, notion, name in results:
        if not name.endswith("wider"):
            continue
        found = results[network, notion, name]
        value, is_edge = selected(found)
        before = pairs[network, notion, name, name.split(",")[0]]
        row = [network, notion, name, f"{value:.3g}{' (edge)' if is_edge else ''}"]
        row += [f"{100 * np.sqrt(found['risks'].mean(0).min()):.3f}", _difference(before, np.inf)]
        other = compared.get((network, notion, name, kkr[network, notion]))
        row += [_difference(other, critical) if other else None]
        yield [*row, 1e4 * float(found["estimate"]), 1e4 * float(found["standard_error"])]


def write_wider_grids(folder: Path, results: Results, exactness: str) -> None:
    """Writes the table of kernel ridge regression with wider grids."""
    header = ["network", "notion", "estimator", "hyperparameter", "100 √risk"]
    header += ["minus App. B", "ukkr minus kkr", "estimate", "±"]
    rows = list(wider_rows(results))
    num = sum(row[6] is not None for row in rows)
    note = WIDER_NOTE.format(num=num, inflation=INFLATION, exactness=exactness)
    write_table(folder, "wider_grids", header, rows, note)


def _difference(found: Comparison, critical: float) -> str:
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
    header = ["network", "notion", "estimator", "hyperparameter", "100 √risk", "se", "published"]
    header += ["estimate", "±", "sampling", "root", "±", "seconds"]
    num_nan = sum(int(found["num_nan"]) for found in results.values())
    note = ESTIMATORS_NOTE.format(num_nan=num_nan, exactness=exactness)
    write_table(folder, "estimators", header, estimator_rows(results), note)
    note = _differences_note(results, pairs, exactness)
    header = ["network", "notion", "estimator", *(f"minus {name}" for name in names[:-1])]
    write_table(folder, "differences", header, difference_rows(results, pairs, names), note)
    header = ["network", "notion", "smallest risk", "not worse", "better than h = 0"]
    note = WINNERS_NOTE.format(inflation=INFLATION)
    write_table(folder, "winners", header, winner_rows(results, pairs), note)
    header = ["claim", "comparisons", "for", "against"]
    header += [f"{x}, {INFLATION} se" for x in ("for", "against")] + ["sign", "verdict"]
    note = CLAIMS_NOTE.format(inflation=INFLATION)
    write_table(folder, "claims", header, claim_rows(pairs), note)


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
    return DIFFERENCES_NOTE.format(
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
