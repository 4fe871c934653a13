"""What is drawn of an e-process."""

import numpy as np

from calibjax import plotting
from tests.plotting.examples import WEALTH


def test_curves():
    ax = plotting.e_process_wealth(WEALTH, significance_level=0.01)
    *bets, total, threshold = ax.get_lines()
    assert [x.get_label() for x in bets] == ["shift", "kernels"]
    np.testing.assert_allclose(10 ** total.get_ydata(), np.exp(WEALTH.log_wealth))
    np.testing.assert_allclose(10 ** bets[0].get_ydata(), np.exp(WEALTH.log_wealths["shift"]))
    np.testing.assert_allclose(threshold.get_ydata(), 2)
    np.testing.assert_array_equal(total.get_xdata()[[0, -1]], [1, 99])
