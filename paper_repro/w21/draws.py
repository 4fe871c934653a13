"""Data sets and resamples of W21, drawn with the random numbers of the authors' scripts.

Julia 1.5 keeps 501 integers of 128 bits, which are drawn at once and taken from the end. The first
ones are needed by an identifier of the progress bar, one for each loop over data sets. An index of
a resample is ⌊u n / 2⁶⁴⌋ of an integer u of 64 bits (Lemire 2019). The rejection that makes it
exactly uniform is left out: its probability is at most n / 2⁶⁴, and 0 where n is a power of two.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numba
import numpy as np

from paper_repro.julia_random import State, fill_integers, rand, randn, seeded

SCALE = 0.1  # standard deviation of all normal distributions of App. A.2
SHIFTED_MEAN = 0.1  # of the first component of the targets of the uncalibrated model
NUM_LOCATIONS = 10  # test locations of the CME test
_CACHED = 1002  # integers of 64 bits, the halves of those of 128 bits
_compiled = numba.njit(cache=True)


class Stream(NamedTuple):
    """Julia's global generator, with its cache of integers.

    Attributes:
        state: its state.
        integers: the cache, [1002] of uint64; low halves before high ones.
        left: how many of them have not been taken, [1].
    """

    state: State
    integers: np.ndarray
    left: np.ndarray


def started(seed: int) -> Stream:
    """The generator after `Random.seed!(seed)`."""
    return Stream(seeded(seed), np.empty(_CACHED, np.uint64), np.zeros(1, np.int64))


@_compiled
def _refill(stream):
    fill_integers(stream.state, stream.integers)
    stream.left[0] = _CACHED


@_compiled
def draw_identifier(stream):
    """`uuid4()` of the progress bar."""
    if stream.left[0] < 2:
        _refill(stream)
    stream.left[0] -= 2


@_compiled
def draw_resamples(stream, counts):
    """How often each of n samples is drawn in B resamples: fills `counts` [B, n]."""
    counts[:] = 0
    half, n = np.uint64(32), np.uint64(counts.shape[1])
    for b in range(counts.shape[0]):
        for _ in range(counts.shape[1]):
            if stream.left[0] == 0:
                _refill(stream)
            stream.left[0] -= 1
            u = stream.integers[stream.left[0]]
            carried = (u & np.uint64(0xFFFFFFFF)) * n >> half
            counts[b, ((u >> half) * n + carried) >> half] += 1


@_compiled
def skip_resamples(stream, number):
    """Draws this number of indices of resamples."""
    while number > stream.left[0]:
        number -= stream.left[0]
        _refill(stream)
    stream.left[0] -= number


def resamples(
    seed: int, num_samples: int, num_resamples: int, iterations: Sequence[int]
) -> Iterator[np.ndarray]:
    """How often each sample occurs in each resample of the Friedman networks' tests.

    Args:
        seed: of the evaluation, in which each iteration has one test.
        num_samples: number of samples n.
        num_resamples: resamples of each test B.
        iterations: the iterations in increasing order; the numbers of others are skipped.

    Returns:
        Counts [B, n] for each iteration; they are overwritten by the next ones.
    """
    stream = started(seed)
    draw_identifier(stream)
    counts, done = np.empty((num_resamples, num_samples)), 0
    for i in iterations:
        skip_resamples(stream, (i - done) * counts.size)
        draw_resamples(stream, counts)
        done = i + 1
        yield counts


@_compiled
def draw_data_sets(stream, calibrated, c, targets, counts):
    """Draws data sets, each with the resamples of its tests, which the authors evaluated twice.

    Predictions are N(c 1, 0.1² I) with c ~ U(0, 1). Targets are drawn from them; those of the
    uncalibrated model have 0.1 as mean of their first component, which is drawn again.

    Args:
        stream: the generator.
        calibrated: whether the model is calibrated.
        c: filled, [data sets, n].
        targets: filled, [data sets, n, d].
        counts: filled, [data sets, B, n]; B is 0 where a procedure draws nothing.
    """
    state = stream.state
    for k in range(c.shape[0]):
        for i in range(c.shape[1]):
            c[k, i] = rand(state)
        for i in range(c.shape[1]):
            for j in range(targets.shape[2]):
                targets[k, i, j] = c[k, i] + SCALE * randn(state)
        if not calibrated:
            for i in range(c.shape[1]):
                targets[k, i, 0] = SHIFTED_MEAN + SCALE * randn(state)
        for _ in range(2):
            draw_resamples(stream, counts[k])


def draw_locations(stream: Stream, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Means of test predictions N(m, 0.1² I), m ~ U(0, 1)ᵈ, and test targets, [10, d] each."""
    shape = NUM_LOCATIONS, dimension
    means = [rand(stream.state) for _ in range(NUM_LOCATIONS * dimension)]
    targets = [SCALE * randn(stream.state) for _ in range(NUM_LOCATIONS * dimension)]
    return np.reshape(means, shape), np.reshape(targets, shape)
