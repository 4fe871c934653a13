"""The random numbers of Julia 1.3 to 1.5, with which W19 and W21 were computed.

Julia's `MersenneTwister` of that time is dSFMT-19937 (Saito and Matsumoto 2009) with a cache of
1002 numbers; normal and exponential numbers come from ziggurats of 256 layers (Marsaglia and Tsang
2000), gamma numbers from Ahrens and Dieter (1982). So the data sets of the papers, whose scripts
fix their seeds, can be drawn again.

`MersenneTwister(seed)` has Julia's calls as methods, for what is drawn a few times. What is drawn
10⁹ times is a loop that numba compiles: it calls the functions `rand`, `randn`, `randexp`,
`rand_range`, `weighted_choice` and `GammaSampler`'s `rand_gamma` with the `state` of a generator.

Numbers are Julia's, to the last bit in all that was compared with published numbers. `python -m
paper_repro.julia_random` prints the first ones for the seed 1234.
"""

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from typing import NamedTuple

import numba
import numpy as np

_WORDS = 191  # of 128 bits
_STATE_SIZE = 2 * _WORDS + 2  # in words of 64 bits; the last two are the "lung"
_SHIFT = 117
_MASKS = 0x000FFAFFFFFFFB3F, 0x000FFDFFFC90FFFD
_FIX = 0x90014964B32F4329, 0x3B8D12AC548A7C7A
_PERIOD = 0x3D84E1AC0DC82880, 1
_MANTISSA = 0x000FFFFFFFFFFFFF
_EXPONENT = 0x3FF0000000000000  # of numbers in [1, 2)
_CACHE_SIZE = 1002
_SMALLEST_FILL = 2 * _WORDS  # shorter arrays are filled number by number
# None of these functions makes an array, so that none has to count references: numbers take a tenth
# of the time. What numba has cached of functions that call these is not renewed where these change.
_compiled = numba.njit(cache=True, _nrt=False)


class State(NamedTuple):
    """What a generator changes while it draws.

    Attributes:
        words: state of dSFMT and its lung, [384] of uint64.
        bits: cached numbers in [1, 2), their bits, [1002] of uint64.
        floats: the same memory as float64.
        counters: the word of the state that is next, and the cached number that is next.
    """

    words: np.ndarray
    bits: np.ndarray
    floats: np.ndarray
    counters: np.ndarray


def _key_words(key: Sequence[int]) -> np.ndarray:
    """State from a key, as dSFMT's `init_by_array`, [384]."""
    size, lag, mask = 2 * _STATE_SIZE, 11, 0xFFFFFFFF
    middle = (size - lag) // 2
    words = [0x8B8B8B8B] * size

    def mixed(value: int, factor: int) -> int:
        return ((value ^ (value >> 27)) * factor) & mask

    for i in range(max(len(key) + 1, size)):
        here, ahead, further = i % size, (i + middle) % size, (i + middle + lag) % size
        r = mixed(words[here] ^ words[ahead] ^ words[here - 1], 1664525)
        words[ahead] = (words[ahead] + r) & mask
        r += len(key) if i == 0 else here + (key[i - 1] if i <= len(key) else 0)
        words[further] = (words[further] + r) & mask
        words[here] = r & mask
    first = max(len(key) + 1, size) % size
    for i in range(first, first + size):
        here, ahead, further = i % size, (i + middle) % size, (i + middle + lag) % size
        r = mixed((words[here] + words[ahead] + words[here - 1]) & mask, 1566083941)
        words[ahead] ^= r
        r = (r - here) & mask
        words[further] ^= r
        words[here] = r
    state = [low | high << 32 for low, high in zip(words[::2], words[1::2], strict=True)]
    return np.array(state, np.uint64)


def seeded(seed: int) -> State:
    """The state after `Random.seed!(seed)` for a seed of any number of bits."""
    key = [seed & 0xFFFFFFFF]
    while seed := seed >> 32:
        key.append(seed & 0xFFFFFFFF)
    words = _key_words(key)
    words[:-2] = words[:-2] & np.uint64(_MANTISSA) | np.uint64(_EXPONENT)
    parity = 0
    for lung, fix, period in zip(words[-2:], _FIX, _PERIOD, strict=True):
        parity ^= (int(lung) ^ fix) & period
    if parity.bit_count() % 2 == 0:  # the period would be too short
        words[-1] ^= np.uint64(1)
    bits = np.empty(_CACHE_SIZE, np.uint64)
    return State(words, bits, bits.view(np.float64), np.array([0, _CACHE_SIZE]))


@_compiled
def fill(state, bits):
    """The next numbers of dSFMT in [1, 2), past the cache; an even number of them."""
    words, i = state.words, state.counters[0]
    lung0, lung1 = words[2 * _WORDS], words[2 * _WORDS + 1]
    half, one, right = np.uint64(32), np.uint64(19), np.uint64(12)
    mask0, mask1 = np.uint64(_MASKS[0]), np.uint64(_MASKS[1])
    for k in range(len(bits) // 2):
        other = i + _SHIFT if i + _SHIFT < _WORDS else i + _SHIFT - _WORDS
        word0, word1 = words[2 * i], words[2 * i + 1]
        old0, old1 = lung0, lung1
        lung0 = (word0 << one) ^ (old1 >> half) ^ (old1 << half) ^ words[2 * other]
        lung1 = (word1 << one) ^ (old0 >> half) ^ (old0 << half) ^ words[2 * other + 1]
        words[2 * i] = (lung0 >> right) ^ (lung0 & mask0) ^ word0
        words[2 * i + 1] = (lung1 >> right) ^ (lung1 & mask1) ^ word1
        bits[2 * k], bits[2 * k + 1] = words[2 * i], words[2 * i + 1]
        i = i + 1 if i + 1 < _WORDS else 0
    words[2 * _WORDS], words[2 * _WORDS + 1] = lung0, lung1
    state.counters[0] = i


@_compiled
def _next(state):
    """Place in the cache of the next number."""
    i = state.counters[1]
    if i == _CACHE_SIZE:
        fill(state, state.bits)
        i = 0
    state.counters[1] = i + 1
    return i


@_compiled
def next_bits(state):
    """The 52 random bits of the next number."""
    return state.bits[_next(state)] & np.uint64(_MANTISSA)


@_compiled
def fill_array(state, bits):
    """`rand!` of an array: a long one is filled past the cache, but for its end."""
    filled = (len(bits) - 2) // 2 * 2
    if filled < _SMALLEST_FILL:
        filled = 0
    fill(state, bits[:filled])
    for i in range(filled, len(bits)):
        bits[i] = state.bits[_next(state)]


@_compiled
def _add_bits(integers, i, low, high, shift):
    """Adds an integer of 128 bits, shifted to the left, to the i-th one, bit by bit."""
    left, right = np.uint64(shift), np.uint64(64 - shift)
    integers[2 * i] ^= low << left
    integers[2 * i + 1] ^= high << left | low >> right


@_compiled
def fill_integers(state, integers):
    """`rand!` of integers of 128 bits, low halves before high ones, [2n] of uint64.

    A number has 52 random bits: the 12 that miss of each 64 are added from further numbers, and
    those from the first ones.
    """
    taken = rest = len(integers) // 2
    while True:  # the first ones have been used up, or are new
        fill_array(state, integers[: 2 * taken])
        if rest < 5:
            break
        taken = 0
        while rest - taken >= 5:
            low, high = integers[2 * taken], integers[2 * taken + 1]
            for shift in (48, 36, 24, 12):
                rest -= 1
                _add_bits(integers, rest, low, high, shift)
            taken += 1
    if rest > 0:
        if state.counters[1] == _CACHE_SIZE - 1:
            state.counters[1] += 1  # a pair is from one filling of the cache
        high = state.bits[_next(state)]
        low = state.bits[_next(state)]
        for i in range(rest):
            _add_bits(integers, i, low, high, 12 * (i + 1))


@_compiled
def rand(state):
    """`rand()`: uniform on [0, 1)."""
    return state.floats[_next(state)] - 1.0


@_compiled
def rand_range(state, m):
    """`rand(1:m)`, m ≤ 2⁵²: the lowest bits that m − 1 needs, until they are below m."""
    mask = np.uint64(1)
    while mask < np.uint64(m - 1):
        mask = mask << np.uint64(1) | np.uint64(1)
    mask = mask if m > 1 else np.uint64(0)
    while True:
        value = next_bits(state) & mask
        if value < np.uint64(m):
            return np.int64(value) + 1


@_compiled
def weighted_choice(state, weights):
    """`sample(Weights(weights))`: the first place where the cumulated weights reach u Σ w."""
    threshold = rand(state) * weights.sum()
    i, cumulated = 0, weights[0]
    while cumulated < threshold and i < len(weights) - 1:
        i += 1
        cumulated += weights[i]
    return i + 1


def _ziggurat(density, inverse, edge: Decimal, area: Decimal, bits: int):
    """Layers of equal area under a density: acceptance bounds, widths and heights, [256] each."""
    scale = 2**bits
    bounds, widths, heights = [0] * 256, [Decimal(0)] * 256, [Decimal(1)] * 256
    widths[255], heights[255] = edge / scale, density(edge)
    bounds[0], widths[0] = int(edge * heights[255] / area * scale), area / heights[255] / scale
    for i in range(254, 0, -1):
        x = inverse(area / edge + heights[i + 1])
        bounds[i + 1] = int(x / edge * scale)
        widths[i], heights[i] = x / scale, density(x)
        edge = x
    return np.array(bounds, np.uint64), np.array(widths, float), np.array(heights, float)


def _normal_tail(x: Decimal) -> Decimal:
    """∫ₓ^∞ exp(−t² / 2) dt / exp(−x² / 2), a continued fraction."""
    value = x
    for k in range(1000, 0, -1):
        value = x + k / value
    return 1 / value


# In Julia they were computed with 256 bits, too: with the 64 of `longdouble` a dozen of them are
# rounded to a neighbour.
with localcontext(prec=40):
    _edge = Decimal("3.654152885361008796351947251856")
    _area = (-_edge * _edge / 2).exp() * (_edge + _normal_tail(_edge))
    _NORMAL_BOUNDS, _NORMAL_WIDTHS, _NORMAL_HEIGHTS = _ziggurat(
        lambda x: (-x * x / 2).exp(), lambda y: (-2 * y.ln()).sqrt(), _edge, _area, 51
    )
    _NORMAL_EDGE = float(_edge)
    _edge = Decimal("7.697117470131049714044628048114")
    _area = (_edge + 1) * (-_edge).exp()
    _EXPONENTIAL_BOUNDS, _EXPONENTIAL_WIDTHS, _EXPONENTIAL_HEIGHTS = _ziggurat(
        lambda x: (-x).exp(), lambda y: -y.ln(), _edge, _area, 52
    )
    _EXPONENTIAL_EDGE = float(_edge)


@_compiled
def normal_of(state, bits):
    """A normal number from 52 bits: sign, layer and distance; edges and tail draw more."""
    while True:
        distance = bits >> np.uint64(1)
        layer = distance & np.uint64(0xFF)
        signed = -np.int64(distance) if bits & np.uint64(1) else np.int64(distance)
        x = signed * _NORMAL_WIDTHS[layer]
        if distance < _NORMAL_BOUNDS[layer]:
            return x
        if layer == 0:
            while True:
                excess = -math.log(rand(state)) / _NORMAL_EDGE
                y = -math.log(rand(state))
                if y + y > excess * excess:
                    sign = -1.0 if (distance >> np.uint64(8)) & np.uint64(1) else 1.0
                    return sign * (_NORMAL_EDGE + excess)
        low, high = _NORMAL_HEIGHTS[layer], _NORMAL_HEIGHTS[layer - np.uint64(1)]
        if (high - low) * rand(state) + low < math.exp(-0.5 * x * x):
            return x
        bits = next_bits(state)


@_compiled
def randn(state):
    """`randn()`: standard normal."""
    return normal_of(state, next_bits(state))


@_compiled
def randexp(state):
    """`randexp()`: exponential of rate one."""
    while True:
        bits = next_bits(state)
        layer = bits & np.uint64(0xFF)
        x = bits * _EXPONENTIAL_WIDTHS[layer]
        if bits < _EXPONENTIAL_BOUNDS[layer]:
            return x
        if layer == 0:
            return _EXPONENTIAL_EDGE - math.log(rand(state))
        low, high = _EXPONENTIAL_HEIGHTS[layer], _EXPONENTIAL_HEIGHTS[layer - np.uint64(1)]
        if (high - low) * rand(state) + low < math.exp(-x):
            return x


_Q0 = (
    *(0.0416666664, 0.0208333723, 0.0079849875, 0.0015746717, -0.0003349403),
    *(0.0003340332, 0.0006053049, -0.0004701849, 0.0001710320),
)
_Q = (
    *(0.333333333, -0.249999949, 0.199999867, -0.1666774828, 0.142873973),
    *(-0.124385581, 0.110368310, -0.112750886, 0.10408986),
)


class GammaSampler(NamedTuple):
    """Constants of Ahrens and Dieter's rejection from a double exponential, shape a ≥ 1."""

    s2: float
    s: float
    d: float
    q0: float
    b: float
    sigma: float
    c: float


def gamma_sampler(shape: float) -> GammaSampler:
    """The constants for a shape of at least one."""
    s2 = shape - 0.5
    s = math.sqrt(s2)
    if shape <= 3.686:
        b, sigma, c = 0.463 + s + 0.178 * s2, 1.235, 0.195 / s - 0.079 + 0.16 * s
    elif shape <= 13.022:
        b, sigma, c = 1.654 + 0.0076 * s2, 1.68 / s + 0.275, 0.062 / s + 0.024
    else:
        b, sigma, c = 1.77, 0.75, 0.1515 / s
    q0 = sum(factor / shape ** (i + 1) for i, factor in enumerate(_Q0))
    return GammaSampler(s2, s, math.sqrt(32) - 12 * s, q0, b, sigma, c)


@_compiled
def _log_ratio(sampler, t):
    """The logarithm q(t) of the quotient of the densities."""
    v = t * (0.5 / sampler.s)
    if abs(v) > 0.25:
        wide = 0.25 * t * t + 2.0 * sampler.s2 * math.log1p(v)
        return sampler.q0 - sampler.s * t + wide
    series = 0.0
    for i in range(len(_Q) - 1, -1, -1):
        series = series * v + _Q[i]
    return sampler.q0 + 0.5 * t * t * (v * series)


@_compiled
def rand_gamma(state, sampler):
    """A gamma number of scale one, shape above one."""
    t = randn(state)
    x = sampler.s + 0.5 * t
    if t >= 0.0:
        return x * x
    u = rand(state)
    if sampler.d * u <= t * t * t:
        return x * x
    if x > 0.0 and math.log1p(-u) <= _log_ratio(sampler, t):
        return x * x
    while True:
        e = randexp(state)
        u = 2.0 * rand(state) - 1.0
        t = sampler.b + e * sampler.sigma * np.sign(u)
        if t < -0.71874483771719:
            continue
        q = _log_ratio(sampler, t)
        if q > 0.0 and sampler.c * abs(u) <= math.expm1(q) * math.exp(e - 0.5 * t * t):
            x = sampler.s + 0.5 * t
            return x * x


_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-1, 1.90821492927058770002e-10
_P = (
    *(1.66666666666666019037e-1, -2.77777777770155933842e-3, 6.61375632143793436117e-5),
    *(-1.65339022054652515390e-6, 4.13813679705723846039e-8),
)


@_compiled
def exp(x):
    """The exponential of fdlibm, as in Julia: the last bit of one in ten differs from glibc's."""
    n = np.round(x / math.log(2.0))
    high, low = x - n * _LN2_HIGH, n * _LN2_LOW
    r = high - low
    z = r * r
    p = r - z * (_P[0] + z * (_P[1] + z * (_P[2] + z * (_P[3] + z * _P[4]))))
    return math.ldexp(1.0 - ((low - r * p / (2.0 - p)) - high), int(n))


@_compiled
def rand_small_gamma(state, sampler, shape):
    """A gamma number of shape below one; `sampler` is that of shape + 1."""
    x = rand_gamma(state, sampler)
    return x * exp(-1.0 / shape * randexp(state))


class MersenneTwister:
    """Julia's generator: `MersenneTwister(1234).rand(3)` is `rand(MersenneTwister(1234), 3)`."""

    def __init__(self, seed: int):
        """Starts as after `Random.seed!(seed)`."""
        self.state = seeded(seed)

    def rand(self, size: int | None = None):
        """Uniform on [0, 1): a number, or an array of Julia's `rand(size)`."""
        if size is None:
            return rand(self.state)
        bits = np.empty(size, np.uint64)
        fill_array(self.state, bits)
        return bits.view(np.float64) - 1.0

    def randn(self):
        """A standard normal number."""
        return randn(self.state)

    def randexp(self):
        """An exponential number of rate one."""
        return randexp(self.state)

    def rand_range(self, m: int) -> int:
        """A number of 1, …, m."""
        return rand_range(self.state, m)

    def rand_uint64(self, size: int) -> list[int]:
        """`rand(UInt, size)` for an even size."""
        if size % 2:
            raise ValueError(f"size: expected an even number, got {size}")
        integers = np.empty(size, np.uint64)
        fill_integers(self.state, integers)
        return integers.tolist()


def main() -> None:
    """Prints the first numbers for the seed 1234, as Julia 1.3 to 1.5 print them."""
    for name, count in (("rand", 5), ("randn", 6), ("randexp", 5)):
        draw = getattr(MersenneTwister(1234), name)
        print(name, *(f"{draw():.6g}" for _ in range(count)))


if __name__ == "__main__":
    main()
