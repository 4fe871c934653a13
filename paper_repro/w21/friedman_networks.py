"""The Friedman 1 regression problem of W21 App. A.3 and the networks that are trained on it.

Data and networks are in float64, as in the code of the paper.
"""

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

NUM_FEATURES = 10
HIDDEN_UNITS = (200, 50)

Layers = list[tuple[jax.Array, jax.Array]]


class DataSet(NamedTuple):
    """Features [n, 10] and targets [n], the training samples first, then the test samples."""

    features: jax.Array
    targets: jax.Array


class Trajectory(NamedTuple):
    """What networks predict in the iterations 0, 1, ..., of which 0 is before training.

    Attributes:
        means: predicted means of all samples of the data set, [iterations + 1, networks, n].
        sigmas: standard deviations, one for all inputs, [iterations + 1, networks].
    """

    means: jax.Array
    sigmas: jax.Array


def noiseless_targets(x: jax.Array) -> jax.Array:
    """10 sin(π x₁ x₂) + 20 (x₃ − ½)² + 10 x₄ + 5 x₅ for features [..., 10]."""
    waves = 10 * jnp.sin(jnp.pi * x[..., 0] * x[..., 1])
    return waves + 20 * jnp.square(x[..., 2] - 0.5) + 10 * x[..., 3] + 5 * x[..., 4]


def draw_data_set(key: jax.Array, num_samples: int) -> DataSet:
    """Features that are uniform on the unit cube, targets with standard normal noise."""
    feature_key, noise_key = jax.random.split(key)
    features = jax.random.uniform(feature_key, (num_samples, NUM_FEATURES), jnp.float64)
    noise = jax.random.normal(noise_key, (num_samples,), jnp.float64)
    return DataSet(features, noiseless_targets(features) + noise)


def draw_initial_values(
    key: jax.Array, hidden: tuple[int, ...] = HIDDEN_UNITS
) -> tuple[Layers, jax.Array]:
    """Layers of a network, and the standard deviation of its predictions before training.

    Each layer is a pair of weights [inputs, outputs], Glorot uniform, and offsets [outputs], zero.
    The standard deviation is exponential with mean one, as in the code of the paper.
    """
    weight_key, sigma_key = jax.random.split(key)
    sizes = (NUM_FEATURES, *hidden, 1)
    keys = jax.random.split(weight_key, len(sizes) - 1)
    glorot = jax.nn.initializers.glorot_uniform()
    layers = [
        (glorot(layer_key, shape, jnp.float64), jnp.zeros(shape[1], jnp.float64))
        for layer_key, shape in zip(keys, itertools.pairwise(sizes), strict=True)
    ]
    return layers, jax.random.exponential(sigma_key, dtype=jnp.float64)


def predicted_means(layers: Layers, features: jax.Array) -> jax.Array:
    """Output of the network with ReLU units at features [n, 10], [n]."""
    *hidden, (weights, offsets) = layers
    x = features
    for hidden_weights, hidden_offsets in hidden:
        x = jax.nn.relu(x @ hidden_weights + hidden_offsets)
    return (x @ weights + offsets)[..., 0]


def _train_network(
    key: jax.Array, data: DataSet, num_training: int, iterations: int, hidden: tuple[int, ...]
) -> tuple[jax.Array, jax.Array]:
    """Means [iterations + 1, n] and standard deviations [iterations + 1] of one network."""
    layers, sigma = draw_initial_values(key, hidden)
    adam = optax.adam(1e-3)
    training, test = data.features[:num_training], data.features[num_training:]

    def loss(layers: Layers) -> tuple[jax.Array, jax.Array]:
        means = predicted_means(layers, training)
        return jnp.mean(jnp.square(means - data.targets[:num_training])), means

    def step(state: tuple, _: None) -> tuple[tuple, tuple[jax.Array, jax.Array]]:
        layers, moments = state
        (error, means), slope = jax.value_and_grad(loss, has_aux=True)(layers)
        update, moments = adam.update(slope, moments)
        all_means = jnp.concatenate([means, predicted_means(layers, test)])
        return (optax.apply_updates(layers, update), moments), (all_means, jnp.sqrt(error))

    _, (means, sigmas) = lax.scan(step, (layers, adam.init(layers)), length=iterations + 1)
    return means, sigmas.at[0].set(sigma)


@functools.partial(jax.jit, static_argnames=("num_training", "iterations", "hidden"))
def train(
    keys: jax.Array,
    data: DataSet,
    *,
    num_training: int,
    iterations: int,
    hidden: tuple[int, ...] = HIDDEN_UNITS,
) -> Trajectory:
    """Trains one network for each key by full-batch Adam on the mean squared error, together.

    In each iteration the variance of the predictions is set to the training error after the
    update, which maximises the likelihood.

    Args:
        keys: random keys, [networks].
        data: training and test samples.
        num_training: number of training samples.
        iterations: number of updates.
        hidden: numbers of hidden units.
    """

    def train_one(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _train_network(key, data, num_training, iterations, hidden)

    return Trajectory(*jax.vmap(train_one, out_axes=1)(keys))
