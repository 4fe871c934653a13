"""Wasserstein distance between distributions of one family."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from calibjax._core import checks
from calibjax._core.arithmetic import safe_sqrt
from calibjax._core.pytree import PyTree, record
from calibjax.distances.base import Distance
from calibjax.distances.bures import squared_bures
from calibjax.distances.euclidean import Euclidean
from calibjax.distributions import DiagNormal, Ensemble, Laplace, MvNormal, Normal

_OTHERS = (
    "use distances.MixtureWasserstein for mixtures, TotalVariation for classes, and "
    "MaximumMeanDiscrepancy for others"
)


@functools.singledispatch
def _squared(p: object, q: object) -> jax.Array:
    if not checks.is_distribution(p):
        raise TypeError(
            f"distance Wasserstein: expected two distributions, got {checks.described(p)} and "
            f"{checks.described(q)}; distances.Euclidean is one of targets"
        )
    raise NotImplementedError(
        f"distance Wasserstein is not defined for {type(p).__name__} and {type(q).__name__}; "
        f"{_OTHERS}, or add it with Wasserstein.register({type(p).__name__}, squared)"
    )


def _rule(p: object, q: object) -> Callable[[Any, Any], jax.Array]:
    """The squared distance of two members of the family of p and q."""
    if type(p) is not type(q):
        raise NotImplementedError(
            f"distance Wasserstein is not defined between {checks.described(p)} and "
            f"{checks.described(q)}; {_OTHERS}"
        )
    return _squared.dispatch(type(p))


class _Embedded(NamedTuple):
    """A rule for families whose distance is the Euclidean one of two points, divided by √m.

    Attributes:
        points: (p, q) → both points, arrays or pytrees, and m.
    """

    points: Callable[[Any, Any], tuple[Any, Any, int]]

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        x, y, square = self.points(p, q)
        return Euclidean().squared(x, y) / square


def _laplace_points(p: Laplace, q: Laplace) -> tuple[Any, Any, int]:
    # Twice the same coordinate: products of it would leave rounding errors of a distance of zero.
    one, two = ((x.loc, x.scale, x.scale) for x in (p, q))
    return one, two, 1


def _order_statistics(p: Ensemble, q: Ensemble) -> tuple[Any, Any, int]:
    shapes = [jnp.shape(x.values) for x in (p, q)]
    if shapes[0] != shapes[1] or len(shapes[0]) != 1 or (p.weights, q.weights) != (None, None):
        raise NotImplementedError(
            "Wasserstein is defined for ensembles of equally many, equally likely numbers, "
            f"got values of shapes {shapes[0]} and {shapes[1]}"
            + ("" if p.weights is None and q.weights is None else " with weights")
        )
    return jnp.sort(p.values), jnp.sort(q.values), shapes[0][0]


# Independent normal components: the distance of the vectors (loc, scale).
_squared.register(Normal, _Embedded(lambda p, q: (p, q, 1)))
_squared.register(DiagNormal, _Embedded(lambda p, q: (p, q, 1)))
_squared.register(Laplace, _Embedded(_laplace_points))
_squared.register(Ensemble, _Embedded(_order_statistics))


@_squared.register
def _(p: MvNormal, q: MvNormal) -> jax.Array:
    return Euclidean().squared(p.loc, q.loc) + squared_bures(p.cov, q.cov)


@record
class Wasserstein(Distance):
    """2-Wasserstein distance W₂(p, q) between two distributions of the same family.

    For normal distributions with independent components
    W₂² = ‖loc_p − loc_q‖² + ‖scale_p − scale_q‖²; for Laplace distributions
    W₂² = (loc_p − loc_q)² + 2 (scale_p − scale_q)²; for normal distributions with covariances S, T

        W₂² = ‖loc_p − loc_q‖² + tr(S + T − 2 (S^½ T S^½)^½),

    with the Bures distance of the covariances. For covariances that do not commute, this distance
    does not embed in a Hilbert space, and kernels exp(−W₂^ν) need not be positive semi-definite:
    exp(−W₂² / 2) between four thin normals, with axes 45 degrees apart, has the eigenvalue −0.06.
    Derivatives are exact; second derivatives with respect to covariances are not.

    For `Ensemble` it is the distance of the empirical distributions,
    W₂² = m⁻¹ Σ_k (z_(k) − z'_(k))² with the sorted draws; these have to be scalars without
    weights, equally many on both sides. For two `Mixture`s no formula is known;
    `MixtureWasserstein` is an upper bound.

    Cost: the number of parameters. For full covariances about 15 d³ multiplications if d > 2,
    vectorised over the pairs for d ≤ 5; beyond, ten times as slow.

    Raises:
        NotImplementedError: if the distance between the two families is not defined.

    References: W21 D.1 (normal), D.2 (Laplace); methods of `calibjax.distances.bures`.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> p = Normal(jnp.array(0.0), jnp.array(1.0))
    >>> q = Normal(jnp.array(3.0), jnp.array(5.0))
    >>> print(Wasserstein()(p, q))
    5.0
    """

    def squared(self, p: PyTree, q: PyTree) -> jax.Array:
        """Squared 2-Wasserstein distance."""
        return _rule(p, q)(p, q)

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        """2-Wasserstein distance."""
        rule = _rule(p, q)
        if not isinstance(rule, _Embedded):
            return safe_sqrt(rule(p, q))
        x, y, square = rule.points(p, q)
        return Euclidean()(x, y) / math.sqrt(square)

    def squared_in_units(self, p: PyTree, q: PyTree, unit: jax.Array) -> jax.Array:
        """Squared 2-Wasserstein distance in units of a constant."""
        rule = _rule(p, q)
        if not isinstance(rule, _Embedded):
            return rule(p, q) * jnp.square(1 / unit)
        x, y, square = rule.points(p, q)
        return Euclidean().squared_in_units(x, y, math.sqrt(square) * unit)

    def embedding(self, points: PyTree) -> jax.Array | None:
        """The vectors (loc, scale) of independent components, or sorted draws."""
        rule = _rule(points, points)
        if not isinstance(rule, _Embedded):
            return None
        xs, _, squares = jax.vmap(lambda p: rule.points(p, p))(points)
        return Euclidean().embedding(xs) / jnp.sqrt(1.0 * squares)[:, None]

    @staticmethod
    def register(distribution_type: type, squared: Callable[[Any, Any], jax.Array]) -> None:
        """Adds a family: `squared(p, q)` is W₂² of two of its members."""
        _squared.register(distribution_type, squared)
