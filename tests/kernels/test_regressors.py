import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import kernels
from calibjax.distributions import Gamma, Normal
from calibjax.kernels.residuals import Regressor

RNG = np.random.default_rng(0)
LOC, SCALE = RNG.normal(size=20), RNG.uniform(0.5, 2, 20)


@pytest.mark.parametrize("of", ["location", "log scale"])
@pytest.mark.parametrize("unit", [1.0, 1e-7, 1e7])
def test_against_numpy(of, unit):
    values = LOC if of == "location" else np.log(SCALE)
    x = (values - values.mean()) / values.std()
    predictions = Normal(jnp.asarray(unit * LOC), jnp.asarray(unit * SCALE))
    kernel = Regressor.among(predictions, of)
    np.testing.assert_allclose(kernels.gram_matrix(kernel, predictions), np.outer(x, x), atol=1e-9)
    np.testing.assert_allclose(kernel.factor(predictions)[:, 0], x, rtol=1e-8)


def test_moments_and_equal_predictions():
    gamma = Gamma(jnp.array([1.0, 2.0, 6.0]), jnp.array([2.0, 1.0, 3.0]))
    means = np.array([0.5, 2.0, 2.0])
    x = (means - means.mean()) / means.std()
    found = Regressor.among(gamma, "location").factor(gamma)
    np.testing.assert_allclose(found[:, 0], x, rtol=1e-9)
    equal = Normal(jnp.zeros(4, np.float32), jnp.full(4, 0.1, np.float32))
    found = kernels.gram_matrix(Regressor.among(equal, "log scale"), equal)
    assert (np.asarray(found) == 0).all()
    assert found.dtype == np.float32
