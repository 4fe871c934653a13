import numpy as np

from calibjax import plotting
from tests.plotting.examples import DECOMPOSED, DECOMPOSITION


def test_bars_are_the_parts():
    ax = plotting.score_decomposition(DECOMPOSITION, ylabel="CRPS (°C)")
    assert [bar.get_height() for bar in ax.patches] == [0.3, 0.1, 0.25, 0.45]
    assert [text.get_text() for text in ax.texts] == ["0.3", "0.1", "0.25", "0.45"]
    assert ax.get_ylabel() == "CRPS (°C)"
    assert len(ax.containers) == 1  # no intervals without draws


def test_intervals_are_order_statistics_of_the_draws():
    ax = plotting.score_decomposition(DECOMPOSED, confidence_level=0.8)
    (intervals,) = ax.containers[1].lines[2]
    ends = np.array(intervals.get_segments())[:, :, 1]
    draws = np.sort(np.asarray(DECOMPOSED.null_samples.score))
    # Of 99 draws, 10 % of 100 are beyond each end, or on it.
    np.testing.assert_allclose(ends, np.tile([draws[9], draws[-10]], (4, 1)), rtol=1e-6)
