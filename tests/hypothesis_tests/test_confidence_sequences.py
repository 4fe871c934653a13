"""Confidence sequences against quadrature of the mixture, and over many streams."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.stats

from calibjax import scores
from calibjax.distributions import Bernoulli, Normal
from calibjax.hypothesis_tests import score_confidence_sequence
from calibjax.hypothesis_tests.confidence_sequences import _boundary, _sequence

RNG = np.random.default_rng(0)


def boundary_by_quadrature(variance, alpha):
    """The s at which the mixture of exp(λ s − ψ(λ) v) over λ in (0, 1) is 2 / α."""
    logarithm = -2 * np.log(alpha)
    rho = 2.5 / (logarithm + np.log1p(logarithm))
    prior = scipy.stats.gamma(rho, scale=1 / rho)  # of 1 − λ, truncated to (0, 1)

    def excess(s):
        def integrand(u):
            return np.exp((1 - u) * (s + variance) + variance * np.log(u)) * prior.pdf(u)

        peak = variance / (s + variance)
        points = [p for p in (peak, peak / 2, 1e-3) if 0 < p < 1]
        value, _ = scipy.integrate.quad(integrand, 0, 1, points=points, limit=500)
        return np.log(value / prior.cdf(1)) - np.log(2 / alpha)

    return scipy.optimize.brentq(excess, 1e-9, 100)


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_boundary_by_quadrature(alpha):
    variances = np.array([0.01, 0.5, 3.0, 20.0, 80.0])
    found = _boundary(jnp.asarray(variances), jnp.asarray(alpha))
    expected = [boundary_by_quadrature(v, alpha) for v in variances]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_by_loops():
    probs, others = RNG.uniform(size=(2, 40))
    rain = RNG.binomial(1, probs)
    found = score_confidence_sequence(
        Bernoulli(probs), Bernoulli(others), rain, score=scores.brier_score, bound=2.0
    )
    d = 2 * ((probs - rain) ** 2 - (others - rain) ** 2)
    variance, mean = 0.0, 0.0
    for t in range(1, 41):
        variance += ((d[t - 1] - mean) / 4) ** 2
        mean = d[:t].mean()
        if t not in (1, 7, 40):
            continue
        reach = min(4 * boundary_by_quadrature(variance, 0.05) / t, 4)
        expected = mean, max(mean - reach, -2), min(mean + reach, 2)
        got = found.estimate[t - 1], found.low[t - 1], found.high[t - 1]
        np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("unit", [1e-7, 1e7])
def test_units_and_precisions(unit):
    values = RNG.uniform(-1, 1, 3000)
    expected = _sequence(jnp.asarray(values), jnp.asarray(1.0), jnp.asarray(0.95))
    single = (jnp.asarray(unit * x, jnp.float32) for x in (values, 1.0))
    found = _sequence(*single, jnp.asarray(0.95, jnp.float32))
    assert found.low.dtype == jnp.float32
    np.testing.assert_allclose(found.high / unit, expected.high, rtol=1e-3, atol=1e-5)


def test_width_beside_that_of_a_fixed_size():
    """The figures of the docstring."""
    values = np.clip(0.3 * np.random.default_rng(0).normal(size=10_000), -1, 1)
    found = _sequence(jnp.asarray(values), jnp.asarray(1.0), jnp.asarray(0.95))
    width = (found.high - found.low) / 2
    for t, ratio in ((100, 3.0), (1000, 2.2), (10_000, 2.1)):
        fixed = 1.96 * values[:t].std(ddof=1) / np.sqrt(t)
        np.testing.assert_allclose(width[t - 1] / fixed, ratio, rtol=0.05)


def test_refusals():
    rain = np.array([1, 0, 1])
    models = Bernoulli(np.array([0.9, 0.2, 0.7])), Bernoulli(np.full(3, 0.5))
    for bound in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="bound"):
            score_confidence_sequence(*models, rain, score=scores.brier_score, bound=bound)
    with pytest.raises(ValueError, match="score.*at most the bound 0.1"):
        score_confidence_sequence(*models, rain, score=scores.brier_score, bound=0.1)
    with pytest.raises(ValueError, match="others"):
        score_confidence_sequence(
            models[0], Bernoulli(np.full(4, 0.5)), rain, score=scores.brier_score, bound=2.0
        )

    def low(probs):
        p = Bernoulli(probs), models[1]
        return score_confidence_sequence(*p, rain, score=scores.brier_score, bound=0.1).low

    assert np.all(np.isnan(jax.jit(low)(np.array([0.9, 0.2, 0.7]))))  # nobody can look at it


def _stream(kind, key, n):
    """Differences in [−1, 1], and their conditional means."""
    if kind == "signs":
        return jax.random.rademacher(key, (n,), float), jnp.zeros(n)
    if kind == "rare":  # 1 in two of a hundred cases: the hardest for a bound by the variance
        return jnp.where(jax.random.bernoulli(key, 0.02, (n,)), 1.0, -0.02 / 0.98), jnp.zeros(n)
    means = 0.4 * jnp.sin(jnp.arange(n) / 300)
    return jnp.where(jax.random.bernoulli(key, (1 + means) / 2), 1.0, -1.0), means


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["signs", "rare", "drift"])
def test_all_intervals_at_once(kind):
    """5000 forecasts, 1000 streams: at most 5 % ever miss; of fixed sizes, half of them would."""

    def misses(key):
        values, means = _stream(kind, key, 5000)
        found = _sequence(values, jnp.asarray(1.0), jnp.asarray(0.95))
        truth = jnp.cumsum(means) / jnp.arange(1, 5001)
        return jnp.any((truth < found.low) | (truth > found.high))

    keys = jax.random.split(jax.random.key(0), 1000)
    ever = jax.jit(lambda keys: jax.lax.map(misses, keys, batch_size=20))(keys)
    assert jnp.mean(ever) <= 0.05


@pytest.mark.slow
def test_a_better_forecaster_is_found():
    rng = np.random.default_rng(1)
    loc = rng.normal(size=2000)
    targets = loc + rng.normal(size=2000)
    models = Normal(loc, np.ones(2000)), Normal(np.zeros(2000), np.full(2000, np.sqrt(2)))

    def bounded(predictions, y):
        return jnp.mean(jnp.square(jax.scipy.stats.norm.cdf(predictions.loc) - (y > 0)))

    found = score_confidence_sequence(*models, targets, score=bounded, bound=1.0)
    assert found.high[-1] < 0 < found.high[20]
