"""Normal distributions: univariate, diagonal and multivariate."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, ndtr, ndtri

from calibjax._core import arithmetic, checks
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

    @classmethod
    def from_cholesky(cls, loc: jax.Array, scale_tril: jax.Array) -> "MvNormal":
        """Distribution N(loc, L Lᵀ) of loc + L z for standard normal z.

        In the precision ε of L, a covariance matrix with condition number 1/ε or more is not
        positive definite.

        Args:
            loc: mean, [d], or [n, d] for a batch.
            scale_tril: L, lower triangular with positive diagonal, [d, d] (also for a batch) or [n,
                d, d].

        Returns:
            The distribution, or a batch.

        Raises:
            TypeError: if an argument is not an array of numbers.
            ValueError: if the shapes do not fit, or an entry above the diagonal of L is not zero;
                if L is traced, the covariance matrix is NaN instead.

        Cost: d³ for each distribution.

        >>> import jax.numpy as jnp
        >>> root = jnp.array([[2.0, 0.0], [1.0, 1.0]])
        >>> print(MvNormal.from_cholesky(jnp.zeros(2), root).cov)
        [[4. 2.]
         [2. 2.]]
        """
        loc = checks.floating("loc", checks.as_arrays("loc", loc))
        root = checks.floating("scale_tril", checks.as_arrays("scale_tril", scale_tril))
        size = loc.shape[-1:]
        expected = (size if root.ndim == 2 else loc.shape) + size
        checks.shape("scale_tril", root, expected, f"{expected}, loc having {loc.shape}")
        words = "zeros above the diagonal (of an upper factor, the transpose)"
        is_zero = lambda x: (x == 0) | np.tri(size[0], dtype=bool)  # noqa: E731
        is_root = lambda x: is_zero(x).all((-2, -1), keepdims=True)  # noqa: E731
        root = checks.satisfying("scale_tril", root, is_root, words)
        return cls(loc, matmul(root, jnp.swapaxes(root, -1, -2)))

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

    def covariance(self) -> jax.Array:
        """Covariance matrix, [d, d]."""
        return self.cov

    def tempered(self, temperature: jax.Array) -> "MvNormal":
        """The normal distribution with density ∝ p^{1/T}."""
        return dataclasses.replace(self, cov=self.cov * temperature)


@functools.partial(jnp.vectorize, signature="(d),(d),(d,d)->()")
def _log_density_multivariate(y: jax.Array, loc: jax.Array, cov: jax.Array) -> jax.Array:
    root = arithmetic.cholesky(cov)
    whitened = arithmetic.solve_lower(root, y - loc)
    terms = jnp.log(jnp.diagonal(root)) + 0.5 * (jnp.square(whitened) + jnp.log(2 * jnp.pi))
    return -jnp.sum(terms)
