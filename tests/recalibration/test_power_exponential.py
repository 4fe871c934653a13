"""W21 App. F: multivariate power exponential laws, a family of one's own, and by `Ensemble`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln

from calibjax import record
from calibjax.distributions import Distribution, Ensemble, MvNormal, constraints, parameter
from calibjax.recalibration import TemperatureScaling
from calibjax.recalibration.base import tempered

KEY = jax.random.key(3)
COV = np.array([[1.0, 0.6], [0.6, 2.0]])


@record
class PowerExponential(Distribution):
    """Density ∝ exp(−½ q^β) with q = (y − μ)ᵀ Σ⁻¹ (y − μ) (Gómez et al., 1998)."""

    support = constraints.real.with_axes("d")

    loc: jax.Array = parameter(constraints.real.with_axes("d"))
    cov: jax.Array = parameter(constraints.positive_definite)
    beta: jax.Array = parameter(constraints.positive)

    def log_prob(self, y):
        d = self.loc.shape[-1]
        z = jax.scipy.linalg.solve_triangular(
            jnp.linalg.cholesky(self.cov), y - self.loc, lower=True
        )
        log_constant = (
            jnp.log(d) + gammaln(d / 2) - d / 2 * jnp.log(jnp.pi) - gammaln(1 + d / 2 / self.beta)
        )
        log_constant -= (1 + d / 2 / self.beta) * jnp.log(2) + jnp.linalg.slogdet(self.cov)[1] / 2
        return log_constant - jnp.sum(z**2) ** self.beta / 2

    def sample(self, key):
        direction, length = jax.random.split(key)
        d = self.loc.shape[-1]
        u = jax.random.normal(direction, (d,), self.loc.dtype)
        g = jax.random.gamma(length, d / 2 / self.beta)
        radius = (2 * g) ** (0.5 / self.beta)
        return self.loc + jnp.linalg.cholesky(self.cov) @ (radius * u / jnp.linalg.norm(u))

    def tempered(self, temperature):
        return dataclasses.replace(self, cov=self.cov * temperature ** (1 / self.beta))


def _law(beta, loc=(0.5, -1.0)):
    return PowerExponential(jnp.array(loc), jnp.array(COV), jnp.array(beta))


def _batch(n, beta):
    locs = jax.random.normal(KEY, (n, 2))
    return PowerExponential(locs, jnp.broadcast_to(COV, (n, 2, 2)), jnp.full(n, beta))


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_tempered_densities_are_powers(beta):
    """Definition F.1: log q − log p / T is the same everywhere; for β = 1 the law is normal."""
    law, temperature = _law(beta), 1.7
    ys = jax.random.normal(KEY, (20, 2)) * 2
    other = tempered(law, temperature)
    rest = jnp.stack([other.log_prob(y) - law.log_prob(y) / temperature for y in ys])
    np.testing.assert_allclose(rest, rest[0], rtol=1e-10)
    if beta == 1:
        normal = tempered(MvNormal(law.loc, law.cov), temperature)
        np.testing.assert_allclose(other.cov, normal.cov, rtol=1e-12)
        np.testing.assert_allclose(
            jax.vmap(other.log_prob)(ys), jax.vmap(normal.log_prob)(ys), rtol=1e-10
        )


@pytest.mark.parametrize("beta", [0.5, 3.0])
def test_the_fitted_temperature_is_the_closed_form(beta):
    """The mean log-density −q^β / (2 T) − d / (2 β) log T is largest at T = β / d · mean(q^β)."""
    predictions = _batch(60, beta)
    targets = predictions.loc + 1.5 * jax.random.normal(jax.random.key(4), (60, 2))
    z = np.linalg.solve(np.linalg.cholesky(COV), np.asarray(targets - predictions.loc).T)
    expected = beta / 2 * np.mean(np.sum(z**2, 0) ** beta)
    fitted = TemperatureScaling().fit(predictions, targets)
    np.testing.assert_allclose(fitted, expected, rtol=1e-6)


@pytest.mark.parametrize("beta", [0.5, 3.0])
def test_draws_at_another_temperature(beta):
    """Temperature T of the law is T^(1/β) of its draws: exactly, if they are symmetric."""
    law, temperature = _law(beta), 2.5
    keys = jax.random.split(KEY, 50)

    def symmetric(p):
        draws = jax.vmap(p.sample)(keys)
        return jnp.concatenate([draws, 2 * p.loc - draws])

    scaled = tempered(Ensemble(symmetric(law)), temperature ** (1 / beta))
    np.testing.assert_allclose(scaled.values, symmetric(tempered(law, temperature)), rtol=1e-9)
