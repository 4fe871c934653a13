"""Predictions as plain arrays, and groups: what they are read as, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax
from calibjax import distributions, scores
from calibjax.evaluation.data import checked_groups, read_plainly

PROBS = np.array([0.1, 0.5, 1.0])
ROWS = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.1, 0.1, 0.8]])
LABELS = np.array([0, 1, 1])


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray, np.float32, list])
def test_probabilities(kind):
    found, how = read_plainly(kind(PROBS), LABELS)
    assert how == "distributions.Bernoulli(predictions)"
    np.testing.assert_allclose(found.probs, PROBS, rtol=1e-6)
    found, how = read_plainly(kind(ROWS), LABELS)
    assert how == "distributions.Categorical(predictions)"
    np.testing.assert_allclose(found.probs, ROWS, rtol=1e-6)


@pytest.mark.parametrize("tiny", [1e-60, 1e-300])
def test_logarithms_of_float64_are_taken_before_it_is_rounded(tiny):
    probs = np.array([tiny, 0.5, 0.5])
    for values in (probs, np.stack([1 - probs, probs], 1)):
        score = scores.negative_log_likelihood(read_plainly(values, LABELS[::-1])[0], LABELS[::-1])
        np.testing.assert_allclose(score, (2 * np.log(2) - np.log(tiny)) / 3, rtol=1e-6)


def test_half_precision_is_left_to_the_family():
    rows = np.array([[1 / 3, 1 / 3, 1 / 3], [0.1, 0.2, 0.7], [0.2, 0.2, 0.6]], np.float16)
    assert read_plainly(rows, LABELS)[1] == "distributions.Categorical(predictions)"


def test_distributions_and_truth_values():
    predictions = distributions.Bernoulli(PROBS)
    assert read_plainly(predictions, LABELS) == (predictions, "")
    found, how = read_plainly(PROBS, LABELS == 1)
    assert how == "distributions.Bernoulli(predictions)"
    score = scores.brier_score(found, LABELS == 1)
    np.testing.assert_allclose(score, scores.brier_score(found, LABELS))


@pytest.mark.parametrize(
    ("predictions", "targets", "error", "told"),
    [
        (PROBS, np.array([0, 1, 2]), ValueError, r"got float64\[3\], with targets int64\[3\]; say"),
        (
            PROBS,
            np.array([0.0, 0.5, 1.0]),
            ValueError,
            r"with targets float64\[3\]; say what it is",
        ),
        (PROBS, ROWS, ValueError, r"with targets float64\[3, 3\]; say what it is"),
        (100 * PROBS, LABELS, ValueError, "divide percentages by 100"),
        (100 * ROWS, LABELS, ValueError, "divide percentages by 100"),
        (3e3 * PROBS, LABELS, ValueError, r"say what it is by distributions.Bernoulli\(probs\)"),
        (PROBS - 3, LABELS, ValueError, r"of logits make distributions.Bernoulli\(jax.nn.sigm"),
        (9 * ROWS - 5, LABELS, ValueError, r"of logits make distributions.CategoricalLogits\(l"),
        (np.array([0.5, np.nan, 1]), LABELS, ValueError, "leave out rows with NaN"),
        (PROBS[:, None], LABELS, ValueError, r"pass predictions\[:, 0\]"),
        ([ROWS, ROWS], LABELS, TypeError, "a list of arrays, as of several outputs: evaluate one"),
        (ROWS[None], LABELS, TypeError, r"got float64\[1, 3, 3\], with .*; say what it is"),
        (LABELS, LABELS, TypeError, r"got int64\[3\], with .*; say what it is"),
    ],
)
def test_what_may_be_something_else_is_refused(predictions, targets, error, told):
    with pytest.raises(error, match=rf"^predictions: expected a batch of distributions, .*{told}"):
        read_plainly(predictions, targets)


@pytest.mark.parametrize(
    ("predictions", "targets", "error", "told"),
    [
        (PROBS, np.array([-1, 1, 1]), ValueError, r"got -1 and 1; pass \(targets \+ 1\) // 2"),
        (PROBS, np.array([0, np.nan, 1]), ValueError, "got NaN; leave out these rows"),
        (ROWS, np.array([0, np.nan, 1]), ValueError, "got NaN; leave out these rows"),
        (ROWS, np.array(["a", "b", "a"]), TypeError, "label_indices"),
        (PROBS, np.array(["a", "b", "a"]), TypeError, "label_indices"),
        (ROWS, np.eye(3), ValueError, "argmax"),
        (ROWS, np.array([0.5, 1.0, 1.0]), ValueError, "integer class labels"),
    ],
)
def test_labels_that_are_refused(predictions, targets, error, told):
    repeated = np.repeat(predictions, 5, 0), np.repeat(targets, 5, 0)
    with pytest.raises(error, match=f"^targets: .*{told}"):
        calibjax.evaluate(jax.random.key(0), *repeated)


def test_rows_that_do_not_sum_to_one():
    rows = np.repeat(0.999 * ROWS, 5, 0)
    with pytest.raises(ValueError, match=r"^predictions.probs.*: expected rows that sum to one"):
        calibjax.evaluate(jax.random.key(0), rows, np.repeat(LABELS, 5))


def test_groups_by_names_and_by_memberships():
    memberships, names = checked_groups(["b", "a", "b"], 3)
    assert names == ("group a", "group b")
    np.testing.assert_array_equal(memberships, [[0, 1], [1, 0], [0, 1]])
    for integers in (["10", "2", "1"], [10, 2, 1], [*np.array([10, 2, 1])]):
        assert checked_groups(integers, 3)[1] == ("group 1", "group 2", "group 10")
    given = np.array([[1, 0.5], [0, 1], [1, 1]])
    memberships, names = checked_groups(given, 3)
    assert names == ("group 0", "group 1")
    np.testing.assert_array_equal(memberships, given)


def test_columns_of_a_table_name_the_groups():
    """Two columns both have a 2, which are not the same group."""
    pandas = pytest.importorskip("pandas")
    columns = {"sex": ["f", "m", "f"], "ward": [2, 1, 2], "old": [0.0, 1.0, 1.0]}
    arrays = {name: np.array(column) for name, column in columns.items()}
    for table in (columns, arrays, pandas.DataFrame(columns)):
        memberships, names = checked_groups(table, 3)
        assert names == ("sex = f", "sex = m", "ward = 1", "ward = 2", "old")
        expected = [[1, 0, 0, 1, 0], [0, 1, 1, 0, 1], [1, 0, 0, 1, 1]]
        np.testing.assert_array_equal(memberships, expected)
    with pytest.raises(ValueError, match=r"^groups: expected shape \[n\]"):
        checked_groups({"sex": ["f", "m"]}, 3)
    with pytest.raises(ValueError, match=r"^groups: expected shape \[n\]"):
        checked_groups({}, 3)


@pytest.mark.parametrize("missing", [None, np.nan, "pandas"])
def test_groups_that_are_missing(missing):
    if missing == "pandas":
        missing = pytest.importorskip("pandas").NA
    for others in (["a", "b"], [1, 2]):
        groups = [*others, missing]
        for given in (groups, np.array(groups, object)):
            told = "in row 2; give these rows a group of their own"
            with pytest.raises(ValueError, match=f"^groups: expected integers .*{told}"):
                checked_groups(given, 3)


def test_groups_that_are_no_groups():
    with pytest.raises(TypeError, match="continuously have to be cut into intervals"):
        checked_groups(np.array([0.5, 0.1, 0.2]), 3)
    for shape in ((2,), (3, 2, 2)):
        with pytest.raises(ValueError, match=r"^groups: expected shape \[n\] or \[n, G\]"):
            checked_groups(np.zeros(shape, int), 3)
