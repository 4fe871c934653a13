"""Gamma distributions."""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax.scipy.special import gammainc, gammaln

from calibjax._core.arithmetic import logarithm
from calibjax._core.pytree import parameter, record
from calibjax._core.special import (
    at_levels,
    incomplete_gamma,
    inverse_of_cdf,
    log_gamma_step,
    log_gamma_steps_apart,
    log_poisson_density,
    log_ratio,
)
from calibjax.distributions.base import Distribution
from calibjax.distributions.constraints import interval, nonnegative, positive


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

    support = nonnegative

    concentration: jax.Array = parameter(interval(0.01, 1e4))
    rate: jax.Array = parameter(positive)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one value."""
        dtype = jnp.result_type(self.concentration, self.rate)
        draw = jax.random.gamma(key, self.concentration, jnp.shape(self.concentration), dtype)
        return draw / self.rate

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y; its limit at 0, −inf below and at infinity."""
        shape, rate = jnp.asarray(self.concentration), jnp.asarray(self.rate)
        product = rate * y
        tiny = jnp.finfo(product.dtype).tiny
        # exp(−product) is 1, and shape / product may overflow.
        is_small = product < jnp.maximum(shape, 1) * tiny**0.5
        inner = jnp.where(is_small | (product == jnp.inf), 1, product)
        density = log_poisson_density(shape, inner) + log_ratio(shape, inner) + logarithm(rate)
        log_y = jnp.log(jnp.where(is_small & (y >= tiny), y, 1))
        power = shape * (logarithm(rate) + log_y) - log_y - gammaln(shape)
        edge = jnp.where(shape < 1, jnp.inf, -jnp.inf)
        # (shape − 1) log 0 is zero with an infinite derivative, as in `log_dirichlet_density`.
        steep = (shape - 1) * jnp.finfo(product.dtype).max
        edge = jnp.where(shape == 1, logarithm(rate) - steep, edge)
        small = jnp.where(y >= tiny, power, jnp.where(y >= 0, edge, -jnp.inf))
        return jnp.where(is_small, small, jnp.where(product == jnp.inf, -jnp.inf, density))

    def mean(self) -> jax.Array:
        """Expectation."""
        return self.concentration / self.rate

    def variance(self) -> jax.Array:
        """Variance."""
        return self.concentration / jnp.square(self.rate)

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of values up to y."""
        return incomplete_gamma(self.concentration, jnp.maximum(self.rate * y, 0))[0]

    def icdf(self, level: jax.Array) -> jax.Array:
        """Smallest floating-point number y with cdf(y) ≥ level; not differentiable."""
        dtype = jnp.result_type(self.concentration, self.rate)
        level, _ = jnp.broadcast_arrays(jnp.asarray(level, dtype), self.rate)
        inner = jnp.clip(level, 0, 1)
        values = inverse_of_cdf(self.cdf, inner, 0, jnp.finfo(level.dtype).max)
        return at_levels(level, values, 0, jnp.inf)

    def crps(self, y: jax.Array) -> jax.Array:
        """Continuous ranked probability score of y, Scheuerer and Möller (2015), §4."""
        k = jnp.asarray(self.concentration)
        x = jnp.maximum(self.rate * y, 0)
        central = 2 * incomplete_gamma(k, x)[0] - 1
        # P(k, x) − P(k + 1, x), and half the mean difference of two draws over the mean.
        inner = jnp.where(x > 0, x, 1)
        step = jnp.where(x > 0, jnp.exp(log_poisson_density(k, inner)), 0)
        spread = jnp.exp(log_gamma_step(k)) / jnp.sqrt(math.pi * k)
        many = (x / k - 1) * central + 2 * step - spread
        # For small k almost nothing is left of one minus `spread`, nor of P(k, x) − `step`.
        few = jnp.where(k > 1, 1, k)  # a minimum has half the derivative at one
        rest = -jnp.expm1(-few * log_gamma_steps_apart(jnp.full_like(k, 0.5), few))
        score = jnp.where(k > 1, many, x / k * central - 2 * gammainc(few + 1, x) + rest)
        return self.mean() * score - jnp.minimum(y, 0)

    def tempered(self, temperature: jax.Array) -> "Gamma":
        """Density ∝ p^{1/T} with respect to dy / y."""
        return dataclasses.replace(
            self, concentration=self.concentration / temperature, rate=self.rate / temperature
        )
