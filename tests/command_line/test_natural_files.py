"""Files whose columns are certain are read; of others the error says what they hold."""

import gzip

import numpy as np
import pytest

from calibjax.command_line import load
from calibjax.command_line.tables import InputError

# Name of the case: content, task, columns of predictions, column of targets, values of the first
# row (probabilities, or parameters), targets, names of classes.
READ = {
    "pandas, columns called as the labels": (
        *("cat,dog,emu,label\n0.7,0.2,0.1,dog\n0.25,0.5,0.25,cat\n", "classification"),
        *("cat dog emu", "label", [0.7, 0.2, 0.1], [1, 0], "cat dog emu"),
    ),
    "the same with an index": (
        *(",0,1,2,y_true\n0,0.7,0.2,0.1,0\n1,0.25,0.5,0.25,1\n2,0.1,0.3,0.6,2\n",),
        *("classification", "0 1 2", "y_true", [0.7, 0.2, 0.1], [0, 1, 2], "0 1 2"),
    ),
    "p_NAME": (
        *("p_a,p_b,p_c,label\n0.3333,0.3333,0.3333,a\n0.1,0.2,0.7,c\n", "classification"),
        *("p_a p_b p_c", "label", [0.3333] * 3, [0, 2], "a b c"),
    ),
    "prob and truth values": (
        *("id,target,prob,p_value\n17,True,0.75,1\n23,False,0.5,1\n", "binary"),
        *("prob", "target", [0.75], [1, 0], "0 1"),
    ),
    "levels": (
        *("q0.1,q.5,quantile_0.9,y\n1,2,3,2.5\n0,1,4,-1\n", "quantiles"),
        *("q0.1 q.5 quantile_0.9", "y", [1, 2, 3], [2.5, -1], ""),
    ),
    "mean and sd": (
        *("mean,sd,target\n0,1,0.5\n1,2,-3\n", "normal"),
        *("mean sd", "target", [0, 1], [0.5, -3], ""),
    ),
}


def values_of(predictions):
    """Probabilities, or parameters, or what else there are numbers of, in the first row."""
    fields = {k: v for k, v in vars(predictions).items() if k != "levels"}
    return np.concatenate(
        [np.atleast_1d(np.asarray(v)[0]) for v in fields.values() if v is not None]
    )


@pytest.mark.parametrize("case", READ)
def test_files_that_are_read(case, written):
    content, task, columns, target, first, targets, classes = READ[case]
    for path in (written(".csv", content), written(".csv.gz", gzip.compress(content.encode()))):
        data = load([path])
        assert data.choice.task == task
        assert list(data.choice.predictions) == columns.split(" ")
        assert data.choice.target == target
        np.testing.assert_allclose(values_of(data.predictions), first, rtol=1e-12)
        assert data.targets.tolist() == targets
        assert data.classes == tuple(classes.split())
        if task == "quantiles":
            np.testing.assert_allclose(data.predictions.levels[0], [0.1, 0.5, 0.9], rtol=1e-12)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("prob_0,prob_1,answer\n0.25,0.75,1\n0.5,0.5,0\n", "got columns prob_0 .as '0.25'., "),
        ("prob_0,prob_1,label,y_true\n0.25,0.75,1,1\n0.5,0.5,1,0\n", "got label, y_true"),
        ("y,prob\nyes,0.75\nno,0.5\n", "got no, yes; --positive says of which of two labels prob"),
        ("y,prob\n1,0.75\n2,0.5\n", "got 1, 2; --positive"),
        ("y,prob\n-1,0.75\n1,0.5\n", "got -1, 1; --positive"),
        ("prob_yes,prob_no,label\n0.7,0.3,1\n", "row 2: expected one of the labels yes, no .--cla"),
        ("p_1,p_2,p_3,y\n0.25,0.5,0.25,0\n", "row 2: expected one of the labels 1, 2, 3"),
        ("prob_yes,label\n0.7,yes\n", r"got columns prob_yes \(as '0.7'\), label \(as 'yes'\)"),
        ("a,b,c,y\n0.25,0.5,0.25,0\n", "--task, --predictions and --target name them"),
        ("p10,p50,p90,y\n1,2,3,2\n", "expected columns such as prob_NAME"),
        ("q05,q50,q95,target\n1,2,3,2.5\n", "expected columns such as prob_NAME"),
        ("y_true,y_pred\n1,1\n0,1\n", "expected columns such as prob_NAME"),  # predicted labels
        ("mean,var,y\n1,0,2\n", "expected columns such as prob_NAME"),
        ("lower,upper,y\n1,2,1.5\n", "expected columns such as prob_NAME"),
        ("mean;sd;target\n1,5;2;3\n", "try --separator ';'"),
        ("p_a,p_b,y\n20,80,a\n", "expected probabilities that sum to one .* got the sum 100"),
        ("a,b,label\n0.2,0.8,a\n0.3,0.7,c\n", "expected columns such as prob_NAME"),
    ],
)
def test_files_of_which_the_error_says_what_they_hold(content, message, written):
    with pytest.raises(InputError, match=message) as error:
        load([written(".csv", content)])
    assert "python -m" not in str(error.value)
