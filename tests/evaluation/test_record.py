"""The record: access, text, dictionaries, JSON and figures."""

import dataclasses
import json
import math

import numpy as np
import pytest

from calibjax.evaluation.record import Entry, Evaluation, Panel, Section

ENTRIES = (
    Entry("first", 0.123456, 0.01, low=0.1, high=0.15, function="f(predictions)"),
    Entry("second", math.nan, note="does not exist: reason"),
    Entry("third", math.inf, by_chance=(-0.5, 0.5), pvalue=0.001),
)


def _draw(shown, *, ax=None):
    from matplotlib.figure import Figure

    ax = Figure().subplots() if ax is None else ax
    ax.plot(shown)
    return ax


PANELS = tuple(Panel(name, f"shows {name}", _draw, np.arange(3)) for name in "abcd")
RECORD = Evaluation(
    "regression",
    7,
    "7 predictions.",
    (Section("One", ENTRIES[:2], "A remark."), Section("Two", ENTRIES[2:])),
    ("First sentence.", "Second sentence."),
    panels=PANELS,
)


def test_entries_by_name():
    assert RECORD["third"] is ENTRIES[2]
    assert list(RECORD.entries) == list(ENTRIES)
    with pytest.raises(KeyError, match="expected one of 'first', 'second', 'third'"):
        RECORD["fourth"]


def test_text():
    assert str(RECORD).splitlines() == [
        "7 predictions.",
        "",
        "One",
        "                 value   95 % interval",
        "  first   0.123 ± 0.01  0.100 to 0.150",
        "  second           nan",
        "  second: does not exist: reason",
        "  A remark.",
        "",
        "Two",
        "                 value    if calibrated  adjusted p",
        "  third            inf  -0.500 to 0.500       0.001",
        "",
        "First sentence.",
        "Second sentence.",
    ]


def test_long_text_is_wrapped():
    sentence = "held-out " * 30
    record = Evaluation("regression", 7, sentence, (), (sentence,))
    assert max(map(len, str(record).splitlines())) <= 100
    assert not any(line.endswith("-") for line in str(record).splitlines())


def test_json_is_valid_and_keeps_numbers():
    given = json.loads(RECORD.to_json(), parse_constant=pytest.fail)
    assert given["task"] == "regression"
    assert given["num_samples"] == 7
    first, second = given["sections"][0]["entries"]
    assert (first["value"], first["low"], first["function"]) == (0.123456, 0.1, "f(predictions)")
    assert second["value"] is None
    third = given["sections"][1]["entries"][0]
    assert third["value"] is None
    assert third["by_chance"] == [-0.5, 0.5]
    assert given["sentences"] == ["First sentence.", "Second sentence."]


def test_dictionary_has_the_numbers_as_they_are():
    value = RECORD.to_dict()["sections"][0]["entries"][1]["value"]
    assert math.isnan(value)


def test_figures():
    pytest.importorskip("matplotlib")
    figures = RECORD.figures()
    assert list(figures) == list(RECORD.captions) == list("abcd")
    assert RECORD.captions["b"] == "shows b"
    assert all(len(figure.axes) == 1 for figure in figures.values())
    whole = RECORD.figure()
    shown = [ax for ax in whole.axes if ax.get_visible()]
    assert [ax.get_title() for ax in shown] == list("abcd")
    assert len(whole.axes) == 6


def test_no_figure():
    with pytest.raises(ValueError, match="^figure: expected"):
        dataclasses.replace(RECORD, panels=()).figure()
