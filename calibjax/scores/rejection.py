"""Scores of confidences that decide which predictions are trusted and which are rejected."""

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core.gate import checked
from calibjax._core.pytree import Numbers


@checked(compiled=True)
def prediction_rejection_ratio(
    confidences: Numbers, correct: Numbers, *, weights: Numbers | None = None
) -> jax.Array:
    """Prediction-rejection ratio (PRR): how well confidences tell errors from right predictions.

        PRR = (A_random − A) / (A_random − A_best)

    with the area A under the curve of the error rates that remain when the k least confident
    predictions are replaced by right ones, linear between k = 0, ..., n; A_random for rejections in
    random order, and A_best if all errors are rejected first: 1 is perfect, 0 is random, and
    negative values are worse than random. Only the order of the confidences matters; recalibration
    by an increasing function does not change it.

    Equal confidences are averaged over all orders, so that the order of the samples does not
    matter. As a sample is either right or wrong, the value is 2 AUROC − 1, with the area under the
    ROC curve of the confidences as scores for right predictions.

    Args:
        confidences: array, or batch of `Bernoulli`s as `estimators.top_label` returns it, [n].
        correct: whether the predictions are right, 0 or 1, [n].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        A scalar; NaN if all predictions are right, or all wrong.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(n log n).

    References: Malinin et al. (2020), Ensemble distribution distillation, App. B; Malinin,
    Prokhorenkova and Ustimenko (2021), Uncertainty in gradient boosting via ensembles; L21 §5.4,
    Table 4.

    >>> import jax.numpy as jnp
    >>> confidences, correct = jnp.array([0.5, 0.7, 0.6, 0.9]), jnp.array([0, 0, 1, 1])
    >>> print(prediction_rejection_ratio(confidences, correct))
    0.5
    """
    is_missing = jnp.any(jnp.isnan(confidences) | jnp.isnan(correct))
    is_wrong, ordered = correct == 0, lax.stop_gradient(confidences)
    each = jnp.ones(correct.size, jnp.int32) if weights is None else weights
    ordered, errors, each = lax.sort((ordered, jnp.where(is_wrong, each, 0), each), num_keys=1)
    sizes = jnp.pad(jnp.cumsum(each), (1, 0))
    # Errors and sizes of the 0, ..., n least confident samples.
    errors = jnp.pad(jnp.cumsum(errors), (1, 0)).astype(correct.dtype)
    errors = _linear_in_ties(ordered, jnp.where(is_missing, jnp.nan, errors), sizes)
    total, size = errors[-1], sizes[-1]
    has_both = (total > 0) & (total < size)
    remaining, widths = total - errors, jnp.diff(sizes)
    # All areas are in units of n errors.
    area = jnp.sum((remaining[1:] + remaining[:-1]) * widths) / size / 2
    area = area / jnp.where(has_both, total, 1)
    ratio = (0.5 - area) / (0.5 - jnp.where(has_both, total, 0) / (2 * size))
    return jnp.where(has_both, ratio, jnp.nan)


def _linear_in_ties(ordered: jax.Array, errors: jax.Array, sizes: jax.Array) -> jax.Array:
    """Cumulative errors, which become linear among samples of the same confidence, [n + 1]."""
    n = ordered.size
    positions = jnp.arange(n, dtype=jnp.int32)
    is_new = ordered[1:] != ordered[:-1]
    # Samples with the same confidence have the indices first, ..., behind - 1.
    is_first = jnp.pad(is_new, (1, 0), constant_values=True)
    first = lax.cummax(jnp.where(is_first, positions, 0))
    is_last = jnp.pad(is_new, (0, 1), constant_values=True)
    behind = lax.cummin(jnp.where(is_last, positions + 1, n), reverse=True)
    width = sizes[behind] - sizes[first]
    share = (sizes[:-1] - sizes[first]).astype(errors.dtype) / jnp.where(width == 0, 1, width)
    return jnp.append(errors[first] + share * (errors[behind] - errors[first]), errors[-1])
