"""Checks of arrays: their values, dtypes and shapes."""

import dataclasses
import numbers
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


def described(value: Any) -> str:
    """What a value is, in an error message."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def real(name: str, value: Any) -> None:
    """Refuses what is neither a real number nor an array of such."""
    is_number = isinstance(value, numbers.Number) and not isinstance(value, bool)
    if not (is_number or hasattr(value, "shape")):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")
    if jnp.issubdtype(jnp.result_type(value), jnp.complexfloating):
        raise TypeError(f"{name}: expected a real number, got {jnp.result_type(value)}")


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


def positive_number(name: str, value: Any, dtype: Any) -> jax.Array:
    """Returns one positive finite number as an array; NaN for traced ones that are not."""
    positive_scalar(name, value)
    value = jnp.asarray(value, dtype)
    positive(name, value)  # in this precision
    return jnp.where((value > 0) & jnp.isfinite(value), value, jnp.nan)


def proportion(name: str, value: Any) -> None:
    """Refuses everything but one number in (0, 1)."""
    positive_scalar(name, value)
    if is_concrete(value):
        refuse_where(np.asarray(value) >= 1, name, "values in (0, 1)", value)


def positive(name: str, values: Any) -> None:
    """Refuses everything that is not a finite number above zero."""
    if is_concrete(values):
        array = np.asarray(values)
        refuse_where(~((array > 0) & np.isfinite(array)), name, "positive finite values", array)


def length_scales(name: str, values: Any) -> None:
    """Refuses everything but one positive finite number, or an array [G] of them."""
    real(name, values)
    if jnp.ndim(values) > 1 or jnp.size(values) == 0:
        raise ValueError(f"{name}: expected a number or shape [G], got {jnp.shape(values)}")
    positive(name, values)


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


def shape(name: str, values: Any, expected: tuple[Any, ...], described: str) -> None:
    """Refuses arrays of another shape; None in `expected` matches every length."""
    actual = jnp.shape(values)
    matches = len(actual) == len(expected) and all(
        e is None or e == a for e, a in zip(expected, actual, strict=True)
    )
    if not matches:
        raise ValueError(f"{name}: expected shape {described}, got {actual}")


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
