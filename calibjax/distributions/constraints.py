"""Constraints of parameters and targets.

`real`, `positive`, `nonnegative`, `unit_interval` and `interval(low, high)` constrain numbers,
`simplex` vectors of probabilities, `positive_definite` matrices, `nonnegative_integer` and
`labels(num_classes)` integers, named as in numpyro. `constraint.with_axes("d")` constrains vectors
of such values; axes with one name have one length in all parameters of a distribution. A
`Constraint` of your own has a function `check(name, values)` that refuses invalid values, and
replaces traced ones by NaN.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import PyTree

__all__ = [
    "Constraint",
    "interval",
    "labels",
    "nonnegative",
    "nonnegative_integer",
    "positive",
    "positive_definite",
    "real",
    "simplex",
    "unit_interval",
]


@dataclasses.dataclass(frozen=True)
class Constraint:
    """Constraint of the values of a parameter or a target.

    Attributes:
        words: description of the values in error messages and the documentation.
        check: (name, array) → the array; refuses other values, or replaces traced ones by NaN.
        axes: names of the axes of one value, empty for scalars. Axes with one name have one length.
        min_size: smallest length of the last of these axes.
        is_integer: whether the values are integers; None if they may be either.
        optional: names of optional last axes.
        advice: hint for values of another shape.
    """

    words: str
    check: Callable[[str, Any], Any]
    axes: tuple[str, ...] = ()
    min_size: int = 1
    is_integer: bool | None = False
    optional: tuple[str, ...] = ()
    advice: str = ""

    def with_axes(self, *axes: str, min_size: int = 1, advice: str = "") -> "Constraint":
        """Constraint of an array of such values."""
        return dataclasses.replace(self, axes=axes, min_size=min_size, advice=advice)


def _satisfying(condition: Callable[[Any], Any], words: str) -> Constraint:
    return Constraint(words, lambda name, x: checks.satisfying(name, x, condition, words))


def interval(low: float, high: float) -> Constraint:
    """Numbers from low to high."""
    return _satisfying(lambda x: (x >= low) & (x <= high), f"values from {low:g} to {high:g}")


def _counts(name: str, values: ArrayLike) -> PyTree:
    return checks.satisfying_integers(name, values, lambda y: y >= 0, "counts 0, 1, 2, ...")


real = Constraint("finite values", checks.finite)
positive = Constraint("positive finite values", checks.positive)
nonnegative = _satisfying(lambda y: (y >= 0) & (y < math.inf), "finite values >= 0")
unit_interval = _satisfying(lambda y: (y >= 0) & (y <= 1), "proportions in [0, 1]")
simplex = Constraint("rows that sum to one", checks.simplex, ("d",), 2)
positive_definite = Constraint(
    "symmetric positive definite matrices", checks.positive_definite, ("d", "d")
)
nonnegative_integer = Constraint("counts", _counts, is_integer=True)


def labels(num_classes: int) -> Constraint:
    """Class labels 0, ..., m − 1."""
    return Constraint(
        "class labels",
        lambda name, values: checks.labels(name, values, num_classes),
        is_integer=True,
        advice="labels of one-hot rows are jnp.argmax(targets, 1)",
    )
