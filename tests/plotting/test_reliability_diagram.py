import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.colors import to_hex

from calibjax import plotting
from calibjax.estimators.curves import ReliabilityCurve
from calibjax.plotting.figures import BLACK, RED
from tests.plotting.test_histograms import lines, size_of_png

COUNTS = np.array([30, 10, 20, 0])
CURVE = ReliabilityCurve(
    counts=COUNTS,
    confidence=np.array([0.1, 0.5, 0.8, 0]),
    frequency=np.array([0.1, 0.9, 0.1, 0]),
    pointwise_lower=np.array([0.0, 0.3, 0.7, 0]),
    pointwise_upper=np.array([0.2, 0.8, 0.9, 0]),
    simultaneous_lower=np.array([0.0, 0.1, 0.6, 0]),
    simultaneous_upper=np.array([0.3, 0.9, 1.0, 0]),
    confidence_level=0.95,
)
CURVES = {"NumPy": CURVE, "JAX": jax.tree.map(jnp.asarray, CURVE)}


def bars(ax):
    """Labels of the bars and their x, lower and upper ends, [number of bars, 3]."""
    ends = {}
    for collection in ax.collections:
        segments = np.array(collection.get_segments())
        np.testing.assert_array_equal(segments[:, 0, 0], segments[:, 1, 0])
        ends[collection.get_label()] = np.c_[segments[:, 0, 0], segments[:, :, 1]]
    return ends


@pytest.mark.parametrize("kind", CURVES)
def test_bands_and_frequencies(kind):
    ax = plotting.reliability_diagram(CURVES[kind])
    ends = bars(ax)
    for label, band in (
        ("95 % band: all bins", "simultaneous"),
        ("95 % band: each bin", "pointwise"),
    ):
        columns = [
            CURVE.confidence,
            getattr(CURVE, f"{band}_lower"),
            getattr(CURVE, f"{band}_upper"),
        ]
        np.testing.assert_allclose(ends.pop(label), np.stack(columns, -1)[:3], rtol=1e-6)
    assert not ends
    drawn = lines(ax)
    np.testing.assert_allclose(drawn["observed"].get_xydata(), [[0.1, 0.1], [0.5, 0.9]], rtol=1e-6)
    outside = drawn["outside the band of all bins"]
    np.testing.assert_allclose(outside.get_xydata(), [[0.8, 0.1]], rtol=1e-6)
    assert to_hex(outside.get_color()) == RED
    assert to_hex(drawn["observed"].get_color()) == BLACK
    np.testing.assert_array_equal(drawn["calibrated"].get_xydata(), [[0, 0], [1, 1]])
    assert len(ax.figure.legends[0].texts) == 5
    assert size_of_png(ax) > 10_000


def test_counts_below_the_diagram():
    ax = plotting.reliability_diagram(CURVE)
    (panel,) = ax.child_axes
    expected = [[0.1, 0, 30], [0.5, 0, 10], [0.8, 0, 20]]
    np.testing.assert_array_equal(bars(panel)["samples"], expected)
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("predicted probability", "samples")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("", "observed frequency")
    assert panel.get_xlim() == ax.get_xlim()


def test_curves_of_several_data_sets():
    with pytest.raises(ValueError, match=r"curve.counts: expected shape \[K\], of one data set"):
        plotting.reliability_diagram(jax.tree.map(lambda x: x[None], CURVE))
