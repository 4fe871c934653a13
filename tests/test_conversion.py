"""What is taken in place of JAX arrays gives the same numbers; all else is refused by name."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from calibjax import distances, distributions, estimators, kernels, scores
from calibjax._core import checks
from calibjax.estimators.kernel import mmce

Categorical, Normal, Poisson = (
    distributions.Categorical,
    distributions.Normal,
    distributions.Poisson,
)
LABELS = [0, 1, 1, 0]
BINNING = estimators.UniformBins(2)


def ece(labels, probs=((0.75, 0.25),) * 4):
    return estimators.ece(Categorical(np.array(probs)), labels, binning=BINNING)


class Tensor:
    """An array of another library, without NumPy's dtypes."""

    def __init__(self, values, dtype=None):
        self.values, self.kind = np.asarray(values), dtype
        self.shape, self.dtype = self.values.shape, "tensor.float"

    def __array__(self, dtype=None, copy=None):
        if self.kind is not None:
            raise TypeError("Got unsupported ScalarType BFloat16")
        return np.asarray(self.values, dtype)

    def __dlpack__(self, **options):
        return jnp.asarray(self.values, self.kind).__dlpack__(**options)

    def __dlpack_device__(self):
        return jnp.asarray(self.values).__dlpack_device__()


class Differentiated(Tensor):
    """As torch's tensors that require gradients."""

    __dlpack__ = property()

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")

    def detach(self):
        """What the message proposes."""


@pytest.mark.parametrize(
    "labels",
    [
        LABELS,
        tuple(LABELS),
        [np.int64(x) for x in LABELS],
        np.array(LABELS, "uint8"),
        np.array(LABELS, "uint64"),
        np.array(LABELS, "int8"),
        np.array(LABELS, bool),
        np.array(LABELS, float),
        np.array(LABELS, "float16"),
        np.array(LABELS, np.longdouble),
        jnp.array(LABELS, jnp.bfloat16),
        np.ma.masked_array(LABELS, mask=False),
        np.array(LABELS, object),
        pd.Series(LABELS),
        pd.Series(LABELS, dtype="Int64"),
        pd.Series(LABELS, dtype="float"),
        pd.Index(LABELS),
        pd.Series(pd.arrays.SparseArray(LABELS)),
        Tensor(LABELS),
    ],
    ids=lambda labels: f"{type(labels).__name__} {getattr(labels, 'dtype', '')}",
)
@pytest.mark.parametrize("x64", [False, True])
def test_labels_that_are_taken(labels, x64):
    with jax.enable_x64(x64):
        assert ece(labels) == ece(jnp.array(LABELS))


UNCLEAR = {
    "None": (None, ValueError, "targets: expected arrays with a leading axis, got None"),
    "dict": ({"a": 1}, ValueError, "targets['a']: expected a batch with a leading axis"),
    "strings": (list("abcd"), TypeError, "targets: expected numbers, got list"),
    "huge": (np.array([0, 1, 2**70, 1]), ValueError, "64 bits hold, got 1180591620717411303424"),
    "dates": (np.array(["2020-01-01"] * 4, "M8[D]"), TypeError, "an array of datetime64[D]"),
    "keys": (jax.random.split(jax.random.key(0), 4), TypeError, "got [4] random keys"),
    "sparse": (scipy.sparse.csr_array(np.eye(4)), TypeError, "convert it with .toarray()"),
    "missing": (
        pd.Series([0, 1, None, 1], dtype="Int64"),
        ValueError,
        "integer class labels, got targets[2] = nan",
    ),
    "words": (
        pd.Series(list("abcd")),
        TypeError,
        "got Series with entries of type str; convert numbers with",
    ),
    "category": (pd.Series(LABELS, dtype="category"), TypeError, "got a categorical Series"),
    "column": (pd.DataFrame({"a": LABELS}), ValueError, "got (4, 1); take targets[..., 0]"),
    "masked": (
        np.ma.masked_array(LABELS, mask=[0, 0, 1, 0]),
        ValueError,
        "targets: expected values without a mask, got a masked targets[2]",
    ),
    "gradient": (Differentiated(LABELS), TypeError, "convert it with .detach().cpu().numpy()"),
}


@pytest.mark.parametrize("name", UNCLEAR)
def test_labels_that_are_refused(name):
    labels, error, message = UNCLEAR[name]
    with pytest.raises(error, match=re.escape(message)):
        ece(labels)


@pytest.mark.parametrize("x64", [False, True])
def test_integers_are_looked_at_before_they_lose_bits(x64):
    with np.errstate(invalid="ignore"):
        missing = np.array([0, 1, np.nan, np.nan]).astype("int64")  # cut to 32 bits they are zero
    with jax.enable_x64(x64):
        with pytest.raises(ValueError, match=r"targets\[2\] = -9223372036854775808"):
            ece(missing)
        with pytest.raises(ValueError, match="correct.*= 4294967296"):
            mmce(kernels.Exponential(0.4), np.array([0.5, 0.5]), np.array([0, 2**32]))
        with pytest.raises(ValueError, match=r"binning\(predictions\).*= 4294967296"):
            estimators.ece(Categorical(np.eye(2)), [0, 1], binning=lambda p: np.array([0, 2**32]))
        with pytest.raises(ValueError, match=r"targets\[1\] = 18446744073709551615"):
            ece(np.array([0, -1, 1, 0]).astype("uint64"))


def test_unsigned_integers_do_not_underflow():
    values = np.array([10, 20, 40], "uint8")
    assert kernels.median_heuristic(distances.Euclidean(), values) == 20
    for dtype in ("uint8", "int8", "uint32", "uint64", bool):
        one, two = np.array([1, 0], dtype), np.array([0, 1], dtype)
        assert distances.Euclidean().squared(one, two) == 2
        assert distances.Manhattan()(one, two) == 2
        draws = [distributions.Ensemble(x) for x in (np.array([1, 1], dtype), one)]
        assert distances.Wasserstein().squared(*draws) == 0.5
    assert distances.Manhattan()(np.int32(2**31 - 1), np.int32(-(2**31))) == 2.0**32 - 1


def test_unsigned_counts_and_draws():
    counts, draws = np.array([3, 200]), np.array([[1, 5, 9], [2, 200, 4]])
    for score, predictions in (
        (scores.negative_log_likelihood, Poisson(np.array([2.5, 150.0]))),
        (scores.crps, distributions.Ensemble(draws)),
        (lambda *data: scores.pinball_loss(*data, levels=[0.5]), distributions.Ensemble(draws)),
    ):
        expected = score(predictions, counts)
        if isinstance(predictions, distributions.Ensemble):
            predictions = distributions.Ensemble(draws.astype("uint8"))
        assert score(predictions, counts.astype("uint8")) == expected


Y = np.array([-1.0, 0.0, 2.0])
ONE = Normal(np.zeros(3), np.ones(3))


@pytest.mark.parametrize(
    "predictions",
    [
        Normal([0, 0, 0], [1, 1, 1]),
        Normal([0.0, 0.0, 0.0], 1),
        Normal(np.zeros(3), np.float32(1)),
        Normal(0, pd.Series([1.0, 1.0, 1.0])),
        Normal(np.zeros(3, "float16"), 1.0),
        Normal(jnp.zeros(3, jnp.bfloat16), np.ones(3)),
        Normal(Tensor(np.zeros(3)), Tensor(np.ones(3))),
        Normal(Tensor(np.zeros(3), jnp.bfloat16), 1),
        Normal(np.zeros(3, np.longdouble), 1.0),
    ],
)
def test_parameters_that_are_taken(predictions):
    expected = scores.crps(ONE, Y)
    for targets in (Y, Y.astype(int), list(Y), pd.Series(Y), Tensor(Y)):
        np.testing.assert_allclose(scores.crps(predictions, targets), expected, rtol=1e-6)


def test_numbers_take_the_precision_of_their_neighbours():
    predictions = Normal(np.zeros(3, "float32"), 0.3)
    assert scores.crps(predictions, np.arange(3)).dtype == jnp.float32
    value = jax.jit(lambda scale: scores.crps(Normal(jnp.zeros(3), scale), jnp.arange(3)))(0.3)
    np.testing.assert_allclose(value, scores.crps(predictions, np.arange(3)), rtol=1e-6)


def test_one_covariance_for_all():
    loc, cov = np.zeros((3, 2)), np.array([[2.0, 1.0], [1.0, 2.0]])
    one, two = distributions.MvNormal(loc, cov), distributions.MvNormal(loc, np.stack([cov] * 3))
    targets = np.arange(6).reshape(3, 2)
    values = [scores.negative_log_likelihood(p, targets) for p in (one, two)]
    assert values[0] == values[1]


def test_transposed_draws():
    with pytest.raises(ValueError, match=r"got 3; draws have shape \[n, m\].*transpose"):
        scores.crps(distributions.Ensemble(np.zeros((5, 3))), np.zeros(3))


@pytest.mark.parametrize(
    ("loc", "targets", "place"),
    [
        (1.7e9 + 3, 1.7e9, r"predictions.loc: .* got .*1700000003.0"),
        (1.7e9, 1.7e9 + 3, r"targets: .* got .*1700000003.0"),
        (1.7e9, 1_700_000_003, "targets: expected integers that float32 holds exactly"),
    ],
)
def test_numbers_that_float32_does_not_resolve(loc, targets, place):
    predictions, targets = Normal(np.full(2, loc), np.ones(2)), np.full(2, targets)
    with jax.enable_x64(False), pytest.raises(ValueError, match=place):
        scores.crps(predictions, targets)
    np.testing.assert_allclose(scores.crps(predictions, targets), 2.4365747, rtol=1e-6)


def test_numbers_that_float32_resolves():
    with jax.enable_x64(False):  # the same numbers in float32, and scales that are wide enough
        scores.crps(Normal(np.full(2, 1.7e9), np.ones(2)), np.full(2, 1.7e9 + 128))
        scores.crps(Normal(np.full(2, 1.7e9 + 3), np.full(2, 86400.0)), np.full(2, 1.7e9 + 5))
        with pytest.raises(ValueError, match="values up to 3.4e"):
            scores.crps(Normal(np.full(2, 1e300), np.ones(2)), np.zeros(2))


def test_digits_beyond_float64_are_not_dropped():
    if np.finfo(np.longdouble).nmant == np.finfo(float).nmant:
        pytest.skip("long double is double here")
    with pytest.raises(ValueError, match="expected numbers of float64 precision"):
        scores.crps(Normal(np.zeros(3), np.full(3, np.longdouble("0.3"))), Y)


def aligned(size, dtype):
    """Numbers at an address at which XLA takes memory of NumPy as it is."""
    itemsize = np.dtype(dtype).itemsize
    memory = np.empty(size * itemsize + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    numbers = memory[begin : begin + size * itemsize].view(dtype)
    numbers[:] = np.arange(size)
    return numbers


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, np.int32, np.int64, np.bool_]
)
@pytest.mark.parametrize("x64", [False, True])
def test_memory_is_copied(dtype, x64):
    with jax.enable_x64(x64):
        numbers = aligned(64, dtype)
        given = numbers.copy()
        found = checks.as_arrays("x", numbers)
        assert found.unsafe_buffer_pointer() != numbers.ctypes.data
        numbers[:] = 1
        np.testing.assert_array_equal(found, given)
