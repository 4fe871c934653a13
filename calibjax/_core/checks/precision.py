"""Numbers that lose what matters about them in a precision, float32 or less."""

import dataclasses
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core.arithmetic import floating_dtype
from calibjax._core.checks.arrays import first_where, is_concrete, is_distribution
from calibjax._core.checks.records import replaced
from calibjax._core.checks.values import simplex, unit_interval, unrounded
from calibjax._core.pytree import T

_LARGEST = 0.05  # the largest change of a location or target, in standard deviations
_ROUNDINGS = 4  # of probabilities, by which their sum may differ from one


def with_whole_rows(record: T) -> T:
    """A batch whose probabilities are within [0, 1], of float32 or float64, and sum to one.

    Rounding to float16 or bfloat16 changes sums, and moves probabilities past 0 and 1, by more than
    rounding to float32 does. What differs by more than that stays as it is. Truth values that say
    which draws there are become their probabilities.
    """
    if not dataclasses.is_dataclass(record) or isinstance(record, type):
        return record
    changes = {}
    for field in dataclasses.fields(record):
        value, constraint = getattr(record, field.name), field.metadata.get("constraint")
        check = getattr(constraint, "check", None)
        if check in (simplex, unit_interval) and hasattr(value, "dtype"):
            value = unrounded(value)
            if field.metadata.get("mask") and value.dtype == bool:
                value = value / value.sum(-1, keepdims=True).clip(1)
                value = value.astype(floating_dtype(record))
        changes[field.name] = _whole_rows(value) if check is simplex else with_whole_rows(value)
    return replaced(record, **changes)


def _whole_rows(values: Any) -> Any:
    dtype = getattr(values, "dtype", None)
    if dtype not in (jnp.float16, jnp.bfloat16) or not jnp.ndim(values):
        return values
    xp: ModuleType = np if is_concrete(values) else jnp
    wide = xp.asarray(values, np.float32)
    sums = wide.sum(-1, keepdims=True)
    is_rounded = abs(sums - 1) <= _ROUNDINGS * float(jnp.finfo(dtype).eps)
    return wide / xp.where(is_rounded, sums, 1)


@np.errstate(invalid="ignore")  # differences of infinite quantiles
def refuse_rounded(name: str, given: object, converted: object, predictions: object) -> None:
    """Refuses targets and locations that conversion moved by a part of a standard deviation.

    Args:
        name: how messages call the values.
        given: targets or predictions as they came, in float64 or integers.
        converted: the same in JAX's precision.
        predictions: the batch whose standard deviations decide, converted.
    """
    pairs = zip(_located(given), _located(converted), strict=True)
    for (place, wide), (_, narrow) in pairs:
        is_wide = isinstance(wide, np.ndarray) and wide.dtype in (np.float64, np.int64, np.uint64)
        if not is_wide or not is_concrete(narrow) or narrow.dtype != jnp.float32:
            continue
        wide = np.broadcast_to(wide, narrow.shape)
        change = np.abs(wide - np.asarray(narrow, np.float64))
        scale = _scale(predictions, change.shape) if change.any() else None
        if scale is None:
            continue
        bad = (change > _LARGEST * scale) & (scale > 0)  # draws may all be equal
        if bad.any():
            index = first_where(bad)
            raise ValueError(
                f"{name}{place}: expected values that float32 resolves to {_LARGEST:g} standard "
                f"deviations of the predictions, got {wide[index]!r}, which becomes "
                f"{np.asarray(narrow)[index]!r}; subtract a constant from targets and "
                "predictions, or set jax_enable_x64"
            )


def _located(tree: Any) -> list[tuple[str, Any]]:
    """The targets, or the locations of a batch of predictions."""
    if not is_distribution(tree):
        return [("", leaf) for leaf in jax.tree.leaves(tree)]
    if hasattr(tree, "components"):
        return [(f".components{place}", x) for place, x in _located(tree.components)]
    tree = getattr(tree, "distribution", tree)
    field = next((x for x in ("loc", "values") if hasattr(tree, x)), None)
    return [(f".{field}", getattr(tree, field))] if field else []


def _scale(predictions: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """Standard deviations of the predictions that fit values of a shape, if they are known."""
    predictions = getattr(predictions, "distribution", predictions)
    is_mixture = hasattr(predictions, "components")
    predictions = predictions.components if is_mixture else predictions
    scale, cov, values = (getattr(predictions, x, None) for x in ("scale", "cov", "values"))
    values = None if is_mixture else values
    if not is_concrete(scale, cov, values):
        return None
    if scale is not None:
        scale = np.asarray(scale)
    elif cov is not None:
        scale = np.sqrt(np.diagonal(np.asarray(cov), axis1=-2, axis2=-1))
    elif values is not None:
        values = np.asarray(values, np.float64)
        scale = values.std(1, keepdims=len(shape) == values.ndim)
    if scale is not None and scale.ndim == len(shape) + 1:
        scale = scale.min(1)  # a target is compared with the narrowest component
    try:
        return np.broadcast_to(scale, shape) if scale is not None else None
    except ValueError:  # a parameter of this name that means something else
        return None
