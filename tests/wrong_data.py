"""Predictions and labels of a few samples."""

import jax.numpy as jnp

LOC = jnp.linspace(0, 1, 6)
PROBS, LABELS = jnp.full((6, 3), 1 / 3), jnp.array([0, 1, 2, 0, 1, 2])
