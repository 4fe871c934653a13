"""What figures show: all that is drawn of small examples, in words, beside what was looked at.

`python -m tests.plotting.test_figures` writes figures.txt anew; read its differences.
"""

import dataclasses
import pathlib
import re
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from calibjax import plotting
from calibjax.distributions import Normal
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.plotting import figures
from tests.plotting import examples
from tests.plotting.examples import AT, CALLS, INTERVALS, LOCATIONS, ONE, PLACES, drawn

FILE = pathlib.Path(__file__).with_name("figures.txt")
COLORS = {getattr(figures, x): x.lower() for x in ("BLUE", "RED", "BLACK", "GRAY", "BAND", "BARS")}


def numbers(values):
    """Numbers with four digits."""
    flat = np.asarray(np.ma.getdata(values), float).round(4).tolist()
    return re.sub(r"\.0\b", "", str(flat)).replace("-0,", "0,")


def color(value):
    value = to_hex(value) if np.ndim(value) < 2 and len(value) else "several"
    return COLORS.get(value, "another color")


def label(artist):
    """Its label, if it is not one of matplotlib's."""
    return re.sub("^_.*", "", artist.get_label())


def described(ax):
    """The lines of one of the Axes."""
    yield f"  x {ax.get_xlabel()!r}, y {ax.get_ylabel()!r}, {ax.get_title()!r}"
    limits = numbers([ax.get_xlim(), ax.get_ylim()]) if ax.images or ax.child_axes else ""
    ticks = [x.get_text() for axis in (ax.xaxis, ax.yaxis) for x in axis.get_ticklabels()]
    if names := [x for x in ticks if re.search("[A-Za-z]", x)]:
        yield f"  ticks {names}"
    for line in ax.lines:
        points = numbers(line.get_xydata())
        style = f"{line.get_linestyle()} {line.get_marker()} {line.get_drawstyle()}"
        yield f"  line {label(line)!r}, {color(line.get_color())}, {style}: {points}"
    for patch in ax.patches:
        if hasattr(patch, "get_data"):
            shape = " ".join(numbers(x) for x in patch.get_data() if x is not None)
        else:
            shape = numbers([patch.get_x(), patch.get_y(), patch.get_width(), patch.get_height()])
        hatch = patch.get_hatch() or ""
        yield f"  patch {label(patch)!r}, {color(patch.get_facecolor())} {hatch}: {shape}"
    for each in () if ax.get_label() == "<colorbar>" else ax.collections:
        corners = [x.vertices for x in each.get_paths()] or [np.zeros((0, 2))]
        shape = np.unique(np.concatenate(corners), axis=0)
        if len(each.get_offsets()) > 1 or each.get_array() is not None:
            shape = each.get_offsets()
        values = "" if each.get_array() is None else f", values {numbers(each.get_array())}"
        values += f" between {numbers(each.get_clim())}" * bool(values)
        alpha = "" if each.get_alpha() is None else f", alpha {numbers(each.get_alpha())}"
        raster = ", rasterized" * bool(each.get_rasterized())
        name = f"{type(each).__name__} {label(each)!r}"
        yield f"  {name}: {numbers(shape)}{values}{alpha}{raster}"
    for image in ax.images:
        yield f"  image {numbers(image.get_array())} between {numbers(image.get_clim())}, {limits}"
    for text in ax.texts:
        place = numbers(text.get_position())
        yield f"  text {text.get_text()!r}, {text.get_fontweight()}: {place}"
    for child in ax.child_axes:
        yield from described(child)


def page():
    """All examples."""
    for name in CALLS:
        figure = drawn(name).figure
        figure.draw_without_rendering()
        yield name
        for ax in figure.axes:
            yield from described(ax)
        yield from (f"  legend {x.get_text()!r}" for y in figure.legends for x in y.texts)


def test_figures_show_what_they_did():
    expected = FILE.read_text("utf-8").splitlines()
    for line, before in zip(page(), expected, strict=True):
        assert line == before


def test_every_function_has_an_example():
    assert {re.match(r"\w+", x)[0] for x in CALLS} == {*plotting.__all__}


@pytest.mark.parametrize("name", CALLS)
def test_conventions(name):
    """On new and given Axes, also of arrays of JAX; no text is cut off; a file can be written."""
    figure = Figure(layout="constrained")
    left, right = figure.subplots(1, 2)
    assert drawn(name, ax=right) is right
    assert not figure.legends
    assert not left.has_data()
    ax = drawn(name)
    assert isinstance(ax, Axes)
    ax.figure.savefig(pathlib.os.devnull, format="png")
    (width, height) = ax.figure.canvas.get_width_height()
    texts = [ax.title, ax.xaxis.label, ax.yaxis.label]
    texts += [x for legend in ax.figure.legends for x in legend.texts]
    for box in (x.get_window_extent() for x in texts if x.get_text()):
        assert min(box.x0, box.y0) >= 0
        assert box.x1 <= width + 1
        assert box.y1 <= height + 1


@pytest.mark.parametrize(
    "values", [np.zeros(3), np.full(5, 1e-30), np.array([7.0]), np.array([1, 2, 2])]
)
def test_all_draws_are_counted_even_if_equal(values):
    result = CalibrationTestResult(np.float64(0.1), np.float64(0.5), np.float64(0.1), values)
    shown = plotting.null_distribution(result, bins=50).patches[0].get_data()
    assert shown.values.sum() == len(values)
    assert np.all(np.diff(shown.edges) > 0)


def test_matplotlib_is_imported_to_draw_and_pyplot_never():
    code = """
        import sys
        import jax.numpy as jnp
        import calibjax
        assert not any(name.startswith("matplotlib") for name in sys.modules)
        calibjax.plotting.pvalue_ecdf({"exact": jnp.ones(3)})
        assert "matplotlib" in sys.modules and "matplotlib.pyplot" not in sys.modules
        sys.modules["matplotlib"] = None  # as if it were not installed
        try:
            calibjax.plotting.pvalue_ecdf({"exact": jnp.ones(3)})
        except ImportError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "pip install 'calibjax[plot]'" in shown


SEVERAL = jax.tree.map(lambda x: x[None], examples.RELIABILITY)
SAME = Normal(np.zeros(4), np.ones(4))


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("local_error_map", (PLACES, -np.ones(4)), r"errors: expected absolute errors .or signed"),
        ("local_error_map", (PLACES, np.ones(4), np.ones(3)), r"effective_sizes: .* shape \[n\]"),
        ("null_distribution", (dataclasses.replace(ONE, null_samples=None),), "of one statistic"),
        ("pvalue_ecdf", ({str(i): np.ones(1) for i in range(10)},), "an integer between 1 and 9"),
        ("pvalue_ecdf", ({"a": np.ones(1)}, INTERVALS), "band: expected a curve of kind"),
        ("pit_ecdf", (INTERVALS,), "curve: expected a curve of kind"),
        ("reliability_diagram", (SEVERAL,), r"curve.counts: expected shape \[K\], of one data set"),
        ("witness_map", (dataclasses.replace(LOCATIONS, entries="groups"), *AT), "one of groups"),
        ("witness_map", (LOCATIONS, SAME, AT[1]), "triangulation"),
    ],
)
def test_what_is_refused(name, arguments, message):
    names = {"local_error_map": ("effective_sizes", "pvalues"), "pvalue_ecdf": ("band",)}
    first = {"local_error_map": 2, "pvalue_ecdf": 1}.get(name, 3)
    options = dict(zip(names.get(name, ()), arguments[first:], strict=False))
    with pytest.raises((ValueError, TypeError, RuntimeError), match=message):
        getattr(plotting, name)(*arguments[:first], **options)


if __name__ == "__main__":
    FILE.write_text("\n".join(page()) + "\n", "utf-8")
