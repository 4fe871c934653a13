"""Expectations under Poisson predictions.

White kernel: m_p(z) is the probability of z, and

    M_{p,q} = exp(−(√λ − √λ')²) I₀ᵉ(2 √(λ λ')),   I₀ᵉ(x) = exp(−x) I₀(x).

Squared exponential kernel: counts are integers, on which the kernel is a Fourier integral over one
period, k(d) = (2π)⁻¹ ∫_{−π}^{π} ϑ(w) cos(w d) dw with ϑ(w) = Σ_d k(d) cos(w d), and the
characteristic function of a Poisson distribution is exp(λ (e^{iw} − 1)). Hence

    M_{p,q} = π⁻¹ ∫_0^π ϑ(w) exp(−(λ + λ') (1 − cos w)) cos((λ − λ') sin w) dw,
    m_p(z) = π⁻¹ ∫_0^π ϑ(w) exp(−λ (1 − cos w)) cos(λ sin w − w z) dw.

The trapezoidal rule for such an integral is exact up to aliasing: with N nodes per period it
gives the sum of the expectations of k(d + N m) over all integers m. N is chosen from the variance
λ + λ' + ℓ² such that probabilities beyond N / 2 are below e⁻²¹, and frequencies where the
integrand is below e⁻²¹ are left out. Then 31 nodes suffice for all rates and length scales.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._core import checks
from calibjax._core.arithmetic import matmul
from calibjax._core.pytree import PyTree
from calibjax.distances import Euclidean
from calibjax.distributions import Poisson
from calibjax.kernels.base import Kernel
from calibjax.kernels.expectations import missing, register_expectations
from calibjax.kernels.labels import White
from calibjax.kernels.matrix import gram_matrix
from calibjax.kernels.stationary import SquaredExponential

_NUM_NODES = 31
_MAX_COUNTS = 128  # with more, matrix products are no faster than pairs
_EXPONENT = 21.0  # e⁻²¹ bounds the omitted part


def _white_single(kernel: White, p: Poisson, z: jax.Array) -> jax.Array:
    del kernel
    return jnp.exp(p.log_prob(z))


def _white_double(kernel: White, p: Poisson, q: Poisson) -> jax.Array:
    del kernel
    one, two = jnp.sqrt(p.rate), jnp.sqrt(q.rate)
    return jnp.exp(-jnp.square(one - two)) * jax.scipy.special.i0e(2 * one * two)


def _length_scale(kernel: SquaredExponential, p: Poisson) -> jax.Array:
    if not isinstance(kernel.distance, Euclidean):
        raise missing(kernel, p, f" with distance {type(kernel.distance).__name__}")
    return jnp.asarray(kernel.length_scale, jnp.result_type(p.rate))


def _reach(length_scale: jax.Array, variance: jax.Array) -> jax.Array:
    """Half a period, N / 2, by Bernstein's inequality for sums of Poisson variables."""
    total = lax.stop_gradient(variance + jnp.square(length_scale))
    third = _EXPONENT / 3
    return jnp.ceil(third + jnp.sqrt(third**2 + 2 * _EXPONENT * total))


def _weight(
    length_scale: jax.Array, variance: jax.Array, reach: jax.Array, node: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Frequency w = node π / reach, sin(w / 2), and the weight ϑ(w) exp(−variance (1 − cos w)).

    ϑ(w) is computed as the sum that defines it for ℓ < 2, as √(2π) ℓ exp(−ℓ² w² / 2) for ℓ ≥ 2.
    """
    is_short = length_scale < 2
    short, long = jnp.where(is_short, length_scale, 1), jnp.where(is_short, 0, length_scale)
    w = jnp.minimum(node / reach, 1) * math.pi
    half_sine = jnp.sin(0.5 * w)
    cosine = 1 - 2 * jnp.square(half_sine)
    terms = 2 * jnp.exp(-0.5 * jnp.square(jnp.arange(1, 13) / short))
    following, current = 0, 0  # Clenshaw's recurrence
    for term in terms[::-1]:
        following, current = current, term + 2 * cosine * current - following
    factor = jnp.where(is_short, 1 + cosine * current - following, math.sqrt(2 * math.pi) * long)
    decay = jnp.exp((cosine - 1) * variance - 0.5 * jnp.square(long * w))
    ends = jnp.where((node == 0) | (node == reach), 0.5, 1)
    return w, half_sine, jnp.where(node <= reach, ends / reach, 0) * decay * factor


def _sine_rest(w: jax.Array) -> jax.Array:
    """The difference w − sin w, without cancellation for small w."""
    square = jnp.square(jnp.where(w < 1, w, 0))
    series = jnp.zeros_like(w)
    for k in range(8, 0, -1):
        series = (1 - series) * square / (2 * k * (2 * k + 1))
    return jnp.where(w < 1, w * series, w - jnp.sin(w))


def _single(kernel: SquaredExponential, p: Poisson, z: jax.Array) -> jax.Array:
    """Σ_j a_j cos(w_j (λ − z) − λ (w_j − sin w_j)), as a polynomial in exp(i w_1 (λ − z))."""
    length_scale = _length_scale(kernel, p)
    reach = _reach(length_scale, p.rate)
    w, _, weights = _weight(length_scale, p.rate, reach, jnp.arange(_NUM_NODES))
    phases = p.rate * _sine_rest(w)
    coefficients = weights * jnp.cos(phases), -weights * jnp.sin(phases)
    difference = p.rate - z
    is_near = jnp.abs(difference) <= reach
    angle = jnp.where(is_near, difference, 0) * (math.pi / reach)
    cosine, sine = jnp.cos(angle), jnp.sin(angle)

    def horner(value: tuple, coefficient: tuple) -> tuple[tuple, None]:
        (real, imag), (a, b) = value, coefficient
        return (real * cosine - imag * sine + a, real * sine + imag * cosine + b), None

    zero = jnp.zeros_like(angle)
    (real, _), _ = lax.scan(horner, (zero, zero), coefficients, reverse=True)
    return jnp.where(is_near, real, 0)


def _double(kernel: SquaredExponential, p: Poisson, q: Poisson) -> jax.Array:
    length_scale, variance = _length_scale(kernel, p), p.rate + q.rate
    reach = _reach(length_scale, variance)
    difference = p.rate - q.rate
    is_near = jnp.abs(difference) <= reach
    difference = jnp.where(is_near, difference, 0)

    def add(node: jax.Array, total: jax.Array) -> jax.Array:
        _, half_sine, weight = _weight(length_scale, variance, reach, node)
        sine = 2 * half_sine * jnp.sqrt(1 - jnp.square(half_sine))
        return total + weight * jnp.cos(difference * sine)

    total = lax.fori_loop(0, _NUM_NODES, add, jnp.zeros_like(difference))
    return jnp.where(is_near, total, 0)


def _prepare_features(kernel: Kernel, predictions: Poisson, targets: jax.Array) -> PyTree:
    """Square root R of the kernel matrix K = R Rᵀ of all relevant counts, if these are few."""
    if not checks.is_concrete(kernel, predictions, targets):
        return None
    rate = float(np.asarray(predictions.rate).max())
    third = -np.log(np.finfo(predictions.rate.dtype).eps) / 3
    largest = rate + third + np.sqrt(third**2 + 6 * third * rate)  # exceeded with probability < ε
    size = int(max(largest, float(np.asarray(targets).max()))) + 2
    if size > _MAX_COUNTS:
        return None
    matrix = gram_matrix(kernel, jnp.arange(size)).astype(predictions.rate.dtype)
    eigenvalues, vectors = jnp.linalg.eigh(matrix)
    return vectors * jnp.sqrt(jnp.maximum(eigenvalues, 0))


def _features(kernel: Kernel, root: jax.Array, p: Poisson, y: jax.Array) -> jax.Array:
    """The count y as a unit vector minus the probabilities of all counts, times the root."""
    del kernel
    counts = jnp.arange(root.shape[0])
    return matmul((counts == y) - jnp.exp(p.log_prob(counts)), root)


_FEATURES = (_prepare_features, _features)
register_expectations(
    White, Poisson, single=_white_single, double=_white_double, features=_FEATURES
)
register_expectations(
    SquaredExponential, Poisson, single=_single, double=_double, features=_FEATURES
)
