"""Wasserstein distance between distributions of one family."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._pytree import record
from calibjax.distances.base import Distance
from calibjax.distances.euclidean import Euclidean
from calibjax.distributions import DiagNormal, Laplace, Normal


@functools.singledispatch
def _squared(p: Any, q: Any) -> jax.Array:
    raise NotImplementedError(
        f"Wasserstein is not defined for {type(p).__name__} and {type(q).__name__}; add it with "
        f"Wasserstein.register({type(p).__name__}, squared)"
    )


# Independent normal components: the distance of the vectors (loc, scale).
_squared.register(Normal, Euclidean().squared)
_squared.register(DiagNormal, Euclidean().squared)


@_squared.register
def _(p: Laplace, q: Laplace) -> jax.Array:
    return jnp.square(p.loc - q.loc) + 2 * jnp.square(p.scale - q.scale)


@record
class Wasserstein(Distance):
    """2-Wasserstein distance W₂(p, q) between two distributions of the same family.

    For normal distributions with independent components
    W₂² = ‖loc_p − loc_q‖² + ‖scale_p − scale_q‖²; for Laplace distributions
    W₂² = (loc_p − loc_q)² + 2 (scale_p − scale_q)².

    Cost: the number of parameters.

    Raises:
        NotImplementedError: if the distance between the two families is not known.

    References: W21 D.1 (normal), D.2 (Laplace).

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> p = Normal(jnp.array(0.0), jnp.array(1.0))
    >>> q = Normal(jnp.array(3.0), jnp.array(5.0))
    >>> print(Wasserstein()(p, q))
    5.0
    """

    def squared(self, p: Any, q: Any) -> jax.Array:
        """Squared 2-Wasserstein distance."""
        if type(p) is not type(q):
            raise NotImplementedError(
                f"Wasserstein is not defined between {type(p).__name__} and {type(q).__name__}"
            )
        return _squared(p, q)

    @staticmethod
    def register(distribution_type: type, squared: Callable[[Any, Any], jax.Array]) -> None:
        """Adds a family: `squared(p, q)` is W₂² of two of its members."""
        _squared.register(distribution_type, squared)
