"""Features of the squared exponential kernel under any family with a characteristic function.

For all numbers y and z within a range of W length scales

    exp(−(y − z)² / (2 ℓ²)) = Σ_{k ≥ 0} c_k cos(k s (y − z) / ℓ)

with spacing s = 2π / (W + c) and c_k = 2 s (2π)^(−1/2) exp(−(k s)² / 2), half of it for k = 0, up
to an error ε for c = (−2 log(ε / 4))^½ (Poisson's summation formula). The next copy of the kernel
is W + c away, and at the last frequency the spectrum is below ε. The features of a sample are

    c_k^½ [exp(i t_k y) − E exp(i t_k Z)],   t_k = k s / ℓ,   k = 1, 2, …,

real and imaginary parts. They need only the characteristic function of the family. The range
contains the targets, and all but ε of the predicted probability.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, matmul, reciprocal
from calibjax._core.pytree import PyTree, record
from calibjax.distances import Euclidean
from calibjax.distributions import (
    Ensemble,
    Gamma,
    Laplace,
    Mixture,
    NegativeBinomial,
    Normal,
    Poisson,
    Uniform,
)
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.distributions.composed import bare
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.kernels.base import Conditional
from calibjax.kernels.expectations import (
    Features,
    few_features,
    length_scale,
    missing,
    register_expectations,
)
from calibjax.kernels.stationary import SquaredExponential

# Frequencies beyond which pairs in closed form are cheaper, even with kernels on predictions of low
# rank: as many, or one for so many samples. All pairs of two mixtures or ensembles are not.
_FEW, _PER_FREQUENCY, _MANY = 96, 16, 2048
_STEPS_PER_OCTAVE = 3
_SMALLEST_RANGE = 2.0**-20  # of targets, in length scales; smaller ones need as many

Complex = tuple[jax.Array, jax.Array]  # real and imaginary part


class Transform(NamedTuple):
    """What the features need of a family.

    Attributes:
        excess: (p, c, t) → E exp(it (Z − c)) − 1 with the mean c, real and imaginary part, without
            cancellation for narrow distributions.
        reach: (p, ε) → ends of an interval that holds all but about ε of each of n distributions,
            [n] each; of arrays of NumPy.
    """

    excess: Callable[[Any, jax.Array, jax.Array], Complex]
    reach: Callable[[Any, float], tuple[Any, Any]]


def _exp_minus_one(real: jax.Array, imag: jax.Array) -> Complex:
    """exp(a + ib) − 1 = (e^a − 1) cos b − 2 sin²(b / 2) + i e^a sin b."""
    decay = jnp.expm1(real)
    sine = jnp.sin(0.5 * imag)
    return decay - 2 * jnp.square(sine) * (1 + decay), (1 + decay) * jnp.sin(imag)


def sine_rest(x: jax.Array) -> jax.Array:
    """The difference x − sin x, without cancellation for small x."""
    square = jnp.square(jnp.where(jnp.abs(x) < 1, x, 0))
    series = jnp.zeros_like(x)
    for k in range(8, 0, -1):
        series = (1 - series) * square / (2 * k * (2 * k + 1))
    return jnp.where(jnp.abs(x) < 1, x * series, x - jnp.sin(x))


def _laplace(p: Laplace, c: jax.Array, t: jax.Array) -> Complex:
    del c
    square = jnp.square(p.scale * t)
    return -square / (1 + square), jnp.zeros_like(square)


def _uniform(p: Uniform, c: jax.Array, t: jax.Array) -> Complex:
    del c
    half = 0.5 * (p.high - p.low) * t
    is_zero = half == 0
    value = jnp.where(is_zero, 0, -sine_rest(half) / jnp.where(is_zero, 1, half))
    return value, jnp.zeros_like(value)


def _gamma(p: Gamma, c: jax.Array, t: jax.Array) -> Complex:
    """(1 − it / rate)^−α exp(−it α / rate)."""
    del c
    x, alpha = t / p.rate, p.concentration
    return _exp_minus_one(-0.5 * alpha * jnp.log1p(x * x), -alpha * (x - jnp.arctan(x)))


def _poisson(p: Poisson, c: jax.Array, t: jax.Array) -> Complex:
    del c
    return _exp_minus_one(-2 * p.rate * jnp.square(jnp.sin(0.5 * t)), -p.rate * sine_rest(t))


def _negative_binomial(p: NegativeBinomial, c: jax.Array, t: jax.Array) -> Complex:
    """(1 − (m / k) (e^{it} − 1))^−k e^{−itm}."""
    del c
    ratio = p.mean_ / p.concentration
    real, imag = 1 + 2 * ratio * jnp.square(jnp.sin(0.5 * t)), -ratio * jnp.sin(t)
    grown = 4 * ratio * (1 + ratio) * jnp.square(jnp.sin(0.5 * t))  # of the squared modulus
    angle = -p.concentration * jnp.arctan2(imag, real) - p.mean_ * t
    return _exp_minus_one(-0.5 * p.concentration * jnp.log1p(grown), angle)


def _center(p: Any) -> jax.Array:
    return getattr(p, "draws", p).mean()


def _ensemble(p: Ensemble, c: jax.Array, t: jax.Array) -> Complex:
    away = jnp.where(p.probs > 0, p.values.astype(p.probs.dtype) - c, 0)
    real, imag = _exp_minus_one(jnp.zeros_like(away), t * away)
    return matmul(p.probs, real), matmul(p.probs, imag)


def _reach_of_draws(p: Ensemble, error: float) -> tuple[Any, Any]:
    del error
    return p.values.min(1), p.values.max(1)


def _reach_with_draws(p: MonteCarlo, error: float) -> tuple[Any, Any]:
    """Also of the distribution, from which targets are drawn."""
    inner = bare(p.distribution)
    low, high = _reach_of_draws(p.draws, error)
    least, most = transform_of(inner).reach(inner, error)
    return np.minimum(low, least), np.maximum(high, most)


def _mixture(p: Mixture, c: jax.Array, t: jax.Array) -> Complex:
    """Σ_k w_k [exp(it (c_k − c)) (1 + excess_k) − 1]."""
    excess, centers = transform_of(p.components).excess, jax.vmap(_center)(p.components)
    real, imag = _exp_minus_one(jnp.zeros_like(centers), t * (centers - c))
    x, y = jax.vmap(excess, (0, 0, None))(p.components, centers, t)
    total = real + x + (real * x - imag * y), imag + y + (real * y + imag * x)
    return matmul(p.mixing_probs, total[0]), matmul(p.mixing_probs, total[1])


def _reach_of_mixture(p: Mixture, error: float) -> tuple[Any, Any]:
    low, high = transform_of(p.components).reach(p.components, error)
    return low.min(-1), high.max(-1)


def _tails(center: Any, scale: Any, error: float) -> tuple[Any, Any]:
    """Ends of an interval beyond which exp(−|z − c| / scale) is below √ε.

    What matters is how far apart two numbers are: both ends are exceeded with probability ε only.
    """
    width = -0.5 * math.log(error) * scale
    return center - width, center + width


def _upper_tail(mean: Any, dispersion: Any, scale: Any, error: float) -> tuple[Any, Any]:
    """From zero to Bernstein's bound of a variable with an exponential tail.

    Its variance is the mean times the dispersion.
    """
    logarithm = -math.log(error)
    bound = mean + logarithm * scale + np.sqrt(2 * logarithm * mean * dispersion)
    return np.zeros_like(mean), bound


def _reach_of_negative_binomial(p: NegativeBinomial, error: float) -> tuple[Any, Any]:
    dispersion = 1 + p.mean_ / p.concentration
    return _upper_tail(p.mean_, dispersion, dispersion, error)


_TRANSFORMS: dict[type, Transform] = {
    # Five standard deviations, since the features of what is beyond have decayed.
    Normal: Transform(
        lambda p, c, t: (jnp.expm1(-0.5 * jnp.square(p.scale * t)), jnp.zeros_like(c * t)),
        lambda p, error: (p.loc - 5 * p.scale, p.loc + 5 * p.scale),
    ),
    Laplace: Transform(_laplace, lambda p, error: _tails(p.loc, p.scale, error)),
    Uniform: Transform(_uniform, lambda p, error: (p.low, p.high)),
    Gamma: Transform(
        _gamma,
        lambda p, error: _upper_tail(p.concentration / p.rate, 1 / p.rate, 1 / p.rate, error),
    ),
    Poisson: Transform(_poisson, lambda p, error: _upper_tail(p.rate, 1, 1 / 3, error)),
    NegativeBinomial: Transform(_negative_binomial, _reach_of_negative_binomial),
    Ensemble: Transform(_ensemble, _reach_of_draws),
    MonteCarlo: Transform(lambda p, c, t: _ensemble(p.draws, c, t), _reach_with_draws),
    Mixture: Transform(_mixture, _reach_of_mixture),
}


def transform_of(p: Distribution) -> Transform:
    """The transform of a family."""
    return next(_TRANSFORMS[kind] for kind in type(p).__mro__ if kind in _TRANSFORMS)


def _has_different_draws(p: Ensemble) -> bool:
    """Whether no ensemble comes twice: pairs of a draw with itself are left out in both."""
    return p.index is None or len(np.unique(p.index)) == len(p.index)


def has_transform(p: Any) -> bool:
    """Whether the characteristic function of these predictions of numbers is known."""
    if has_class_probs(p):
        return False
    if isinstance(p, Mixture):
        return not isinstance(p.components, Mixture) and has_transform(p.components)
    draws = getattr(p, "draws", p)
    if isinstance(draws, Ensemble):
        is_known = jnp.ndim(draws.values) == 2 and _has_different_draws(draws)
        return is_known and (draws is p or has_transform(bare(p.distribution)))
    return any(kind in _TRANSFORMS for kind in type(p).__mro__)


def _prepare(
    kernel: SquaredExponential, predictions: Any, targets: Any, *, most: int = _MANY
) -> tuple[np.ndarray, ...] | None:
    """The middle of the range, and frequencies t_k ℓ; None if they are too many.

    Errors are below machine precision for targets within the range of the observed ones and of the
    predictions; beyond, they grow more slowly than the probability of such targets decreases.
    """
    is_known = checks.is_concrete(kernel, predictions, targets)
    if not is_known or not isinstance(kernel.distance, Euclidean) or not has_transform(predictions):
        return None
    # NumPy computes: the data may be known while a random key is traced.
    rate, dtype = 1 / float(length_scale(kernel, predictions)), floating_dtype(predictions)
    numbers = jax.tree.map(lambda x: np.asarray(x, float), predictions)
    y, epsilon = np.asarray(targets, float), float(np.finfo(dtype).eps)
    ends = transform_of(predictions).reach(numbers, epsilon)
    low, high = min(float(ends[0].min()), float(y.min())), max(float(ends[1].max()), float(y.max()))
    # Ranges that are rounded up to few different ones: other data of the same kind have as many
    # frequencies, and compile nothing anew. The steps suit length scales in powers of two.
    steps = math.ceil(_STEPS_PER_OCTAVE * math.log2(max((high - low) * rate, _SMALLEST_RANGE)))
    width = 2.0 ** (steps / _STEPS_PER_OCTAVE)
    cutoff = math.sqrt(-2 * math.log(epsilon / 4))
    needed = cutoff * (width + cutoff) / (2 * math.pi)
    if not needed <= max(most, y.shape[0] // _PER_FREQUENCY):
        return None
    number = 2 * math.ceil(needed / 2)  # few different shapes: few compilations
    cutoff = (math.sqrt(width**2 + 8 * math.pi * number) - width) / 2
    frequencies = 2 * math.pi / (width + cutoff) * np.arange(1, number + 1)
    return tuple(np.asarray(x, dtype) for x in ((low + high) / 2, frequencies))


def _view(kernel: SquaredExponential, prepared: tuple, p: Any) -> tuple[jax.Array, Complex]:
    """The center of a prediction, and its excesses at all frequencies, [K] each."""
    rate = reciprocal(jnp.asarray(length_scale(kernel, p)))
    c, excess = _center(p), transform_of(p).excess
    return c, lax.map(lambda frequency: excess(p, c, frequency * rate), prepared[1])


def _weight(spacing: jax.Array, frequency: jax.Array) -> jax.Array:
    """c_k^½."""
    return jnp.sqrt(2 * spacing / math.sqrt(2 * math.pi)) * jnp.exp(-0.25 * jnp.square(frequency))


def _features(
    kernel: SquaredExponential, prepared: tuple, view: tuple[jax.Array, Complex], y: jax.Array
) -> Complex:
    """Features of one target, [K] each.

    With m the middle of the range, exp(it (y − m)) − E exp(it (Z − m)) is
    exp(it (c − m)) [exp(it (y − c)) − 1 − excess]. The frequencies are multiples of one, so that
    exp(i (k + 1) θ) = exp(ikθ) exp(iθ) replaces sines and cosines, which compilers for CPUs do not
    vectorise.
    """
    middle, frequencies = prepared
    c, excess = view
    p: Any = c  # in whose precision the length scale is taken
    rate, spacing = reciprocal(jnp.asarray(length_scale(kernel, p))), frequencies[0]
    half = 0.5 * spacing * ((y - c) * rate)
    phase = spacing * ((c - middle) * rate)
    first = (jnp.cos(half), jnp.sin(half)), (jnp.cos(phase), jnp.sin(phase))

    def step(state: tuple[Complex, Complex], now: PyTree) -> tuple[PyTree, PyTree]:
        (cosine, sine), (cos, sin) = state
        frequency, (real, imag) = now
        weight = _weight(spacing, frequency)
        real = weight * (-2 * jnp.square(sine) - real)
        imag = weight * (2 * sine * cosine - imag)
        following = tuple(map(_product, state, first))
        return following, (cos * real - sin * imag, sin * real + cos * imag)

    return lax.scan(step, first, (frequencies, excess), unroll=2)[1]


def _product(x: Complex, y: Complex) -> Complex:
    """Product of two complex numbers."""
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def _offset(
    kernel: SquaredExponential, prepared: tuple, p: Any, view: tuple[jax.Array, Complex]
) -> jax.Array:
    """What leaving out the pairs of a draw with itself adds to h of a prediction and itself.

    M_pp is replaced by (M_pp − Σ_j w_j²) / (1 − Σ_j w_j²), as k(z, z) = 1.
    """
    del kernel
    draws: Any = getattr(p, "draws", p)
    if draws.index is None:
        return jnp.zeros_like(view[0])
    share = jnp.sum(jnp.square(draws.probs))
    real, imag = view[1]
    squares = jnp.square(_weight(prepared[1][0], prepared[1]))
    rest = -jnp.sum(squares * (2 * real + jnp.square(real) + jnp.square(imag)))  # 1 − M_pp
    return -share / (1 - share) * rest


FOURIER = Features(_features, _prepare, view=_view)
FOURIER_OF_DRAWS = FOURIER._replace(offset=_offset)
FEW_FREQUENCIES = FOURIER._replace(prepare=functools.partial(_prepare, most=_FEW))


@record
class OverRange(SquaredExponential):
    """A squared exponential kernel whose expectations are sums over the frequencies of a range.

    Attributes:
        middle: of the range.
        frequencies: t_k ℓ, [K].
    """

    middle: Any = 0.0
    frequencies: Any = ()

    @property
    def prepared(self) -> tuple[Any, Any]:
        """What the features need."""
        return self.middle, self.frequencies

    def expected(self, one: tuple[Any, Complex], other: tuple[Any, Complex]) -> jax.Array:
        """E k(Z, Z') = Σ c_k Re[φ_k φ'_k* exp(i t_k (c − c'))] from two views, c and φ − 1."""
        (center, x), (away, (real, imag)) = one, other
        distance = center - away
        rate, spacing = reciprocal(jnp.asarray(length_scale(self, distance))), self.frequencies[0]
        angle = self.frequencies * (distance * rate)
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        product = _product(x, (real, -imag))
        squares = x[0] + real + product[0], x[1] - imag + product[1]
        terms = cosine + squares[0] * cosine - squares[1] * sine
        weights = jnp.square(_weight(spacing, self.frequencies))
        value = spacing / math.sqrt(2 * math.pi) + matmul(weights, terms)
        # Far from all that is predicted there is no kernel, and rounding is no evidence.
        return jnp.where(jnp.abs(value) < 8 * jnp.finfo(value.dtype).eps, 0, value)


def _mean_over_range(kernel: OverRange, p: Any, z: jax.Array) -> jax.Array:
    zero = jnp.zeros_like(kernel.frequencies)
    return kernel.expected(_view(kernel, kernel.prepared, p), (z, (zero, zero)))


def _inner_over_range(kernel: OverRange, p: Any, q: Any) -> jax.Array:
    views = (_view(kernel, kernel.prepared, one) for one in (p, q))
    return kernel.expected(*views) + _offset_of_pair(kernel, p, q)


def _centered_over_range(kernel: OverRange, p: Any, y: Any, q: Any, z: Any) -> jax.Array:
    views = (_view(kernel, kernel.prepared, one) for one in (p, q))
    one, other = map(functools.partial(_features, kernel, kernel.prepared), views, (y, z))
    return matmul(one[0], other[0]) + matmul(one[1], other[1]) + _offset_of_pair(kernel, p, q)


def _offset_of_pair(kernel: OverRange, p: Any, q: Any) -> jax.Array | float:
    """The offset of a prediction and itself, zero for others."""
    one, other = (getattr(p, "draws", p) for p in (p, q))
    if getattr(one, "index", None) is None:
        return 0.0
    offset = _offset(kernel, kernel.prepared, p, _view(kernel, kernel.prepared, p))
    return jnp.where(one.index == other.index, offset, 0)


for _family in _TRANSFORMS:
    _of_family = FOURIER_OF_DRAWS if _family in (Ensemble, MonteCarlo) else FOURIER
    register_expectations(
        OverRange,
        _family,
        mean=_mean_over_range,
        inner=_inner_over_range,
        centered=_centered_over_range,
        features=_of_family._replace(prepare=lambda kernel, *_: kernel.prepared),
    )


def over_range(kernel: Any, predictions: Any, targets: Any) -> PyTree:
    """A target kernel whose squared exponential terms have the range of these data.

    Only for families whose expectations have no closed form, or are double sums.
    """
    predictions = bare(predictions)

    def of_part(part: Any) -> Any:
        if type(part) not in (SquaredExponential, OverRange):  # a user's may have other values
            return part
        part = SquaredExponential(part.length_scale, part.distance)
        if few_features(part, predictions, once=True) == 0:
            return part
        prepared = _prepare(part, predictions, targets)
        return part if prepared is None else OverRange(part.length_scale, part.distance, *prepared)

    whole = SquaredExponential | Conditional
    return jax.tree.map(of_part, kernel, is_leaf=lambda part: isinstance(part, whole))


def _of_all_pairs(kernel: SquaredExponential, p: Distribution, *_: object) -> NoReturn:
    why = " where values are traced or lie too many length scales apart"
    raise missing(kernel, p, why)


for _distribution in (Laplace, Uniform, Gamma, NegativeBinomial):
    register_expectations(
        SquaredExponential,
        _distribution,
        mean=_of_all_pairs,
        inner=_of_all_pairs,
        features=FOURIER,
    )
