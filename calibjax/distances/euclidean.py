"""Euclidean distance and its square."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from calibjax._core import checks
from calibjax._core.arithmetic import (
    absolute,
    difference,
    safe_sqrt,
    sum_over_components,
    total,
    unit_and_rate,
)
from calibjax._core.pytree import PyTree, record
from calibjax.distances.base import Distance


def _coordinates(p: object) -> list[jax.Array]:
    """Coordinates of p: class probabilities if it has them, otherwise all its parameters."""
    return jax.tree.leaves(getattr(p, "class_probs", p))


def num_coordinates(p: object) -> int:
    """Number of coordinates of p."""
    return sum(map(jnp.size, _coordinates(p)))


def sum_over_coordinates(
    function: Callable[[jax.Array, jax.Array], jax.Array], p: object, q: object
) -> jax.Array:
    """Sum of a function of two coordinates."""
    one, two = _coordinates(p), _coordinates(q)
    if [*map(jnp.size, one)] != [*map(jnp.size, two)]:
        raise TypeError(
            f"distance: expected two points of one kind, got {checks.described(p)} and "
            f"{checks.described(q)}"
        )
    return total([sum_over_components(function, a, b) for a, b in zip(one, two, strict=True)])


@record
class Euclidean(Distance):
    """Euclidean distance ‖p − q‖₂ between targets, or over all parameters of two predictions.

    Class predictions are compared as vectors of probabilities, so that `Bernoulli` has the same
    distances as the two-class `Categorical`.

    Cost: the number of parameters.

    >>> import jax.numpy as jnp
    >>> print(Euclidean()(jnp.array([0.0, 3.0]), jnp.array([4.0, 0.0])))
    5.0
    """

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        """Euclidean distance."""
        if num_coordinates(p) == 1:
            return sum_over_coordinates(lambda x, y: absolute(difference(x, y)), p, q)
        # Of each point by itself, so that it is found once and not for all pairs.
        (unit, rate), (other_unit, other_rate) = map(_own_unit, (p, q))
        square = _squared(p, q, jnp.minimum(rate, other_rate))
        return jnp.maximum(unit, other_unit) * safe_sqrt(square)

    def squared(self, p: PyTree, q: PyTree) -> jax.Array:
        """Squared Euclidean distance."""
        return sum_over_coordinates(lambda x, y: jnp.square(difference(x, y)), p, q)

    def squared_in_units(self, p: PyTree, q: PyTree, unit: jax.Array) -> jax.Array:
        """Squared Euclidean distance in units of a constant."""
        return _squared(p, q, 1 / unit)

    def embedding(self, points: PyTree) -> jax.Array:
        """The coordinates; one of two probabilities, which depend on each other."""
        if (line := line_of_two_classes(points)) is not None:
            return math.sqrt(2) * line
        parts = [1.0 * jnp.asarray(x) for x in _coordinates(points)]
        return jnp.concatenate([x.reshape(len(x), -1) for x in parts], 1)


def line_of_two_classes(points: object) -> jax.Array | None:
    """Half the difference of two class probabilities, [n, 1], or None if there are more or none."""
    probs = getattr(points, "class_probs", None)
    if probs is None or probs.shape[1:] != (2,):
        return None
    return 0.5 * (probs[:, 1:] - probs[:, :1])


def _squared(p: object, q: object, rate: jax.Array) -> jax.Array:
    return sum_over_coordinates(lambda x, y: jnp.square(difference(x, y) * rate), p, q)


def _own_unit(p: object) -> tuple[jax.Array, jax.Array]:
    sizes = [jnp.max(jnp.abs(1.0 * x), initial=0) for x in map(jnp.asarray, _coordinates(p))]
    return unit_and_rate(functools.reduce(jnp.maximum, sizes))


@record
class SquaredEuclidean(Distance):
    """Squared Euclidean distance ‖p − q‖₂², with the coordinates of `Euclidean`.

    It is not a metric, but defines the squared calibration error: with it, `estimators.ece`
    estimates E‖E[e_Y | P] − P‖². `Exponential` with this distance is the squared exponential kernel
    of `Euclidean`; `SquaredExponential` with it, a function of the fourth power, is not positive
    semi-definite.

    Cost: the number of parameters.

    >>> import jax.numpy as jnp
    >>> print(SquaredEuclidean()(jnp.array([0.0, 3.0]), jnp.array([4.0, 0.0])))
    25.0
    """

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        """Squared Euclidean distance."""
        return Euclidean().squared(p, q)
