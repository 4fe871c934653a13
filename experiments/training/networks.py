"""A small network, and its training with NLL + λ · SKCE."""

import functools

import jax
import jax.numpy as jnp
import optax

from calibjax import distances, estimators, kernels, scores
from calibjax.distributions import CategoricalLogits

WIDTH = 64
BATCH = 100
NUM_STEPS = 2000
CHECKPOINTS = 40  # at which a training may stop early
KERNEL = kernels.TensorProduct(
    kernels.Exponential(0.5, distances.TotalVariation()), kernels.White()
)
OPTIMIZER = optax.adam(3e-3)


def init(key: jax.Array, num_features: int, num_classes: int) -> dict[str, jax.Array]:
    """Parameters of a network with one hidden layer."""
    first, second = jax.random.split(key)
    return {
        "in": jax.random.normal(first, (num_features, WIDTH)) * jnp.sqrt(2 / num_features),
        "in bias": jnp.zeros(WIDTH),
        "out": jax.random.normal(second, (WIDTH, num_classes)) / jnp.sqrt(WIDTH),
        "out bias": jnp.zeros(num_classes),
    }


def predict(params: dict[str, jax.Array], x: jax.Array) -> CategoricalLogits:
    """Predictions for inputs [n, d]."""
    hidden = jax.nn.relu(x @ params["in"] + params["in bias"])
    return CategoricalLogits(hidden @ params["out"] + params["out bias"])


def loss(
    params: dict[str, jax.Array], weight: jax.Array, x: jax.Array, labels: jax.Array
) -> jax.Array:
    """NLL + weight · SKCE, the biased estimate of a batch."""
    predictions = predict(params, x)
    likelihood = scores.negative_log_likelihood(predictions, labels)
    return likelihood + weight * estimators.skce_biased(KERNEL, predictions, labels)


@functools.partial(jax.jit, static_argnames=("num_classes", "num_steps"))
@functools.partial(jax.vmap, in_axes=(None, 0, None, None, None, None))
def train(
    key: jax.Array,
    weight: jax.Array,
    x: jax.Array,
    labels: jax.Array,
    num_classes: int,
    num_steps: int,
) -> dict[str, jax.Array]:
    """Networks for several weights, from the same start and with the same batches.

    Returns:
        Parameters with leading axes [k, CHECKPOINTS], for the weights [k] and for numbers of steps
        that are evenly spaced; the last one is the end.
    """
    start, batches = jax.random.split(key)
    params = init(start, x.shape[1], num_classes)

    def step(carry: tuple, key: jax.Array) -> tuple[tuple, None]:
        params, state = carry
        rows = jax.random.choice(key, len(x), (min(BATCH, len(x)),), replace=False)
        gradient = jax.grad(loss)(params, weight, x[rows], labels[rows])
        updates, state = OPTIMIZER.update(gradient, state)
        return (optax.apply_updates(params, updates), state), None

    def leg(carry: tuple, keys: jax.Array) -> tuple[tuple, dict[str, jax.Array]]:
        carry, _ = jax.lax.scan(step, carry, keys)
        return carry, carry[0]

    keys = jax.random.split(batches, (CHECKPOINTS, num_steps // CHECKPOINTS))
    return jax.lax.scan(leg, (params, OPTIMIZER.init(params)), keys)[1]


@jax.jit
def losses(fitted: dict[str, jax.Array], x: jax.Array, labels: jax.Array) -> jax.Array:
    """NLL of all networks that `train` returned, [k, CHECKPOINTS]."""

    def one(params: dict[str, jax.Array]) -> jax.Array:
        return scores.negative_log_likelihood(predict(params, x), labels)

    return jax.vmap(jax.vmap(one))(fitted)
