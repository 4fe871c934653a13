"""Maps of errors: in groups, in feature space, and of the witness."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from calibjax._core import checks
from calibjax._core.gate import Seen, checked, unchecked
from calibjax._core.pytree import Numbers
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.plotting import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_COLUMNS, _MOST_ROWS = 12, 40  # with the numbers in the cells
_LABEL = "witness (standard errors)"
_NUM_LEVELS = 12  # of colour, on both sides of zero together


@checked(result=figures.result_of("groups"), groups=unchecked)
def group_errors(
    result: CalibrationTestResult,
    *,
    groups: Sequence[Any] | None = None,
    residuals: Sequence[Any] | None = None,
    significance_level: float = 0.05,
    ax: "Axes | None" = None,
) -> "Axes":
    """Grid of signed errors: a row for each group, a column for each kind of residual.

    Errors are observed minus predicted values: red where the predictions are too small, blue where
    they are too large. Cells contain the error ± its standard error under calibration; those with
    an adjusted p-value ≤ `significance_level` are framed and bold. For a calibrated model there is
    any such cell with at most this probability. Grids of more than 12 columns or 40 rows have no
    room for numbers: there the significant cells have their sign.

    Args:
        result: result of `hypothesis_tests.group_calibration_test`, of one data set and outside
            of `jit`.
        groups: names of the G groups, by default their numbers.
        residuals: names of the k residuals, by default their numbers; by the test's own default
            those of classes are the classes and "top label".
        significance_level: adjusted p-values up to this one are significant.
        ax: matplotlib Axes to draw on; by default the Axes of a new figure, `.figure` of
            the result. It is not shown by pyplot, and need not be closed.

    Returns:
        The Axes; the colour bar is beside it.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind, such as the result of another test.
        ValueError: if shapes or values are wrong.

    Cost: O(G k).

    References: none; see `hypothesis_tests.group_calibration_test`.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, plotting
    >>> predictions = distributions.Normal(jnp.zeros(40), jnp.ones(40))
    >>> is_old = jnp.arange(40) >= 20
    >>> targets = distributions.sample_targets(jax.random.key(0), predictions) + 2.0 * is_old
    >>> test = hypothesis_tests.group_calibration_test(
    ...     jax.random.key(1), predictions, targets, jnp.stack([~is_old, is_old], axis=1)
    ... )
    >>> ax = plotting.group_errors(test, groups=["young", "old"])
    >>> print([label.get_text() for label in ax.get_yticklabels()], len(ax.patches))
    ['young', 'old'] 1
    """
    shown = [np.asarray(x) for x in (result.estimate, result.null_size, result.adjusted_pvalue)]
    if shown[0].ndim not in (1, 2):
        expected = "[G] or [G, k], of one data set"
        raise ValueError(f"result.estimate: expected {expected}, got {shown[0].shape}")
    errors, sizes, pvalues = (x.reshape(len(x), -1) for x in shown)
    level = float(significance_level)
    cells = errors, sizes, pvalues <= level
    rows, columns = (
        [str(x) for x in (range(size) if names is None else names)]
        for names, size in zip((groups, residuals), errors.shape, strict=True)
    )
    has_numbers = len(rows) <= _MOST_ROWS and len(columns) <= _MOST_COLUMNS
    cell_width, cell_height = (0.9, 0.55) if has_numbers else (0.2, 0.16)  # inches
    size = 2.6 + cell_width * len(columns), 1.4 + cell_height * len(rows)
    with figures.figure(ax, size) as ax:
        limit = float(np.abs(errors).max()) or 1.0
        style: dict[str, Any] = {"vmin": -limit, "vmax": limit, "aspect": "auto"}
        image = ax.imshow(errors, cmap=figures.DIVERGING, **style)
        _write(ax, cells, f"adjusted p ≤ {level:g}", has_numbers=has_numbers)
        style = {} if has_numbers else {"fontsize": "x-small"}
        ax.set_yticks(np.arange(len(rows)), rows, **style)
        ax.set_xticks(np.arange(len(columns)), columns, rotation=0 if has_numbers else 90, **style)
        if groups is None:
            ax.set_ylabel("group")
        if residuals is None and len(columns) > 1:
            ax.set_xlabel("residual")
        elif residuals is None:
            ax.set_xticks([])
        label = "observed - predicted mean" + "\n(± standard error)" * has_numbers
        ax.figure.colorbar(image, ax=ax, label=label, format="%.2g")
    return ax


def _write(ax: "Axes", cells: tuple[np.ndarray, ...], label: str, *, has_numbers: bool) -> None:
    """Numbers in the cells, or signs, and frames around the significant ones, with one label."""
    from matplotlib.patches import Rectangle

    errors, sizes, is_significant = cells
    largest = np.abs(errors).max() or 1.0
    # Two digits of a typical standard error; it is zero where nothing is left to chance.
    positive = sizes[sizes > 0]
    digits = max(0, 1 - math.floor(math.log10(np.median(positive)))) if positive.size else 2
    for (row, column), error in np.ndenumerate(errors):
        text = "+" if error > 0 else "-"
        if has_numbers:
            text = f"{error:+.{digits}f}\n± {sizes[row, column]:.{digits}f}"
        if has_numbers or is_significant[row, column]:
            style: dict[str, Any] = {"ha": "center", "va": "center"}
            style["color"] = "white" if abs(error) > 0.7 * largest else "black"
            style["fontweight"] = "bold" if is_significant[row, column] else "normal"
            ax.text(column, row, text, **style)
        if is_significant[row, column]:
            style = {"fill": False, "edgecolor": figures.BLACK, "linewidth": 1.8, "label": label}
            ax.add_patch(Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, **style))
            label = ""


@checked(result=figures.result_of("locations"), needs=("mean",))
def witness_map(
    result: CalibrationTestResult,
    at_predictions: Any,
    at_targets: Numbers,
    *,
    significance_level: float = 0.05,
    ax: "Axes | None" = None,
) -> "Axes":
    """Map of where a model is wrong: the witness in units of its standard errors.

    Scalar predictions have a map over predicted mean and residual, target − predicted mean: red
    where targets are more frequent than predicted, blue and with dashed contours where they are
    less frequent. The region of the locations with an adjusted p-value ≤ `significance_level` is
    outlined: for a calibrated model there is any such region with at most this probability. Class
    predictions have a signed bar for each location, grey where it is not significant.

    Args:
        result: result of `hypothesis_tests.witness_test`, of one data set and outside of `jit`.
        at_predictions: its locations, batch of J scalar distributions with a method `mean`, or of
            class predictions.
        at_targets: [J].
        significance_level: adjusted p-values up to this one are significant.
        ax: matplotlib Axes to draw on; by default the Axes of a new figure, `.figure` of
            the result. It is not shown by pyplot, and need not be closed.

    Returns:
        The Axes; the colour bar of a map is beside it.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        RuntimeError: by matplotlib, if the locations of a map are on one line.

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
    witness, errors = np.asarray(result.estimate), np.asarray(result.null_size)
    targets = np.asarray(at_targets)
    checks.shape("at_targets", targets, witness.shape, f"{witness.shape}, as the result")
    # Far from all data both are zero.
    sizes = np.divide(witness, errors, out=np.zeros_like(witness), where=errors > 0)
    is_significant = np.asarray(result.adjusted_pvalue) <= float(significance_level)
    if hasattr(at_predictions, "class_probs"):
        observed = np.asarray(at_predictions.class_probs)[np.arange(targets.size), targets]
        names = [f"class {c}\np = {p:.2g}" for c, p in zip(targets, observed, strict=True)]
        return _draw_bars(sizes, is_significant, names, ax)
    means = np.asarray(jax.vmap(lambda p: p.mean())(at_predictions))
    points = np.stack([means, targets - means], 1).astype(np.float64)
    return _draw_map(sizes, is_significant, points, ax)


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
        ax.tricontour(x, y, sizes, levels=steps[3::6], colors=figures.GRAY, linewidths=1)
        style: dict[str, Any] = {"linestyle": "none", "marker": "."}
        ax.plot(x, y, color=figures.GRAY, markersize=2, label="locations", **style)
        if np.any(is_significant):
            chosen = points[is_significant].T
            style |= {"color": figures.BLACK, "clip_on": False}
            ax.plot(*chosen, markersize=5, label="significant", **style)
            if not np.all(is_significant):
                inside = is_significant.astype(float)
                ax.tricontour(x, y, inside, levels=[0.5], colors=figures.BLACK, linewidths=1.6)
                ax.plot([], [], color=figures.BLACK, linewidth=1.6, label="significant region")
        ax.axhline(0, color=figures.GRAY, linewidth=0.8, linestyle="--")
        ax.set(xlabel="predicted mean", ylabel="target - predicted mean")
        ax.figure.colorbar(colors, ax=ax, label=_LABEL, ticks=MaxNLocator(7), format="%.2g")
    return ax


def _draw_bars(
    sizes: np.ndarray, is_significant: np.ndarray, names: list[str], ax: "Axes | None"
) -> "Axes":
    """A bar for each location, with its class and the probability of this class."""
    places = np.arange(sizes.size)
    grey = ~is_significant, figures.GRAY, "not significant"
    above = is_significant & (sizes > 0), figures.RED, "more frequent than predicted"
    below = is_significant & (sizes <= 0), figures.BLUE, "less frequent than predicted"
    with figures.figure(ax, (1.6 + 0.55 * max(sizes.size, 5), 3.4), ncols=1) as ax:
        for chosen, color, label in figures.parts(grey, above, below):
            ax.bar(places[chosen], sizes[chosen], color=color, label=label)
        ax.set_xticks(places, names, fontsize="small")
        ax.axhline(0, color=figures.BLACK, linewidth=0.8)
        ax.set(ylabel=_LABEL)
    return ax


_FULL_SIZE = 30  # effective size of an opaque point: its standard error is at most 0.09
_LEAST_OPACITY = 0.1
_LABELS = {False: "local calibration error", True: "local confidence - accuracy"}


def _each(name: str, value: Any, seen: Seen) -> np.ndarray:
    """A number for each sample."""
    value = checks.finite(name, checks.as_arrays(name, value))
    checks.shape(name, value, (seen.number(name),), "[n], as the features")
    return np.asarray(value, np.float64)


@checked(errors=_each, effective_sizes=_each, pvalues=_each)
def local_error_map(
    features: Numbers,
    errors: Numbers,
    *,
    signed: bool = False,
    effective_sizes: Numbers | None = None,
    pvalues: Numbers | None = None,
    significance_level: float = 0.05,
    ax: "Axes | None" = None,
) -> "Axes":
    """Map of local calibration errors: a point for each sample, coloured by its error.

    Absolute errors run from yellow (0) to violet; signed ones from blue (confidences too low) over
    grey (0) to red (too high), on a scale with zero in its middle. Without colours both signs look
    alike: draw absolute errors for prints in grey.

    A local error is the mean of few samples where the kernel is narrow, and far from zero by
    chance there. With `effective_sizes` points fade whose error is of fewer than 30 samples; with
    `pvalues` the significant ones have a black ring. Of p-values that do not hold for all points
    at once, a share `significance_level` is significant without any miscalibration.

    Args:
        features: of the samples, such as t-SNE coordinates, [n, 2].
        errors: local errors, `estimators.lce` or signed ones, [n]. They have to be finite: leave
            out points whose bin holds no sample.
        signed: whether the errors are signed.
        effective_sizes: effective number of samples in each local error, [n].
        pvalues: of the local errors, such as those of `hypothesis_tests.local_calibration_test`,
            [n].
        significance_level: p-values up to this one are significant.
        ax: matplotlib Axes to draw on; by default the Axes of a new figure, `.figure` of
            the result. It is not shown by pyplot, and need not be closed.

    Returns:
        The Axes; the colour bar is beside it. Points are pixels in vector graphics, too, so that
        files stay small.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or there are negative errors that are not said
            to be signed.

    Cost: O(n).

    References: L21 §3.3, Fig. 2.

    >>> import jax.numpy as jnp
    >>> features = jnp.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> ax = local_error_map(features, jnp.array([0.1, -0.2, 0.0]), signed=True)
    >>> print(ax.collections[0].get_clim())
    (-0.2..., 0.2...)
    """
    checks.shape("features", features, (None, 2), "[n, 2]")
    bad = (errors < 0) & (not signed)
    checks.refuse_where(bad, "errors", "absolute errors (or signed=True)", errors)
    features, opacity, chosen = np.asarray(features), None, np.zeros(errors.size, bool)
    if effective_sizes is not None:
        opacity = np.clip(effective_sizes / _FULL_SIZE, _LEAST_OPACITY, 1)
    if pvalues is not None:
        chosen = checks.unit_interval("pvalues", pvalues) <= float(significance_level)
    limit = float(np.abs(errors).max()) or 1.0
    area = float(np.clip(3e4 / errors.size, 3, 36))  # in square points, 1/72 inch wide
    colors, lowest = (figures.DIVERGING, -limit) if signed else (figures.SEQUENTIAL, 0)
    with figures.figure(ax, (5.4, 4.4), skipped=("samples",)) as ax:
        style: dict[str, Any] = {"cmap": colors, "vmin": lowest, "vmax": limit, "label": "samples"}
        style |= {"s": area, "linewidths": 0, "alpha": opacity, "rasterized": True}
        points = ax.scatter(*features.T, c=errors, **style)
        label = f"p ≤ {float(significance_level):g}"
        style = {"s": area + 10, "linewidths": 0.8, "rasterized": True, "label": label}
        if np.any(chosen):
            ax.scatter(*features[chosen].T, facecolors="none", edgecolors=figures.BLACK, **style)
        ax.set(xlabel="first feature", ylabel="second feature")
        ax.figure.colorbar(points, ax=ax, label=_LABELS[signed])
    return ax
