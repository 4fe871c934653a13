"""Friedman 1 of W21 App. A.3: the authors' data and networks, drawn from their seeds.

Everything is in float64, as in the authors' script. Julia's arrays are in column-major order:
`rand(10, n)` is n vectors of ten, and `rand(outputs, inputs)` is the transpose of our weights.
"""

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from paper_repro.julia_random import MersenneTwister

SEEDS = {"train": 100, "test": 200}  # of the data; the networks' seeds are of the first one, too
NUM_SAMPLES = {"train": 100, "test": 50}
NUM_NETWORKS = 10
NUM_FEATURES = 10
HIDDEN_UNITS = (200, 50)

Layers = list[tuple[jax.Array, jax.Array]]


class DataSet(NamedTuple):
    """Features [n, 10] and targets [n]."""

    features: np.ndarray
    targets: np.ndarray


class Trajectory(NamedTuple):
    """What networks predict in the iterations 0, 1, ..., of which 0 is before training.

    Attributes:
        means: predicted means of training and then test samples, [networks, iterations + 1, n].
        sigmas: standard deviations, one for all inputs, [networks, iterations + 1].
    """

    means: np.ndarray
    sigmas: np.ndarray


def draw_data_set(split: str) -> DataSet:
    """The authors' training or test data: features uniform on the cube, standard normal noise.

    Targets are 10 sin(π x₁ x₂) + 20 (x₃ − ½)² + 10 x₄ + 5 x₅ + ε.
    """
    generator, n = MersenneTwister(SEEDS[split]), NUM_SAMPLES[split]
    x = generator.rand(NUM_FEATURES * n).reshape(n, NUM_FEATURES)
    waves = 10 * np.sin(np.pi * x[:, 0] * x[:, 1])
    signal = waves + 20 * np.square(x[:, 2] - 0.5) + 10 * x[:, 3] + 5 * x[:, 4]
    return DataSet(x, signal + np.array([generator.randn() for _ in range(n)]))


def network_seeds() -> list[int]:
    """`Random.seed!(100); rand(UInt, 10)`."""
    return MersenneTwister(SEEDS["train"]).rand_uint64(NUM_NETWORKS)


def draw_initial_values(seed: int) -> tuple[Layers, float]:
    """Layers of a network, and the standard deviation of its predictions before training.

    Each layer is a pair of weights [inputs, outputs], Glorot uniform, and offsets [outputs], zero.
    The standard deviation is exponential with mean one.
    """
    generator = MersenneTwister(seed)
    layers = []
    for inputs, outputs in itertools.pairwise((NUM_FEATURES, *HIDDEN_UNITS, 1)):
        uniform = generator.rand(inputs * outputs).reshape(inputs, outputs)
        weights = (uniform - 0.5) * np.sqrt(24 / (inputs + outputs))
        layers.append((jnp.array(weights), jnp.zeros(outputs)))
    return layers, generator.randexp()


def predicted_means(layers: Layers, features: jax.Array) -> jax.Array:
    """Output of the network with ReLU units at features [n, 10], [n]."""
    *hidden, (weights, offsets) = layers
    x = features
    for hidden_weights, hidden_offsets in hidden:
        x = jax.nn.relu(x @ hidden_weights + hidden_offsets)
    return (x @ weights + offsets)[..., 0]


@functools.partial(jax.jit, static_argnames="iterations")
def _train_network(
    layers: Layers, training: DataSet, test_features: jax.Array, *, iterations: int
) -> tuple[jax.Array, jax.Array]:
    """Means [iterations + 1, n] and root mean squared training errors [iterations + 1]."""
    adam = optax.adam(1e-3)  # whose defaults are those of Flux

    def loss(layers: Layers) -> tuple[jax.Array, jax.Array]:
        means = predicted_means(layers, training.features)
        return jnp.mean(jnp.square(means - training.targets)), means

    def step(state: tuple, _: None) -> tuple[tuple, tuple[jax.Array, jax.Array]]:
        layers, moments = state
        (error, means), slope = jax.value_and_grad(loss, has_aux=True)(layers)
        update, moments = adam.update(slope, moments)
        all_means = jnp.concatenate([means, predicted_means(layers, test_features)])
        return (optax.apply_updates(layers, update), moments), (all_means, jnp.sqrt(error))

    return lax.scan(step, (layers, adam.init(layers)), length=iterations + 1)[1]


def train(networks: int, iterations: int) -> Trajectory:
    """Trains the first networks of the authors by full-batch Adam on the mean squared error.

    In each iteration the variance of the predictions is set to the training error after the
    update, which maximises the likelihood.
    """
    training, test = draw_data_set("train"), draw_data_set("test")
    all_means, all_sigmas = [], []
    for seed in network_seeds()[:networks]:
        layers, sigma = draw_initial_values(seed)
        outputs = _train_network(layers, training, test.features, iterations=iterations)
        means, sigmas = (np.array(leaf) for leaf in outputs)
        sigmas[0] = sigma
        all_means.append(means)
        all_sigmas.append(sigmas)
    return Trajectory(np.stack(all_means), np.stack(all_sigmas))
