"""Reductions of class predictions to binary predictions, also called calibration lenses.

A calibrated model is calibrated through every reduction, but not vice versa (Vaicenavicius et al.,
2019, Evaluating model calibration in classification). Without a reduction, kernel estimators and
tests consider all classes jointly (canonical, or strong, calibration); `ece` and `mce` have an
option.
"""

import jax
import jax.numpy as jnp

from calibjax._core import checks
from calibjax._core.gate import checked
from calibjax._core.pytree import Numbers, record
from calibjax.distributions import Bernoulli
from calibjax.distributions.base import ClassPredictions
from calibjax.distributions.composed import WithFeatures, like


@checked(compiled=True)
def top_label(predictions: ClassPredictions, targets: Numbers) -> tuple[Bernoulli, jax.Array]:
    """Confidence in the most probable class, and whether that class was observed.

        confidence = max_c p_c,  correct = 1(y = argmax_c p_c),

    a `Bernoulli` prediction and its target. In a tie the first class is chosen.

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
    probs = predictions.class_probs
    correct = (targets == jnp.argmax(probs, 1)).astype(int)
    return like(predictions, Bernoulli(jnp.max(probs, 1))), correct


@record
class OneVersusRest:
    """Reduction on one class: its probability, and whether it was observed.

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

    @checked
    def __call__(
        self, predictions: ClassPredictions, targets: Numbers
    ) -> tuple[Bernoulli, jax.Array]:
        """Probabilities of the class, `Bernoulli`s, and their targets, 0 or 1, [n]."""
        probs = predictions.class_probs
        label = checks.integer("label", checks.as_arrays("label", self.label))
        label = checks.labels("label", label, probs.shape[1])
        of_class = Bernoulli(jnp.take(probs, label, 1, mode="fill"))
        return like(predictions, of_class), (targets == label).astype(int)


@checked(compiled=True)
def class_wise(predictions: ClassPredictions, targets: Numbers) -> tuple[Bernoulli, jax.Array]:
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
    each, labels = each_class(predictions.class_probs, targets)
    if not isinstance(predictions, WithFeatures):
        return each, labels
    shared = lambda x: jnp.broadcast_to(x, (len(labels), *x.shape))  # noqa: E731
    return like(jax.tree.map(shared, predictions), each), labels


def each_class(probs: jax.Array, targets: jax.Array) -> tuple[Bernoulli, jax.Array]:
    """Every class against the rest, from checked probabilities [n, m] and labels [n]."""
    is_class = targets == jnp.arange(probs.shape[1])[:, None]
    return Bernoulli(probs.T), is_class.astype(int)
