"""Checks of data sets: predictions, targets, confidences, features, groups."""

import dataclasses
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from calibjax._core.arithmetic import floating_dtype
from calibjax._core.checks.arrays import (
    as_arrays,
    described,
    first_where,
    has_64_bits,
    is_concrete,
    is_distribution,
    missing_rows,
    nan_rows,
    narrowed,
    originals,
    refuse_where,
)
from calibjax._core.checks.values import (
    an_array,
    declared,
    finite,
    floating,
    integer,
    leading_size,
    of_axes,
    of_shape,
    replaced,
    satisfying,
    satisfying_integers,
    shape,
    simplex,
    unit_interval,
    unrounded,
)
from calibjax._core.pytree import PyTree, T


def batch(
    predictions: Any, *, minimum: int = 1, name: str = "predictions", keep_logs: bool = False
) -> PyTree:
    """Checks a batch of predictions and returns it with JAX arrays as leaves.

    Raises:
        TypeError: if `predictions` is not a distribution, or a parameter is
            not a floating-point array.
        ValueError: if the parameters have wrong shapes or values, or there are fewer than
            `minimum` of them.
    """
    if not is_distribution(predictions):
        while "distribution" in getattr(type(predictions), "__dataclass_fields__", ()):
            name, predictions = f"{name}.distribution", predictions.distribution
        raise TypeError(
            f"{name}: expected a batch of distributions such as distributions.Normal or "
            f"distributions.Categorical, got {described(predictions)}"
        )
    if jax.tree_util.treedef_is_leaf(jax.tree.structure(predictions)):
        raise TypeError(
            f"{name}: expected a distribution that is a pytree, got {described(predictions)}; "
            "decorate its class with calibjax.record: see 'A distribution of your own' in the "
            "documentation of calibjax.distributions"
        )
    same_rows(**{name: predictions})
    lengths: dict[str, int] = {}
    predictions = checked_batch(name, predictions, ("n",), lengths)
    if (size := lengths.get("n", 0)) < minimum:
        samples = "sample" if minimum == 1 else "samples"
        raise ValueError(f"{name}: expected at least {minimum} {samples}, got {size}")
    return predictions


def checked_batch(
    name: str, record: Any, leading: tuple[str, ...], lengths: dict[str, int]
) -> PyTree:
    """A batch of records, or a part of it, as JAX arrays, after one pass through its fields.

    Parameters have the axes that they declare, behind the leading ones, and satisfy their
    constraints; without leading axes they are the same for the whole batch. Other fields have the
    leading axes; they are finite in records that declare no parameters and have no method
    `check_values(name)`, which checks what constraints cannot say.

    Args:
        name: how messages call it.
        record: a record, or any pytree of arrays.
        leading: names of the axes of the batch.
        lengths: their lengths as far as they are known; the others are added.
    """
    kind = type(record)
    has_own = hasattr(kind, "check_values")  # of wrappers it is not that of the distribution
    fields = declared(kind) if dataclasses.is_dataclass(kind) else ()
    if not fields:
        record = _plain(name, record, leading, lengths, is_finite=not has_own)
    constraints, received, narrow, inner, changes = {}, {}, {}, dict(lengths), {}
    for key, constraint, extra in fields:
        value, place = getattr(record, key), f"{name}.{key}"
        if constraint is not None and not (value is None and "optional" in extra):
            constraints[key] = constraint
            value = received[key] = _received(place, value, constraint, "mask" in extra)
            narrow[key] = value if _is_ready(value) else narrowed(place, value)
            an_array(place, narrow[key], "an array of numbers")
    for key, value in _aligned(name, narrow, constraints).items():
        of_axes(f"{name}.{key}", value, constraints[key], leading, inner)
        changes[key] = constraints[key].check(f"{name}.{key}", value)
    lengths.update((axis, inner[axis]) for axis in leading if axis in inner)
    for key, constraint, extra in fields:
        value, place = getattr(record, key), f"{name}.{key}"
        if constraint is not None or not _is_child(record, value):
            continue
        if value is None and "logs" in extra:
            value = _logs(extra["logs"], *received.values())
        if dataclasses.is_dataclass(value):
            axes = (*leading, *extra.get("axes", ()))
            changes[key] = checked_batch(place, value, axes, lengths)
        elif value is not None:
            is_finite = not (has_own or received)
            changes[key] = _plain(place, value, leading, lengths, is_finite=is_finite)
    record = replaced(record, **changes)
    key = "loc" if "loc" in received else "values"
    if key in received and (key == "loc" or len(leading) == 1):
        refuse_rounded(f"{name}.{key}", received[key], changes[key], record)
    checked = record.check_values(name) if has_own else None
    record = record if checked is None else checked
    for key, _, extra in fields:
        if "numbers" in extra and getattr(record, key) is None:
            shape = tuple(lengths[axis] for axis in leading)
            numbers = np.arange(math.prod(shape), dtype=int).reshape(shape)
            record = replaced(record, **{key: jax.device_put(numbers)})
    return record


def _is_ready(value: object) -> bool:
    """Whether this is an array of JAX that needs no conversion."""
    return isinstance(value, jax.Array) and value.dtype in (jnp.float32, jnp.float64)


def _is_child(record: Any, value: object) -> bool:
    """Whether the value of a field takes part in computations, and is no static one."""
    children, _ = jax.tree_util.default_registry.flatten_one_level(record)
    return any(child is value for child in children)


def _received(place: str, value: Any, constraint: Any, may_be_mask: bool) -> Any:
    """A parameter in the precision in which it came; probabilities without rounding errors.

    Rounding to float16 or bfloat16 changes sums, and moves probabilities past 0 and 1, by more than
    rounding to float32 does. What differs by more than that stays as it is. Truth values that say
    which draws there are become their probabilities.
    """
    if _is_ready(value):
        return value
    value = originals(place, jnp.asarray(value) if hasattr(value, "__jax_array__") else value)
    if constraint.check not in (simplex, unit_interval) or not hasattr(value, "dtype"):
        return value
    value, dtype = unrounded(value), value.dtype
    if constraint.check is simplex and jnp.ndim(value):
        xp: ModuleType = np if is_concrete(value) else jnp
        if may_be_mask and dtype == np.bool_:
            wide = xp.asarray(value, jnp.result_type(float))
            return wide / wide.sum(-1, keepdims=True).clip(1)
        if dtype in (jnp.float16, jnp.bfloat16):
            wide = xp.asarray(value, np.float32)
            sums = wide.sum(-1, keepdims=True)
            is_rounded = abs(sums - 1) <= _ROUNDINGS * float(jnp.finfo(dtype).eps)
            return wide / xp.where(is_rounded, sums, 1)
    return value


def _logs(logs: Callable[[np.ndarray], np.ndarray], probs: Any) -> np.ndarray | None:
    """Logarithms of probabilities that float32 would round, before it does."""
    if has_64_bits() or not isinstance(probs, np.ndarray) or probs.dtype != np.float64:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        return logs(probs)


def _aligned(name: str, values: dict[str, Any], constraints: dict[str, Any]) -> dict[str, Any]:
    """Parameters of one dtype, those that the whole batch shares with its leading axes."""
    dtypes = {x.dtype for x in values.values() if x.dtype.kind == "f" and not x.weak_type}
    dtype = max(dtypes, key=lambda x: x.itemsize, default=float)
    aligned, longest = {}, ()
    for key, value in values.items():
        is_integer = constraints[key].is_integer
        if is_integer or (is_integer is None and value.dtype.kind == "i"):
            value = integer(f"{name}.{key}", value, "numbers")
        else:
            value = floating(f"{name}.{key}", value, dtype)
            value = value.astype(dtype) if value.weak_type else value
        leading = value.shape[: value.ndim - len(constraints[key].axes)]
        longest, aligned[key] = max(longest, leading, key=len), value
    for key, value in aligned.items() if longest else ():
        shape = value.shape
        # [n, d] for [d, d] is a mistake
        is_one = len(shape) < 2 or shape[-2] == shape[-1]
        if len(shape) == len(constraints[key].axes) and is_one:
            xp = np if is_concrete(value) else jnp  # NumPy compiles nothing
            shared = xp.broadcast_to(xp.asarray(value), longest + shape)
            aligned[key] = jax.device_put(shared) if xp is np else shared
    return aligned


def _plain(
    name: str, tree: Any, leading: tuple[str, ...], lengths: dict[str, int], *, is_finite: bool
) -> PyTree:
    """A pytree of arrays with leading axes, which declare nothing."""

    def checked(path: Any, leaf: jax.Array) -> jax.Array:
        place = name + jax.tree_util.keystr(path)
        of_shape(place, jnp.shape(leaf)[: len(leading)], leading, lengths)
        return finite(place, leaf) if is_finite else leaf

    return jax.tree_util.tree_map_with_path(checked, as_arrays(name, tree))


def unnumbered(record: T) -> T:
    """Predictions as kernels on them see them: without the numbers of `Ensemble.index`."""
    if not dataclasses.is_dataclass(record) or isinstance(record, type):
        return record
    changes = {
        key: None if "numbers" in extra else unnumbered(getattr(record, key))
        for key, _, extra in declared(type(record))
    }
    return replaced(record, **changes)


def same_rows(**arguments: object) -> None:
    """Refuses tables of pandas whose rows have different labels: rows are paired by position.

    Arguments of another length, which other checks refuse, and those without labels are left out.
    """
    known: tuple[str, Any] | None = None
    for name, tree in arguments.items():
        for leaf in jax.tree.leaves(tree):
            labels: Any = getattr(leaf, "index", None)
            if not (hasattr(leaf, "to_numpy") and hasattr(labels, "equals")):
                continue
            place, others = known = known or (name, labels)
            if len(labels) == len(others) and not labels.equals(others):
                raise ValueError(
                    f"{name}: expected rows with the labels of {place}, since they are paired by "
                    f"position, got {labels[:3].tolist()}, ... instead of {others[:3].tolist()}, "
                    "...; bring them into one order, or hand over .to_numpy()"
                )


def in_time_order(times: ArrayLike | None, num_samples: int) -> None:
    """Refuses times, if any, that are not those of n samples in their order; equal ones may be.

    Raises:
        TypeError: if they are neither numbers nor NumPy's datetimes, or traced by JAX.
        ValueError: if there are not n, or one is not finite or before the one that precedes it.
    """
    if times is None:
        return
    array = np.asarray(times) if is_concrete(times) else np.empty(0, object)
    if array.dtype.kind not in "iufM":
        expected = "numbers or numpy.datetime64 that are known when compiling"
        raise TypeError(f"times: expected {expected}, got {described(times)}")
    shape("times", array, (num_samples,), f"({num_samples},), a time for each prediction")
    is_missing = np.isnat(array) if array.dtype.kind == "M" else ~np.isfinite(array)
    refuse_where(is_missing, "times", "finite times", array)
    is_earlier = np.append(False, array[1:] < array[:-1])
    refuse_where(is_earlier, "times", "forecasts in the order of time", array)


def points(name: str, values: Any, minimum: int = 1) -> PyTree:
    """Checks points of kernels and distances: a batch of distributions, or finite numbers."""
    if is_distribution(values):
        return unnumbered(batch(values, minimum=minimum, name=name))
    values = as_arrays(name, values)
    leading_size(name, values, minimum)
    refuse_empty(name, values)
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: finite(name + jax.tree_util.keystr(path), leaf), values
    )


def refuse_empty(name: str, values: object) -> None:
    """Refuses points without any numbers, [n, 0]."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(values):
        if not jnp.size(leaf):
            place = name + jax.tree_util.keystr(path)
            raise ValueError(f"{place}: expected at least one feature, got shape {jnp.shape(leaf)}")


def class_predictions(predictions: object, name: str = "predictions") -> None:
    """Refuses predictions without class probabilities."""
    try:
        has_probs = hasattr(predictions, "class_probs")
    except Exception:  # the parameters are invalid, as tensors with gradients: `batch` says so
        has_probs = True
    if not has_probs:
        raise TypeError(
            f"{name}: expected class predictions such as distributions.Categorical or "
            f"distributions.Bernoulli, got {described(predictions)}"
        )


def method(name: str, predictions: Any, needed: str) -> None:
    """Refuses predictions, or components of mixtures, without a method that is needed."""
    if not callable(getattr(predictions, needed, None)):
        raise TypeError(
            f"{name}: expected distributions with a method {needed}, got {described(predictions)}"
        )
    if hasattr(predictions, "components"):
        method(f"{name}.components", predictions.components, needed)


def bin_ids(name: str, values: ArrayLike, num_samples: int) -> jax.Array:
    """Returns the bin of each sample; refuses all but integers in 0, ..., num_samples - 1."""
    if not jnp.issubdtype(getattr(values, "dtype", object), jnp.integer):
        raise TypeError(f"{name}: expected integers, the bin of each prediction")
    shape(name, values, (num_samples,), f"({num_samples},), one bin for each prediction")
    expected = f"bins in 0, ..., {num_samples - 1}"
    return satisfying_integers(name, values, lambda x: (x >= 0) & (x < num_samples), expected)


def group_ids(name: str, values: ArrayLike, num_samples: int, *, kind: str = "group") -> jax.Array:
    """Returns the group of each sample; refuses all but integers in 0, ..., 2³¹ - 1.

    Traced ones that are out of range become negative.
    """
    groups = integer(name, as_arrays(name, values), f"{kind}s, one for each sample")
    shape(name, groups, (num_samples,), f"({num_samples},), one {kind} for each sample")
    is_right = lambda x: (x >= 0) & (x <= 2**31 - 1)  # noqa: E731
    groups = satisfying_integers(name, groups, is_right, f"{kind}s in 0, ..., 2³¹ - 1")
    is_narrow = jnp.result_type(groups).itemsize <= 4
    return (groups if is_narrow else jnp.maximum(groups, -1)).astype(jnp.int32)


def predictions_and_targets(
    predictions: Any,
    targets: Any,
    *,
    minimum: int = 1,
    names: tuple[str, str] = ("predictions", "targets"),
    keep_logs: bool = False,
) -> tuple[Any, jax.Array]:
    """Checks a data set and returns it as the pair (predictions, targets) of JAX arrays.

    `keep_logs` is that of `batch`.

    Raises:
        TypeError: as `batch`, and if the targets have the wrong dtype.
        ValueError: as `batch`, and if the targets have wrong shapes or values.
    """
    place, name = names
    if is_distribution(targets):
        raise TypeError(f"{name}: expected an array of observed targets, got {described(targets)}")
    same_rows(**{place: predictions, name: targets})
    predictions = batch(predictions, minimum=minimum, name=place, keep_logs=keep_logs)
    num_samples = leading_size(place, predictions)
    received = originals(name, targets)
    targets = narrowed(name, received)
    if (size := leading_size(name, targets)) != num_samples:
        raise ValueError(
            f"{name}: expected one target for each of the {num_samples} predictions, "
            f"got {size}{transposed(predictions, size)}"
        )
    targets = targets_of(predictions, name, targets)
    refuse_rounded(name, received, targets, predictions)
    if not is_concrete(targets):  # integers cannot be NaN, so the predictions of them become it
        predictions = nan_rows(missing_rows(targets), predictions)
    # Truth values are labels 0 and 1, but not numbers.
    targets = jax.tree.map(lambda y: y.astype(int) if y.dtype == jnp.bool_ else y, targets)
    return predictions, targets


def transposed(predictions: object, size: int) -> str:
    """Advice where the draws of `Ensemble` come with the axes in the wrong order."""
    values = getattr(getattr(predictions, "draws", predictions), "values", 0)
    is_other = np.ndim(values) > 1 and jnp.shape(values)[1] == size
    return "; transpose draws [m, n] by numpy.swapaxes(values, 0, 1)" if is_other else ""


def targets_of(predictions: Any, name: str, targets: ArrayLike) -> Any:
    """What `check_targets` of the predictions returns; without it the targets must be finite."""
    if hasattr(predictions, "check_targets"):
        checked = predictions.check_targets(name, targets)
        return targets if checked is None else checked
    return jax.tree.map(lambda leaf: finite(name, leaf), targets)


def confidences_and_correct(
    confidences: Any, correct: Any, *, names: tuple[str, str] = ("confidences", "correct")
) -> tuple[jax.Array, jax.Array]:
    """Checks confidences and whether predictions were correct, 0 or 1; [n] each.

    Returns:
        Both as arrays of the confidences' dtype; NaN for what is traced and neither 0 nor 1.

    Raises:
        TypeError: as `confidence_array`, and if the other one is not an array.
        ValueError: if shapes or values are wrong.
    """
    same_rows(**{names[0]: confidences, names[1]: correct})
    confidences = confidence_array(confidences, names[0])
    correct = as_arrays(names[1], correct)
    an_array(names[1], correct, "an array [n] of 0 and 1")
    shape(names[1], correct, confidences.shape, "[n], as the confidences")
    if correct.dtype != jnp.bool_:
        correct = satisfying(names[1], correct, lambda x: (x == 0) | (x == 1), "0 or 1")
    return confidences, correct.astype(confidences.dtype)


def confidence_array(confidences: Any, name: str = "confidences") -> jax.Array:
    """Checks confidences, an array [n] or a batch of `Bernoulli`s, and returns the array.

    Traced numbers outside of [0, 1] become NaN.

    Raises:
        TypeError: if they are not an array, or have the wrong dtype.
        ValueError: if the shape or a value is wrong.
    """
    if is_distribution(confidences) and not hasattr(confidences, "__jax_array__"):
        raise TypeError(
            f"{name}: expected an array [n], or a batch of distributions.Bernoulli as "
            f"estimators.top_label returns it, got {described(confidences)}"
        )
    confidences = narrowed(name, jax.tree.map(unrounded, originals(name, confidences)))
    if hasattr(confidences, "__jax_array__"):
        confidences = jnp.asarray(confidences)
    an_array(name, confidences, "an array [n]")
    # Integers are more likely the other argument than probabilities 0 and 1.
    if confidences.dtype not in (jnp.float32, jnp.float64):
        raise TypeError(
            f"{name}: expected floating-point values (float32 or float64), got {confidences.dtype}"
        )
    shape(name, confidences, (None,), "[n]")
    leading_size(name, confidences)
    return unit_interval(name, confidences)


def features(name: str, values: ArrayLike, num_samples: int) -> PyTree:
    """Returns features of samples, [n, d] or any pytree with leading axis n, as JAX arrays.

    Raises:
        TypeError: if they are not arrays.
        ValueError: if shapes or values are wrong.
    """
    values = unnumbered(checked_batch(name, values, ("n",), {"n": num_samples}))
    refuse_empty(name, values)
    return values


def smoothing_weights(totals: jax.Array) -> None:
    """Refuses sums of kernel weights that are not numbers."""
    if is_concrete(totals) and jnp.any(jnp.isnan(totals)):
        raise ValueError(
            "kernel: expected weights kernel(x, x') >= 0 of the features, got nan: the kernel is "
            "negative, or distances overflow"
        )


def groups(name: str, values: Any, num_classes: int) -> tuple[int, ...]:
    """Returns the group of each class; refuses all but 0, ..., g - 1 without gaps, g >= 2."""
    if not is_concrete(values):
        raise TypeError(f"{name}: expected integers that are known when compiling, got {values}")
    array = np.asarray(originals(name, values))
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers, one group for each class, got {array.dtype}")
    shape(name, array, (num_classes,), f"({num_classes},), one group for each class")
    numbers = sorted(set(array.tolist()))
    if len(numbers) < 2 or numbers != list(range(len(numbers))):
        raise ValueError(f"{name}: expected groups 0, ..., g - 1 with g >= 2, got {numbers}")
    return tuple(array.tolist())


def same_kind(
    name: str, tree: object, expected_name: str, expected: object, *, num_axes: int = 1
) -> None:
    """Refuses a batch of another structure, or with entries of other shapes, than expected.

    The lengths of the first `num_axes` axes may differ.
    """

    def kind(tree: object) -> tuple[Any, list[tuple[int, ...]]]:
        return jax.tree.structure(tree), [leaf.shape[num_axes:] for leaf in jax.tree.leaves(tree)]

    if kind(tree) != kind(expected):
        one, two = (
            f"{'arrays' if isinstance(x, jax.Array) else type(x).__name__} with entries of shapes "
            f"{kind(x)[1]}"
            for x in (expected, tree)
        )
        raise ValueError(
            f"{name}: expected entries like those of {expected_name}, {one}, got {two}"
        )


_LARGEST = 0.05  # the largest change of a location or target, in standard deviations
_ROUNDINGS = 4  # of probabilities, by which their sum may differ from one


@np.errstate(invalid="ignore")  # differences of infinite quantiles
def refuse_rounded(name: str, given: object, converted: object, predictions: object) -> None:
    """Refuses targets or locations that conversion moved by a part of a standard deviation.

    Args:
        name: how messages call the values.
        given: targets or locations as they came, in float64 or integers.
        converted: the same in JAX's precision.
        predictions: the batch whose standard deviations decide, converted.
    """
    for wide, narrow in zip(*map(jax.tree.leaves, (given, converted)), strict=True):
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
                f"{name}: expected values that float32 resolves to {_LARGEST:g} standard "
                f"deviations of the predictions, got {wide[index]!r}, which becomes "
                f"{np.asarray(narrow)[index]!r}; subtract a constant from targets and "
                "predictions, or set jax_enable_x64"
            )


def _scale(predictions: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """Standard deviations of the predictions that fit values of a shape, if they are known."""
    inner = getattr(predictions, "distribution", predictions)
    inner = getattr(inner, "components", inner)
    scale, cov, values = (getattr(inner, x, None) for x in ("scale", "cov", "values"))
    if not is_concrete(scale, cov, values):
        return None
    if cov is not None:
        scale = np.sqrt(np.diagonal(np.asarray(cov), axis1=-2, axis2=-1))
    elif scale is None and values is not None and len(shape) <= jnp.ndim(values) <= len(shape) + 1:
        values = np.asarray(values, np.float64)
        scale = values.std(1, keepdims=len(shape) == values.ndim)
    if scale is not None and jnp.ndim(scale) == len(shape) + 1:
        scale = np.asarray(scale).min(1)  # a target is compared with the narrowest component
    try:
        return np.broadcast_to(scale, shape) if scale is not None else None
    except ValueError:  # a parameter of this name that means something else
        return None


def sample_weights(
    weights: ArrayLike | None,
    samples: PyTree,
    *,
    minimum: int = 1,
    name: str = "weights",
    as_copies: bool = False,
) -> jax.Array | None:
    """Weights of n samples, scaled so that their sum is that of their squares.

    With u_i = w_i Σ_j w_j / Σ_j w_j² the sum Σ_i u_i = Σ_i u_i² = (Σ_i w_i)² / Σ_i w_i² is the
    effective number of samples (Kish), which takes the place of n in every formula: means are
    Σ_i u_i x_i / Σ_i u_i, and means over pairs i ≠ j have the divisor n (n − 1). Weights that are
    0 or equal become 0 and 1. The weight of no sample changes if all are multiplied by a constant.

    Args:
        weights: w ≥ 0, [n], or None for samples that count equally.
        samples: checked data with leading axis n, in whose precision the weights are.
        minimum: smallest number of positive weights.
        name: how messages call them.
        as_copies: whether to return w as it is, the numbers of copies of the samples.

    Returns:
        u, [n], or None; NaN if traced weights are wrong.

    Raises:
        TypeError: if they are no array of numbers.
        ValueError: if they have another shape, are negative or not finite, or too few are positive
            in the precision of the samples.
    """
    if weights is None:
        return None
    array = plain_weights(weights, leading_size("samples", samples), name)
    dtype = floating_dtype(samples)
    if is_concrete(array):
        numbers = np.asarray(array)
        positive = int((numbers > numbers.max() * jnp.finfo(dtype).tiny).sum())
        if positive < minimum:
            least = f"{minimum} positive weight{'' if minimum == 1 else 's'}"
            others = f"others are zero, or too small beside the largest for {dtype}"
            raise ValueError(f"{name}: expected at least {least}, got {positive}, {others}")
        if as_copies:
            return jnp.asarray(array, dtype)
        return jax.device_put(_scaled(numbers, dtype, np))  # NumPy compiles nothing
    if as_copies:
        return jnp.where(jnp.any(array > 0), jnp.asarray(array, dtype), jnp.nan)
    return _scaled(array, dtype, jnp)


def _scaled(weights: np.ndarray | jax.Array, dtype: DTypeLike, xp: ModuleType) -> Any:
    """Weights in units of a number that takes their squares into range, then scaled."""
    largest = weights.max() if xp is np else lax.stop_gradient(xp.max(weights))
    weights = (weights / largest).astype(dtype)
    return weights * (xp.sum(weights) / xp.sum(xp.square(weights)))


def plain_weights(weights: ArrayLike, n: int, name: str = "weights") -> Any:
    """Checked weights of n samples in the units in which they are given, [n]; a mask is 0 or 1."""
    array = as_arrays(name, weights)
    is_mask = getattr(array, "dtype", None) == jnp.bool_
    array = floating(name, array.astype(int) if is_mask else array)
    shape(name, array, (n,), f"({n},), one weight for each sample")
    return satisfying(name, array, lambda w: (w >= 0) & (w < np.inf), "finite weights >= 0")


def weighted_samples(
    predictions: Any,
    targets: ArrayLike,
    weights: ArrayLike | None,
    *,
    minimum: int = 1,
    keep_logs: bool = False,
    as_copies: bool = False,
) -> tuple[Any, jax.Array, jax.Array | None]:
    """`predictions_and_targets` with the `sample_weights` of the same rows."""
    if weights is not None:  # without them rows are compared below
        same_rows(predictions=predictions, targets=targets, weights=weights)
    samples = predictions_and_targets(predictions, targets, minimum=minimum, keep_logs=keep_logs)
    return *samples, sample_weights(weights, samples[0], minimum=minimum, as_copies=as_copies)


def weighted_confidences(
    confidences: Any,
    correct: Any,
    weights: ArrayLike | None,
    *,
    as_copies: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """`confidences_and_correct` with the `sample_weights` of the same rows."""
    if weights is not None:  # without them rows are compared below
        same_rows(confidences=confidences, correct=correct, weights=weights)
    samples = confidences_and_correct(confidences, correct)
    return *samples, sample_weights(weights, samples[0], as_copies=as_copies)


def counted(weights: jax.Array | None, samples: T, is_kept: jax.Array | None = None) -> T:
    """Samples of which those with weight 0 are replaced by the one with the largest weight.

    For functions in which a sample takes part even if it does not count, such as sorts: as a copy
    of another one, with weight 0, it changes nothing. `is_kept` says which ones are not replaced.
    """
    if weights is None:
        return samples
    is_used = weights > 0 if is_kept is None else is_kept
    heaviest = jnp.argmax(weights)

    def kept(leaf: jax.Array) -> jax.Array:
        is_row_used = is_used.reshape(-1, *[1] * (leaf.ndim - 1))
        return jnp.where(is_row_used, leaf, leaf[heaviest])

    return jax.tree.map(kept, samples)
