"""What is measured: scalar normal predictions, W21's kernel."""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax import distributions, estimators
from experiments.synthetic_models import NORMAL_KERNEL


def normal_samples(num_samples: int) -> tuple[Any, jax.Array]:
    """Predictions with different means and standard deviations, and targets drawn from them."""
    keys = jax.random.split(jax.random.key(0), 3)
    loc = jax.random.uniform(keys[0], (num_samples,), jnp.float64)
    scale = jax.random.uniform(keys[1], (num_samples,), jnp.float64, 0.05, 0.5)
    targets = loc + scale * jax.random.normal(keys[2], (num_samples,), jnp.float64)
    return distributions.Normal(loc, scale), targets


def value(predictions: Any, targets: jax.Array) -> jax.Array:
    """The unbiased SKCE."""
    return estimators.skce(NORMAL_KERNEL, predictions, targets)


@jax.jit
def gradient(predictions: Any, targets: jax.Array) -> Any:
    """Its gradient with respect to the length scales and the parameters of the predictions."""
    return jax.grad(estimators.skce, argnums=(0, 1))(NORMAL_KERNEL, predictions, targets)
