"""Student's t distributions."""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax.scipy.special import betaln

from calibjax._arithmetic import logarithm, ratio
from calibjax._pytree import parameter, record
from calibjax._special import at_levels, stirling_error
from calibjax.distributions.base import Distribution
from calibjax.distributions.beta import Beta
from calibjax.distributions.constraints import between, positive, real


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

    df: jax.Array = parameter(between(0.5, 1e4))
    loc: jax.Array = parameter(real)
    scale: jax.Array = parameter(positive)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one value."""
        dtype = jnp.result_type(self.df, self.loc, self.scale)
        return self.loc + self.scale * jax.random.t(key, self.df, jnp.shape(self.df), dtype)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y; log Γ(b + ½) − log Γ(b) by Stirling's formula, without cancellation."""
        b, z = 0.5 * jnp.asarray(self.df), ratio(y - self.loc, self.scale)
        growth_of_gamma = b * jnp.log1p(0.5 / b) - 0.5 + stirling_error(b + 0.5) - stirling_error(b)
        constant = growth_of_gamma - 0.5 * math.log(2 * math.pi) - logarithm(self.scale)
        distance = jnp.abs(z) / jnp.sqrt(self.df)
        is_far = distance > 1
        far = jnp.where(is_far, distance, 1)
        growth = 2 * jnp.log(far) + jnp.log1p(1 / jnp.square(far))
        near = jnp.log1p(jnp.square(jnp.where(is_far, 0, z)) / self.df)
        return constant - (b + 0.5) * jnp.where(is_far, growth, near)

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
        distance = jnp.abs(z) / jnp.sqrt(self.df)
        is_far = distance > 1
        half, rest = jnp.full_like(self.df, 0.5), 0.5 * self.df
        # z² / (df + z²) ~ Beta(½, df / 2) near the median, df / (df + z²) in the tails, which have
        # few digits as differences from 1.
        odds = jnp.square(jnp.where(is_far, 1 / jnp.where(is_far, distance, 1), distance))
        first, second = jnp.where(is_far, rest, half), jnp.where(is_far, half, rest)
        share = Beta(first, second).cdf(odds / (1 + odds))
        near = 0.5 + 0.5 * jnp.sign(z) * share
        outer = jnp.where(is_far, jnp.where(z < 0, 0.5 * share, 1 - 0.5 * share), near)
        # At the median the derivative is the density.
        tangent = 0.5 + jnp.exp(self.log_prob(self.loc)) * (y - self.loc)
        return jnp.where(z == 0, tangent, outer)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Value y with cdf(y) = level; not differentiable."""
        half, rest = jnp.full_like(self.df, 0.5), 0.5 * self.df
        inner = jnp.clip(level, 0, 1)
        # Computed from z² / (df + z²) near the median, from df / (df + z²) in the tails.
        share = Beta(half, rest).icdf(jnp.abs(2 * inner - 1))
        tail = Beta(rest, half).icdf(2 * jnp.minimum(inner, 1 - inner))
        is_near = jnp.abs(inner - 0.5) < 0.25
        odds = jnp.where(is_near, share / (1 - share), (1 - tail) / tail)
        values = self.loc + jnp.sign(inner - 0.5) * self.scale * jnp.sqrt(self.df * odds)
        return at_levels(jnp.asarray(level), values, -jnp.inf, jnp.inf)

    def crps(self, y: jax.Array) -> jax.Array:
        """Continuous ranked probability score of y for df > 1, Jordan et al. (2019), App. A."""
        z, df = ratio(y - self.loc, self.scale), self.df
        standard = StudentT(df, jnp.zeros_like(df), jnp.ones_like(df))
        spread = 2 * jnp.sqrt(df) * jnp.exp(betaln(0.5, df - 0.5) - 2 * betaln(0.5, df / 2))
        density = 2 * jnp.exp(standard.log_prob(z)) * (df + jnp.square(z))
        score = z * (2 * standard.cdf(z) - 1) + (density - spread) / (df - 1)
        return jnp.where(df > 1, self.scale * score, math.nan)

    def tempered(self, temperature: jax.Array) -> "StudentT":
        """Density ∝ p^{1/T}; NaN for T ≥ df + 1, where it is not integrable."""
        df = (self.df + 1) / temperature - 1
        df = jnp.where(df > 0, df, jnp.nan)
        return dataclasses.replace(self, df=df, scale=self.scale * jnp.sqrt(self.df / df))
