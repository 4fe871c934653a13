import csv
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

from calibjax import estimators, hypothesis_tests
from calibjax.distributions import Normal
from experiments.harness import cells, command_line
from paper_repro.w21 import friedman as w21_friedman
from paper_repro.w21 import friedman_networks as w21_friedman_networks
from paper_repro.w21 import friedman_statistics as w21_friedman_statistics
from paper_repro.w21 import friedman_tables as tables

SPLITS = w21_friedman.SPLITS
TINY = w21_friedman.Settings(
    iterations=40,
    networks=2,
    resamples=99,
    redraws=9,
    data_sets=2,
    networks_per_data_set=2,
    chunk_size=6,  # as many as iterations in the tables, so that they share compilations
    num_training=6,
    num_test=6,
    hidden=(4, 3),
)


def test_data():
    data = w21_friedman_networks.draw_data_set(jax.random.key(0), 4000)
    x, y = (np.asarray(leaf, float) for leaf in data)
    assert data.features.dtype == data.targets.dtype == jnp.float64
    assert scipy.stats.kstest(x.ravel(), "uniform").pvalue > 1e-3
    signal = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
    noise = y - (signal + 10 * x[:, 3] + 5 * x[:, 4])
    assert scipy.stats.kstest(noise, "norm").pvalue > 1e-3
    # No feature explains the noise, also not those that the targets do not depend on.
    correlations = np.corrcoef(x.T, noise)[-1, :-1]
    assert np.all(np.abs(correlations) < 4 / np.sqrt(4000))


def test_initial_values():
    """Glorot uniform weights, zero offsets, exponential standard deviations."""
    layers, _ = w21_friedman_networks.draw_initial_values(jax.random.key(0))
    assert len(layers) == 3
    for (weights, offsets), (fan_in, fan_out) in zip(layers, itertools.pairwise((10, 200, 50, 1))):
        bound = np.sqrt(6 / (fan_in + fan_out))
        assert weights.shape == (fan_in, fan_out)
        assert scipy.stats.kstest(np.ravel(weights), "uniform", (-bound, 2 * bound)).pvalue > 1e-3
        assert not np.any(offsets)
        assert weights.dtype == offsets.dtype == jnp.float64
    keys = jax.random.split(jax.random.key(2), 500)
    sigmas = jax.jit(jax.vmap(lambda k: w21_friedman_networks.draw_initial_values(k, ())[1]))(keys)
    assert scipy.stats.kstest(np.asarray(sigmas), "expon").pvalue > 1e-3


def stand_in(key, predictions, targets, *, num_redraws):
    """A number for each batch of predictions, in place of a test that takes long to compile."""
    parts = getattr(predictions, "components", predictions)
    return jnp.mean((parts.loc * parts.scale).reshape(parts.loc.shape[0], -1), 1) - targets[0]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folder, networks and results of a tiny run."""
    with pytest.MonkeyPatch.context() as patch, jax.enable_x64(True):
        patch.setitem(w21_friedman.SETTINGS, "quick", TINY)
        seen = {}
        write = w21_friedman.write_tables
        patch.setattr(
            w21_friedman,
            "write_tables",
            lambda folder, results, *rest: seen.update(x=results) or write(folder, results, *rest),
        )
        patch.setattr(w21_friedman, "exact_pvalues", stand_in)
        run = command_line.Run("quick", None, tmp_path_factory.mktemp("friedman"))
        w21_friedman.run(run)
        training = w21_friedman.trained("paper", TINY, TINY.networks)
        yield run, training, seen["x"]


@pytest.mark.slow
def test_training(finished):
    """A network step by step; the variance is the training error of each iteration."""
    _, training, _ = finished
    n, network = TINY.num_training, 1
    means, sigmas = training.trajectory
    assert means.dtype == sigmas.dtype == np.float64
    errors = np.square(means - training.targets)
    np.testing.assert_allclose(sigmas[1:], np.sqrt(errors[1:, :, :n].mean(2)), rtol=1e-5)

    data = w21_friedman_networks.draw_data_set(cells.key_of("w21_friedman/paper/data"), 12)
    features, targets = (np.asarray(leaf, float) for leaf in data)
    np.testing.assert_array_equal(targets, training.targets)
    key = jax.random.split(cells.key_of("w21_friedman/paper/networks"), 2)[network]
    layers, sigma = w21_friedman_networks.draw_initial_values(key, TINY.hidden)
    assert sigmas[0, network] == sigma
    leaves, tree = jax.tree.flatten(jax.tree.map(lambda leaf: np.asarray(leaf, float), layers))

    def outputs(leaves):
        x = features
        for i in range(0, 6, 2):
            x = x @ leaves[i] + leaves[i + 1]
            x = np.maximum(x, 0) if i < 4 else x
        return x[:, 0]

    def loss(leaves):
        means = w21_friedman_networks.predicted_means(jax.tree.unflatten(tree, leaves), features)
        return jnp.mean(jnp.square(means - targets)[:n])

    slope, adam = jax.jit(jax.grad(loss)), optax.adam(1e-3)
    moments = adam.init(leaves)
    for t in range(TINY.iterations + 1):
        np.testing.assert_allclose(means[t, network], outputs(leaves), rtol=1e-5, atol=1e-6)
        steps, moments = adam.update(slope(leaves), moments)
        leaves = optax.apply_updates(leaves, steps)
    assert np.abs(means[-1, network] - means[0, network]).max() > 0.1


def predictions_at(training, split, iteration):
    """Means [networks, n], standard deviations [networks] and targets, cut out by hand."""
    samples = slice(6) if split == "train" else slice(6, 12)
    means = np.asarray(training.trajectory.means[iteration], float)[:, samples]
    sigmas = np.asarray(training.trajectory.sigmas[iteration], float)
    return means, sigmas, np.asarray(training.targets, float)[samples]


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "test"])
def test_statistics_of_networks(finished, split):
    """One iteration of one network against the public estimators and scipy, one by one."""
    _, training, results = finished
    i, network = 40, 1
    means, sigmas, y = predictions_at(training, split, i)
    p = Normal(jnp.array(means[network]), jnp.full(y.size, sigmas[network]))
    sample = w21_friedman_statistics.kernel_of(p), p, jnp.array(y)
    key = cells.key_of(f"w21_friedman/resamples/{split}")
    test = hypothesis_tests.asymptotic_skce_test(key, *sample, num_draws=TINY.resamples)
    levels = np.arange(0.05, 0.96, 0.05)
    quantiles = scipy.stats.norm.ppf(levels, means[network][:, None], sigmas[network])
    excess = y[:, None] - quantiles
    expected = {
        "NLL": -scipy.stats.norm.logpdf(y, means[network], sigmas[network]).mean(),
        "MSE": np.mean((means[network] - y) ** 2),
        "pinball": np.mean(np.maximum(levels * excess, (levels - 1) * excess)),
        "SKCE (unbiased)": estimators.skce(*sample),
        "SKCE (biased)": estimators.skce_biased(*sample),
        "p-value": test.pvalue,
    }
    assert results.networks[split].keys() == expected.keys()
    for name, value in expected.items():
        computed = results.networks[split][name]
        assert computed.shape == (41, 2)
        np.testing.assert_allclose(computed[i, network], value, rtol=1e-11, err_msg=name)


def mixture_matrices(means, sigmas, y):
    """h of equally weighted normal mixtures in plain NumPy, with all and without some pairs."""
    k, n = means.shape
    variances = sigmas**2

    def expectation(difference, variance):
        return np.exp(-(difference**2) / (2 * (1 + variance))) / np.sqrt(1 + variance)

    right, wrong = np.empty((n, n)), np.empty((n, n))
    for a in range(n):
        for b in range(a + 1):
            cost = (means[:, a, None] - means[:, b]) ** 2 + (sigmas[:, None] - sigmas) ** 2
            transport = cost[scipy.optimize.linear_sum_assignment(cost)].mean()
            terms = (
                np.exp(-((y[a] - y[b]) ** 2) / 2)
                - expectation(means[:, a] - y[b], variances)[:, None]
                - expectation(means[:, b] - y[a], variances)
                + expectation(means[:, a, None] - means[:, b], variances[:, None] + variances)
            )
            factor = np.exp(-np.sqrt(transport)) / k**2
            right[a, b] = right[b, a] = factor * terms.sum()
            wrong[a, b] = wrong[b, a] = factor * (terms.sum() - terms[1:, 0].sum())
    return right, wrong


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "test"])
def test_statistics_of_the_ensemble(finished, split):
    """One iteration against plain NumPy, all component pairs, scipy's assignment."""
    _, training, results = finished
    i = 2
    means, sigmas, y = predictions_at(training, split, i)
    right, wrong = mixture_matrices(means, sigmas, y)
    n = y.size
    unbiased = [(h.sum() - np.trace(h)) / (n * (n - 1)) for h in (right, wrong)]
    log_probs = scipy.stats.norm.logpdf(y, means, sigmas[:, None])
    expected = {
        "NLL": -np.mean(scipy.special.logsumexp(log_probs, 0) - np.log(2)),
        "MSE": np.mean((means.mean(0) - y) ** 2),
        "SKCE (unbiased)": unbiased[0],
        "SKCE (biased)": right.mean(),
    }
    for name, value in expected.items():
        computed = results.ensemble[split][name]
        assert computed.shape == (41,)
        np.testing.assert_allclose(computed[i], value, rtol=1e-9, err_msg=name)
    assert results.table_iterations[i] == i
    skipping = [results.reference[split][f"SKCE ({kind})"][i] for kind in ("unbiased", "biased")]
    np.testing.assert_allclose(skipping, [unbiased[1], wrong.mean()], rtol=1e-9)
    values = means * sigmas[:, None] - y[0]
    np.testing.assert_allclose(results.exact[split]["networks"][i], values.mean(1))
    np.testing.assert_allclose(results.exact[split]["ensemble"][i], values.mean())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["network", pytest.param("ensemble", marks=pytest.mark.slow)])
def test_exact_pvalues(kind):
    """Those of the public test, one by one."""
    keys = jax.random.split(jax.random.key(4), 3)
    means, y = jax.random.normal(keys[0], (3, 2, 6)), jax.random.normal(keys[1], (6,))
    sigmas = jnp.array([0.1, 1.0, 3.0])
    if kind == "network":
        p = w21_friedman_statistics.network_predictions(means[:, 0], sigmas)
    else:
        p = w21_friedman_statistics.ensemble_predictions(means, jnp.stack([sigmas, sigmas], 1))
    pvalues = w21_friedman_statistics.exact_pvalues(keys[2], p, y, num_redraws=39)
    one = jax.tree.map(lambda leaf: leaf[1], p)
    kernel = w21_friedman_statistics.kernel_of(one)
    test = hypothesis_tests.exact_skce_test(
        keys[2], kernel, one, y, num_draws=39, statistic="biased"
    )
    assert pvalues.shape == (3,)
    assert pvalues[1] == pytest.approx(float(test.pvalue))
    assert pvalues[0] < pvalues[1]


def test_comparison_with_the_published_range():
    published, others = np.array([1.0, 2.0, 4.0]), np.array([[0.0, 9.0], [1.0, 3.0], [2.0, 0.0]])
    place = "train", "NLL", 0
    row = tables.network_row(place, published, others, np.array([-1.1, -0.9, 5.9, 6.1]))
    expected = {
        **{"data": "train", "statistic": "NLL", "iteration": 0},
        **{"published_min": 1.0, "published_max": 4.0, "scale": "linear", "spread": 1.0},
        **{"low": -1.0, "high": 6.0, "mean": 2.5, "beyond": 0.0, "mean_inside": "yes"},
        **{"median": 1.5, "median_inside": "yes", "share_inside": pytest.approx(5 / 6)},
        **{"figures_inside": 2, "rank": 2},
    }
    assert row._asdict() == expected
    alone = tables.network_row(place, None, others, np.zeros(2))._asdict()
    ours = ("data", "statistic", "iteration", "scale", "spread", "mean", "median")
    assert alone == {name: expected[name] if name in ours else None for name in expected}
    far = tables.network_row(place, published, others + 100, np.zeros(2))
    assert far.mean_inside == far.median_inside == "no"
    assert (far.share_inside, far.figures_inside, far.rank) == (0.0, 2, 0)
    # Means of the data sets 104.5, 102, 101; their mean 102.5 is 98.5 above the range.
    assert far.beyond == pytest.approx(98.5 / np.std([104.5, 102, 101], ddof=1) * np.sqrt(3))
    text = tables.verdict([row, far], 3)
    assert "Of 2 rows, our mean is in the published range in 1, and in it or within 3" in text
    assert "of it in 1. It is in the widened range in 1, and 41.7%" in text
    assert "ours in 1 rows" in text


def test_positive_statistics_are_compared_by_their_logarithms():
    published = np.array([1.0, 2.0, 4.0])
    others = np.exp(np.array([[0.0, 3.0], [1.0, 3.0], [2.0, 3.0]]))
    row = tables.network_row(("test", "MSE", 5), published, others, np.array([0.1, 20.0, 40.0]))
    assert (row.scale, row.spread) == ("log", pytest.approx(1.0))  # sd of 0, 1, 2
    assert row.mean == pytest.approx(np.exp(2.0))
    # Means of logarithms 1.5, 2, 2.5, whose mean is 2 − log 4 above the range.
    assert row.beyond == pytest.approx((2 - np.log(4)) / 0.5 * np.sqrt(3))
    assert (row.low, row.high) == (pytest.approx(np.exp(-2)), pytest.approx(4 * np.exp(2)))
    assert row.figures_inside == 1


def test_claims():
    """Best iterations, and where the ensemble is better: smaller, for p-values larger."""
    networks = np.array([[3.0, 5.0], [1.0, 1.0], [2.0, 2.0]])
    ensemble = np.array([3.0, 2.0, 1.0])
    one = lambda x: {split: dict.fromkeys(tables.STATISTICS, x) for split in ("train", "test")}  # noqa: E731
    results = tables.Results([0, 1], one(networks), one(ensemble), {}, {})
    rows = {row[:2]: row[2:] for row in tables.claim_rows(results)}
    for place, best, share in (
        (("test", "NLL"), (1, 2), 2 / 3),
        (("train", "p-value"), (0, 0), 1 / 3),
    ):
        row = rows[place]
        assert row[:2] == best
        assert row[2] == row[3] == pytest.approx(share)
        assert row[4] is None


def test_the_committed_results_agree_with_the_published_ones():
    """The verdict follows from the numbers in the table, and is the one that is claimed."""
    path = Path(tables.__file__).parents[1] / "results" / "w21_friedman" / "networks.csv"
    with path.open(newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    assert len(lines) == 2 * 18 * 6
    assert len(header) == len(tables.NetworkRow._fields)
    rows = [tables.NetworkRow(*line) for line in lines]
    names = ("published_min", "published_max", "spread", "low", "high", "median")
    low, high, spread, lower, upper, median = (
        np.array([float(getattr(row, name)) for row in rows]) for name in names
    )
    is_log = np.array([row.scale == "log" for row in rows])
    factor = np.exp(2 * np.where(is_log, spread, 0))
    np.testing.assert_allclose(lower, np.where(is_log, low / factor, low - 2 * spread), rtol=1e-9)
    np.testing.assert_allclose(upper, np.where(is_log, high * factor, high + 2 * spread), rtol=1e-9)
    inside = (lower <= median) & (median <= upper)
    assert [row.median_inside for row in rows] == ["yes" if x else "no" for x in inside]
    chosen = [int(row.iteration) in (0, 1, 10, 100, 500, 1500, 5000) for row in rows]
    assert np.all(inside[chosen])
