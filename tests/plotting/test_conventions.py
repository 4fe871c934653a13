"""What all figures have in common."""

import pathlib
import re

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibjax import plotting
from tests.plotting.examples import CALLS, drawn
from tests.plotting.test_histograms import size_of_png

FOLDER = pathlib.Path(plotting.__file__).parent


def test_every_function_has_an_example():
    assert CALLS.keys() ^ set(plotting.__all__) == set(), "expected a call in examples.py"


@pytest.mark.parametrize("name", CALLS)
def test_new_and_given_axes(name):
    new = drawn(name)
    assert isinstance(new, Axes)
    assert size_of_png(new) > 3000
    figure = Figure(layout="constrained")
    left, right = figure.subplots(1, 2)
    assert drawn(name, ax=right) is right
    assert not figure.legends
    assert not left.has_data()
    size_of_png(right)


@pytest.mark.parametrize("name", CALLS)
def test_axes_are_labelled_and_no_text_is_cut_off(name):
    ax = drawn(name)
    ax.figure.draw_without_rendering()
    assert ax.get_ylabel() or name == "group_errors"  # whose rows may have names
    (width, height) = ax.figure.canvas.get_width_height()
    texts = [ax.title, ax.xaxis.label, ax.yaxis.label]
    texts += [x for legend in ax.figure.legends for x in legend.texts]
    for text in (x for x in texts if x.get_text()):
        box = text.get_window_extent()
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= width + 1, text
        assert box.y1 <= height + 1, text


def test_colours_are_in_one_place():
    for path in FOLDER.glob("*.py"):
        if path.name != "figures.py":
            text = path.read_text(encoding="utf-8")
            assert not re.findall(r'"#[0-9a-fA-F]{3,8}"|coolwarm|viridis', text), path.name
