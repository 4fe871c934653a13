"""Normal distributions: univariate, diagonal and multivariate."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
from jax.scipy.special import erf, ndtr, ndtri

from calibjax._core import arithmetic
from calibjax._core.arithmetic import logarithm, matmul, ratio
from calibjax._core.pytree import parameter, record
from calibjax.distributions.base import DrawnByInversion, Located, centred
from calibjax.distributions.constraints import positive, positive_definite, real


@record
class Normal(Located, DrawnByInversion):
    """Univariate normal distribution N(loc, scale²).

    Attributes:
        loc: mean; scalar, or [n] for a batch.
        scale: standard deviation (not the variance), positive; shape of `loc`.

    >>> import jax.numpy as jnp
    >>> p = Normal(loc=jnp.array(1.0), scale=jnp.array(2.0))
    >>> print(p.mean(), p.cdf(1.0), p.icdf(0.5))
    1.0 0.5 1.0
    """

    loc: jax.Array = parameter(real)
    scale: jax.Array = parameter(positive)

    def sample_at(self, level: jax.Array) -> jax.Array:
        """The draw that belongs to a uniform number in [0, 1)."""
        return self.loc + self.scale * standard_normal_at(level)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y."""
        return _log_density(y, self.loc, self.scale)

    def variance(self) -> jax.Array:
        """Variance."""
        return jnp.square(self.scale)

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of values up to y."""
        return ndtr(ratio(y - self.loc, self.scale))

    def icdf(self, level: jax.Array) -> jax.Array:
        """Value y with cdf(y) = level."""
        return self.loc + self.scale * ndtri(level)

    def crps(self, y: jax.Array) -> jax.Array:
        """Continuous ranked probability score of y, Gneiting et al. (2005), eq. (5)."""
        return mean_distance(y - self.loc, self.scale) - self.scale / math.sqrt(math.pi)

    def tempered(self, temperature: jax.Array) -> "Normal":
        """The normal distribution with density ∝ p^{1/T}."""
        return dataclasses.replace(self, scale=self.scale * jnp.sqrt(temperature))


def standard_normal_at(level: jax.Array) -> jax.Array:
    """Normal number for a uniform number in [0, 1); finite at 0, unlike `ndtri`."""
    return math.sqrt(2) * jax.lax.erf_inv(centred(level))


def mean_distance(loc: jax.Array, scale: jax.Array) -> jax.Array:
    """E|Z| for Z ~ N(loc, scale²)."""
    z = ratio(loc, scale)
    density = jnp.exp(-0.5 * jnp.square(z)) / math.sqrt(2 * math.pi)
    return loc * erf(z / math.sqrt(2)) + 2 * scale * density


def _log_density(y: jax.Array, loc: jax.Array, scale: jax.Array) -> jax.Array:
    """Log-density of N(loc, scale²); `jax.scipy.stats` divides by scale², which overflows."""
    z = ratio(y - loc, scale)
    return -0.5 * (jnp.square(z) + math.log(2 * math.pi)) - logarithm(scale)


@record
class DiagNormal(Located):
    """Multivariate normal distribution with a diagonal covariance, N(loc, diag(scale²)).

    Attributes:
        loc: mean, [d], or [n, d] for a batch.
        scale: standard deviations (not variances), positive; shape of `loc`.

    >>> import jax.numpy as jnp
    >>> p = DiagNormal(loc=jnp.zeros(2), scale=jnp.ones(2))
    >>> print(f"{p.log_prob(jnp.zeros(2)):.4f}")  # −log 2π
    -1.8379
    """

    support = real.with_axes("d")

    loc: jax.Array = parameter(real.with_axes("d"))
    scale: jax.Array = parameter(positive.with_axes("d"))

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw one vector [d]."""
        dtype = jnp.result_type(self.loc, self.scale)
        return self.loc + self.scale * jax.random.normal(key, jnp.shape(self.loc), dtype)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y, [d]."""
        return _log_density(y, self.loc, self.scale).sum(-1)

    def variance(self) -> jax.Array:
        """Variance of each component, [d]."""
        return jnp.square(self.scale)

    def tempered(self, temperature: jax.Array) -> "DiagNormal":
        """The normal distribution with density ∝ p^{1/T}."""
        return dataclasses.replace(self, scale=self.scale * jnp.sqrt(temperature))


@record
class MvNormal(Located):
    """Multivariate normal distribution N(loc, cov).

    Attributes:
        loc: mean, [d], or [n, d] for a batch.
        cov: covariance matrix, symmetric positive definite, [d, d], or [n, d, d] for a batch.

    For independent components, `DiagNormal` is cheaper.

    >>> import jax.numpy as jnp
    >>> p = MvNormal(loc=jnp.zeros(2), cov=jnp.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> print(f"{p.log_prob(jnp.zeros(2)):.4f}")  # −log 2π − ½ log 3
    -2.3872
    """

    support = real.with_axes("d")

    loc: jax.Array = parameter(real.with_axes("d"))
    cov: jax.Array = parameter(positive_definite)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw one vector [d]."""
        noise = jax.random.normal(key, jnp.shape(self.loc), jnp.result_type(self.loc, self.cov))
        return self.loc + matmul(arithmetic.cholesky(self.cov), noise)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y, [d]."""
        return _log_density_multivariate(y, self.loc, self.cov)

    def variance(self) -> jax.Array:
        """Variance of each component, [d]."""
        return jnp.diagonal(self.cov, axis1=-2, axis2=-1)

    def tempered(self, temperature: jax.Array) -> "MvNormal":
        """The normal distribution with density ∝ p^{1/T}."""
        return dataclasses.replace(self, cov=self.cov * temperature)


@functools.partial(jnp.vectorize, signature="(d),(d),(d,d)->()")
def _log_density_multivariate(y: jax.Array, loc: jax.Array, cov: jax.Array) -> jax.Array:
    root = arithmetic.cholesky(cov)
    whitened = arithmetic.solve_lower(root, y - loc)
    terms = jnp.log(jnp.diagonal(root)) + 0.5 * (jnp.square(whitened) + jnp.log(2 * jnp.pi))
    return -jnp.sum(terms)
