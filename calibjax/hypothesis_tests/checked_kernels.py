"""Checks of the kernels that a user hands over."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.pytree import PyTree
from calibjax.distributions.base import Distribution
from calibjax.distributions.sampling import draw
from calibjax.estimators.kernel import refuse_without_expectations, sample_pair
from calibjax.kernels import Kernel
from calibjax.kernels.residuals import informed


def checked_family(
    kernels: PyTree, predictions: Distribution, targets: jax.Array
) -> tuple[list[tuple[Any, Kernel]], Any]:
    """Checks the user's kernels for checked data.

    Returns:
        The lens (or None) and the kernel of each, and the tree of which they are the leaves.

    Raises:
        TypeError: if one is not a kernel, or a pair of a lens and a kernel.
        ValueError: if there are none, or a value is wrong for these predictions.
        NotImplementedError: if expectations have no closed form.
    """
    try:
        leaves, structure = jax.tree_util.tree_flatten_with_path(kernels, is_leaf=_is_member)
    except ValueError as error:
        raise ValueError(f"kernels: expected names that can be sorted, got {kernels}") from error
    if not leaves:
        raise ValueError(f"kernels: expected at least one kernel, got {kernels!r}")
    members = []
    views: dict[int, Any] = {}  # by lens
    redrawn = functools.cache(lambda: draw(jax.random.key(0), predictions))
    for path, member in leaves:
        name = f"kernels{jax.tree_util.keystr(path)}"
        lens, kernel = member if isinstance(member, tuple) else (None, member)
        if not isinstance(kernel, Kernel):
            raise TypeError(
                f"{name}: expected a kernel, or a tuple (lens, kernel), got "
                f"{checks.described(kernel)}"
            )
        if id(lens) not in views:
            checked = None if lens is None else _checked_lens(f"{name}[0]", lens)
            views[id(lens)] = checked, _seen(f"{name}[0]", checked, predictions, targets, redrawn)
        lens, samples = views[id(lens)]
        kernel = checks.kernel_values(kernel, name)
        _refuse_other_kind(name, kernel, samples)
        members.append((lens, informed(kernel, samples[0])))
    return members, structure


def _is_member(node: object) -> bool:
    """Whether a node of the user's tree is a kernel, a pair (lens, kernel), or no container."""
    if type(node) is tuple and len(node) == 2 and isinstance(node[1], Kernel):
        return callable(node[0]) and not isinstance(node[0], Kernel)
    return not isinstance(node, dict | list | tuple)


def _checked_lens(name: str, lens: object) -> Any:
    """The lens as a pytree, so that it goes through compiled functions."""
    checks.function(
        "lens (predictions, targets) -> (predictions, targets)",
        name,
        lens,
        "predictions",
        "targets",
    )
    return jax.tree_util.Partial(lens) if jax.tree_util.all_leaves([lens]) else lens


def _seen(
    name: str,
    lens: Any,
    predictions: Distribution,
    targets: jax.Array,
    redrawn: Callable[[], PyTree],
) -> PyTree:
    """The data as a lens shows them, whose predictions must not depend on the targets."""
    if lens is None:
        return predictions, targets
    try:
        seen = lens(predictions, targets)
        others = lens(predictions, redrawn())
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error
    if not isinstance(seen, tuple) or len(seen) != 2:
        raise TypeError(
            f"{name}: expected a lens that returns a pair (predictions, targets), got "
            f"{checks.described(seen)}"
        )
    names = f"{name}: predictions", f"{name}: targets"
    seen = checks.predictions_and_targets(*seen, names=names)
    n, size = (checks.leading_size("predictions", x) for x in (predictions, seen[0]))
    if n != size:
        raise ValueError(f"{name}: expected a lens that returns all {n} samples, got {size}")
    for one, other in zip(*map(jax.tree.leaves, (seen[0], others[0])), strict=True):
        if checks.is_concrete(one, other) and not np.array_equal(one, other):
            raise ValueError(
                f"{name}: expected a lens whose predictions do not depend on the targets, got "
                f"{one} and, for resampled targets, {other}"
            )
    return seen


def _refuse_other_kind(name: str, kernel: Kernel, seen: tuple[Any, Any]) -> None:
    """Refuses kernels that are not defined for these predictions and targets."""
    first = jax.eval_shape(lambda: jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], seen))
    try:
        refuse_without_expectations(kernel, seen[0])
        jax.eval_shape(sample_pair, kernel, first, first)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise type(error)(f"{name}: {error}") from error
