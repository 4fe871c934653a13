"""Several files are models of the same targets."""

import json
import pathlib

import numpy as np
import pytest

from calibjax.command_line import load, program
from calibjax.command_line.program import main
from tests.command_line.examples import EVALUATION

ROWS = "0.2,0.5,0.1\n0.4,0.3,0.2\n"


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    paths[0].write_text(f"mean,sd,target\n{ROWS}")
    paths[1].write_text(f"target,mean,sd\n{'0.1,1,2'}\n0.2,3,4\n")
    return [*map(str, paths)]


@pytest.fixture
def calls(monkeypatch):
    """The arguments of `compare`, which computes nothing."""
    found = []

    def compare(*arguments, **options):
        found.append((arguments, options))
        return EVALUATION

    monkeypatch.setattr(program, "compare", compare)
    return found


def test_models_are_named_by_their_files(files, calls, capsys):
    assert main([*files, "--json"]) == 0
    about = json.loads(capsys.readouterr().out)["input"]
    assert about["models"] == f"a: {files[0]}; b: {files[1]}"
    assert about["rows"] == "2"
    [((_, models, targets), _)] = calls
    assert list(models) == ["a", "b"]
    np.testing.assert_array_equal(models["b"].loc, [1, 3])
    np.testing.assert_array_equal(targets, [0.1, 0.2])
    assert list(load(files)) == ["a", "b"]


def test_names_that_are_alike(files, tmp_path, calls):
    other = tmp_path / "other" / "a.csv"
    other.parent.mkdir()
    other.write_text(f"mean,sd,target\n{ROWS}")
    assert list(load([files[0], str(other)])) == [files[0], str(other)]


def test_report(files, calls, tmp_path):
    report = tmp_path / "report.html"
    assert main([*files, "--report", str(report)]) == 0
    text = report.read_text()
    assert "<title>Comparison of a.csv, b.csv</title>" in text
    assert "command_line.load" in text
    assert "by the method of Holm" in text  # how to read the tables
    assert f"python -m calibjax {files[0]} {files[1]} --report {report}" in text
    assert main([*files, "--report", files[1]]) == 2  # which is read


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("mean,sd,target\n0.2,0.5,0.1\n", "b.csv: expected 2 rows as in"),
        ("mean,sd,target\n0.2,0.5,0.1\n1,1,0.3\n", "b.csv, row 3: expected the target 0.2 as in"),
        ("mean,sd,target\n0.2,0.5,0.1\n1,-1,0.2\n", "b.csv, row 3: predictions.scale: expected"),
    ],
)
def test_other_targets_are_refused(files, content, message, calls, tmp_path, capsys):
    (tmp_path / "b.csv").write_text(content)
    assert main(files) == 2
    assert message in capsys.readouterr().err
    assert not calls


def test_other_refusals(files, calls, tmp_path, capsys):
    assert main([files[0], files[0]]) == 2
    assert "expected different files" in capsys.readouterr().err
    classes = []
    for name, columns in (("c", "prob_x,prob_y"), ("d", "prob_x,prob_z")):
        path = tmp_path / f"{name}.csv"
        path.write_text(f"{columns},label\n0.4,0.6,x\n0.7,0.3,x\n")
        classes.append(str(path))
    assert main(classes) == 2
    assert "expected the classes x, y as in" in capsys.readouterr().err
    weighted = []
    for path in classes:
        weighted.append(path.replace(".csv", "_weighted.csv"))
        text = "prob_x,prob_y,w,label\n0.4,0.6,1,x\n0.7,0.3,2,x\n"
        pathlib.Path(weighted[-1]).write_text(text)
    with pathlib.Path(weighted[1]).open("a") as file:
        file.write("0.7,0.3,2,x\n")
    with pathlib.Path(weighted[0]).open("a") as file:
        file.write("0.7,0.3,3,x\n")
    assert main([*weighted, "--weights", "w"]) == 2
    assert "row 4: expected the weight 3.0 as in" in capsys.readouterr().err
    assert main([files[0], str(tmp_path / "none.csv")]) == 2
    assert "none.csv: cannot be read" in capsys.readouterr().err
