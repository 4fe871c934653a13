"""Student's t distributions."""

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import betaln
from jax.scipy.stats import t

from calibjax._pytree import parameter, record
from calibjax.distributions.base import Distribution
from calibjax.distributions.beta import Beta
from calibjax.distributions.constraints import positive, real


@record
class StudentT(Distribution):
    """Student's t distribution of loc + scale T with df degrees of freedom.

    Attributes:
        df: degrees of freedom, positive; scalar, or [n] for a batch.
        loc: median; shape of `df`.
        scale: positive, not the standard deviation; shape of `df`.

    >>> import jax.numpy as jnp
    >>> p = StudentT(jnp.array(3.0), jnp.array(1.0), jnp.array(2.0))
    >>> print(f"{p.mean():.4f} {p.variance():.4f} {p.cdf(1.0):.4f} {p.icdf(0.975):.4f}")
    1.0000 12.0000 0.5000 7.3649
    """

    df: jax.Array = parameter(positive)
    loc: jax.Array = parameter(real)
    scale: jax.Array = parameter(positive)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one value."""
        dtype = jnp.result_type(self.df, self.loc, self.scale)
        return self.loc + self.scale * jax.random.t(key, self.df, jnp.shape(self.df), dtype)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y."""
        return t.logpdf(y, self.df, self.loc, self.scale)

    def mean(self) -> jax.Array:
        """Expectation; NaN for df ≤ 1."""
        return jnp.where(self.df > 1, self.loc, jnp.nan)

    def variance(self) -> jax.Array:
        """Variance; infinite for df ≤ 2, NaN for df ≤ 1."""
        excess = jnp.where(self.df > 2, self.df - 2, 1)
        variance = jnp.where(self.df > 2, jnp.square(self.scale) * self.df / excess, jnp.inf)
        return jnp.where(self.df > 1, variance, jnp.nan)

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of values up to y; for df up to 1e4."""
        z = (y - self.loc) / self.scale
        share = jnp.square(z) / (self.df + jnp.square(z))  # Beta(½, df / 2)
        half = jnp.full_like(self.df, 0.5)
        return 0.5 + 0.5 * jnp.sign(z) * Beta(half, 0.5 * self.df).cdf(share)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Value y with cdf(y) = level; not differentiable."""
        share = Beta(0.5 * self.df, jnp.full_like(self.df, 0.5)).icdf(
            2 * jnp.minimum(level, 1 - level)
        )
        return self.loc + jnp.sign(level - 0.5) * self.scale * jnp.sqrt(self.df * (1 / share - 1))

    def crps(self, y: jax.Array) -> jax.Array:
        """Continuous ranked probability score of y for df > 1, Jordan et al. (2019), App. A."""
        z, df = (y - self.loc) / self.scale, self.df
        standard = StudentT(df, jnp.zeros_like(df), jnp.ones_like(df))
        spread = 2 * jnp.sqrt(df) * jnp.exp(betaln(0.5, df - 0.5) - 2 * betaln(0.5, df / 2))
        density = 2 * jnp.exp(standard.log_prob(z)) * (df + jnp.square(z))
        score = z * (2 * standard.cdf(z) - 1) + (density - spread) / (df - 1)
        return jnp.where(df > 1, self.scale * score, math.nan)

    def tempered(self, temperature: jax.Array) -> "StudentT":
        """Density ∝ p^{1/T}; NaN for T ≥ df + 1, where it has no integral."""
        df = (self.df + 1) / temperature - 1
        df = jnp.where(df > 0, df, jnp.nan)
        return StudentT(df, self.loc, self.scale * jnp.sqrt(self.df / df))
