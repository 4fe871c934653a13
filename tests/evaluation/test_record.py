"""The record: access, text, dictionaries, JSON, notebooks and figures."""

import dataclasses
import json
import math

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


def test_entries_by_name():
    assert RECORD["third"] is ENTRIES[2]
    assert RECORD["third"].difference == pytest.approx(-0.2)
    assert list(RECORD.entries) == list(ENTRIES)
    with pytest.raises(KeyError, match="expected one of 'first', 'second', 'third'"):
        RECORD["fourth"]


def test_text():
    assert str(RECORD).splitlines() == [
        "7 <predictions>.",
        "",
        "First <sentence>.",
        "Second sentence.",
        "",
        "Do <this>.",
        "    a = b < c",
        "",
        "One & all",
        "                 value   95 % interval",
        "  first   0.123 ± 0.01  0.100 to 0.150",
        "  second           nan",
        "  second: does not <exist>: reason",
        "  A remark.",
        "",
        "Two",
        "         observed  predicted  difference   if calibrated      p",
        "  third     0.700      0.900      -0.200  0.800 to 0.960  0.001",
        "",
        "About p.",
    ]
    sentence = "held-out " * 30
    lines = str(Evaluation("regression", 7, sentence, (), (sentence,))).splitlines()
    assert max(map(len, lines)) <= 100
    assert not any(line.endswith("-") for line in lines)


def test_numbers_have_two_digits_of_their_error():
    assert numbers(0.123456, 0.2, error=0.034) == ["0.123", "0.200"]
    assert numbers(12345.6, -0.04, error=800) == ["12346", "0"]
    assert numbers(1e-9, 2e-9) == ["1e-09", "2e-09"]
    assert [number(x) for x in (1234.5, 1.5e7, 0.0001234)] == ["1230", "1.5e+07", "0.000123"]


def test_json_is_valid_and_keeps_numbers():
    given = json.loads(RECORD.to_json(), parse_constant=pytest.fail)
    assert (given["task"], given["num_samples"]) == ("regression", 7)
    first, second = given["sections"][0]["entries"]
    assert (first["value"], first["low"], first["call"]) == (0.123456, 0.1, "f(predictions)")
    assert second["value"] is None
    third = given["sections"][1]["entries"][0]
    assert (third["expected"], third["by_chance"]) == (0.9, [0.8, 0.96])
    assert given["sentences"] == [*RECORD.sentences]
    assert (given["notes"], given["advice"][0]["call"]) == (["About p."], "a = b < c")
    assert math.isnan(RECORD.to_dict()["sections"][0]["entries"][1]["value"])


def test_figures():
    pytest.importorskip("matplotlib")
    figures = RECORD.figures()
    assert list(figures) == list(RECORD.captions) == list("abcd")
    assert RECORD.captions["b"] == "shows b"
    assert all(len(figure.axes) == 1 for figure in figures.values())
    axes = RECORD.figure().axes
    assert [ax.get_title() for ax in axes if ax.get_visible()] == list("abcd")
    assert len(axes) == 6
    with pytest.raises(ValueError, match="^figure: expected"):
        dataclasses.replace(RECORD, panels=()).figure()


def test_notebooks_show_an_evaluation():
    shown = RECORD._repr_html_()
    for text in ("7 &lt;predictions&gt;.", "First &lt;sentence&gt;.", "Do &lt;this&gt;."):
        assert f"<p>{text}</p>" in shown
    for text in (
        "<pre><code>a = b &lt; c</code></pre>",
        "<summary>One &amp; all</summary>",
        "does not &lt;exist&gt;: reason",
        '<td class="number" data-label="if calibrated">0.800 to 0.960</td>',
    ):
        assert text in shown
    assert "<script" not in shown
    assert shown.count("<table>") == 2  # one for each section with entries


def test_notebooks_show_results():
    draws = jnp.linspace(0, 1, 99)
    one = CalibrationTestResult(jnp.float32(0.5), jnp.float32(0.02), jnp.float32(0.1), draws)
    shown = one._repr_html_()
    assert '<th scope="row">pvalue</th><td>0.02 ± 0.01</td>' in shown
    assert '<th scope="row">statistic</th><td>0.5</td>' in shown
    names = {f"<{i}>": jnp.float32(0.5) for i in range(3)}
    many = dataclasses.replace(one, adjusted_pvalue=names)._repr_html_()
    assert '<th scope="row">adjusted_pvalue</th><td>{&#x27;&lt;0&gt;&#x27;: 0.5' in many
