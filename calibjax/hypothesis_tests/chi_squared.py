"""Weighted sums of independent chi-squared variables, Σ_i λ_i (z_i² − 1)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import gammaincc

from calibjax._arithmetic import matmul
from calibjax.hypothesis_tests.simulation import default_batch_size, in_batches

_NODES = 200  # of the numerical inversion
_EXPONENT = 45  # exp of minus this is nothing


class ChiSquaredSum(NamedTuple):
    """Distribution of Σ_i λ_i (z_i² − 1) with z_i ~ N(0, 1), of mean zero.

    The weights that are not listed enter together as one normal variable of their variance. For
    weights λ_r and smaller that changes the distribution function by about
    (1/15) 8 λ_r Σ_{i>r} λ_i² / σ³, σ² = 2 Σ_i λ_i², the Edgeworth term of their third cumulant.

    Attributes:
        weights: leading λ_i, [r].
        total: Σ_i λ_i of all weights.
        squares: Σ_i λ_i² of all weights.
    """

    weights: jax.Array
    total: jax.Array
    squares: jax.Array

    @property
    def rest(self) -> jax.Array:
        """Variance of the normal variable in place of the weights that are not listed."""
        return 2 * jnp.maximum(self.squares - jnp.sum(jnp.square(self.weights)), 0)


def sample(key: jax.Array, law: ChiSquaredSum, num_samples: int) -> jax.Array:
    """Independent draws, [num_samples]."""
    rank = law.weights.shape[0]

    def batch(keys: jax.Array) -> jax.Array:
        z = jax.vmap(lambda key: jax.random.normal(key, (rank + 1,), law.weights.dtype))(keys)
        return matmul(jnp.square(z[:, :-1]) - 1, law.weights) + jnp.sqrt(law.rest) * z[:, -1]

    return in_batches(key, batch, num_samples, default_batch_size(8 * (rank + 1)))


def gamma_tail(law: ChiSquaredSum, x: jax.Array) -> jax.Array:
    """P(X ≥ x) of the gamma distribution on (−Σ λ_i, ∞) with the first two moments."""
    shape = jnp.square(law.total) / (2 * law.squares)
    return _tail_of_gamma(shape, x / jnp.sqrt(2 * law.squares))


def pearson_tail(law: ChiSquaredSum, x: jax.Array) -> jax.Array:
    """P(X ≥ x) of the shifted gamma distribution (Pearson's type III) with three moments."""
    cubes = jnp.sum(law.weights**3)
    # Skewness 8 Σ λ³ / (2 Σ λ²)^(3/2), and 2 / √shape for a gamma distribution.
    shape = law.squares**3 / (2 * jnp.square(cubes))
    return _tail_of_gamma(shape, x / jnp.sqrt(2 * law.squares))


def _tail_of_gamma(shape: jax.Array, x: jax.Array) -> jax.Array:
    """P((G − a) / √a ≥ x) for G ~ Gamma(a, 1)."""
    return gammaincc(shape, jnp.maximum(shape + x * jnp.sqrt(shape), 0))


def numerical_tail(law: ChiSquaredSum, x: jax.Array) -> jax.Array:
    """P(X ≥ x) by numerical inversion of the characteristic function.

    With the cumulant generating function
    K(s) = Σ_i [−½ log(1 − 2 λ_i s) − λ_i s] + ½ v s² (v the variance of the rest),

        P(X ≥ x) = (2πi)⁻¹ ∫ exp(K(s) − s x) / s ds

    along a hyperbola that crosses the real axis at the saddle point, where K'(s) = x, and opens
    to the right around the branch cuts, so that the integrand decays exponentially whatever the
    number of weights, and small probabilities keep their digits.

    References: Rice (1980); Helstrom (1983).
    """
    sd = jnp.sqrt(2 * law.squares)
    weights, rest, x = law.weights / sd, law.rest / jnp.square(sd), x / sd
    center = _saddle_point(weights, rest, x)
    curvature = jnp.sum(2 * jnp.square(weights / (1 - 2 * weights * center))) + rest
    width = 1 / jnp.sqrt(curvature)

    # Distance from the lower end of the support, but for the rest. Below it the integrand would
    # grow to the right, so that the contour goes straight up.
    depth = x + jnp.sum(weights)
    angle = jnp.where(depth > 0, jnp.pi / 3, jnp.pi / 2)
    decay = jnp.maximum(depth, 0) * width * jnp.cos(angle)
    gaussian_decay = jnp.square(width) * rest * jnp.abs(jnp.cos(2 * angle)) / 2
    reach = jnp.minimum(_EXPONENT / decay, jnp.sqrt(_EXPONENT / gaussian_decay))
    step = jnp.arcsinh(jnp.minimum(reach, jnp.finfo(x.dtype).max ** 0.25)) / _NODES

    w = step * jnp.arange(_NODES + 1, dtype=x.dtype)
    up, right = jnp.sin(angle) * jnp.sinh(w), jnp.cos(angle) * (jnp.cosh(w) - 1)
    s = center + width * lax.complex(right, up)
    slope = width * lax.complex(jnp.cos(angle) * jnp.sinh(w), jnp.sin(angle) * jnp.cosh(w))
    scaled = 2 * weights * s[:, None]
    cumulants = jnp.sum(-jnp.log1p(-scaled) - scaled, -1) / 2 + rest * jnp.square(s) / 2
    terms = jnp.imag(jnp.exp(cumulants - s * x) / s * slope)
    tail = step / jnp.pi * (terms[0] / 2 + jnp.sum(terms[1:]))
    is_sure = (depth <= 0) & (rest <= 0) & (jnp.min(weights) >= 0)
    return jnp.where(is_sure, 1, jnp.clip(tail, 0, 1))


def _saddle_point(weights: jax.Array, rest: jax.Array, x: jax.Array) -> jax.Array:
    """Root of K'(s) = x of weights of unit variance, by bisection; away from zero in any case."""
    pole = 1 / (2 * jnp.maximum(jnp.max(weights), jnp.finfo(x.dtype).tiny))
    # The pole of the integrand is at zero, and the saddle point also if x is the mean.
    least = jnp.minimum(pole, 1) / 4
    most = jnp.minimum(jnp.maximum(x, least), pole)  # since K'(s) ≥ s

    def slope(s: jax.Array) -> jax.Array:
        return s * (jnp.sum(2 * jnp.square(weights) / (1 - 2 * weights * s)) + rest)

    def bisect(_: int, bracket: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bracket
        middle = (low + high) / 2
        beyond = slope(middle) > x
        return jnp.where(beyond, low, middle), jnp.where(beyond, middle, high)

    steps = jnp.finfo(x.dtype).nmant
    return lax.fori_loop(0, steps, bisect, (least, most))[0]
