"""The record: access, text, dictionaries, JSON, notebooks and figures."""

import dataclasses
import json
import math
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from calibjax.evaluation.record import Advice, Entry, Evaluation, Panel, Section, number, numbers
from calibjax.hypothesis_tests.result import CalibrationTestResult

ENTRIES = (
    Entry("first", 0.123456, standard_error=0.01, low=0.1, high=0.15, call="f(predictions)"),
    Entry("second", math.nan, note="does not <exist>: reason"),
    Entry("third", 0.7, expected=0.9, by_chance=(0.8, 0.96), pvalue=0.001),
)


def _draw(shown, *, ax=None):
    from matplotlib.figure import Figure

    ax = Figure().subplots() if ax is None else ax
    ax.plot(shown)
    return ax


RECORD = Evaluation(
    "regression",
    7,
    "7 <predictions>.",
    (Section("One & all", ENTRIES[:2], "A remark."), Section("Two", ENTRIES[2:], is_detail=True)),
    ("First <sentence>.", "Second sentence."),
    notes=("About p.",),
    advice=(Advice("Do <this>.", "a = b < c"),),
    panels=tuple(Panel(name, f"shows {name}", _draw, np.arange(3)) for name in "abcd"),
)


DRAWS = jnp.linspace(0, 1, 99)
TEST = CalibrationTestResult(jnp.float32(0.5), jnp.float32(0.02), jnp.float32(0.1), DRAWS)
SEVERAL = dataclasses.replace(TEST, adjusted_pvalue={"<0>": jnp.float32(0.5)})
FILE = pathlib.Path(__file__).with_name("record.txt")


def page():
    """How the record, and results of tests, are shown."""
    shown = str(RECORD), RECORD.to_json(), TEST._repr_html_()
    return "\n\n----\n\n".join([*shown, SEVERAL._repr_html_()])


def test_what_is_shown():
    """`python -m tests.evaluation.test_record` writes record.txt anew; read its differences."""
    assert page() == FILE.read_text("utf-8")
    assert "<script" not in page()
    json.loads(RECORD.to_json(), parse_constant=pytest.fail)  # without NaN
    lines = str(dataclasses.replace(RECORD, description="held-out " * 30)).splitlines()
    assert max(map(len, lines)) <= 100
    assert not any(line.endswith("-") for line in lines)


def test_entries_by_name():
    assert RECORD["third"] is ENTRIES[2]
    assert RECORD["third"].difference == pytest.approx(-0.2)
    assert list(RECORD.entries) == list(ENTRIES)
    with pytest.raises(KeyError, match="fourth"):
        RECORD["fourth"]


def test_numbers_have_two_digits_of_their_error():
    assert numbers(0.123456, 0.2, error=0.034) == ["0.123", "0.200"]
    assert numbers(12345.6, -0.04, error=800) == ["12346", "0"]
    assert numbers(1e-9, 2e-9) == ["1e-09", "2e-09"]
    assert [number(x) for x in (1234.5, 1.5e7, 0.0001234)] == ["1230", "1.5e+07", "0.000123"]


def test_figures():
    pytest.importorskip("matplotlib")
    figures = RECORD.figures()
    assert list(figures) == list(RECORD.captions) == list("abcd")
    assert RECORD.captions["b"] == "shows b"
    assert all(len(figure.axes) == 1 for figure in figures.values())


if __name__ == "__main__":
    FILE.write_text(page(), "utf-8")
