"""Where the figures are drawn: matplotlib, its Axes, and the values that are shown."""

from typing import TYPE_CHECKING

import numpy as np
from jax.typing import ArrayLike

from calibjax import _checks, _extras

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, RED, BLACK, GRAY = "#2b6ca3", "#c8432b", "#222222", "#8c8c8c"
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
