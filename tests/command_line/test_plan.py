"""`python -m calibjax plan`: what it asks `sample_size`, and what it prints."""

import json
import math

import jax
import numpy as np
import pytest

from calibjax import hypothesis_tests
from calibjax.command_line import load, main, plan
from calibjax.hypothesis_tests import PowerCurve, SampleSize

FOUND = SampleSize(
    120, 90, math.inf, 0.8, PowerCurve(np.array([64, 128]), np.array([0.6, 0.81]), np.ones(2)), 3
)
BINARY = "prob,label\n0.5,1\n0.25,0\n0.75,1\n"
NORMAL = "loc,scale,target\n0,1,1\n1,2,0\n2,1,1\n"


@pytest.fixture
def calls(monkeypatch):
    """What `sample_size`, which finds the example, has been called with."""
    found = []

    def sample_size(key, test, predictions, alternative, **options):
        options.pop("on_size")(64, 0.6, 0.02)
        found.append((key, test, predictions, alternative(predictions), options))
        return FOUND

    monkeypatch.setattr(plan, "sample_size", sample_size)
    return found


def test_prints_what_was_read_and_found(calls, written, capsys):
    path = written(".csv", BINARY)
    assert main(["plan", path, "--temperature", "2", "--seed", "7"]) == 0
    output = capsys.readouterr()
    assert output.err == (
        "calibjax: the test is simulated for several numbers of rows\n"
        "calibjax: 64 rows: power 0.60 ± 0.02\n"
    )
    assert f"file: {path}\ntask: binary\n" in output.out
    assert "     128 samples: power 0.810 ± 1.000\n\n120 samples are needed" in output.out
    assert "(95 % interval 90 to more than 128)" in output.out
    [(key, test, predictions, truth, options)] = calls
    assert (jax.random.key_data(key) == jax.random.key_data(jax.random.key(7))).all()
    assert test is hypothesis_tests.aggregated_skce_test
    odds = predictions.probs / (1 - predictions.probs)
    np.testing.assert_allclose(truth.probs / (1 - truth.probs), np.sqrt(odds), rtol=1e-5)
    assert options == {"power": 0.8, "max_size": None}


def test_json(calls, written, capsys):
    options = ["--shift=-0.5", "--scale", "1.5", "--power", ".9", "--most", "500", "--json"]
    assert main(["plan", written(".csv", NORMAL), *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["input"]["task"] == "normal"
    assert found["plan"]["rows"] == 120
    assert found["plan"]["high"] is None
    assert found["plan"]["curve"][1] == {"rows": 128, "power": 0.81, "standard error": 1.0}
    [(_, _, predictions, truth, options)] = calls
    np.testing.assert_allclose(truth.loc, predictions.loc - 0.5 * predictions.scale)
    np.testing.assert_allclose(truth.scale, 1.5 * predictions.scale)
    assert options == {"power": 0.9, "max_size": 500}


def test_columns_are_those_of_an_evaluation(written, capsys):
    data = load(["plan", written(".csv", NORMAL), "--temperature", "2"])
    assert data.choice.task == "normal"
    assert main(["plan", written(".csv", "target,a,b\n1.5,0,1\n1,-1,2.5\n"), "--scale", "2"]) == 2
    assert "try: python -m calibjax plan" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "expected --temperature, --shift or --scale"),
        (["--temperature", "2", "--report", "x.html"], "unrecognized arguments: --report"),
        (["--temperature", "hot"], "argument --temperature: expected a positive number, got hot"),
        (["--temperature", "-1"], "argument --temperature: expected a positive number, got -1"),
        (["--shift", "nan"], "argument --shift: expected a finite number, got nan"),
        (["--scale", "2", "--power", "80"], "argument --power: expected a number between 0.05"),
        (["--scale", "2", "--most", "3"], "argument --most: expected an integer from 8 on, got 3"),
    ],
)
def test_options_that_are_refused(options, message, written, capsys):
    with pytest.raises(SystemExit) as error:
        main(["plan", written(".csv", NORMAL), *options])
    assert error.value.code == 2
    assert capsys.readouterr().err.startswith(f"calibjax plan: {message}")


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("rate,target\n1,1\n2,2\n", ["--temperature", "2"], "tempered is not defined for Poisson"),
        (BINARY, ["--shift", "2"], "predictions"),
    ],
)
def test_what_does_not_fit(content, options, message, written, capsys):
    path = written(".csv", content)
    assert main(["plan", path, *options]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"calibjax: {path}: {message}")


def test_help_says_how_wrong_predictions_are(capsys):
    with pytest.raises(SystemExit) as error:
        main(["plan", "--help"])
    assert error.value.code == 0
    output = capsys.readouterr().out
    assert "usage: calibjax plan" in output
    assert "--temperature T" in output
    assert "--report" not in output
