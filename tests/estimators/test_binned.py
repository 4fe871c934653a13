import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, estimators
from calibjax._pytree import record
from calibjax.distributions import Bernoulli, Categorical, Normal
from tests import oracles
from tests.test_arguments import LABELS, LOC, PROBS, WRONG

BINNINGS = {
    "uniform": estimators.uniform_bins(5),
    "median_variance": estimators.median_variance_bins(7),
}
DTYPES = [np.float32, np.float64]


@record
class Binned(Categorical):
    """Class predictions that know their bins."""

    bins: jax.Array


def known_bins(predictions):
    return predictions.bins


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


def total_variation(p, q):
    return np.abs(p - q).sum() / 2


def euclidean(p, q):
    return np.sqrt(np.square(p - q).sum())


def ece_oracle(probs, targets, groups, distance=total_variation):
    """ECE by a loop over the bins, given as lists of samples."""
    n, m = probs.shape
    value = 0.0
    for samples in groups:
        proportions = [np.mean(targets[samples] == c) for c in range(m)]
        value += len(samples) / n * distance(probs[samples].mean(0), np.array(proportions))
    return value


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


CASES = [(2, 50), (2, 300), (10, 300), (100, 120), (1000, 60)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_bins", [1, 3, 10, 2**24])
@pytest.mark.parametrize(("m", "n"), CASES)
def test_uniform_bins_against_a_dictionary(m, n, num_bins, dtype):
    for decimals in (None, 1):
        probs, _ = random_data(n, m, dtype=dtype, decimals=decimals)
        ours = estimators.uniform_bins(num_bins)(Categorical(jnp.asarray(probs)))
        assert ours.dtype == jnp.int32
        np.testing.assert_array_equal(ours, uniform_oracle(probs, num_bins))


@pytest.mark.parametrize("dtype", DTYPES)
def test_edges_of_uniform_bins(dtype):
    """k/10 belongs to the interval that it closes, 0 to the first."""
    steps = (np.arange(11) / 10).astype(dtype)
    probs = np.stack([steps, 1 - steps], -1)
    indices = [grid_indices(p, 10) for p in probs]
    assert [i for i, _ in indices] == [1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert indices[-1] == (10, 1)
    ours = estimators.uniform_bins(10)(Categorical(jnp.asarray(probs)))
    np.testing.assert_array_equal(ours, uniform_oracle(probs, 10))
    above = np.nextafter(steps[1:-1], dtype(1))
    ours = estimators.uniform_bins(10)(Bernoulli(jnp.asarray(np.concatenate([steps, above]))))
    assert np.all(np.asarray(ours)[11:] != np.asarray(ours)[1:10])


def test_uniform_bins_see_every_class():
    """Predictions that differ in one pair of 1000 classes, wherever it is."""
    m = 1000
    probs = np.zeros((m, m))
    probs[np.arange(m), np.arange(m)] = 0.55
    probs[np.arange(m), (np.arange(m) + 1) % m] = 0.45
    for num_bins in (2, 10, 1000):
        bins = estimators.uniform_bins(num_bins)(Categorical(jnp.asarray(np.tile(probs, (2, 1)))))
        assert len(set(np.asarray(bins[:m]))) == m
        np.testing.assert_array_equal(bins[:m], bins[m:])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("min_size", [1, 3, 40])
@pytest.mark.parametrize(("m", "n"), CASES)
def test_median_variance_bins_against_recursion(m, n, min_size, dtype):
    for decimals in (None, 1, 2):
        probs, _ = random_data(n, m, dtype=dtype, decimals=decimals)
        ours = estimators.median_variance_bins(min_size)(Categorical(jnp.asarray(probs)))
        assert ours.dtype == jnp.int32
        assert same_partition(groups_of(ours), median_variance_oracle(probs, min_size))
        sizes = np.bincount(ours)
        assert sizes.min() >= min_size  # thus no gaps


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_large_samples_against_loops(dtype):
    for seed in range(3):
        probs, targets = random_data(10_000, 10, seed=seed, concentration=0.3)
        predictions = Categorical(jnp.asarray(probs.astype(dtype)))
        for binning, groups in (
            (
                estimators.uniform_bins(10),
                groups_of(uniform_oracle(np.asarray(predictions.probs), 10)),
            ),
            (
                estimators.median_variance_bins(100),
                median_variance_oracle(np.asarray(predictions.probs), 100),
            ),
        ):
            assert same_partition(groups_of(binning(predictions)), groups)
            ours = estimators.ece(predictions, jnp.asarray(targets), binning=binning)
            expected = ece_oracle(np.asarray(predictions.probs, np.float64), targets, groups)
            np.testing.assert_allclose(ours, expected, atol=1e-6 if dtype == np.float32 else 1e-13)


def saturated_data(n, m, dtype, seed=0):
    """Predictions of overconfident networks: many are 1 but for rounding, and some exactly."""
    logits = 20 * np.random.default_rng(seed).normal(size=(n, m))
    return np.asarray(jax.nn.softmax(jnp.asarray(logits.astype(dtype)), -1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [2, 3, 10])
def test_saturated_predictions(m, dtype):
    """Variances of the size of rounding errors, and squares that underflow."""
    probs = saturated_data(1000, m, dtype)
    assert np.any(probs == 1)
    ours = estimators.median_variance_bins(10)(Categorical(jnp.asarray(probs)))
    assert same_partition(groups_of(ours), median_variance_oracle(probs, 10))


@pytest.mark.parametrize("name", BINNINGS)
@pytest.mark.parametrize("m", [2, 3, 10])
def test_bins_do_not_depend_on_the_order(m, name):
    for dtype in DTYPES:
        for probs in (
            random_data(200, m, seed=m, dtype=dtype)[0],
            random_data(200, m, seed=m, dtype=dtype, decimals=1)[0],
            saturated_data(200, m, dtype),
        ):
            order = np.random.default_rng(1).permutation(200)
            bins = BINNINGS[name](Categorical(jnp.asarray(probs)))
            shuffled = BINNINGS[name](Categorical(jnp.asarray(probs[order])))
            np.testing.assert_array_equal(shuffled, bins[order])


@pytest.mark.parametrize("name", BINNINGS)
def test_bins_do_not_depend_on_64_bit_types(name):
    probs, targets = random_data(100, 30, dtype=np.float32)

    def evaluate():
        predictions = Categorical(jnp.asarray(probs))
        value = estimators.ece(predictions, jnp.asarray(targets), binning=BINNINGS[name])
        return np.asarray(BINNINGS[name](predictions)), value

    bins, value = evaluate()
    with jax.enable_x64(False):
        bins_32, value_32 = evaluate()
    np.testing.assert_array_equal(bins_32, bins)
    np.testing.assert_allclose(value_32, value, rtol=1e-6)
    assert value.dtype == value_32.dtype == jnp.float32


@pytest.mark.parametrize("m", [2, 10, 100])
@pytest.mark.parametrize("name", BINNINGS)
def test_ece_against_a_loop(name, m):
    probs, targets = random_data(150, m, seed=3)
    predictions = Categorical(jnp.asarray(probs))
    groups = groups_of(BINNINGS[name](predictions))
    for distance, oracle in (
        (distances.TotalVariation(), total_variation),
        (distances.Euclidean(), euclidean),
        (  # not a function of the difference
            lambda p, q: jnp.sum(jnp.square(jnp.sqrt(p.probs) - jnp.sqrt(q.probs))),
            lambda p, q: np.square(np.sqrt(p) - np.sqrt(q)).sum(),
        ),
    ):
        ours = estimators.ece(
            predictions, jnp.asarray(targets), binning=BINNINGS[name], distance=distance
        )
        np.testing.assert_allclose(ours, ece_oracle(probs, targets, groups, oracle), atol=1e-14)
    default = estimators.ece(predictions, jnp.asarray(targets), binning=BINNINGS[name])
    np.testing.assert_allclose(default, ece_oracle(probs, targets, groups), atol=1e-14)


def test_any_function_is_a_binning():
    probs, targets = random_data(40, 4)
    for bins in (
        np.zeros(40, int),
        np.full(40, 39),
        np.arange(40),
        np.random.default_rng(0).integers(0, 40, size=40),
        np.random.default_rng(0).integers(0, 3, size=40).astype(np.uint8) * 13,
    ):
        ours = estimators.ece(
            Categorical(jnp.asarray(probs)), jnp.asarray(targets), binning=lambda _, b=bins: b
        )
        np.testing.assert_allclose(ours, ece_oracle(probs, targets, groups_of(bins)), atol=1e-15)
    alone = estimators.ece(
        Categorical(jnp.asarray(probs)), jnp.asarray(targets), binning=lambda p: jnp.arange(40)
    )
    np.testing.assert_allclose(alone, 1 - probs[np.arange(40), targets].mean(), atol=1e-15)


@pytest.mark.parametrize("name", BINNINGS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_bernoulli_gives_the_numbers_of_two_classes(name, dtype):
    rng = np.random.default_rng(0)
    probs = jnp.asarray(np.append(rng.uniform(size=60), [0, 1, 0.5]).astype(dtype))
    targets = jnp.asarray(rng.integers(0, 2, size=63))
    one, two = Bernoulli(probs), Categorical(jnp.stack([1 - probs, probs], -1))
    np.testing.assert_array_equal(BINNINGS[name](one), BINNINGS[name](two))
    ours = estimators.ece(one, targets, binning=BINNINGS[name])
    assert ours == estimators.ece(two, targets, binning=BINNINGS[name])
    assert ours == estimators.ece(one, targets == 1, binning=BINNINGS[name])


@pytest.mark.parametrize("name", BINNINGS)
def test_jit_and_vmap(name):
    data = [random_data(80, 5, seed=s) for s in range(4)]
    probs, targets = (jnp.stack([jnp.asarray(d[i]) for d in data]) for i in (0, 1))

    def evaluate(probs, targets):
        predictions = Categorical(probs)
        value = estimators.ece(predictions, targets, binning=BINNINGS[name])
        return value, BINNINGS[name](predictions)

    loop = [evaluate(*pair) for pair in zip(probs, targets, strict=True)]
    values, bins = (np.stack(x) for x in zip(*loop, strict=True))
    for batched in (
        jax.vmap(evaluate),
        jax.jit(jax.vmap(evaluate)),
        lambda *x: jax.lax.map(lambda pair: evaluate(*pair), x),
    ):
        ours, our_bins = batched(probs, targets)
        np.testing.assert_allclose(ours, values, atol=1e-15)
        np.testing.assert_array_equal(our_bins, bins)
    order = np.random.default_rng(0).permutation(80)
    np.testing.assert_allclose(
        evaluate(probs[0][order], targets[0][order])[0], values[0], atol=1e-15
    )


def test_binnings_are_static_arguments():
    @jax.jit
    @chex.assert_max_traces(n=2)
    def evaluate(binning, predictions, targets):
        return estimators.ece(predictions, targets, binning=binning)

    probs, targets = random_data(30, 3)
    for num_bins in (3, 4, 3, 4):
        binning = estimators.uniform_bins(num_bins)
        arguments = Categorical(jnp.asarray(probs)), jnp.asarray(targets)
        np.testing.assert_allclose(
            evaluate(binning, *arguments),
            estimators.ece(*arguments, binning=binning),
            atol=1e-15,
        )


@pytest.mark.parametrize("m", [2, 10])
def test_resampling_with_known_bins_is_regrouping(m):
    probs, targets = random_data(250, m)
    predictions = Categorical(jnp.asarray(probs))
    binning = estimators.uniform_bins(10)
    known = Binned(predictions.probs, binning(predictions))

    @jax.jit
    @jax.vmap
    def resampled(key):
        rows = jax.random.choice(key, 250, (250,))
        drawn, labels = jax.tree.map(lambda x: x[rows], (known, jnp.asarray(targets)))
        return (
            estimators.ece(drawn, labels, binning=known_bins),
            estimators.ece(Categorical(drawn.probs), labels, binning=binning),
        )

    ours, expected = resampled(jax.random.split(jax.random.key(0), 50))
    assert np.std(ours) > 1e-4
    np.testing.assert_allclose(ours, expected, atol=1e-15)


@pytest.mark.parametrize("name", BINNINGS)
def test_float32(name):
    """Rounding is small at the scale of the standard deviation, some 0.3 n^(-1/2)."""
    for m, n in ((2, 5000), (10, 5000), (1000, 500)):
        predictions, targets, _ = oracles.categorical_data(n, m, dtype=np.float32)
        ours = estimators.ece(predictions, targets, binning=BINNINGS[name])
        assert ours.dtype == jnp.float32
        bins = BINNINGS[name](predictions)
        double = oracles.as_dtype(predictions, jnp.float64)
        reference = estimators.ece(double, targets, binning=lambda _, bins=bins: bins)
        assert reference.dtype == jnp.float64
        assert abs(float(ours) - float(reference)) < 1e-5 / np.sqrt(n)


@pytest.mark.slow
def test_float32_of_a_million_samples():
    predictions, targets = Bernoulli(jnp.full(10**6, 0.7, jnp.float32)), jnp.arange(10**6) % 10 < 7
    for binning in (estimators.uniform_bins(10), estimators.median_variance_bins(100)):
        value = estimators.ece(predictions, targets, binning=binning)
        assert abs(float(value)) < 1e-6  # the standard deviation is 5e-4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINNINGS)
def test_gradients(name, dtype):
    """∂ECE/∂p_ic = sign(p̄_c − ȳ_c) / (2n) for total variation."""
    probs, targets = random_data(60, 4, dtype=dtype)
    targets = jnp.asarray(targets)

    def value(probs, distance):
        return estimators.ece(
            Categorical(probs), targets, binning=BINNINGS[name], distance=distance
        )

    expected = np.zeros_like(probs)
    for samples in groups_of(BINNINGS[name](Categorical(jnp.asarray(probs)))):
        proportions = np.bincount(targets[samples], minlength=4) / len(samples)
        expected[samples] = np.sign(probs[samples].mean(0) - proportions) / 120
    gradient = jax.grad(value)
    for ours in (gradient, jax.jit(gradient)):
        ours = ours(jnp.asarray(probs), distances.TotalVariation())
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours, expected, atol=1e-7 if dtype == np.float32 else 1e-15)
    stacked = jnp.stack([jnp.asarray(probs)] * 2)
    ours = jax.vmap(gradient, in_axes=(0, None))(stacked, distances.Euclidean())
    chex.assert_tree_all_finite(ours)
    if dtype == np.float64:
        inner = jnp.asarray(0.9 * probs + 0.025)
        bins = BINNINGS[name](Categorical(inner))
        jax.test_util.check_grads(
            jax.jit(  # points off the simplex are refused otherwise
                lambda p: estimators.ece(
                    Categorical(p),
                    targets,
                    binning=lambda _: bins,
                    distance=distances.Euclidean(),
                )
            ),
            (inner,),
            order=1,
            modes=["rev"],
        )


@pytest.mark.parametrize("distance", [distances.TotalVariation(), distances.Euclidean()])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_calibrated_bins_are_finite(distance, dtype):
    probs = jnp.asarray([[0.5, 0.5], [0.5, 0.5], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], dtype)
    targets = jnp.array([0, 1, 0, 1, 1])
    for binning in (estimators.uniform_bins(10), estimators.median_variance_bins(1)):
        value, gradient = jax.value_and_grad(
            lambda p, binning=binning: estimators.ece(
                Categorical(p), targets, binning=binning, distance=distance
            )
        )(probs)
        assert value == 0
        chex.assert_tree_all_finite(gradient)
        # What changes within the simplex: nothing.
        np.testing.assert_allclose(gradient[:, 0], gradient[:, 1], atol=1e-7)


def test_empty_bins_contribute_zero():
    """Also for a distance that is not finite at zero probabilities."""

    def divergence(p, q):
        return jnp.sum(p.probs * (jnp.log(p.probs) - jnp.log(q.probs)))

    probs = jnp.array([[0.4, 0.6], [0.4, 0.6], [0.4, 0.6]])
    value, gradient = jax.value_and_grad(
        lambda p: estimators.ece(
            Categorical(p),
            jnp.array([0, 0, 1]),
            binning=lambda p: jnp.full(3, 2),
            distance=divergence,
        )
    )(probs)
    np.testing.assert_allclose(value, 0.4 * np.log(0.4 * 1.5) + 0.6 * np.log(0.6 * 3))
    np.testing.assert_allclose(gradient[0], (1 + np.log([0.4 * 1.5, 0.6 * 3])) / 3)


@pytest.mark.parametrize("network", oracles.NETWORKS)
def test_published_cifar10_networks(data_dir, network):
    predictions, targets, published = oracles.cifar10_network(data_dir, network, "errors")
    for dtype, tolerance in ((jnp.float64, 1e-14), (jnp.float32, 1e-7)):
        for column, binning in (
            ("ECE_uniform", estimators.uniform_bins(10)),
            ("ECE_dynamic", estimators.median_variance_bins(100)),
        ):
            ours = estimators.ece(oracles.as_dtype(predictions, dtype), targets, binning=binning)
            np.testing.assert_allclose(ours, published[column], rtol=0, atol=tolerance)


ENTRIES = {name: functools.partial(estimators.ece, binning=b) for name, b in BINNINGS.items()}
CLASS_CASES = [name for name in WRONG if isinstance(WRONG[name][0], Categorical | Bernoulli)]


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("case", CLASS_CASES)
def test_wrong_data(case, name):
    predictions, targets, error, message = WRONG[case]
    with pytest.raises(error, match=message):
        ENTRIES[name](predictions, targets)


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("case", ["floating labels", "one class", "one-hot targets"])
def test_structure_is_checked_under_jit(case, name):
    predictions, targets, error, message = WRONG[case]
    with pytest.raises(error, match=message):
        jax.jit(ENTRIES[name])(predictions, targets)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_what_has_no_classes_is_refused(wrap):
    message = "predictions: expected class predictions such as .*, got Normal"
    normal = Normal(LOC, LOC + 1)
    for name, binning in BINNINGS.items():
        with pytest.raises(TypeError, match=message):
            wrap(ENTRIES[name])(normal, LOC)
        with pytest.raises(TypeError, match=message):
            wrap(binning)(normal)
        with pytest.raises(TypeError, match="predictions: expected class predictions"):
            wrap(binning)(LOC)
    with pytest.raises(ValueError, match="rows that sum to one .not logits."):
        BINNINGS["uniform"](Categorical(PROBS * 2))


@pytest.mark.parametrize(
    ("make", "name"),
    [(estimators.uniform_bins, "num_bins"), (estimators.median_variance_bins, "min_size")],
)
@pytest.mark.parametrize(
    ("value", "error"),
    [(0, ValueError), (-1, ValueError), (2.5, TypeError), ("10", TypeError), (None, TypeError)],
)
def test_wrong_options(make, name, value, error):
    with pytest.raises(error, match=f"{name}: expected an integer"):
        make(value)


def test_too_many_bins_or_too_few_samples():
    with pytest.raises(ValueError, match="num_bins: expected an integer between 1 and 16777216"):
        estimators.uniform_bins(2**24 + 1)
    binning = estimators.median_variance_bins(7)
    message = "predictions: expected at least 7 samples, got 6"
    for entry in (binning, jax.jit(binning)):
        with pytest.raises(ValueError, match=message):
            entry(Categorical(PROBS))
    for entry in (ENTRIES["median_variance"], jax.jit(ENTRIES["median_variance"])):
        with pytest.raises(ValueError, match=message):
            entry(Categorical(PROBS), LABELS)


@pytest.mark.parametrize(
    ("binning", "error", "message"),
    [
        (10, TypeError, "binning: expected a binning such as estimators.uniform_bins"),
        (estimators.binned.UniformBins, TypeError, "got the class UniformBins"),
        (lambda p: LOC, TypeError, "binning.predictions.: expected integers, one bin for each"),
        (lambda p: LABELS[1:], ValueError, r"expected shape \(6,\), one bin .*, got \(5,\)"),
        (lambda p: [0] * 6, TypeError, "expected an array, got int"),
        (lambda p: LABELS + 4, ValueError, r"bins in 0, ..., 5, got .*\[2\] = 6"),
        (lambda p: LABELS - 1, ValueError, r"bins in 0, ..., 5, got .*\[0\] = -1"),
    ],
)
def test_wrong_binnings(binning, error, message):
    with pytest.raises(error, match=message):
        estimators.ece(Categorical(PROBS), LABELS, binning=binning)


def test_wrong_distances():
    for distance, error, message in (
        ("tv", TypeError, "distance: expected a distance record, got str"),
        (distances.Euclidean, TypeError, "got the class Euclidean"),
        (lambda p, q: p.probs, ValueError, "distance.p, q.: expected shape .* for each bin"),
        (distances.Wasserstein(), NotImplementedError, "Wasserstein is not defined"),
    ):
        with pytest.raises(error, match=message):
            estimators.ece(
                Categorical(PROBS), LABELS, binning=BINNINGS["uniform"], distance=distance
            )


def test_what_is_out_of_range_never_becomes_a_number_under_jit():
    @jax.jit
    def evaluate(targets, bins):
        return estimators.ece(Binned(PROBS, bins), targets, binning=known_bins)

    assert np.isfinite(evaluate(LABELS, LABELS))
    for wrong in (-1, 6):
        assert np.isnan(evaluate(LABELS, LABELS.at[2].set(wrong)))
        assert np.isnan(evaluate(LABELS.at[2].set(wrong), LABELS))
    for binning in (estimators.uniform_bins(10), estimators.median_variance_bins(2)):
        for number in (np.nan, np.inf):
            probs = PROBS.at[1, 1].set(number)
            value = jax.jit(functools.partial(estimators.ece, binning=binning))
            assert not np.isfinite(value(Categorical(probs), LABELS))
