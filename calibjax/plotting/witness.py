"""Maps of the witness: where a model is wrong."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax import _checks
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.plotting import figures

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
    ax: "Axes | None" = None,
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
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
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
    >>> ax = plotting.witness_map(test, *at)
    >>> print(ax.get_xlabel(), "|", ax.get_ylabel())
    predicted mean | target - predicted mean
    """
    sizes, is_significant = _shown(result, level)
    at_predictions, at_targets = _checks.predictions_and_targets(
        at_predictions, at_targets, names=("at_predictions", "at_targets")
    )
    targets = figures.shown_values("at_targets", at_targets)
    _checks.shape("at_targets", targets, (sizes.size,), f"[{sizes.size}], as the result")
    if hasattr(at_predictions, "class_probs"):
        probs = figures.shown_values("at_predictions", at_predictions.class_probs)
        return _draw_bars(sizes, is_significant, probs, targets, ax)
    _checks.method("at_predictions", at_predictions, "mean")
    means = figures.shown_values("at_predictions", jax.vmap(lambda p: p.mean())(at_predictions))
    points = np.stack([means, targets - means], 1).astype(np.float64)
    centered = points - points.mean(0)
    size = np.abs(centered).max(0)
    if np.any(size == 0) or np.linalg.matrix_rank(centered / size, tol=1e-4) < 2:
        raise ValueError(
            "at_predictions, at_targets: expected locations with different means and residuals, "
            "not on one line, such as those of a grid"
        )
    return _draw_map(sizes, is_significant, points, ax)


def _shown(result: Any, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Witness in standard errors, and where it is significant, [J] each."""
    _checks.proportion("level", level)
    figures.check_result(result, "locations", "hypothesis_tests.witness_test")
    witness = figures.shown_values("result.estimate", result.estimate)
    _checks.shape("result.estimate", witness, (None,), "[J], the witness of one data set")
    errors = figures.shown_values("result.null_size", result.null_size)
    pvalues = figures.shown_values("result.adjusted_pvalue", result.adjusted_pvalue)
    # Far from all data both are zero.
    sizes = np.divide(witness, errors, out=np.zeros_like(witness), where=errors > 0)
    return sizes, pvalues <= level


def _draw_map(
    sizes: np.ndarray, is_significant: np.ndarray, points: np.ndarray, ax: "Axes | None"
) -> "Axes":
    """Colours between the locations, the outline of the region, and the locations as dots."""
    limit = max(float(np.abs(sizes).max()), 1.0)
    steps = np.linspace(-limit, limit, _NUM_LEVELS + 1)
    x, y = points.T
    with figures.figure(ax, (5.4, 4.4), skipped=("locations",)) as ax:
        from matplotlib.ticker import MaxNLocator

        colors = ax.tricontourf(x, y, sizes, levels=steps, cmap=figures.DIVERGING)
        # Dashed where negative, for prints without colours.
        ax.tricontour(x, y, sizes, levels=steps[1::2], colors=figures.GRAY, linewidths=0.7)
        style: dict[str, Any] = {"linestyle": "none", "marker": "."}
        ax.plot(x, y, color=figures.GRAY, markersize=2, label="locations", **style)
        if np.any(is_significant):
            if not np.all(is_significant):
                inside = is_significant.astype(float)
                ax.tricontour(x, y, inside, levels=[0.5], colors=figures.BLACK, linewidths=1.6)
            chosen = points[is_significant].T
            ax.plot(*chosen, color=figures.BLACK, markersize=5, label="significant", **style)
        ax.axhline(0, color=figures.GRAY, linewidth=0.8, linestyle="--")
        ax.set(xlabel="predicted mean", ylabel="target - predicted mean")
        ax.figure.colorbar(colors, ax=ax, label=_LABEL, ticks=MaxNLocator(7), format="%.2g")
    return ax


def _draw_bars(
    sizes: np.ndarray,
    is_significant: np.ndarray,
    probs: np.ndarray,
    targets: np.ndarray,
    ax: "Axes | None",
) -> "Axes":
    """A bar for each location, with its class and the probability of this class."""
    places = np.arange(sizes.size)
    own = probs[places, targets]
    names = [f"class {c}\np = {p:.2g}" for c, p in zip(targets, own, strict=True)]
    with figures.figure(ax, (1.6 + 0.55 * max(sizes.size, 5), 3.4)) as ax:
        for label, chosen, color in (
            ("not significant", ~is_significant, figures.GRAY),
            ("more frequent than predicted", is_significant & (sizes > 0), figures.RED),
            ("less frequent than predicted", is_significant & (sizes <= 0), figures.BLUE),
        ):
            if np.any(chosen):
                ax.bar(places[chosen], sizes[chosen], color=color, label=label)
        ax.set_xticks(places, names, fontsize="small")
        ax.axhline(0, color=figures.BLACK, linewidth=0.8)
        ax.set(ylabel=_LABEL)
    return ax
