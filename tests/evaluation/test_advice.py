"""What to do, from findings; its calls run; and how notebooks show results."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, recalibration, scores
from calibjax.evaluation.record import Advice, Entry, Evaluation, Section
from calibjax.evaluation.sentences import GroupError, MeanError, advice, judged
from calibjax.hypothesis_tests.result import CalibrationTestResult
from tests.evaluation.test_sentences import CLASSES, NUMBERS, PLACE, _entry

GAIN = {"temperature": _entry(1.32, 1.2, 1.4), "gain": _entry(0.021, 0.012, 0.03)}
GROUP = GroupError("group A", "class", "class 1", 0.2, 0.001)


def _advised(findings, **changes):
    return advice(*judged(dataclasses.replace(findings, **changes)))


@pytest.mark.parametrize("findings", [CLASSES, NUMBERS])
def test_nothing_to_repair(findings):
    [one] = _advised(findings)
    assert one.text.startswith("Nothing has to be repaired, as far as these data can tell.")
    assert not one.call
    [one] = _advised(findings, num_impossible=2)
    assert one.text.startswith("Give everything that may happen a probability above 0")


def test_impossible_outcomes_do_not_hide_the_repair():
    first, second = _advised(CLASSES, pvalue=0.001, num_impossible=2)[:2]
    assert first.text.startswith("Give everything that may happen a probability above 0")
    assert second.text.startswith("A temperature does not repair these errors.")
    tiny = {"temperature": _entry(0.0032, 0.002, 0.004), "gain": _entry(0.021, 0.012, 0.03)}
    assert "T = 0.0032: on held-out" in _advised(NUMBERS, pvalue=0.001, **tiny)[0].text


@pytest.mark.parametrize("findings", [CLASSES, NUMBERS])
def test_a_temperature_that_helps(findings):
    first = _advised(findings, pvalue=0.001, **GAIN)[0]
    assert "T = 1.32: on held-out data that lowers the log score (nats per sample)" in first.text
    assert "by 0.021 (95 % interval 0.012 to 0.030)" in first.text
    assert "TemperatureScaling()" in first.call
    first = _advised(findings, pvalue=0.001, **GAIN, gain_unit="CRPS")[0]
    assert "TemperatureScaling(scores.crps)" in first.call


def test_a_temperature_that_does_not_help_is_not_advised():
    [one] = _advised(CLASSES, pvalue=0.001)
    assert "A temperature does not repair these errors." in one.text
    assert "whether it does was not computed" in one.text
    assert "IsotonicRegression" in one.call
    assert "PlattScaling" in _advised(CLASSES, num_samples=50, pvalue=0.001)[0].call
    [one] = _advised(NUMBERS, pvalue=0.001)
    assert one.text.startswith("No recalibration method of calibjax is known to repair this.")


def test_shifts_and_shapes():
    bias = MeanError("coordinate 1", 1.0, 0.7, 0.001)
    [one] = _advised(NUMBERS, pvalue=0.001, bias=(bias,))
    assert one.text.startswith("Add -0.3 to the predicted means of coordinate 1")
    [one] = _advised(NUMBERS, pvalue=0.001, places=(PLACE,))
    assert "Predict with a family that has the shape of the targets" in one.text
    skewed = {"direction": "predictions too peaked: peakedness", "direction_pvalue": 0.001}
    [one] = _advised(NUMBERS, pvalue=0.001, **skewed)
    assert one.text.startswith("The shape of the predicted distributions is wrong")
    loc = np.linspace(0, 1, 40).astype(np.float32)
    names = {"recalibration": recalibration, "targets": loc + 0.1 * np.sin(9 * loc)}
    names |= dict.fromkeys(
        ("predictions", "new_predictions"), distributions.Normal(loc, np.ones_like(loc))
    )
    exec(one.call, names)
    assert np.all(np.isfinite(jax.vmap(lambda p: p.icdf(0.5))(names["repaired"])))
    [one] = _advised(NUMBERS, task="counts", pvalue=0.001, **skewed)
    assert one.text.startswith("No shift and no temperature")


@pytest.mark.parametrize(
    "changes",
    [GAIN, {**GAIN, "gain_unit": "Brier score"}, {"num_samples": 50}, {"groups": (GROUP,)}],
)
def test_calls_run(changes):
    random = np.random.default_rng(0)
    probs = random.uniform(0.05, 0.95, 40)
    names = {"recalibration": recalibration, "scores": scores}
    names |= {"targets": (random.uniform(size=40) < probs).astype(int)}
    names |= {"groups": np.arange(40) % 2, "new_groups": np.arange(40) % 2}
    predictions = distributions.Bernoulli(probs.astype(np.float32))
    names |= {"predictions": predictions, "new_predictions": predictions}
    for one in _advised(CLASSES, pvalue=0.001, **changes):
        exec(one.call, names)
        repaired = names["repaired"]  # of maps of confidences, an array
        assert np.shape(getattr(repaired, "class_probs", repaired))[0] == 40


def test_notebooks_show_an_evaluation():
    entries = (
        Entry("p <of> all", 0.01),
        Entry("score & more", 3.25, by_chance=(-1.0, 2.0)),
        Entry("ECE", 0.125, by_chance=(0.1, 0.2), note="why <it> exists"),
    )
    shown = Evaluation(
        "binary",
        7,
        "7 <predictions>.",
        (Section("One & all", entries, "A <remark>."), Section("Two", entries[:1], is_detail=True)),
        ("First <sentence>.",),
        advice=(Advice("Do <this>.", "a = b < c"),),
    )._repr_html_()
    for text in ("7 &lt;predictions&gt;.", "First &lt;sentence&gt;.", "Do &lt;this&gt;."):
        assert f"<p>{text}</p>" in shown
    assert "<pre><code>a = b &lt; c</code></pre>" in shown
    assert "<summary>One &amp; all</summary>" in shown
    assert "why &lt;it&gt; exists" in shown
    assert "<script" not in shown
    # No cell is empty: rows with the same columns share a table.
    assert shown.count("<table>") == 3
    assert "<td></td>" not in shown
    assert '<td class="number" data-label="if calibrated">0.100 to 0.200</td>' in shown


def test_notebooks_show_results():
    draws = jnp.linspace(0, 1, 99)
    one = CalibrationTestResult(jnp.float32(0.5), jnp.float32(0.02), jnp.float32(0.1), draws)
    shown = one._repr_html_()
    assert '<th scope="row">pvalue</th><td>0.02 ± 0.01</td>' in shown
    assert '<th scope="row">statistic</th><td>0.5</td>' in shown
    names = {f"<{i}>": jnp.float32(0.5) for i in range(3)}
    many = dataclasses.replace(one, adjusted_pvalue=names)._repr_html_()
    assert '<th scope="row">adjusted_pvalue</th><td>{&#x27;&lt;0&gt;&#x27;: 0.5' in many
