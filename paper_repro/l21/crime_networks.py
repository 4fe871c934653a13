"""Networks for the Communities and Crime data of L21 App. A.2, one for each split, in float32."""

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

NUM_CLASSES = 2
LEARNING_RATE = 3e-4
BATCH_SIZE = 64
DROPOUT = 0.4

Layers = list[tuple[jax.Array, jax.Array]]
State = tuple[Layers, optax.OptState]


class Ensemble(NamedTuple):
    """Features [..., n, d] and labels [..., n]."""

    features: jax.Array
    labels: jax.Array


class Trained(NamedTuple):
    """Networks after training.

    Attributes:
        last: the networks after the last epoch.
        best: the networks after the epoch with the largest validation accuracy (the first, of
            equal ones), which is where it stopped improving.
        best_epoch: the number of this epoch, from 1, [networks].
        curves: accuracy, negative log-likelihood, Brier score of the predicted class and mean
            confidence on the validation part after each epoch, [epochs, networks] by name.
    """

    last: Layers
    best: Layers
    best_epoch: jax.Array
    curves: dict[str, jax.Array]


def draw_initial_values(key: jax.Array, num_features: int, hidden: tuple[int, ...]) -> Layers:
    """Weights [inputs, outputs] and offsets [outputs], uniform within ±1/√inputs (PyTorch)."""
    sizes = (num_features, *hidden, NUM_CLASSES)
    keys = jax.random.split(key, 2 * (len(sizes) - 1)).reshape(-1, 2)

    def draw(key: jax.Array, shape: tuple[int, ...], inputs: int) -> jax.Array:
        bound = inputs**-0.5
        return jax.random.uniform(key, shape, jnp.float32, -bound, bound)

    return [
        (draw(keys[i, 0], shape, shape[0]), draw(keys[i, 1], shape[1:], shape[0]))
        for i, shape in enumerate(itertools.pairwise(sizes))
    ]


def last_hidden(layers: Layers, features: jax.Array) -> jax.Array:
    """Values of the last hidden layer, [n, width], of features [n, d]; leaky rectifier 0.01."""
    x = features
    for weights, offsets in layers[:-1]:
        x = jax.nn.leaky_relu(x @ weights + offsets, 0.01)
    return x


def logits(layers: Layers, hidden: jax.Array) -> jax.Array:
    """Logits [n, 2] of values of the last hidden layer."""
    weights, offsets = layers[-1]
    return hidden @ weights + offsets


def loss(layers: Layers, key: jax.Array, samples: Ensemble, weights: jax.Array) -> jax.Array:
    """Cross-entropy with dropout, the mean over the samples of weight one."""
    hidden = last_hidden(layers, samples.features)
    is_kept = jax.random.bernoulli(key, 1 - DROPOUT, hidden.shape)
    outputs = logits(layers, jnp.where(is_kept, hidden / (1 - DROPOUT), 0))
    losses = optax.softmax_cross_entropy_with_integer_labels(outputs, samples.labels)
    return jnp.sum(weights * losses) / jnp.sum(weights)


def evaluate(layers: Layers, samples: Ensemble) -> dict[str, jax.Array]:
    """Scores of a network without dropout."""
    outputs = logits(layers, last_hidden(layers, samples.features))
    is_correct = jnp.argmax(outputs, -1) == samples.labels
    confidences = jnp.max(jax.nn.softmax(outputs), -1)
    losses = optax.softmax_cross_entropy_with_integer_labels(outputs, samples.labels)
    return {
        "accuracy": jnp.mean(is_correct, dtype=jnp.float32),
        "NLL": jnp.mean(losses),
        "Brier": jnp.mean(jnp.square(confidences - is_correct)),
        "confidence": jnp.mean(confidences),
    }


def _train_epoch(
    adam: optax.GradientTransformation, key: jax.Array, state: State, data: Ensemble
) -> State:
    """Network and moments after all samples, in random batches of which the last is smaller."""
    order_key, dropout_key = jax.random.split(key)
    num = data.labels.size
    num_batches = -(-num // BATCH_SIZE)
    order = jax.random.permutation(order_key, num)
    order = jnp.pad(order, (0, num_batches * BATCH_SIZE - num)).reshape(num_batches, -1)
    weights = (jnp.arange(order.size) < num).astype(jnp.float32).reshape(order.shape)

    def step(state: State, batch: tuple) -> tuple[State, None]:
        layers, moments = state
        key, chosen, weights = batch
        samples = Ensemble(data.features[chosen], data.labels[chosen])
        slope = jax.grad(loss)(layers, key, samples, weights)
        update, moments = adam.update(slope, moments)
        return (optax.apply_updates(layers, update), moments), None

    keys = jax.random.split(dropout_key, num_batches)
    return lax.scan(step, state, (keys, order, weights))[0]


def _train_network(
    key: jax.Array, training: Ensemble, validation: Ensemble, hidden: tuple[int, ...], epochs: int
) -> Trained:
    adam = optax.adam(LEARNING_RATE)
    value_key, epoch_key = jax.random.split(key)
    layers = draw_initial_values(value_key, training.features.shape[-1], hidden)

    def step(carry: tuple, key: jax.Array) -> tuple[tuple, dict[str, jax.Array]]:
        (layers, moments), epoch, best, best_accuracy, best_epoch = carry
        layers, moments = _train_epoch(adam, key, (layers, moments), training)
        scores = evaluate(layers, validation)
        epoch, improves = epoch + 1, scores["accuracy"] > best_accuracy
        best, best_accuracy, best_epoch = jax.tree.map(
            lambda new, old: jnp.where(improves, new, old),
            (layers, scores["accuracy"], epoch),
            (best, best_accuracy, best_epoch),
        )
        return ((layers, moments), epoch, best, best_accuracy, best_epoch), scores

    start = (layers, adam.init(layers)), jnp.int32(0), layers, jnp.float32(-1), jnp.int32(0)
    end, curves = lax.scan(step, start, jax.random.split(epoch_key, epochs))
    (last, _), _, best, _, best_epoch = end
    return Trained(last, best, best_epoch, curves)


@functools.partial(jax.jit, static_argnames=("hidden", "epochs"))
def train(
    keys: jax.Array,
    training: Ensemble,
    validation: Ensemble,
    *,
    hidden: tuple[int, ...],
    epochs: int,
) -> Trained:
    """Trains one network for each key by Adam, all of them together.

    Args:
        keys: random keys, [networks].
        training: a training part for each network.
        validation: a validation part for each network.
        hidden: widths of the hidden layers.
        epochs: number of passes over the training part.
    """

    def train_one(key: jax.Array, training: Ensemble, validation: Ensemble) -> Trained:
        return _train_network(key, training, validation, hidden, epochs)

    axes = Trained(0, 0, 0, 1)
    return jax.vmap(train_one, out_axes=axes)(keys, training, validation)
