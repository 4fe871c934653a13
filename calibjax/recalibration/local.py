"""Recalibration within neighbourhoods (LoRe) and groups, and gains of recalibrations."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from calibjax._core import checks
from calibjax._core.arithmetic import mean_and_error, one_hot, ratio, safe_sqrt
from calibjax._core.environment import jit_quick
from calibjax._core.gate import Seen, checked, group_ids, sample_weights, usual
from calibjax._core.pytree import Numbers, PyTree, T, part, record
from calibjax.distributions import Ensemble
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.distributions.composed import bare
from calibjax.estimators.local import Neighbourhood, checked_neighbourhood
from calibjax.kernels.line import smoothed_means
from calibjax.recalibration.base import Recalibrator, Weights, cross_fitted, warn_about_kept
from calibjax.scores import crps, energy_score, negative_log_likelihood, pinball_loss
from calibjax.scores.proper import per_sample


def _with_one_scale(neighbourhood: Any, name: str) -> Neighbourhood:
    """Checked neighbourhood with one length scale."""
    neighbourhood = checked_neighbourhood(neighbourhood)
    scale = getattr(neighbourhood.kernel, "length_scale", 0.0)
    checks.shape(f"{name}.kernel.length_scale", scale, (), "() (a scalar)")
    return neighbourhood


@record
class LocalAccuracies:
    """Params of `LocalRecalibration`: the calibration samples.

    Attributes:
        neighbourhood: kernel on features and binning of confidences.
        features: features of the samples, [n, d] or a pytree with leading axis n.
        confidences: confidences of the samples, [n].
        correct: whether the predicted class was observed, 0 or 1, [n].
        weights: of the samples, [n], or None.
    """

    neighbourhood: Neighbourhood
    features: Any
    confidences: jax.Array
    correct: jax.Array
    weights: Weights = None


@record
class LocalRecalibration(Recalibrator):
    """Local recalibration (LoRe): kernel-weighted accuracy of the samples in the same bin.

        confidence'(x) = Σ_i k(φ(x), φ_i) correct_i / Σ_i k(φ(x), φ_i),

    with sums over the calibration samples in the confidence bin of x, and w_i k(φ(x), φ_i) for
    weights. A wide kernel gives `HistogramBinning`, a narrow one the correctness of the nearest
    sample, 0 or 1.

    The calibration samples determine the bins. Confidences in bins without calibration samples are
    kept, with a `UserWarning` except in compiled code.

    `fit(confidences, correct, features)` returns `LocalAccuracies`,
    `apply(params, confidences, features)` confidences [n]. The confidences are an array [n] or a
    batch of n `Bernoulli`s, `correct` is 0 or 1, [n], and features are [n, d], or any pytree with
    leading axis n. `apply` can be differentiated, also with respect to the kernel, which is part of
    the params.

    Attributes:
        neighbourhood: kernel on features, with one length scale, and binning of confidences;
            `Neighbourhood.laplacian(0.2, 15)` in L21 for t-SNE features.

    Raises:
        TypeError: by the methods if an argument is of the wrong kind.
        ValueError: by the methods if shapes or values are wrong.

    Cost: in `apply` one distance and one exponential for each pair of a point and a calibration
    sample in the same bin, O(n + n' + tile²) memory. `fit` only stores the samples.

    References: L21 eq. (6), App. A.

    >>> import jax.numpy as jnp
    >>> from calibjax.estimators import Neighbourhood
    >>> method = LocalRecalibration(Neighbourhood.laplacian(0.1, 5))
    >>> features = jnp.array([[0.0], [0.0], [9.0]])
    >>> params = method.fit(jnp.array([0.7, 0.7, 0.7]), jnp.array([1, 0, 1]), features)
    >>> print(method.apply(params, jnp.array([0.75, 0.75]), jnp.array([[0.0], [9.0]])))
    [0.5 1. ]
    """

    neighbourhood: Neighbourhood = part(_with_one_scale)

    @checked
    def fit(
        self,
        confidences: Numbers,
        correct: Numbers,
        features: PyTree,
        weights: Numbers | None = None,
    ) -> LocalAccuracies:
        """Checked calibration samples."""
        self.neighbourhood.groups(confidences, None, weights)  # refuses invalid binnings
        one = jax.tree.map(lambda leaf: leaf[0], features)
        jax.eval_shape(self.neighbourhood.kernel, one, one)  # refuses kernels on other points
        # Traced values that are not probabilities are in no bin.
        correct = jnp.where(jnp.any(jnp.isnan(confidences)), jnp.nan, correct)
        return LocalAccuracies(self.neighbourhood, features, confidences, correct, weights)

    @checked
    def apply(self, params: LocalAccuracies, confidences: Numbers, features: PyTree) -> jax.Array:
        """Local accuracies at other points, [n]."""
        checks.same_kind("features", features, "the calibration features", params.features)
        groups = params.neighbourhood.groups(params.confidences, confidences, params.weights)
        kernel, places = params.neighbourhood.kernel, (features, params.features)
        samples = groups, params.correct, params.weights
        values, totals = _local_accuracies(kernel, confidences, places, *samples)
        checks.finite("kernel(x, x')", totals)  # NaN if it is negative
        warn_about_kept("LocalRecalibration", totals == 0)
        return values


@jax.jit
def _local_accuracies(
    kernel: Any, confidences: jax.Array, places: Any, groups: Any, correct: Any, weights: Weights
) -> tuple[jax.Array, jax.Array]:
    """Local accuracies, or confidences without any, and sums of the weights, [n] each."""
    points, samples = groups
    weights = jnp.ones_like(correct) if weights is None else weights
    groups = points, jnp.where(weights == 0, -1, samples)  # in no group
    values = jnp.stack([weights * correct, weights], 1)
    means, totals = smoothed_means(kernel, places[0], places[1], values, groups)
    is_kept = totals[0] == 0
    accuracies = ratio(means[0, :, 0], jnp.where(is_kept, 1, means[0, :, 1]))
    accuracies = jnp.clip(accuracies, 0, 1).astype(confidences.dtype)  # rounding
    return jnp.where(is_kept | jnp.isnan(confidences), confidences, accuracies), totals[0]


@record
class GroupWise(Recalibrator):
    """A recalibrator fitted to each group of samples separately.

    `fit` and `apply` take the arguments of the recalibrator, followed by the groups, such as
    `fit(confidences, correct, ages)` and `apply(params, confidences, ages)`.

    Small groups have noisy params, or none: some methods raise an error without both correct and
    wrong predictions. Merge such groups with others.

    `fit(*arguments, groups, weights=None)` returns a dictionary of the params of each group,
    `apply(params, *arguments, groups)` the recalibrated predictions in the order of the samples.
    Groups without positive weight are left out; the recalibrator's `fit` has to take weights. The
    groups are integers ≥ 0, with or without gaps, [n]. Under `jit` they must be known at compile
    time; other arguments may be traced.

    Attributes:
        recalibrator: object with methods `fit` and `apply` whose arguments, except params, are
            arrays or pytrees of arrays with leading axis n.

    Raises:
        TypeError: by the methods if the recalibrator lacks the methods, or the groups are traced or
            not integers; by `fit` if the recalibrator does not take the given weights.
        ValueError: by the methods if shapes or values are wrong; by `fit` if it fails for a group,
            with the name of the group; by `apply` for a group that was not in `fit`.

    Cost: the recalibrator for each group. Its methods are compiled for each group size.

    References: L21 §5.

    >>> import jax.numpy as jnp
    >>> from calibjax.recalibration import HistogramBinning
    >>> method = GroupWise(HistogramBinning(1))
    >>> confidences = jnp.array([0.6, 0.7, 0.8, 0.9])
    >>> params = method.fit(confidences, jnp.array([0, 1, 1, 1]), jnp.array([3, 7, 3, 7]))
    >>> print(method.apply(params, jnp.array([0.5, 0.5, 0.5]), jnp.array([7, 3, 7])))
    [1.  0.5 1. ]
    """

    recalibrator: Any = part(lambda value, name: usual("recalibration")(name, value, Seen({})))

    @checked(weights=lambda name, value, seen: value)  # their samples are not known yet
    def fit(self, *arguments: Any, weights: Numbers | None = None) -> dict[int, Any]:
        """Params of each group."""
        samples, members = _grouped(self.recalibrator.fit, arguments, weights)
        weights = sample_weights(weights, samples, as_copies=True)
        if weights is not None and checks.is_concrete(weights):
            is_used = np.asarray(weights) > 0
            members = {g: rows for g, rows in members.items() if is_used[rows].any()}
        params = {}
        for group, rows in members.items():
            options = {} if weights is None else {"weights": weights[rows]}
            try:
                params[group] = self.recalibrator.fit(*_taken(samples, rows), **options)
            except ValueError as error:
                raise ValueError(f"groups: in group {group}, {error}") from error
        return params

    @checked
    def apply(self, params: dict[int, Any], *arguments: Any) -> PyTree:
        """Predictions, recalibrated with the params of their groups."""
        if not isinstance(params, dict):
            raise TypeError(f"params: expected those of fit, got {checks.described(params)}")
        apply = self.recalibrator.apply
        samples, members = _grouped(functools.partial(apply, params), arguments)
        unknown = sorted(members.keys() - params.keys())
        if unknown:
            raise ValueError(
                f"groups: expected groups that were in fit, {list(params)}, got {unknown}"
            )
        parts = [apply(params[group], *_taken(samples, rows)) for group, rows in members.items()]
        positions = np.argsort(np.concatenate([*members.values()]))
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[positions], *parts)


def _grouped(
    method: Callable[..., Any], arguments: tuple[Any, ...], weights: Any = None
) -> tuple[tuple[Any, ...], dict[int, np.ndarray]]:
    """Arguments before the groups, and the indices of the samples of each group."""
    *others, groups = arguments
    named = inspect.signature(method).bind(*others).arguments
    if "weights" in named:
        raise TypeError("groups: expected it as the last argument, before weights=..., got others")
    checks.same_rows(**named, groups=groups, weights=weights)
    samples = tuple(checks.as_arrays(f"arguments[{i}]", x) for i, x in enumerate(others))
    n = checks.leading_size("arguments", samples)
    if not checks.is_concrete(groups):
        raise TypeError(f"groups: expected integers that are known when compiling, got {groups}")
    with jax.ensure_compile_time_eval():  # keeps groups concrete under `jit`
        groups = np.asarray(group_ids("groups", groups, n))
    return samples, {int(g): np.flatnonzero(groups == g) for g in np.unique(groups)}


def _taken(arguments: T, indices: np.ndarray) -> T:
    """Some of the samples."""
    return jax.tree.map(lambda leaf: leaf[indices], arguments)


@record
class Gain:
    """Improvement of a mean score by a recalibration, or an estimate of a calibration error.

    Attributes:
        mean: mean score of the predictions minus the mean score of the recalibrated ones (positive
            if these are better), or the error.
        standard_error: of the mean over the samples.
        low: lower end of the confidence interval.
        high: upper end.
    """

    mean: jax.Array
    standard_error: jax.Array
    low: jax.Array
    high: jax.Array


def _by_name(name: str, value: Any, seen: Seen) -> Mapping[str, Any]:
    """Recalibrations by name."""
    if not isinstance(value, Mapping) or not value:
        got = checks.described(value)
        raise TypeError(f"{name}: expected a dictionary of at least one, got {got}")
    return value


def _score(name: str, value: Any, seen: Seen) -> Any:
    """Score, or norm of the errors of class probabilities."""
    if not isinstance(value, str):
        return usual("score")(name, value, seen)
    if not has_class_probs(bare(seen["predictions"])):
        got = checks.described(seen["predictions"])
        raise TypeError(f"predictions: expected classes for score={value!r}, got {got}")
    return checks.choice(name, value, ("l1", "l2"))


@checked(minimum=2, recalibrations=_by_name, score=_score)
def recalibration_gain(
    key: jax.Array,
    recalibrations: Mapping[str, Any],
    predictions: Distribution,
    targets: Numbers,
    *,
    score: Callable[..., jax.Array] | Literal["l1", "l2"] | None = None,
    weights: Numbers | None = None,
    num_folds: int = 5,
    confidence_level: float = 0.95,
) -> dict[str, Gain]:
    """Improvement of a proper score by recalibrations, cross-fitted.

        gain = n⁻¹ Σ_i (S(p_i, y_i) − S(T(p_i), y_i)).

    T was fitted to samples of other folds (see `Recalibrator.cross_fitted`), the same folds for all
    recalibrations. With `score="l1"` or `"l2"` the result is a calibration error instead. With the
    negative log-likelihood the gain is in nats per prediction; isotonic maps without smoothing
    predict 0 and 1, and may have a gain of −∞. The interval is gain ± z standard errors over the
    samples, without the errors of the fit: its coverage is below nominal for small n (91 % instead
    of 95 % for an affine map of normal predictions and n = 200).

    In expectation, a gain is the calibration error minus the error that T leaves. It equals the
    calibration error if T returns the conditional probabilities π = E[e_Y | p].

    | `score` | calibration error |
    | --- | --- |
    | `scores.negative_log_likelihood`, the default | KL error, `E KL(π ‖ p)` |
    | `scores.brier_score` | squared error, `E ‖π − p‖²` |
    | `"l1"` | `E ‖π − p‖_1 = E Σ_c abs(π_c − p_c)` |
    | `"l2"` | `E ‖π − p‖_2`, the mean of norms, not the root of the squared error |

    The last two, for class predictions, are not differences of scores but

        n⁻¹ Σ_i ⟨g(T(p_i) − p_i), e_{y_i} − p_i⟩,   g(x) = sign(x) for "l1", x / ‖x‖ for "l2",

    with g(0) = 0. Like all gains they can be negative. For `Bernoulli`s both classes are included:
    "l1" is twice, "l2" √2 times the error of the probability.

    Args:
        key: a JAX random key.
        recalibrations: dictionary of records by name, with methods `fit(predictions, targets,
            weights)` and `apply(params, predictions)`.
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        score: function (predictions, targets) → mean, smaller for better predictions; by default
            the negative log-likelihood, or for predictions without density the CRPS, the energy
            score or the pinball loss. Or "l1" or "l2", see above.
        weights: w ≥ 0 of the samples, [n].
        num_folds: number of folds.
        confidence_level: of the intervals, in (0, 1).

    Returns:
        A `Gain` for each name.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: as `Recalibrator.cross_fitted`.

    Cost: `Recalibrator.cross_fitted` for each recalibration, and 2 n scores.

    References: Berta et al. (2026), A variational estimator for Lp calibration errors, for "l1" and
    "l2"; Bröcker (2009), Reliability, sufficiency, and the decomposition of proper scores, for the
    errors of scores.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, recalibration
    >>> predictions = distributions.Normal(jnp.zeros(200), jnp.ones(200))
    >>> targets = 1 + jax.random.normal(jax.random.key(0), (200,))
    >>> methods = {"affine": recalibration.AffineScaling()}
    >>> gain = recalibration_gain(jax.random.key(1), methods, predictions, targets)["affine"]
    >>> print(bool(gain.low < 0.5 < gain.high))  # the gain is ½ · 1²
    True
    """
    score = default_score(predictions) if score is None else score
    before = jnp.nan if isinstance(score, str) else per_sample(score, predictions, targets)
    all_gains = {}
    for name, method in recalibrations.items():
        after = cross_fitted(key, method, predictions, targets, weights, num_folds)
        if isinstance(score, str):
            gains = _directed(predictions, after, targets, score)
        else:
            gains = before - per_sample(score, after, targets)
        all_gains[name] = _gain(gains, weights, confidence_level)
    return all_gains


@functools.partial(jax.jit, static_argnums=3)
def _directed(old: Any, new: Any, targets: jax.Array, norm: str) -> jax.Array:
    """Residuals e_y − p along the changes of probabilities, [n]."""
    probs = old.class_probs
    changes = new.class_probs - probs
    sizes = safe_sqrt(jnp.sum(jnp.square(changes), 1, keepdims=True))
    unit = jnp.sign(changes) if norm == "l1" else changes / jnp.where(sizes == 0, 1, sizes)
    return jnp.sum(unit * (one_hot(targets, probs.shape[1], probs.dtype) - probs), 1)


@jit_quick
def _gain(gains: jax.Array, weights: Weights, level: Any) -> Gain:
    """Gain and its interval, from the gains of samples."""
    mean, error = mean_and_error(gains, weights)
    reach = error * ndtri((1 + level) / 2).astype(gains.dtype)
    return Gain(mean, error, mean - reach, mean + reach)


def default_score(*models: Distribution) -> Callable[..., jax.Array]:
    """Negative log-likelihood, or another score that all models have."""
    if all(hasattr(p, "log_prob") for p in models):
        return negative_log_likelihood
    if all(isinstance(bare(p), Ensemble) and bare(p).values.ndim > 2 for p in models):
        return energy_score
    return crps if all(hasattr(p, "crps") for p in models) else pinball_loss
