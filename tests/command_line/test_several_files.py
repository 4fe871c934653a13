"""Several files are models of the same targets."""

import json

import numpy as np
import pytest

from calibjax.command_line import load
from calibjax.command_line.program import main
from calibjax.command_line.reading import InputError

ROWS = "0.2,0.5,0.1\n0.4,0.3,0.2\n"


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    paths[0].write_text(f"mean,sd,target\n{ROWS}")
    paths[1].write_text(f"target,mean,sd\n{'0.1,1,2'}\n0.2,3,4\n")
    return [*map(str, paths)]


def test_models_are_named_by_their_files(files, calls, capsys):
    assert main([*files, "--json"]) == 0
    about = json.loads(capsys.readouterr().out)["input"]
    assert about["file"] == f"{files[0]}; {files[1]}"
    assert about["model b"] == "normal: mean, sd"
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
    assert f"python -m calibjax {files[0]} {files[1]} --report {report}" in text
    assert main([*files, "--report", files[1]]) == 2  # which is read


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("mean,sd,target\n0.2,0.5,0.1\n", "b.csv: expected 2 rows as in"),
        ("mean,sd,target\n0.2,0.5,0.1\n1,1,0.3\n", "b.csv, row 3: expected targets 0.2 as in"),
        ("mean,sd,target\n0.2,0.5,0.1\n1,-1,0.2\n", "b.csv, row 3: predictions.scale: expected"),
    ],
)
def test_other_targets_are_refused(files, content, message, calls, tmp_path, capsys):
    (tmp_path / "b.csv").write_text(content)
    assert main(files) == 2
    assert message in capsys.readouterr().err
    assert not calls


def test_other_refusals(files, calls, tmp_path, capsys):
    classes = tmp_path / "c.csv", tmp_path / "d.csv"
    classes[0].write_text("prob_x,prob_y,w,label\n0.4,0.6,1,x\n0.7,0.3,3,x\n")
    classes[1].write_text("prob_x,prob_z,w,label\n0.4,0.6,1,x\n0.7,0.3,2,x\n")
    classes += (tmp_path / "e.csv",)
    classes[2].write_text("prob_x,prob_y,w,label\n0.4,0.6,1,x\n0.7,0.3,2,x\n")
    for arguments, message in (
        ([files[0], files[0]], "expected different files"),
        (classes[:2], "expected classes x, y as in"),
        ([classes[0], classes[2], "--weights", "w"], "row 3: expected weights 3.0 as in"),
        ([files[0], str(tmp_path / "none.csv")], "none.csv: cannot be read"),
        ([*classes[::2], "--groups", "w"], "--groups and --features: expected one model, got 2"),
        ([files[0], "--clusters", "target"], "expected one use of column target"),
    ):
        assert main([*map(str, arguments)]) == 2
        assert message in capsys.readouterr().err
    assert not calls


def test_many_classes_of_other_names(tmp_path):
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path, name in zip(paths, "xy", strict=True):
        names = [*"abcdefghi", name, "z"]
        columns = ",".join(f"prob_{x}" for x in names)
        path.write_text(f"{columns},label\n0.5,{'0.05,' * 10}a\n")
    with pytest.raises(InputError, match="expected classes a, b, .*, x, z as in .*, y, z"):
        load(paths)


def test_models_in_the_columns_of_one_file(tmp_path, calls, capsys):
    path = tmp_path / "matches.csv"
    path.write_text("elo,odds,winner,day\n0.5,0.25,us,1\n0.5,0.75,them,1\n0.1,0.2,us,2\n")
    arguments = [str(path), "--models", "elo", "odds", "--positive", "us", "--target", "winner"]
    assert main([*arguments, "--clusters", "day"]) == 0
    [((_, models, targets), options)] = calls
    assert list(models) == ["elo", "odds"]
    np.testing.assert_array_equal(models["odds"].probs, [0.25, 0.75, 0.2])
    assert targets.tolist() == [1, 0, 1]
    assert options["clusters"].tolist() == [0, 0, 1]
    assert "model odds: probability of label us: odds\n" in capsys.readouterr().out
    with pytest.raises(InputError, match="--clusters: expected several models, got one"):
        load(path, probability="elo", positive="us", target="winner", clusters=["day"])
