"""Groups of kernels that see errors of one kind each: the default family of aggregated tests."""

import math
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax.distances import TotalVariation
from calibjax.distributions import Bernoulli, Ensemble, Poisson
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.distributions.features import bare
from calibjax.kernels.base import Constant, Kernel, TensorProduct
from calibjax.kernels.default_scales import (
    affordable,
    distance_of_predictions,
    fraction,
    marginal_kernel,
    prediction_kernels,
    target_kernels,
    typical_distance,
)
from calibjax.kernels.expectations import check_expectations
from calibjax.kernels.labels import White
from calibjax.kernels.normal_scores import VECTORS, NormalScore
from calibjax.kernels.regressors import Regressor
from calibjax.kernels.residuals import SHAPES, Fisher, PearsonResidual, Shape
from calibjax.kernels.stationary import Exponential, SquaredExponential
from calibjax.lenses import OneVersusRest

_SCORE_SCALES = (0.5, 2.0, 8.0)  # of kernels on normal scores
_MAX_CLASSES = 20  # each of which has kernels of its own
_UNIT: Any = np.ones((1, 1), np.float32)  # no test notices the scale of a single score


def default_kernels(predictions: Distribution) -> dict[str, Any]:
    """The groups of kernels that `aggregated_skce_test` combines by default, by name.

    They are chosen from the predictions alone. A group sees errors of one kind, and has as much
    weight as the others, however many kernels it has:

    | predictions | group | kernels |
    | --- | --- | --- |
    | continuous numbers | `normal scores l`, l = 1/2, 2, 8 | `NormalScore`, for each k_P |
    | | `directions` | shift and scale: of all, in proportion to location and log scale; `Shape` |
    | | `targets` | on targets, of all predictions together, if it has expectations |
    | counts but `Poisson` | | the same |
    | `DiagNormal`, `MvNormal` | `normal scores l` | the same with length scales l √d |
    | classes | `residuals` | `PearsonResidual`, with a constant kernel and one on all of p |
    | | `class-wise` | each class against the rest, with a kernel on its probability |
    | | `temperature` | its score, with the same kernels as the residuals |
    | | `bias` | frequency of each class |
    | `Bernoulli`, two classes | `residuals` | `PearsonResidual`, for each k_P |
    | | `log-odds` | scores of the intercept and the slope of the log-odds |
    | others | `targets l deviations`, l = 1, 2, 8 | exp(−‖y − z‖² / (2 ℓ²)), for each k_P |

    k_P(p, q) = exp(−d² / (2 ℓ²)), or exp(−d / ℓ) of two classes, with ℓ of 1/8, 1/2, 2 and ∞
    (`Constant`) medians of the distances d of two predictions; predictions with features have those
    of the Euclidean distance of the features, too. d is the Wasserstein distance of `Normal`,
    `DiagNormal`, `Laplace` and scalar `Ensemble`, the total variation of classes, the maximum mean
    discrepancy of `MvNormal`, `Mixture` and vectors of `Ensemble`, and otherwise the Euclidean
    distance of the parameters. Kernels on all classes are exp(−d / ℓ) with one median. Each of the
    20 classes with the largest mean probability has kernels of its own. Directions are the scores
    of `recalibration.AffineScaling` on normal scores, where those of numbers that are the same for
    all predictions are left out, if the values are not traced, and of skewness and peakedness,
    which only `Constant` kernels look at. Length scales on targets are in medians
    of the predicted standard deviations, 1/2 in `targets`; for `Laplace` the kernel is
    exp(−‖y − z‖ / ℓ), and where expectations have no closed form it is `Stein` of it, which needs a
    continuous density.

    `targets` asks for marginal calibration: do targets between two numbers occur as often as
    predicted, whatever the prediction? A model of diabetes whose normal scores are right (p = .26
    with all other groups) predicts too few targets between 44 and 114 (p = .006 with this one). It
    costs little elsewhere: of normals, n = 64, at most 3 % (bimodal .78 to .75, 100 data sets).

    Of more than 1000 predictions that are not probabilities of one class, the medians are those of
    every few. Of more than 2000 such predictions, kernels on them are replaced by `Nystrom` ones
    with 100 landmarks: a test with the whole family takes linear time, but sees less of errors that
    are much narrower than the distances of landmarks.

    Args:
        predictions: batch of n ≥ 2 distributions.

    Returns:
        Dictionary of dictionaries of kernels, or pairs (lens, kernel), which may be extended and
        handed over as `kernels`.

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
    >>> for group, kernels in default_kernels(predictions).items():
    ...     print(f"{group}: {', '.join(kernels)}")
    normal scores 1/2: predictions 1/8 median, predictions 1/2 median, predictions 2 median, ...
    normal scores 2: predictions 1/8 median, predictions 1/2 median, predictions 2 median, all ...
    normal scores 8: predictions 1/8 median, predictions 1/2 median, predictions 2 median, all ...
    directions: shift, shift by location, scale, scale by location, skewness, peakedness
    targets: all predictions
    """
    predictions = checks.batch(predictions, minimum=2)
    plain = bare(predictions)
    if has_class_probs(plain):
        is_binary = jax.eval_shape(lambda p: p.class_probs, plain).shape[1] == 2
        return _of_binary(predictions) if is_binary else _of_classes(predictions)
    return (_of_numbers if _has_normal_scores(plain) else _of_targets)(predictions)


def default_kernel(predictions: Distribution) -> TensorProduct:
    """The kernel to take if there is to be one only, chosen from the predictions alone.

    With the distance d of `default_kernels`, and its median ℓ among the predictions, it is

    | predictions | kernel on predictions | target kernel |
    | --- | --- | --- |
    | continuous numbers | exp(−d² / (2 ℓ²)) | `NormalScore`, sum of those with lengths 1/2 and 2 |
    | `DiagNormal`, `MvNormal` | the same | the same, lengths √d / 2 and 2 √d |
    | classes | exp(−d / ℓ) | `PearsonResidual` |
    | others | exp(−d² / (2 ℓ²)) | that of `targets 1 deviations` |

    In `exact_skce_test` it sees shapes and scales that are wrong for all predictions, and errors
    that many predictions share. It is weak at what `aggregated_skce_test` with `default_kernels`
    also looks for: small shifts, errors that change their sign between similar predictions, and a
    frequency of one class that is wrong.

    Args:
        predictions: batch of n ≥ 2 distributions.

    Returns:
        The kernel on pairs (prediction, target).

    Raises:
        TypeError: if `predictions` is not a batch of distributions.
        ValueError: if there are fewer than two, or shapes or values are wrong.
        NotImplementedError: see `default_kernels`.

    Cost: that of the median heuristic.

    References: none of the four papers has it.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions
    >>> predictions = distributions.Normal(jnp.array([0.0, 1.0, 3.0]), jnp.full(3, 2.0))
    >>> kernel = default_kernel(predictions)
    >>> print(kernel.prediction.length_scale, len(kernel.target.terms))
    2.0 2
    """
    predictions = checks.batch(predictions, minimum=2)
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
    """Whether default kernels look at normal scores.

    Of Poisson predictions they see a wrong dispersion better, 42 and 35 % instead of 38 and 32, but
    local errors less, 58 instead of 70 (n = 64, 320 data sets).
    """
    if isinstance(predictions, Poisson | Ensemble):
        return False
    try:
        check_expectations(NormalScore(), predictions)
    except NotImplementedError:
        return False
    return True


def _score_size(predictions: Distribution) -> float:
    """√d of vectors, by which distances of normal scores grow."""
    return math.sqrt(predictions.loc.shape[1]) if isinstance(predictions, VECTORS) else 1.0


def _of_targets(predictions: Distribution) -> dict[str, Any]:
    """Kernels on targets."""
    targets = target_kernels(predictions)
    on_predictions = prediction_kernels(predictions, distance_of_predictions(predictions))
    return {group: _products(on_predictions, k_y) for group, k_y in targets.items()}


def _products(on_predictions: dict[str, Kernel], target: Kernel) -> dict[str, Kernel]:
    """A target kernel with each of the kernels on predictions."""
    return {name: TensorProduct(k_p, target) for name, k_p in on_predictions.items()}


def _of_numbers(predictions: Distribution) -> dict[str, Any]:
    """Kernels on normal scores, and directions of scalars."""
    plain = bare(predictions)
    size = _score_size(plain)
    on_predictions = prediction_kernels(predictions, distance_of_predictions(predictions))
    groups: dict[str, Any] = {
        f"normal scores {fraction(scale)}": _products(
            on_predictions, NormalScore(SquaredExponential(scale * size))
        )
        for scale in _SCORE_SCALES
    }
    if isinstance(plain, VECTORS):
        return groups
    groups["directions"] = _directions(plain)
    if (kernel := marginal_kernel(predictions)) is not None:
        groups["targets"] = {"all predictions": TensorProduct(Constant(), kernel)}
    return groups


def _directions(predictions: Distribution) -> dict[str, Kernel]:
    """Scores of shift and scale, of all predictions alike and growing with these, and of shapes."""
    along: dict[str, Kernel] = {"": Constant()}
    for of in ("location", "log scale"):
        regressor = Regressor.among(predictions, of)
        if not checks.is_concrete(regressor.unit) or regressor.unit > 0:
            along[f" by {of}"] = regressor
    scores: dict[str, Kernel] = {
        f"{name}{by}": TensorProduct(k_p, NormalScore(_fisher(name)))
        for name in ("shift", "scale")
        for by, k_p in along.items()
    }
    return scores | {name: TensorProduct(Constant(), NormalScore(Shape(name))) for name in SHAPES}


def _fisher(only: str | None = None) -> Fisher:
    """Score of the temperature, or of the shift or the scale of normal scores."""
    from calibjax import recalibration  # which has kernels itself

    method = recalibration.AffineScaling() if only else recalibration.TemperatureScaling()
    return Fisher(method, only, _UNIT)


def _of_binary(predictions: Distribution) -> dict[str, Any]:
    """Kernels on Pearson residuals, and the scores of a straight line of log-odds."""
    on_predictions = prediction_kernels(predictions, TotalVariation(), Exponential)
    slope = _fisher()  # of the temperature: the same score but for its sign
    log_odds: dict[str, Kernel] = {"intercept": White(), "slope": slope}
    return {
        "residuals": _products(on_predictions, PearsonResidual()),
        "log-odds": {name: TensorProduct(Constant(), k_y) for name, k_y in log_odds.items()},
    }


def _of_classes(predictions: Distribution) -> dict[str, Any]:
    """Kernels on all classes, on each, and the scores of a temperature."""
    near = affordable(_exponential(predictions), predictions)
    on_predictions = {"near predictions": near, "all predictions": Constant()}
    class_wise, bias = {}, {}
    probs = _probs(bare(predictions))
    labels = likely_classes(probs)
    for i, (c, scale) in enumerate(zip(labels, _scales_of_classes(probs, labels), strict=True)):
        name, lens = f"class {c}" if isinstance(c, int) else f"likely class {i}", OneVersusRest(c)
        class_wise[name] = lens, TensorProduct(Exponential(scale, TotalVariation()), White())
        bias[name] = lens, TensorProduct(Constant(), White())
    return {
        "residuals": _products(on_predictions, PearsonResidual()),
        "class-wise": class_wise,
        "temperature": _products(on_predictions, _fisher()),
        "bias": bias,
    }


@jax.jit
def _probs(predictions: Any) -> jax.Array:
    return predictions.class_probs


def _scales_of_classes(probs: Any, labels: list[Any]) -> Iterable[jax.Array]:
    """Median distances of the probabilities of each class."""

    def median(label: Any) -> jax.Array:
        return typical_distance(TotalVariation(), Bernoulli(probs[:, label]))

    if checks.is_concrete(probs):
        probs = np.asarray(probs)  # whose columns are taken without a program
        return map(median, labels)
    # A loop within a program is compiled once for all classes.
    return jax.lax.map(median, jnp.asarray(labels))


def likely_classes(probs: jax.Array) -> list[Any]:
    """Classes with the largest mean probability; numbers where these are known."""
    if probs.shape[1] <= _MAX_CLASSES:
        return list(range(probs.shape[1]))
    if checks.is_concrete(probs):
        means = np.asarray(probs).mean(0)
        return sorted(np.argsort(-means, kind="stable")[:_MAX_CLASSES].tolist())
    return list(jnp.sort(jax.lax.top_k(jnp.mean(probs, 0), _MAX_CLASSES)[1]))


def _exponential(predictions: Distribution) -> Exponential:
    """With the length scale of the median heuristic."""
    return Exponential(typical_distance(TotalVariation(), predictions), TotalVariation())
