import numpy as np
import pytest
from scipy.special import log_softmax

from experiments import recalibration_table as table

LOGITS = np.random.default_rng(0).normal(size=(6, 3))
LABELS = np.array([0, 1, 2, 0, 1, 2])


def test_losses():
    logs = log_softmax(LOGITS, 1)
    brier = np.sum((np.exp(logs) - np.eye(3)[LABELS]) ** 2, 1)
    expected = [-logs[np.arange(6), LABELS], brier]
    np.testing.assert_allclose(table.losses(LOGITS, LABELS), expected, rtol=1e-5)


def test_row():
    losses = table.losses(LOGITS, LABELS)
    better = losses - np.array([[0.1], [0.2]])
    one, other = {"none": losses, "full": better, "temperature": better}, {"none": losses}
    line = table.row("name", 6, 3, [one, other | {"full": losses + 0.05}])
    assert line["log loss"] == pytest.approx(losses[0].mean())
    assert line["full"] == "-25.0 ± 0.0"
    assert line["temperature, Brier"] == "-100.0 ± 0.0"
    assert line["probmetrics"] is None
    assert line["worst"] == "+50.0"
