"""Networks for Friedman 1: equal to the published numbers, and right by other means."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

from calibjax import hypothesis_tests
from paper_repro.w21 import friedman, friedman_networks, friedman_published
from paper_repro.w21 import friedman_statistics as fs
from paper_repro.w21 import friedman_tables as tables
from paper_repro.w21.friedman_published import Curves
from tests.paper_repro import committed

SIZES = (6, 5)  # of two data sets


def test_the_first_network_is_that_of_the_authors():
    """Data, initial values, training, estimates and resamples, by the published numbers."""
    iterations = [0, 1, 2, 5, 10, 20, 50, 100]
    trajectory = friedman_networks.train(1, iterations[-1])
    found = friedman.evaluate_member(trajectory, 0, iterations, 1000)
    published = friedman_published.committed_curves()
    np.testing.assert_array_equal(published.iterations[:8], iterations)
    for split, statistics in found.items():
        for name in fs.STATISTICS:
            expected = published.networks[split][name][:8, 0]
            np.testing.assert_allclose(statistics[name], expected, rtol=0, atol=1e-9, err_msg=name)
        assert 0.01 < statistics["p-value"][-1] < 0.99


def mixture_matrices(means, sigmas, y):
    """h(i, j) of equally weighted normal mixtures in plain NumPy, and without some pairs."""
    k, n = means.shape
    variances = sigmas**2

    def expectation(difference, variance):
        return np.exp(-(difference**2) / (2 * (1 + variance))) / np.sqrt(1 + variance)

    right, wrong = np.empty((n, n)), np.empty((n, n))
    for a in range(n):
        for b in range(n):
            cost = (means[:, a, None] - means[:, b]) ** 2 + (sigmas[:, None] - sigmas) ** 2
            transport = cost[scipy.optimize.linear_sum_assignment(cost)].mean()
            terms = (
                np.exp(-((y[a] - y[b]) ** 2) / 2)
                - expectation(means[:, a] - y[b], variances)[:, None]
                - expectation(means[:, b] - y[a], variances)
                + expectation(means[:, a, None] - means[:, b], variances[:, None] + variances)
            )
            factor = np.exp(-np.sqrt(transport)) / k**2
            right[a, b] = factor * terms.sum()
            wrong[a, b] = factor * (terms.sum() - terms[1:, 0].sum())
    return right, wrong


def test_statistics_of_an_ensemble():
    """Against plain NumPy with all pairs of components, and the authors' sums in both orders."""
    rng = np.random.default_rng(3)
    means, sigmas = rng.normal(size=(3, sum(SIZES))), rng.uniform(0.5, 2, 3)
    targets = tuple(rng.normal(size=n) for n in SIZES)
    predictions = fs.ensemble_predictions(jnp.array(means), jnp.array(sigmas))
    batch = jax.tree.map(lambda leaf: leaf[None], predictions)
    scores, matrices = fs.evaluate(batch, targets)
    for i, part in enumerate((slice(0, 6), slice(6, 11))):
        y, n = targets[i], SIZES[i]
        right, wrong = mixture_matrices(means[:, part], sigmas, y)
        below = np.tril_indices(n, -1)
        expected = {
            "SKCE (unbiased)": (right.sum() - np.trace(right)) / (n * (n - 1)),
            "SKCE (biased)": right.mean(),
            "SKCE (unbiased), as published": wrong.T[below].mean(),  # i < j
            "SKCE (biased), as published": (2 * wrong[below].sum() + np.trace(wrong)) / n**2,
        }
        found = fs.calibration_statistics(matrices[i][0], np.ones((1, n)))
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=1e-9), name
        log_probs = scipy.stats.norm.logpdf(y, means[:, part], sigmas[:, None])
        expected = -np.mean(scipy.special.logsumexp(log_probs, 0) - np.log(3))
        np.testing.assert_allclose(scores[i]["NLL"], [expected], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["network", "ensemble"])
def test_exact_pvalues(kind):
    """Those of the public test, one by one."""
    keys = jax.random.split(jax.random.key(4), 3)
    means, y = jax.random.normal(keys[0], (3, 2, 6)), jax.random.normal(keys[1], (6,))
    sigmas = jnp.array([0.1, 1.0, 3.0])
    if kind == "network":
        p = fs.network_predictions(means[:, 0], sigmas)
    else:
        p = fs.ensemble_predictions(means, jnp.stack([sigmas, sigmas], 1))
    pvalues = fs.exact_pvalues(keys[2], p, y, num_redraws=39)
    one = jax.tree.map(lambda leaf: leaf[1], p)
    sample = fs.kernel_of(one), one, y
    test = hypothesis_tests.exact_skce_test(keys[2], *sample, num_draws=39, statistic="biased")
    assert pvalues.shape == (3,)
    assert pvalues[1] == pytest.approx(float(test.pvalue))
    assert pvalues[0] < pvalues[1]


def curves_of(iterations, networks, ensemble):
    """The same numbers for all statistics."""
    one = lambda x: {s: dict.fromkeys(fs.STATISTICS, np.array(x)) for s in ("train", "test")}  # noqa: E731
    return Curves(np.array(iterations), one(networks), one(ensemble))


def test_claims():
    """Best iterations, and where the ensemble is better: smaller, for p-values larger."""
    curves = curves_of([0, 5, 9], [[3.0, 5.0], [1.0, 1.0], [2.0, 2.0]], [3.0, 2.0, 1.0])
    rows = {(x["data"], x["statistic"]): x for x in tables.claim_rows("ours", curves)}
    for place, best, share in (
        (("test", "NLL"), (5, 9), 2 / 3),
        (("train", "p-value"), (0, 0), 1 / 3),
    ):
        row = rows[place]
        assert (row["networks best at"], row["ensemble best at"]) == best
        assert row["ensemble better"] == row["up to 1500"] == pytest.approx(share)
        assert row["after 1500"] is None


def test_the_committed_results_equal_the_published_ones():
    """Up to iteration 2000 all networks, and the ensemble with the authors' error."""
    rows = committed("w21_friedman", "agreement")
    assert len(rows) == 2 * 6 * 2
    for row in rows:
        assert float(row["0 to 1000"]) < 1e-8
        assert float(row["1001 to 2000"]) < 1e-8
