"""Weighted sums of independent chi-squared variables, Σ_i λ_i (z_i² − 1)."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import gammaincc
from jax.scipy.stats import norm

_LARGE_SHAPE = {4: 1e3, 8: 1e4}  # of gamma distributions, by item size
_NODES, _STEP = 240, 1 / 16  # of the numerical inversion: from 1 to sinh(15) = 2e6 widths


class ChiSquaredSum(NamedTuple):
    """Distribution of Σ_i λ_i (z_i² − 1) with z_i ~ N(0, 1), which has mean zero.

    The weights that are not listed are represented by one normal variable of the same variance.

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
        """Variance of the normal variable that represents the weights that are not listed."""
        return 2 * jnp.maximum(self.squares - jnp.sum(jnp.square(self.weights)), 0)


@jax.jit
def gamma_tail(law: ChiSquaredSum, x: jax.Array) -> jax.Array:
    """P(X ≥ x) for the gamma distribution on (−Σ λ_i, ∞) with the same first two moments."""
    shape = jnp.square(law.total) / (2 * law.squares)
    return _tail_of_gamma(shape, x / jnp.sqrt(2 * law.squares))


@jax.jit
def pearson_tail(law: ChiSquaredSum, x: jax.Array) -> jax.Array:
    """P(X ≥ x) for the shifted gamma distribution (Pearson type III) with equal three moments."""
    # The skewness is 8 Σ λ³ / (2 Σ λ²)^(3/2), that of a gamma distribution 2 / √shape.
    cubes = jnp.sum((law.weights / jnp.sqrt(law.squares)) ** 3)
    shape = 1 / (2 * jnp.square(cubes))
    return _tail_of_gamma(shape, x / jnp.sqrt(2 * law.squares))


def _tail_of_gamma(shape: jax.Array, x: jax.Array) -> jax.Array:
    """P((G − a) / √a ≥ x) for G ~ Gamma(a, 1)."""
    root, large = jnp.sqrt(shape), _LARGE_SHAPE[shape.dtype.itemsize]
    small = jnp.minimum(shape, large)
    tail = gammaincc(small, jnp.maximum(small + x * jnp.sqrt(small), 0))
    # For larger shapes the incomplete gamma function loses its digits, and the cube root is normal
    # up to terms of order 1 / a (Wilson and Hilferty).
    cube_root = jnp.expm1(jnp.log1p(jnp.maximum(x / root, -1)) / 3)
    normal = norm.sf(3 * root * (cube_root + 1 / (9 * shape)))
    return jnp.where(shape > large, normal, tail)


@functools.partial(jax.jit, static_argnames="copies")
def numerical_tail(law: ChiSquaredSum, x: jax.Array, *, copies: int = 1) -> jax.Array:
    """P(X ≥ x) of the sum X of c copies, by numerical inversion of the characteristic function.

    With the cumulant generating function
    K(s) = c Σ_i [−½ log(1 − 2 λ_i s) − λ_i s] + ½ v s² (v the variance of the rest),

        P(X ≥ x) = (2πi)⁻¹ ∫ exp(K(s) − s x) / s ds   (+ 1 where the path is left of zero)

    along a hyperbola that crosses the real axis at the saddle point, K'(ŝ) = x, with the curvature
    of the path of steepest descent there. The more skewed the distribution, the more the path bends
    around the branch cuts s ≥ 1 / (2 λ_i), so that the integrand decays fast for any number of
    weights, and small probabilities have a small relative error.

    References: Rice (1980); Helstrom (1983).
    """
    sd = jnp.sqrt(2 * copies * law.squares)
    weights, rest, x = law.weights / sd, copies * law.rest / jnp.square(sd), x / sd
    center = _saddle_point(weights, rest, x, copies)
    ratios = weights / (1 - 2 * weights * center)
    curvature = 2 * copies * jnp.sum(jnp.square(ratios)) + rest
    width = 1 / jnp.sqrt(curvature)
    # cos α / sin² α = skewness / 3, where the skewness is between 0 and 2 √2, hence α > π/4.
    bend = 8 * copies * jnp.sum(ratios**3) * width**3 / 3
    cosine = 2 * bend / (1 + jnp.sqrt(1 + 4 * jnp.square(bend)))
    sine = jnp.sqrt(1 - jnp.square(cosine))

    w = _STEP * jnp.arange(_NODES + 1, dtype=x.dtype)
    s = center + width * lax.complex(cosine * (jnp.cosh(w) - 1), sine * jnp.sinh(w))
    slope = width * lax.complex(cosine * jnp.sinh(w), sine * jnp.cosh(w))
    scaled = 2 * weights * s[:, None]
    cumulants = copies * jnp.sum(-jnp.log1p(-scaled) - scaled, -1) / 2 + rest * jnp.square(s) / 2
    terms = jnp.imag(jnp.exp(cumulants - s * x) / s * slope)
    integral = _STEP / jnp.pi * (terms[0] / 2 + jnp.sum(terms[1:]))
    tail = jnp.where(center < 0, 1 + integral, integral)
    end = (1 - 100 * jnp.finfo(x.dtype).eps) * copies * jnp.sum(weights)
    below_support = (x <= -end) & (rest <= 0)
    return jnp.where(below_support, 1, jnp.clip(tail, 0, 1))


def _saddle_point(weights: jax.Array, rest: jax.Array, x: jax.Array, copies: int) -> jax.Array:
    """Root of K'(s) = x for weights of unit variance, moved away from zero if it is close."""
    eps, tiny = jnp.finfo(x.dtype).eps, jnp.finfo(x.dtype).tiny
    pole = 1 / (2 * jnp.maximum(jnp.max(weights, initial=0), tiny))

    def point(u: jax.Array) -> jax.Array:
        # K'(s) ≥ s, so that 0 ≤ s ≤ x for x ≥ 0, and s ≤ x otherwise.
        return jnp.where(x >= 0, u * jnp.minimum(x, pole), x * jnp.exp(-u * jnp.log(eps)))

    def slope(s: jax.Array) -> jax.Array:
        return s * (2 * copies * jnp.sum(jnp.square(weights) / (1 - 2 * weights * s)) + rest)

    def bisect(_: int, bracket: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bracket
        middle = (low + high) / 2
        beyond = jnp.abs(slope(point(middle))) > jnp.abs(x)
        return jnp.where(beyond, low, middle), jnp.where(beyond, middle, high)

    bracket = jnp.zeros_like(x), jnp.ones_like(x)
    root = point(lax.fori_loop(0, jnp.finfo(x.dtype).nmant, bisect, bracket)[0])
    # The integrand has a pole at zero, which is the saddle point if x is the mean.
    least = jnp.minimum(pole, 1) / 4
    return jnp.where(jnp.abs(root) < least, least, root)
