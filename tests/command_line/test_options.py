"""Options that say what names of columns do not."""

import numpy as np
import pytest

import calibjax
from calibjax.command_line import load
from calibjax.command_line.tables import InputError


def test_labels_in_a_file_of_their_own(written):
    probs = written(".csv", "0,1,2\n0.7,0.2,0.1\n0.25,0.5,0.25\n", "probs")
    labels = written(".csv", "species\nowl\ncat\n", "labels")
    probs = [probs, "--header", "yes"]
    with pytest.raises(InputError, match="expected columns such as prob_NAME"):
        load([*probs, "--labels", labels])
    probs += ["--task", "classification", "--predictions", "[0-9]"]
    with pytest.raises(InputError, match="one of the labels 0, 1, 2 .--class-names or"):
        load([*probs, "--labels", labels])
    names = ["--class-names", "cat", "dog", "owl"]
    data = load([*probs, "--labels", labels, *names])
    assert data.classes == ("cat", "dog", "owl")
    assert data.targets.tolist() == [2, 0]


def test_positive(written):
    path = written(".csv", "y,prob\nyes,0.75\nno,0.5\n")
    assert load([path, "--positive", "no"]).targets.tolist() == [0, 1]
    assert load([path, "--positive", "yes"]).classes == ("no", "yes")
    with pytest.raises(InputError, match="expected two labels, one of them maybe, .* got no, yes"):
        load([path, "--positive", "maybe"])
    path = written(".csv", "y,prob\nyes,0.75\nno,0.5\nmaybe,0.2\n")
    with pytest.raises(InputError, match="expected two labels, one of them no, in column y"):
        load([path, "--positive", "no"])
    path = written(".csv", "y,loc,scale\n1,0,1\n")
    with pytest.raises(InputError, match="--positive: expected the task binary, got normal"):
        load([path, "--positive", "no"])


def test_sorted_quantiles(written):
    path = written(".csv", "quantile_0.9,quantile_0.1,target\n2,1,1\n2,3,1\n")
    data = load([path, "--sort-quantiles"])
    np.testing.assert_array_equal(data.predictions.values, [[1, 2], [2, 3]])
    np.testing.assert_array_equal(data.predictions.levels, [[0.1, 0.9]] * 2)


def test_version(capsys):
    with pytest.raises(SystemExit) as error:
        load(["--version"])
    assert error.value.code == 0
    assert capsys.readouterr().out == f"calibjax {calibjax.__version__}\n"
