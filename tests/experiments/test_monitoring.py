"""Streams that drift, and the lines of the table."""

import jax
import numpy as np
import pytest

from experiments import monitoring


@pytest.mark.parametrize("family", monitoring.BETS)
def test_streams_are_calibrated_until_the_change(family):
    key = jax.random.key(3)
    predictions, targets = monitoring.stream(family, "abrupt", key)
    residuals = np.asarray(monitoring.residuals(predictions, targets))
    before, after = residuals[: monitoring.CHANGE], residuals[monitoring.CHANGE :]
    assert abs(before.mean()) < 3 / np.sqrt(len(before))
    assert abs(np.mean(before**2) - 1) < 0.25
    assert abs(after.mean()) > 4 / np.sqrt(len(after))


def test_rows():
    first, second = monitoring.rows_of("normals", "abrupt", {"a": [0, 900, 1050, 1100], "b": [5]})
    assert (first["alarm before 1000"], first["median delay"]) == (0.25, 100)
    assert first["alarm after, of the others"] == pytest.approx(2 / 3)
    assert np.isnan(second["median delay"])
