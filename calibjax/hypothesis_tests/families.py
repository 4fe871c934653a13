"""Families of kernels for aggregated tests: the default ones, and those of the user."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import _checks
from calibjax._pytree import PyTree
from calibjax.distances import (
    Distance,
    Euclidean,
    Features,
    MaximumMeanDiscrepancy,
    TotalVariation,
    Wasserstein,
)
from calibjax.distributions import (
    DiagNormal,
    Laplace,
    Mixture,
    MonteCarlo,
    MvNormal,
    Normal,
    Poisson,
    Samples,
    WithFeatures,
)
from calibjax.distributions.base import Distribution
from calibjax.distributions.features import bare
from calibjax.distributions.sampling import draw
from calibjax.estimators.kernel import refuse_without_expectations, sample_pair
from calibjax.estimators.lenses import OneVersusRest, top_label
from calibjax.kernels import (
    Constant,
    Exponential,
    Kernel,
    SquaredExponential,
    Stein,
    TensorProduct,
    White,
)
from calibjax.kernels.bandwidth import median_of_distances
from calibjax.kernels.base import without_draws
from calibjax.kernels.expectations import check_expectations
from calibjax.kernels.normal_scores import is_of_counts
from calibjax.kernels.residuals import informed

_PREDICTION_SCALES = (0.125, 0.5, 2.0)  # in medians of the distances, beside infinity
_TARGET_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # in medians of the standard deviations
_MAX_CLASSES = 20  # each of which has kernels of its own


def target_kernels(predictions: Distribution) -> dict[str, Any]:
    """Kernels on predictions and targets, of many length scales, by name.

    They are chosen from the predictions alone. Kernels on predictions are k_P(p, q) =
    exp(−d² / (2 ℓ²)) with the length scales ℓ = d̄ {1/8, 1/2, 2, ∞}, where d̄ is the median of the
    distances d of two predictions, and ℓ = ∞ is `Constant`. Target kernels are
    k_Y(y, z) = exp(−‖y − z‖² / (2 ℓ²)) with ℓ = s̄ {1/4, 1/2, 1, 2, 4, 8}, where s̄ is the median
    standard deviation of the predictions. All of them are combined:

    | predictions | d | target kernels |
    | --- | --- | --- |
    | `Normal`, `DiagNormal`, scalar `Samples` | Wasserstein | as above |
    | `Laplace` | Wasserstein | exp(−‖y − z‖ / ℓ) |
    | `MvNormal`, vectors of `Samples` | maximum mean discrepancy with ℓ = s̄ | as above |
    | `Mixture` of normals, of Laplace distributions | the same | as for the components |
    | `Poisson` | Euclidean distance of the rates | as above, and `White` |
    | classes | total variation, exp(−d / ℓ) | `White` |
    | others | Euclidean distance of the parameters | as above, or `Stein` of them |

    `Stein` stands where expectations have no closed form. It needs a continuous density.

    Classes are seen through several lenses: all together, the top label, and, if there are more
    than two, each of the 20 classes with the largest mean probability. Predictions with features
    have the kernels of the predictions and those of the Euclidean distance of the features.

    Args:
        predictions: batch of n ≥ 2 distributions.

    Returns:
        Dictionary of kernels, or pairs (lens, kernel), which may be extended and handed over as
        `kernels`.

    Raises:
        TypeError: if `predictions` is not a batch of distributions, or has no method `variance`.
        ValueError: if there are fewer than two, or shapes or values are wrong.
        NotImplementedError: if target kernels have no closed-form expectations, and there is no
            continuous density, so that kernels have to be chosen by hand.

    Cost: that of the median heuristic, once for each distance and lens.

    References: none of the four papers has it.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions
    >>> predictions = distributions.Normal(jnp.array([0.0, 1.0, 3.0]), jnp.full(3, 2.0))
    >>> kernels = target_kernels(predictions)
    >>> kernel = kernels["predictions 1/2 median, targets 4 deviations"]
    >>> print(len(kernels), kernel.prediction.length_scale, kernel.target.length_scale)
    24 1.0 8.0
    """
    predictions = _checks.batch(predictions, minimum=2)
    plain = bare(predictions)
    if hasattr(plain, "class_probs"):
        return _of_classes(predictions)
    deviation = _typical_deviation(predictions)
    targets = _target_kernels(plain, deviation)
    return {
        f"{prediction}, {target}": TensorProduct(k_p, k_y)
        for prediction, k_p in prediction_kernels(predictions, _distance(plain, targets)).items()
        for target, k_y in targets.items()
    }


def distance_of_predictions(predictions: Distribution) -> Distance:
    """The distance of two predictions in `target_kernels`."""
    plain = bare(predictions)
    if is_of_counts(plain):
        return Euclidean()
    return _distance(plain, _target_kernels(plain, _typical_deviation(predictions)))


def _typical_deviation(predictions: Distribution) -> jax.Array:
    """Median standard deviation; of vectors the root of the sum of the variances."""
    _checks.method("predictions", bare(predictions), "variance")
    return _median_deviation(predictions)


@jax.jit
def _median_deviation(predictions: Distribution) -> jax.Array:

    def deviation(p: Any) -> jax.Array:
        variance = p.variance()
        value = jnp.sqrt(jnp.sum(variance))
        if jnp.ndim(variance) or not hasattr(p, "icdf"):
            return value
        # Student's distributions of few degrees of freedom have no variance.
        quartiles = (p.icdf(jnp.asarray(0.75)) - p.icdf(jnp.asarray(0.25))) / 1.349
        return jnp.where(jnp.isfinite(value), value, quartiles)

    return jnp.median(jax.vmap(deviation)(predictions))


def _components(p: Any) -> Any:
    return p.components if isinstance(p, Mixture) else p


def _target_kernels(predictions: Any, deviation: jax.Array) -> dict[str, Kernel]:
    shape = Exponential if isinstance(_components(predictions), Laplace) else SquaredExponential
    kernels: dict[str, Kernel] = {
        f"targets {fraction(scale)} deviations": shape(scale * deviation)
        for scale in _TARGET_SCALES
    }
    try:
        check_expectations(shape(deviation), predictions)
    except NotImplementedError:
        kernels = {name: Stein(kernel) for name, kernel in kernels.items()}
        try:
            check_expectations(Stein(shape(deviation)), predictions)
        except NotImplementedError as error:
            raise NotImplementedError(
                f"predictions: no default kernels for {type(predictions).__name__}; hand over "
                "kernels, or as predictions "
                "distributions.monte_carlo(key, predictions, num_samples)"
            ) from error
    return kernels | {"equal targets": White()} if isinstance(predictions, Poisson) else kernels


def _distance(predictions: Any, targets: dict[str, Kernel]) -> Distance:
    """Distance of two predictions."""
    if isinstance(predictions, MonteCarlo):
        predictions = bare(predictions.distribution)
    is_scalar_draws = isinstance(predictions, Samples) and predictions.values.ndim == 2
    if isinstance(predictions, Normal | DiagNormal | Laplace) or is_scalar_draws:
        return Wasserstein()
    if isinstance(predictions, MvNormal | Samples | Mixture):
        return MaximumMeanDiscrepancy(targets["targets 1 deviations"])
    return Euclidean()


def prediction_kernels(
    predictions: Distribution,
    distance: Distance,
    shape: Callable[[Any, Distance], Kernel] = SquaredExponential,
) -> dict[str, Kernel]:
    """Kernels on predictions, and on their features if they have any."""
    distances = {"predictions": distance}
    seen = predictions.distribution if isinstance(predictions, MonteCarlo) else predictions
    if isinstance(seen, WithFeatures):
        distances["features"] = Features(Euclidean())
    found = {
        f"{name} {fraction(scale)} median": shape(length_scale, d)
        for name, d in distances.items()
        for scale, length_scale in zip(
            _PREDICTION_SCALES, _length_scales(d, predictions), strict=True
        )
    }
    return found | {"all predictions": Constant()}


def fraction(scale: float) -> str:
    """A scale in words: 1/8 for 0.125."""
    return f"{scale:g}" if scale >= 1 else f"1/{1 / scale:g}"


def _length_scales(distance: Distance, predictions: Distribution) -> list[jax.Array]:
    """Multiples of the median heuristic, or of one if all distances are zero."""
    median, *_ = median_of_distances(distance, without_draws(predictions))  # NaN then
    return _multiples(median, predictions)


@jax.jit
def _multiples(median: jax.Array, predictions: Distribution) -> list[jax.Array]:
    median = _checks.nan_with(jnp.where(jnp.isnan(median), 1, median), predictions)
    return [scale * median for scale in _PREDICTION_SCALES]


def _of_classes(predictions: Any) -> dict[str, Any]:
    """Kernels for each lens."""
    num_classes = predictions.class_probs.shape[1]
    lenses: dict[str, Any] = {"all classes": None, "top label": top_label}
    if num_classes > 2:
        for i, c in enumerate(likely_classes(predictions.class_probs)):
            lenses[f"class {c}" if isinstance(c, int) else f"likely class {i}"] = OneVersusRest(c)
    anything = np.zeros(len(predictions.class_probs), np.int32)  # lenses need labels, too
    found = {}
    for name, lens in lenses.items():
        seen = predictions if lens is None else lens(predictions, anything)[0]
        for scale, k_p in prediction_kernels(seen, TotalVariation(), Exponential).items():
            kernel = TensorProduct(k_p, White())
            found[f"{name}, {scale}"] = kernel if lens is None else (lens, kernel)
    return found


def likely_classes(probs: jax.Array) -> list[Any]:
    """Classes with the largest mean probability; numbers where these are known."""
    if probs.shape[1] <= _MAX_CLASSES:
        return list(range(probs.shape[1]))
    labels = jnp.sort(jax.lax.top_k(jnp.mean(probs, 0), _MAX_CLASSES)[1])
    return labels.tolist() if _checks.is_concrete(labels) else list(labels)


def checked_family(
    kernels: PyTree, predictions: Distribution, targets: PyTree
) -> tuple[list[tuple[Any, Kernel]], Any]:
    """Checks the user's kernels for checked data.

    Returns:
        The lens (or None) and the kernel of each, and the tree of which they are the leaves.

    Raises:
        TypeError: if one is not a kernel, or a pair of a lens and a kernel.
        ValueError: if there are none, or a value is wrong for these predictions.
        NotImplementedError: if expectations have no closed form.
    """
    try:
        found, structure = jax.tree_util.tree_flatten_with_path(kernels, is_leaf=_is_member)
    except ValueError as error:
        raise ValueError(f"kernels: expected names that can be sorted, got {kernels}") from error
    if not found:
        raise ValueError(f"kernels: expected at least one kernel, got {kernels!r}")
    members = []
    views: dict[int, Any] = {}  # by lens
    for path, member in found:
        name = f"kernels{jax.tree_util.keystr(path)}"
        lens, kernel = member if isinstance(member, tuple) else (None, member)
        if not isinstance(kernel, Kernel):
            raise TypeError(
                f"{name}: expected a kernel, or a tuple (lens, kernel), got "
                f"{_checks.described(kernel)}"
            )
        if id(lens) not in views:
            checked = None if lens is None else _checked_lens(f"{name}[0]", lens)
            views[id(lens)] = checked, _seen(f"{name}[0]", checked, predictions, targets)
        lens, seen = views[id(lens)]
        kernel = _checks.kernel_values(kernel, name)
        _refuse_other_kind(name, kernel, seen)
        members.append((lens, informed(kernel, seen[0])))
    return members, structure


def _is_member(node: Any) -> bool:
    """Whether a node of the user's tree is a kernel, a pair (lens, kernel), or what it is not."""
    if type(node) is tuple and len(node) == 2 and isinstance(node[1], Kernel):
        return callable(node[0]) and not isinstance(node[0], Kernel)
    return not isinstance(node, dict | list | tuple)


def _checked_lens(name: str, lens: Any) -> Any:
    """The lens as a pytree, so that it goes through compiled functions."""
    _checks.function(
        "lens (predictions, targets) -> (predictions, targets)",
        name,
        lens,
        "predictions",
        "targets",
    )
    return jax.tree_util.Partial(lens) if jax.tree_util.all_leaves([lens]) else lens


def _seen(name: str, lens: Any, predictions: Distribution, targets: PyTree) -> PyTree:
    """The data as a lens shows them, whose predictions must not depend on the targets."""
    if lens is None:
        return predictions, targets
    try:
        seen = lens(predictions, targets)
        others = lens(predictions, draw(jax.random.key(0), predictions))
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error
    if not isinstance(seen, tuple) or len(seen) != 2:
        raise TypeError(
            f"{name}: expected a lens that returns a pair (predictions, targets), got "
            f"{_checks.described(seen)}"
        )
    names = f"{name}: predictions", f"{name}: targets"
    seen = _checks.predictions_and_targets(*seen, names=names)
    n, size = (_checks.leading_size("predictions", x) for x in (predictions, seen[0]))
    if n != size:
        raise ValueError(f"{name}: expected a lens that returns all {n} samples, got {size}")
    for one, other in zip(*map(jax.tree.leaves, (seen[0], others[0])), strict=True):
        if _checks.is_concrete(one, other) and not np.array_equal(one, other):
            raise ValueError(
                f"{name}: expected a lens whose predictions do not depend on the targets, got "
                f"{one} and, for redrawn targets, {other}"
            )
    return seen


def _refuse_other_kind(name: str, kernel: Kernel, seen: PyTree) -> None:
    """Refuses kernels that are not defined for these predictions and targets."""
    first = jax.eval_shape(lambda: jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], seen))
    try:
        refuse_without_expectations(kernel, seen[0])
        jax.eval_shape(sample_pair, kernel, first, first)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise type(error)(f"{name}: {error}") from error
