import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit

from calibjax.distributions import Bernoulli
from calibjax.kernels import Fisher
from calibjax.recalibration.confidences import QuadraticScaling

METHOD = QuadraticScaling()
RNG = np.random.default_rng(0)
R = RNG.beta(0.8, 1.2, 200).clip(0.01, 0.99)
Z = logit(R)
TARGETS = {
    "curved": RNG.uniform(size=200) < expit(0.3 + 0.7 * Z - 0.2 * Z**2),
    "steep": RNG.uniform(size=200) < expit(3 * Z),
    "separated": R > 0.4,
    "reversed": R < 0.4,
    "one class": np.zeros(200, bool),
}


def smallest(z, correct, weights):
    """Parameters with the least sum of losses and ridge, by SciPy."""

    def loss(x):
        images = x[0] + x[1] * z + x[2] * z**2
        slope = np.stack([z**0, z, z**2]) @ (weights * (expit(images) - correct))
        ridge, identity = x - [0, 1, 0], np.logaddexp(0, images) - correct * images
        return weights @ identity + ridge @ ridge, slope + 2 * ridge

    return minimize(loss, [0, 1, 0], jac=True, tol=1e-14, options={"gtol": 1e-9}).x


@pytest.mark.parametrize("weights", [None, np.arange(200) % 3])
def test_against_scipy(weights):
    fit = jax.jit(METHOD.fit)
    counts = np.ones(200) if weights is None else weights
    for name, correct in TARGETS.items():
        expected = smallest(Z, correct, counts)
        found = [*vars(fit(R, correct, weights)).values()]
        np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=name)
    expected = expit(np.stack([Z**0, Z, Z**2], 1) @ expected)
    np.testing.assert_allclose(METHOD.apply(METHOD.fit(R, correct, weights), R), expected, 1e-5)


def test_certain_predictions_in_single_precision():
    """Log-odds of ±16, some of the wrong sign."""
    r = np.r_[R, np.repeat([0.0, 1.0], 20)].astype(np.float32)
    correct = np.r_[TARGETS["curved"], np.arange(40) % 4 == 0]
    eps = np.finfo(np.float32).eps
    z = logit(r.astype(float).clip(eps, 1 - eps))
    expected = smallest(z, correct, np.ones(240))
    params = METHOD.fit(r, correct)
    np.testing.assert_allclose([*vars(params).values()], expected, atol=1e-3)
    assert params.slope.dtype == np.float32


def test_identity_and_score():
    r = jnp.asarray(R)
    np.testing.assert_allclose(METHOD.apply(METHOD.identity(r), r), r, rtol=1e-5)
    score = Fisher(METHOD).score(Bernoulli(r[0]), 1)
    np.testing.assert_allclose(score, (1 - R[0]) * Z[0] ** np.arange(3), rtol=1e-4)
