import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import estimators
from calibjax.distributions import Bernoulli, Categorical

BINNINGS = {
    "uniform": estimators.UniformBins(5),
    "median_variance": estimators.MedianVarianceBins(7),
    "equal_mass": estimators.EqualMassBins(4),
}
DTYPES = [np.float32, np.float64]


def grid_indices(p, num_bins):
    """⌈num_bins p_c⌉ of every class of one prediction, 1 where that is 0, in its precision."""
    return tuple(max(int(np.ceil(p.dtype.type(num_bins) * x)), 1) for x in p)


def uniform_oracle(probs, num_bins):
    """Position of the tuple of indices among the sorted ones, of each prediction."""
    rows = [grid_indices(p, num_bins) for p in probs]
    positions = {row: i for i, row in enumerate(sorted(set(rows)))}
    return np.array([positions[row] for row in rows])


def median_variance_oracle(probs, min_size):
    """Lists of samples, from splitting lists recursively."""

    def split(samples):
        variances = probs[samples].astype(np.float64).var(0)
        # The two classes of binary predictions tie, but for rounding errors.
        rounding = (
            4 * np.sqrt(len(probs)) * np.finfo(probs.dtype).eps if probs.shape[1] > 2 else 0.5
        )
        column = np.flatnonzero(variances >= variances.max() * (1 - rounding))[0]
        values = probs[samples, column]
        below = values < np.median(values)
        if min(below.sum(), (~below).sum()) < min_size:
            return [samples]
        return split(samples[below]) + split(samples[~below])

    return split(np.arange(len(probs)))


def equal_mass_oracle(probs, num_bins):
    """⌊b · number of smaller predictions / n⌋ of every class, of the second if there are two."""
    n, m = probs.shape
    columns = [1] if m == 2 else range(m)
    rows = [tuple(num_bins * np.sum(probs[:, c] < p[c]) // n for c in columns) for p in probs]
    positions = {row: i for i, row in enumerate(sorted(set(rows)))}
    return np.array([positions[row] for row in rows])


def groups_of(bins):
    return [np.flatnonzero(bins == b) for b in np.unique(bins)]


def same_partition(groups, others):
    return sorted(map(tuple, groups)) == sorted(map(tuple, others))


def random_data(n, m, seed=0, dtype=np.float64, decimals=None, concentration=0.5):
    """Predictions, some with tied values, on edges, 0 and 1, and labels that do not fit them."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(m, concentration), size=n).astype(dtype)
    if decimals is not None:
        probs[:, 1:] = np.round(probs[:, 1:], decimals)
        probs[:, 1:] /= np.maximum(probs[:, 1:].sum(1, keepdims=True), 1)
        probs[:, 0] = np.clip(1 - probs[:, 1:].sum(1), 0, 1)
    probs[: min(m, n // 4)] = np.eye(m, dtype=dtype)[: n // 4]  # 0 and 1
    return probs, rng.integers(0, m, size=n)


# Numbers of classes and samples with sizes of bins; the sizes of the last shape share a program.
CASES = [(2, 301), (100, 120), (10, 300), (10, 300), (10, 300)]
ORACLES = {
    "UniformBins": (uniform_oracle, (10, 10, 10, 1, 2**24)),
    "EqualMassBins": (equal_mass_oracle, (10, 10, 10, 1, 50)),
    "MedianVarianceBins": (median_variance_oracle, (3, 3, 3, 1, 40)),
}


@pytest.mark.parametrize("name", ORACLES)
def test_against_loops(name):
    """For all shapes, of numbers with and without ties; and for other sizes of bins."""
    oracle, sizes = ORACLES[name]
    for (m, n), size in zip(CASES, sizes, strict=True):
        for decimals in (None, 1, 2):
            probs, _ = random_data(n, m, dtype=np.float32, decimals=decimals)
            ours = getattr(estimators, name)(size)(Categorical(jnp.asarray(probs)))
            assert ours.dtype == jnp.int32
            if name != "MedianVarianceBins":
                np.testing.assert_array_equal(ours, oracle(probs, size))
                continue
            assert same_partition(groups_of(ours), oracle(probs, size))
            assert np.bincount(ours).min() >= size  # thus no gaps


@pytest.mark.parametrize("dtype", DTYPES)
def test_edges_of_uniform_bins(dtype):
    """k/10 belongs to the interval that it closes, 0 to the first."""
    steps = (np.arange(11) / 10).astype(dtype)
    probs = np.stack([steps, 1 - steps], -1)
    assert [i for i, _ in map(grid_indices, probs, [10] * 11)] == [1, *range(1, 11)]
    ours = estimators.UniformBins(10)(Categorical(jnp.asarray(probs)))
    np.testing.assert_array_equal(ours, uniform_oracle(probs, 10))
    above = steps[1:-1] * (1 + 4 * np.finfo(dtype).eps)
    ours = estimators.UniformBins(10)(Bernoulli(jnp.asarray(np.concatenate([steps, above]))))
    assert np.all(np.asarray(ours)[11:] != np.asarray(ours)[1:10])


def test_uniform_bins_see_every_class():
    """Predictions that differ in one pair of 1000 classes, wherever it is."""
    m = 1000
    probs = np.zeros((m, m))
    probs[np.arange(m), np.arange(m)] = 0.55
    probs[np.arange(m), (np.arange(m) + 1) % m] = 0.45
    for num_bins in (2, 10, 1000):
        bins = estimators.UniformBins(num_bins)(Categorical(jnp.asarray(np.tile(probs, (2, 1)))))
        assert len(set(np.asarray(bins[:m]))) == m
        np.testing.assert_array_equal(bins[:m], bins[m:])


def test_equal_mass_bins_of_a_large_sample():
    """b n is beyond 32-bit integers."""
    n = 70_000
    probs = np.random.default_rng(0).permutation(n) / n
    with jax.enable_x64(False):
        bins = estimators.EqualMassBins(n)(Bernoulli(jnp.asarray(probs, jnp.float32)))
    np.testing.assert_array_equal(bins, np.rint(probs * n))


@pytest.mark.parametrize(("m", "dtype"), [*((m, np.float32) for m in (2, 3, 10)), (10, np.float64)])
def test_saturated_predictions(m, dtype):
    """Variances of the size of rounding errors, and squares that underflow.

    Predictions of overconfident networks: many are 1 but for rounding, and some exactly.
    """
    logits = 20 * np.random.default_rng(0).normal(size=(1000, m))
    probs = np.asarray(jax.nn.softmax(jnp.asarray(logits.astype(dtype)), -1))
    assert np.any(probs == 1)
    ours = estimators.MedianVarianceBins(10)(Categorical(jnp.asarray(probs)))
    assert same_partition(groups_of(ours), median_variance_oracle(probs, 10))
