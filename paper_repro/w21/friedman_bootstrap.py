"""The bootstrap tests of W21 App. A.3 with the authors' resamples.

CalibrationTests.jl 0.5.0 draws the indices of the resamples by `rand(rng, Sampler(rng, 1:n))`. In
Julia 1.5 an index is ⌊u n / 2⁶⁴⌋ of an integer u of 64 bits (Lemire 2019; the rejection that makes
it exactly uniform has probability n / 2⁶⁴ and is left out). Integers come from a cache of 501
integers of 128 bits, from its end. The identifier of the authors' progress bar is the first one.
"""

from collections.abc import Iterator, Sequence

import numba
import numpy as np

from paper_repro.julia_random import MersenneTwister, fill

_CACHED = 1002  # integers of 64 bits
_compiled = numba.njit(cache=True)


@_compiled
def _take(state, numbers):
    """The next raw numbers of the generator's cache, which are in [1, 2), as their bits."""
    bits, counters = state.bits, state.counters
    for i in range(len(numbers)):
        if counters[1] == len(bits):
            fill(state, bits)
            counters[1] = 0
        numbers[i] = bits[counters[1]]
        counters[1] += 1


@_compiled
def _xor(integers, i, low, high, shift):
    """Xors an integer of 128 bits, shifted to the left, into the i-th one."""
    left, right = np.uint64(shift), np.uint64(64 - shift)
    integers[2 * i] ^= low << left
    integers[2 * i + 1] ^= high << left | low >> right


@_compiled
def refill(state, integers):
    """Julia's cache of integers: `rand_uint64(1002)` of a `MersenneTwister`, compiled.

    Of 64 bits 52 are random; the others are xored from further numbers.

    Args:
        state: of the generator.
        integers: the result, [1002] of uint64: low and high halves of the integers of 128 bits.
    """
    fill(state, integers[: _CACHED - 2])
    _take(state, integers[_CACHED - 2 :])
    rest = _CACHED // 2
    while rest >= 5:
        taken = rest // 5
        for i in range(taken):
            for j in range(4):
                rest -= 1
                _xor(integers, rest, integers[2 * i], integers[2 * i + 1], 48 - 12 * j)
        _take(state, integers[: 2 * taken])
    last = np.empty(2, np.uint64)
    _take(state, last)
    for i in range(rest):
        _xor(integers, i, last[1], last[0], 12 * (i + 1))


@_compiled
def _resample(state, integers, available, counts):
    """Draws the counts of resamples, [B, n]; returns how many integers are left in the cache."""
    counts[:] = 0
    half, n = np.uint64(32), np.uint64(counts.shape[1])
    for b in range(counts.shape[0]):
        for _ in range(counts.shape[1]):
            if available == 0:
                refill(state, integers)
                available = _CACHED
            available -= 1
            u = integers[available]
            low = (u & np.uint64(0xFFFFFFFF)) * n >> half
            counts[b, ((u >> half) * n + low) >> half] += 1
    return available


@_compiled
def _skip(state, integers, available, number):
    """Skips integers; returns how many are left in the cache."""
    while number > available:
        number -= available
        refill(state, integers)
        available = _CACHED
    return available - number


def resamples(
    seed: int, num_samples: int, num_resamples: int, iterations: Sequence[int]
) -> Iterator[np.ndarray]:
    """How often each sample occurs in each resample of the authors, at some of their iterations.

    Args:
        seed: of the evaluation, in which each iteration has one test.
        num_samples: number of samples n.
        num_resamples: resamples of each test B.
        iterations: the iterations in increasing order; the numbers of others are skipped.

    Returns:
        Counts [B, n] for each iteration; they are overwritten by the next ones.
    """
    state = MersenneTwister(seed).state
    integers = np.empty(_CACHED, np.uint64)
    refill(state, integers)
    available = _CACHED - 2  # after the identifier of the progress bar
    counts = np.empty((num_resamples, num_samples))
    drawn = 0
    for i in iterations:
        available = _skip(state, integers, available, (i - drawn) * counts.size)
        available = _resample(state, integers, available, counts)
        drawn = i + 1
        yield counts


def bootstrap_pvalue(matrix: np.ndarray, counts: np.ndarray) -> float:
    """Share of resamples whose statistic is at least that of the data.

    This is the test of CalibrationTests.jl. `asymptotic_skce_test` has the same statistic and
    counts the data as one more resample.

    Args:
        matrix: h of all pairs of samples, [n, n].
        counts: how often each sample occurs in each resample, [B, n].
    """
    n = len(matrix)
    scale = n / (n - 1)
    forms = np.sum((counts @ matrix) * counts, 1) - counts @ np.diagonal(matrix)
    draws = scale * forms - 2 * counts @ matrix.sum(1)
    statistic = scale**2 * (matrix.sum() - np.trace(matrix)) - matrix.sum()
    return float(np.mean(draws >= statistic))
