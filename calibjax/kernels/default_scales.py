"""Length scales and shapes of default kernels, chosen from the predictions alone."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.pytree import T
from calibjax.distances import (
    Distance,
    Euclidean,
    Features,
    MaximumMeanDiscrepancy,
    Wasserstein,
)
from calibjax.distributions import DiagNormal, Ensemble, Laplace, Mixture, MvNormal, Normal
from calibjax.distributions.base import Distribution
from calibjax.distributions.draws import undrawn
from calibjax.distributions.features import WithFeatures, bare
from calibjax.kernels.bandwidth import known_line, median_of_distances
from calibjax.kernels.base import Constant, Kernel, without_draws
from calibjax.kernels.expectations import check_expectations
from calibjax.kernels.line import distance_of_exponentials
from calibjax.kernels.nystrom import Nystrom
from calibjax.kernels.stationary import Exponential, SquaredExponential
from calibjax.kernels.stein import Stein

MANY = 2000  # predictions of which tests see all pairs
NUM_LANDMARKS = 100
_NUM_SCALED = 1000  # of which all distances are taken
_PREDICTION_SCALES = (0.125, 0.5, 2.0)  # in medians of the distances, beside infinity
_TARGET_SCALES = (1.0, 2.0, 8.0)  # in medians of the standard deviations
_MARGINAL_SCALE = 0.5  # likewise, where targets are looked at without their predictions


def target_kernels(predictions: Distribution) -> dict[str, Kernel]:
    """Kernels on targets where there are no normal scores, of several length scales, by name.

    They are exp(−‖y − z‖² / (2 ℓ²)), for Laplace distributions exp(−‖y − z‖ / ℓ), and `Stein` of
    them where their expectations have no closed form.
    """
    plain, deviation = bare(predictions), _typical_deviation(predictions)
    shape = _target_shape(plain, deviation)
    return {
        f"targets {fraction(scale)} deviations": shape(scale * deviation)
        for scale in _TARGET_SCALES
    }


def marginal_kernel(predictions: Distribution) -> Kernel | None:
    """A kernel on the targets themselves, if its expectations have a closed form.

    Of targets of all predictions together it sees more than are predicted where normal scores, to
    which every prediction is the same, do not.
    """
    plain = bare(predictions)
    if not hasattr(plain, "variance"):
        return None
    deviation = _typical_deviation(predictions)
    try:
        kernel = _target_shape(plain, deviation)(_MARGINAL_SCALE * deviation)
    except NotImplementedError:
        return None
    return None if isinstance(kernel, Stein) else kernel


def _target_shape(predictions: Distribution, deviation: jax.Array) -> Callable[[Any], Kernel]:
    """Length scale → kernel on targets."""
    is_laplace = isinstance(_components(predictions), Laplace)
    shape = Exponential if is_laplace else SquaredExponential
    for kernel_of in (shape, lambda length_scale: Stein(shape(length_scale))):
        try:
            check_expectations(kernel_of(deviation), predictions)
        except NotImplementedError as error:
            reason = error
        else:
            return kernel_of
    raise NotImplementedError(
        f"predictions: no default kernels for {type(predictions).__name__}; hand over kernels, or "
        "as predictions distributions.monte_carlo(key, predictions, num_samples)"
    ) from reason


def _typical_deviation(predictions: Distribution) -> jax.Array:
    """Median of the positive standard deviations; of vectors the root of the sum of the variances.

    Where there are none it is the mean distance of the predicted means from their median, and NaN
    if these are equal and traced.
    """
    checks.method("predictions", bare(predictions), "variance")
    values, means = _deviations(predictions)
    xp: Any = jnp if isinstance(values, jax.Array) else np
    number, zeros = len(values), xp.sum(values == 0)
    middle = xp.minimum((zeros + number + np.array([-1, 0])) // 2, number - 1)
    typical = xp.mean(xp.sort(values)[middle])
    between = xp.sum(xp.mean(xp.abs(means - xp.median(means, 0)), 0))
    typical = jnp.asarray(xp.where(zeros == number, between, typical))
    if not checks.is_concrete(typical):
        typical = jnp.where(typical == 0, jnp.nan, typical)
    elif typical == 0:
        raise ValueError("predictions: expected values that differ for a length scale, got one")
    return checks.nan_with(typical, predictions)


@jax.jit
def _deviations(predictions: Distribution) -> tuple[jax.Array, jax.Array]:
    """Standard deviations, and means where these are zero."""

    def deviation(p: Any) -> tuple[jax.Array, jax.Array]:
        variance = p.variance()
        value = jnp.sqrt(jnp.sum(variance))
        mean = jnp.where(value == 0, p.mean(), 0) if hasattr(p, "mean") else value
        if jnp.ndim(variance) or not hasattr(p, "icdf"):
            return value, mean
        # Student's distributions of few degrees of freedom have no variance.
        quartiles = (p.icdf(jnp.asarray(0.75)) - p.icdf(jnp.asarray(0.25))) / 1.349
        return jnp.where(jnp.isfinite(value), value, quartiles), mean

    return jax.vmap(deviation)(predictions)


def _components(p: Distribution) -> Distribution:
    return p.components if isinstance(p, Mixture) else p


def distance_of_predictions(predictions: Distribution) -> Distance:
    """The distance of two predictions in default kernels."""
    plain = bare(undrawn(bare(predictions)))
    is_scalar_draws = isinstance(plain, Ensemble) and plain.values.ndim == 2
    if isinstance(plain, Normal | DiagNormal | Laplace) or is_scalar_draws:
        return Wasserstein()
    if isinstance(plain, MvNormal | Ensemble | Mixture):
        deviation = _typical_deviation(predictions)
        return MaximumMeanDiscrepancy(_target_shape(bare(predictions), deviation)(deviation))
    return Euclidean()


def prediction_kernels(
    predictions: Distribution,
    distance: Distance,
    shape: Callable[[Any, Distance], Kernel] = SquaredExponential,
) -> dict[str, Kernel]:
    """Kernels on predictions, and on their features if they have any.

    On a line exponential ones would be faster, but they see less (n = 64, 200 data sets): normals
    with oscillating errors in 63 % of the cases instead of 67, too narrow ones in 88 instead of 91.
    """
    distances = {"predictions": distance}
    if isinstance(undrawn(predictions), WithFeatures):
        distances["features"] = Features(Euclidean())
    kernels: dict[str, Kernel] = {}
    for name, d in distances.items():
        median = typical_distance(d, predictions)
        for scale in _PREDICTION_SCALES:
            kernel = affordable(shape(scale * median, d), predictions)
            kernels[f"{name} {fraction(scale)} median"] = kernel
    return kernels | {"all predictions": Constant()}


def thinned(points: T) -> T:
    """Every k-th point, so that there are few enough for the distances of all pairs."""
    step = -(-checks.leading_size("points", points) // _NUM_SCALED)
    return points if step == 1 else jax.tree.map(lambda leaf: leaf[::step], points)


def affordable(kernel: Kernel, predictions: Distribution) -> Kernel:
    """The kernel, or one of low rank where a test with it would be quadratic in a large number.

    In 999 redraws of ten classes all pairs of 2000 predictions take four seconds.
    """
    points = without_draws(predictions)
    distance, n = distance_of_exponentials(kernel), checks.leading_size("predictions", points)
    if n <= MANY or isinstance(kernel, Nystrom) or known_line(distance, points) is not None:
        return kernel
    step = -(-n // MANY)
    some = jax.tree.map(lambda leaf: leaf[::step], points)
    return Nystrom.from_predictions(kernel, some, NUM_LANDMARKS)


def fraction(scale: float) -> str:
    """A scale in words: 1/8 for 0.125."""
    return f"{scale:g}" if scale >= 1 else f"1/{1 / scale:g}"


def typical_distance(distance: Distance, predictions: Distribution) -> jax.Array:
    """The median heuristic, or one if all distances are zero.

    Of many predictions that are not known to lie on a line it is that of every few of them.
    """
    points = without_draws(predictions)
    if known_line(distance, points) is None:
        points = thinned(points)
    median, *_ = median_of_distances(distance, points)  # NaN then
    if not checks.is_concrete(median):
        median = jnp.where(jnp.isnan(median), 1, median)
    elif np.isnan(median):  # known without a program
        median = jnp.ones_like(median)
    return checks.nan_with(median, predictions)
