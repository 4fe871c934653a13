"""Sigmoid maps of the log-odds of confidences: Platt scaling, also with the MMCE in the loss."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax import estimators
from calibjax._core import checks
from calibjax._core.fitting import counting, has_maximum, log_odds, minimum, most_likely, range_of
from calibjax._core.pytree import parameter, record
from calibjax.distributions.constraints import real
from calibjax.kernels import Exponential, Kernel
from calibjax.recalibration.base import ConfidenceRecalibrator, Recalibrator
from calibjax.scores.base import weighted_mean

_KUMAR_KERNEL = Exponential(0.4)


@record
class SigmoidMap:
    """The map r → sigmoid(slope · log(r / (1 − r)) + intercept) of confidences.

    Attributes:
        slope: a; positive if the order of the confidences is kept.
        intercept: b.
    """

    slope: jax.Array = parameter(real)
    intercept: jax.Array = parameter(real)

    def __call__(self, confidences: jax.Array) -> jax.Array:
        """The images of confidences of any shape."""
        return jax.nn.sigmoid(self.slope * log_odds(confidences) + self.intercept)


@jax.jit
def _mapped(params: SigmoidMap, confidences: jax.Array) -> jax.Array:
    return jax.tree.map(lambda x: x.astype(confidences.dtype), params)(confidences)


@record
class PlattScaling(ConfidenceRecalibrator):
    """Platt scaling: a sigmoid map of the log-odds, by maximum likelihood.

        r → r' = sigmoid(a log(r / (1 − r)) + b),
        (a, b) = argmax Σ_i t_i log r'_i + (1 − t_i) log(1 − r'_i)

    with t = correct: logistic regression of `correct` on the log-odds, and with weights
    Σ_i w_i (t_i log r'_i + (1 − t_i) log(1 − r'_i)). With two classes it is
    temperature scaling with T = 1/a and a bias. The slope a is negative if confident predictions
    are wrong more often, which reverses the order of the confidences.

    Confidences of 0 and 1 have infinite log-odds. All are clipped to [ε, 1 − ε], where ε is the
    machine precision of their dtype, 2·10⁻¹⁶ or 1·10⁻⁷, so that certain predictions count as
    log-odds of ±36 or ±16.

    The likelihood has a maximum if and only if both outcomes occur and no threshold separates the
    confidences of correct and wrong predictions. Platt's own targets, `smooth_targets`, remove this
    restriction: with n₁ of the n predictions correct, they are t = (n₁ + 1) / (n₁ + 2) for these,
    and 1 / (n − n₁ + 2) for the others; weights are numbers of copies then, and their scale
    matters. At least two confidences must still differ.

    With a batch of class predictions, such as `Categorical`, and labels [n] in place of confidences
    and `correct`, each class is recalibrated against the rest and the probabilities are normalised:
    `fit` returns `ClassWiseParams`, `apply` a batch of `Categorical`s.

    `fit(confidences, correct)` returns a `SigmoidMap`, `apply(params, confidences)` confidences
    [n]. The confidences are an array [n] or a batch of n `Bernoulli`s, as `estimators.top_label`
    returns them; `correct` is 0 or 1, [n]. Both can be differentiated.

    Attributes:
        smooth_targets: whether the targets are Platt's instead of 1 and 0.

    Raises:
        TypeError: by the methods if an argument is of the wrong kind; by `fit` if `smooth_targets`
            is not a truth value.
        ValueError: by the methods if shapes or values are wrong; by `fit` if there is no
            maximum. If the arrays are traced, slope and intercept are NaN instead.

    Cost: O(n) for each of about 8 iterations of Newton's method.

    References: Platt (1999), Probabilistic outputs for support vector machines, with scores;
    Guo et al. (2017), On calibration of modern neural networks, §4.1; Albert and Anderson (1984),
    On the existence of maximum likelihood estimates in logistic regression models.

    >>> import jax.numpy as jnp
    >>> method, correct = PlattScaling(), jnp.array([0, 0, 0, 1, 1, 1, 0, 0])
    >>> params = method.fit(jnp.repeat(jnp.array([0.2, 0.8]), 4), correct)
    >>> print(method.apply(params, jnp.array([0.2, 0.5, 0.8])).round(4))
    [0.25  0.366 0.5  ]
    """

    _: dataclasses.KW_ONLY
    smooth_targets: bool = dataclasses.field(default=False, metadata={"static": True})

    _learns = SigmoidMap

    def _identity(self, one: jax.Array) -> SigmoidMap:
        return SigmoidMap(one, jnp.zeros_like(one))

    def _counts_samples(self) -> bool:
        return self.smooth_targets

    def _fit(
        self, confidences: jax.Array, correct: jax.Array, weights: jax.Array | None
    ) -> SigmoidMap:
        smooth_targets = checks.truth_value("smooth_targets", self.smooth_targets)
        params = _most_likely(confidences, correct, weights, smooth_targets)
        if checks.is_concrete(params) and not np.isfinite(params.slope):
            refuse_without_maximum(confidences, correct, weights)
        return params

    def _apply(self, params: SigmoidMap, confidences: jax.Array) -> tuple[jax.Array, None]:
        return _mapped(params, confidences), None


@functools.partial(jax.jit, static_argnums=3)
def _most_likely(
    confidences: jax.Array, correct: jax.Array, weights: jax.Array | None, smooth_targets: bool
) -> SigmoidMap:
    """Map with the largest likelihood, NaN if there is none."""
    x = log_odds(confidences)
    exists = _no_nan(x, correct)
    if smooth_targets:
        correct = _platt_targets(correct, weights)
        low, high = range_of(x, counting(weights, jnp.ones_like(x, bool)))
        exists &= low < high
    else:
        exists &= has_maximum(x, correct == 1, weights)
    return _where(exists, SigmoidMap(*most_likely(exists, x, correct, weights)))


def _platt_targets(correct: jax.Array, weights: jax.Array | None) -> jax.Array:
    """(n₁ + 1) / (n₁ + 2) for ones and 1 / (n₀ + 2) for zeros."""
    wrong = 1 - correct
    copies = 1 if weights is None else weights
    num_correct, num_wrong = jnp.sum(copies * correct), jnp.sum(copies * wrong)
    return correct * (num_correct + 1) / (num_correct + 2) + wrong / (num_wrong + 2)


@record
class MMCEScaling(Recalibrator):
    """MMCE optimisation: a sigmoid map of the log-odds with a small kernel calibration error.

        r → r' = sigmoid(a log(r / (1 − r)) + b),  a > 0,
        (a, b) minimising NLL(r') + weight · MMCE(r')²

    with the negative log-likelihood of `correct` and its `estimators.mmce`, both of which take the
    weights of the samples: the loss with which
    Kumar et al. train networks, here for maps of the confidences of a trained network, and with the
    square, which is smooth. Weight zero would be `PlattScaling` except for the constraint a > 0,
    which keeps the order of the confidences.

    The MMCE alone is no useful loss: its minimum, zero, is attained in the limit a → 0, which
    replaces all confidences by their accuracy; this is calibrated but uninformative. A map that
    distinguishes confidences has a squared MMCE of order 1/n even if it is perfectly calibrated.
    The likelihood outweighs this if the confidences are significantly more informative than their
    mean: by about weight / 4n in NLL. If they are not, or if confident predictions are wrong more
    often, a goes to zero.

    Confidences are clipped as in `PlattScaling`.

    `fit(confidences, correct)` returns a `SigmoidMap`, `apply(params, confidences)` confidences
    [n]. The confidences are an array [n] or a batch of n `Bernoulli`s, as `estimators.top_label`
    returns them; `correct` is 0 or 1, [n]. `apply` can be differentiated.

    Attributes:
        kernel: kernel on numbers in [0, 1]; `Exponential(0.4)`, the default, is that of Kumar et
            al.
        weight: factor of the squared MMCE, positive, a scalar.

    Raises:
        TypeError: by the methods if an argument is of the wrong kind.
        ValueError: by the methods if shapes or values are wrong; by `fit` if the weight is not
            positive, or there is no minimum, because `correct` is the same for all, or a threshold
            separates wrong predictions from correct ones above it. If the arrays are traced, slope
            and intercept are NaN instead.

    Cost: n²/2 evaluations of the kernel and its derivative for each of about 15 steps of L-BFGS,
    at most 100; O(n + tile²) memory.

    References: Kumar, Sarawagi and Jain (2018), Trainable calibration measures for neural networks
    from kernel mean embeddings; L21 §5.

    >>> import jax.numpy as jnp
    >>> method, correct = MMCEScaling(), jnp.array([0, 0, 0, 1, 1, 1, 0, 0])
    >>> params = method.fit(jnp.repeat(jnp.array([0.2, 0.8]), 4), correct)
    >>> print(method.apply(params, jnp.array([0.2, 0.5, 0.8])).round(2))
    [0.25 0.37 0.5 ]
    """

    kernel: Kernel = _KUMAR_KERNEL
    weight: jax.Array | float = 10.0

    def identity(self, predictions: Any) -> SigmoidMap:
        """Slope 1 and intercept 0."""
        return PlattScaling().identity(predictions)

    def fit(
        self, confidences: ArrayLike, correct: ArrayLike, weights: ArrayLike | None = None
    ) -> SigmoidMap:
        """The map with the smallest loss."""
        kernel = checks.kernel_values(self.kernel)
        weight = checks.positive_scalar("weight", self.weight)
        confidences, correct, weights = checks.weighted_confidences(confidences, correct, weights)
        weight = jnp.asarray(weight, confidences.dtype)
        params = _smallest_loss(kernel, weight, confidences, correct, weights)
        if checks.is_concrete(params) and not np.isfinite(params.slope):
            refuse_without_maximum(confidences, correct, weights)
        return params

    def apply(self, params: SigmoidMap, confidences: ArrayLike) -> jax.Array:
        """New confidences, [n]."""
        params = checks.learned("params", params, SigmoidMap)
        return _mapped(params, checks.confidence_array(confidences))


@jax.jit
def _smallest_loss(
    kernel: Kernel,
    weight: jax.Array,
    confidences: jax.Array,
    correct: jax.Array,
    weights: jax.Array | None,
) -> SigmoidMap:
    """Map with the smallest loss that is found from the identity, NaN if there is none."""
    x = log_odds(confidences)
    low, _ = range_of(x, counting(weights, correct == 1))
    _, wrong_high = range_of(x, counting(weights, correct == 0))
    exists = _no_nan(x, correct) & (low < wrong_high)

    def loss(parameters: jax.Array) -> jax.Array:
        z = jnp.exp(parameters[0]) * x + parameters[1]
        likelihood_loss = weighted_mean(jax.nn.softplus(z) - correct * z, weights)
        error = estimators.mmce(kernel, jax.nn.sigmoid(z), correct, weights=weights)
        return likelihood_loss + weight * jnp.square(error)

    log_slope, intercept = minimum(loss, jnp.zeros(2, x.dtype), exists)
    return _where(exists, SigmoidMap(jnp.exp(log_slope), intercept))


def _no_nan(x: jax.Array, correct: jax.Array) -> jax.Array:
    """Whether no log-odds or targets are NaN; traced ones are not checked otherwise."""
    return ~jnp.any(jnp.isnan(x + correct))


def _where(exists: jax.Array, params: SigmoidMap) -> SigmoidMap:
    """The map, NaN where it does not exist."""
    return jax.tree.map(lambda value: jnp.where(exists, value, jnp.nan), params)


def refuse_without_maximum(
    confidences: ArrayLike, correct: ArrayLike, weights: ArrayLike | None
) -> None:
    """Raises an error that explains why there is no maximum."""
    confidences, correct = np.asarray(confidences), np.asarray(correct)
    if weights is not None:
        is_used = np.asarray(weights) > 0
        confidences, correct = confidences[is_used], correct[is_used]
    if np.ptp(log_odds(confidences)) == 0:
        raise ValueError(
            "confidences: expected at least two different values, got "
            f"{confidences[0]} {confidences.size} times"
        )
    if correct.min() == correct.max():
        raise ValueError(
            "correct: expected both 0 and 1, without which the likelihood has no maximum, got "
            f"{correct[0]:.0f} {correct.size} times; PlattScaling(smooth_targets=True) has one"
        )
    ranges = " and ".join(
        f"{group.min()} to {group.max()} for {value}"
        for value, group in ((0, confidences[correct == 0]), (1, confidences[correct == 1]))
    )
    raise ValueError(
        "confidences: expected values that overlap for correct = 0 and 1, without which the "
        f"likelihood has no maximum, got {ranges}; PlattScaling(smooth_targets=True) has one"
    )
