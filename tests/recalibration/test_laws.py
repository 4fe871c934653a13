"""What holds of all recalibrations: params that change nothing, and those that are most likely."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy.special import expit, log_softmax

from calibjax import distributions as D
from calibjax import recalibration as R
from calibjax import scores
from calibjax.recalibration.confidences import QuadraticScaling

RNG = np.random.default_rng(0)
N = 120
CONFIDENCES = RNG.beta(0.8, 1.2, N).clip(0.01, 0.99)
_ODDS = 1.5 * np.log(CONFIDENCES) - 0.8 * np.log1p(-CONFIDENCES) + 0.5
LABELS = D.Bernoulli(CONFIDENCES), (RNG.uniform(size=N) < expit(_ODDS)).astype(int)
LOGITS = log_softmax(2 * RNG.normal(size=(N, 3)), 1)
_DRAWN = (LOGITS * [0.5, 0.8, 1.1] + RNG.gumbel(size=(N, 3))).argmax(1)
CLASSES = D.CategoricalLogits(LOGITS), _DRAWN
LOC, SCALE, Y = RNG.normal(size=(N, 2)), RNG.uniform(0.5, 2, (N, 2)), 1.5 * RNG.normal(size=(N, 2))
FIRST = LOC[:, 0], SCALE[:, 0]
COV = SCALE[:, :, None] ** 2 * np.eye(2) + 0.2
QUANTILES = D.Quantiles(np.array([0.2, 0.7]), LOC[:, :1] + np.array([-0.5, 0.8]))
NUMBERS = {
    "normal": D.Normal(*FIRST),
    "student": D.StudentT(np.full(N, 3.0), *FIRST),
    "gamma": D.Gamma(1 + FIRST[1], np.ones(N)),
}
VECTORS = {"diagonal": D.DiagNormal(LOC, SCALE), "multivariate": D.MvNormal(LOC, COV)}
# Maps with the largest likelihood, and others.
LIKELY = {
    "Platt": (R.PlattScaling(), *LABELS),
    "beta": (R.BetaCalibration(), *LABELS),
    "temperature": (R.TemperatureScaling(), *CLASSES),
    "temperature of numbers": (R.TemperatureScaling(), NUMBERS["normal"], Y[:, 0]),
    "integral transforms": (R.QuantileRecalibration(), NUMBERS["normal"], Y[:, 0]),
}
for _name in ("bias", "diagonal", "full"):
    LIKELY[_name] = R.MatrixScaling(None, structure=_name), *CLASSES
for _name, _predictions in NUMBERS.items():
    _targets = np.exp(Y[:, 0]) if _name == "gamma" else Y[:, 0]
    LIKELY[f"affine, {_name}"] = R.AffineScaling(), _predictions, _targets
for _name, _predictions in VECTORS.items():
    LIKELY[f"affine, {_name}"] = R.AffineScaling(), _predictions, Y
# Most scores are equal: their median distance from the median is zero.
_EQUAL = np.where(np.arange(N) % 5 < 3, FIRST[0], Y[:, 0])
LIKELY["affine, equal scores"] = R.AffineScaling(), NUMBERS["student"], _EQUAL
OTHERS = {
    "isotonic": (R.IsotonicRegression(smooth=False), *LABELS),
    "quadratic": (QuadraticScaling(), *LABELS),
    "kernel": (R.KernelRecalibration(), NUMBERS["normal"], Y[:, 0]),
    "isotonic, numbers": (R.QuantileRecalibration("isotonic"), NUMBERS["normal"], Y[:, 0]),
    "shift": (R.QuantileShift(), QUANTILES, Y[:, 0]),
}
_TWO = D.Categorical(np.stack([1 - CONFIDENCES, CONFIDENCES], 1)), LABELS[1]
OTHERS |= {f"{x}, classes": (LIKELY[x][0], *_TWO) for x in ("Platt", "beta")}
OTHERS["isotonic, classes"] = R.IsotonicRegression(smooth=False), *_TWO


def applied(method, params, predictions):
    found = method.apply(params, predictions)
    return found if isinstance(found, D.Distribution) else D.Bernoulli(found)


@pytest.mark.parametrize("name", LIKELY | OTHERS)
def test_identity(name):
    method, predictions, targets = (LIKELY | OTHERS)[name]
    found = applied(method, method.identity(predictions), predictions)
    one, other = (
        p.values if name == "shift" else jax.jit(jax.vmap(lambda p, y: p.log_prob(y)))(p, targets)
        for p in (found, predictions)
    )
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", LIKELY)
def test_most_likely_params(name):
    """The derivatives of the likelihood of weighted samples are zero, and not so elsewhere."""
    method, predictions, targets = LIKELY[name]
    weights = 0.5 + np.arange(N) % 3

    @jax.jit
    def slopes(params):
        def loss(params):
            moved = applied(method, params, predictions)
            return scores.negative_log_likelihood(moved, targets, weights=weights)

        found = jax.grad(loss)(params)
        found = found.biases if name == "bias" else found  # whose slopes are all one
        return jnp.max(jnp.abs(jnp.concatenate([x.ravel() for x in jax.tree.leaves(found)])))

    fitted = method.fit(predictions, targets, weights=weights)
    assert slopes(method.identity(predictions)) > 0.01
    assert slopes(fitted) < 1e-6


# Fits without a maximum, and what is said of them.
HALVES = np.repeat([0.3, 0.6], 2)
_CONFIDENCES = "confidences: expected different values, correct and"
_SAME = D.Normal(np.zeros(3), np.ones(3))
WITHOUT = [
    (R.PlattScaling(), HALVES, np.ones(4, int), _CONFIDENCES),
    (R.PlattScaling(), HALVES, np.zeros(4, int), _CONFIDENCES),
    (R.PlattScaling(), HALVES, np.array([0, 0, 1, 1]), _CONFIDENCES),
    (R.PlattScaling(), HALVES, np.array([0, 0, 0, 1]), _CONFIDENCES),
    (R.PlattScaling(), HALVES, np.array([1, 1, 0, 0]), _CONFIDENCES),
    (R.PlattScaling(), HALVES**0, np.array([1, 0, 0, 1]), _CONFIDENCES),
    (R.BetaCalibration(), np.array([0.2, 0.4, 0.6]), np.array([0, 0, 1]), _CONFIDENCES),
    (R.AffineScaling(), _SAME, np.ones(3), "targets: expected residuals that differ"),
    (R.QuantileRecalibration(), _SAME, np.ones(3), "expected PIT values that differ"),
]


@pytest.mark.parametrize(("method", "predictions", "targets", "message"), WITHOUT)
def test_without_a_maximum(method, predictions, targets, message):
    """Compiled, all params are NaN."""
    with pytest.raises(ValueError, match=message):
        method.fit(predictions, targets)
    fitted = jax.tree.leaves(jax.jit(method.fit)(predictions, targets))
    assert any(np.isnan(leaf).all() for leaf in fitted)


@pytest.mark.parametrize("name", ["Platt", "temperature of numbers", "affine, normal"])
def test_derivatives_of_fits(name):
    """By predictions, and by what the fitted map is applied to."""
    method, predictions, targets = LIKELY[name]
    fitted = lambda p, new: jax.tree.leaves(applied(method, method.fit(p, targets), new))  # noqa: E731
    data = jax.tree.map(jnp.asarray, predictions)
    check_grads(jax.jit(fitted), (data, data[:5]), 1, modes=["rev"], rtol=1e-4)
