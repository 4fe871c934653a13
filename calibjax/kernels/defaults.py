"""Length scales chosen from the predictions, default kernels, and groups of them for tests."""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distances, distributions
from calibjax._core import checks
from calibjax._core.gate import Seen, checked
from calibjax._core.pytree import T
from calibjax.distances import Distance, Euclidean, TotalVariation
from calibjax.distributions import Ensemble, Laplace, Mixture
from calibjax.distributions.base import Distribution, Wrapper, has_class_probs
from calibjax.distributions.composed import WithFeatures, bare
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.kernels import residuals
from calibjax.kernels.base import Constant, Kernel, TensorProduct, White, without_draws
from calibjax.kernels.expectations import has_expectations
from calibjax.kernels.line import Line, distance_of_exponentials, line_of
from calibjax.kernels.nystrom import Nystrom, kernel_values
from calibjax.kernels.residuals import VECTORS, Fisher, NormalScore, PearsonResidual
from calibjax.kernels.stationary import Exponential, SquaredExponential, Stein
from calibjax.reductions import OneVersusRest

Metric = Callable[[T, T], jax.Array]
_MANY_POINTS = 1024  # more points on a line are sorted, without their distances
_ROWS = 256  # of known distances at once
MANY = 2000  # most predictions with tests over all pairs
NUM_LANDMARKS = 100
_NUM_SCALED = 1000  # most predictions with all distances for a length scale
_PREDICTION_SCALES = (0.125, 0.5, 2.0)  # in medians of the distances, in addition to infinity
_TARGET_SCALES = (1.0, 2.0, 8.0)  # in medians of the standard deviations
_MARGINAL_SCALE = 0.5  # likewise, for targets without their predictions


def median_of_distances(
    distance: Metric[T], xs: T, *, include_diagonal: bool = False
) -> tuple[jax.Array, Any, tuple[int, int]]:
    """`median_heuristic` of checked points, NaN if all are equal, the number of zeros, and ranks.

    The ranks are those of the median among the pairs; rank 0 is a zero.
    """
    n = checks.leading_size("xs", xs)
    total = n * n if include_diagonal else n * (n - 1) // 2
    ranks = (total + 1) // 2, total // 2 + 1
    if include_diagonal:  # each pair counts twice, after the n zeros
        ranks = max(0, -(-(ranks[0] - n) // 2)), max(0, -(-(ranks[1] - n) // 2))
    if n > _MANY_POINTS and (line := known_line(distance, xs)) is not None:
        low, high, zeros = _of_line(np.asarray(line.positions), ranks)
    elif checks.is_outermost(distance, xs):
        low, high, zeros = _of_blocks(distance, xs, ranks)
    else:
        values = kernel_values(distance, xs, xs)[np.triu_indices(n, 1)]
        zeros = jnp.sum(values == 0)
        places = jnp.asarray(_ranks_of_positive(ranks, zeros, values.size))
        values = jnp.pad(values, 1, constant_values=(0, np.nan))  # NaN are last
        low, high = jnp.sort(values)[places]
        low = jnp.where(jnp.isnan(values[:-1]).any(), np.nan, low)
    return jax.device_put(low / 2 + high / 2), zeros, ranks  # without a program


def _ranks_of_positive(ranks: tuple[int, int], zeros: Any, total: int) -> Any:
    """The ranks, or ranks of the median of the positive distances if both values are 0."""
    half = zeros + (total - zeros + 1) // 2, zeros + (total - zeros) // 2 + 1
    if isinstance(zeros, jax.Array):
        return jnp.where(zeros >= ranks[1], jnp.stack(half), jnp.stack(ranks))
    return half if zeros >= ranks[1] else ranks


def known_line(distance: Any, xs: object) -> Line | None:
    """Line on which concrete points lie, or None."""
    is_known = isinstance(distance, Distance) and checks.is_outermost(distance, xs)
    return line_of(distance, xs) if is_known else None


def _of_line(positions: np.ndarray, ranks: tuple[int, int]) -> tuple[Any, Any, int]:
    """Distances of two ranks, and the number of zeros, of ascending points on a line.

    By bisection over distances, in O(n log n) for each step.
    """
    x, n, dtype = positions.astype(np.float64), len(positions), positions.dtype.type

    def ends(distance: float) -> np.ndarray:
        """For each point, the end of the later points within this distance."""
        return np.maximum(np.searchsorted(x, x + distance, side="right"), np.arange(1, n + 1))

    def number(stops: np.ndarray) -> int:
        return int(np.sum(stops)) - n * (n + 1) // 2

    zeros = number(ends(0.0))
    ranks = _ranks_of_positive(ranks, zeros, n * (n - 1) // 2)
    low, high = 0.0, 2 * (x[-1] - x[0]) * (zeros < ranks[0])
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (low, middle) if number(ends(middle)) >= ranks[0] else (middle, high)
    stops = ends(high)
    first, following = np.max(x[stops - 1] - x), np.append(x, np.nan)[stops] - x
    second = first if number(stops) >= ranks[1] else np.fmin.reduce(following)  # NaN if none is
    return dtype(first), dtype(second), zeros


def _of_blocks(distance: Metric[T], xs: T, ranks: tuple[int, int]) -> tuple[Any, Any, int]:
    """Distances of two ranks, and the number of zeros, in two passes over all pairs.

    The first counts distances by their leading bits, which are ordered as the distances are. The
    second sorts the distances that share these bits with the two.
    """
    n = checks.leading_size("xs", xs)
    size = min(n, _ROWS)
    rows = np.arange(-(-n // size) * size).reshape(-1, size)

    def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for block in rows:
            points = jax.tree.map(lambda leaf, i=block % n: np.asarray(leaf)[i], xs)
            values = np.asarray(kernel_values(distance, points, xs))
            values = abs(values[block[:, None] < np.arange(n)])
            yield values, values.view(f"u{values.itemsize}") >> (8 * values.itemsize - 16)

    counts, zeros = np.zeros(2**16, int), 0
    for values, bits in blocks():
        if np.isnan(values).any():
            return values.dtype.type(np.nan), values.dtype.type(np.nan), zeros
        counts += np.bincount(bits, minlength=counts.size)
        zeros += int(np.sum(values == 0))
    places = np.array(_ranks_of_positive(ranks, zeros, n * (n - 1) // 2))
    bins = np.searchsorted(np.cumsum(counts), places)
    near = np.concatenate([values[np.isin(bits, bins)] for values, bits in blocks()])
    in_order = np.append(np.sort(near), near.dtype.type(np.nan))  # NaN if there is none
    low, high = np.where(places > 0, in_order[places - 1 - np.sum(counts[: bins[0]])], 0)
    return low, high, zeros


def _metric(name: str, value: Any, _: Seen) -> Any:
    checks.no_plain_objects(name, value)
    return checks.distance_values(value, name)


@checked(
    distance=_metric, xs=lambda name, value, seen: checks.points(name, without_draws(value), 2)
)
def median_heuristic(distance: Metric[T], xs: T, *, include_diagonal: bool = False) -> jax.Array:
    """Median of the pairwise distances in a sample, a common choice of the length scale.

    A test stays exact with a length scale chosen from the predictions. One chosen with the targets
    must be chosen again in every redraw.

    If most pairs of points are equal, as for predictions of a decision tree, the median is zero,
    which no kernel accepts. Then the median of the positive distances is returned, with a warning.

    Args:
        distance: a distance (symmetric, non-negative).
        xs: n ≥ 2 points: a batch of distributions, an array, or any pytree with leading axis n.
        include_diagonal: whether to take the median over all n² entries of the distance matrix,
            including its zero diagonal, as in W19's experiments, instead of over the n (n − 1) / 2
            pairs.

    Returns:
        A positive scalar. Traced points give no warning, and NaN if all of them are equal.

    Raises:
        ValueError: if there are fewer than two points, the points are not finite, or all are equal.

    Cost: 2 n² distances in O(n) memory, or n² distances that are stored for traced points. More
    than 1024 points on a line take O(n log² n). Gradients are zero: treat the length scale as a
    constant.

    References: W19 §7 and App. J.

    >>> import jax.numpy as jnp
    >>> from calibjax import distances
    >>> print(median_heuristic(distances.Euclidean(), jnp.array([0.0, 1.0, 3.0])))  # of 1, 2, 3
    2.0
    """
    n = checks.leading_size("xs", xs)
    value, zeros, ranks = median_of_distances(distance, xs, include_diagonal=include_diagonal)
    value = checks.nan_with(value, distance, xs)  # ranks do not propagate NaN
    if not checks.is_concrete(value, zeros):
        return value
    if zeros == n * (n - 1) // 2:
        raise ValueError("xs: expected points that differ, got only distances of zero")
    checks.refuse_where(np.isnan(value), "distance", "numbers for these points", value)
    if zeros >= ranks[1]:
        warnings.warn(
            f"xs: {zeros} of {n * (n - 1) // 2} pairs of points have a distance of zero; taking "
            f"the median of the positive distances instead, {value:.4g}",
            stacklevel=3,
        )
    return value


def target_kernels(predictions: Distribution) -> dict[str, Kernel]:
    """Kernels on targets without normal scores, for several length scales, by name.

    They are exp(−‖y − z‖² / (2 ℓ²)), for Laplace distributions exp(−‖y − z‖ / ℓ), and `Stein` of
    these if expectations have no closed form.
    """
    plain, deviation = bare(predictions), _typical_deviation(predictions)
    shape = _target_shape(plain, deviation)
    return {f"targets {scale:g} deviations": shape(scale * deviation) for scale in _TARGET_SCALES}


def _shape(predictions: Distribution) -> type[Exponential | SquaredExponential]:
    one = predictions.components if isinstance(predictions, Mixture) else predictions
    return Exponential if isinstance(one, Laplace) else SquaredExponential


def _target_shape(predictions: Distribution, deviation: jax.Array) -> Callable[[Any], Kernel]:
    """Length scale → kernel on targets."""
    shape = _shape(predictions)
    for kernel_of in (shape, lambda length_scale: Stein(shape(length_scale))):
        if has_expectations(kernel_of(deviation), predictions):
            return kernel_of
    name = type(predictions).__name__
    raise NotImplementedError(f"predictions: no default kernels for {name}; see monte_carlo")


def _typical_deviation(predictions: Distribution) -> jax.Array:
    """Median of the positive standard deviations; for vectors the root of the sum of variances.

    If there are none, the mean distance of the predicted means from their median; zero if these are
    equal and traced, with which kernels are NaN.
    """
    checks.method("predictions", bare(predictions), "variance")
    typical = _median_deviation(predictions)
    if checks.is_concrete(typical) and float(typical) == 0:
        raise ValueError("predictions: expected values that differ for a length scale, got one")
    return checks.nan_with(typical, predictions)


@jax.jit
def _median_deviation(predictions: Distribution) -> jax.Array:
    def deviation(p: Any) -> tuple[jax.Array, jax.Array]:
        """The standard deviation, and the mean if it is zero."""
        variance = p.variance()
        value = jnp.sqrt(jnp.sum(variance))
        mean = jnp.where(value == 0, p.mean(), 0) if hasattr(p, "mean") else value
        if jnp.ndim(variance) or not hasattr(p, "icdf"):
            return value, mean
        # Student's distributions with few degrees of freedom have no variance.
        quartiles = (p.icdf(jnp.asarray(0.75)) - p.icdf(jnp.asarray(0.25))) / 1.349
        return jnp.where(jnp.isfinite(value), value, quartiles), mean

    values, means = jax.vmap(deviation)(predictions)
    between = jnp.sum(jnp.mean(jnp.abs(means - jnp.median(means, 0)), 0))
    typical = jnp.nanmedian(jnp.where(values == 0, jnp.nan, values))
    return jnp.where(jnp.all(values == 0), between, typical)


def distance_of_predictions(predictions: Distribution) -> Distance:
    """Distance of two predictions in default kernels."""
    plain = bare(predictions, Wrapper)
    if isinstance(plain, distributions.Normal | distributions.DiagNormal | Laplace):
        return distances.Wasserstein()
    if isinstance(plain, distributions.MvNormal | Ensemble | Mixture):
        if isinstance(plain, Ensemble) and plain.values.ndim == 2:
            return distances.Wasserstein()
        deviation = _typical_deviation(predictions)
        kernel = _target_shape(bare(predictions), deviation)(deviation)
        return distances.MaximumMeanDiscrepancy(kernel)
    return Euclidean()


def prediction_kernels(
    predictions: Distribution, distance: Distance, shape: Callable[..., Kernel] = SquaredExponential
) -> dict[str, Kernel]:
    """Kernels on predictions, and on their features if they have any.

    On a line, exponential kernels would be faster but less powerful.
    """
    distance_of = {"predictions": distance}
    if isinstance(bare(predictions, MonteCarlo), WithFeatures):
        distance_of["features"] = distances.Features(Euclidean())
    kernels: dict[str, Kernel] = {}
    for name, d in distance_of.items():
        median = typical_distance(d, predictions)
        for scale in _PREDICTION_SCALES:
            kernel = affordable(shape(scale * median, d), predictions)
            kernels[f"{name} {Fraction(scale)} median"] = kernel
    return kernels | {"all predictions": Constant()}


def thinned(points: T, number: int = _NUM_SCALED) -> T:
    """Every k-th point, to limit the number of pairs."""
    step = -(-checks.leading_size("points", points) // number)
    return points if step == 1 else jax.tree.map(lambda leaf: leaf[::step], points)


def affordable(kernel: Kernel, predictions: Distribution) -> Kernel:
    """The kernel, or one of low rank if a test would take quadratic time in many predictions.

    999 redraws of ten classes with all pairs of 2000 predictions take four seconds.
    """
    points = without_draws(predictions)
    distance, n = distance_of_exponentials(kernel), checks.leading_size("predictions", points)
    if n <= MANY or isinstance(kernel, Nystrom) or known_line(distance, points) is not None:
        return kernel
    return Nystrom.from_predictions(kernel, thinned(points, MANY), NUM_LANDMARKS)


def typical_distance(distance: Distance, predictions: Distribution) -> jax.Array:
    """The median heuristic, or one if all distances are zero.

    Many predictions are thinned, unless they are known to lie on a line.
    """
    points = without_draws(predictions)
    if known_line(distance, points) is None:
        points = thinned(points)
    median, *_ = median_of_distances(distance, points)  # NaN then
    xp: Any = np if checks.is_concrete(median) else jnp  # runs no program
    return checks.nan_with(jax.device_put(xp.where(xp.isnan(median), 1, median)), predictions)


_SCORE_SCALES = (0.5, 2.0, 8.0)  # of kernels on normal scores
_MAX_CLASSES = 20  # most classes with kernels of their own
_UNIT: Any = np.ones((1, 1), np.float32)  # tests do not depend on the scale of a single score


@checked(minimum=2)
def default_kernels(predictions: Distribution) -> dict[str, Any]:
    """Groups of kernels that `aggregated_skce_test` combines by default, by name.

    They are chosen from the predictions alone. A group detects errors of one kind; all groups have
    equal weight:

    | predictions | group | kernels |
    | --- | --- | --- |
    | continuous numbers | `normal scores l`, l = 1/2, 2, 8 | `NormalScore`, for each k_P |
    | | `directions` | shift and scale: constant, and linear in location and log scale; `Shape` |
    | | `targets` | on targets, with `Constant`, if it has expectations |
    | counts except `Poisson` | | the same |
    | `DiagNormal`, `MvNormal` | `normal scores l` | the same with length scales l √d |
    | classes | `residuals` | `PearsonResidual`, with a constant kernel and one on all of p |
    | | `class-wise` | each class against the rest, with a kernel on its probability |
    | | `temperature` | its score, with the same kernels as the residuals |
    | | `bias` | frequency of each class |
    | `Bernoulli`, two classes | `residuals` | `PearsonResidual`, for each k_P |
    | | `log-odds` | scores of the intercept and the slope of the log-odds |
    | others | `targets l deviations`, l = 1, 2, 8 | exp(−‖y − z‖² / (2 ℓ²)), for each k_P |

    k_P(p, q) = exp(−d² / (2 ℓ²)), or exp(−d / ℓ) for two classes. ℓ is 1/8, 1/2, 2 and ∞
    (`Constant`) medians of the distances d of two predictions. Predictions with features also have
    kernels on the Euclidean distance of the features.

    | d | predictions |
    | --- | --- |
    | Wasserstein | `Normal`, `DiagNormal`, `Laplace`, scalar `Ensemble` |
    | total variation | classes |
    | maximum mean discrepancy | `MvNormal`, `Mixture`, `Ensemble` of vectors |
    | Euclidean distance of the parameters | others |

    Kernels on all classes are exp(−d / ℓ) with one median. Each of the 20 classes with the largest
    mean probability has kernels of its own. Directions are the scores of
    `recalibration.AffineScaling` on normal scores, and skewness and peakedness with a `Constant`
    kernel. Location and log scale are left out if they are known to be equal for all predictions.

    Length scales on targets are in medians of the predicted standard deviations, 1/2 in `targets`.
    For `Laplace` the kernel is exp(−‖y − z‖ / ℓ). If expectations have no closed form, `Stein`
    replaces it, which needs a continuous density.

    `targets` detects errors of marginal calibration: of the frequencies of targets over all
    predictions together.

    Medians of more than 1000 predictions use a part of them, except for probabilities of one class.
    For more than 2000 such predictions, kernels on them are replaced by `Nystrom` approximations
    with 100 landmarks. A test with the whole family then takes linear time, but has less power
    against errors that are narrower than the distances of landmarks.

    Args:
        predictions: batch of n ≥ 2 distributions.

    Returns:
        Dictionary of dictionaries of kernels, or of pairs (reduction, kernel), which may be
        extended and passed as `kernels`.

    Raises:
        TypeError: if `predictions` is not a batch of distributions, or has no method `variance`.
        ValueError: if there are fewer than two, or shapes or values are wrong.
        NotImplementedError: if target kernels have no closed-form expectations, and there is no
            continuous density; choose kernels by hand.

    Cost: the median heuristic, once for each distance and reduction.

    References: none of the four papers has it.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions
    >>> predictions = distributions.Normal(jnp.array([0.0, 1.0, 3.0]), jnp.full(3, 2.0))
    >>> for group, kernels in default_kernels(predictions).items():
    ...     print(f"{group}: {', '.join(kernels)}")
    normal scores 1/2: predictions 1/8 median, predictions 1/2 median, predictions 2 median, ...
    normal scores 2: predictions 1/8 median, predictions 1/2 median, predictions 2 median, all ...
    normal scores 8: predictions 1/8 median, predictions 1/2 median, predictions 2 median, all ...
    directions: shift, shift by location, scale, scale by location, skewness, peakedness
    targets: all predictions
    """
    plain = bare(predictions)
    if has_class_probs(plain):
        is_binary = plain.class_probs.shape[1] == 2
        return _of_binary(predictions) if is_binary else _of_classes(predictions)
    on_predictions = prediction_kernels(predictions, distance_of_predictions(predictions))
    if _has_normal_scores(plain):
        return _of_numbers(predictions, on_predictions)
    targets = target_kernels(predictions)
    return {group: _products(on_predictions, k_y) for group, k_y in targets.items()}


@checked(minimum=2)
def default_kernel(predictions: Distribution) -> TensorProduct:
    """Default choice of a single kernel, from the predictions alone.

    With the distance d of `default_kernels`, and its median ℓ among the predictions, it is

    | predictions | kernel on predictions | target kernel |
    | --- | --- | --- |
    | continuous numbers | exp(−d² / (2 ℓ²)) | `NormalScore`, sum of those with lengths 1/2 and 2 |
    | `DiagNormal`, `MvNormal` | the same | the same, lengths √d / 2 and 2 √d |
    | classes | exp(−d / ℓ) | `PearsonResidual` |
    | others | exp(−d² / (2 ℓ²)) | that of `targets 1 deviations` |

    In `exact_skce_test` it detects shapes and scales that are wrong for all predictions, and errors
    that many predictions share. It has less power than `aggregated_skce_test` with
    `default_kernels` against small shifts, errors that change their sign between similar
    predictions, and a wrong frequency of one class.

    Args:
        predictions: batch of n ≥ 2 distributions.

    Returns:
        The kernel on pairs (prediction, target).

    Raises:
        TypeError: if `predictions` is not a batch of distributions.
        ValueError: if there are fewer than two, or shapes or values are wrong.
        NotImplementedError: see `default_kernels`.

    Cost: the median heuristic.

    References: none of the four papers has it.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions
    >>> predictions = distributions.Normal(jnp.array([0.0, 1.0, 3.0]), jnp.full(3, 2.0))
    >>> kernel = default_kernel(predictions)
    >>> print(kernel.prediction.length_scale, len(kernel.target.terms))
    2.0 2
    """
    plain = bare(predictions)
    if has_class_probs(plain):
        return TensorProduct(_exponential(predictions), PearsonResidual())
    if _has_normal_scores(plain):
        size = _score_size(plain)
        narrow, wide = (NormalScore(SquaredExponential(x * size)) for x in (0.5, 2.0))
        target = narrow + wide
    else:
        target = target_kernels(predictions)["targets 1 deviations"]
    distance = distance_of_predictions(predictions)
    scale = typical_distance(distance, predictions)
    return TensorProduct(SquaredExponential(scale, distance), target)


def _has_normal_scores(predictions: Distribution) -> bool:
    """Whether default kernels use normal scores.

    For Poisson predictions they detect a wrong dispersion slightly better, but local errors worse
    (58 instead of 70 %, n = 64, 320 data sets).
    """
    has_none = isinstance(predictions, distributions.Poisson | Ensemble)
    return not has_none and has_expectations(NormalScore(), predictions)


def _score_size(predictions: Distribution) -> float:
    """√d for vectors, the scale of distances of normal scores."""
    return math.sqrt(predictions.loc.shape[1]) if isinstance(predictions, VECTORS) else 1.0


def _products(on_predictions: dict[str, Kernel], target: Kernel) -> dict[str, Kernel]:
    """A target kernel with each of the kernels on predictions."""
    return {name: TensorProduct(k_p, target) for name, k_p in on_predictions.items()}


def _of_numbers(predictions: Distribution, on_predictions: dict[str, Kernel]) -> dict[str, Any]:
    """Kernels on normal scores, and directions of scalars."""
    plain, groups = bare(predictions), {}
    for scale in _SCORE_SCALES:
        kernel = NormalScore(SquaredExponential(scale * _score_size(plain)))
        groups[f"normal scores {Fraction(scale)}"] = _products(on_predictions, kernel)
    if isinstance(plain, VECTORS):
        return groups
    groups["directions"] = _directions(plain)
    # Detects wrong marginal frequencies of targets, which normal scores do not show.
    if hasattr(plain, "variance"):
        kernel = _shape(plain)(_MARGINAL_SCALE * _typical_deviation(predictions))
        if has_expectations(kernel, plain):
            groups["targets"] = {"all predictions": TensorProduct(Constant(), kernel)}
    return groups


def _directions(predictions: Distribution) -> dict[str, Kernel]:
    """Scores of shift and scale, constant and linear in the predictions, and of shapes."""
    along: dict[str, Kernel] = {"": Constant()}
    for of in ("location", "log scale"):
        regressor = residuals.Regressor.among(predictions, of)
        if not checks.is_concrete(regressor.unit) or float(regressor.unit) > 0:
            along[f" by {of}"] = regressor
    directions: dict[str, Kernel] = {}
    for name in ("shift", "scale"):
        products = _products(along, NormalScore(_fisher(name)))
        directions |= {f"{name}{by}": product for by, product in products.items()}
    for name in residuals.SHAPES:
        directions[name] = TensorProduct(Constant(), NormalScore(residuals.Shape(name)))
    return directions


def _fisher(only: str | None = None) -> Fisher:
    """Score of the temperature, or of the shift or the scale of normal scores."""
    from calibjax import recalibration  # imports kernels

    method = recalibration.AffineScaling() if only else recalibration.TemperatureScaling()
    return Fisher(method, only, _UNIT)


def _of_binary(predictions: Distribution) -> dict[str, Any]:
    """Kernels on Pearson residuals, and the scores of an affine map of log-odds."""
    on_predictions = prediction_kernels(predictions, TotalVariation(), Exponential)
    intercept = TensorProduct(Constant(), White())
    slope = TensorProduct(Constant(), _fisher())  # the score of the temperature, up to its sign
    log_odds = {"intercept": intercept, "slope": slope}
    return {"residuals": _products(on_predictions, PearsonResidual()), "log-odds": log_odds}


def _of_classes(predictions: Distribution) -> dict[str, Any]:
    """Kernels on all classes, on each, and the scores of a temperature."""
    near = affordable(_exponential(predictions), predictions)
    on_predictions = {"near predictions": near, "all predictions": Constant()}
    class_wise, bias = {}, {}
    probs = bare(predictions).class_probs
    labels = likely_classes(probs)
    for i, (c, scale) in enumerate(zip(labels, _scales_of_classes(probs, labels), strict=True)):
        name, reduction = (
            f"class {c}" if isinstance(c, int) else f"likely class {i}",
            OneVersusRest(c),
        )
        class_wise[name] = reduction, TensorProduct(Exponential(scale, TotalVariation()), White())
        bias[name] = reduction, TensorProduct(Constant(), White())
    return {
        "residuals": _products(on_predictions, PearsonResidual()),
        "class-wise": class_wise,
        "temperature": _products(on_predictions, _fisher()),
        "bias": bias,
    }


def _scales_of_classes(probs: Any, labels: list[Any]) -> Iterable[jax.Array]:
    """Median distances of the probabilities of each class."""

    def median(label: Any) -> jax.Array:
        return typical_distance(TotalVariation(), distributions.Bernoulli(probs[:, label]))

    # A loop within a program is compiled once for all classes.
    is_known = checks.is_outermost(probs)
    return map(median, labels) if is_known else jax.lax.map(median, jnp.asarray(labels))


def likely_classes(probs: jax.Array) -> list[Any]:
    """Classes with the largest mean probability; Python integers if these are known."""
    if probs.shape[1] <= _MAX_CLASSES:
        return list(range(probs.shape[1]))
    likely = jnp.sort(jax.lax.top_k(jnp.mean(probs, 0), _MAX_CLASSES)[1])
    return likely.tolist() if checks.is_concrete(likely) else list(likely)


def _exponential(predictions: Distribution) -> Exponential:
    """Exponential kernel with the length scale of the median heuristic."""
    return Exponential(typical_distance(TotalVariation(), predictions), TotalVariation())
