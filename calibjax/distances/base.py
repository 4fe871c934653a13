"""What all distances share."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._core.arithmetic import safe_sqrt
from calibjax._core.pytree import PyTree
from calibjax.distributions.composed import bare


def _of_distributions(method: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """A method for predictions that does not see their features."""

    @functools.wraps(method)
    def unwrapped(self: "Distance", *points: PyTree) -> jax.Array:
        return method(self, *map(bare, points))

    return unwrapped


_METHODS = {"__call__", "squared", "squared_in_units", "embedding"}


class Distance:
    """A distance between two predictions or two targets.

    Subclasses are records that define `__call__` or `squared`; the other one follows. They do not
    see the features of predictions that have any (`distributions.with_features`), unless they are
    declared as `class Mine(Distance, sees_features=True)`.

    Those whose squares would overflow in large units also define `squared_in_units`, and those that
    are Euclidean distances of some points `embedding`.
    """

    def __init_subclass__(cls, sees_features: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        defined = _METHODS & vars(cls).keys()
        for name in defined if not sees_features else ():
            setattr(cls, name, _of_distributions(vars(cls)[name]))
        for name in _METHODS - defined if defined else ():  # from these, not a parent's
            setattr(cls, name, getattr(Distance, name))

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        """Distance between p and q, a scalar."""
        if type(self).squared is Distance.squared:
            raise NotImplementedError(f"{type(self).__name__} defines neither __call__ nor squared")
        return safe_sqrt(self.squared(p, q))

    def squared(self, p: PyTree, q: PyTree) -> jax.Array:
        """Squared distance between p and q, a scalar."""
        return jnp.square(self(p, q))

    def squared_in_units(self, p: PyTree, q: PyTree, unit: jax.Array) -> jax.Array:
        """Squared distance in units of a constant, such as the length scale of a kernel."""
        rate = 1 / unit
        if type(self).squared is not Distance.squared:
            return self.squared(p, q) * jnp.square(rate)
        batches = (jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], point) for point in (p, q))
        one, two = map(self.embedding, batches)
        # Of points it is smooth where they are equal, which the square of an absolute value is not.
        distance = self(p, q) if one is None or two is None else one - two
        return jnp.sum(jnp.square(distance * rate))

    def in_units(self, p: PyTree, q: PyTree, unit: jax.Array) -> jax.Array:
        """Distance in units of a constant, d / unit."""
        if type(self).squared is Distance.squared:
            return self(p, q) * (1 / unit)
        return safe_sqrt(self.squared_in_units(p, q, unit))

    def embedding(self, points: PyTree) -> jax.Array | None:
        """Points x_i with d(p_i, p_j) = ‖x_i − x_j‖ of a batch, [n, d]; None if none are known.

        If they lie on a line, sums over pairs with exponential and Matérn kernels take linear
        time.

        >>> import jax.numpy as jnp
        >>> from calibjax.distances import TotalVariation
        >>> from calibjax.distributions import Bernoulli
        >>> print(TotalVariation().embedding(Bernoulli(jnp.array([0.5, 0.75]))))
        [[0.  ]
         [0.25]]
        """
        del points
        return None
