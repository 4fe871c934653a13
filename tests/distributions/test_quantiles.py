"""`Quantiles.sorted` takes quantiles that cross."""

import jax.numpy as jnp
import numpy as np
import pytest

from calibjax.distributions import Quantiles

LEVELS = np.array([0.1, 0.5, 0.9])
VALUES = np.array([[0.0, 1.0, 2.0], [3.0, 1.0, 2.0], [1.0, 1.0, 1.0], [0.0, 2.0, 1.0]])


def test_sorted():
    forecast = Quantiles.sorted(LEVELS, VALUES)
    np.testing.assert_array_equal(forecast.values, np.sort(VALUES, 1))
    np.testing.assert_array_equal(forecast.levels, LEVELS)
    assert forecast.values.dtype == np.float64
    np.testing.assert_array_equal(forecast.values[0], VALUES[0])  # where none cross


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray, np.ndarray.tolist])
def test_sorts_levels_with_their_values(convert):
    """Other orders of the columns give the same forecast."""
    order = [2, 0, 1]
    given = np.sort(VALUES, 1)[:, order]
    forecast = Quantiles.sorted(convert(np.tile(LEVELS[order], (4, 1))), convert(given))
    np.testing.assert_allclose(forecast.values, np.sort(VALUES, 1))
    np.testing.assert_allclose(forecast.levels, np.tile(LEVELS, (4, 1)), rtol=1e-6)
