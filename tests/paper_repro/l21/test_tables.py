"""Comparisons and correlations of the tables of L21."""

import numpy as np
import scipy.stats

from paper_repro.l21 import crime_correlations as correlations
from paper_repro.l21 import crime_fits as fits
from paper_repro.l21 import crime_tables as tables
from paper_repro.l21.crime_combinations import Combination
from paper_repro.l21.crime_models import Reading


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


def test_correlation_and_its_error():
    """The jackknife against independent draws of pairs; seeds are columns."""
    rng = np.random.default_rng(0)
    errors, values = [], []
    for _ in range(200):
        x = rng.normal(size=(2, 40))
        y = 0.6 * x + 0.8 * rng.normal(size=(2, 40))
        values.append(correlations.correlation(x, y))
        errors.append(correlations.jackknife_error(correlations.correlation, x, y))
    np.testing.assert_allclose(np.mean(values), 0.6, atol=4 * np.std(values) / np.sqrt(200) + 0.01)
    np.testing.assert_allclose(np.mean(errors), np.std(values), rtol=0.2)


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
    # At the bound: Student's t of |difference| / se with 29 degrees of freedom, 8 pairs.
    bound = scipy.stats.t.isf(0.05 / 16, 29)
    noise = rng.normal(size=(20, 7, 30))
    for x in noise:
        found = correlations.correlation_differences(0.1 * maximum + x, other, maximum, 8)["pooled"]
        assert (found.verdict == "undecided") == (abs(found.value / found.error) < bound)


def test_comparison_of_equal_methods():
    """Two networks for which both have the same errors, as in the quick preset."""
    assert tables.comparison(np.zeros(2), 10) == (0, 0, 0, 1, 1, "undecided")


def made_up(combinations):
    """60 networks around the published values, and this much off."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=60)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    found = {}
    for combination, offset in combinations.items():
        networks = [{"LoRe (PCA)": {"floor": 0.5}} for _ in range(60)]
        for number in fits.published():
            values = number.mean + offset + number.deviation * noise
            for network, value in zip(networks, values, strict=True):
                network.setdefault(number.method, {"floor": 0.5})[number.field] = value
        found[combination] = networks
    return found


def test_which_combination_fits():
    shared = Combination(Reading(shared=True))
    found = made_up({Combination(): 0.0, Combination(bins="P(y = 1)"): -0.3, shared: 0.4})
    rows = list(fits.fit_rows(found))
    assert len(rows) == 9 + 3 * 7
    assert all(row.verdict == "fits" and row.fitting >= 1 for row in rows)
    assert {row.closest for row in rows} == {"994/500, 100, 200 epochs, shares, confidence"}
    one, two, three = fits.combination_rows(found)
    assert (one["all, of 30"], one["maximum, of 9"]) == (30, 9)
    assert two["maximum, of 9"] == three["maximum, of 9"] == 0
    assert three["rows of Table 1"] == "none"
    assert three["communities"].startswith("1494")


def test_distance_from_a_published_number():
    number = fits.Published("maximum", "a", 0.5, 0.3, 0.01, "maximum")
    values = np.array([0.55, 0.65, 0.6])
    found = fits.compared(number, values)
    error = np.sqrt(0.05**2 / 3 + 0.3**2 / 60)
    np.testing.assert_allclose(found, (0.6, 0.05, 0.09 / error))
    assert fits.compared(number, np.array([0.505, 0.495, 0.506])).distance == 0


def test_published_numbers_below_the_floor():
    found = made_up({Combination(): 0.3, Combination(Reading(shared=True)): 0.3})
    for network in found[Combination(Reading(shared=True))]:
        network["LoRe (PCA)"]["floor"] = 0.1  # which has seen the labels
    rows = {x.method: x for x in fits.fit_rows(found) if x.quantity == "maximum"}
    assert rows["LoRe (PCA)"].lowest_floor == 0.5
    # Published 0.392 ± 0.071 and 0.515 ± 0.081 over 60 networks.
    assert rows["LoRe (PCA)"].verdict == "below the floor"
    assert rows["Histogram binning"].verdict == "none fits"


def test_one_network_is_not_compared():
    """A method that has an optimum for one of 60 networks only; other combinations are."""
    found = made_up({Combination(): 0.0, Combination(grouping="incomes"): 0.3})
    for network in found[Combination()][1:]:
        del network["Group temp. scaling"]
    rows = {x.method: x for x in fits.fit_rows(found) if x.quantity == "maximum"}
    row = rows["Group temp. scaling"]
    assert (row.closest.split(", ")[3], row.fitting) == ("incomes", 0)
    assert rows["Temperature scaling"].fitting == 1
    values = fits.values_of(found, Combination(), "Group temp. scaling", "maximum")
    assert np.isnan(fits.mean_and_sd(values)).all()
