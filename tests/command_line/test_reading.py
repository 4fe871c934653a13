"""The same table from every format, and the columns that names and options choose."""

import io

import numpy as np
import pytest

from calibjax import distributions
from calibjax.command_line import load
from calibjax.command_line.tables import InputError
from tests.command_line.examples import npy, npz, saved

RNG = np.random.default_rng(0)
PROBS = RNG.dirichlet(np.ones(3), 20)
LABELS = RNG.integers(0, 3, 20)
LOC, SCALE, TARGET = RNG.normal(size=(3, 20))
SCALE = np.exp(SCALE)


def csv(names, *columns, separator=",", header=True):
    lines = [separator.join(names)] if header else []
    lines += [separator.join(map(repr, row)) for row in zip(*(x.tolist() for x in columns))]
    return "\n".join(lines) + "\n"


@pytest.fixture
def loaded(tmp_path):
    """Reads a file of this content; options that are bytes become files of their own."""

    def loaded(ending, content, *options):
        path = tmp_path / f"data{ending}"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return load([str(path), *map(str, options)])

    return loaded


def parquet(**columns):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    file = io.BytesIO()
    pytest.importorskip("pyarrow.parquet").write_table(pa.table(columns), file)
    return file.getvalue()


PROB_NAMES = ["prob_0", "prob_1", "prob_2", "label"]
STRUCTURED = np.rec.fromarrays([*PROBS.T, LABELS], names=PROB_NAMES)


@pytest.mark.parametrize(
    ("ending", "content", "options"),
    [
        (".csv", csv(PROB_NAMES, *PROBS.T, LABELS), []),
        (".csv", "\ufeff" + csv(PROB_NAMES, *PROBS.T, LABELS) + "\n\n", []),  # byte order mark
        (".csv", csv(PROB_NAMES, *PROBS.T, LABELS).replace("\n", "\r\n"), []),
        (".csv", csv(["label", "probs.2", "probs.0", "probs.1"], LABELS, *PROBS.T[[2, 0, 1]]), []),
        (".tsv", csv(PROB_NAMES, *PROBS.T, LABELS, separator="\t"), []),
        (".txt", csv(PROB_NAMES, *PROBS.T, LABELS, separator=" "), ["--separator", " "]),
        (".csv", csv([], *PROBS.T, LABELS, header=False), [
            "--task", "classification", "--target", 4]),
        (".csv", csv([], *PROBS.T, LABELS + 5, header=False), [
            "--task", "classification", "--target", 4, "--first-label", 5]),
        (".csv", csv(["a", "b", "c", "y"], *PROBS.T, LABELS), [
            "--task", "classification", "--predictions", "a", "b", "c", "--first-label", 0]),
        (".csv", csv(["0", "1", "2", "y"], *PROBS.T, LABELS), [
            "--task", "classification", "--predictions", "[0-9]", "--header", "yes"]),
        (".csv", csv(PROB_NAMES, *(7 * PROBS.T), LABELS), ["--normalize"]),
        (".npz", npz(prob=PROBS, label=LABELS), []),
        (".npz", saved(np.savez_compressed, probs=PROBS, labels=LABELS), []),
        (".npy", npy(STRUCTURED), []),
        (".npy", npy(np.c_[PROBS, LABELS]), ["--task", "classification", "--target", 4]),
    ],
)  # fmt: skip
def test_classes(ending, content, options, loaded):
    data = loaded(ending, content, *options)
    assert isinstance(data.predictions, distributions.Categorical)
    shuffled = [data.classes.index(x) for x in sorted(data.classes)]
    np.testing.assert_allclose(data.predictions.probs[:, shuffled], PROBS, rtol=1e-15)
    names = np.array(sorted(data.classes))[LABELS]
    assert [data.classes[y] for y in data.targets] == names.tolist()


def test_parquet(loaded):
    content = parquet(
        prob_a=PROBS[:, 0], prob_b=1 - PROBS[:, 0], label=["ab"[y % 2] for y in LABELS]
    )
    data = loaded(".parquet", content)
    assert data.classes == ("a", "b")
    np.testing.assert_array_equal(data.predictions.probs[:, 0], PROBS[:, 0])
    np.testing.assert_array_equal(data.targets, LABELS % 2)


def test_parquet_with_gaps(loaded):
    content = parquet(
        loc=LOC, scale=SCALE, target=[None, *TARGET[1:]], group=[None, *"ab" * 9, "a"]
    )
    with pytest.raises(InputError, match=r"row 0 \(the first is 0\): .* column target, got nan"):
        loaded(".parquet", content)
    data = loaded(".parquet", content, "--skip-missing")
    np.testing.assert_array_equal(data.targets, TARGET[1:])
    assert data.num_skipped == 1
    assert data.groups.tolist() == [*"ab" * 9, "a"]


def test_labels_that_are_names(loaded):
    names = np.array(["cat", "dog", "emu"])[LABELS]
    text = csv(["prob_cat", "prob_dog", "prob_emu", "label"], *PROBS.T, names).replace("'", '"')
    data = loaded(".csv", text)
    assert data.classes == ("cat", "dog", "emu")
    np.testing.assert_array_equal(data.targets, LABELS)


@pytest.mark.parametrize(
    ("names", "labels", "expected"),
    [
        (["01", "02"], ["01", "02", "1", "2.0"], [0, 1, 0, 1]),
        (["1", "01"], ["01", "1"], [1, 0]),  # both as they are written
        (["1", "2"], ["1.0", "02"], [0, 1]),
        (["none", "tumour"], ["none", "tumour"], [0, 1]),  # "none" is not missing here
    ],
)
def test_labels_as_they_are_written(names, labels, expected, loaded):
    rows = "".join(f"0.5,0.5,{label}\n" for label in labels)
    content = f"prob_{names[0]},prob_{names[1]},label\n{rows}"
    for options in ([], ["--skip-missing"]):
        data = loaded(".csv", content, *options)
        assert data.targets.tolist() == expected
        assert data.classes == tuple(names)


def test_label_that_may_be_one_of_two_classes(loaded):
    with pytest.raises(InputError, match=r"row 2: expected one of the labels 1, 01 .* got '1.0'"):
        loaded(".csv", "prob_1,prob_01,label\n0.5,0.5,1.0\n")


def test_missing_label_that_is_no_class(loaded):
    with pytest.raises(InputError, match=r"row 2: expected a value in column label, got 'none'"):
        loaded(".csv", "prob_a,prob_b,label\n0.5,0.5,none\n")


def test_groups_as_they_are_written(loaded):
    groups = ["01", "1", "1e0", "1.0"]
    content = "loc,scale,target,group\n" + "".join(f"0,1,0.5,{group}\n" for group in groups)
    assert loaded(".csv", content).groups.tolist() == groups


def test_labels_count_from_the_name_of_the_first_class(loaded):
    """prob_1 is the probability of label 1, not of the second label."""
    data = loaded(".csv", csv(["prob_1", "prob_2", "prob_3", "label"], *PROBS.T, LABELS + 1))
    assert data.classes == ("1", "2", "3")
    np.testing.assert_array_equal(data.targets, LABELS)


def test_labels_in_a_file_of_their_own(loaded, tmp_path):
    other = tmp_path / "labels.csv"
    other.write_text(csv([], LABELS + 1, header=False))
    content = csv([], *PROBS.T, header=False)
    options = ["--task", "classification", "--labels", other, "--first-label", 1]
    data = loaded(".csv", content, *options)
    np.testing.assert_array_equal(data.targets, LABELS)
    np.testing.assert_array_equal(data.predictions.probs, PROBS)
    assert data.classes == ("1", "2", "3")  # as the file calls them
    other.write_text("1\n2\n")
    with pytest.raises(InputError, match=r"labels.csv: expected 20 rows as in .*, got 2"):
        loaded(".csv", content, *options)
    other.write_text(csv([], LABELS, header=False))
    with pytest.raises(InputError, match=r"labels.csv, row \d+: .* labels 1, 2, 3 .* got '0'"):
        loaded(".csv", content, *options)


@pytest.mark.parametrize(
    "label", [("0", "1"), ("False", "True"), ("false", "true"), ("0.0", "1.0")]
)
def test_binary(label, loaded):
    lines = [f"{p!r},{label[y % 2]}" for p, y in zip(PROBS[:, 0].tolist(), LABELS)]
    data = loaded(".csv", "\n".join(["prob,label", *lines]))
    assert isinstance(data.predictions, distributions.Bernoulli)
    np.testing.assert_array_equal(data.predictions.probs, PROBS[:, 0])
    np.testing.assert_array_equal(data.targets, LABELS % 2)


def test_logits(loaded):
    names = ["logit_0", "logit_1", "logit_2", "label"]
    data = loaded(".csv", csv(names, *np.log(PROBS.T), LABELS))
    np.testing.assert_allclose(data.predictions.class_probs, PROBS, rtol=1e-12)


@pytest.mark.parametrize(
    ("columns", "options", "family"),
    [
        ({"loc": LOC, "scale": SCALE}, [], distributions.Normal),
        ({"loc": LOC, "scale": SCALE}, ["--task", "laplace"], distributions.Laplace),
        ({"df": SCALE + 1, "loc": LOC, "scale": SCALE}, [], distributions.StudentT),
        ({"alpha": SCALE, "beta": SCALE}, [], distributions.Beta),
        ({"rate": SCALE}, [], distributions.Poisson),
        (
            {"mu": LOC, "sigma": SCALE},
            ["--task", "normal", "--predictions", "mu", "sigma"],
            distributions.Normal,
        ),
    ],
)
def test_families(columns, options, family, loaded):
    target = {
        distributions.Beta: PROBS[:, 0],
        distributions.Poisson: LABELS,
    }.get(family, TARGET)
    data = loaded(".csv", csv([*columns, "target"], *columns.values(), target), *options)
    assert type(data.predictions) is family
    assert len(columns) == len(vars(data.predictions))
    for read, given in zip(vars(data.predictions).values(), columns.values()):
        np.testing.assert_array_equal(read, given)
    np.testing.assert_array_equal(data.targets, target)


def test_counts_with_their_mean(loaded):
    data = loaded(".csv", csv(["mean", "concentration", "target"], SCALE, SCALE, LABELS))
    assert isinstance(data.predictions, distributions.NegativeBinomial)


def test_ensembles_and_patterns(loaded):
    members = RNG.normal(size=(20, 4))
    named = loaded(".csv", csv(["member_1", "member_2", "member_3", "member_4", "target"],
                               *members.T, TARGET))  # fmt: skip
    matched = loaded(".csv", csv(["obs", "fc.1", "fc.2", "fc.3", "fc.4"], TARGET, *members.T),
                     "--task", "ensembles", "--target", "obs", "--predictions", "fc.*")  # fmt: skip
    for data in (named, matched):
        np.testing.assert_array_equal(data.predictions.values, members)
        np.testing.assert_array_equal(data.targets, TARGET)


def test_quantiles(loaded):
    quantiles = np.sort(RNG.normal(size=(20, 3)), 1)
    names = ["quantile_0.9", "quantile_0.5", "quantile_0.1", "target"]
    data = loaded(".csv", csv(names, *quantiles.T[::-1], TARGET))
    np.testing.assert_array_equal(data.predictions.levels, [[0.1, 0.5, 0.9]] * 20)
    np.testing.assert_array_equal(data.predictions.values, quantiles)
    options = ["--task", "quantiles", "--target", 4, "--levels", 0.1, 0.5]
    with pytest.raises(InputError, match="--levels: expected 3 levels"):
        loaded(".npy", npy(np.c_[quantiles, TARGET]), *options)
    data = loaded(".npy", npy(np.c_[quantiles, TARGET]), *options, 0.9)
    np.testing.assert_array_equal(data.predictions.values, quantiles)


def test_groups_and_features(loaded):
    names = ["loc", "scale", "target", "group_a", "group_b", "feature_x", "features.y"]
    groups = np.array(["north", "south"])[LABELS % 2]
    columns = [LOC, SCALE, TARGET, groups, LABELS, *PROBS.T[:2]]
    data = loaded(".csv", csv(names, *columns).replace("'", ""))
    np.testing.assert_array_equal(data.features, PROBS[:, :2])
    assert data.group_names[:3] == ("group_a = north", "group_a = south", "group_b = 0")
    np.testing.assert_array_equal(data.groups[:, 1], LABELS % 2)
    np.testing.assert_array_equal(data.groups[:, 2], LABELS == 0)
    one = loaded(".csv", csv(names, *columns).replace("'", ""), "--groups", "group_a")
    assert one.groups.tolist() == groups.tolist()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ["--target", "y"],
            r"expected a column y \(--target\), got columns loc .*, target",
        ),
        (["--groups", "g*"], r"expected a column g\* \(--groups\)"),
        (["--predictions", "loc", "scale"], "--predictions: expected --task, too"),
        (["--task", "normal", "--predictions", "loc", "loc"], "got loc twice"),
        (["--task", "normal", "--predictions", "loc", "target"], "columns beside the target"),
        (["--task", "normal", "--predictions", "loc"], "expected 2 columns of predictions"),
        (["--task", "classification"], r"expected columns as --help says \(classification\)"),
        (["--first-label", "1"], "--first-label: expected the task classification or logits"),
        (["--normalize"], "--normalize: expected the task classification"),
        (["--levels", "0.5"], "--levels: expected the task quantiles"),
    ],
)
def test_options_that_do_not_fit(options, expected, loaded):
    with pytest.raises(InputError, match=expected):
        loaded(".csv", csv(["loc", "scale", "target"], LOC, SCALE, TARGET), *options)


def test_infinite_quantiles(loaded):
    """Conformal methods write them; other columns are finite."""
    data = loaded(".csv", "quantile_0.1,quantile_0.9,target\n-inf,2,1\n0,Inf,1\n")
    np.testing.assert_array_equal(data.predictions.values, [[-np.inf, 2], [0, np.inf]])
    with pytest.raises(InputError, match="expected a finite number in column quantile_0.9"):
        loaded(".csv", "quantile_0.1,quantile_0.9,target\n-inf,nan,1\n0,inf,1\n")
    with pytest.raises(InputError, match="expected a finite number in column target"):
        loaded(".csv", "quantile_0.1,quantile_0.9,target\n-inf,2,1\n0,inf,inf\n")
