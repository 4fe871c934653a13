"""Debiased bins, and kernel density ratios by the formula as printed."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from paper_repro.g24 import added_tables as tables
from paper_repro.g24 import naive_density as naive
from paper_repro.g24 import networks as g24_networks


def test_naive_ratio():
    """Against densities of scipy; NaN at a confidence of one; sums that underflow."""
    rng = np.random.default_rng(0)
    confidences, correct = rng.uniform(0.4, 1, 30), rng.integers(0, 2, 30)
    confidences[0] = 1 - 1e-9  # one in float32
    points = np.array([0.5, 0.9, 1.0, 1 - 1e-9, 0.7])
    samples = naive.Samples(jnp.asarray(confidences), jnp.asarray(correct))
    found = naive.naive_residuals(samples, jnp.asarray(points), jnp.asarray(0.05))
    assert found.dtype == jnp.float32
    inside = points[[0, 1, 4]]
    parameters = confidences / 0.05 + 1, (1 - confidences) / 0.05 + 1
    kernels = scipy.stats.beta.pdf(inside[:, None], *parameters)
    expected = inside - kernels @ correct / kernels.sum(1)
    for values in np.asarray(found):
        np.testing.assert_array_equal(np.isnan(values), [False, False, True, True, False])
        np.testing.assert_allclose(values[[0, 1, 4]], expected, atol=1e-3)
    printed, clipped = np.asarray(
        naive.naive_residuals(samples, points[:1] / 50, jnp.asarray(1e-3))
    )
    assert np.isnan(printed[0])
    np.testing.assert_allclose(clipped[0], 0.01, rtol=1e-6)


def test_risk_without_missing_predictions():
    rng = np.random.default_rng(1)
    errors, residuals = rng.normal(size=(2, 9))
    residuals[[2, 5]] = np.nan
    there = [i for i in range(9) if i not in (2, 5)]
    losses = [
        (errors[i] * errors[j] - residuals[i] * residuals[j]) ** 2
        for i in there
        for j in there
        if i != j
    ]
    np.testing.assert_allclose(naive.risk_of_the_rest(errors, residuals), np.mean(losses))


def test_what_is_missing_explains_the_risk():
    """Predictions of one that are right: the root of the risk of the others is 1/(1 - s) times."""
    rng = np.random.default_rng(2)
    n = 400
    confidences = rng.uniform(0.5, 0.99, n)
    correct = (rng.random(n) < confidences).astype(int)
    confidences[:120], correct[:120] = 1, 1
    samples = naive.Samples(jnp.asarray(confidences), jnp.asarray(correct))
    folds = rng.permutation(np.arange(n) % 4)
    found = naive.cross_validated(samples, np.arange(n), folds, np.array([0.05, 0.3]))
    np.testing.assert_allclose(found["saturated"], 0.3)
    np.testing.assert_allclose(found["missing"].mean(1), 0.3)
    errors = confidences - correct
    zero = []
    for fold in range(4):
        e = errors[folds == fold]
        zero.append(((e @ e) ** 2 - np.sum(e**4)) / (len(e) * (len(e) - 1)))
    ratios = np.sqrt(found["risks"].mean(1) / np.mean(zero))
    np.testing.assert_allclose(ratios, 1 / 0.7, rtol=0.03)
    stable = {"a": {"risks": np.full((4, 2), np.mean(zero))}}
    (row,) = tables.naive_rows(stable, {"a": found})
    np.testing.assert_allclose(row[5], row[2] / 0.7)
    np.testing.assert_allclose(row[3], 100 * np.sqrt(found["risks"][0].mean(0).min()))


def test_published_shares():
    rows = {row[:2]: row for row in tables.implied_rows()}
    assert len(rows) == 5 + 5 + 3
    np.testing.assert_allclose(rows["cifar10", "DenseNet-40"][4], 1 - 6.11 / 13.7)
    np.testing.assert_allclose(rows["ImageNet", "ResNet-152"][4], 1 - 12.57 / 12.77)
    assert rows["cifar100", "LeNet-5"][4] == 0


@pytest.mark.parametrize("data", ["cifar10", "cifar100"])
def test_debiased_bins_have_the_grids_of_bins(data):
    plain, added = (x[data]["top-label"] for x in (g24_networks.ESTIMATORS, g24_networks.ADDED))
    for name in ("15 bins", "bins"):
        debiased = added[name.replace("bins", "debiased bins")]
        np.testing.assert_array_equal(debiased.grid(100), plain[name].grid(100))


def test_debiased_rows():
    rng = np.random.default_rng(0)
    shared, folds, results = rng.exponential(size=50), np.arange(50) % 5, {}
    for i, name in enumerate(("15 bins", "15 debiased bins", "bins", "debiased bins", "ukkr")):
        losses = shared + 0.1 * i
        risks = np.array([losses[folds == fold].mean() for fold in range(5)])[:, None]
        results["n", "top-label", name] = {
            "grid": np.array([15.0]),
            "risks": risks,
            "folds": folds,
            "losses": losses,
            "test_values": np.zeros((5, 3)),
            "estimate": np.array(0.01 * i),
            "standard_error": np.array(0.001),
        }
    rows = list(tables.debiased_rows(results))
    assert [row[4] is None for row in rows] == [True, False, True, False, True]
    assert rows[1][4].startswith("1e+03 ±")
    assert rows[3][5:] == (300, 10)
