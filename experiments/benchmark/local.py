"""The MLCE over 40 bandwidths against the distances that it needs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distances, estimators, pairwise

NUM_BINS = 15
BANDWIDTHS = np.logspace(-3, 2, 40)


def samples(num_samples: int, num_features: int, *, one_bin: bool = False) -> tuple[jax.Array, ...]:
    """Features, confidences and correctness in float32.

    As for networks on images, 40 % of the confidences are in the highest of 15 bins, and the
    others spread over all; or all of them are in that one, the worst case.
    """
    generator = np.random.default_rng(0)
    features = generator.normal(size=(num_samples, num_features))
    confidences = generator.uniform(14 / 15, 1, num_samples)
    if not one_bin:
        spread = generator.uniform(size=num_samples)
        confidences = np.where(generator.uniform(size=num_samples) < 0.4, confidences, spread)
    correct = generator.uniform(size=num_samples) < confidences
    return tuple(jnp.asarray(x, jnp.float32) for x in (features, confidences, correct))


def curve(calibration: tuple[jax.Array, ...], evaluation: tuple[jax.Array, ...]) -> jax.Array:
    """MLCE at the points of the second set, from the samples of the first, [40]."""
    gammas = jnp.asarray(BANDWIDTHS, jnp.float32)
    near = estimators.Neighbourhood.laplacian(gammas, NUM_BINS)
    return estimators.mlce(near, *calibration, at=evaluation[:2])


def _distance(distance: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    return distance(x, y)


def distance_sums(xs: jax.Array, ys: jax.Array) -> jax.Array:
    """Sums of the Manhattan distances of each x from all y, in tiles: the distances alone, [n]."""
    ones = jnp.ones((ys.shape[0], 1), ys.dtype)
    return pairwise.weighted_sums(_distance, distances.Manhattan(), xs, ys, ones)[:, 0]


def numpy_distance_sums(xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
    """The same by scikit-learn, in blocks of rows."""
    from sklearn.metrics import pairwise_distances_chunked

    chunks = pairwise_distances_chunked(
        xs, ys, metric="manhattan", reduce_func=lambda block, _: block.sum(1), working_memory=64
    )
    return np.concatenate(list(chunks))
