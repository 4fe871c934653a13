"""Recalibration within groups of samples."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import PyTree, T, record
from calibjax.recalibration.base import Recalibrator


@record
class GroupWise(Recalibrator):
    """The same recalibration for each group of samples, learned from that group alone.

    `fit` and `apply` take the arguments of the recalibrator, followed by the groups: with the ages
    of people as groups, `fit(confidences, correct, ages)` and `apply(params, confidences, ages)`.

    Small groups have noisy params, or none at all: some methods need both correct and wrong
    predictions and raise an error otherwise. Merge such groups with others.

    `fit(*arguments, groups, weights=None)` returns a dictionary of the params of each group,
    `apply(params, *arguments, groups)` what the recalibrator's `apply` returns, in the order of
    the samples. With weights, which the recalibrator's `fit` has to take, groups in which all of
    them are zero are left out. The groups are integers ≥ 0, with or without gaps, [n]. Under `jit`
    they have to be known at compile time; other arguments may be traced.

    Attributes:
        recalibrator: anything with methods `fit` and `apply` whose arguments, apart from params,
            are arrays or pytrees of arrays with leading axis n.

    Raises:
        TypeError: by the methods if the recalibrator has no such methods, or the groups are not
            integers, or traced; by `fit` if there are weights that the recalibrator does not take.
        ValueError: by the methods if shapes or values are wrong; by `fit` if the recalibrator's
            `fit` fails for a group, with the name of the group; by `apply` if `fit` has not seen a
            group.

    Cost: that of the recalibrator for each group. Its methods are compiled for each group size.

    References: L21 §5.

    >>> import jax.numpy as jnp
    >>> from calibjax.recalibration import HistogramBinning
    >>> method = GroupWise(HistogramBinning(1))
    >>> confidences = jnp.array([0.6, 0.7, 0.8, 0.9])
    >>> params = method.fit(confidences, jnp.array([0, 1, 1, 1]), jnp.array([3, 7, 3, 7]))
    >>> print(method.apply(params, jnp.array([0.5, 0.5, 0.5]), jnp.array([7, 3, 7])))
    [1.  0.5 1. ]
    """

    recalibrator: Any

    def fit(self, *arguments: Any, weights: ArrayLike | None = None) -> dict[int, Any]:
        """Params of each group."""
        method = _checked_method(self.recalibrator)
        samples, members = _grouped(method.fit, arguments, weights)
        weights = checks.sample_weights(weights, samples, as_copies=True)
        if weights is not None:
            kind, names = "method", _names(method.fit, len(samples))
            checks.function(kind, "recalibrator.fit", method.fit, *names, keywords=("weights",))
            if checks.is_concrete(weights):
                is_used = np.asarray(weights) > 0
                members = {g: rows for g, rows in members.items() if is_used[rows].any()}
        return {
            group: _fit_one(method.fit, group, *_taken((samples, weights), indices))
            for group, indices in members.items()
        }

    def apply(self, params: dict[int, Any], *arguments: Any) -> PyTree:
        """Predictions of each group, corrected with the params of the group."""
        method = _checked_method(self.recalibrator)
        checks.fitted("params", params, dict)
        arguments, members = _grouped(functools.partial(method.apply, params), arguments)
        for group, indices in members.items():
            if group not in params:
                raise ValueError(
                    f"groups: expected groups that fit has seen, {', '.join(map(str, params))}, "
                    f"got groups[{indices[0]}] = {group}"
                )
        parts = []
        for group, indices in members.items():  # a comprehension would add a stack level
            taken = _taken(arguments, indices)
            parts.append(method.apply(params[group], *taken))
        positions = np.argsort(np.concatenate([*members.values()]))
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[positions], *parts)


def _checked_method(recalibrator: object) -> PyTree:
    """The recalibrator, if it has methods fit and apply."""
    for name in ("fit", "apply"):
        function = getattr(recalibrator, name, None)
        if isinstance(recalibrator, type) or not callable(function):
            got = checks.described(recalibrator)
            raise TypeError(f"recalibrator: expected methods fit and apply, got {got}")
    return recalibrator


def _grouped(
    method: Callable[..., Any], arguments: tuple[Any, ...], weights: ArrayLike | None = None
) -> tuple[tuple[Any, ...], dict[int, np.ndarray]]:
    """The arguments before the groups, and the positions of the samples of each group."""
    if len(arguments) < 2:
        raise TypeError(f"groups: expected it as the last argument, got {len(arguments)} arguments")
    *others, groups = arguments
    names = _names(method, len(others))
    checks.same_rows(**dict(zip(names, others, strict=True)), groups=groups, weights=weights)
    samples = tuple(map(checks.as_arrays, names, others))
    num_samples, *sizes = map(checks.leading_size, names, samples)
    for name, size in zip(names[1:], sizes, strict=True):
        if size != num_samples:
            expected = f"{num_samples} samples, as {names[0]}"
            raise ValueError(f"{name}: expected {expected}, got {size}")
    if not checks.is_concrete(groups):
        raise TypeError(f"groups: expected integers that are known when compiling, got {groups}")
    checks.group_ids("groups", groups, num_samples)
    groups = np.asarray(groups)  # known groups stay known under `jit`
    checks.refuse_where(groups < 0, "groups", "groups in 0, ..., 2³¹ - 1", groups)
    return samples, {int(g): np.flatnonzero(groups == g) for g in np.unique(groups)}


def _names(method: Callable[..., Any], number: int) -> list[str]:
    """What error messages call the arguments that the method is given before the groups."""
    kinds = inspect.Parameter
    parameters = inspect.signature(method).parameters.values()
    plain = [p for p in parameters if p.kind <= kinds.POSITIONAL_OR_KEYWORD]
    names = [p.name for p in plain if p.name != "weights"]
    required = [p.name for p in parameters if p.name in names and p.default is kinds.empty]
    takes_more = any(p.kind == kinds.VAR_POSITIONAL for p in parameters)
    if not (takes_more or len(required) <= number <= len(names)):
        expected, got = ", ".join(names), f"{number + 1} arguments"
        raise TypeError(f"groups: expected it as the last argument, after {expected}, got {got}")
    return [*names, *(f"arguments[{i}]" for i in range(len(names), number))][:number]


def _taken(arguments: T, indices: np.ndarray) -> T:
    """Some of the samples."""
    return jax.tree.map(lambda leaf: leaf[indices], arguments)


def _fit_one(
    fit: Callable[..., Any], group: int, arguments: tuple[Any, ...], weights: jax.Array | None
) -> PyTree:
    """Params of one group, whose name is added to error messages."""
    try:
        return fit(*arguments) if weights is None else fit(*arguments, weights=weights)
    except ValueError as error:
        size = checks.leading_size("arguments", arguments)
        raise ValueError(f"groups: in group {group}, with {size} samples, {error}") from error
