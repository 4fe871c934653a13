import numpy as np
import pytest
from matplotlib.colors import to_hex

from calibjax import plotting
from calibjax.plotting.figures import RED
from tests.plotting.examples import HISTOGRAM, INTERVALS, QUANTILES
from tests.plotting.test_histograms import lines

LEVELS = np.array([0.2, 0.5, 0.8])


def band(ax):
    """Corners of the band, as x and its lower and upper ends."""
    (area,) = ax.collections
    corners = area.get_paths()[0].vertices
    return {
        x: (corners[corners[:, 0] == x, 1].min(), corners[corners[:, 0] == x, 1].max())
        for x in LEVELS
    }


def test_bars_and_their_band():
    ax = plotting.pit_histogram(HISTOGRAM)
    inside, outside = ax.containers
    assert (inside.get_label(), outside.get_label()) == ("observed", "outside the band")
    places = [(bar.get_x(), bar.get_width(), bar.get_height()) for bar in inside]
    assert places == [(0.25, 0.25, 4), (0.5, 0.25, 5), (0.75, 0.25, 2)]
    assert [(bar.get_x(), bar.get_height()) for bar in outside] == [(0, 9)]
    assert to_hex(outside[0].get_facecolor()) == RED
    assert outside[0].get_hatch()
    (steps,) = (x for x in ax.patches if x.get_label() == "90 % band: all bins")
    np.testing.assert_array_equal(steps.get_data().values, HISTOGRAM.simultaneous_upper)
    np.testing.assert_array_equal(steps.get_data().baseline, HISTOGRAM.simultaneous_lower)
    np.testing.assert_array_equal(lines(ax)["uniform"].get_ydata(), [5, 5])
    assert len(ax.figure.legends[0].texts) == 4


@pytest.mark.parametrize(
    ("draw", "curve", "baseline"),
    [
        (plotting.pit_ecdf, QUANTILES, LEVELS),
        (plotting.coverage_curve, INTERVALS, 0 * LEVELS),
        (plotting.coverage_curve, QUANTILES, 0 * LEVELS),
    ],
)
def test_points_around_their_band(draw, curve, baseline):
    ax = draw(curve)
    drawn = lines(ax)
    expected = np.stack([LEVELS, curve.coverage - baseline], 1)
    np.testing.assert_allclose(drawn["observed"].get_xydata(), expected[:2])
    np.testing.assert_allclose(drawn["outside the band"].get_xydata(), expected[2:])
    assert to_hex(drawn["outside the band"].get_color()) == RED
    found = band(ax)
    lower, upper = curve.simultaneous_lower - baseline, curve.simultaneous_upper - baseline
    np.testing.assert_allclose([found[x] for x in LEVELS], np.stack([lower, upper], 1))
    diagonal = drawn["calibrated"].get_ydata()
    np.testing.assert_array_equal(diagonal, [0, 0] if draw is plotting.pit_ecdf else [0, 1])


def test_intervals_have_no_ecdf():
    with pytest.raises(TypeError, match="curve: expected a curve of kind"):
        plotting.pit_ecdf(INTERVALS)
