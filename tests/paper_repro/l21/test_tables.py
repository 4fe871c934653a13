"""Comparisons and correlations of the tables of L21."""

import numpy as np
import scipy.stats

from paper_repro.l21 import crime_correlations as correlations
from paper_repro.l21 import crime_tables as tables


def test_comparison():
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(2, 30))
    differences = one - two - 0.3
    row = tables.comparison(differences, 14)
    student = scipy.stats.ttest_rel(one - 0.3, two).pvalue
    error = np.std(differences, ddof=1) / np.sqrt(30)
    np.testing.assert_allclose([row.difference, row.error], [differences.mean(), error])
    np.testing.assert_allclose(row.student, student)
    assert row.better == sum(differences < 0)
    assert row.verdict == "undecided"
    assert tables.comparison(differences - 3, 14).verdict == "confirmed"
    assert tables.comparison(differences + 4, 14).verdict == "refuted"
    # Mean and signed ranks are both significant, and contradict each other.
    differences = np.append(-np.linspace(0.1, 0.2, 50), np.linspace(5, 15, 10))
    row = tables.comparison(differences, 1)
    assert row.difference > 0
    assert max(row.student, row.wilcoxon) < 0.05
    assert row.verdict == "undecided"


def test_differences_of_correlations():
    """All kinds against NumPy, and verdicts where one metric is the better, worse, or the same."""
    rng = np.random.default_rng(0)
    maximum, noise, other = rng.normal(size=(3, 7, 30)) + rng.normal(size=(3, 7, 1))
    local = maximum + 0.3 * noise
    found = correlations.correlation_differences(local, other, maximum, 8)

    def kinds(x):
        yield np.corrcoef(x.ravel(), maximum.ravel())[0, 1]
        yield np.corrcoef(x.mean(1), maximum.mean(1))[0, 1]
        yield np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(x, maximum)])

    expected = [a - b for a, b in zip(kinds(local), kinds(other))]
    np.testing.assert_allclose([x.value for x in found.values()], expected)
    without = [
        correlations.correlation(np.delete(local, i, 1), np.delete(maximum, i, 1))
        - correlations.correlation(np.delete(other, i, 1), np.delete(maximum, i, 1))
        for i in range(30)
    ]
    error = np.sqrt(29 / 30 * np.sum(np.square(without - np.mean(without))))
    np.testing.assert_allclose(found["pooled"].error, error)
    assert found["pooled"].verdict == found["networks"].verdict == "confirmed"
    found = correlations.correlation_differences(other, local, maximum, 8)
    assert found["pooled"].verdict == found["networks"].verdict == "refuted"
    similar = maximum + 0.3 * rng.permuted(noise, axis=1)
    found = correlations.correlation_differences(similar, local, maximum, 8)
    assert found["pooled"].verdict == "undecided"


def test_comparison_of_equal_methods():
    """Two networks for which both have the same errors, as in the quick preset."""
    assert tables.comparison(np.zeros(2), 10) == (0, 0, 0, 1, 1, "undecided")
