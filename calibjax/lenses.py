"""Lenses: class predictions seen as coarser predictions.

A calibrated model is calibrated through every lens, but not vice versa. The notion of calibration
is always stated by the lens, never guessed from predictions or labels: without a lens, estimators
and tests consider all classes together (canonical, or strong, calibration).
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.pytree import record
from calibjax.distributions import Bernoulli, Categorical, WithFeatures
from calibjax.distributions.base import ClassPredictions, Distribution
from calibjax.distributions.features import like


def _checked(predictions: ClassPredictions, targets: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """Probabilities [n, m], labels [n]."""
    checks.class_predictions(predictions)
    predictions, targets = checks.predictions_and_targets(predictions, targets)
    return predictions.class_probs, targets


def _nan_where_unknown(probs: jax.Array, targets: jax.Array) -> jax.Array:
    """Probabilities [n, m], NaN where a label is out of range."""
    is_label = (targets >= 0) & (targets < probs.shape[1])
    return jnp.where(is_label[:, None], probs, jnp.nan)


def top_label(predictions: ClassPredictions, targets: ArrayLike) -> tuple[Bernoulli, jax.Array]:
    """The confidence in the most probable class, and whether that class was observed.

        confidence = max_c p_c,  correct = 1(y = argmax_c p_c),

    a `Bernoulli` prediction and its target. Ties are resolved in favour of the first class.

    Args:
        predictions: batch of n class predictions, `Categorical` or `Bernoulli`.
        targets: labels 0, ..., m − 1, [n].

    Returns:
        The confidences, a batch of n `Bernoulli`s that also converts to an array [n], and their
        targets, 0 or 1, [n].

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(n m).

    References: Guo et al. (2017), On calibration of modern neural networks; W19 Ex. I.1.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> predictions = Categorical(jnp.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]]))
    >>> confidences, correct = top_label(predictions, jnp.array([0, 1]))
    >>> print(confidences.probs, correct)
    [0.7 0.4] [1 0]
    """
    confidences, correct = _top_label(*_checked(predictions, targets))
    return like(predictions, confidences), correct


@jax.jit
def _top_label(probs: jax.Array, targets: jax.Array) -> tuple[Bernoulli, jax.Array]:
    confidences = jnp.max(_nan_where_unknown(probs, targets), 1)
    return Bernoulli(confidences), (targets == jnp.argmax(probs, 1)).astype(int)


@record
class OneVersusRest:
    """Lens on one class: its probability, and whether it was observed.

    `OneVersusRest(c)(predictions, targets)` is data set c of `class_wise`.

    Attributes:
        label: c, from 0.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> predictions = Categorical(jnp.array([[0.75, 0.25], [0.5, 0.5]]))
    >>> probabilities, observed = OneVersusRest(1)(predictions, jnp.array([0, 1]))
    >>> print(probabilities.probs, observed)
    [0.25 0.5 ] [0 1]
    """

    label: jax.Array | int

    def __call__(
        self, predictions: ClassPredictions, targets: ArrayLike
    ) -> tuple[Bernoulli, jax.Array]:
        """The probabilities of the class, `Bernoulli`s, and their targets, 0 or 1, [n]."""
        probs, labels = _checked(predictions, targets)
        label = checks.integer("label", checks.as_arrays("label", self.label))
        if label.dtype == jnp.bool_:
            raise TypeError(f"label: expected the number of a class, got {self.label}")
        checks.shape("label", label, (), "(), the number of one class")
        label = checks.labels("label", label, probs.shape[1])
        own, is_own = _one_class(probs, labels, label)
        return like(predictions, own), is_own


@jax.jit
def _one_class(
    probs: jax.Array, targets: jax.Array, label: jax.Array
) -> tuple[Bernoulli, jax.Array]:
    own = jnp.take(_nan_where_unknown(probs, targets), jnp.maximum(label, 0), 1)
    own = jnp.where(label >= 0, own, jnp.nan)  # unknown ones are the smallest integer
    return Bernoulli(own), (targets == label).astype(int)


@record
class AtMost:
    """Lens on the event that the target is at most a threshold.

    Whatever sees binary predictions sees in this way what is predicted about the threshold:
    `estimators.isotonic_curve` draws its threshold reliability, `scores.brier_score` is its part of
    the CRPS.

    Attributes:
        threshold: z, a finite number.

    Raises:
        TypeError: if predictions have no `cdf`, or the threshold is no number.
        ValueError: if shapes or values are wrong.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> predictions = Normal(jnp.array([0.0, 1.0]), jnp.ones(2))
    >>> probabilities, happened = AtMost(1.0)(predictions, jnp.array([0.5, 1.5]))
    >>> print(probabilities.probs.round(2), happened)
    [0.84 0.5 ] [1 0]
    """

    threshold: jax.Array | float

    def __call__(self, predictions: Any, targets: ArrayLike) -> tuple[Bernoulli, jax.Array]:
        """The probabilities of the event, `Bernoulli`s, and whether it happened, 0 or 1, [n]."""
        predictions, targets = checks.predictions_and_targets(predictions, targets)
        checks.method("predictions", predictions, "cdf")
        checks.shape("targets", targets, (None,), "[n]: only numbers have thresholds")
        threshold = checks.floating("threshold", checks.as_arrays("threshold", self.threshold))
        checks.shape("threshold", threshold, (), "(), one number")
        own, happened = _at_most(predictions, targets, checks.finite("threshold", threshold))
        return like(predictions, own), happened


@jax.jit
def _at_most(
    predictions: Distribution, targets: jax.Array, threshold: jax.Array
) -> tuple[Bernoulli, jax.Array]:
    probs = jax.vmap(lambda p: p.cdf(threshold))(predictions)
    probs = jnp.where(checks.is_missing(targets), jnp.nan, jnp.clip(probs, 0, 1))
    return Bernoulli(probs.astype(floating_dtype(predictions))), (targets <= threshold).astype(int)


def class_wise(predictions: ClassPredictions, targets: ArrayLike) -> tuple[Bernoulli, jax.Array]:
    """Every class against the rest: m data sets of n binary predictions.

    Data set c has the predictions p_c and the targets 1(y = c). Map an estimator over them with
    `vmap`, and take the mean or the maximum over the classes.

    Args:
        predictions: batch of n class predictions, `Categorical` or `Bernoulli`.
        targets: labels 0, ..., m − 1, [n].

    Returns:
        `Bernoulli`s with probabilities [m, n], and their targets, 0 or 1, [m, n].

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(n m).

    References: Kull et al. (2019), Beyond temperature scaling, §2; W19 §3.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> from calibjax.estimators import ece, UniformBins
    >>> predictions = Categorical(jnp.array([[0.5, 0.25, 0.25], [0.5, 0.5, 0.0]]))
    >>> def class_ece(predictions, targets):
    ...     return ece(predictions, targets, binning=UniformBins(1))
    >>> print(jax.vmap(class_ece)(*class_wise(predictions, jnp.array([0, 1]))))
    [0.    0.125 0.125]
    """
    each, labels = each_class(*_checked(predictions, targets))
    if isinstance(predictions, WithFeatures):  # the same for each class
        num_classes = len(labels)
        copies = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (num_classes, *jnp.shape(leaf))), predictions
        )
        return like(copies, each), labels
    return each, labels


@jax.jit
def each_class(probs: jax.Array, targets: jax.Array) -> tuple[Bernoulli, jax.Array]:
    """Every class against the rest, from checked probabilities [n, m] and labels [n]."""
    is_class = targets == jnp.arange(probs.shape[1])[:, None]
    return Bernoulli(_nan_where_unknown(probs, targets).T), is_class.astype(int)


def group_classes(
    predictions: ClassPredictions, targets: ArrayLike, groups: Sequence[int] | np.ndarray
) -> tuple[Categorical, jax.Array]:
    """Predictions of groups of classes: the sums of the probabilities of their members.

    Args:
        predictions: batch of n class predictions, `Categorical` or `Bernoulli`.
        targets: labels 0, ..., m − 1, [n].
        groups: the group 0, ..., g − 1 of each class, g ≥ 2, with no group empty, [m]. They have
            to be known at compile time.

    Returns:
        `Categorical`s with probabilities [n, g], and the group of each target, [n].

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(n m).

    References: Vaicenavicius et al. (2019), Evaluating model calibration in classification, §3.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> predictions = Categorical(jnp.array([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]]))
    >>> grouped, targets = group_classes(predictions, jnp.array([0, 1]), [0, 0, 1])
    >>> print(grouped.probs, targets)
    [[0.75 0.25]
     [0.5  0.5 ]] [0 0]
    """
    probs, targets = _checked(predictions, targets)
    groups = checks.groups("groups", groups, probs.shape[1])
    grouped, labels = _group_classes(probs, targets, jnp.array(groups), max(groups) + 1)
    return like(predictions, grouped), labels


@functools.partial(jax.jit, static_argnums=3)
def _group_classes(
    probs: jax.Array, targets: jax.Array, groups: jax.Array, num_groups: int
) -> tuple[Categorical, jax.Array]:
    sums = jax.ops.segment_sum(_nan_where_unknown(probs, targets).T, groups, num_groups).T
    return Categorical(jnp.minimum(sums, 1)), groups[targets]  # rounding may exceed 1
