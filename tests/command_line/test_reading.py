"""Formats that no public file has, and the columns that names and options choose."""

import numpy as np
import pytest

from calibjax import distributions
from calibjax.command_line import load
from calibjax.command_line.reading import InputError
from tests.command_line.examples import parquet

RNG = np.random.default_rng(0)
PROBS = RNG.dirichlet(np.ones(3), 20)
LABELS = RNG.integers(0, 3, 20)
LOC, SCALE, TARGET = RNG.normal(size=(3, 20))
SCALE = np.exp(SCALE)


def csv(names, *columns, sep=","):
    """A text of columns, with a header if there are names."""
    lines = [sep.join(names)] if names else []
    lines += [sep.join(map(str, row)) for row in zip(*(x.tolist() for x in columns))]
    return "\n".join(lines) + "\n"


NAMES = ["prob_0", "prob_1", "prob_2", "label"]
COUNTED = ["--target", "4", "--classes", "1=0", "2=1", "3=2"]


@pytest.mark.parametrize(
    ("ending", "content", "options"),
    [
        (".csv", csv(["label", "probs.2", "probs.0", "probs.1"], LABELS, *PROBS.T[[2, 0, 1]]), []),
        (".txt", csv(NAMES, *PROBS.T, LABELS, sep=" "), ["--sep", " "]),
        (".csv", csv(["1", "2", "3", "4"], *PROBS.T, LABELS), [*COUNTED, "--header"]),
        (".csv", csv(["P0", "P1", "P2", "y"], *PROBS.T, LABELS), ["--classes", "P*"]),
        (".parquet", parquet(**dict(zip(NAMES, [*PROBS.T, LABELS]))), []),
        (".parquet", parquet(**dict(zip(NAMES, [*PROBS.T, LABELS * 1.0]))), ["--decimal", ","]),
    ],
)
def test_classes(ending, content, options, written):
    data = load([written(ending, content), *options])
    assert isinstance(data.predictions, distributions.Categorical)
    shuffled = [data.classes.index(x) for x in sorted(data.classes)]
    np.testing.assert_allclose(data.predictions.probs[:, shuffled], PROBS, rtol=1e-14)
    assert [data.classes[y] for y in data.targets] == LABELS.astype(str).tolist()


@pytest.mark.parametrize(
    ("names", "labels", "expected"),
    [
        (["1", "01"], ["01", "1"], [1, 0]),  # both as they are written
        (["1", "2"], ["1.0", "02"], [0, 1]),
        (["none", "tumour"], ["none", "tumour"], [0, 1]),  # "none" is not missing here
        (["1", "2"], ["1", "1.0"], "row 3: expected one of the labels 1, 2 .* got '1.0'"),
        (["1", "01"], ["1", "1.0"], "row 3: expected one of the labels 1, 01 .* got '1.0'"),
        (["yes", "no"], ["1", "0"], "got '1'; name them: calibjax FILE --classes prob_yes=VALUE"),
    ],
)
def test_labels_as_they_are_written(names, labels, expected, written):
    rows = "".join(f"0.5,0.5,{label}\n" for label in labels)
    path = written(".csv", f"prob_{names[0]},prob_{names[1]},label\n{rows}")
    for options in ([], ["--skip-missing"]):
        if isinstance(expected, str):
            with pytest.raises(InputError, match=expected):
                load(path, *options)
        else:
            assert load(path, *options).targets.tolist() == expected


@pytest.mark.parametrize("family", ["laplace", "student_t"])
def test_families(family, written):
    path = written(".csv", csv(["df", "loc", "scale", "target"], SCALE, LOC, SCALE, TARGET))
    predictions = load(path, family=family).predictions
    assert type(predictions).__name__ == family.title().replace("_", "")
    np.testing.assert_array_equal(predictions.loc, LOC)
    np.testing.assert_array_equal(predictions.scale, SCALE)


def test_infinite_quantiles(written):
    """Conformal methods write them; other columns are finite."""
    path = written(".csv", "q0.9,q.1,target\n2,-inf,1\nInf,0,1\n0,1,1\n")
    data = load(path, sort_quantiles=True)
    np.testing.assert_array_equal(data.predictions.values, [[-np.inf, 2], [0, np.inf], [0, 1]])
    np.testing.assert_array_equal(data.predictions.levels, [[0.1, 0.9]] * 3)


def test_groups_features_weights_and_missing_values(written):
    names = ["loc", "scale", "target", "group_a", "group_b", "feature_x", "features.y", "w", "id"]
    groups = np.array(["north", "south"])[LABELS % 2]
    content = csv(names, LOC, SCALE, TARGET, groups, LABELS, *PROBS.T[:2], SCALE, LABELS)
    path = written(".csv", content + "1,1,1,?,1,1,1,1,1\n1,1,-,north,1,1,1,1,1\n")
    data = load(path, "--skip-missing", "--na", "-", "--weights", "w")
    np.testing.assert_array_equal(data.features, PROBS[:, :2])
    np.testing.assert_array_equal(data.weights, SCALE)
    assert data.groups == {"group_a": [*groups], "group_b": [*map(str, LABELS)]}
    facts = dict(data.facts)
    assert facts["rows"] == "20 (2 more lack a value)"
    assert facts["not used"] == "id"
    with pytest.raises(InputError, match="row 23: .* column target, got '-'; --skip-missing"):
        load(path, na="-")
    chosen = load(path, skip_missing=True, na="-", groups=["group_a"])
    assert chosen.groups == {"group_a": [*groups]}


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_labels_in_a_file_of_their_own(order, written):
    """Rows are those with the same values in the columns that both files have."""
    path = written(".csv", csv(["id", *NAMES[:3]], np.arange(20), *PROBS.T), "probs")
    labels = csv(["id", "label"], np.arange(20)[order], LABELS[order])
    assert load(path, labels=written(".csv", labels, "labels")).targets.tolist() == [*LABELS]
    for content in (csv(["label"], LABELS), csv([], LABELS)):
        assert load(path, labels=written(".csv", content, "labels")).targets.tolist() == [*LABELS]
    short = written(".csv", labels.rpartition("\n")[0].rpartition("\n")[0], "labels")
    with pytest.raises(InputError, match="expected a row of labels with the same values"):
        load(path, labels=short)
    assert len(load(path, labels=short, skip_missing=True).targets) == 19
    with pytest.raises(InputError, match="several for some values"):
        load(path, labels=written(".csv", labels + "0,1\n", "labels"))
    with pytest.raises(InputError, match="expected 20 rows as in .*, got 3"):
        load(path, labels=written(".csv", "label\n1\n1\n1\n", "labels"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"target": "z"}, r"expected a column z \(--target\), got columns loc, p, y"),
        ({"groups": ["g*"]}, r"expected a column g\* \(--groups\)"),
        ({"members": ["loc", "lo*"]}, "--members: expected different columns, got loc, loc"),
        ({"members": ["loc", "y"]}, "expected one use of column y, got 2"),
        ({"members": ["loc"]}, "expected two or more members, got loc"),
        ({"probability": "p"}, "--probability: expected --positive, too, got none: calibjax FILE"),
        ({"mean": "loc"}, "--mean: expected --sd, too"),
        ({"lower": "loc", "upper": "p"}, "--upper: expected --level, too"),
        ({"classes": ["loc", "p"]}, "--classes: expected pairs with =, got loc"),
        ({"classes": ["loc=1", "p=1"]}, "--classes: expected different values, got 1, 1"),
        ({"classes": ["x*"]}, "--classes: expected pairs with =, got x"),
        (
            {"lower": "loc", "upper": "p", "level": 90},
            "different levels between 0 and 1, got -44.5",
        ),
        ({"quantiles": ["5=loc"]}, "expected different levels between 0 and 1, got 5"),
        ({"family": "beta"}, r"expected a column alpha \(--parameters\)"),
        ({"family": "normal", "parameters": ["loc=loc"]}, "expected the parameters loc, scale"),
        ({"members": ["loc", "p"], "mean": "p", "sd": "p"}, "for one kind .* got --mean and --mem"),
        ({"probability": "p", "positive": "a"}, "two labels, one of them a, in column y, got 1, 2"),
        ({"clusters": ["y"], "probability": "p", "positive": "1"}, "expected one use of column y"),
        (
            {},
            "expected columns of one kind .*, got columns loc, p, member_1, .*, which fit members",
        ),
    ],
)
def test_options_that_do_not_fit(options, expected, written):
    path = written(".csv", "loc,p,y,member_1,member_2\n0,0.5,1,0,0\n0,0.5,2,0,0\n")
    with pytest.raises(InputError, match=expected):
        load(path, **options)


@pytest.mark.parametrize(
    "content",
    [
        "mean,sd,label\n0.5,0.1,1\n0.2,0.1,0\n",  # probabilities and their standard errors
        "pred,prob,label\n1,0.5,1\n0,0.7,0\n",  # confidences in the predicted labels
        "mean,sd,label\n0.5,0.1,1\n0.2,0.1,\n",
        "df,loc,scale,target\n3,0,1,2\n",
        "q0.1,q0.9,q95,target\n1,2,3,2\n",
        "q0.1,q0.10,target\n1,2,2\n",
        "mean,loc,sd,target\n0,1,1,2\n",
    ],
)
def test_two_meanings(content, written):
    with pytest.raises(InputError, match="expected columns of one kind .*calibjax FILE --"):
        load(written(".csv", content))


def test_observations_of_a_hub_by_other_dates(written):
    """One observation for each place is not that of all horizons."""
    names = "location,horizon,target,output_type,output_type_id,value\n"
    rows = "a,1,cases,quantile,0.5,1\na,2,cases,quantile,0.5,2\n"
    path = written(".csv", names + rows, "forecasts")
    labels = written(".csv", "date,location,observation\n2024-01-01,a,3\n", "labels")
    with pytest.raises(InputError, match="one row for each value of location, .* dates date"):
        load(path, labels=labels)
    labels = written(".csv", "location,observation\na,3\n", "labels")
    with pytest.raises(InputError, match="got one for all values of horizon"):
        load(path, labels=labels)
    path = written(".csv", names + rows.replace("2,cases", "2,deaths"), "forecasts")
    with pytest.raises(InputError, match="got one for all values of target"):
        load(path, labels=labels)


def test_labels_without_a_value(written):
    path = written(".csv", "prob,label\n0.5,1\n0.25,\n50 %,0\n")
    with pytest.raises(InputError, match=r"row 4: .* got '50 %'; --percent"):
        load(path, skip_missing=True)
    data = load(path, skip_missing=True, percent=True)
    np.testing.assert_array_equal(data.predictions.probs, [0.005, 0.5])
    assert data.targets.tolist() == [1, 0]


def test_hub_with_one_column_of_tasks(written):
    names = "task,output_type,output_type_id,value,observation\n"
    rows = [f"{t},quantile,{q},{t + q},{t}\n" for t in (3, 1, 2) for q in (0.9, 0.1)]
    data = load(written(".csv", names + "".join(rows) + "1,median,NA,5,1\n"))
    assert data.targets.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(data.predictions.values, [[1.1, 1.9], [2.1, 2.9], [3.1, 3.9]])
    assert data.table.rows.tolist() == [4, 6, 2]
    assert dict(data.facts)["not used"] == "rows of median, task"


@pytest.mark.parametrize("names", ["prob_0,prob_1,label,true", "prob_1,prob,label,true"])
def test_a_label_that_is_predicted(names, written):
    path = written(".csv", f"{names}\n0.75,0.25,0,1\n0.25,0.75,1,1\n")
    with pytest.raises(InputError, match="got label, always the likeliest label, and true: "):
        load(path)
    assert load(path, target="true").targets.tolist() == [1, 1]
    assert load(path, target="label").targets.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("predictions", "labels", "got"),
    [
        ("ID,prob\n1,0.2\n2,0.7\n", "id,label\n2,0\n1,1\n", "columns id"),
        ("file,split,prob\na,x,0.2\nb,x,0.7\n", "image,split,label\nb,x,0\na,x,1\n", "several"),
        (
            "id,date,prob\n1,2020-01-01,0.2\n2,2020-01-02,0.4\n",
            "day,id,label\n2020-01-02,1,0\n2020-01-03,2,1\n",
            "dates day",
        ),
        ("guess,prob,label\n0,0.7,1\n1,0.8,1\n", None, "expected one column"),
    ],
)
def test_rows_that_may_belong_together_otherwise(tmp_path, predictions, labels, got):
    """Files that share no key are not matched by the numbers of their rows."""
    first, second = tmp_path / "predictions.csv", tmp_path / "labels.csv"
    first.write_text(predictions)
    options = []
    if labels is not None:
        second.write_text(labels)
        options = ["--labels", str(second)]
    with pytest.raises(InputError, match=got):
        load([str(first), *options])


def test_models_in_another_order(tmp_path):
    """Files of models are compared row by row, unless a column says that their orders differ."""
    for name, ids in (("a", "12"), ("b", "21")):
        rows = "".join(f"{i},0.3,1\n" for i in ids)
        (tmp_path / f"{name}.csv").write_text(f"id,prob,label\n{rows}")
    with pytest.raises(InputError, match="order of .* by column id"):
        load([str(tmp_path / "a.csv"), str(tmp_path / "b.csv")])
