"""Numbers, columns that names and options choose, and several models."""

import json

import numpy as np
import pytest

from calibjax.command_line import load
from calibjax.command_line.program import main
from calibjax.command_line.reading import InputError

RNG = np.random.default_rng(0)
PROBS = RNG.dirichlet(np.ones(3), 20)
LABELS = RNG.integers(0, 3, 20)
LOC, SCALE, TARGET = RNG.normal(size=(3, 20))
SCALE = np.exp(SCALE)
NAMES = ["prob_0", "prob_1", "prob_2", "label"]


def csv(names, *columns, sep=","):
    """A text of columns."""
    rows = [names, *zip(*(x.tolist() for x in columns), strict=True)]
    return "\n".join(sep.join(map(str, row)) for row in rows) + "\n"


def test_sums_are_divided(written):
    path = written(csv(NAMES, *PROBS.T.round(3), LABELS, sep="\t"))
    data = load(path, "--sep", "tab")
    expected = PROBS.round(3) / PROBS.round(3).sum(1, keepdims=True)
    np.testing.assert_allclose(data.predictions.probs, expected, rtol=1e-14)
    assert "their sums, which are from 0.999 to 1.001" in dict(data.facts)["predictions"]


@pytest.mark.parametrize(
    ("names", "labels", "expected"),
    [
        (["1", "01"], ["01", "1"], [1, 0]),  # both as they are written
        (["none", "tumour"], ["none", "tumour"], [0, 1]),  # "none" is not missing here
    ],
)
def test_labels_as_they_are_written(names, labels, expected, written):
    rows = "".join(f"0.5,0.5,{label}\n" for label in labels)
    path = written(f"prob_{names[0]},prob_{names[1]},label\n{rows}")
    for options in ([], ["--skip-missing"]):
        assert load(path, *options).targets.tolist() == expected


def test_infinite_quantiles(written):
    """Conformal methods write them; other columns are finite."""
    data = load(written("q0.9,q.1,target\n2,-inf,1\nInf,0,2\n1,0,1\n"))
    np.testing.assert_array_equal(data.predictions.values, [[-np.inf, 2], [0, np.inf], [0, 1]])
    np.testing.assert_array_equal(data.predictions.levels, [[0.1, 0.9]] * 3)


def test_groups_features_weights_and_missing_values(written):
    names = ["mean", "sd", "target", "group_a", "group_b", "feature_x", "features.y", "w", "id"]
    groups = np.array(["north", "south"])[LABELS % 2]
    content = csv(names, LOC, SCALE, TARGET, groups, LABELS, *PROBS.T[:2], SCALE, LABELS)
    path = written(content + "1,1,1,?,1,1,1,1,1\n1,1,-,north,1,1,1,1,1\n")
    columns = ["--weights", "w", "--groups", "group_*", "--features", "feature*"]
    data = load(path, "--skip-missing", "--na", "-", *columns)
    np.testing.assert_array_equal(data.features, PROBS[:, :2])
    np.testing.assert_array_equal(data.weights, SCALE)
    assert data.groups == {"group_a": [*groups], "group_b": [*map(str, LABELS)]}
    facts = dict(data.facts)
    assert facts["rows"] == "20 (2 more lack a value)"
    assert facts["not used"] == "id"
    with pytest.raises(InputError, match="row 23: .* column target, got '-'; --skip-missing"):
        load(path, "--na", "-")


def test_hub_with_one_column_of_tasks(written):
    names = "task,output_type,output_type_id,value,observation\n"
    rows = [f"{t},quantile,{q},{t + q},{t}\n" for t in (3, 1, 2) for q in (0.9, 0.1)]
    data = load(written(names + "".join(rows) + "1,median,NA,5,1\n"))
    assert data.targets.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(data.predictions.values, [[1.1, 1.9], [2.1, 2.9], [3.1, 3.9]])
    assert data.table.rows.tolist() == [4, 6, 2]
    assert dict(data.facts)["not used"] == "rows of median, task"


def test_files_are_models_of_the_same_targets(written, calls, capsys, tmp_path):
    files = [
        written("mean,sd,target\n0.2,0.5,0.1\n0.4,0.3,0.2\n", "a.csv"),
        written("target,mean,sd\n0.1,1,2\n0.2,3,4\n", "b.csv"),
    ]
    assert main([*files, "--json"]) == 0
    about = json.loads(capsys.readouterr().out)["input"]
    assert about["file"] == f"{files[0]}; {files[1]}"
    assert about["model b"] == "normal: mean, sd"
    assert about["rows"] == "2"
    [((_, models, targets), _)] = calls
    assert list(models) == list(load(files).predictions) == ["a", "b"]
    np.testing.assert_array_equal(models["b"].loc, [1, 3])
    np.testing.assert_array_equal(targets, [0.1, 0.2])
    report = tmp_path / "report.html"
    assert main([*files, "--report", str(report)]) == 0
    text = report.read_text()
    assert "<title>Comparison of a.csv, b.csv</title>" in text
    assert "command_line.load" in text
    assert f"python -m calibjax {files[0]} {files[1]} --report {report}" in text
    assert main([*files, "--report", files[1]]) == 2  # which is read


def test_models_in_the_columns_of_one_file(written, calls, capsys):
    path = written("elo,odds,winner,day\n0.5,0.25,us,1\n0.5,0.75,them,1\n0.1,0.2,us,2\n")
    arguments = [path, "--models", "elo", "odds", "--positive", "us", "--target", "winner"]
    assert main([*arguments, "--clusters", "day"]) == 0
    [((_, models, targets), options)] = calls
    assert list(models) == ["elo", "odds"]
    np.testing.assert_array_equal(models["odds"].probs, [0.25, 0.75, 0.2])
    assert targets.tolist() == [1, 0, 1]
    assert options["clusters"].tolist() == [0, 0, 1]
    assert "model odds: probability of label us: odds\n" in capsys.readouterr().out
