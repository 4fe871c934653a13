"""Where the figures are drawn: matplotlib, its Axes, and the values that are shown."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike

from calibjax import _checks, _extras
from calibjax.hypothesis_tests.result import CalibrationTestResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, RED, BLACK, GRAY = "#2b6ca3", "#c8432b", "#222222", "#8c8c8c"
LIGHT_BAND, BAND, BARS = "#cfdfec", "#8db3d3", "#c9c9c9"
# Colour maps: from zero upwards, and with zero in the middle.
SEQUENTIAL, DIVERGING = "viridis_r", "coolwarm"
# The "muted" colours of Paul Tol (2021), Colour schemes, which the colour-blind can tell apart.
CURVE_COLORS = (
    "#332288",
    "#CC6677",
    "#117733",
    "#DDCC77",
    "#88CCEE",
    "#882255",
    "#44AA99",
    "#999933",
    "#AA4499",
)
# Beside the colours, for prints without them.
CURVE_MARKERS = "osD^vP<X>"
CURVE_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), "-", "--")
_CONSTANT = 1e-9  # values that differ by less, relative to their size, are one value


def axes_to_draw_on(axis: "Axes | None", size: tuple[float, float]) -> "Axes":
    """The given Axes, or that of a new figure, which pyplot does not know of.

    Args:
        axis: matplotlib Axes, or None.
        size: width and height of the new figure in inches.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if `axis` is something else.
    """
    _extras.imported("matplotlib", "calibjax.plotting draws with matplotlib", "plot")
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    if axis is None:
        return Figure(figsize=size, layout="constrained").subplots()
    if not isinstance(axis, Axes):
        raise TypeError(f"axis: expected a matplotlib Axes or None, got {_checks.described(axis)}")
    return axis


def finished(
    axis: "Axes", is_new: bool, *, ncols: int = 3, handles: list[Any] | None = None
) -> "Axes":
    """The Axes; on a new figure without a frame, and with a legend above it.

    Args:
        axis: the Axes, with everything drawn.
        is_new: whether the figure is new.
        ncols: columns of the legend.
        handles: what the legend shows, by default everything that has a label; none if empty.
    """
    if not is_new:
        return axis
    axis.spines[["top", "right"]].set_visible(False)
    handles = axis.get_legend_handles_labels()[0] if handles is None else handles
    if handles:
        style = {"frameon": False, "fontsize": "small", "ncols": ncols}
        axis.figure.legend(handles=handles, loc="outside upper center", **style)
    return axis


def check_result(result: Any, entries: str, test: str) -> None:
    """Refuses what is not the result of the test whose entries belong to these things."""
    if not isinstance(result, CalibrationTestResult) or result.entries != entries:
        got = _checks.described(result)
        if isinstance(result, CalibrationTestResult):
            got += f" of {result.entries}" if result.entries else " of another test"
        raise TypeError(f"result: expected what {test} returns, got {got}")


def shown_values(name: str, values: ArrayLike) -> np.ndarray:
    """The values as a NumPy array, finite ones.

    Raises:
        TypeError: if they are not numbers, or traced by JAX and therefore without values.
        ValueError: if one is not finite.
    """
    if isinstance(values, list) and not values:
        raise TypeError(f"{name}: expected an array or a number, got an empty list")
    if not _checks.is_concrete(values):
        raise TypeError(f"{name}: expected values to draw, got {values} (draw outside of jit)")
    values = _checks.originals(name, values)
    _checks.real(name, values)
    _checks.finite(name, values)
    return np.asarray(values)


def shown_weights(weights: ArrayLike | None, num_samples: int) -> np.ndarray:
    """Weights of samples as a NumPy array, one by default."""
    if weights is None:
        return np.ones(num_samples)
    shown = shown_values("weights", weights)
    shown = np.asarray(_checks.plain_weights(shown, num_samples), np.float64)
    if not np.any(shown):
        raise ValueError("weights: expected at least 1 positive weight, got 0")
    return shown


def bin_edges(values: np.ndarray, num_bins: int) -> np.ndarray:
    """Edges of bins between the smallest and the largest value; around it if there is only one."""
    low, high = values.min(), values.max()
    size = max(abs(low), abs(high))
    if high - low <= _CONSTANT * size:
        margin = size / 2 if size > 0 else 0.5
        low, high = low - margin, high + margin
    return np.linspace(low, high, num_bins + 1)
