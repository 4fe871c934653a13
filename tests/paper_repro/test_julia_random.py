"""Julia's random numbers: values that Julia prints, and plain arithmetic with integers."""

import numpy as np
import pytest
from scipy import stats

from paper_repro import julia_random
from paper_repro.julia_random import MersenneTwister


@pytest.mark.parametrize(
    ("name", "values"),
    [  # of Julia 1.3 with `Random.seed!(1234)`
        ("rand", [0.590845, 0.766797, 0.566237, 0.460085, 0.794026]),
        ("randn", [0.867347, -0.901744, -0.494479, -0.902914, 0.864401, 2.21188]),
    ],
)
def test_first_numbers_are_those_of_julia(name, values):
    draw = getattr(MersenneTwister(1234), name)
    np.testing.assert_allclose([draw() for _ in values], values, rtol=5e-6)


def test_long_arrays_are_filled_past_the_cache():
    """381 numbers come from the cache of 1002, 382 and more directly from the generator."""
    singles = MersenneTwister(3)
    stream = np.array([singles.rand() for _ in range(2000)])
    short, long = MersenneTwister(3), MersenneTwister(3)
    np.testing.assert_array_equal(short.rand(381), stream[:381])
    np.testing.assert_array_equal(short.rand(), stream[381])
    first = long.rand(400)
    np.testing.assert_array_equal(first[:398], stream[:398])
    np.testing.assert_array_equal(first[398:], stream[398:400])
    np.testing.assert_array_equal(long.rand(), stream[400])


def raw(generator, size):
    """The next numbers in [1, 2) of an array, their bits."""
    return [int(bits) for bits in (generator.rand(size) + 1.0).view(np.uint64)]


def plain_integers(generator, size):
    """`rand!` of integers of 128 bits as in Julia's source, by Python's integers."""
    words, full = [0] * size, (1 << 128) - 1
    taken = rest = size
    while True:
        bits = raw(generator, 2 * taken)
        words[:taken] = [low | high << 64 for low, high in zip(bits[::2], bits[1::2], strict=True)]
        if rest < 5:
            break
        taken = 0
        while rest - taken >= 5:
            for shift in (48, 36, 24, 12):
                rest -= 1
                words[rest] ^= (words[taken] << shift) & full
            taken += 1
    if rest:
        high, low = raw(generator, 2)
        for i in range(rest):
            words[i] ^= ((high << 64 | low) << 12 * (i + 1)) & full
    return [half for word in words for half in (word & (1 << 64) - 1, word >> 64)]


@pytest.mark.parametrize("size", [1, 4, 5, 6, 7, 100, 501])
def test_integers_by_plain_arithmetic(size):
    ours, plain = MersenneTwister(11), MersenneTwister(11)
    for _ in range(2):
        assert ours.rand_uint64(2 * size) == plain_integers(plain, size)
    assert ours.rand() == plain.rand()
    with pytest.raises(ValueError, match="even"):
        ours.rand_uint64(3)


def test_a_pair_is_from_one_filling_of_the_cache():
    """The last number of a filling is lost where the pair that ends the integers would be split."""
    ours, plain = MersenneTwister(2), MersenneTwister(2)
    for generator in (ours, plain):
        for _ in range(999):  # three of 1002 numbers are left, of which an integer takes two
            generator.rand()
    found = ours.rand_uint64(2)
    low, high = raw(plain, 2)
    plain.rand()  # which is lost
    upper, lower = raw(plain, 2)
    word = (low | high << 64) ^ ((upper << 64 | lower) << 12) & (1 << 128) - 1
    assert found == [word & (1 << 64) - 1, word >> 64]


def test_laws():
    """Of gammas, which have their own sampler for small shapes, and of ranges."""
    state = MersenneTwister(7).state
    small = (julia_random.gamma_sampler(1.1), 0.1)
    for name, args, law in (
        ("randexp", (), stats.expon()),
        ("rand_small_gamma", small, stats.gamma(0.1)),
    ):
        draws = [getattr(julia_random, name)(state, *args) for _ in range(20_000)]
        assert stats.kstest(draws, law.cdf).pvalue > 0.001
    counts = np.bincount([julia_random.rand_range(state, 7) for _ in range(20_000)])
    assert counts[0] == 0
    assert stats.chisquare(counts[1:]).pvalue > 0.001
