"""Maps of the witness: where a model is wrong."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax import _checks
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.plotting.figures import (
    BLACK,
    BLUE,
    DIVERGING,
    GRAY,
    RED,
    axes_to_draw_on,
    check_result,
    finished,
    shown_values,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LABEL = "witness, standard errors"
_NUM_LEVELS = 12  # of colour, on both sides of zero together


def witness_map(
    result: CalibrationTestResult,
    at_predictions: Any,
    at_targets: ArrayLike,
    *,
    level: float = 0.05,
    axis: "Axes | None" = None,
) -> "Axes":
    """Map of where a model is wrong: the witness in units of its standard errors.

    Scalar predictions have a map over predicted mean and residual, target − predicted mean: red
    where targets are more frequent than predicted, blue and with dashed contours where they are
    less frequent. The region
    of the locations with an adjusted p-value ≤ `level` is outlined: for a calibrated model there is
    any such region with probability at most `level`. Class predictions have a signed bar for each
    location, grey where it is not significant.

    Args:
        result: what `hypothesis_tests.witness_test` returned, of one data set and outside of `jit`.
        at_predictions: its locations, batch of J scalar distributions with a method `mean`, or of
            class predictions.
        at_targets: [J].
        level: adjusted p-values up to this one are significant.
        axis: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes; the colour bar of a map is beside it.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or the locations of a map are on one line.

    Cost: O(J log J).

    References: none; see `hypothesis_tests.witness_test`.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels, plotting
    >>> kernel = kernels.TensorProduct(
    ...     kernels.SquaredExponential(0.1, distances.Wasserstein()),
    ...     kernels.SquaredExponential(0.5),
    ... )
    >>> mean, residual = map(jnp.ravel, jnp.meshgrid(jnp.linspace(0, 1, 9), jnp.linspace(-2, 2, 9)))
    >>> at = distributions.Normal(mean, jnp.ones(81)), mean + residual
    >>> predictions = distributions.Normal(jnp.linspace(0, 1, 200), jnp.ones(200))
    >>> targets = distributions.sample_targets(jax.random.key(0), predictions)
    >>> targets += predictions.loc > 0.7  # where the predicted mean is large, it is too small
    >>> test = hypothesis_tests.witness_test(
    ...     jax.random.key(1), kernel, predictions, targets, *at
    ... )
    >>> axis = plotting.witness_map(test, *at)
    >>> print(axis.get_xlabel(), "|", axis.get_ylabel())
    predicted mean | target - predicted mean
    """
    sizes, is_significant = _shown(result, level)
    at_predictions, at_targets = _checks.predictions_and_targets(
        at_predictions, at_targets, names=("at_predictions", "at_targets")
    )
    targets = shown_values("at_targets", at_targets)
    _checks.shape("at_targets", targets, (sizes.size,), f"[{sizes.size}], as the result")
    if hasattr(at_predictions, "class_probs"):
        probs = shown_values("at_predictions", at_predictions.class_probs)
        return _draw_bars(sizes, is_significant, probs, targets, axis)
    _checks.method("at_predictions", at_predictions, "mean")
    means = shown_values("at_predictions", jax.vmap(lambda p: p.mean())(at_predictions))
    points = np.stack([means, targets - means], 1).astype(np.float64)
    centered = points - points.mean(0)
    size = np.abs(centered).max(0)
    if np.any(size == 0) or np.linalg.matrix_rank(centered / size, tol=1e-4) < 2:
        raise ValueError(
            "at_predictions, at_targets: expected locations with different means and residuals, "
            "not on one line, such as those of a grid"
        )
    return _draw_map(sizes, is_significant, points, axis)


def _shown(result: Any, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Witness in standard errors, and where it is significant, [J] each."""
    _checks.proportion("level", level)
    check_result(result, "locations", "hypothesis_tests.witness_test")
    witness = shown_values("result.estimate", result.estimate)
    _checks.shape("result.estimate", witness, (None,), "[J], the witness of one data set")
    errors = shown_values("result.null_size", result.null_size)
    pvalues = shown_values("result.adjusted_pvalue", result.adjusted_pvalue)
    # Far from all data both are zero.
    sizes = np.divide(witness, errors, out=np.zeros_like(witness), where=errors > 0)
    return sizes, pvalues <= level


def _draw_map(
    sizes: np.ndarray, is_significant: np.ndarray, points: np.ndarray, axis: "Axes | None"
) -> "Axes":
    """Colours between the locations, the outline of the region, and the locations as dots."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    is_new = axis is None
    axis = axes_to_draw_on(axis, (5.4, 4.4))
    limit = max(float(np.abs(sizes).max()), 1.0)
    steps = np.linspace(-limit, limit, _NUM_LEVELS + 1)
    x, y = points.T
    colors = axis.tricontourf(x, y, sizes, levels=steps, cmap=DIVERGING)
    # Dashed where negative, for prints without colours.
    axis.tricontour(x, y, sizes, levels=steps[1::2], colors=GRAY, linewidths=0.7)
    style = {"linestyle": "none", "marker": ".", "color": GRAY, "markersize": 2}
    axis.plot(*points.T, label="locations", **style)
    handles = []
    if np.any(is_significant):
        if not np.all(is_significant):
            inside = is_significant.astype(float)
            axis.tricontour(x, y, inside, levels=[0.5], colors=BLACK, linewidths=1.6)
        chosen = points[is_significant]
        style = {"linestyle": "none", "marker": ".", "color": BLACK, "markersize": 5}
        axis.plot(*chosen.T, label="significant", **style)
        handles = [Line2D([], [], color=BLACK, marker=".", linewidth=1.6, label="significant")]
    axis.axhline(0, color=GRAY, linewidth=0.8, linestyle="--")
    axis.set(xlabel="predicted mean", ylabel="target - predicted mean")
    axis.figure.colorbar(colors, ax=axis, label=_LABEL, ticks=MaxNLocator(7), format="%.2g")
    return finished(axis, is_new, handles=handles)


def _draw_bars(
    sizes: np.ndarray,
    is_significant: np.ndarray,
    probs: np.ndarray,
    targets: np.ndarray,
    axis: "Axes | None",
) -> "Axes":
    """A bar for each location, with its class and the probability of this class."""
    is_new = axis is None
    axis = axes_to_draw_on(axis, (1.6 + 0.55 * max(sizes.size, 5), 3.4))
    places = np.arange(sizes.size)
    for label, chosen, color in (
        ("not significant", ~is_significant, GRAY),
        ("more frequent than predicted", is_significant & (sizes > 0), RED),
        ("less frequent than predicted", is_significant & (sizes <= 0), BLUE),
    ):
        if np.any(chosen):
            axis.bar(places[chosen], sizes[chosen], color=color, label=label)
    own = probs[places, targets]
    names = [f"class {c}\np = {p:.2g}" for c, p in zip(targets, own, strict=True)]
    axis.set_xticks(places, names, fontsize="small")
    axis.axhline(0, color=BLACK, linewidth=0.8)
    axis.set(ylabel=_LABEL)
    return finished(axis, is_new)
