"""Gamma distributions."""

import dataclasses

import jax
import jax.numpy as jnp
from jax.scipy.special import betaln, gammainc

from calibjax._arithmetic import logarithm
from calibjax._pytree import parameter, record
from calibjax._special import at_levels, inverse_of_cdf, log_poisson_density, upper_gamma
from calibjax.distributions.base import Distribution
from calibjax.distributions.constraints import between, non_negative, positive


@record
class Gamma(Distribution):
    """Gamma distribution of a number ≥ 0, density ∝ y^(concentration − 1) exp(−rate y).

    Attributes:
        concentration: shape parameter, from 0.01 (below, most draws are rounded to zero) to 1e4
            (above, float32 is too coarse for the distribution function); scalar, or [n] for a
            batch.
        rate: inverse scale, positive; shape of `concentration`.

    >>> import jax.numpy as jnp
    >>> p = Gamma(concentration=jnp.array(1.0), rate=jnp.array(2.0))
    >>> print(f"{p.mean():.4f} {p.cdf(0.5):.4f} {p.icdf(0.5):.4f}")
    0.5000 0.6321 0.3466
    """

    support = non_negative

    concentration: jax.Array = parameter(between(0.01, 1e4))
    rate: jax.Array = parameter(positive)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one value."""
        dtype = jnp.result_type(self.concentration, self.rate)
        draw = jax.random.gamma(key, self.concentration, jnp.shape(self.concentration), dtype)
        return draw / self.rate

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y; its limit at 0, −inf below."""
        shape, inner = jnp.asarray(self.concentration), jnp.where(y > 0, y, 1)
        density = log_poisson_density(shape, self.rate * inner) + jnp.log(shape) - logarithm(inner)
        edge = jnp.where(shape == 1, logarithm(self.rate), jnp.where(shape < 1, jnp.inf, -jnp.inf))
        return jnp.where(y > 0, density, jnp.where(y == 0, edge, -jnp.inf))

    def mean(self) -> jax.Array:
        """Expectation."""
        return self.concentration / self.rate

    def variance(self) -> jax.Array:
        """Variance."""
        return self.concentration / jnp.square(self.rate)

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of values up to y."""
        a, x = jnp.broadcast_arrays(self.concentration, jnp.maximum(self.rate * y, 0))
        is_large = a > 10  # where the quadrature of `Poisson` is more accurate
        upper = upper_gamma(jnp.where(is_large, a, 11) - 1, jnp.where(is_large & (x > 0), x, 1))
        lower = gammainc(jnp.where(is_large, 1, a), jnp.where(is_large, 1, x))
        return jnp.where(is_large, jnp.where(x > 0, 1 - upper, 0), lower)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Smallest floating-point number y with cdf(y) ≥ level; not differentiable."""
        dtype = jnp.result_type(self.concentration, self.rate)
        level, _ = jnp.broadcast_arrays(jnp.asarray(level, dtype), self.rate)
        inner = jnp.clip(level, 0, 1)
        values = inverse_of_cdf(self.cdf, inner, jnp.finfo(level.dtype).max)
        return at_levels(level, values, 0, jnp.inf)

    def crps(self, y: jax.Array) -> jax.Array:
        """Continuous ranked probability score of y, Scheuerer and Möller (2015), §4."""
        larger = Gamma(self.concentration + 1, self.rate).cdf(y)
        spread = jnp.exp(-betaln(0.5, self.concentration)) / self.rate
        return y * (2 * self.cdf(y) - 1) - self.mean() * (2 * larger - 1) - spread

    def tempered(self, temperature: jax.Array) -> "Gamma":
        """Density ∝ p^{1/T} with respect to dy / y."""
        return dataclasses.replace(
            self, concentration=self.concentration / temperature, rate=self.rate / temperature
        )
