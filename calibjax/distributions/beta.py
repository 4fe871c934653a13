"""Beta distribution of a proportion."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._pytree import parameter, record
from calibjax._special import inverse_of_cdf, log_dirichlet_density
from calibjax.distributions.base import Distribution
from calibjax.distributions.constraints import positive, proportion

_NUM_TERMS = 150  # of the continued fraction; enough for parameters up to 1e4


@jax.custom_jvp
def _cdf(alpha: jax.Array, beta: jax.Array, y: jax.Array) -> jax.Array:
    """Regularised incomplete beta function, 0 < y < 1, by its continued fraction.

    JAX's betainc computes the leading factor from log-gamma functions, which leaves two correct
    digits in float32 at parameters of 1e4.
    """
    is_upper = y * (alpha + beta + 2) > alpha + 1
    a, b = jnp.where(is_upper, beta, alpha), jnp.where(is_upper, alpha, beta)
    x, rest = jnp.where(is_upper, 1 - y, y), jnp.where(is_upper, y, 1 - y)

    def step(index: jax.Array, value: jax.Array) -> jax.Array:
        k = _NUM_TERMS - index
        odd = -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1))
        even = k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k))
        return 1 + even / (1 + odd / value)

    fraction = lax.fori_loop(0, _NUM_TERMS, step, jnp.ones_like(x))
    fraction = 1 - (a + b) * x / ((a + 1) * fraction)
    density = log_dirichlet_density(jnp.stack([a, b], -1), jnp.stack([x, rest], -1))
    tail = jnp.exp(density + jnp.log(x) + jnp.log(rest)) / (a * fraction)
    return jnp.where(is_upper, 1 - tail, tail)


@_cdf.defjvp
def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[jax.Array, jax.Array]:
    """The derivative in y is the density; differentiating the fraction overflows at small y."""
    alpha, beta, y = primals
    by_parameters = functools.partial(_cdf.fun, y=y)
    value, slope = jax.jvp(by_parameters, (alpha, beta), tangents[:2])
    density = log_dirichlet_density(jnp.stack([alpha, beta], -1), jnp.stack([y, 1 - y], -1))
    return value, slope + jnp.exp(density) * tangents[2]


@record
class Beta(Distribution):
    """Beta distribution of a proportion in [0, 1], density ∝ y^(alpha − 1) (1 − y)^(beta − 1).

    Draws are rounded to floating-point numbers, and for small parameters many are exactly 0 or 1;
    so the targets are proportions in the closed interval [0, 1]. For parameters from 0.01 to 1e4,
    absolute errors of log-densities are about 2e-14 in float64 and 6e-6 in float32, those of the
    distribution function at most 2e-13 and 1e-4 (mostly 1e-6).

    Attributes:
        alpha: first parameter, positive; scalar, or [n] for a batch.
        beta: second parameter, positive; shape of `alpha`.

    >>> import jax.numpy as jnp
    >>> p = Beta(alpha=jnp.array(2.0), beta=jnp.array(1.0))
    >>> print(f"{p.mean():.4f} {p.cdf(0.5):.4f} {p.icdf(0.25):.4f}")
    0.6667 0.2500 0.5000
    """

    support = proportion

    alpha: jax.Array = parameter(positive)
    beta: jax.Array = parameter(positive)

    def _with(self, y: ArrayLike) -> list[jax.Array]:
        dtype = jnp.result_type(self.alpha, self.beta)
        return jnp.broadcast_arrays(*(jnp.asarray(x, dtype) for x in (self.alpha, self.beta, y)))

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one proportion, from logarithms of gamma variables."""
        dtype = jnp.result_type(self.alpha, self.beta)
        return jax.random.beta(key, self.alpha, self.beta, jnp.shape(self.alpha), dtype)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y; its limit at 0 and 1, −inf outside of [0, 1]."""
        alpha, beta, y = self._with(y)
        is_inside = (y >= 0) & (y <= 1)
        point = jnp.where(is_inside, y, 0.5)
        density = log_dirichlet_density(
            jnp.stack([alpha, beta], -1), jnp.stack([point, 1 - point], -1)
        )
        return jnp.where(is_inside, density, -jnp.inf)

    def mean(self) -> jax.Array:
        """Expectation."""
        return self.alpha / (self.alpha + self.beta)

    def variance(self) -> jax.Array:
        """Variance."""
        mean = self.mean()
        return mean * (1 - mean) / (self.alpha + self.beta + 1)

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of values up to y; for parameters up to 1e4."""
        alpha, beta, y = self._with(y)
        is_inside = (y > 0) & (y < 1)
        return jnp.where(is_inside, _cdf(alpha, beta, jnp.where(is_inside, y, 0.5)), y >= 1)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Smallest floating-point number y with cdf(y) ≥ level; not differentiable."""
        return inverse_of_cdf(self.cdf, self._with(level)[2], 1)

    def tempered(self, temperature: jax.Array) -> "Beta":
        """The Beta distribution with density ∝ p^{1/T} with respect to dy / (y (1 − y))."""
        return dataclasses.replace(
            self, alpha=self.alpha / temperature, beta=self.beta / temperature
        )
