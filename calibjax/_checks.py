"""Argument checks: the only place that decides what is refused, and with which words.

Structure (shapes, dtypes, sizes, options) is checked on every call. Values are checked on every
call whose arrays are concrete, and skipped for tracers, which have none. Every message names the
argument, what was expected and what came.
"""

import dataclasses
import numbers
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_SIMPLEX_TOLERANCE = {4: 3e-4, 8: 1e-6}  # by item size: rows written with 7 digits still pass


def is_concrete(*trees: Any) -> bool:
    """Whether all leaves have values that Python can look at."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def first_where(bad: Any) -> tuple[int, ...]:
    """Index of the first true entry."""
    return tuple(int(i) for i in np.argwhere(bad)[0])


def refuse_where(bad: Any, name: str, expected: str, values: Any) -> None:
    """Raises a ValueError that shows the first offending value, if there is one."""
    if np.any(bad):
        index = first_where(bad)
        place = f"{name}[{', '.join(map(str, index))}]" if index else name
        raise ValueError(f"{name}: expected {expected}, got {place} = {np.asarray(values)[index]}")


def finite(name: str, values: Any) -> None:
    """Refuses NaN and infinities."""
    if is_concrete(values):
        array = np.asarray(values)
        refuse_where(~np.isfinite(array), name, "finite values", array)


def positive_scalar(name: str, value: Any) -> None:
    """Refuses hyperparameters that are not one positive finite number."""
    real(name, value)
    shape(name, value, (), "() (a scalar)")
    positive(name, value)


def proportion(name: str, value: Any) -> None:
    """Refuses everything but one number in (0, 1)."""
    positive_scalar(name, value)
    if is_concrete(value):
        refuse_where(np.asarray(value) >= 1, name, "values in (0, 1)", value)


def real(name: str, value: Any) -> None:
    """Refuses what is neither a real number nor an array of such."""
    is_number = isinstance(value, numbers.Number) and not isinstance(value, bool)
    if not (is_number or hasattr(value, "shape")):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")
    if jnp.issubdtype(jnp.result_type(value), jnp.complexfloating):
        raise TypeError(f"{name}: expected a real number, got {jnp.result_type(value)}")


def positive(name: str, values: Any) -> None:
    """Refuses everything that is not a finite number above zero."""
    if is_concrete(values):
        array = np.asarray(values)
        refuse_where(~((array > 0) & np.isfinite(array)), name, "positive finite values", array)


def positive_definite(name: str, values: Any) -> None:
    """Refuses matrices [..., d, d] that are not symmetric positive definite to their precision.

    The correlation matrices decide, so that units of the components do not matter.
    """
    finite(name, values)
    if is_concrete(values) and np.size(values):
        matrices = np.asarray(values)
        tolerance = matrices.shape[-1] * np.finfo(matrices.dtype).eps
        matrices = matrices.astype(np.float64)
        variances = np.diagonal(matrices, axis1=-2, axis2=-1)
        refuse_where(variances <= 0, f"{name}.diagonal", "positive variances", variances)
        scales = np.sqrt(variances)
        correlations = matrices / scales[..., :, None] / scales[..., None, :]
        asymmetry = np.abs(correlations - np.swapaxes(correlations, -1, -2)).max((-2, -1))
        bad = asymmetry > 100 * tolerance
        refuse_where(bad, f"{name}.asymmetry", "symmetric matrices", asymmetry)
        try:  # many times as fast as the eigenvalues
            np.linalg.cholesky(correlations - tolerance * np.eye(correlations.shape[-1]))
        except np.linalg.LinAlgError:
            smallest = np.linalg.eigvalsh(correlations)[..., 0]
            place = f"{name}.correlation.smallest_eigenvalue"
            refuse_where(smallest <= tolerance, place, "positive definite matrices", smallest)


def unit_interval(name: str, values: Any) -> None:
    """Refuses everything outside [0, 1]."""
    if is_concrete(values):
        array = np.asarray(values)
        refuse_where(~((array >= 0) & (array <= 1)), name, "probabilities in [0, 1]", array)


def simplex(name: str, values: Any) -> None:
    """Refuses rows that are not probability vectors."""
    if is_concrete(values):
        array = np.asarray(values)
        unit_interval(name, array)
        sums = array.sum(-1, dtype=np.float64)
        off = np.abs(sums - 1) > _SIMPLEX_TOLERANCE.get(array.dtype.itemsize, 1e-2)
        refuse_where(off, f"{name}.sum(-1)", "rows that sum to one (not logits)", sums)


def labels(name: str, values: Any, num_classes: int) -> None:
    """Refuses labels outside 0, ..., num_classes - 1."""
    if is_concrete(values):
        array = np.asarray(values)
        bad = (array < 0) | (array >= num_classes)
        refuse_where(bad, name, f"labels in 0, ..., {num_classes - 1}", array)


def floating(name: str, values: Any) -> None:
    """Refuses arrays that are neither float32 nor float64."""
    dtype = jnp.result_type(values)
    if dtype not in (jnp.float32, jnp.float64):
        raise TypeError(f"{name}: expected floating-point values (float32 or float64), got {dtype}")


def integer(name: str, values: Any, described: str = "class labels") -> None:
    """Refuses arrays that hold neither integers nor booleans."""
    dtype = jnp.result_type(values)
    if not (jnp.issubdtype(dtype, jnp.integer) or dtype == jnp.bool_):
        raise TypeError(f"{name}: expected integer {described}, got {dtype}")


def as_arrays(name: str, tree: Any) -> Any:
    """Turns the leaves into JAX arrays; lists in place of arrays are refused.

    Probabilities that are given as a `Bernoulli`, which is itself an array, become that array.
    """
    if dataclasses.is_dataclass(tree) and hasattr(vars(tree).get("probs"), "sample"):
        tree = dataclasses.replace(tree, probs=jnp.asarray(tree.probs))

    def convert(path: Any, leaf: Any) -> Any:
        place = name + jax.tree_util.keystr(path)
        if not hasattr(leaf, "shape"):
            raise TypeError(f"{place}: expected an array, got {type(leaf).__name__}")
        if np.dtype(leaf.dtype).kind in "OSUMm":
            raise TypeError(f"{place}: expected numbers, got an array of {leaf.dtype}")
        return jnp.asarray(leaf)

    return jax.tree_util.tree_map_with_path(convert, tree)


def leading_size(name: str, tree: Any, minimum: int = 1) -> int:
    """Returns the common length of the leading axes.

    Raises:
        ValueError: if a leaf has no axes, the lengths differ, or there are too few entries.
    """
    sizes = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        place = name + jax.tree_util.keystr(path)
        if jnp.ndim(leaf) == 0:
            raise ValueError(f"{place}: expected a batch with a leading axis, got a scalar")
        sizes[place] = jnp.shape(leaf)[0]
    if not sizes:
        raise ValueError(f"{name}: expected arrays with a leading axis, got {tree!r}")
    if len(set(sizes.values())) > 1:
        raise ValueError(f"{name}: expected leading axes of one length, got {sizes}")
    size = next(iter(sizes.values()))
    if size < minimum:
        raise ValueError(f"{name}: expected at least {minimum} samples, got {size}")
    return size


def record_values(record: Any, name: str) -> None:
    """Calls `check_values` of a record, or of its fields; bare arrays must be finite."""
    if hasattr(record, "check_values"):
        record.check_values(name)
    elif dataclasses.is_dataclass(record):
        for field in dataclasses.fields(record):
            record_values(getattr(record, field.name), f"{name}.{field.name}")
    elif hasattr(record, "shape"):
        finite(name, record)


def size_in_range(name: str, value: Any, minimum: int, maximum: int | None = None) -> int:
    """Returns an integer option after checking its range."""
    try:
        if isinstance(value, bool):
            raise TypeError
        value = operator.index(value)
    except TypeError:
        plain = value is None or isinstance(value, str | numbers.Number)
        got = repr(value) if plain else described(value)
        raise TypeError(f"{name}: expected an integer, got {got}") from None
    if value < minimum or (maximum is not None and value > maximum):
        limit = f"between {minimum} and {maximum}" if maximum is not None else f">= {minimum}"
        raise ValueError(f"{name}: expected an integer {limit}, got {value}")
    return value


def batch(predictions: Any, *, minimum: int = 1, name: str = "predictions") -> Any:
    """Checks a batch of predictions and returns it with JAX arrays as leaves.

    Raises:
        TypeError: if `predictions` is no distribution, or a parameter is no floating-point array.
        ValueError: if the parameters have wrong shapes or values, or there are fewer than
            `minimum` of them.
    """
    if isinstance(predictions, type) or not hasattr(predictions, "sample"):
        raise TypeError(
            f"{name}: expected a batch of distributions such as distributions.Normal or "
            f"distributions.Categorical, got {described(predictions)}"
        )
    predictions = as_arrays(name, predictions)
    leading_size(name, predictions, minimum)
    if hasattr(predictions, "check_structure"):
        predictions.check_structure(name)
    record_values(predictions, name)
    return predictions.with_index() if hasattr(predictions, "with_index") else predictions


def class_predictions(predictions: Any) -> None:
    """Refuses predictions without class probabilities."""
    if not hasattr(predictions, "class_probs"):
        raise TypeError(
            "predictions: expected class predictions such as distributions.Categorical or "
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


def bin_ids(name: str, values: Any, num_samples: int) -> None:
    """Refuses everything but one integer in 0, ..., num_samples - 1 per sample."""
    dtype = jnp.result_type(values) if hasattr(values, "shape") else described(values)
    if not (hasattr(values, "shape") and jnp.issubdtype(dtype, jnp.integer)):
        raise TypeError(f"{name}: expected integers, one bin for each prediction, got {dtype}")
    shape(name, values, (num_samples,), f"({num_samples},), one bin for each prediction")
    if is_concrete(values):
        array = np.asarray(values)
        bad = (array < 0) | (array >= num_samples)
        refuse_where(bad, name, f"bins in 0, ..., {num_samples - 1}", array)


def group_ids(name: str, values: Any, num_samples: int, num_groups: int | None = None) -> jax.Array:
    """Returns the group of each sample; refuses all but integers in 0, ..., num_groups - 1."""
    groups = jnp.asarray(as_arrays(name, values))
    integer(name, groups, "groups, one for each sample")
    shape(name, groups, (num_samples,), f"({num_samples},), one group for each sample")
    if is_concrete(values):
        array = np.asarray(values)  # not yet cut to the 32 bits of JAX's integers
        bad = (array < 0) | (array >= (num_groups or 2**31))
        limit = f"in 0, ..., {num_groups - 1}" if num_groups else "from 0"
        refuse_where(bad, name, f"groups {limit}", array)
    return groups.astype(jnp.int32)


def predictions_and_targets(
    predictions: Any, targets: Any, *, minimum: int = 1, prefix: str = ""
) -> Any:
    """Checks a data set and returns it as the pair (predictions, targets) of JAX arrays.

    The arguments are called `prefix` + "predictions" and `prefix` + "targets".

    Raises:
        TypeError: as `batch`, and if the targets have the wrong dtype.
        ValueError: as `batch`, and if the targets have wrong shapes or values.
    """
    name = f"{prefix}targets"
    if hasattr(targets, "sample"):
        raise TypeError(f"{name}: expected an array of what came, got {described(targets)}")
    predictions = batch(predictions, minimum=minimum, name=f"{prefix}predictions")
    num_samples = leading_size(f"{prefix}predictions", predictions)
    targets = as_arrays(name, targets)
    if leading_size(name, targets) != num_samples:
        raise ValueError(
            f"{name}: expected one target for each of the {num_samples} predictions, "
            f"got {leading_size(name, targets)}"
        )
    targets_of(predictions, name, targets)
    # Truth values are labels 0 and 1, but not numbers.
    targets = jax.tree.map(lambda y: y.astype(int) if y.dtype == jnp.bool_ else y, targets)
    return predictions, targets


def targets_of(predictions: Any, name: str, targets: Any) -> None:
    """Calls `check_targets` of the predictions; without it the targets must be finite."""
    if hasattr(predictions, "check_targets"):
        predictions.check_targets(name, targets)
    else:
        for leaf in jax.tree.leaves(targets):
            finite(name, leaf)


def confidences_and_correct(confidences: Any, correct: Any) -> tuple[jax.Array, jax.Array]:
    """Checks confidences and what came, 0 or 1; [n] each.

    Returns:
        Both as arrays of the confidences' dtype; NaN for what is traced and neither 0 nor 1.

    Raises:
        TypeError: as `confidence_array`, and if the other one is no array.
        ValueError: if shapes or values are wrong.
    """
    confidences = confidence_array(confidences)
    correct = jnp.asarray(as_arrays("correct", correct))
    shape("correct", correct, confidences.shape, "[n], as the confidences")
    is_truth_value = (correct == 0) | (correct == 1)
    if is_concrete(is_truth_value):
        refuse_where(~np.asarray(is_truth_value), "correct", "0 or 1", correct)
    return confidences, jnp.where(is_truth_value, correct, jnp.nan).astype(confidences.dtype)


def confidence_array(confidences: Any, name: str = "confidences") -> jax.Array:
    """Checks confidences, an array [n] or a batch of `Bernoulli`s, and returns the array.

    Traced numbers outside of [0, 1] become NaN.

    Raises:
        TypeError: if they are no array, or have the wrong dtype.
        ValueError: if the shape or a value is wrong.
    """
    if hasattr(confidences, "sample") and not hasattr(confidences, "__jax_array__"):
        raise TypeError(
            f"{name}: expected an array [n], or a batch of distributions.Bernoulli as "
            f"estimators.top_label returns it, got {described(confidences)}"
        )
    confidences = jnp.asarray(as_arrays(name, confidences))
    floating(name, confidences)
    shape(name, confidences, (None,), "[n]")
    leading_size(name, confidences)
    unit_interval(name, confidences)
    if is_concrete(confidences):
        return confidences
    return jnp.where((confidences >= 0) & (confidences <= 1), confidences, jnp.nan)


def features(name: str, values: Any, num_samples: int, *, vectors: bool) -> Any:
    """Returns features of samples, [n, d] or any pytree with leading axis n, as JAX arrays.

    Raises:
        TypeError: if they are no arrays, or no floating-point vectors although those are needed.
        ValueError: if shapes or values are wrong.
    """
    values = as_arrays(name, values)
    size = leading_size(name, values)
    if size != num_samples:
        raise ValueError(
            f"{name}: expected features of each of the {num_samples} samples with confidences, "
            f"got {size}"
        )
    if vectors:
        if not hasattr(values, "shape"):
            raise TypeError(f"{name}: expected an array [n, d], got {described(values)}")
        floating(name, values)
        shape(name, values, (None, None), "[n, d]")
        if values.shape[1] == 0:
            raise ValueError(f"{name}: expected at least one feature, got shape {values.shape}")
    record_values(values, name)
    for leaf in jax.tree.leaves(values):
        finite(name, leaf)
    return values


def smoothing_weights(totals: Any) -> None:
    """Refuses sums of kernel weights that are not numbers."""
    if is_concrete(totals) and np.any(np.isnan(totals)):
        raise ValueError(
            "kernel: expected weights kernel(x, x') >= 0 of the features, got nan: the kernel is "
            "negative, or distances overflow"
        )


def length_scales(name: str, values: Any) -> None:
    """Refuses everything but one positive finite number, or an array [G] of them."""
    real(name, values)
    if jnp.ndim(values) > 1 or jnp.size(values) == 0:
        raise ValueError(f"{name}: expected a number or shape [G], got {jnp.shape(values)}")
    positive(name, values)


def one_of(**options: Any) -> None:
    """Refuses calls with none or several of the options."""
    given = [name for name, value in options.items() if value is not None]
    if len(given) != 1:
        got = " and ".join(given) or "none of them"
        raise TypeError(f"expected one of {' and '.join(options)}, got {got}")


def groups(name: str, values: Any, num_classes: int) -> tuple[int, ...]:
    """Returns the group of each class; refuses all but 0, ..., g - 1 without gaps, g >= 2."""
    if not is_concrete(values):
        raise TypeError(f"{name}: expected integers that are known when compiling, got {values}")
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        array = np.asarray(values, object)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers, one group for each class, got {array.dtype}")
    shape(name, array, (num_classes,), f"({num_classes},), one group for each class")
    found = sorted(set(array.tolist()))
    if len(found) < 2 or found != list(range(len(found))):
        raise ValueError(f"{name}: expected groups 0, ..., g - 1 with g >= 2, got {found}")
    return tuple(array.tolist())


def same_kind(name: str, tree: Any, expected_name: str, expected: Any) -> None:
    """Refuses a batch of another structure, or with entries of other shapes, than expected."""

    def kind(tree: Any) -> tuple[Any, list[tuple[int, ...]]]:
        return jax.tree.structure(tree), [leaf.shape[1:] for leaf in jax.tree.leaves(tree)]

    if kind(tree) != kind(expected):
        one, two = (
            f"{type(x).__name__} with entries of shapes {kind(x)[1]}" for x in (expected, tree)
        )
        raise ValueError(
            f"{name}: expected entries like those of {expected_name}, {one}, got {two}"
        )


def truth_value(name: str, value: Any) -> None:
    """Refuses options that are neither True nor False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}: expected True or False, got {value!r}")


def kernel_values(kernel: Any, name: str = "kernel") -> None:
    """Checks the hyperparameters of a kernel and of the kernels in it."""
    function("kernel record", name, kernel)
    record_values(kernel, name)


def fitted(name: str, value: Any, expected: type) -> None:
    """Refuses params of another recalibrator, or none."""
    if not isinstance(value, expected):
        raise TypeError(
            f"{name}: expected {expected.__name__} as fit returns it, got {described(value)}"
        )


def described(value: Any) -> str:
    """What a value is, in an error message."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def function(kind: str, name: str, value: Any) -> None:
    """Refuses what cannot be called, and classes in place of their instances."""
    if isinstance(value, type) or not callable(value):
        raise TypeError(f"{name}: expected a {kind}, got {described(value)}")


def random_key(key: Any) -> jax.Array:
    """Returns a random key, old or new style, as one of the new style.

    Raises:
        TypeError: if it is not one key.
    """
    if isinstance(key, jax.Array) and jnp.shape(key) == ():
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            return key
    elif isinstance(key, jax.Array | np.ndarray) and key.dtype == jnp.uint32 and key.ndim == 1:
        return jax.random.wrap_key_data(jnp.asarray(key))
    got = f"{key.dtype}{list(key.shape)}" if hasattr(key, "shape") else repr(key)
    raise TypeError(f"key: expected one random key such as jax.random.key(0), got {got}")


def shape(name: str, values: Any, expected: tuple[Any, ...], described: str) -> None:
    """Refuses arrays of another shape; None in `expected` matches every length."""
    actual = jnp.shape(values)
    matches = len(actual) == len(expected) and all(
        e is None or e == a for e, a in zip(expected, actual, strict=True)
    )
    if not matches:
        raise ValueError(f"{name}: expected shape {described}, got {actual}")


def choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Refuses options that are not among the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {value!r}")
    return value
