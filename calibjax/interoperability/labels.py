"""Class labels of any kind as the numbers that the rest of the package takes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks


def label_indices(labels: Any, classes: Any) -> jax.Array:
    """Numbers of labels: the i with classes[i] = label, which is how `Categorical` counts.

    Args:
        labels: labels that can be ordered, such as words or integers, [n].
        classes: the different labels there are, [m], such as `classes_` of a fitted classifier of
            scikit-learn, whose `predict_proba` has its columns in this order.

    Returns:
        Integers 0, ..., m − 1, [n].

    Raises:
        TypeError: if labels of one array are of kinds that cannot be compared.
        ValueError: if an array has not one axis, a class appears twice, or a label is none of
            the classes.

    Cost: O(n log n).

    >>> print(label_indices(["dog", "cat", "dog"], ["cat", "dog", "owl"]))
    [1 0 1]
    """
    labels, classes = _vector("labels", labels), _vector("classes", classes)
    numbers = {label: i for i, label in enumerate(classes.tolist())}
    if len(numbers) < len(classes):
        raise ValueError(f"classes: expected different labels, got {classes.tolist()}")
    try:
        different, positions = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise TypeError(f"labels: expected labels that can be ordered, got {error}") from None
    is_unknown = np.array([label not in numbers for label in different.tolist()], bool)[positions]
    if is_unknown.any():
        i = int(np.argmax(is_unknown))
        raise ValueError(
            f"labels: expected labels among the classes {classes.tolist()}, got "
            f"labels[{i}] = {labels.tolist()[i]!r}"
        )
    return jnp.asarray([numbers[label] for label in different.tolist()], int)[positions]


def _vector(name: str, values: Any) -> np.ndarray:
    """An array of at least one label."""
    checks.refuse_masked(name, values)
    try:
        array = np.asarray(values)
    except Exception as error:  # of ragged lists, and what other libraries raise
        raise TypeError(
            f"{name}: expected an array of labels, got {checks.described(values)}: {error}"
        ) from None
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name}: expected one axis with at least one label, got {array.shape}")
    return array
