import dataclasses

import numpy as np
import pytest
from matplotlib.figure import Figure

from calibjax import plotting
from tests.plotting.examples import AT, GROUPS, LOCATIONS


def texts(ax):
    return {text.get_position(): text for text in ax.texts}


def test_cells_hold_errors_and_standard_errors():
    ax = plotting.group_errors(GROUPS, groups=["old", "young"], residuals=["A", "B"])
    np.testing.assert_array_equal(ax.images[0].get_array(), GROUPS.estimate)
    assert ax.images[0].get_clim() == (-0.4, 0.4)
    # Positions are (column, row); 0.045 is a typical standard error, of which two digits are shown.
    assert {k: v.get_text() for k, v in texts(ax).items()} == {
        (0, 0): "-0.200\n± 0.050",
        (1, 0): "+0.010\n± 0.020",
        (0, 1): "+0.030\n± 0.040",
        (1, 1): "+0.400\n± 0.100",
    }
    framed = {(round(x.get_x() + 0.48), round(x.get_y() + 0.46)) for x in ax.patches}
    bold = {place for place, text in texts(ax).items() if text.get_fontweight() == "bold"}
    assert framed == bold == {(0, 0), (1, 1)}
    assert [x.get_text() for x in ax.get_yticklabels()] == ["old", "young"]
    assert [x.get_text() for x in ax.get_xticklabels()] == ["A", "B"]
    assert ax.figure.legends[0].texts[0].get_text() == "adjusted p ≤ 0.05"


def test_other_maps_refuse_groups():
    """Even where their number is that of the locations."""
    groups = dataclasses.replace(LOCATIONS, entries="groups")
    with pytest.raises(TypeError, match="result: expected a test of locations, got one of g"):
        plotting.witness_map(groups, *AT, ax=Figure().subplots())
