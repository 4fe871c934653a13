"""Calibration lenses: reductions of class predictions to binary ones.

A calibrated model is calibrated through every lens, but not vice versa (Vaicenavicius et al., 2019,
Evaluating model calibration in classification). Without a lens, kernel estimators and tests
consider all classes jointly (canonical, or strong, calibration); `ece` and `mce` have an option.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import record
from calibjax.distributions import Bernoulli
from calibjax.distributions.base import ClassPredictions
from calibjax.distributions.composed import WithFeatures, like


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
        of_class, is_class = _one_class(probs, labels, label)
        return like(predictions, of_class), is_class


@jax.jit
def _one_class(
    probs: jax.Array, targets: jax.Array, label: jax.Array
) -> tuple[Bernoulli, jax.Array]:
    of_class = jnp.take(_nan_where_unknown(probs, targets), jnp.maximum(label, 0), 1)
    of_class = jnp.where(label >= 0, of_class, jnp.nan)  # unknown ones are the smallest integer
    return Bernoulli(of_class), (targets == label).astype(int)


def class_wise(predictions: ClassPredictions, targets: ArrayLike) -> tuple[Bernoulli, jax.Array]:
    """Every class against the rest: m data sets of n binary predictions.

    Data set c has the predictions p_c and the targets 1(y = c). Map an estimator over them with
    `vmap`, and take the mean or the maximum over the classes; `ece` has `notion="class_wise"`.

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
