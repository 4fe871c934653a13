import jax
import numpy as np
import pytest
import scipy.special

from experiments import calibration_errors as study


@pytest.mark.parametrize("error", study.ERRORS)
def test_truth_and_labels(error):
    """Errors of three classes from their formulas, and labels that have these frequencies."""
    predictions, labels, truth = map(
        np.asarray, jax.tree.leaves(study.draw(jax.random.key(0), (error, 3, 4000)))
    )
    p = scipy.special.softmax(predictions, 1)
    if error == "not logistic":
        expected = np.where(p.argmax(1)[:, None] % 2, p, (p + p[:, [2, 0, 1]]) / 2)
    else:
        powers = {"temperature": 1 / 1.5, "sharp": 0.5, "blunt": 2, "biased": 1}
        expected = p ** powers[error] * (np.exp(np.cos(range(3))) if error == "biased" else 1)
        expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(truth, expected, rtol=1e-3, atol=1e-6)
    squares = np.mean(np.sum((p - truth) ** 2, 1))
    np.testing.assert_allclose(study.true_error((error, 3, 1), 4), squares, rtol=0.15)
    hits = np.eye(3)[labels] - truth
    assert np.all(np.abs(hits.mean(0)) < 4 * hits.std(0) / np.sqrt(4000))


def test_row():
    """Of two data sets: the function of the smallest risk is another one in each."""
    risks = np.array([[1.0, 2, 3, 4, 5], [2, 1, 3, 4, 5]])
    errors = np.array([[0.02, 0, 0, 0, 0], [0, 0.04, 0, 0, 0]])
    row = study.row_of(("sharp", 3, 10), 0.01, risks, errors)
    np.testing.assert_allclose(row["temperature: bias"], 0)
    np.testing.assert_allclose(row["temperature: rmse"], 10)
    np.testing.assert_allclose(row["chosen: rmse"], np.sqrt((10**2 + 30**2) / 2))
    assert row["by risk"] == "temperature 1, vector 1"
    np.testing.assert_allclose(row["rmse / best"], np.sqrt(5))
    assert not row["met"]
