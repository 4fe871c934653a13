import dataclasses

import numpy as np
import pytest

from calibjax import plotting
from tests.plotting.examples import DECOMPOSED, DECOMPOSITION, ONE


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


@pytest.mark.parametrize(
    ("decomposition", "options", "error", "message"),
    [
        (ONE, {}, TypeError, "decomposition: expected what scores.brier_decomposition returns"),
        (0.3, {}, TypeError, "decomposition: expected what scores.brier_decomposition returns"),
        (
            DECOMPOSED,
            {"confidence_level": 0.99},
            ValueError,
            "num_draws: expected at least 199 redraws",
        ),
        (DECOMPOSED.null_samples, {}, ValueError, r"decomposition.score: expected shape \(\)"),
        (
            dataclasses.replace(DECOMPOSITION, score=np.float64(np.nan)),
            {},
            ValueError,
            "decomposition.score: expected finite",
        ),
    ],
)
def test_wrong_input(decomposition, options, error, message):
    with pytest.raises(error, match=message):
        plotting.score_decomposition(decomposition, **options)
