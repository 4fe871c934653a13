"""Quantile forecasts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import parameter, record
from calibjax.distributions.base import Distribution
from calibjax.distributions.constraints import Constraint

_WORDS = "finite values, -inf or inf"
_EXTENDED = Constraint(_WORDS, lambda name, x: checks.satisfying(name, x, lambda v: v == v, _WORDS))


@record
class Quantiles(Distribution):
    """Quantile forecast of a number: P(Y ≤ values_j) = levels_j, j = 1, ..., k.

    Where Y may equal a quantile with a positive probability, such as counts and days without rain,
    it says P(Y < values_j) ≤ levels_j ≤ P(Y ≤ values_j). Quantiles may be −∞ and ∞, as those of
    conformal methods are for few calibration data: their intervals contain every target, their
    widths are infinite, and so is a `scores.pinball_loss`.

    It does not say where Y lies between two quantiles, or how far beyond the outermost. So there is
    no density, no sampling and no kernel calibration error. `scores.pinball_loss` scores it at its
    own levels, and `hypothesis_tests.coverage_test` tests the coverage of each level and interval.

    Attributes:
        levels: in (0, 1), increasing, [k]; for a batch [n, k], or [k] if all share them.
        values: quantiles at these levels, not decreasing, [k], or [n, k] for a batch; −∞ and ∞
            are allowed.

    Raises:
        TypeError, ValueError: when it is passed to a function, if levels or values are invalid;
            `Quantiles.sorted` takes quantiles that cross.

    References: Koenker and Bassett (1978), Regression quantiles.

    >>> import jax.numpy as jnp
    >>> p = Quantiles(levels=jnp.array([0.25, 0.75]), values=jnp.array([-1.0, 2.0]))
    >>> print(p.interval(1.5), p.interval(2.0), p.interval(3.0), p.probs)
    1 1 2 [0.25 0.5  0.25]
    """

    levels: jax.Array = parameter(Constraint("values in (0, 1)", checks.proportions, ("k",)))
    values: jax.Array = parameter(_EXTENDED.with_axes("k"))

    @classmethod
    def sorted(cls, levels: ArrayLike, values: ArrayLike) -> "Quantiles":
        """The forecast with the quantiles of each row, and the levels, in increasing order.

        Quantiles that were estimated one by one may cross. Sorted ones are never further from the
        true quantiles, on average over equidistant levels, and are the same where none cross.

        Args:
            levels: in (0, 1), in any order, [k], or [n, k] for a batch.
            values: quantiles at these levels, [k], or [n, k] for a batch.

        Returns:
            The forecast, with levels and values of the shapes, and in the precision, in which they
            came.

        Raises:
            TypeError: if levels or values are no arrays of real numbers.

        Cost: O(n k log k).

        References: Chernozhukov, Fernández-Val and Galichon (2010), Quantile and probability curves
        without crossing.

        >>> print(Quantiles.sorted([0.1, 0.5, 0.9], [-1.0, 2.0, 1.5]).values)
        [-1.   1.5  2. ]
        """
        arrays = checks.originals("levels", levels), checks.originals("values", values)
        in_order: Any = (np.sort(x) if isinstance(x, np.ndarray) else jnp.sort(x) for x in arrays)
        return cls(*in_order)

    @property
    def probs(self) -> jax.Array:
        """Probabilities of the k + 1 intervals between the quantiles, [k + 1], or [n, k + 1]."""
        zeros = jnp.zeros_like(self.levels[..., :1])
        return jnp.diff(self.levels, prepend=zeros, append=zeros + 1)

    def interval(self, y: ArrayLike) -> jax.Array:
        """Index of the interval that contains y, 0, ..., k: the number of quantiles below y."""
        return jnp.sum(self.values < jnp.asarray(y), -1)

    def check_values(self, name: str) -> "Quantiles":
        """Refuses levels that are 0, 1 or not increasing, and quantiles that cross."""
        checked = super().check_values(name)
        levels = checked.levels
        levels = checks.increasing(f"{name}.levels", levels, "increasing levels", strictly=True)
        expected = f"quantiles that do not cross{_advice(checked.values)}"
        values = checks.increasing(f"{name}.values", checked.values, expected)
        return checks.replaced(checked, levels=levels, values=values)


def _advice(values: ArrayLike) -> str:
    """How many rows have quantiles that cross, where that is known, and what to do."""
    if not checks.is_concrete(values):
        return ""
    array = np.asarray(values)
    crossing = np.asarray((array[..., 1:] < array[..., :-1]).any(-1))
    rows = f"{crossing.sum()} of {crossing.size} rows do; " if crossing.ndim else ""
    return f" ({rows}distributions.Quantiles.sorted(levels, values) sorts them)"
