import dataclasses

import numpy as np
import pytest

from calibjax import plotting
from calibjax.hypothesis_tests.components import Component
from tests.plotting.examples import (
    DECOMPOSED,
    DECOMPOSITION,
    DRAWS,
    GROUPS,
    INTERVALS,
    ONE,
    QUANTILES,
    WEALTH,
)
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


@pytest.mark.parametrize("result", [dataclasses.replace(ONE, null_samples=None), GROUPS])
def test_tests_without_one_null_distribution(result):
    with pytest.raises(ValueError, match="result: expected draws of one statistic"):
        plotting.null_distribution(result)


def test_rejection_rates_are_shares_of_small_pvalues():
    pvalues = np.random.default_rng(0).random(40)
    ax = plotting.pvalue_ecdf({"exact": pvalues, "CME": pvalues**2}, band=QUANTILES)
    for name, values in (("exact", pvalues), ("CME", pvalues**2)):
        line = lines(ax)[name]
        assert line.get_drawstyle() == "steps-post"
        levels, rates = line.get_data()
        for level, rate in zip(levels[1:-1], rates[1:-1]):
            assert rate == np.mean(values <= level)
        assert (rates[0], rates[-1]) == (0, 1)
    styles = {lines(ax)[name].get_linestyle() for name in ("exact", "CME")}
    assert len(styles) == 2
    assert ax.collections[0].get_label() == "90 % band of uniform p-values"
    corners = ax.collections[0].get_paths()[0].vertices
    assert {tuple(x) for x in corners} >= {(0.2, 0.1), (0.2, 0.4), (0.8, 0.7), (0.8, 0.9)}


def test_at_most_nine_colours_and_the_right_band():
    pvalues = {str(i): np.ones(1) for i in range(10)}
    with pytest.raises(ValueError, match=r"len\(pvalues\): expected an integer between 1 and 9"):
        plotting.pvalue_ecdf(pvalues)
    with pytest.raises(TypeError, match="band: expected a curve of kind"):
        plotting.pvalue_ecdf({"a": np.ones(1)}, band=INTERVALS)


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


def test_wealth_of_all_bets():
    ax = plotting.e_process_wealth(WEALTH, significance_level=0.01)
    *bets, total, threshold = ax.get_lines()
    assert [x.get_label() for x in bets] == ["shift", "kernels"]
    np.testing.assert_allclose(10 ** total.get_ydata(), np.exp(WEALTH.log_wealth))
    np.testing.assert_allclose(10 ** bets[0].get_ydata(), np.exp(WEALTH.log_wealths["shift"]))
    np.testing.assert_allclose(threshold.get_ydata(), 2)
    np.testing.assert_array_equal(total.get_xdata()[[0, -1]], [1, 99])
