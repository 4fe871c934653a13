"""Files as people publish them, and what a reader that does not guess makes of each.

A file is "read" as it is, or "refused" with words that its message must contain. A person who
understands the file would give the `options`. `score` is the number that must result, computed with
NumPy from the arrays that the file was written from; None if no options would be right.
"""

import codecs
import csv
import dataclasses
import gzip
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import norm

from tests import oracles


@dataclasses.dataclass(frozen=True)
class File:
    """A file, what is allowed without options, and what is right with them."""

    about: str
    outcome: str  # "read", "refused", or "either": the right number or a refusal, always
    content: str | bytes
    words: str = ""  # regular expressions, separated by spaces
    options: str = ""
    score: float | Mapping[str, float] | None = None
    name: str = "data.csv"


def brier(p, y):
    return ((p - np.eye(p.shape[1])[y]) ** 2).sum(1)


def normal_crps(loc, scale, y):
    z = (y - loc) / scale
    return scale * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))


def pinball(levels, values, y):
    error = y[:, None] - values
    return np.maximum(levels * error, (levels - 1) * error).mean(1)


# By the family that is read: its fields, and a score of each row.
SCORES: Mapping[str, tuple[tuple[str, ...], Any]] = {
    "Bernoulli": (("probs",), lambda p, y: brier(np.stack([1 - p, p], 1), y)),
    "Categorical": (("probs",), brier),
    "Normal": (("loc", "scale"), normal_crps),
    "Quantiles": (("levels", "values"), pinball),
    "Ensemble": (("values",), lambda *x: [oracles.energy_score(*row) for row in zip(*x)]),
}


def score(family, *arrays, weights=None):
    return float(np.average(SCORES[family][1](*arrays), weights=weights))


def table(columns, sep=",", decimal=".", end="\n"):
    """Text of columns by name."""
    file = io.StringIO()
    writer = csv.writer(file, delimiter=sep, lineterminator=end)
    writer.writerow(columns)
    for row in zip(*(np.asarray(x).tolist() for x in columns.values()), strict=True):
        writer.writerow([str(x).replace(".", decimal) if type(x) is float else x for x in row])
    return file.getvalue()


def named(names, values, before=""):
    """Columns of a matrix."""
    return {f"{before}{name}": x for name, x in zip(names, values.T, strict=True)}


def simplex(rng, *concentration):
    """Rows of probabilities with three digits that sum to one."""
    p = rng.dirichlet(concentration, N).clip(0.002, 0.99).round(3)
    p[:, 0] = (1 - p[:, 1:].sum(1)).round(3)
    return p.clip(0, 1)


def drawn(rng, p):
    return (rng.random((N, 1)) > np.cumsum(p, 1)[:, :-1]).sum(1)


N = 60
RNG = np.random.default_rng(66)
ROWS = np.arange(N)
PAIR = simplex(RNG, 2, 4)  # the second class is the event, and more frequent
NOT, EVENT = PAIR.T
HAPPENED = drawn(RNG, PAIR)
BINARY = score("Categorical", PAIR, HAPPENED)
YES_NO = np.where(HAPPENED == 1, "yes", "no")
CLASSES = simplex(RNG, 1, 3, 2)
LABELS = drawn(RNG, CLASSES)
OF_CLASSES = score("Categorical", CLASSES, LABELS)
LOC = RNG.normal(15, 6, N).round(2)
SD = RNG.uniform(1, 4, N).round(2)
Y = (LOC + 1.5 * SD * RNG.normal(size=N)).round(2)
NORMAL = score("Normal", LOC, SD, Y)
LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
QUANTILES = (LOC[:, None] + SD[:, None] * np.array([-1.64, -0.67, 0, 0.67, 1.64])).round(2)
OF_QUANTILES = score("Quantiles", LEVELS, QUANTILES, Y)
INTERVALS = score("Quantiles", LEVELS[[0, 4]], QUANTILES[:, [0, 4]], Y)
MEMBERS = (LOC[:, None] + SD[:, None] * RNG.normal(size=(N, 11))).round(2)
OF_MEMBERS = score("Ensemble", MEMBERS, Y)
THOUSANDS = RNG.integers(1000, 9999, (N, 3))  # mean, sd and target, as 2,750
WITH_COMMA = {k: [f"{x // 1000},{x % 1000:03d}" for x in v]
              for k, v in named(("mean", "sd", "target"), THOUSANDS).items()}  # fmt: skip
COUNT = RNG.poisson(RNG.uniform(1, 5, N))
DATES = (np.datetime64("2024-01-01") + ROWS).astype(str)
TEAMS = np.array(["Reds, Cincinnati", 'The "A"s', "St. Louis", "Köln", "NA", "O'Hara"])[ROWS % 6]
SPECIES = np.array(["setosa", "versicolor", "virginica"])
TEXTS = ['She said: "no, never"\nand left', "A, B", "naïve", "", "1,5", "x;y"]
TEXTS = np.array(TEXTS)[ROWS % 6]
MATCH = {"season": ROWS // 20 + 2019, "date": DATES, "team1": TEAMS, "team2": TEAMS[::-1]}
RIVALS = {"elo": EVENT, "market": simplex(RNG, 3, 2)[:, 1], "538": (EVENT / 2 + 0.2).round(3)}
OF_RIVALS = {name: score("Bernoulli", p, HAPPENED) for name, p in RIVALS.items()}


def hub(models=("FluSight-baseline",), kind="quantile", values=QUANTILES, ids=LEVELS):
    """The long format of forecast hubs, shuffled; its column `target` says of what."""
    rows = np.indices((len(models), N, len(ids))).reshape(3, -1)
    m, i, j = np.random.default_rng(0).permutation(rows, 1)
    return {
        **{"model_id": np.array(models)[m], "location": np.array(["01", "1", "US"])[i % 3]},
        **{"target_end_date": DATES[i // 3], "horizon": i % 2},
        **{"target": ["wk inc flu hosp"] * len(i), "output_type": [kind] * len(i)},
        **{"output_type_id": np.array(ids)[j], "value": (values[i, j] + m).round(2)},
    }, i


HUB, _OF = hub()
BOTH, _OF_BOTH = hub(("base", "flusion"))
SAMPLES, _OF_SAMPLES = hub(kind="sample", values=MEMBERS, ids=np.arange(1, 12))
OF_BOTH = {"base": OF_QUANTILES, "flusion": score("Quantiles", LEVELS, QUANTILES + 1, Y)}

_PROBS = {"prob": EVENT, "label": HAPPENED}
_NORMAL = {"mean": LOC, "sd": SD, "target": Y}
_IRIS = named(SPECIES, CLASSES, "prob_")
_MISSING = np.where(ROWS % 9 == 4, "", SD.astype(str))
_SEEN = ROWS % 9 != 4
_COMPLETE = score("Normal", LOC[_SEEN], SD[_SEEN], Y[_SEEN])

# What is certain.
FILES = [
    File("predict_proba with an index", "read", score=OF_CLASSES, content=table(
        {"": ROWS, **_IRIS, "label": SPECIES[LABELS]})),
    File("digits, CRLF, empty lines at the end", "read", score=OF_CLASSES, content=table(
        {**named("012", CLASSES, "p_"), "y_true": LABELS}, end="\r\n") + "\r\n\r\n\r\n"),
    File("truth values beside quoted texts", "read", score=BINARY, content=table(
        {"question": TEXTS, "topic": LABELS, "prob": EVENT, "y": HAPPENED == 1})),
    File("quantiles in disorder", "read", score=OF_QUANTILES, content=table(
        {"ds": DATES, **named(LEVELS[::-1], QUANTILES[:, ::-1], "q"), "target": Y})),
    File("ensemble, tabs", "read", score=OF_MEMBERS, name="gefs.tsv", content=table(
        {"run": DATES, **named(range(1, 12), MEMBERS, "member_"), "target": Y}, sep="\t")),
    File("forecast hub with two models", "read", score=OF_BOTH, content=table(
        {**BOTH, "observation": Y[_OF_BOTH]})),
    File("forecast hub, samples", "read", score=OF_MEMBERS, content=table(
        {**SAMPLES, "observation": Y[_OF_SAMPLES]})),
    File("classes that are decimals", "read", score=OF_CLASSES, content=table(
        {**named(["2.0", "10.0", "1.0"], CLASSES, "prob_"),
         "label": np.array([2.0, 10.0, 1.0])[LABELS]})),
    File("packed", "read", score=BINARY, name="data.csv.gz", content=gzip.compress(
        table(_PROBS).encode(), mtime=0)),
    File("a hundred thousand columns", "read", score=score("Bernoulli", EVENT[:9], HAPPENED[:9]),
         content=f"prob,label,{','.join(f'gene{i}' for i in range(10**5))}\n" + "".join(
             f"{p},{y}{',1' * 10**5}\n" for p, y in zip(EVENT[:9], HAPPENED[:9], strict=True))),
]  # fmt: skip

# What a person has to name: classes.
FILES += [
    *(File(f"{a} and {b}, 1 for the first", "refused", table(
        {**MATCH, **named([a, b], PAIR[:, ::-1], "prob_"), "label": HAPPENED}),
        f"prob_{a} --classes", f"--classes prob_{a}=1 prob_{b}=0", BINARY)
      for a, b in (("yes", "no"), ("home", "away"), ("win", "loss"), ("D", "R"))),
    *(File(f"labels from {i} for columns from {1 - i}", "refused", table(
        {**named(range(1 - i, 4 - i), CLASSES, "prob_"), "label": LABELS + i}),
        f"prob_{1 - i} --classes", "--classes " + " ".join(
            f"prob_{c + 1 - i}={c + i}" for c in range(3)), OF_CLASSES)
      for i in (0, 1)),
    File("the outcome of the other team", "refused", table(
        {"season": MATCH["season"], "prob1": EVENT, "outcome2": 1 - HAPPENED}),
        "outcome2 --target", "--target outcome2 --probability prob1 --positive 0", BINARY),
    File("pandas, columns called as the labels", "refused", table(
        {"": ROWS, **named("012", CLASSES), "y_true": LABELS}),
        "--classes", "--classes 0=0 1=1 2=2", OF_CLASSES),
    File("the largest probability as a column more", "refused", table(
        {**_IRIS, "prob_max": CLASSES.max(1), "label": SPECIES[LABELS]}), "prob_max", " ".join(
        ["--classes", *(f"prob_{x}={x}" for x in SPECIES)]), OF_CLASSES),
]  # fmt: skip

# Labels that are the model's decisions: `--target` says that they are not.
DECIDED = CLASSES.argmax(1)
AT_A_HALF, AT_A_THIRD = ((x <= EVENT).astype(int) for x in (0.5, 0.37))
FILES += [
    *(File(f"decisions as labels, {n} differ", "refused", table(
        {**_IRIS, "label": SPECIES[np.where(n > ROWS, LABELS, DECIDED)]}),
        f"label follows {N - sum(DECIDED[:n] != LABELS[:n])}.of.{N} --target",
        "--target label", score("Categorical", CLASSES, np.where(n > ROWS, LABELS, DECIDED)))
      for n in (0, 1)),
    *(File(f"decisions at {x}", "refused", table({"prob": EVENT, "label": y}),
           "label --target", "--target label", score("Bernoulli", EVENT, y))
      for x, y in (("a half", AT_A_HALF), ("a third", AT_A_THIRD))),
    File("decisions beside two classes", "refused", table(
        {"p_no": NOT, "p_yes": EVENT, "label": np.array(["no", "yes"])[AT_A_THIRD]}),
        "label --target", "--target label", score("Bernoulli", EVENT, AT_A_THIRD)),
    File("too little confidence in good predictions", "read", table(
        {**named("012", (CLASSES + 1) / 4, "prob_"),
         "label": np.where(ROWS % 20 == 7, LABELS, DECIDED)}),
        score=score("Categorical", (CLASSES + 1) / 4,
                    np.where(ROWS % 20 == 7, LABELS, DECIDED))),
    File("one event of many expected", "read", table(
        {"prob": np.full(N, 0.3), "label": (ROWS == 5).astype(int)}),
        score=score("Bernoulli", np.full(N, 0.3), (ROWS == 5).astype(int))),
    File("the mean as target", "refused", table({"mean": LOC, "sd": SD, "target": LOC}),
         "target --target", "--target target", score("Normal", LOC, SD, LOC)),
]  # fmt: skip

# What a person has to name: numbers, and how they are written.
FILES += [
    File("Excel in German", "refused", codecs.BOM_UTF8 + table(
        {"Ort": TEAMS, **_NORMAL}, ";", ",", "\r\n").encode(),
        "--sep", "--sep ';' --decimal ,", NORMAL),
    File("missing values", "refused", table({**_NORMAL, "sd": _MISSING}),
         "sd --skip-missing", "--skip-missing", _COMPLETE),
    File("three digits behind each point, tabs", "read", table(
        {k: [f"{x / 7:.3f}" for x in v] for k, v in _NORMAL.items()}, "\t"), name="data.tsv",
        score=score("Normal", *(np.round(x / 7, 3) for x in _NORMAL.values()))),
    File("columns of text, aligned", "refused", "\n".join(
        " ".join(f"{x!s:>9}" for x in row) for row in [[*_NORMAL], *zip(*_NORMAL.values())]),
        "--sep", "--sep ' '", NORMAL),
    File("-999 for missing", "refused", table(
        {**_NORMAL, "target": np.where(_SEEN, Y, -999)}), "-999 --na",
        "--na=-999 --skip-missing", _COMPLETE),
]  # fmt: skip

# What has no command.
FILES += [
    File("labels in another file", "refused", table(
        {"id": ROWS + 1, **named("123", CLASSES, "Class_")}), "another.file --target"),
    File("tabs, 2,750 is 2750", "refused", table(WITH_COMMA, "\t"),
         "MARK thousands", name="money.tsv"),
    File("no names above text labels", "refused", table(
        {**named("123", CLASSES), "label": SPECIES[LABELS]}).partition("\n")[2],
        "row.1 names"),
    File("logarithms of probabilities", "refused", table(
        {**named("abc", np.log(CLASSES).round(3), "prob_"), "label": np.array([*"abc"])[LABELS]}),
        "row.2 probability"),
    File("sums of .97", "refused", table(
        {**named("abc", (0.97 * CLASSES).round(4), "prob_"), "label": np.array([*"abc"])[LABELS]}),
        "sum"),
    File("hub with two observations of a task", "refused", table(
        {**HUB, "observation": Y[_OF] + (np.arange(len(_OF)) == 40)}), "one.value.of.observation"),
    *(File(f"mean and sd beside {x}", "refused", table({x: SD, **_NORMAL}), f"{x} --mean")
      for x in ("df", "dist", "kurtosis", "se")),
    File("confidence in an answer, also below one half", "refused", table(
        {"answer": YES_NO, "prob": EVENT, "label": HAPPENED}), "prob"),
    File("hub with observations of its own", "refused", table(HUB), "observation another.file"),
    File("coordinates beside predictions", "refused", table(
        {"x": LOC, "y": SD, "mean": LOC, "sd": SD, "observed": Y}), "y,.observed",
        "--target observed", NORMAL),
    File("a hub whose models have another name", "refused", table(
        {("team" if x == "model_id" else x): y for x, y in BOTH.items()}
        | {"observation": Y[_OF_BOTH]}), "team model_id"),
    File("p-values", "refused", table({"gene": ROWS, "p": EVENT, "label": HAPPENED}), "p"),
    File("mean and variance", "refused", table(
        {"mean": LOC, "var": (SD**2).round(3), "target": Y}), "var"),
    File("a comma at the end of rows", "either", table(
        _NORMAL).replace("\n", ",\n").replace("target,", "target"), score=NORMAL),
    File("NUL in a name", "refused", table({"mean": LOC, "s\0d": SD, "target": Y})),
    File("escape characters in names", "refused", table(
        {"\x1b[31mred\x1b[0m": LOC, "\x1b]0;title\x07": SD, "target": Y}), "target|red"),
]  # fmt: skip

# Two readings by names or values.
VOTES = np.random.default_rng(7).integers(0, 3, (N, 7))
WITH_POINT = {name: [x.replace(",", ".") for x in texts] for name, texts in WITH_COMMA.items()}
FAVOURITE = np.maximum(EVENT, NOT)
FILES += [
    File("commas, 2.750 is 2.75 or 2750", "refused", table({"id": ROWS, **WITH_POINT}),
         "2.750|MARK MARK", "--decimal .", score("Normal", *THOUSANDS.T / 1000)),
    File("2.750 beside 0.5", "read", table({"mean": WITH_POINT["mean"], "sd": SD, "target": Y}),
         score=score("Normal", THOUSANDS[:, 0] / 1000, SD, Y)),
    *(File(f"a second target, {name}", "refused", table({**_NORMAL, name: Y + 1}),
           f"target,.*{name},.*--target", "--target target", NORMAL)
      for name in ("target_2", "target2", "target.1")),
    File("a date of the target", "read", table({**_NORMAL, "target_date": DATES}), score=NORMAL),
    File("members that vote for classes", "refused", table(
        {**named(range(1, 8), VOTES, "member_"), "label": LABELS}), "classes --members"),
    File("members that are counts", "either", table(
        {**named(range(1, 8), VOTES, "member_"), "target": COUNT}), "--members",
        "--members 'member_*'", score("Ensemble", VOTES, COUNT)),
    File("features beside class numbers", "refused", table(
        {"mean": LOC, "sd": SD, "target": LABELS}), "normal classes --mean", "--mean mean --sd sd",
        score("Normal", LOC, SD, LABELS)),
    File("calibration_curve, and labels", "refused", table(
        {"prob_true": EVENT, "prob_pred": NOT, "label": np.array(["true", "pred"])[HAPPENED]}),
        "prob_pred --classes"),
    *(File(f"{x}, above the names", "refused", f"{x}\n{table(_NORMAL)}", "row.1 comment")
      for x in ("#made by R", "# by R, 4.3, Linux")),
    File("lines, 2.750 is 2750", "refused", table(WITH_POINT, "|"), "--sep", name="money.txt"),
    File("header of numpy.savetxt", "refused", f"# {table(_NORMAL)}", "row.1 comment"),
    File("row numbers below #", "read", table({"#": ROWS, **_NORMAL}), score=NORMAL),
    *(File(f"confidences of 50 % or more, {x}", "refused", table(
        {"text": TEAMS, "label": y, "prob": FAVOURITE}), "prob --probability",
        f"--probability prob --positive 1{' --target label' * (x == 'decisions')}",
        score("Bernoulli", FAVOURITE, y))
      for x, y in (("decisions", AT_A_HALF), ("a favourite who won", HAPPENED))),
    File("models in rows", "refused", table(
        {"model": np.array(["a", "b"])[ROWS % 2], **_PROBS}), "model --probability",
        "--groups model", BINARY),
]  # fmt: skip

# What programs write.
FILES += [
    File("submission for Kaggle", "refused", table({"id": ROWS, "target": EVENT}), "id --"),
    File("TabPFN, levels in percent", "refused", table(
        {"mean": LOC, "median": LOC, **named((5, 25, 50, 75, 95), QUANTILES, "q"), "target": Y}),
        "5,.25 --quantiles", "--quantiles 0.05=q5 0.25=q25 0.5=q50 0.75=q75 0.95=q95",
        OF_QUANTILES),
    File("samples of darts", "refused", table(
        {"time": DATES, **named(range(11), MEMBERS, "sales_s"), "target": Y}), "sales_s0 --members",
        "--members 'sales_s*'", OF_MEMBERS),
    File("forecasts of R", "refused", table(
        {"": DATES, "Point.Forecast": LOC, "Lo.90": QUANTILES[:, 0], "Hi.90": QUANTILES[:, 4],
         "y": Y}), "Lo.90 --lower", "--lower Lo.90 --upper Hi.90 --level 0.9", INTERVALS),
    File("a line sep=; of Excel", "refused", f"sep=;\n{table(_NORMAL, ';')}", "sep"),
    File("labels that became decimals", "refused", table(
        {**named("01", PAIR, "prob_"), "label": HAPPENED / 1.0}), "--classes",
        "--classes prob_0=0.0 prob_1=1.0", BINARY),
    *(File(f"labels {first} and {second}", "refused", table(
        {"prob": EVENT, "label": np.where(HAPPENED == 1, second, first)}), "--positive",
        f"--probability prob --positive {second}", BINARY)
      for first, second in ((-1, 1), (1, 2))),
]  # fmt: skip

# Rows that count several times, labels by another name, and ranks of classes.
FILES += [
    *(File(f"rows that count by {name}", "refused", table({**_PROBS, name: COUNT + 1}),
           f"{name} --weights --probability", f"--weights {name}",
           score("Bernoulli", EVENT, HAPPENED, weights=COUNT + 1))
      for name in ("n", "count", "sample_weight")),
    File("weights of patients", "read", table({**_PROBS, "weight": LOC}), score=BINARY),
    File("probabilities by their ranks", "refused", table(
        {**named("123", -np.sort(-CLASSES, 1), "prob_"), "label": LABELS + 1}), "prob_1 --classes"),
    File("the same frequencies in all rows", "read", table(
        {**named("012", np.tile([0.5, 0.3, 0.2], (N, 1)), "prob_"), "label": LABELS}),
        score=score("Categorical", np.tile([0.5, 0.3, 0.2], (N, 1)), LABELS)),
    File("two models called as classes", "refused", table(
        {"prob_rf": EVENT, "prob_svm": RIVALS["538"], "label": HAPPENED}), "prob_rf",
        "--models prob_rf prob_svm --positive 1",
        {"prob_rf": OF_RIVALS["elo"], "prob_svm": OF_RIVALS["538"]}),
    File("bounds of a probability", "refused", table(
        {"prob": EVENT, "prob_lower": EVENT / 2, "prob_upper": (1 + EVENT) / 2,
         "label": HAPPENED}), "prob_lower --probability", "--probability prob --positive 1",
        BINARY),
    File("a sum below the columns", "refused", f"{table(_NORMAL)}Total,1,2\n", "Total"),
    File("truth values of R", "read", table(
        {"prob": [f"{p:.3e}" for p in EVENT], "y": np.array(["FALSE", "TRUE"])[HAPPENED]}),
        score=BINARY),
    File("capitals", "refused", table({"Prob": EVENT, "Label": HAPPENED}), "Label --target",
         "--target Label --probability Prob --positive 1", BINARY),
    File("-1 for unknown labels", "refused", table(
        {**named("012", CLASSES, "prob_"), "label": np.where(_SEEN, LABELS, -1)}),
        "-1 --classes", "--na=-1 --skip-missing",
        score("Categorical", CLASSES[_SEEN], LABELS[_SEEN])),
    File("a hub with numbers of rows", "refused", table(
        {"row_id": np.arange(len(_OF)), **HUB, "observation": Y[_OF]}), "finite"),
    File("a hub with levels in percent", "refused", table(
        {**HUB, "output_type_id": 100 * HUB["output_type_id"], "observation": Y[_OF]}),
        "levels --quantiles"),
]  # fmt: skip
