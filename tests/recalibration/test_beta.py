import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from calibjax.distributions import Bernoulli, Categorical
from calibjax.kernels import Fisher
from calibjax.recalibration import BetaCalibration

RNG = np.random.default_rng(0)
R = RNG.beta(0.8, 1.2, 300).clip(0.01, 0.99)
FEATURES = np.stack([np.log(R), -np.log1p(-R)], 1)
WEIGHTS = np.arange(300) % 3


def _data(a, b, c):
    return RNG.uniform(size=300) < expit(FEATURES @ [a, b] + c)


def _betacal(correct, weights=None):
    """Parameters "abm" as the package betacal finds them: negative slopes are left out."""
    slopes, used = np.zeros(2), [0, 1]
    while True:
        fit = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10000)
        fit.fit(FEATURES[:, used], correct, weights)
        slopes[:] = 0
        slopes[used] = fit.coef_[0]
        if slopes.min() >= 0:
            return [*slopes, fit.intercept_[0]]
        used = [1 - int(np.argmin(slopes))]


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("truth", [(1.0, 1.0, 0.0), (2.0, 0.3, 0.5), (1.5, 0.0, 0.0)])
def test_same_as_betacal(truth, weights):
    correct = _data(*truth)
    params = BetaCalibration().fit(jnp.asarray(R), jnp.asarray(correct), weights)
    expected = _betacal(correct, weights)
    np.testing.assert_allclose([params.rise, params.fall, params.intercept], expected, atol=2e-5)
    found = BetaCalibration().apply(params, jnp.asarray(R))
    np.testing.assert_allclose(found, expit(FEATURES @ expected[:2] + expected[2]), atol=2e-5)


def test_slope_that_is_left_out():
    correct = RNG.uniform(size=300) < expit(FEATURES @ [2.5, -1.0])
    params = BetaCalibration().fit(jnp.asarray(R), jnp.asarray(correct))
    assert params.fall == 0
    np.testing.assert_allclose(params.rise, _betacal(correct)[0], atol=2e-5)


def test_classes_identity_and_scores():
    classes = Categorical(jnp.stack([jnp.asarray(R), 1 - jnp.asarray(R)], 1))
    same = BetaCalibration().apply(BetaCalibration().identity(classes), classes)
    np.testing.assert_allclose(same.probs, classes.probs, rtol=1e-4)
    labels = jnp.asarray(_data(1.0, 1.0, 0.0), int)
    params = BetaCalibration().fit(classes, 1 - labels)
    one = BetaCalibration().fit(jnp.asarray(R), labels == 1)
    np.testing.assert_allclose(params.params.rise[0], one.rise, rtol=1e-4)
    score = Fisher(BetaCalibration()).score(Bernoulli(jnp.asarray(R[0])), 1)
    expected = (1 - R[0]) * np.r_[FEATURES[0], 1]
    np.testing.assert_allclose(score, expected, rtol=1e-3)


def test_without_a_maximum():
    confidences, correct = jnp.array([0.2, 0.4, 0.6]), jnp.array([0, 0, 1])
    with pytest.raises(ValueError, match="confidences: expected different values, correct and"):
        BetaCalibration().fit(confidences, correct)
    assert np.isnan(jax.jit(BetaCalibration().fit)(confidences, correct).rise)
