"""Student's t distributions."""

import dataclasses
import math

import jax
import jax.numpy as jnp

from calibjax._core.arithmetic import absolute, logarithm, ratio
from calibjax._core.pytree import parameter, record
from calibjax._core.special import (
    incomplete_beta,
    log_gamma_step,
    log_gamma_steps_apart,
    symmetric_quantile,
)
from calibjax.distributions.base import Distribution
from calibjax.distributions.constraints import interval, positive, real


@record
class StudentT(Distribution):
    """Student's t distribution of loc + scale T with df degrees of freedom.

    Attributes:
        df: degrees of freedom, from 0.5 to 1e4 (above, use a normal distribution); scalar, or [n]
            for a batch.
        loc: median; shape of `df`.
        scale: positive, not the standard deviation; shape of `df`.

    >>> import jax.numpy as jnp
    >>> p = StudentT(jnp.array(3.0), jnp.array(1.0), jnp.array(2.0))
    >>> print(f"{p.mean():.4f} {p.variance():.4f} {p.cdf(1.0):.4f} {p.icdf(0.975):.4f}")
    1.0000 12.0000 0.5000 7.3649
    """

    df: jax.Array = parameter(interval(0.5, 1e4))
    loc: jax.Array = parameter(real)
    scale: jax.Array = parameter(positive)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one value."""
        dtype = jnp.result_type(self.df, self.loc, self.scale)
        return self.loc + self.scale * jax.random.t(key, self.df, jnp.shape(self.df), dtype)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y; log Γ(b + ½) − log Γ(b) by Stirling's formula, without cancellation."""
        b, z = 0.5 * jnp.asarray(self.df), ratio(y - self.loc, self.scale)
        constant = log_gamma_step(b) - 0.5 * math.log(2 * math.pi) - logarithm(self.scale)
        return constant - (b + 0.5) * self._growth(z)

    def _growth(self, z: jax.Array) -> jax.Array:
        """log(1 + z² / df), also where the square overflows."""
        distance = jnp.abs(z) / jnp.sqrt(self.df)
        is_far = distance > 1
        far = jnp.where(is_far, distance, 1)
        near = jnp.log1p(jnp.square(jnp.where(is_far, 0, z)) / self.df)
        return jnp.where(is_far, 2 * jnp.log(far) + jnp.log1p(1 / jnp.square(far)), near)

    def mean(self) -> jax.Array:
        """Expectation; NaN for df ≤ 1."""
        return jnp.where(self.df > 1, self.loc, jnp.nan)

    def variance(self) -> jax.Array:
        """Variance; infinite for df ≤ 2, NaN for df ≤ 1."""
        excess = jnp.where(self.df > 2, self.df - 2, 1)
        variance = jnp.where(self.df > 2, jnp.square(self.scale) * self.df / excess, jnp.inf)
        return jnp.where(self.df > 1, variance, jnp.nan)

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of values up to y."""
        z = ratio(y - self.loc, self.scale)
        central, outside = self._shares(jnp.where(z == 0, 1, jnp.abs(z)))
        near = 0.5 + 0.5 * jnp.sign(z) * central
        far = jnp.where(z < 0, 0.5 * outside, 1 - 0.5 * outside)
        # At the median the derivative is the density.
        tangent = 0.5 + jnp.exp(self.log_prob(self.loc)) * (y - self.loc)
        return jnp.where(z == 0, tangent, jnp.where(central < 0.5, near, far))

    def icdf(self, level: jax.Array) -> jax.Array:
        """Value y with cdf(y) = level; not differentiable."""
        return self.loc + self.scale * symmetric_quantile(self._shares, level, self.df)

    def crps(self, y: jax.Array) -> jax.Array:
        """Continuous ranked probability score of y for df > 1, Jordan et al. (2019), App. A."""
        z, df = absolute(ratio(y - self.loc, self.scale)), jnp.asarray(self.df)
        excess = jnp.where(df > 1, df - 1, 1)
        # E|Z − z| = z (2 F(z) − 1) + height (1 + z² / df)^(−excess / 2) / excess, and half the mean
        # difference of two draws is height · ratio / excess. Both grow as 1 / excess.
        height = 2 * df * jnp.exp(log_gamma_step(0.5 * df)) / math.sqrt(2 * math.pi)
        few, many = jnp.where(df < 2, df, 2), jnp.where(df < 2, 2, df)
        steps = log_gamma_step(0.5 * many) - log_gamma_step(many - 0.5)
        log_ratio = steps + 0.5 * jnp.log(0.5 * many / (many - 0.5))
        near_one = -0.5 * excess * log_gamma_steps_apart(few - 0.5, 0.5 * (1 - few))
        rest = -jnp.expm1(jnp.where(df < 2, near_one, log_ratio))
        power = jnp.expm1(-0.5 * excess * self._growth(z))
        score = z * self._shares(z)[0] + height * (power + rest) / excess
        return jnp.where(df > 1, self.scale * score, math.nan)

    def _shares(self, z: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Probabilities of |Z| ≤ z and of |Z| > z for standardised values, z ≥ 0."""
        distance = z / jnp.sqrt(self.df)
        is_far = distance > 1
        # Squares of what is farther away underflow: there the tail is a power, and near zero the
        # probability is proportional to z.
        farthest = float(jnp.finfo(distance.dtype).eps) ** -0.75
        inner = jnp.clip(distance, 1 / farthest, farthest)
        square = jnp.square(jnp.where(is_far, 1 / inner, inner))
        one, other = square / (1 + square), 1 / (1 + square)
        # Z² / (df + Z²) ~ Beta(½, df / 2).
        central, outside = incomplete_beta(
            jnp.full_like(square, 0.5),
            0.5 * jnp.asarray(self.df),
            jnp.where(is_far, other, one),
            jnp.where(is_far, one, other),
        )
        beyond = jnp.maximum(distance, farthest) / farthest
        outside = outside * beyond**-self.df
        near = central * jnp.minimum(distance * farthest, 1)
        return jnp.where(distance > farthest, 1 - outside, near), outside

    def tempered(self, temperature: jax.Array) -> "StudentT":
        """Density ∝ p^{1/T}; NaN for T ≥ df + 1, where it is not integrable."""
        df = (self.df + 1) / temperature - 1
        df = jnp.where(df > 0, df, jnp.nan)
        return dataclasses.replace(self, df=df, scale=self.scale * jnp.sqrt(self.df / df))
