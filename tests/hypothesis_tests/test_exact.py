"""The exact test, its components and its power; tests of any statistic."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from calibjax import distributions, estimators, kernels
from calibjax.distributions import Bernoulli, Normal
from calibjax.hypothesis_tests import consistency_test, exact_skce_test, exact_test, power_curve
from calibjax.hypothesis_tests.components import STATISTICS, simulated_pvalue, skce_components
from tests import oracles

KEY = jax.random.key(0)
SUCCESSES = Bernoulli(np.full(30, 0.3)), (np.arange(30) < 13).astype(int)


@pytest.mark.parametrize("label_kernel", [False, True])
def test_null_distribution_by_enumeration(label_kernel):
    """All 27 possible targets of three predictions, with their probabilities."""
    probs = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]])
    kernel = oracles.categorical_kernel(0.5, oracles.label_matrix(3) if label_kernel else None)
    predictions, observed = distributions.Categorical(probs), np.array([0, 2, 1])
    statistic = lambda y: float(estimators.skce_biased(kernel, predictions, np.array(y)))  # noqa: E731
    threshold = statistic(observed) - 1e-12
    exact = sum(
        np.prod(probs[np.arange(3), y]) * (statistic(y) >= threshold)
        for y in itertools.product(range(3), repeat=3)
    )
    options = {"num_draws": 20_000, "statistic": "biased"}
    test = exact_skce_test(KEY, kernel, predictions, observed, **options)
    assert 0.01 < exact < 0.5
    error = np.sqrt(exact * (1 - exact) / 20_000)
    assert abs(float(test.pvalue) - exact) < 4 * error + 1 / 20_000
    marked = [x.split()[0] for x in str(test).splitlines() if x.endswith(" <- largest")]
    assert marked == [test.components.largest]


@pytest.mark.parametrize(
    "name", ["categorical-5-white", pytest.param("normal-None", marks=pytest.mark.slow)]
)
def test_equals_the_general_test_with_the_biased_statistic(name):
    """Matrix products, pairs under jit, and plain redraws of the statistic: one test."""
    data = kernel, predictions, targets = oracles.cases()[name][:3]
    test = functools.partial(exact_skce_test, KEY, num_draws=50, statistic="biased")

    @jax.jit
    def plain(kernel, *data):
        statistic = functools.partial(estimators.skce_biased, kernel)
        return exact_test(KEY, statistic, *data, num_draws=50)

    fast, others = test(*data), [plain(*data)]
    if name == "normal-None":  # has features only where its values are known
        others.append(jax.jit(test)(*data))
    for other in others:
        assert_allclose(fast.null_samples, other.null_samples, rtol=1e-10)
        assert_allclose(fast.statistic, other.statistic, rtol=1e-10)
        assert_allclose(fast.pvalue, other.pvalue, atol=0.03)
    assert_allclose(fast.estimate, estimators.skce(kernel, predictions, targets), rtol=1e-10)


@pytest.mark.parametrize("test", [exact_test, consistency_test])
def test_successes_are_binomial(test):
    """An exact one-sided binomial test; equal predictions are the same resampled."""
    found = test(KEY, lambda p, y: jnp.sum(y), *SUCCESSES, num_draws=20_000)
    exact = stats.binom.sf(12, 30, 0.3)
    assert abs(float(found.pvalue) - exact) < 4 * np.sqrt(exact * (1 - exact) / 20_000)
    assert found.statistic == found.estimate == 13


def test_consistency_resampling_against_a_loop():
    """Bröcker and Smith's resampling in NumPy, with its own random numbers."""
    rng = np.random.default_rng(0)
    probs, targets, draws = rng.uniform(size=12), rng.integers(0, 2, size=12), []
    own = lambda p, y: np.sum(p * (y - p)) + 0.3 * np.max(y - p)  # noqa: E731
    for _ in range(4000):
        resampled = probs[rng.integers(0, 12, size=12)]
        draws.append(own(resampled, rng.uniform(size=12) < resampled))
    statistic = lambda p, y: jnp.sum(p.probs * (y - p.probs)) + 0.3 * jnp.max(y - p.probs)  # noqa: E731
    test = consistency_test(KEY, statistic, Bernoulli(probs), targets, num_draws=4000)
    assert stats.ks_2samp(draws, test.null_samples).pvalue > 1e-3
    assert_allclose(test.statistic, own(probs, targets), rtol=1e-12)
    count = np.sum(np.asarray(test.null_samples) >= float(test.statistic))
    assert_allclose(test.pvalue, (1 + count) / 4001)


@pytest.mark.parametrize("transform", [jax.grad, jax.jit, jax.jacfwd])
def test_statistics_that_close_over_traced_values(transform):
    loc, targets = np.zeros(6), np.array([1.0, -2.0, 0.5, 0.0, 1.0, 3.0])

    def estimate(scale):
        statistic = lambda p, y: scale * jnp.mean(jnp.square(y - p.loc))  # noqa: E731
        return exact_test(KEY, statistic, Normal(loc, np.ones(6)), targets, num_draws=9).estimate

    expected = np.mean(targets**2) * (2 if transform is jax.jit else 1)
    assert_allclose(transform(estimate)(2.0), expected, rtol=1e-12)


def pool_in_loops(unbiased, diagonal, n):
    """The statistics of a pool, written from the formulas."""
    both, rest = ((n - 1) * unbiased + x for x in (diagonal, diagonal.mean()))
    scores = [(np.cbrt(x) - np.cbrt(x).mean()) / np.cbrt(x).std() for x in (both, rest, diagonal)]
    return scores, np.max([scores[0], scores[1], np.abs(scores[2])], 0)


def rank(pool):
    return pytest.approx((1 + sum(t >= pool[0] for t in pool[1:])) / len(pool), rel=1e-12)


@pytest.mark.parametrize("name", ["normal-None", "categorical-5-label"])
def test_components_against_loops(name):
    kernel, predictions, targets, h, samples = oracles.cases()[name]
    matrix = oracles.h_matrix(h, samples)
    n, run = len(matrix), functools.partial(exact_skce_test, KEY, kernel, predictions, targets)
    test = run(num_draws=40)
    biased, unbiased, dispersion = (getattr(test.components, x) for x in STATISTICS[1:])
    assert_allclose(biased.statistic, matrix.mean(), rtol=1e-9)
    assert_allclose(unbiased.statistic, oracles.unbiased(matrix), rtol=1e-9)
    assert_allclose(dispersion.statistic, np.trace(matrix) / n, rtol=1e-9)
    assert_allclose(test.estimate, oracles.unbiased(matrix), rtol=1e-9)
    off, on = (np.r_[part.statistic, part.null_samples] for part in (unbiased, dispersion))
    scores, pool = pool_in_loops(off, on, n)
    ours = [part.z for part in (biased, unbiased, dispersion)]
    assert_allclose(ours, [s[0] for s in scores], rtol=1e-8)
    assert_allclose(np.r_[test.statistic, test.null_samples], pool, rtol=1e-8)
    pools = {"omnibus": pool, "biased": (n - 1) * off + on, "unbiased": off}
    pools["dispersion"] = np.abs(scores[2])
    values = test.statistic, biased.statistic, unbiased.statistic, abs(dispersion.z)
    for (statistic, own), value in zip(pools.items(), values, strict=True):
        found = run(num_draws=40, statistic=statistic)
        assert found.pvalue == rank(own)
        assert_allclose(found.statistic, value, rtol=1e-9)
        assert found.null_samples.shape == (40,)
        if statistic != "omnibus":
            assert getattr(test.components, statistic).pvalue == rank(own)


def test_of_squares_the_biased_skce_alone_counts():
    rng = np.random.default_rng(0)
    unbiased, diagonal = rng.normal(size=(20, 2)), rng.gamma(3, size=(20, 2))
    options = {"num_targets": 7, "ranked": "omnibus"}
    several = options | {"family": jax.tree.structure([0, 0]), "squares": (False, True)}
    pool, parts = skce_components(jnp.asarray(unbiased), jnp.asarray(diagonal), **several)
    root = np.cbrt(6 * unbiased + diagonal)[:, 1]
    assert_allclose(pool[:, 1], (root - root.mean()) / root.std(), rtol=1e-10)
    assert parts.of_kernel("1").largest == "biased"
    alone, _ = skce_components(*map(jnp.asarray, (unbiased[:, 0], diagonal[:, 0])), **options)
    assert_allclose(pool[:, 0], alone, rtol=1e-12)


def test_a_constant_diagonal_has_no_say():
    """(y − p)² is 1/4 for p = 1/2 whatever comes."""
    kernel = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    predictions = Bernoulli(jnp.full(12, 0.5, jnp.float32))
    test = exact_skce_test(KEY, kernel, predictions, jnp.ones(12, int), num_draws=99)
    assert test.components.dispersion.z == 0
    assert test.components.dispersion.pvalue == 1
    assert test.pvalue == 0.01
    two = exact_skce_test(KEY, kernel, predictions[:2], jnp.ones(2, int), num_draws=9)
    assert 0 < two.pvalue <= 1  # the fewest samples that there may be


def test_draws_that_are_no_numbers_count_against_rejection():
    unbiased, diagonal = jnp.linspace(3.0, 0.0, 20), jnp.linspace(2.0, 1.0, 20)
    components = functools.partial(skce_components, num_targets=5, ranked="omnibus")
    pool, parts = components(unbiased.at[3].set(jnp.nan), diagonal.at[3].set(jnp.nan))
    assert jnp.isnan(pool[3])
    assert jnp.isfinite(pool[0])
    assert_allclose(parts.biased.pvalue, 2 / 20)
    pool, parts = components(unbiased.at[0].set(jnp.nan), diagonal)
    assert jnp.isnan(pool[0])
    assert jnp.isnan(parts.biased.pvalue)


def test_prints_what_was_seen():
    predictions, z = Normal(np.zeros(64), np.ones(64)), jax.random.normal(jax.random.key(1), (64,))
    test = functools.partial(exact_skce_test, KEY, oracles.normal_kernel(), predictions)
    wide, narrow = test(0.5 * z, num_draws=100), test(2 * z, num_draws=100)
    assert "targets scatter less: underconfident" in str(wide)
    assert "targets scatter more: overconfident" in str(narrow)
    assert wide.components.largest == narrow.components.largest == "dispersion"


@pytest.mark.parametrize("ranked", STATISTICS)
def test_equal_data_sets_tie(ranked):
    """Also where their sums were taken in another order, and have other rounding errors."""
    rng, n, order = np.random.default_rng(0), 4096, np.arange(40) % 20  # each data set twice
    diagonal = 0.2 + 0.3 / np.sqrt(n) * rng.normal(size=40)
    unbiased = (1e-3 * diagonal / n * rng.normal(size=40))[order]
    diagonal, eps, found = diagonal[order], np.finfo(float).eps, []
    for _ in range(5):
        noise = eps * rng.normal(size=(2, 40))
        noisy = unbiased + 30 * noise[0] * diagonal / n, diagonal * (1 + 3 * noise[1])
        statistic, parts = skce_components(*noisy, num_targets=n, ranked=ranked)
        pvalues = [getattr(parts, x).pvalue for x in STATISTICS[1:]]
        found.append([simulated_pvalue(statistic[0], statistic[1:]), *pvalues])
    assert all(pvalues == found[0] for pvalues in found)


OF_LABELS = kernels.TensorProduct(kernels.Exponential(0.5), kernels.White())


def simulate(key, n, error=0.3):
    keys = jax.random.split(key)
    probs = jax.random.uniform(keys[0], (n,))
    truth = probs + error * jnp.minimum(probs, 1 - probs)
    return Bernoulli(probs), distributions.sample_targets(keys[1], Bernoulli(truth))


def test_power_is_that_of_tests_one_by_one():
    options = {"num_data_sets": 20, "num_draws": 199}
    sizes, power, error = power_curve(KEY, OF_LABELS, simulate, [40, 12], **options)
    assert sizes.tolist() == [40, 12]
    rejected = []
    for key in jax.random.split(jax.random.fold_in(KEY, 12), 20):
        own, redraws = jax.random.split(key)
        test = exact_skce_test(redraws, OF_LABELS, *simulate(own, 12), num_draws=199)
        rejected.append(test.pvalue <= 0.05 + 1e-6)
    assert_allclose(power[1], np.mean(rejected), rtol=1e-6)
    inside = (sum(rejected) + 1) / 22
    assert_allclose(error[1], np.sqrt(inside * (1 - inside) / 20), rtol=1e-6)
    with pytest.raises(ValueError, match="^num_draws: expected more: 18 never reject"):
        power_curve(KEY, OF_LABELS, simulate, [9], num_draws=18)
