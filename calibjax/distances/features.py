"""Distance of the features that predictions carry."""

import jax

from calibjax._core import checks
from calibjax._core.pytree import PyTree, part, record
from calibjax.distances.base import Distance
from calibjax.distances.euclidean import Euclidean
from calibjax.distributions.features import WithFeatures


@record
class Features(Distance, sees_features=True):
    """Distance between the features of two predictions made by `distributions.with_features`.

    With it kernels on predictions look at the features instead of the predicted distributions.

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

    def in_units(self, p: PyTree, q: PyTree, unit: jax.Array) -> jax.Array:
        """Distance of the features in units of a constant."""
        return self.distance.in_units(_features(p), _features(q), unit)

    def embedding(self, points: PyTree) -> jax.Array | None:
        """That of the features."""
        return self.distance.embedding(_features(points))


def _features(p: object) -> PyTree:
    if not isinstance(p, WithFeatures):
        raise TypeError(
            "distance Features: expected predictions with features, made by "
            f"distributions.with_features, got {checks.described(p)}"
        )
    return p.features
