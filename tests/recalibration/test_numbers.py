"""Recalibration of predictions of numbers: affine, near others, by quantiles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.stats import norm

from calibjax import distributions as D
from calibjax.distances import Euclidean
from calibjax.distributions.composed import Recalibrated
from calibjax.kernels import SquaredExponential, median_heuristic
from calibjax.recalibration import (
    AffineScaling,
    KernelRecalibration,
    QuantileRecalibration,
    QuantileShift,
)
from calibjax.recalibration.confidences import IsotonicMap
from calibjax.recalibration.numbers import AffineMap

RNG = np.random.default_rng(0)
N = 30
LOC, SCALE = RNG.normal(size=N), RNG.uniform(0.5, 2, N)
Z = 0.4 + 1.5 * RNG.normal(size=N) + np.sin(LOC)
Y = LOC + SCALE * Z
NORMAL = D.Normal(LOC, SCALE)
WEIGHTS = np.arange(N) % 3
AFFINE = AffineScaling()


def in_unit(unit):
    return jax.tree.map(lambda x: unit * x, NORMAL), unit * Y


@pytest.mark.parametrize("unit", [1.0, 1e-7, 1e7])
def test_affine_maps(unit):
    """Of normal and Laplace distributions in closed form, with integer weights as copies."""
    predictions, targets = in_unit(unit)
    params = AFFINE.fit(predictions, targets)
    np.testing.assert_allclose([params.shift, params.scale], [Z.mean(), Z.std()], rtol=1e-9)
    found = AFFINE.apply(params, D.with_features(predictions, LOC))
    np.testing.assert_allclose(found.loc, unit * (LOC + Z.mean() * SCALE), rtol=1e-9)
    np.testing.assert_allclose(found.scale, unit * Z.std() * SCALE, rtol=1e-9)
    np.testing.assert_array_equal(found.features, LOC)
    for weights in (None, WEIGHTS):
        # Medians need not be unique, but they are halfway.
        copies = Z if weights is None else np.repeat(Z, weights)
        params = AFFINE.fit(D.Laplace(predictions.loc, predictions.scale), targets, weights)
        np.testing.assert_allclose(params.shift, np.median(copies), rtol=1e-3, atol=1e-4)
        width = np.mean(np.abs(copies - np.median(copies)))
        np.testing.assert_allclose(params.scale, width, rtol=1e-3)


def test_smallest_interval():
    predictions = D.Uniform(LOC - SCALE, LOC + SCALE)
    found = AFFINE.apply(AFFINE.fit(predictions, Y), predictions)
    inside = (Y - np.asarray(found.low)) / np.asarray(found.high - found.low)
    np.testing.assert_allclose([inside.min(), inside.max()], [0, 1], atol=1e-5)


def test_normal_scores_of_other_distributions():
    predictions, targets = D.Gamma(1 + SCALE, np.ones(N)), np.exp(Z / 2)
    z = norm.ppf(stats.gamma.cdf(targets, 1 + SCALE))
    found = AFFINE.apply(AFFINE.fit(predictions, targets), predictions)
    assert isinstance(found, Recalibrated)
    levels = jax.jit(jax.vmap(lambda p, y: p.cdf(y)))(found, targets)
    np.testing.assert_allclose(levels, norm.cdf((z - z.mean()) / z.std()), rtol=1e-3)


def test_the_law_of_normal_scores():
    """Of the levels Φ(z) of z ~ N(0.3, 2²)."""
    z = np.array([-8.25, -0.3, 0, 1, 2])
    law, level = AffineMap(jnp.array(0.3), jnp.array(2.0)), norm.cdf(z)
    np.testing.assert_allclose(law.icdf(level), norm.cdf(0.3 + 2 * z), rtol=1e-9)
    density = norm.logpdf(z, 0.3, 2) - norm.logpdf(z)
    np.testing.assert_allclose(law.log_prob(level), density, rtol=1e-9)
    np.testing.assert_array_equal(law.icdf(np.array([0.0, 1.0])), [0, 1])


def test_vectors():
    """Coordinates by a root of the covariance matrix; params of numbers are none of vectors."""
    root, shift, factor = np.array([[1.0, 0.0], [2.0, 0.5]]), np.array([1.0, -1.0]), [2.0, 3.0]
    params = AffineMap(jnp.asarray(shift), jnp.array(factor))
    full = D.MvNormal(np.zeros((3, 2)), np.stack([root @ root.T] * 3))
    found = AFFINE.apply(params, full)
    np.testing.assert_allclose(found.loc[0], root @ shift, rtol=1e-5)
    np.testing.assert_allclose(found.cov[0], root @ np.diag([4, 9]) @ root.T, rtol=1e-5)
    vectors = D.DiagNormal(np.zeros((3, 2)), np.full((3, 2), 0.5))
    found = AFFINE.apply(params, vectors)
    np.testing.assert_allclose(found.loc[0], 0.5 * shift)
    np.testing.assert_allclose(found.scale[0], [1, 1.5])
    with pytest.raises(ValueError, match="params: expected"):  # which would be that of both
        AFFINE.apply(AffineMap(jnp.array(0.0), jnp.array(1.0)), vectors)


@pytest.mark.parametrize("m", [2, 11])
@pytest.mark.parametrize("law", [stats.norm, stats.expon, stats.lognorm(0.5)])
def test_members_of_ensembles(law, m):
    """Those of skewed laws have standard deviations that depend on their means."""
    draws = law.rvs(size=(40000, m + 1), random_state=np.random.default_rng(2))
    means = draws[:, :m].mean(1, keepdims=True)
    spread = draws[:, :m].std(1, ddof=1, keepdims=True)
    members = means + 1.3 * (draws[:, :m] - means) + 0.4 * spread
    params = AFFINE.fit(D.Ensemble(members), draws[:, m])
    error = 6 * draws.std() / spread.mean() / 200
    np.testing.assert_allclose(params.shift, -0.4 / 1.3, atol=error)
    np.testing.assert_allclose(params.scale, 1 / 1.3, atol=error)
    found = AFFINE.apply(AffineMap(jnp.array(0.5), jnp.array(2.0)), D.Ensemble(draws[:, :m]))
    expected = means + 0.5 * spread + 2 * (draws[:, :m] - means)
    np.testing.assert_allclose(found.values, expected, rtol=1e-6, atol=1e-9)
    both = D.Ensemble(np.stack([members] * 2, 2))
    same = AFFINE.fit(both, np.stack([draws[:, m]] * 2, 1))
    np.testing.assert_allclose(same.scale, [params.scale] * 2, rtol=1e-6)


def smoothed(k, z, w, prior):
    """Shift and scale at new points from kernel values [n', n], with loops of NumPy."""
    found = []
    for row in k * w:
        shift = row @ z / (row.sum() + prior)
        variance = (row @ (z - shift) ** 2 + prior) / (row.sum() + prior)
        found.append([shift, np.sqrt(variance)])
    return np.array(found).T


@pytest.mark.parametrize("unit", [1.0, 1e-7, 1e7])
@pytest.mark.parametrize("weights", [None, 0.5 + np.arange(N) % 2])
def test_shift_and_scale_near_each_prediction(weights, unit):
    method, new = KernelRecalibration(prior=3.0), RNG.normal(size=7)
    params = method.fit(*in_unit(unit), weights)
    length = float(median_heuristic(Euclidean(), NORMAL)) / 4
    squares = (new[:, None] - LOC) ** 2 + (1 - SCALE) ** 2
    w = np.ones(N) if weights is None else weights
    shift, spread = smoothed(np.exp(-squares / (2 * length**2)), Z, w, 3.0)
    found = method.apply(params, D.Normal(unit * new, np.full(7, unit)))
    np.testing.assert_allclose(found.loc, unit * (new + shift), rtol=1e-4)
    np.testing.assert_allclose(found.scale, unit * spread, rtol=1e-4)


def test_normal_scores_and_vectors_near_each_prediction():
    method = KernelRecalibration(SquaredExponential(0.7))
    gammas, targets = D.Gamma(1 + SCALE, np.ones(N)), np.exp(Z / 2)
    found = method.apply(method.fit(gammas, targets), gammas)
    assert isinstance(found, Recalibrated)
    z = norm.ppf(stats.gamma.cdf(targets, 1 + SCALE))
    k = np.exp(-((SCALE[:, None] - SCALE) ** 2) / (2 * 0.7**2))
    expected = smoothed(k, z, 1.0, 5.0)
    maps = found.map.shift, found.map.scale
    np.testing.assert_allclose(maps, expected, rtol=1e-4, atol=1e-6)
    pairs = D.DiagNormal(np.stack([LOC] * 2, 1), np.stack([SCALE] * 2, 1))
    found = method.apply(method.fit(pairs, np.stack([Y, -Y], 1)), pairs)
    k = np.exp(-((LOC[:, None] - LOC) ** 2 + (SCALE[:, None] - SCALE) ** 2) / 0.7**2)
    shift, spread = smoothed(k, Z, 1.0, 5.0)
    np.testing.assert_allclose(found.loc[:, 0], LOC + shift * SCALE, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.scale[:, 0], spread * SCALE, rtol=1e-4)
    same = D.Normal(np.zeros(20), np.ones(20))  # of which there is no length scale
    params = KernelRecalibration().fit(same, np.arange(20.0))
    np.testing.assert_allclose(KernelRecalibration().apply(params, same).loc, 190 / 25)


LEVELS = norm.cdf(Z)


def levels_of(predictions):
    return jax.jit(jax.vmap(lambda p, y: p.cdf(y)))(predictions, jnp.asarray(Y))


def test_integral_transforms_of_beta_distributions():
    index = np.repeat(np.arange(N), WEIGHTS)
    alpha, beta, _, _ = stats.beta.fit(LEVELS[index], floc=0, fscale=1)
    method = QuantileRecalibration()
    params = method.fit(NORMAL, Y, WEIGHTS)
    np.testing.assert_allclose([params.alpha, params.beta], [alpha, beta], rtol=1e-5)
    found = levels_of(method.apply(params, D.with_features(NORMAL, LOC)))
    np.testing.assert_allclose(found, stats.beta.cdf(LEVELS, alpha, beta), rtol=1e-4)


def test_knots_are_quantiles_of_integral_transforms():
    method = QuantileRecalibration("isotonic", num_knots=N)
    params = method.fit(NORMAL, Y)
    np.testing.assert_allclose(params.thresholds, [0, *np.sort(LEVELS), 1], rtol=1e-6)
    ranks = stats.rankdata(LEVELS)
    found = levels_of(method.apply(params, NORMAL))
    np.testing.assert_allclose(found, ranks / (N + 1), rtol=1e-5)
    few, half = QuantileRecalibration("isotonic", num_knots=9), 1.0 * (np.arange(N) < 20)
    for weights, used in ((None, LEVELS), (np.full(N, 3.0), LEVELS), (half, LEVELS[:20])):
        expected = np.quantile(used, np.arange(1, 10) / 10, method="weibull")
        thresholds = few.fit(NORMAL, Y, weights).thresholds[1:-1]
        np.testing.assert_allclose(thresholds, expected, rtol=1e-5)


def test_density_of_a_piecewise_linear_distribution():
    law = IsotonicMap(jnp.array([0, 0.2, 0.2, 1]), jnp.array([0, 0.4, 0.4, 1]))
    levels = jnp.array([0.0, 0.1, 0.5, 1.0])
    np.testing.assert_allclose(law.cdf(levels), [0, 0.2, 0.625, 1], rtol=1e-6)
    np.testing.assert_allclose(law.icdf(law.cdf(levels)), levels, rtol=1e-6)
    np.testing.assert_allclose(jnp.exp(law.log_prob(levels)), [2, 2, 0.75, 0.75], rtol=1e-6)


def test_shifted_quantiles():
    levels, method = np.array([0.1, 0.5, 0.9]), QuantileShift()
    values = LOC[:, None] + SCALE[:, None] * norm.ppf(levels)
    residuals = Y[:, None] - values
    each = zip(residuals.T, levels, strict=True)
    expected = [np.quantile(r, t, method="weibull") for r, t in each]
    for own in (levels, np.tile(levels, (N, 1))):
        predictions = D.Quantiles(own, values)
        params = method.fit(predictions, Y)
        np.testing.assert_allclose(params.shifts, expected, rtol=1e-5)
        found = method.apply(params, predictions).values
        np.testing.assert_allclose(found, np.sort(values + expected, 1), rtol=1e-5, atol=1e-6)
    shift = method.fit(D.Quantiles(np.array([0.001]), values[:, :1]), Y).shifts
    np.testing.assert_allclose(shift, residuals[:, 0].min(), rtol=1e-5)
    differing = np.array([[0.1, 0.5], [0.2, 0.5]])
    with pytest.raises(ValueError, match="levels: expected the same for all samples"):
        method.fit(D.Quantiles(differing, differing), np.ones(2))


def test_infinite_quantiles_stay_infinite():
    """Few of them have shifts, of which those of the others are quantiles, and many have none."""
    targets, values = np.arange(1.0, 20.0), np.zeros((19, 2))
    values[:2, 1] = np.inf
    predictions = D.Quantiles(np.array([0.1, 0.9]), values)
    shifts = QuantileShift().fit(predictions, targets)
    residuals = np.sort(np.where(values[:, 1] > 0, -np.inf, targets))
    np.testing.assert_allclose(shifts.shifts, [2.0, residuals[17]], rtol=1e-6)
    shifted = QuantileShift().apply(shifts, predictions).values
    np.testing.assert_array_equal(np.isinf(shifted), np.isinf(values))
    with pytest.raises(ValueError, match="shifts: expected finite values"):
        QuantileShift().fit(D.Quantiles(np.array([0.9]), np.full((19, 1), np.inf)), targets)
