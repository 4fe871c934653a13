"""Predictions as plain arrays: what they are read as, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax
from calibjax import distributions, scores
from calibjax.evaluation.data import read_plainly

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
    score = scores.negative_log_likelihood(read_plainly(probs, LABELS[::-1])[0], LABELS[::-1])
    np.testing.assert_allclose(score, (2 * np.log(2) - np.log(tiny)) / 3, rtol=1e-6)
    rows = np.stack([1 - probs, probs], 1)
    score = scores.negative_log_likelihood(read_plainly(rows, LABELS[::-1])[0], LABELS[::-1])
    np.testing.assert_allclose(score, (2 * np.log(2) - np.log(tiny)) / 3, rtol=1e-6)


def test_half_precision_is_left_to_the_family():
    rows = np.array([[1 / 3, 1 / 3, 1 / 3], [0.1, 0.2, 0.7], [0.2, 0.2, 0.6]], np.float16)
    assert read_plainly(rows, LABELS)[1] == "distributions.Categorical(predictions)"


def test_distributions_stay_as_they_are():
    predictions = distributions.Bernoulli(PROBS)
    assert read_plainly(predictions, LABELS) == (predictions, "")


@pytest.mark.parametrize(
    ("predictions", "targets", "error", "got"),
    [
        (PROBS, np.array([0, 1, 2]), ValueError, r"got float64\[3\], with targets int64\[3\]"),
        (PROBS, np.array([0.0, 0.5, 1.0]), ValueError, r"with targets float64\[3\]"),
        (PROBS, ROWS, ValueError, r"with targets float64\[3, 3\]"),
        (3 * PROBS, LABELS, ValueError, r"float64\[3\]"),
        (-PROBS, LABELS, ValueError, r"float64\[3\]"),
        (np.full(3, np.nan), LABELS, ValueError, r"float64\[3\]"),
        (ROWS - 1, LABELS, ValueError, r"float64\[3, 3\]"),
        (PROBS[:, None], LABELS, ValueError, r"float64\[3, 1\]"),
        (ROWS[None], LABELS, TypeError, r"float64\[1, 3, 3\]"),
        (LABELS, LABELS, TypeError, r"int64\[3\]"),
    ],
)
def test_what_may_be_something_else_is_refused(predictions, targets, error, got):
    with pytest.raises(error, match=rf"^predictions: expected a batch .*{got}.*Bernoulli\(probs\)"):
        read_plainly(predictions, targets)


@pytest.mark.parametrize(
    ("predictions", "targets", "error", "told"),
    [
        (ROWS, np.array(["a", "b", "a"]), TypeError, "label_indices"),
        (PROBS, np.array(["a", "b", "a"]), TypeError, "label_indices"),
        (ROWS, np.eye(3), ValueError, "argmax"),
        (ROWS, np.array([0.5, 1.0, 1.0]), ValueError, "integer class labels"),
    ],
)
def test_labels_are_refused_as_those_of_the_family(predictions, targets, error, told):
    repeated = np.repeat(predictions, 5, 0), np.repeat(targets, 5, 0)
    with pytest.raises(error, match=f"^targets: .*{told}"):
        calibjax.evaluate(jax.random.key(0), *repeated)


def test_truth_values_are_labels():
    found, how = read_plainly(PROBS, LABELS == 1)
    assert how == "distributions.Bernoulli(predictions)"
    score = scores.brier_score(found, LABELS == 1)
    np.testing.assert_allclose(score, scores.brier_score(found, LABELS))
