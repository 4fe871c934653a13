from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import roc_auc_score

from calibjax import distributions as d
from calibjax import scores
from calibjax.scores.decomposition import prediction_rejection_ratio

RANDOM = np.random.default_rng(0)
PROBS = RANDOM.random(200).round(2)  # with ties
LABELS = (RANDOM.random(200) < PROBS**2).astype(int)
CLASSES = RANDOM.dirichlet(np.ones(3), 150)
CLASS_LABELS = np.array([RANDOM.choice(3, p=np.roll(p, 1) / 2 + p / 2) for p in CLASSES])


def of_event(p, y):
    """Dimitriadis, Gneiting and Jordan (2021), with the isotonic regression of scikit-learn."""
    r = IsotonicRegression(out_of_bounds="clip").fit(p, y).predict(p)
    score, best, constant = (np.mean((q - y) ** 2) for q in (p, r, y.mean()))
    return np.array([score, score - best, constant - best, constant])


def parts_of(decomposition):
    names = ("score", "miscalibration", "discrimination", "uncertainty")
    return np.array([float(getattr(decomposition, name)) for name in names])


def test_binary_parts_are_those_of_scikit_learn():
    """Both classes count, and the isotonic regressions of both are mirror images."""
    found = scores.brier_decomposition(d.Bernoulli(PROBS), LABELS)
    np.testing.assert_allclose(parts_of(found), 2 * of_event(PROBS, LABELS), atol=1e-12)
    brier = scores.brier_score(d.Bernoulli(PROBS), LABELS, scale_by_half=False)
    np.testing.assert_allclose(found.score, brier, rtol=1e-12)


def test_published_parts_of_rain_in_niamey():
    """The README of reliabilitydiag (R) has these numbers of the EMOS forecasts.

    The data are those that it contains, `precip_Niamey_2016`: Vogel et al. (2021), Statistical
    forecasts for the occurrence of precipitation outperform global models over northern tropical
    Africa; modified historic products of the ECMWF, CC BY 4.0. Probabilities have six digits.
    """
    file = Path(__file__).parent / "niamey.csv"
    probs, labels = np.loadtxt(file, delimiter=",", skiprows=1, usecols=(1, 2)).T
    found = scores.brier_decomposition(d.Bernoulli(probs), labels.astype(int))
    published = np.array([0.232, 0.0183, 0.0305, 0.244])  # of one class
    half_a_digit = np.array([0.0005, 0.00005, 0.00005, 0.0005])
    assert (np.abs(parts_of(found) / 2 - published) <= half_a_digit).all()


def test_parts_of_classes_are_sums():
    found = scores.brier_decomposition(d.Categorical(CLASSES), CLASS_LABELS)
    expected = sum(of_event(CLASSES[:, c], (c == CLASS_LABELS) * 1.0) for c in range(3))
    np.testing.assert_allclose(parts_of(found), expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["equal scales", "very different scales", "heavy tails"])
def test_crps_and_its_uncertainty(kind):
    """They are known in closed form."""
    n = 200
    loc, noise = 2 * RANDOM.normal(size=n), RANDOM.normal(size=n)
    scale = np.exp(1.5 * RANDOM.normal(size=n)) if kind == "very different scales" else np.ones(n)
    predictions = d.Normal(loc, scale)
    if kind == "heavy tails":
        noise = RANDOM.standard_t(2, n)
        predictions = d.StudentT(np.full(n, 2.0), loc, scale)
    targets = loc + scale * noise + 0.3
    found = scores.crps_decomposition(predictions, targets)
    np.testing.assert_allclose(found.score, scores.crps(predictions, targets), rtol=7e-3)
    spread = np.abs(targets[:, None] - targets).mean() / 2
    np.testing.assert_allclose(found.uncertainty, spread, rtol=7e-3)
    total = found.miscalibration - found.discrimination + found.uncertainty
    np.testing.assert_allclose(found.score, total, rtol=1e-5)
    assert min(parts_of(found)) > 0


def test_crps_parts_of_ensembles_are_exact():
    """The integrands are constant between all members and targets."""
    n, m = 25, 7
    values = RANDOM.normal(size=(n, m))
    targets, weights = RANDOM.normal(size=n), RANDOM.integers(0, 3, n)
    ends = np.unique(np.append(values, targets))
    parts = [of_event((values <= z).mean(1), (targets <= z) * 1.0) for z in ends[:-1]]
    expected = np.diff(ends) @ np.array(parts)
    found = scores.crps_decomposition(d.Ensemble(values), targets, num_thresholds=n * (m + 1))
    np.testing.assert_allclose(parts_of(found), expected, rtol=1e-5)
    finer = scores.crps_decomposition(d.Ensemble(values), targets, num_thresholds=3 * n * (m + 1))
    np.testing.assert_allclose(parts_of(finer), expected, rtol=1e-5)
    rows = np.repeat(np.arange(n), weights)
    one, other = (
        scores.crps_decomposition(d.Ensemble(values[x]), targets[x], num_thresholds=9, weights=w)
        for x, w in ((rows, None), (slice(None), weights))
    )
    np.testing.assert_allclose(parts_of(one), parts_of(other), rtol=1e-5)


def test_crps_of_counts_is_a_sum():
    """Thresholds between all counts are exact."""
    rate, counts = RANDOM.uniform(1, 6, 100), RANDOM.poisson(3, 100)
    found = scores.crps_decomposition(d.Poisson(rate), counts)
    upto = np.arange(40)
    differences = scipy.stats.poisson.cdf(upto, rate[:, None]) - (counts[:, None] <= upto)
    np.testing.assert_allclose(found.score, np.mean(np.sum(differences**2, 1)), rtol=1e-3)


GENERATOR = np.random.default_rng(0)
LOC, TARGETS = GENERATOR.normal(size=(2, 40))
NORMALS = d.Normal(LOC, np.full(40, 0.5))


def plain(forecasts, targets, theta, level=None):
    """Mean score by a loop over the samples, as Ehm et al. define it."""
    total = 0.0
    for x, y in zip(forecasts, targets, strict=True):
        if min(x, y) <= theta < max(x, y):
            total += abs(y - theta) if level is None else (1 - level if y < x else level)
    return total / len(targets)


@pytest.mark.parametrize("level", [None, 0.3, "probability"])
def test_formula(level):
    forecasts, targets, predictions = LOC, TARGETS, NORMALS
    if level == "probability":
        level, forecasts, targets = None, scipy.stats.norm.cdf(LOC), (TARGETS > 0).astype(int)
        predictions = d.Bernoulli(forecasts)
    elif level is not None:
        forecasts = LOC + 0.5 * scipy.stats.norm.ppf(level)
    curve = scores.murphy_curve(predictions, targets, level=level)
    assert curve.thresholds.shape == (101,)
    np.testing.assert_allclose(curve.thresholds[0], min(forecasts.min(), targets.min()), rtol=1e-6)
    expected = [plain(forecasts, targets, theta, level) for theta in np.asarray(curve.thresholds)]
    np.testing.assert_allclose(curve.score[1:-1], expected[1:-1], atol=1e-6)
    assert curve.level == level
    at_targets = scores.murphy_curve(predictions, targets, level=level, thresholds=targets)
    expected = [plain(forecasts, targets, theta, level) for theta in targets]
    np.testing.assert_allclose(at_targets.score, expected, atol=1e-6)


RNG = np.random.default_rng(0)
N = 60
# Twenty data sets with ties, ten without.
CONFIDENCES = np.concatenate([np.round(RNG.random((20, N)), 1), RNG.random((10, N))])
CORRECT = RNG.random((30, N)) < CONFIDENCES**2


def test_rejection_ratio_is_that_of_the_area_under_the_roc_curve():
    """Twice the area minus one, where ties count one half, as in the mean over all orders."""
    data = jnp.asarray(CONFIDENCES), jnp.asarray(CORRECT)
    ratios = jax.jit(jax.vmap(prediction_rejection_ratio))(*data)
    expected = [2 * roc_auc_score(y, c) - 1 for c, y in zip(CONFIDENCES, CORRECT)]
    np.testing.assert_allclose(ratios, expected, atol=1e-13)
    order = np.random.default_rng(2).permutation(N)
    shuffled = prediction_rejection_ratio(data[0][0, order], data[1][0, order])
    np.testing.assert_allclose(shuffled, ratios[0], atol=1e-13)


@pytest.mark.parametrize("same", [0, 1])
def test_without_errors_or_right_predictions_there_is_no_ratio(same):
    assert np.isnan(prediction_rejection_ratio(CONFIDENCES[0], np.full(N, same)))
