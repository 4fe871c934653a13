"""Base class of distances; Euclidean, Manhattan, total variation, MMD, distance of features."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._core import arithmetic, checks
from calibjax._core.arithmetic import absolute, difference
from calibjax._core.pytree import PyTree, part, record
from calibjax.distributions.composed import WithFeatures, bare


def _of_distributions(method: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Method on predictions without their features."""

    @functools.wraps(method)
    def unwrapped(self: "Distance", *points: PyTree) -> jax.Array:
        return method(self, *map(bare, points))

    return unwrapped


_METHODS = {"__call__", "squared", "squared_in_units", "embedding"}


class Distance:
    """Distance between two predictions or two targets.

    Subclasses are records that define `__call__` or `squared`; the other one follows. They are
    called without the features of predictions (`distributions.with_features`), unless they are
    declared as `class Mine(Distance, sees_features=True)`.

    Optional methods are `squared_in_units`, if squares would overflow in large units, and
    `embedding`, for Euclidean distances of some points.
    """

    def __init_subclass__(cls, sees_features: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        defined = _METHODS & vars(cls).keys()
        for name in defined if not sees_features else ():
            setattr(cls, name, _of_distributions(vars(cls)[name]))
        for name in _METHODS - defined if defined else ():  # not from a parent class
            setattr(cls, name, getattr(Distance, name))

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        """Distance between p and q, a scalar."""
        if type(self).squared is Distance.squared:
            raise NotImplementedError(f"{type(self).__name__} defines neither __call__ nor squared")
        return arithmetic.safe_sqrt(self.squared(p, q))

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
        # Smooth at equal points, unlike the square of an absolute value.
        distance = self(p, q) if one is None or two is None else one - two
        return jnp.sum(jnp.square(distance * rate))

    def in_units(self, p: PyTree, q: PyTree, unit: jax.Array) -> jax.Array:
        """Distance in units of a constant, d / unit."""
        if type(self).squared is Distance.squared:
            return self(p, q) * (1 / unit)
        return arithmetic.safe_sqrt(self.squared_in_units(p, q, unit))

    def embedding(self, points: PyTree) -> jax.Array | None:
        """Points x_i of a batch with d(p_i, p_j) = ‖x_i − x_j‖, [n, d]; None if unknown.

        On a line, sums over pairs with exponential kernels take linear time.

        >>> import jax.numpy as jnp
        >>> from calibjax.distances import TotalVariation
        >>> from calibjax.distributions import Bernoulli
        >>> print(TotalVariation().embedding(Bernoulli(jnp.array([0.5, 0.75]))))
        [[0.  ]
         [0.25]]
        """
        del points
        return None


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
        got = " and ".join(map(checks.described, (p, q)))
        raise TypeError(f"distance: expected two points of one kind, got {got}")
    terms = (arithmetic.sum_over_components(function, a, b) for a, b in zip(one, two, strict=True))
    return functools.reduce(jnp.add, terms)


@record
class Euclidean(Distance):
    """Euclidean distance ‖p − q‖₂ between targets, or over all parameters of two predictions.

    Class predictions are compared as vectors of probabilities: `Bernoulli` has the distances of the
    two-class `Categorical`.

    Cost: the number of parameters.

    >>> import jax.numpy as jnp
    >>> print(Euclidean()(jnp.array([0.0, 3.0]), jnp.array([4.0, 0.0])))
    5.0
    """

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        """Euclidean distance."""
        if num_coordinates(p) == 1:
            return sum_over_coordinates(lambda x, y: absolute(difference(x, y)), p, q)
        # Unit of each point by itself, computed once and not for all pairs.
        (unit, rate), (other_unit, other_rate) = map(_own_unit, (p, q))
        square = _squared(p, q, jnp.minimum(rate, other_rate))
        return jnp.maximum(unit, other_unit) * arithmetic.safe_sqrt(square)

    def squared(self, p: PyTree, q: PyTree) -> jax.Array:
        """Squared Euclidean distance."""
        return sum_over_coordinates(lambda x, y: jnp.square(difference(x, y)), p, q)

    def squared_in_units(self, p: PyTree, q: PyTree, unit: jax.Array) -> jax.Array:
        """Squared Euclidean distance in units of a constant."""
        return _squared(p, q, 1 / unit)

    def embedding(self, points: PyTree) -> jax.Array:
        """Coordinates; one of two probabilities, which sum to one."""
        if (line := line_of_two_classes(points)) is not None:
            return math.sqrt(2) * line
        parts = [1.0 * jnp.asarray(x) for x in _coordinates(points)]
        return jnp.concatenate([x.reshape(len(x), -1) for x in parts], 1)


def line_of_two_classes(points: object) -> jax.Array | None:
    """Half the difference of two class probabilities, [n, 1]; None without two classes."""
    probs = getattr(points, "class_probs", None)
    if probs is None or probs.shape[1:] != (2,):
        return None
    return 0.5 * (probs[:, 1:] - probs[:, :1])


def _squared(p: object, q: object, rate: jax.Array) -> jax.Array:
    return sum_over_coordinates(lambda x, y: jnp.square(difference(x, y) * rate), p, q)


def _own_unit(p: object) -> tuple[jax.Array, jax.Array]:
    sizes = [jnp.max(jnp.abs(1.0 * x), initial=0) for x in map(jnp.asarray, _coordinates(p))]
    return arithmetic.unit_and_rate(functools.reduce(jnp.maximum, sizes))


@record
class SquaredEuclidean(Distance):
    """Squared Euclidean distance ‖p − q‖₂², with the coordinates of `Euclidean`.

    It is not a metric. With it, `estimators.ece` estimates the squared calibration error E‖E[e_Y |
    P] − P‖². `Exponential` with this distance is the squared exponential kernel of `Euclidean`;
    `SquaredExponential` with it is not positive semi-definite.

    Cost: the number of parameters.

    >>> import jax.numpy as jnp
    >>> print(SquaredEuclidean()(jnp.array([0.0, 3.0]), jnp.array([4.0, 0.0])))
    25.0
    """

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        """Squared Euclidean distance."""
        return Euclidean().squared(p, q)


@record
class Manhattan(Distance):
    """Manhattan distance ‖x − y‖₁ = Σ_k |x_k − y_k|, with the coordinates of `Euclidean`.

    Its `Exponential` kernel is the Laplacian kernel. Between class predictions it is twice the
    total variation distance.

    Attributes:
        mean: whether to take the mean over the d coordinates instead of the sum, for length scales
            that do not depend on the dimension (static). `Exponential(γ, Manhattan(mean=True))` is
            the kernel of L21.

    Cost: the number of coordinates.

    >>> import jax.numpy as jnp
    >>> x, y = jnp.array([0.0, 3.0]), jnp.array([4.0, 0.0])
    >>> print(Manhattan()(x, y), Manhattan(mean=True)(x, y))
    7.0 3.5
    """

    mean: bool = dataclasses.field(default=False, metadata={"static": True})

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        """Manhattan distance, or its mean over the coordinates."""
        total = sum_over_coordinates(lambda x, y: absolute(difference(x, y)), p, q)
        return total / num_coordinates(p) if self.mean else total

    def embedding(self, points: PyTree) -> jax.Array | None:
        """Points for scalars and for probabilities of two classes."""
        if (line := line_of_two_classes(points)) is not None:
            return line if self.mean else 2 * line
        coordinates = Euclidean().embedding(points)
        return coordinates if coordinates.shape[1] == 1 else None


@record
class TotalVariation(Distance):
    """Total variation distance ½ Σ_c |p_c − q_c| between two class predictions.

    Arguments are predictions with `class_probs` (`Categorical`, `Bernoulli`) or vectors of
    probabilities [m]. Values are in [0, 1].

    Cost: m.

    >>> import jax.numpy as jnp
    >>> print(TotalVariation()(jnp.array([0.5, 0.5]), jnp.array([0.25, 0.75])))
    0.25
    """

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        """Total variation distance."""
        p, q = (getattr(x, "class_probs", x) for x in (p, q))
        if not (hasattr(p, "ndim") and hasattr(q, "ndim")):
            got = " and ".join(map(checks.described, (p, q)))
            raise NotImplementedError(f"TotalVariation: expected class predictions, got {got}")
        return 0.5 * arithmetic.sum_over_components(lambda x, y: absolute(x - y), p, q)

    def embedding(self, points: PyTree) -> jax.Array | None:
        """Points on a line for two classes."""
        return line_of_two_classes(points)


@record
class MaximumMeanDiscrepancy(Distance):
    """Maximum mean discrepancy between two predicted distributions under a target kernel.

        d(p, q)² = M_{p,p} − 2 M_{p,q} + M_{q,q},    M_{p,q} = E_{Z~p, Z'~q} k(Z, Z'),

    the distance of their kernel mean embeddings in the Hilbert space of k. Hence exp(−(d / ℓ)^ν)
    with 0 < ν ≤ 2 is positive semi-definite for every family of distributions, including mixtures.
    This need not hold for `MixtureWasserstein`, nor for `Wasserstein` between normal distributions
    whose covariances do not commute. It is a metric if k is characteristic. For `Ensemble` it is
    the distance of the empirical distributions. Draws of `distributions.monte_carlo` are not used.

    Attributes:
        kernel: target kernel k with expectations under the predictions.

    The three terms cancel between similar predictions: the squared distance is accurate to
    the rounding errors of the terms, d to their square root (1e-8, in float32 3e-4).

    Raises:
        NotImplementedError: if the expectations of the kernel have no closed form.

    Cost: one M for each pair of predictions, and two for each prediction.

    References: Gretton et al. (2012), Lemma 6. None of the four papers has it.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> from calibjax.kernels import White
    >>> p, q = Categorical(jnp.array([1.0, 0.0])), Categorical(jnp.array([0.5, 0.5]))
    >>> print(MaximumMeanDiscrepancy(White()).squared(p, q))  # the squared Euclidean distance
    0.5
    """

    kernel: Any = part(checks.kernel_values)

    def squared(self, p: PyTree, q: PyTree) -> jax.Array:
        """Squared maximum mean discrepancy."""
        double = self.kernel.double_expectation
        square = double(p, p) - 2 * double(p, q) + double(q, q)
        return square + jax.lax.stop_gradient(jnp.maximum(-square, 0))  # keeps derivatives at zero


@record
class Features(Distance, sees_features=True):
    """Distance between the features of two predictions made by `distributions.with_features`.

    Kernels with this distance depend on the features instead of the predicted distributions.

    Attributes:
        distance: a distance between features; for dictionaries and other pytrees `Euclidean` adds
            up the squares of all leaves.

    Raises:
        TypeError: if predictions have no features.

    >>> import jax.numpy as jnp
    >>> from calibjax import distances, distributions
    >>> predictions = distributions.Bernoulli(jnp.array([0.5, 0.6]))
    >>> p = distributions.with_features(predictions, jnp.array([[0.0, 0.0], [3.0, 4.0]]))
    >>> one, two = (jax.tree.map(lambda leaf: leaf[i], p) for i in range(2))
    >>> print(distances.Features(distances.Euclidean())(one, two))
    5.0
    """

    distance: Distance = part(checks.distance_values, default=Euclidean())

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        """Distance of the features."""
        return self.distance(_features(p), _features(q))

    def squared(self, p: PyTree, q: PyTree) -> jax.Array:
        """Squared distance of the features."""
        return self.distance.squared(_features(p), _features(q))

    def squared_in_units(self, p: PyTree, q: PyTree, unit: jax.Array) -> jax.Array:
        """Squared distance of the features in units of a constant."""
        return self.distance.squared_in_units(_features(p), _features(q), unit)

    def embedding(self, points: PyTree) -> jax.Array | None:
        """Embedding of the features."""
        return self.distance.embedding(_features(points))


def _features(p: object) -> PyTree:
    if not isinstance(p, WithFeatures):
        got = f"got {checks.described(p)}; see distributions.with_features"
        raise TypeError(f"distance Features: expected predictions with features, {got}")
    return p.features
