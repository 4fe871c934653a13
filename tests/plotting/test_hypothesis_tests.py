import dataclasses

import numpy as np
import pytest

from calibjax import plotting
from calibjax.hypothesis_tests import Component
from tests.plotting.examples import DECOMPOSED, DRAWS, GROUPS, ONE
from tests.plotting.test_histograms import lines


def test_draws_and_the_observed_statistic():
    ax = plotting.null_distribution(ONE, bins=7, xlabel="mean")
    heights, edges = np.histogram(DRAWS, 7)
    np.testing.assert_array_equal(ax.patches[0].get_data().values, heights)
    np.testing.assert_allclose(ax.patches[0].get_data().edges, edges)
    np.testing.assert_array_equal(lines(ax)["observed, p = 0.02"].get_xdata(), 2.5)
    assert ax.get_xlabel() == "mean"
    component = Component(np.float64(-1.0), np.float64(-1.0), np.float64(0.3), DRAWS)
    ax = plotting.null_distribution(component)
    np.testing.assert_array_equal(lines(ax)["observed, p = 0.3"].get_xdata(), -1.0)


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (DRAWS, TypeError, "result: expected a CalibrationTestResult .*, got ndarray"),
        (dataclasses.replace(ONE, null_samples=None), ValueError, "not a simulated test"),
        (GROUPS, ValueError, r"result.statistic: expected shape \(\), of one statistic"),
        (DECOMPOSED, ValueError, "result.statistic: expected one statistic, got ScoreDecomp"),
        (dataclasses.replace(ONE, statistic=np.float64(np.nan)), ValueError, "expected finite"),
    ],
)
def test_tests_without_one_null_distribution(result, error, message):
    with pytest.raises(error, match=message):
        plotting.null_distribution(result)
