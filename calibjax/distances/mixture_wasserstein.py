"""Wasserstein distance between mixtures with plans that couple whole components."""

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, safe_sqrt, unit_and_rate
from calibjax._core.pytree import PyTree, record
from calibjax.distances.base import Distance
from calibjax.distances.transport import transport_cost
from calibjax.distances.wasserstein import Wasserstein
from calibjax.distributions import Mixture


def _power(x: jax.Array, exponent: float) -> jax.Array:
    """x^exponent for x ≥ 0, with derivative zero at zero where it would be infinite."""
    if exponent == 1:
        return x
    if exponent == 0.5:
        return safe_sqrt(x)
    is_zero = x == 0
    return jnp.where(is_zero, 0, jnp.where(is_zero, 1, x) ** exponent)


def _pairs(function: Callable[[Any, Any], jax.Array], p: Mixture, q: Mixture) -> jax.Array:
    """A function of all pairs of components, [k, k']."""
    row = jax.vmap(function, in_axes=(None, 0))
    return jax.vmap(row, in_axes=(0, None))(p.components, q.components)


@record
class MixtureWasserstein(Distance):
    """Mixture-Wasserstein distance MW_s between two `Mixture`s.

    MW_s(p, q) = (min_π Σ_ij π_ij W₂(p_i, q_j)^s)^{1/s}, where π couples the weights of the
    components and W₂ is the distance `Wasserstein` of two components. It is a metric, and for
    s ≤ 2 no smaller than the Wasserstein distance W_s of the mixtures themselves. The mixtures may
    have different numbers of components.

    **Kernels with it need not be positive semi-definite.** W21 Theorem D.1 says that
    exp(−λ MW_s^ν) is; its proof uses one coupling for all pairs, and the theorem is false. For
    the 45 mixtures of two equally likely normal distributions with means and standard deviations
    in {0, 1, 2} the smallest eigenvalue is −0.39 with λ = 0.5, ν = 2, and −0.04 with λ = 0.1,
    ν = 1. Estimates and tests are meaningful only with positive semi-definite kernels, such as
    those of `MaximumMeanDiscrepancy`, which is also cheaper.

    Attributes:
        order: s ≥ 1, a number (static: each order is compiled separately).

    Raises:
        NotImplementedError: if one of the two is not a `Mixture` (a single distribution is
            `Mixture(None, components)` with one component), or `Wasserstein` is not defined for
            the components.
        TypeError: if the order is not a number.
        ValueError: if it is below one.

    Cost: K K' distances W₂ and one transport problem, see `calibjax.distances.transport`; gradients
    at distance zero are zero.

    References: W21 eq. (D.2); Delon and Desolneux (2020) for s = 2.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Mixture, Normal
    >>> p = Mixture(jnp.array([0.5, 0.5]), Normal(jnp.array([0.0, 2.0]), jnp.array([1.0, 1.0])))
    >>> q = Mixture(None, Normal(jnp.array([2.0]), jnp.array([1.0])))
    >>> print(MixtureWasserstein(order=1)(p, q), MixtureWasserstein().squared(p, q))
    1.0 2.0
    """

    order: float = dataclasses.field(default=2, metadata={"static": True})

    def __call__(self, p: Mixture, q: Mixture) -> jax.Array:
        """Mixture-Wasserstein distance."""
        self._check(p, q)
        unit, _ = unit_and_rate(jnp.max(_pairs(Wasserstein(), p, q)))
        return unit * _power(self._transport(p, q, unit), 1 / self.order)

    def squared(self, p: Mixture, q: Mixture) -> jax.Array:
        """Squared mixture-Wasserstein distance."""
        return self.squared_in_units(p, q, jnp.ones((), floating_dtype((p, q))))

    def squared_in_units(self, p: Mixture, q: Mixture, unit: jax.Array) -> jax.Array:
        """Squared mixture-Wasserstein distance in units of a constant."""
        return _power(self._transport(p, q, unit), 2 / self.order)

    def _transport(self, p: Mixture, q: Mixture, unit: jax.Array) -> jax.Array:
        """min_π Σ_ij π_ij W₂(p_i, q_j)^s in units of a constant."""
        self._check(p, q)

        def cost(one: PyTree, two: PyTree) -> jax.Array:
            return _power(Wasserstein().squared_in_units(one, two, unit), self.order / 2)

        total = transport_cost(p.mixing_probs, q.mixing_probs, _pairs(cost, p, q))
        return jnp.where(total == 0, 0, total)  # a kink, where the derivative is set to zero

    def _check(self, p: Mixture, q: Mixture) -> None:
        self.check_values("MixtureWasserstein()")
        if not (isinstance(p, Mixture) and isinstance(q, Mixture)):
            raise NotImplementedError(
                "distance MixtureWasserstein is defined for two distributions.Mixture, got "
                f"{checks.described(p)} and {checks.described(q)}; a single distribution is a "
                "mixture of one component"
            )

    def check_values(self, name: str) -> None:
        """Refuses orders that are not finite numbers ≥ 1."""
        is_number = (
            isinstance(self.order, numbers.Real) and np.dtype(type(self.order)).kind in "iuf"
        )
        if not is_number:
            got = type(self.order).__name__
            raise TypeError(f"{name}.order: expected a number (it is static), got {got}")
        if not 1 <= self.order < float("inf"):
            raise ValueError(f"{name}.order: expected a finite number >= 1, got {self.order}")
