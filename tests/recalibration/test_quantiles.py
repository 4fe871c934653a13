import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax.distributions import Beta, Normal, Quantiles, with_features
from calibjax.recalibration import QuantileRecalibration, QuantileShift
from calibjax.recalibration.confidences import IsotonicMap

RNG = np.random.default_rng(0)
N = 200
LOC, SCALE = RNG.normal(size=N), RNG.uniform(0.5, 2, N)
Y = LOC + SCALE * (0.4 + 1.5 * RNG.normal(size=N))
NORMAL = Normal(jnp.asarray(LOC), jnp.asarray(SCALE))
LEVELS = stats.norm.cdf((Y - LOC) / SCALE)


@pytest.mark.parametrize("weights", [None, np.arange(N) % 3])
def test_most_likely_beta_distribution(weights):
    index = np.arange(N) if weights is None else np.repeat(np.arange(N), weights)
    alpha, beta, _, _ = stats.beta.fit(LEVELS[index], floc=0, fscale=1)
    params = QuantileRecalibration().fit(NORMAL, jnp.asarray(Y), weights)
    np.testing.assert_allclose([params.alpha, params.beta], [alpha, beta], rtol=1e-5)
    found = QuantileRecalibration().apply(params, with_features(NORMAL, jnp.asarray(LOC)))
    levels = jax.vmap(lambda p, y: p.cdf(y))(found, jnp.asarray(Y))
    np.testing.assert_allclose(levels, stats.beta.cdf(LEVELS, alpha, beta), rtol=1e-4)


def test_all_knots_are_the_empirical_distribution():
    method = QuantileRecalibration("isotonic", num_knots=N)
    params = method.fit(NORMAL, jnp.asarray(Y))
    np.testing.assert_allclose(params.thresholds, [0, *np.sort(LEVELS), 1], rtol=1e-6)
    found = method.apply(params, NORMAL)
    ranks = stats.rankdata(LEVELS)
    levels = jax.vmap(lambda p, y: p.cdf(y))(found, jnp.asarray(Y))
    np.testing.assert_allclose(levels, ranks / (N + 1), rtol=1e-5)
    few = QuantileRecalibration("isotonic", num_knots=9).fit(NORMAL, jnp.asarray(Y))
    expected = np.quantile(LEVELS, np.arange(1, 10) / 10, method="weibull")
    np.testing.assert_allclose(few.thresholds[1:-1], expected, rtol=1e-5)
    same = QuantileRecalibration("isotonic", num_knots=9).fit(
        NORMAL, jnp.asarray(Y), np.full(N, 3.0)
    )
    np.testing.assert_allclose(same.thresholds, few.thresholds, rtol=1e-5)
    left = QuantileRecalibration("isotonic", num_knots=9)
    half = jax.tree.map(lambda x: x[:100], NORMAL)
    np.testing.assert_allclose(
        left.fit(NORMAL, jnp.asarray(Y), 1.0 * (np.arange(N) < 100)).thresholds,
        left.fit(half, jnp.asarray(Y[:100])).thresholds,
        rtol=1e-5,
    )


def test_density_of_a_piecewise_linear_distribution():
    law = IsotonicMap(jnp.array([0, 0.2, 0.2, 1]), jnp.array([0, 0.4, 0.4, 1]))
    levels = jnp.array([0.0, 0.1, 0.5, 1.0])
    np.testing.assert_allclose(law.cdf(levels), [0, 0.2, 0.625, 1], rtol=1e-6)
    np.testing.assert_allclose(law.icdf(law.cdf(levels)), levels, rtol=1e-6)
    np.testing.assert_allclose(jnp.exp(law.log_prob(levels)), [2, 2, 0.75, 0.75], rtol=1e-6)


@pytest.mark.parametrize("shape", ["beta", "isotonic"])
def test_identity(shape):
    method = QuantileRecalibration(shape)
    found = method.apply(method.identity(NORMAL), NORMAL)
    for name in ("cdf", "log_prob"):
        ys = jnp.asarray(Y)
        one, other = (
            jax.vmap(lambda p, y, f=name: getattr(p, f)(y))(x, ys) for x in (found, NORMAL)
        )
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_shifted_quantiles():
    levels = np.array([0.1, 0.5, 0.9])
    values = LOC[:, None] + SCALE[:, None] * stats.norm.ppf(levels)
    residuals = Y[:, None] - values
    expected = [
        np.quantile(r, t, method="weibull") for r, t in zip(residuals.T, levels, strict=True)
    ]
    for own in (levels, np.tile(levels, (N, 1))):
        predictions = Quantiles(jnp.asarray(own), jnp.asarray(values))
        params = QuantileShift().fit(predictions, jnp.asarray(Y))
        np.testing.assert_allclose(params.shifts, expected, rtol=1e-5)
        found = QuantileShift().apply(params, predictions).values
        np.testing.assert_allclose(found, np.sort(values + expected, 1), rtol=1e-5, atol=1e-6)
        same = QuantileShift().apply(QuantileShift().identity(predictions), predictions)
        np.testing.assert_array_equal(same.values, predictions.values)
    extreme = Quantiles(jnp.array([0.001]), jnp.asarray(values[:, :1]))
    shift = QuantileShift().fit(extreme, jnp.asarray(Y)).shifts
    np.testing.assert_allclose(shift, residuals[:, 0].min(), rtol=1e-5)


def test_infinite_quantiles_stay_infinite():
    """Few of them have shifts, of which those of the others are quantiles, and many have none."""
    targets = np.arange(1.0, 20.0)
    values = np.zeros((19, 2))
    values[:2, 1] = np.inf
    predictions = Quantiles(np.array([0.1, 0.9]), values)
    shifts = QuantileShift().fit(predictions, targets)
    residuals = np.sort(np.where(values[:, 1] > 0, -np.inf, targets))
    np.testing.assert_allclose(shifts.shifts, [2.0, residuals[17]], rtol=1e-6)
    shifted = QuantileShift().apply(shifts, predictions).values
    np.testing.assert_array_equal(np.isinf(shifted), np.isinf(values))
    with pytest.raises(ValueError, match="shifts: expected finite values"):
        QuantileShift().fit(Quantiles(np.array([0.9]), np.full((19, 1), np.inf)), targets)


def test_transforms_that_are_all_equal():
    ones = jnp.ones(3)
    with pytest.raises(ValueError, match="expected integral transforms that differ"):
        QuantileRecalibration().fit(Normal(ones, ones), ones)
    traced = jax.jit(QuantileRecalibration().fit)(Normal(ones, ones), ones)
    assert isinstance(traced, Beta)
    assert np.isnan(traced.alpha)
    levels = jnp.array([[0.1, 0.5], [0.2, 0.5]])
    with pytest.raises(ValueError, match="levels: expected the same for all samples"):
        QuantileShift().fit(Quantiles(levels, levels), jnp.ones(2))
