"""Options that say what names of columns do not."""

import numpy as np
import pytest

import calibjax
from calibjax.command_line import load
from calibjax.command_line.tables import InputError


def test_labels_in_a_file_of_their_own(written):
    """What `pandas.DataFrame(model.predict_proba(X)).to_csv(index=False)` writes."""
    probs = written(".csv", "0,1,2\n0.7,0.2,0.1\n0.25,0.5,0.25\n", "probs")
    labels = written(".csv", "species\nowl\ncat\n", "labels")
    with pytest.raises(InputError, match="--first-label|--class-names"):
        load([probs, "--labels", labels])  # two of three labels do not say what the third is
    names = ["--class-names", "cat", "dog", "owl"]
    data = load([probs, "--labels", labels, *names])
    assert data.classes == ("cat", "dog", "owl")
    assert data.targets.tolist() == [2, 0]


def test_positive(written):
    path = written(".csv", "y,prob\nyes,0.75\nno,0.5\n")
    assert load([path, "--positive", "no"]).targets.tolist() == [0, 1]
    assert load([path, "--positive", "YES"]).classes == ("no", "yes")
    with pytest.raises(InputError, match="one of them maybe .--positive., got no, yes"):
        load([path, "--positive", "maybe"])
    with pytest.raises(InputError, match="got no, yes; try: .* --positive yes$"):
        load([path, "--positive", "maybe"])
    path = written(".csv", "y,prob\n1,0.75\n0,0.5\n")
    with pytest.raises(InputError, match="try: .* --positive 1$"):  # what prob means elsewhere
        load([path, "--positive", "maybe"])
    path = written(".csv", "y,prob\nyes,0.75\nno,0.5\nmaybe,0.2\n")
    with pytest.raises(InputError, match="got maybe, no, yes; 3 classes need as many columns"):
        load([path])
    with pytest.raises(InputError, match="expected two labels in column y"):
        load([path, "--positive", "no"])
    path = written(".csv", "y,loc,scale\n1,0,1\n")
    with pytest.raises(InputError, match="--positive: expected the task binary, got normal"):
        load([path, "--positive", "no"])


def test_names_that_say_no_label(written):
    """The label of a probability is never taken from a number that counts something else."""
    path = written(".csv", "y,model_0\n1,0.75\n0,0.5\n")
    data = load([path, "--task", "binary", "--predictions", "model_0"])
    assert data.targets.tolist() == [1, 0]
    path = written(".csv", "2,0.75\n1,0.5\n2,0.6\n")
    with pytest.raises(InputError, match="expected one of the labels 0, 1"):
        load([path, "--target", "1", "--task", "binary"])
    with pytest.raises(InputError, match="expected one of the labels 0, 1"):
        load([path, "--target", "1", "--task", "binary", "--predictions", "2"])
    path = written(".csv", "1,0.75,0.3\n0,0.5,0.2\n")
    with pytest.raises(InputError, match=r"expected 1 columns of predictions \(binary\), got 2, 3"):
        load([path, "--target", "1", "--task", "binary"])


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("y,lower,upper\n1,0,2\n", [], "intervals need levels"),
        ("y,mean,var\n1,0,2\n", [], "the root of a variance"),
        ("y,y_pred\n1.5,1\n", [], "without an uncertainty is not a distribution"),
        ("y,a,b\na,.7,.3\nb,.2,.8\nc,.5,.5\n", [], "needs its column, and there is none for c"),
        ("y,prob\n1,62.5\n0,0.5\n", [], "got 62.5; percentages have to be divided by 100"),
        ("y,prob\n1,162.5\n0,0.5\n", [], "got 162.5$"),
        ("y,prob\n1,0.5\n0,0.5\n", ["--target", "z"], "try: .* --target y$"),
    ],
)
def test_what_is_lacking(content, options, message, written):
    with pytest.raises(InputError, match=message):
        load([written(".csv", content), *options])


def test_sorted_quantiles(written):
    path = written(".csv", "quantile_0.9,quantile_0.1,target\n2,1,1\n2,3,1\n")
    data = load([path, "--sort-quantiles"])
    np.testing.assert_array_equal(data.predictions.values, [[1, 2], [2, 3]])
    np.testing.assert_array_equal(data.predictions.levels, [[0.1, 0.9]] * 2)


@pytest.mark.parametrize(
    ("task", "content", "found"),
    [
        ("classes", "prob_0,prob_1,label\n0.5,0.5,1\n", "classification"),
        ("ensemble", "member_0,member_1,target\n0.5,0.5,1\n", "ensembles"),
        ("regression", "loc,scale,target\n0.5,0.5,1\n", "normal"),
        ("regression", "df,loc,scale,target\n3,0.5,0.5,1\n", "student_t"),
        ("counts", "rate,target\n0.5,1\n", "poisson"),
        ("counts", "concentration,rate,target\n0.5,1,1\n", "negative_binomial"),
    ],
)
def test_tasks_as_evaluate_calls_them(task, content, found, written):
    assert load([written(".csv", content), "--task", task]).choice.task == found


def test_version(capsys):
    with pytest.raises(SystemExit) as error:
        load(["--version"])
    assert error.value.code == 0
    assert capsys.readouterr().out == f"calibjax {calibjax.__version__}\n"
