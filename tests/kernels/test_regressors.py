import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, estimators, kernels
from calibjax.distributions import Gamma, Normal

RNG = np.random.default_rng(0)
LOC, SCALE = RNG.normal(size=20), RNG.uniform(0.5, 2, 20)
PREDICTIONS = Normal(jnp.asarray(LOC), jnp.asarray(SCALE))


@pytest.mark.parametrize("of", ["location", "log scale"])
@pytest.mark.parametrize("unit", [1.0, 1e-7, 1e7])
def test_against_numpy(of, unit):
    values = LOC if of == "location" else np.log(SCALE)
    x = (values - values.mean()) / values.std()
    predictions = Normal(jnp.asarray(unit * LOC), jnp.asarray(unit * SCALE))
    kernel = kernels.Regressor.among(predictions, of)
    np.testing.assert_allclose(kernels.gram_matrix(kernel, predictions), np.outer(x, x), atol=1e-9)
    np.testing.assert_allclose(kernel.factor(predictions)[:, 0], x, rtol=1e-8)


def test_moments_and_equal_predictions():
    gamma = Gamma(jnp.array([1.0, 2.0, 6.0]), jnp.array([2.0, 1.0, 3.0]))
    means = np.array([0.5, 2.0, 2.0])
    x = (means - means.mean()) / means.std()
    found = kernels.Regressor.among(gamma, "location").factor(gamma)
    np.testing.assert_allclose(found[:, 0], x, rtol=1e-9)
    equal = Normal(jnp.zeros(4, np.float32), jnp.full(4, 0.1, np.float32))
    found = kernels.gram_matrix(kernels.Regressor.among(equal, "log scale"), equal)
    assert (np.asarray(found) == 0).all()
    assert found.dtype == np.float32


def test_wrong_input():
    with pytest.raises(ValueError, match="of: expected one of 'location', 'log scale'"):
        kernels.Regressor.among(PREDICTIONS, "width")
    kernel = kernels.TensorProduct(kernels.Regressor("location", 0.0, -1.0), kernels.Stein())
    with pytest.raises(ValueError, match=r"kernel.prediction.unit: expected"):
        estimators.skce(kernel, PREDICTIONS, jnp.asarray(LOC))
    kernel = kernels.TensorProduct(kernels.Regressor("location", np.True_), kernels.Stein())
    with pytest.raises(TypeError, match=r"kernel.prediction.center: expected a number"):
        estimators.skce(kernel, PREDICTIONS, jnp.asarray(LOC))
    vectors = distributions.DiagNormal(jnp.zeros((3, 2)), jnp.ones((3, 2)))
    with pytest.raises(ValueError, match="predictions"):
        kernels.Regressor.among(vectors, "location")
