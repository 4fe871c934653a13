import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.colors import to_hex

from calibjax import plotting
from calibjax.plotting.figures import CURVE_COLORS
from tests.plotting.test_histograms import lines, size_of_png

X = np.logspace(-3, 2, 12)
RUNS = np.random.default_rng(0).random((5, 12))
CURVES = {"original": RUNS[0], "LoRe": jnp.asarray(RUNS), "HB": RUNS[:1].astype(np.float32)}


def test_means_and_bands_over_bandwidths():
    ax = plotting.bandwidth_curves(jnp.asarray(X), CURVES, ylabel="mean LCE")
    drawn = lines(ax)
    assert list(drawn) == list(CURVES)
    for name, mean in (("original", RUNS[0]), ("LoRe", RUNS.mean(0)), ("HB", RUNS[0])):
        np.testing.assert_allclose(drawn[name].get_xdata(), X)
        np.testing.assert_allclose(drawn[name].get_ydata(), mean, rtol=1e-6)
    (band,) = ax.collections
    assert to_hex(band.get_facecolor()[0]) == to_hex(drawn["LoRe"].get_color())
    ends = band.get_paths()[0].vertices
    half = np.std(RUNS, 0, ddof=1)
    for end in (RUNS.mean(0) - half, RUNS.mean(0) + half):
        for point in zip(X, end):
            assert np.isclose(ends, point, rtol=1e-6, atol=1e-7).all(1).any()
    assert ax.get_xscale() == "log"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("length scale of the kernel", "mean LCE")
    assert len(ax.figure.legends[0].texts) == 3
    assert size_of_png(ax) > 5000


def test_rewards():
    ax = plotting.reward_curves(1 + X, {"LoRe": RUNS - 0.5})
    np.testing.assert_array_equal(lines(ax)["original"].get_ydata(), 0)
    np.testing.assert_allclose(lines(ax)["LoRe"].get_ydata(), RUNS.mean(0) - 0.5)
    assert ax.get_xlabel() == "cost of an error / cost of “unsure”, w/u"
    assert ax.get_ylabel() == "improvement of the reward, per sample"


def test_nine_methods_have_nine_colours():
    ax = plotting.bandwidth_curves(X, {str(k): RUNS[0] + k for k in range(9)})
    assert len({to_hex(line.get_color()) for line in ax.lines}) == 9 == len(CURVE_COLORS)


@pytest.mark.parametrize(
    ("x", "curves", "error", "message"),
    [
        (X[None], CURVES, ValueError, r"length_scales: expected shape \[G\]"),
        (X - X[0], CURVES, ValueError, r"length_scales: expected positive .* got length_scales\[0"),
        (X * np.nan, CURVES, ValueError, "length_scales: expected finite"),
        (X[:0], CURVES, ValueError, "length_scales: expected at least 1"),
        ([], CURVES, TypeError, "length_scales: expected an array or a number, got an empty list"),
        (X, RUNS, TypeError, "curves: expected a dict of names and arrays, got ndarray"),
        (X, {}, ValueError, r"len\(curves\): expected an integer between 1 and 9, got 0"),
        (X, {k: RUNS for k in range(10)}, ValueError, r"len\(curves\): .* between 1 and 9, got 10"),
        (
            X,
            {"HB": RUNS[:, 1:]},
            ValueError,
            r"curves\['HB'\]: expected shape \(12,\) or \[runs, 12\], got \(5, 11\)",
        ),
        (X, {"HB": RUNS[:0]}, ValueError, r"curves\['HB'\]: expected at least 1 sample"),
        (X, {"HB": RUNS * np.nan}, ValueError, r"curves\['HB'\]: expected finite values"),
    ],
)
def test_wrong_curves(x, curves, error, message):
    with pytest.raises(error, match=message):
        plotting.bandwidth_curves(x, curves)


def test_wrong_ratios():
    with pytest.raises(ValueError, match=r"ratios: expected values of at least 1, got ratios\[0\]"):
        plotting.reward_curves(X, CURVES)
    with pytest.raises(ValueError, match=r"ratios: expected shape \[r\]"):
        plotting.reward_curves(RUNS + 1, CURVES)
    with pytest.raises(TypeError, match="ax: expected a matplotlib Axes or None, got int"):
        plotting.reward_curves(1 + X, CURVES, ax=3)
