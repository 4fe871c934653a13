"""Shared parts of the figures: import of matplotlib, Axes, colours, checks of values."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from calibjax._core import checks, environment
from calibjax.hypothesis_tests.result import CalibrationTestResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, RED, BLACK, GRAY = "#2b6ca3", "#c8432b", "#222222", "#8c8c8c"
LIGHT_BAND, BAND, BARS = "#cfdfec", "#8db3d3", "#c9c9c9"
# Colour maps: from zero upwards, and with zero in the middle.
SEQUENTIAL, DIVERGING = "viridis_r", "coolwarm"
# The "muted" colours of Paul Tol (2021), Colour schemes, which the colour-blind can tell apart.
CURVE_COLORS = ("#332288", "#CC6677", "#117733", "#DDCC77", "#88CCEE")
CURVE_COLORS += ("#882255", "#44AA99", "#999933", "#AA4499")
# Beside the colours, for prints without them.
CURVE_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), "-", "--")
_LOOKS = zip(CURVE_COLORS, CURVE_STYLES, strict=True)
CURVE_LOOKS = [{"color": color, "linestyle": style} for color, style in _LOOKS]


@contextlib.contextmanager
def figure(
    ax: "Axes | None", size: tuple[float, float], *, ncols: int = 3, skipped: Sequence[str] = ()
) -> "Iterator[Axes]":
    """The given Axes, or the Axes of a new figure that pyplot does not manage.

    A new figure has no frame above and to the right, and a legend above.

    Args:
        ax: matplotlib Axes, or None.
        size: width and height of a new figure in inches.
        ncols: columns of its legend.
        skipped: labels that its legend does not show.

    Yields:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if `ax` is something else.
    """
    matplotlib = environment.imported("matplotlib", "calibjax.plotting draws with it", "plot")
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    names = {"text.parse_math": False}  # of classes and groups, which may contain $
    if ax is not None:
        if not isinstance(ax, Axes):
            raise TypeError(f"ax: expected a matplotlib Axes or None, got {checks.described(ax)}")
        with matplotlib.rc_context(names):
            yield ax
        return
    ax = Figure(figsize=size, layout="constrained").subplots()
    with matplotlib.rc_context(names):
        yield ax
    ax.spines[["top", "right"]].set_visible(False)
    labelled = zip(*ax.get_legend_handles_labels(), strict=True)
    if handles := [handle for handle, label in labelled if label not in skipped]:
        style = {"frameon": False, "ncols": ncols, "handlelength": 1.3, "handletextpad": 0.5}
        style |= {"columnspacing": 1.0, "loc": "outside upper center"}
        legend = ax.figure.legend(handles=handles, **style)
        for text in legend.get_texts():
            text.set_parse_math(False)


def result_of(entries: str) -> Callable[..., CalibrationTestResult]:
    """A check of the result of a test whose entries belong to these things."""

    def check(name: str, value: CalibrationTestResult, seen: Any) -> CalibrationTestResult:
        if value.entries != entries:
            raise TypeError(f"{name}: expected a test of {entries}, got one of {value.entries}")
        return value

    return check


def of_quantiles(name: str, value: Any, seen: Any) -> Any:
    """A check of the coverage of quantiles."""
    if value.kind != "quantile":
        raise TypeError(f'{name}: expected a curve of kind "quantile", got {value.kind!r}')
    return value


def shown_record(name: str, record: Any, size: str) -> Any:
    """A record of one data set with NumPy arrays; the field `size` has one axis."""
    record = jax.tree.map(np.asarray, record)
    checks.shape(f"{name}.{size}", getattr(record, size), (None,), "[K], of one data set")
    return record


def by_name(shown: Callable[[str, Any], Any]) -> Callable[..., dict[str, Any]]:
    """A check of a dict of at most nine things, of each by `shown`, which takes its name."""

    def check(name: str, value: Any, seen: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise TypeError(f"{name}: expected a dict by names, got {checks.described(value)}")
        checks.size_in_range(f"len({name})", len(value), 1, len(CURVE_COLORS))
        return {str(key): shown(f"{name}[{key!r}]", x) for key, x in value.items()}

    return check


def draw_histogram(ax: "Axes", values: np.ndarray, bins: int, label: str) -> None:
    """Bars of equal width between the smallest and the largest value, as one path."""
    heights, edges = np.histogram(values, bins)
    ax.stairs(heights, edges, fill=True, color=BLUE, alpha=0.55, label=label)


def draw_diagonal(ax: "Axes", label: str = "calibrated", ends: Any = ((0, 1), (0, 1))) -> None:
    """The dashed line that calibrated models are around, the diagonal unless its ends differ."""
    style = {"color": GRAY, "linewidth": 1, "linestyle": "--", "zorder": 1, "label": label}
    ax.plot(*ends, **style)


def draw_band(ax: "Axes", x: Any, lower: Any, upper: Any, label: str, color: str) -> None:
    """A band behind everything else."""
    ax.fill_between(x, lower, upper, label=label, color=color, linewidth=0, zorder=0)


def parts(*each: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Those of (chosen places, ...) that have any places: each has an entry in a legend."""
    return [part for part in each if np.any(part[0])]


def draw_points(ax: "Axes", x: Any, y: Any, is_outside: Any, size: float, outside: str) -> None:
    """Black points inside of a band, and red diamonds outside of it, which `outside` names."""
    style = {"linestyle": "none", "clip_on": False, "zorder": 3}
    style |= {"markeredgecolor": "white", "markeredgewidth": 0.5, "markersize": size}
    inside = ~is_outside, BLACK, "o", "observed"
    for chosen, color, marker, label in parts(inside, (is_outside, RED, "D", outside)):
        ax.plot(x[chosen], y[chosen], color=color, marker=marker, label=label, **style)
