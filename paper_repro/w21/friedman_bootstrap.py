"""The bootstrap tests of W21 App. A.3 with the authors' resamples.

CalibrationTests.jl 0.5.0 draws the indices of the resamples by `rand(rng, Sampler(rng, 1:n))`. In
Julia 1.5 an index is ⌊u n / 2⁶⁴⌋ of an integer u of 64 bits (Lemire 2019; the rejection that makes
it exactly uniform has probability n / 2⁶⁴ and is left out). Integers come from a cache of 501
integers of 128 bits, from its end. The identifier of the authors' progress bar is the first one.
"""

from collections.abc import Iterator, Sequence

import numba
import numpy as np

from paper_repro.julia_random import MersenneTwister, fill, next_bits

_CACHED = 1002  # integers of 64 bits
_EXPONENT = 0x3FF0000000000000  # of Julia's raw numbers, which are in [1, 2)
_compiled = numba.njit(cache=True)


@_compiled
def refill(state, integers):
    """Julia's cache of integers: `rand_uint64(1002)` of a `MersenneTwister`, compiled.

    Of 64 bits 52 are random; the others are xored from further numbers.

    Args:
        state: of the generator.
        integers: the result, [1002] of uint64: low and high halves of the integers of 128 bits.
    """
    exponent = np.uint64(_EXPONENT)
    fill(state, integers[: _CACHED - 2])
    for i in range(_CACHED - 2, _CACHED):
        integers[i] = next_bits(state) | exponent
    rest = _CACHED // 2
    while rest >= 5:
        taken = 0
        while rest - taken >= 5:
            low, high = integers[2 * taken], integers[2 * taken + 1]
            for shift in (48, 36, 24, 12):
                rest -= 1
                left, right = np.uint64(shift), np.uint64(64 - shift)
                integers[2 * rest] ^= low << left
                integers[2 * rest + 1] ^= high << left | low >> right
            taken += 1
        for i in range(2 * taken):
            integers[i] = next_bits(state) | exponent
    high, low = next_bits(state) | exponent, next_bits(state) | exponent
    for i in range(rest):
        left, right = np.uint64(12 * (i + 1)), np.uint64(64 - 12 * (i + 1))
        integers[2 * i] ^= low << left
        integers[2 * i + 1] ^= high << left | low >> right


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
    wanted = set(iterations)
    for i in range(max(wanted) + 1):
        available = _resample(state, integers, available, counts)
        if i in wanted:
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
