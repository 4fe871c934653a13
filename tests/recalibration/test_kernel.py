import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distributions as D
from calibjax.distances import Euclidean
from calibjax.distributions.composed import Recalibrated
from calibjax.kernels import SquaredExponential, median_heuristic
from calibjax.recalibration import KernelRecalibration

RNG = np.random.default_rng(0)
LOC, SCALE, NEW = RNG.normal(size=30), RNG.uniform(0.5, 2, 30), RNG.normal(size=7)
Z = RNG.normal(size=30) + np.sin(LOC)
PREDICTIONS = D.Normal(jnp.asarray(LOC), jnp.asarray(SCALE))
TARGETS = jnp.asarray(LOC + SCALE * Z)


def _smoothed(k, z, w, prior):
    """Shift and scale at new points from kernel values [n', n], with loops of NumPy."""
    found = []
    for row in k * w:
        shift = row @ z / (row.sum() + prior)
        variance = (row @ (z - shift) ** 2 + prior) / (row.sum() + prior)
        found.append([shift, np.sqrt(variance)])
    return np.array(found).T


@pytest.mark.parametrize("unit", [1.0, 1e-7, 1e7])
@pytest.mark.parametrize("weights", [None, 0.5 + np.arange(30) % 2])
def test_shift_and_scale_of_each_prediction(weights, unit):
    predictions = jax.tree.map(lambda x: unit * x, PREDICTIONS)
    method = KernelRecalibration(prior=3.0)
    params = method.fit(predictions, unit * TARGETS, weights)
    scale = float(median_heuristic(Euclidean(), PREDICTIONS)) / 4
    new = D.Normal(jnp.asarray(NEW), jnp.ones(7))
    distances = (NEW[:, None] - LOC) ** 2 + (1 - SCALE) ** 2
    w = np.ones(30) if weights is None else weights
    shift, spread = _smoothed(np.exp(-distances / (2 * scale**2)), Z, w, 3.0)
    found = method.apply(params, jax.tree.map(lambda x: unit * x, new))
    np.testing.assert_allclose(found.loc, unit * (NEW + shift), rtol=1e-4)
    np.testing.assert_allclose(found.scale, unit * spread, rtol=1e-4)


def test_normal_scores_and_vectors():
    kernel = SquaredExponential(0.7)
    method = KernelRecalibration(kernel)
    gammas = D.Gamma(jnp.asarray(1 + SCALE), jnp.ones(30))
    targets = np.exp(Z)
    found = method.apply(method.fit(gammas, jnp.asarray(targets)), gammas)
    assert isinstance(found, Recalibrated)
    z = stats.norm.ppf(stats.gamma.cdf(targets, 1 + SCALE))
    k = np.exp(-((SCALE[:, None] - SCALE) ** 2) / (2 * 0.7**2))
    np.testing.assert_allclose(found.map.shift, _smoothed(k, z, 1.0, 5.0)[0], rtol=1e-4, atol=1e-6)
    pairs = D.DiagNormal(
        jnp.stack([jnp.asarray(LOC)] * 2, 1), jnp.stack([jnp.asarray(SCALE)] * 2, 1)
    )
    found = method.apply(method.fit(pairs, jnp.stack([TARGETS, -TARGETS], 1)), pairs)
    assert found.loc.shape == (30, 2)
    k = np.exp(-((LOC[:, None] - LOC) ** 2 + (SCALE[:, None] - SCALE) ** 2) / 0.7**2)
    shift, spread = _smoothed(k, Z, 1.0, 5.0)
    np.testing.assert_allclose(found.loc[:, 0], LOC + shift * SCALE, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.scale[:, 0], spread * SCALE, rtol=1e-4)


def test_identity_and_features():
    method = KernelRecalibration()
    carrying = D.with_features(PREDICTIONS, jnp.asarray(LOC))
    same = method.apply(method.identity(carrying), carrying)
    np.testing.assert_allclose(same.loc, LOC, rtol=1e-5)
    np.testing.assert_allclose(same.scale, SCALE, rtol=1e-5)


@pytest.mark.parametrize("family", [D.Laplace, D.Uniform, D.StudentT])
def test_calibrated_predictions_stay(family):
    """Of 2000 calibrated ones with one law: scale 1 within three standard errors, .016 each."""
    n = 2000
    law = {D.Laplace: (0.0, 1.0), D.Uniform: (-1.0, 1.0), D.StudentT: (4.0, 0.0, 1.0)}[family]
    predictions = family(*(np.full(n, x) for x in law))
    targets = D.sample_targets(jax.random.key(0), predictions)
    method = KernelRecalibration(SquaredExponential(1.0))
    found = method.apply(method.fit(predictions, targets), predictions)
    np.testing.assert_allclose(found.map.shift, 0, atol=3 * 0.023)
    np.testing.assert_allclose(found.map.scale, 1, atol=3 * 0.016)


def test_predictions_that_are_all_the_same():
    predictions = D.Normal(np.zeros(20), np.ones(20))
    params = KernelRecalibration().fit(predictions, np.arange(20.0))
    found = KernelRecalibration().apply(params, predictions)
    np.testing.assert_allclose(found.loc, 190 / 25)
