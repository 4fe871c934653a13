import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from calibjax.distributions import Gamma, Normal, with_features
from calibjax.recalibration import AffineMap, AffineScaling

RNG = np.random.default_rng(0)
LOC, SCALE, Y = RNG.normal(size=20), RNG.uniform(0.5, 2, 20), RNG.normal(size=20)
PREDICTIONS = Normal(jnp.asarray(LOC), jnp.asarray(SCALE))


@pytest.mark.parametrize("unit", [1.0, 1e-7, 1e7])
def test_most_likely_map(unit):
    def loss(theta):
        return -norm.logpdf(Y, LOC + theta[0] * SCALE, np.exp(theta[1]) * SCALE).sum()

    best = minimize(loss, np.zeros(2), tol=1e-10).x
    predictions = jax.tree.map(lambda x: unit * x, PREDICTIONS)
    params = AffineScaling().fit(predictions, jnp.asarray(unit * Y))
    np.testing.assert_allclose([params.shift, params.scale], [best[0], np.exp(best[1])], rtol=1e-4)
    found = AffineScaling().apply(params, with_features(predictions, jnp.asarray(LOC)))
    np.testing.assert_allclose(found.loc, predictions.loc + params.shift * predictions.scale)
    np.testing.assert_allclose(found.scale, params.scale * predictions.scale)
    same = AffineScaling().apply(AffineScaling().identity(predictions), predictions)
    np.testing.assert_array_equal(same.loc, predictions.loc)


def test_wrong_input():
    with pytest.raises(TypeError, match="expected a batch of Normal distributions, got Gamma"):
        AffineScaling().fit(Gamma(jnp.ones(3), jnp.ones(3)), jnp.ones(3))
    with pytest.raises(ValueError, match="expected normal scores that differ"):
        AffineScaling().fit(Normal(jnp.zeros(3), jnp.ones(3)), jnp.ones(3))
    with pytest.raises(ValueError, match="params.scale: expected positive"):
        AffineScaling().apply(AffineMap(jnp.array(0.0), jnp.array(-1.0)), PREDICTIONS)
    traced = jax.jit(AffineScaling().fit)(Normal(jnp.zeros(3), jnp.ones(3)), jnp.ones(3))
    assert np.isnan(traced.scale)
