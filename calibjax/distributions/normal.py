"""Normal distributions with independent components."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jax.scipy.stats import norm

from calibjax import _checks
from calibjax._pytree import record


@record
class Normal:
    """Univariate normal distribution N(loc, scale²).

    Attributes:
        loc: mean; scalar, or [n] for a batch.
        scale: standard deviation (not the variance), positive; shape of `loc`.

    >>> import jax.numpy as jnp
    >>> p = Normal(loc=jnp.array(1.0), scale=jnp.array(2.0))
    >>> print(p.mean(), p.cdf(1.0), p.quantile(0.5))
    1.0 0.5 1.0
    """

    parameter_axes: ClassVar = {"loc": 0, "scale": 0}

    loc: jax.Array
    scale: jax.Array

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one value."""
        dtype = jnp.result_type(self.loc, self.scale)
        return self.loc + self.scale * jax.random.normal(key, jnp.shape(self.loc), dtype)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y."""
        return norm.logpdf(y, self.loc, self.scale)

    def mean(self) -> jax.Array:
        """Expectation."""
        return self.loc

    def variance(self) -> jax.Array:
        """Variance."""
        return jnp.square(self.scale)

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of values up to y."""
        return ndtr((y - self.loc) / self.scale)

    def quantile(self, level: jax.Array) -> jax.Array:
        """Value y with cdf(y) = level."""
        return self.loc + self.scale * ndtri(level)

    def check_structure(self, name: str) -> None:
        """Refuses a batch whose parameters are not floating-point arrays [n]."""
        _checks.floating(f"{name}.loc", self.loc)
        _checks.floating(f"{name}.scale", self.scale)
        num_samples = jnp.shape(self.loc)[0]
        _checks.shape(f"{name}.loc", self.loc, (num_samples,), "[n]")
        _checks.shape(f"{name}.scale", self.scale, (num_samples,), "[n], as loc")

    def check_values(self, name: str) -> "Normal":
        """Refuses non-finite means and non-positive standard deviations."""
        return _checks.replaced(
            self,
            loc=_checks.finite(f"{name}.loc", self.loc),
            scale=_checks.positive(f"{name}.scale", self.scale),
        )

    def check_targets(self, name: str, targets: jax.Array) -> jax.Array:
        """Refuses targets that are not finite numbers [n]."""
        targets = _checks.floating(name, targets, jnp.result_type(self.loc))
        _checks.shape(name, targets, jnp.shape(self.loc), "[n], as the predictions' loc")
        return _checks.finite(name, targets)


@record
class DiagNormal:
    """Multivariate normal distribution with a diagonal covariance, N(loc, diag(scale²)).

    Attributes:
        loc: mean, [d], or [n, d] for a batch.
        scale: standard deviations (not variances), positive; shape of `loc`.

    >>> import jax.numpy as jnp
    >>> p = DiagNormal(loc=jnp.zeros(2), scale=jnp.ones(2))
    >>> print(f"{p.log_prob(jnp.zeros(2)):.4f}")  # −log 2π
    -1.8379
    """

    parameter_axes: ClassVar = {"loc": 1, "scale": 1}

    loc: jax.Array
    scale: jax.Array

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one vector [d]."""
        return Normal(self.loc, self.scale).sample(key)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y, [d]."""
        return norm.logpdf(y, self.loc, self.scale).sum(-1)

    def mean(self) -> jax.Array:
        """Expectation, [d]."""
        return self.loc

    def variance(self) -> jax.Array:
        """Variance of each component, [d]."""
        return jnp.square(self.scale)

    def check_structure(self, name: str) -> None:
        """Refuses a batch whose parameters are not floating-point arrays [n, d]."""
        _checks.floating(f"{name}.loc", self.loc)
        _checks.floating(f"{name}.scale", self.scale)
        _checks.shape(f"{name}.loc", self.loc, (None, None), "[n, d]")
        _checks.shape(f"{name}.scale", self.scale, jnp.shape(self.loc), "[n, d], as loc")
        if jnp.shape(self.loc)[1] == 0:
            raise ValueError(f"{name}.loc: expected at least one dimension, got shape [n, 0]")

    def check_values(self, name: str) -> "DiagNormal":
        """Refuses non-finite means and non-positive standard deviations."""
        return _checks.replaced(
            self,
            loc=_checks.finite(f"{name}.loc", self.loc),
            scale=_checks.positive(f"{name}.scale", self.scale),
        )

    def check_targets(self, name: str, targets: jax.Array) -> jax.Array:
        """Refuses targets that are not finite vectors [n, d]."""
        targets = _checks.floating(name, targets, jnp.result_type(self.loc))
        _checks.shape(name, targets, jnp.shape(self.loc), "[n, d], as the predictions' loc")
        return _checks.finite(name, targets)
