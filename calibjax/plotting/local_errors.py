"""Maps of local calibration errors over two-dimensional features."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax.plotting import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FULL_SIZE = 30  # effective size of an opaque point: its standard error is at most 0.09
_LEAST_OPACITY = 0.1
_ALIKE = ", as the errors"
_LABELS = {False: "local calibration error", True: "local confidence - accuracy"}


def local_error_map(
    features: ArrayLike,
    errors: ArrayLike,
    *,
    signed: bool = False,
    effective_sizes: ArrayLike | None = None,
    pvalues: ArrayLike | None = None,
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
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

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
    errors = _shown_errors("errors", errors, signed)
    features = figures.shown_values("features", features)
    checks.shape("features", features, (errors.size, 2), "[n, 2], a point for each of the errors")
    opacity = _opacity(effective_sizes, errors.size)
    chosen = _significant(pvalues, significance_level, errors.size)
    limit = float(np.abs(errors).max()) or 1.0
    area = float(np.clip(3e4 / errors.size, 3, 36))  # in square points, 1/72 inch wide
    colors, lowest = (figures.DIVERGING, -limit) if signed else (figures.SEQUENTIAL, 0)
    with figures.figure(ax, (5.4, 4.4), skipped=("samples",)) as ax:
        style: dict[str, Any] = {"cmap": colors, "vmin": lowest, "vmax": limit, "label": "samples"}
        style |= {"s": area, "linewidths": 0, "alpha": opacity, "rasterized": True}
        points = ax.scatter(*features.T, c=errors, **style)
        label = f"p ≤ {significance_level:g}"
        style = {"s": area + 10, "linewidths": 0.8, "rasterized": True, "label": label}
        if np.any(chosen):
            ax.scatter(*features[chosen].T, facecolors="none", edgecolors=figures.BLACK, **style)
        ax.set(xlabel="first feature", ylabel="second feature")
        ax.figure.colorbar(points, ax=ax, label=_LABELS[signed])
    return ax


def _shown_errors(name: str, values: ArrayLike, signed: bool) -> np.ndarray:
    """Errors [n], which are not negative unless they are signed."""
    signed = checks.truth_value("signed", signed)
    values = figures.shown_vector(name, values)
    bad = (values < 0) & (not signed)
    checks.refuse_where(bad, name, "absolute errors (or signed=True)", values)
    return values


def _opacity(effective_sizes: ArrayLike | None, num_samples: int) -> np.ndarray | None:
    """Opacity of each point."""
    if effective_sizes is None:
        return None
    sizes = figures.shown_vector("effective_sizes", effective_sizes, _ALIKE, size=num_samples)
    checks.refuse_where(sizes < 0, "effective_sizes", "values >= 0", sizes)
    return np.clip(sizes / _FULL_SIZE, _LEAST_OPACITY, 1)


def _significant(pvalues: ArrayLike | None, level: ArrayLike, num_samples: int) -> np.ndarray:
    """Which points are significant, [n]."""
    checks.proportion("significance_level", level)
    if pvalues is None:
        return np.zeros(num_samples, bool)
    pvalues = figures.shown_vector("pvalues", pvalues, _ALIKE, size=num_samples)
    checks.unit_interval("pvalues", pvalues)
    return pvalues <= level
