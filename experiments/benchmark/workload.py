"""What is timed: scalar normal predictions, W21's kernel."""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax import distances, distributions, estimators, kernels

KERNEL = kernels.TensorProduct(
    kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
)

CLASSES = kernels.TensorProduct(
    kernels.Exponential(1.0, distances.TotalVariation()), kernels.White()
)


def diagonal_samples(num_samples: int, dimension: int) -> tuple[Any, jax.Array]:
    """The same of several independent components."""
    keys = jax.random.split(jax.random.key(1), 3)
    shape = num_samples, dimension
    loc = jax.random.uniform(keys[0], shape, jnp.float64)
    scale = jax.random.uniform(keys[1], shape, jnp.float64, 0.05, 0.5)
    targets = loc + scale * jax.random.normal(keys[2], shape, jnp.float64)
    return distributions.DiagNormal(loc, scale), targets


def class_samples(num_samples: int, num_classes: int) -> tuple[Any, jax.Array]:
    """Uniformly distributed probabilities of classes, and labels drawn from them."""
    keys = jax.random.split(jax.random.key(2), 2)
    probs = jax.random.dirichlet(keys[0], jnp.ones(num_classes, jnp.float64), (num_samples,))
    return distributions.Categorical(probs), jax.random.categorical(keys[1], jnp.log(probs))


def normal_samples(num_samples: int, dtype: Any = jnp.float64) -> tuple[Any, jax.Array]:
    """Predictions with different means and standard deviations, and targets drawn from them."""
    keys = jax.random.split(jax.random.key(0), 3)
    loc = jax.random.uniform(keys[0], (num_samples,), jnp.float64)
    scale = jax.random.uniform(keys[1], (num_samples,), jnp.float64, 0.05, 0.5)
    targets = loc + scale * jax.random.normal(keys[2], (num_samples,), jnp.float64)
    loc, scale, targets = (x.astype(dtype) for x in (loc, scale, targets))
    return distributions.Normal(loc, scale), targets


def value(predictions: Any, targets: jax.Array) -> jax.Array:
    """The unbiased SKCE of normal predictions."""
    return estimators.skce(KERNEL, predictions, targets)


def value_of_classes(predictions: Any, labels: jax.Array) -> jax.Array:
    """The unbiased SKCE of class predictions."""
    return estimators.skce(CLASSES, predictions, labels)


compiled_value = jax.jit(value)  # within programs of users, whose options for the compiler hold


@jax.jit
def gradient(predictions: Any, targets: jax.Array) -> Any:
    """Its gradient with respect to the length scales and the parameters of the predictions."""
    return jax.grad(estimators.skce, argnums=(0, 1))(KERNEL, predictions, targets)
