"""Tables and figures of G24 §5.2 and App. B: risks and estimates of several estimators."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from scipy.stats import norm  # comes with scikit-learn

from calibjax import plotting, risk
from paper_repro import cells

Results = dict[tuple[str, str, str], dict[str, np.ndarray]]  # by network, notion, estimator

LEVEL = 0.05
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
"""
DIFFERENCES_NOTE = """
Risk of the estimator of the row minus that of the column, times 10⁴, ± its standard error
(jackknife, from the same samples in the same folds). \\*: significant at the level {level} with
Bonferroni's correction for all {num} comparisons, |z| > {critical:.2f}. What both choices have in
common, such as the noise of the labels, cancels: the standard error of a risk over the folds is
{ratio:.0f} times that of a difference, in the median of those without h = 0. That the smallest risk
of a grid was taken is not corrected for.
"""
WINNERS_NOTE = """
Smallest risk, and who is not significantly worse; who is significantly better than h = 0, that is,
finds any miscalibration; see `differences.md`.
"""
CLAIMS_NOTE = """
Findings of G24 on our networks. "For" and "against": significant comparisons (see
`differences.md`); "sign": those where the difference at least has the sign of the claim. Confirmed:
all are significant; refuted: one is significant against it (or at all, for "no difference");
otherwise undecided, or, where the claim is that there is no difference or none in one direction,
not contradicted.
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
        detecting = [x for x in names if pairs[*key, x, ZERO].z < -critical]
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
        before, against = int(np.sum(z < -critical)), int(np.sum(z > critical))
        if against or (claim.kind == "equal" and before):
            verdict = "refuted"
        elif claim.kind == "better":
            verdict = "confirmed" if before == z.size else "undecided"
        else:
            verdict = "not contradicted"
        yield [claim.text, z.size, before, against, int(np.sum(z < 0)), verdict]


WIDER_NOTE = """
The same with grids that go on for nine more steps to smaller penalties, since the best penalties
are often at the ends of those of App. B: hyperparameter, risk (times 10⁴, its difference from that
on the grid of App. B and that of ukkr from kkr, ± standard errors), and estimate (times 10⁴). \\*:
significant with Bonferroni's correction for the {num} comparisons of ukkr with kkr. That risks
hardly differ does not say that the estimates agree: the risk is about h(p, q) of two predictions,
the estimate about h(p, p), which for ukkr is the square of what was fitted, its noise included.
"""


def wider_rows(results: Results) -> Iterator[list[Any]]:
    """Rows of the table of wider grids."""
    chosen = {key: x for key, x in results.items() if key[2].split(",")[0] in ("kkr", "ukkr")}
    pairs = compare(chosen)
    names = "ukkr, wider", "kkr, wider"
    compared = {key: found for key, found in pairs.items() if key[2:] == names}
    critical = critical_value({**compared, **{key[::-1]: x for key, x in compared.items()}})
    for network, notion, name in results:
        if not name.endswith("wider"):
            continue
        found = results[network, notion, name]
        value, is_edge = selected(found)
        before = pairs[network, notion, name, name.split(",")[0]]
        row = [network, notion, name, f"{value:.3g}{' (edge)' if is_edge else ''}"]
        row += [f"{100 * np.sqrt(found['risks'].mean(0).min()):.3f}", _difference(before, np.inf)]
        other = compared.get((network, notion, name, names[1]))
        row += [_difference(other, critical) if other else None]
        yield [*row, 1e4 * float(found["estimate"]), 1e4 * float(found["standard_error"])]


def write_wider_grids(folder: Path, results: Results) -> None:
    """Writes the table of kernel ridge regression with wider grids."""
    header = ["network", "notion", "estimator", "hyperparameter", "100 √risk"]
    header += ["minus App. B", "ukkr minus kkr", "estimate", "±"]
    rows = list(wider_rows(results))
    note = WIDER_NOTE.format(num=len(rows) // 2)
    cells.write_table(folder, "wider_grids", header, rows, note)


def _difference(found: Comparison, critical: float) -> str:
    star = "\\*" if abs(found.z) > critical else ""
    return f"{1e4 * found.difference:.3g} ± {1e4 * found.standard_error:.2g}{star}"


def write_tables(folder: Path, results: Results) -> None:
    """Writes the tables of estimators, of differences, winners and claims."""
    pairs = compare(results)
    names = sorted({key[2] for key in results}, key=[ZERO, *TOP_LABEL].index)
    header = ["network", "notion", "estimator", "hyperparameter", "100 √risk", "se", "published"]
    header += ["estimate", "±", "sampling", "root", "±", "seconds"]
    num_nan = sum(int(found["num_nan"]) for found in results.values())
    note = ESTIMATORS_NOTE.format(num_nan=num_nan)
    cells.write_table(folder, "estimators", header, estimator_rows(results), note)
    ratios = [_ratio(results[key[:3]], found) for key, found in pairs.items() if ZERO not in key]
    note = DIFFERENCES_NOTE.format(
        level=LEVEL,
        num=len(pairs) // 2,
        critical=critical_value(pairs),
        ratio=np.median(ratios or [0]),
    )
    header = ["network", "notion", "estimator", *(f"minus {name}" for name in names[:-1])]
    cells.write_table(folder, "differences", header, difference_rows(results, pairs, names), note)
    header = ["network", "notion", "smallest risk", "not worse", "better than h = 0"]
    cells.write_table(folder, "winners", header, winner_rows(results, pairs), WINNERS_NOTE)
    header = ["claim", "comparisons", "for", "against", "sign", "verdict"]
    cells.write_table(folder, "claims", header, claim_rows(pairs), CLAIMS_NOTE)


def _ratio(found: dict[str, np.ndarray], comparison: Comparison) -> float:
    """Standard error of a risk over the folds by that of a difference; 0 for equal functions."""
    risks = found["risks"][:, found["risks"].mean(0).argmin()]
    error = risks.std(ddof=1) / np.sqrt(len(risks))
    return error / comparison.standard_error if comparison.standard_error > 0 else 0.0


def plot(folder: Path, results: Results) -> None:
    """Fig. 2 to 4 in form, and the risks over the grids for each network."""
    drawn = [key for key in results if key[2] != ZERO]
    networks, notions = (list(dict.fromkeys(key[i] for key in drawn)) for i in (0, 1))
    figure = Figure(figsize=(7.6, 2.9), layout="constrained")
    panels = figure.subplots(1, len(notions), squeeze=False)[0]
    for axes, notion in zip(panels, notions, strict=True):
        # Those of both notions first: an estimator has one colour.
        names = [x for x in TOP_LABEL[::-1] if (networks[0], notion, x) in results]
        roots, errors = (
            {x: np.array([results[n, notion, x][field] for n in networks]) for x in names}
            for field in ("root", "root_standard_error")
        )
        labels = [name.replace("_", "\n", 1) for name in networks]
        plotting.estimate_comparison(labels, roots, errors=errors, axis=axes)
        axes.set_title(notion, fontsize=10)
        axes.tick_params(axis="x", labelsize=6.5)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8)
    cells.save_figure(folder, "estimates", figure)
    for network in networks:
        _plot_risks(
            folder, network, {key[1:]: x for key, x in results.items() if key[0] == network}
        )


def _plot_risks(
    folder: Path, network: str, results: dict[tuple[str, str], dict[str, np.ndarray]]
) -> None:
    """Risk over the grid of each estimator that has one."""
    shown = {key: found for key, found in results.items() if found["grid"].size > 1}
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    panels = figure.subplots(2, -(-len(shown) // 2), squeeze=False).ravel()
    for axes, ((notion, name), found) in itertools.zip_longest(
        panels, shown.items(), fillvalue=((None, None), None)
    ):
        if found is None:
            axes.set_visible(False)
            continue
        risks = found["risks"]
        errors = risks.std(0, ddof=1) / np.sqrt(len(risks))
        style = {"marked": selected(found)[0], "xlabel": "", "axis": axes}
        plotting.risk_curve(found["grid"], risks.mean(0), errors=errors, **style)
        axes.set_title(f"{notion}, {name}", fontsize=9)
        axes.ticklabel_format(axis="y", scilimits=(-2, 2))
    figure.suptitle(f"{network}: risk over the grid, standard errors over the folds", fontsize=10)
    cells.save_figure(folder, f"risks_{network}", figure)
