"""Files that hold the same predictions in other columns, or in another unit, give one result."""

import json
import re

import numpy as np
import pytest
from scipy import optimize
from sklearn import datasets, linear_model, naive_bayes
from sklearn.model_selection import train_test_split

from calibjax.command_line import main

pytestmark = pytest.mark.slow

UNIT = 1e-7
POWERS = {"CRPS": 1, "bias (target - predicted mean)": 1, "mean squared error": 2}


def _naive_bayes():
    """Probabilities of both classes, down to 1e-304, and labels."""
    X, y = datasets.load_breast_cancer(return_X_y=True)
    split = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)
    return naive_bayes.GaussianNB().fit(split[0], split[2]).predict_proba(split[1]), split[3]


def _result(capsys, tmp_path, names, values, targets):
    """Entries by name, and sentences, of the program on a text with all digits."""
    path = tmp_path / "predictions.csv"
    rows = [map(repr, [*map(float, row), y]) for row, y in zip(values, targets.tolist())]
    path.write_text("\n".join(",".join(row) for row in [names, *rows]))
    assert main([str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    entries = {x["name"]: x for section in found["sections"] for x in section["entries"]}
    return entries, found["sentences"]


def _shown(value, digits=3):
    if isinstance(value, list):
        return [_shown(x, digits) for x in value]
    return None if value is None else f"{value:.{digits}g}"


def _refuse_other(entries, others, scales, leave=()):
    """Compares all numbers to the digits that are shown."""
    assert entries.keys() == others.keys()
    for name in entries.keys() - set(leave):
        one, other, scale = entries[name], others[name], scales.get(name, 1.0)
        assert one["value"] is not None, name
        for key in ("value", "low", "high", "by_chance"):
            a, b = one[key], other[key]
            if a is not None:
                a, b = np.asarray(a) * scale, np.asarray(b)
                np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-6 * scale, err_msg=name)
        assert _shown(one["pvalue"]) == _shown(other["pvalue"]), name


def _best_temperature(logs, labels):
    """The minimum of the likelihood in float64, without the library."""

    def loss(log_temperature):
        scaled = logs / np.exp(log_temperature)
        rows = np.arange(len(labels))
        return np.mean(np.logaddexp(scaled[:, 0], scaled[:, 1]) - scaled[rows, labels])

    found = optimize.minimize_scalar(loss, bounds=(0, 5), method="bounded", options={"xatol": 1e-9})
    return np.exp(found.x)


def test_one_and_two_columns_of_probabilities(capsys, tmp_path):
    probs, labels = _naive_bayes()
    one = probs[:, 1]
    both = np.stack([1 - one, one], 1)
    with np.errstate(divide="ignore"):
        logs = np.stack([np.log1p(-one), np.log(one)], 1), np.log(probs)
    by_one, told = _result(capsys, tmp_path, ["prob", "label"], one[:, None], labels)
    names = ["prob_0", "prob_1", "label"]
    by_both, told_both = _result(capsys, tmp_path, names, both, labels)
    by_two, told_two = _result(capsys, tmp_path, names, probs, labels)
    # The same numbers in two columns give the same result, except that float32 has no number
    # between 1 - 6e-8 and 1: the largest log-odds of one column are 15.9, those of two are 26.7.
    scores = ["score: log-odds"]
    _refuse_other(by_one, by_both, {}, leave=scores)
    assert by_one[scores[0]]["value"] == pytest.approx(by_both[scores[0]]["value"], rel=0.03)
    assert told == told_both
    # The classifier's own second column has probabilities that 1 - p has not: they change the
    # temperature alone, to that of these probabilities.
    temperature, gain = "temperature", "held-out gain in log score, nats"
    _refuse_other(by_one, by_two, {}, leave=[temperature, gain, *scores])
    assert [x for x in told if "temperature" not in x] == [
        x for x in told_two if "temperature" not in x
    ]
    for entries, log in ((by_one, logs[0]), (by_two, logs[1])):
        found = -np.mean(log[np.arange(len(labels)), labels])
        assert entries["negative log-likelihood"]["value"] == pytest.approx(found, rel=1e-6)
        best = _best_temperature(log, labels)
        assert entries[temperature]["value"] == pytest.approx(best, rel=1e-4)
        assert entries[gain]["value"] == pytest.approx(0.873, abs=0.003)
    assert _shown(by_two[temperature]["value"]) == "9.58"


def test_impossible_outcomes_are_counted(capsys, tmp_path):
    probs, labels = _naive_bayes()
    one = np.where(np.arange(len(labels)) < 3, 1.0 - labels, probs[:, 1])
    several = np.stack([1 - one, np.zeros_like(one), one], 1)
    for names, values, targets in (
        (["prob"], one[:, None], labels),
        (["prob_0", "prob_1", "prob_2"], several, 2 * labels),
    ):
        entries, told = _result(capsys, tmp_path, [*names, "label"], values, targets)
        assert entries["negative log-likelihood"]["value"] is None  # which is infinite
        assert any(x.startswith("3 of 285 samples had a predicted probability of 0") for x in told)
        assert "held-out gain in Brier score" in entries


@pytest.mark.parametrize("family", ["normal", "ensemble"])
def test_units_of_targets(family, capsys, tmp_path):
    X, y = datasets.load_diabetes(return_X_y=True)
    X, others, y, targets = train_test_split(X, y, test_size=0.5, random_state=0)
    loc, scale = linear_model.BayesianRidge().fit(X, y).predict(others, return_std=True)
    names, values = ["loc", "scale"], np.stack([loc, 0.7 * scale], 1)
    if family == "ensemble":
        draws = np.random.default_rng(0).normal(size=(len(loc), 10))
        names = [f"member_{i}" for i in range(10)]
        values = loc[:, None] + 0.7 * scale[:, None] * draws
    names.append("target")
    one, told = _result(capsys, tmp_path, names, values, targets)
    other, told_other = _result(capsys, tmp_path, names, UNIT * values, UNIT * targets)
    scales = {name: UNIT**power for name, power in POWERS.items()}
    scales["held-out gain in CRPS"] = UNIT
    likelihood = "negative log-likelihood"
    _refuse_other(one, other, scales, leave=[likelihood])
    if likelihood in one:
        expected = one[likelihood]["value"] + np.log(UNIT)
        assert other[likelihood]["value"] == pytest.approx(expected, rel=1e-5)

    def words(sentences):  # numbers in the unit of the targets are those of the entries
        return [re.sub(r"(by|to|interval) [-\d.e]+", r"\1 …", x) for x in sentences]

    assert words(told) == words(told_other)
