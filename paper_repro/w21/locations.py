"""Test locations of W21 App. A.2, for normal predictions."""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax import distributions


def draw_test_locations(
    key: jax.Array, num_locations: int, dimension: int | None = None, *, scale: float = 0.1
) -> tuple[Any, jax.Array]:
    """Test locations of W21 App. A.2 for normal predictions in the unit cube.

    Predictions N(m, σ² I) with m uniform on the unit cube, and independent targets N(0, σ² I).
    """
    shape = (num_locations,) if dimension is None else (num_locations, dimension)
    location_key, target_key = jax.random.split(key)
    loc = jax.random.uniform(location_key, shape)
    family = distributions.Normal if dimension is None else distributions.DiagNormal
    targets = scale * jax.random.normal(target_key, shape, loc.dtype)
    return family(loc, jnp.full_like(loc, scale)), targets
