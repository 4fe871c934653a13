"""Expectations of the squared exponential kernel under normal predictions.

With D = loc_p − loc_q and variances s, s' in units of the squared length scale ℓ²,

    m_p(z) = (1 + s)^(−1/2) exp(−(z − loc_p)² / (2 ℓ² (1 + s))),
    M_{p,q} = (1 + s + s')^(−1/2) exp(−D² / (2 ℓ² (1 + s + s'))),

and products of these over independent components.

References: W21 App. D.1.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import (
    dot,
    fold,
    fold_components,
    map_components,
    reciprocal,
    safe_sqrt,
    sum_over_components,
)
from calibjax._core.pytree import PyTree
from calibjax.distances import Euclidean
from calibjax.distributions import DiagNormal, Normal
from calibjax.distributions.multivariate_normal import MvNormal
from calibjax.kernels.expectations import (
    four_terms,
    missing,
    register_expectations,
)
from calibjax.kernels.stationary import SquaredExponential, refuse_far_length_scale

# Beyond, pairs are cheaper even if the kernel on predictions has low rank.
_MAX_FREQUENCIES, _PER_FREQUENCY = 96, 16  # or one for as many samples
_STEPS_PER_OCTAVE = 3
_SMALLEST_RANGE = 2.0**-20  # of targets, in length scales; smaller ones need as many
_FEW_FEATURES = 48  # beyond, pairs are cheaper than matrix products over all of them


def _product(terms: list[jax.Array]) -> jax.Array:
    return fold(jnp.multiply, terms, 1)


def union(terms: list[jax.Array]) -> jax.Array:
    """1 − Π (1 − x_k) for x in [0, 1], without cancellation."""
    return fold(lambda a, b: a + b - a * b, terms, 0)


def _shrink(s: jax.Array, t: jax.Array) -> jax.Array:
    return 1 / (1 + s + t)


def inverse_length_scale(kernel: SquaredExponential, p: Any) -> jax.Array:
    """Inverse length scale."""
    return reciprocal(_length_scale(kernel, p))


def _length_scale(kernel: SquaredExponential, p: Normal | DiagNormal | MvNormal) -> jax.Array:
    if not isinstance(kernel.distance, Euclidean):
        raise missing(kernel, p, f" with distance {type(kernel.distance).__name__}")
    return jnp.asarray(kernel.length_scale, jnp.result_type(p.loc))


def _gaussian(rate: jax.Array, x: list[jax.Array], s: list[jax.Array]) -> jax.Array:
    """G = Π_k c_k^(1/2) exp(−c_k x_k² / (2 ℓ²)) with c_k = 1 / (1 + s_k)."""
    if x[0].size == 1:
        return _gaussian_of_few(rate, x, s)
    square = sum_over_components(lambda d, e: jnp.square(d * rate) / (1 + e), x[0], s[0])
    shrink = fold_components(jnp.multiply, 1, lambda e: 1 / (1 + e), s[0])
    return safe_sqrt(shrink) * jnp.exp(-0.5 * square)


@jax.custom_jvp
def _gaussian_of_few(rate: jax.Array, x: list[jax.Array], s: list[jax.Array]) -> jax.Array:
    """`_gaussian` of components one by one."""
    shrink = [reciprocal(1 + excess) for excess in s]
    squares = [jnp.square(d * rate) for d in x]
    exponent = dot(squares, [-0.5 * c for c in shrink])
    return safe_sqrt(_product(shrink)) * jnp.exp(exponent)


@_gaussian_of_few.defjvp
def _gaussian_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    """The change of G, where r = 1 / ℓ, z_k = r x_k and a_k = G c_k z_k.

        dG = Σ_k [−r a_k dx_k + c_k (a_k z_k − G) ds_k / 2 − a_k x_k dr].

    Differentiating G step by step takes twice as many operations. All products begin with G, which
    is zero where x is so large that others overflow.
    """
    (rate, x, s), (d_rate, dx, ds) = primals, tangents
    value = _gaussian_of_few(rate, x, s)
    shrink = [reciprocal(1 + excess) for excess in s]
    z = [d * rate for d in x]
    a = [value * c * d for c, d in zip(shrink, z, strict=True)]
    by_x = [-rate * b for b in a]
    by_s = [0.5 * c * (b * d - value) for c, b, d in zip(shrink, a, z, strict=True)]
    return value, dot(by_x, dx) + dot(by_s, ds) - dot(a, x) * d_rate


def _excess(rate: jax.Array, p: Normal | DiagNormal) -> list[jax.Array]:
    """Variances in units of the squared length scale."""
    return map_components(lambda scale: jnp.square(scale * rate), p.scale)


def _single(kernel: SquaredExponential, p: Normal | DiagNormal, z: ArrayLike) -> jax.Array:
    rate = inverse_length_scale(kernel, p)
    return _gaussian(rate, map_components(jnp.subtract, z, p.loc), _excess(rate, p))


def _double(
    kernel: SquaredExponential, p: Normal | DiagNormal, q: Normal | DiagNormal
) -> jax.Array:
    rate = inverse_length_scale(kernel, p)
    s = map_components(jnp.add, _excess(rate, p), _excess(rate, q))
    return _gaussian(rate, map_components(jnp.subtract, p.loc, q.loc), s)


def _centered(
    kernel: SquaredExponential,
    p: Normal | DiagNormal,
    y: ArrayLike,
    q: Normal | DiagNormal,
    z: ArrayLike,
) -> jax.Array:
    is_double = jnp.result_type(p.loc) == jnp.float64  # where the four terms are accurate enough
    return (four_terms if is_double else centered_without_offset)(kernel, p, y, q, z)


@jax.custom_jvp
def centered_without_offset(
    kernel: SquaredExponential,
    p: Normal | DiagNormal,
    y: ArrayLike,
    q: Normal | DiagNormal,
    z: ArrayLike,
) -> jax.Array:
    """Centered kernel whose rounding errors have mean zero.

    Write K, P, Q, M for the four exponentials without their leading factors, and 1 − a and 1 − b
    for the factors of P and Q. Then

        k − m_p − m_q + M = (K − P) − (Q − M) + a (P − M) + b (Q − M) + c M,

    where c is the small rest. The rounded constants a, b and the shrinkage s / (1 + s) in the
    exponents enter several terms that cancel on average. So they leave no offset (1e-11 for W21's
    model in float32), in contrast to the plain sum of the four terms (2e-8).
    """
    rate = inverse_length_scale(kernel, p)
    s, t = (jnp.square(x.scale * rate) for x in (p, q))
    a, b = (-jnp.expm1(-0.5 * sum_over_components(jnp.log1p, x)) for x in (s, t))
    u, v = s / (1 + s), t / (1 + t)
    largest = jnp.finfo(rate.dtype).max / 8  # differences of infinities would be NaN

    def exponential(
        shrunk: Callable[..., jax.Array], x: ArrayLike, y: ArrayLike, *rest: jax.Array
    ) -> jax.Array:
        def term(x: jax.Array, y: jax.Array, *rest: jax.Array) -> jax.Array:
            return shrunk(jnp.minimum(jnp.square((x - y) * rate), largest), *rest)

        return jnp.exp(-0.5 * sum_over_components(term, x, y, *rest))

    big_k = exponential(lambda d: d, y, z)
    big_p = exponential(lambda d, u: d - u * d, z, p.loc, u)
    big_q = exponential(lambda d, v: d - v * d, y, q.loc, v)

    def shrunk_twice(
        d: jax.Array, s: jax.Array, t: jax.Array, u: jax.Array, v: jax.Array
    ) -> jax.Array:
        # w = 1 − u − v + u v (1 + w); the small terms are added first, or they would be lost.
        return d - (u * d + (v * d - u * v * (1 + _shrink(s, t)) * d))

    big_m = exponential(shrunk_twice, p.loc, q.loc, s, t, u, v)
    # Π w^(1/2) = (1 − a) (1 − b) / (1 − r), with 1 − r = Π (1 − u v)^(1/2)
    gap = fold_components(lambda a, b: a + b - a * b, 0, jnp.multiply, u, v)
    r = gap / (1 + safe_sqrt(1 - gap))
    c = a * b + safe_sqrt(fold_components(jnp.multiply, 1, _shrink, s, t)) * r
    small = a * (big_p - big_m) + b * (big_q - big_m) + c * big_m
    return ((big_k - big_p) - (big_q - big_m)) + small


@centered_without_offset.defjvp
def _centered_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    """The derivative of the four terms, which takes half as many operations.

    It is the same but for rounding errors, which matter less in a gradient than in a test.
    """

    def plain(kernel: Any, p: Any, y: ArrayLike, q: Any, z: ArrayLike) -> jax.Array:
        difference = map_components(jnp.subtract, y, z)
        rate, nothing = inverse_length_scale(kernel, p), [jnp.zeros_like(x) for x in difference]
        value = _gaussian(rate, difference, nothing)  # finite where the kernel's slope is not
        return value - (_single(kernel, p, z) + _single(kernel, q, y)) + _double(kernel, p, q)

    return centered_without_offset(*primals), jax.jvp(plain, primals, tangents)[1]


def _prepare_features(
    kernel: SquaredExponential, predictions: Normal, targets: jax.Array
) -> tuple[jax.Array, jax.Array] | None:
    """Frequencies of a trapezoidal rule for the spectral density of the kernel.

    Aliasing and truncation errors are below machine precision for targets within the range of the
    observed targets and of five standard deviations around the predictions; beyond, they grow
    more slowly than the probability of such targets decreases.
    """
    if not isinstance(kernel.distance, Euclidean):
        raise missing(kernel, predictions, f" with distance {type(kernel.distance).__name__}")
    if not checks.is_concrete(kernel, predictions, targets):
        return None
    # NumPy computes: the data may be known while a random key is traced.
    rate = 1 / float(np.asarray(kernel.length_scale, predictions.loc.dtype))
    loc, scale, y = (np.asarray(x, float) for x in (predictions.loc, predictions.scale, targets))
    low = min(float((loc - 5 * scale).min()), float(y.min()))
    high = max(float((loc + 5 * scale).max()), float(y.max()))
    # Ranges that are rounded up to few different ones: other data of the same kind have as many
    # frequencies, and compile nothing anew. The steps suit length scales in powers of two.
    range_ = max((high - low) * rate, _SMALLEST_RANGE)
    steps = math.ceil(_STEPS_PER_OCTAVE * math.log2(range_))
    width = 2.0 ** (steps / _STEPS_PER_OCTAVE)
    cutoff = np.sqrt(-2 * np.log(np.finfo(predictions.loc.dtype).eps / 4))
    needed = cutoff * (width + cutoff) / (2 * np.pi)
    if not needed <= max(_MAX_FREQUENCIES, y.shape[0] // _PER_FREQUENCY):
        return None
    number = 2 * int(np.ceil(needed / 2))  # few different shapes: few compilations
    cutoff = (np.sqrt(width**2 + 8 * np.pi * number) - width) / 2
    spacing = 2 * np.pi / (width + cutoff)
    numbers = (low + high) / 2, spacing * np.arange(1, number + 1)
    center, frequencies = (jnp.asarray(np.asarray(x, predictions.loc.dtype)) for x in numbers)
    return center, frequencies


def _features(kernel: SquaredExponential, prepared: tuple, p: Normal, y: jax.Array) -> jax.Array:
    """Real and imaginary parts of exp(iωy) − E exp(iωY) at the frequencies ω, [2 K].

    Of targets [b, n] of n predictions they are [2 K, b, n]. The frequencies are multiples of one,
    so that exp(i(k + 1)θ) = exp(ikθ) exp(iθ) replaces sines and cosines, which compilers for CPUs
    do not vectorise.
    """
    center, frequencies = prepared
    rate = inverse_length_scale(kernel, p)
    s = jnp.square(p.scale * rate)
    spacing = frequencies[0]
    # exp(iωy) − φ(ω) = exp(iω loc) [exp(iω (y − loc)) − exp(−s ω² / 2)]
    half = 0.5 * spacing * ((y - p.loc) * rate)
    phase = spacing * ((p.loc - center) * rate)
    first = jnp.cos(half), jnp.sin(half), jnp.cos(phase), jnp.sin(phase)

    def step(state: tuple[jax.Array, ...], frequency: jax.Array) -> tuple[PyTree, PyTree]:
        cosine, sine, cos, sin = state
        square = jnp.square(frequency)
        weight = jnp.sqrt(2 * spacing / math.sqrt(2 * math.pi)) * jnp.exp(-0.25 * square)
        real = weight * (-2 * jnp.square(sine) - jnp.expm1(-0.5 * s * square))
        imag = weight * (2 * sine * cosine)
        following = *_complex_product(state[:2], first[:2]), *_complex_product(state[2:], first[2:])
        return following, (cos * real - sin * imag, sin * real + cos * imag)

    return jnp.concatenate(lax.scan(step, first, frequencies, unroll=2)[1])


def _complex_product(x: tuple, y: tuple) -> tuple[jax.Array, jax.Array]:
    """Product of two complex numbers (real, imaginary)."""
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def _check(kernel: SquaredExponential, predictions: Normal | DiagNormal) -> None:
    refuse_far_length_scale(kernel, predictions.scale)


register_expectations(
    SquaredExponential,
    Normal,
    single=_single,
    double=_double,
    centered=_centered,
    features=(_prepare_features, _features, _FEW_FEATURES, _features),
    check=_check,
)
register_expectations(
    SquaredExponential,
    DiagNormal,
    single=_single,
    double=_double,
    centered=_centered,
    check=_check,
)
