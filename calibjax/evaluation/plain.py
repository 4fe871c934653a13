"""Predictions of classes as plain arrays of probabilities, where nothing else can be meant."""

from typing import Any

import numpy as np
from jax.typing import ArrayLike

from calibjax import _checks
from calibjax.distributions import Bernoulli, Categorical

_EXPECTED = (
    "predictions: expected a batch of distributions, or an array of probabilities: [n] in [0, 1] "
    "with labels 0 and 1, or [n, m] with rows that sum to one and integers 0, ..., m - 1 as "
    "labels; got {got}; say what it is by distributions.Bernoulli(probs), Categorical(probs), "
    "CategoricalLogits(logits), Normal(loc, scale), Samples(values) or Quantiles(levels, values)"
)


def read_plainly(predictions: Any, targets: ArrayLike) -> tuple[Any, str]:
    """Distributions instead of a plain array of probabilities, and how it was read.

    Args:
        predictions: distributions, which stay as they are; or an array, [n] or [n, m].
        targets: labels, [n].

    Returns:
        The distributions, and an expression of `predictions`, empty if they were distributions.

    Raises:
        TypeError: if an array is of the wrong kind.
        ValueError: if an array has the wrong shape, or is not one of probabilities.
    """
    is_array = isinstance(predictions, list | tuple | np.ndarray) or hasattr(
        predictions, "__array__"
    )
    if not is_array or _checks.is_distribution(predictions):
        return predictions, ""
    if not _checks.is_concrete(predictions, targets):
        return predictions, ""  # refused with all that is traced
    _checks.refuse_masked("predictions", predictions)
    try:
        values, labels = np.asarray(predictions), np.asarray(targets)
    except ValueError as error:
        raise ValueError(_EXPECTED.format(got=f"rows of different lengths ({error})")) from error
    if values.ndim not in (1, 2) or values.dtype.kind != "f":
        raise TypeError(_EXPECTED.format(got=_described(values, labels)))
    # They stay arrays of NumPy, of whose float64 the logarithms are taken before it is rounded.
    # Labels of another kind are left to the families, which say what to do with them.
    probs: Any = values
    is_binary = labels.dtype.kind not in "iufb" or np.isin(labels, (0, 1)).all()
    if values.ndim == 1 and labels.ndim == 1 and is_binary and _is_within(values):
        return Bernoulli(probs), "distributions.Bernoulli(predictions)"
    if values.ndim == 2 and values.shape[1] > 1 and _are_probabilities(values):
        return Categorical(probs), "distributions.Categorical(predictions)"
    raise ValueError(_EXPECTED.format(got=_described(values, labels)))


def _is_within(values: np.ndarray) -> bool:
    return bool(np.all((values >= 0) & (values <= 1)))


def _are_probabilities(rows: np.ndarray) -> bool:
    """Whether rows sum to one; of half precision, which rounds too much to tell, if inside."""
    if rows.dtype.itemsize < 4:
        return _is_within(rows)
    return _checks.is_simplex(rows.astype(np.float32))


def _described(values: np.ndarray, labels: np.ndarray) -> str:
    shown = f"{values.dtype}{list(values.shape)}"
    if values.dtype.kind == "f" and values.size:
        shown += f" from {values.min():.3g} to {values.max():.3g}"
        if values.ndim == 2:
            sums = values.sum(1)
            shown += f" whose rows sum to {sums.min():.3g} to {sums.max():.3g}"
    return f"{shown}, with targets {labels.dtype}{list(labels.shape)}"
