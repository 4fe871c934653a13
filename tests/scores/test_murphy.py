"""Elementary scores against their formula, the scores that they make, and model-diagnostics."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from calibjax import distributions, scores

GENERATOR = np.random.default_rng(0)
LOC, TARGETS = GENERATOR.normal(size=(2, 40))
NORMALS = distributions.Normal(LOC, np.full(40, 0.5))


def plain(forecasts, targets, theta, level=None):
    """Mean score by a loop over the samples, as Ehm et al. define it."""
    total = 0.0
    for x, y in zip(forecasts, targets, strict=True):
        if min(x, y) <= theta < max(x, y):
            total += abs(y - theta) if level is None else (1 - level if y < x else level)
    return total / len(targets)


@pytest.mark.parametrize("level", [None, 0.3])
def test_formula(level):
    forecasts = LOC if level is None else LOC + 0.5 * scipy.stats.norm.ppf(level)
    curve = scores.murphy_curve(NORMALS, TARGETS, level=level)
    assert curve.thresholds.shape == (101,)
    np.testing.assert_allclose(curve.thresholds[0], min(forecasts.min(), TARGETS.min()), rtol=1e-6)
    expected = [plain(forecasts, TARGETS, theta, level) for theta in np.asarray(curve.thresholds)]
    np.testing.assert_allclose(curve.score[1:-1], expected[1:-1], atol=1e-6)
    assert curve.level == level


def test_integrals_are_scores():
    thresholds = jnp.linspace(-6, 6, 20001)
    step = thresholds[1] - thresholds[0]
    curve = scores.murphy_curve(NORMALS, TARGETS, thresholds=thresholds)
    squared = np.mean((LOC - TARGETS) ** 2)
    np.testing.assert_allclose(2 * curve.score.sum() * step, squared, rtol=1e-3)
    curve = scores.murphy_curve(NORMALS, TARGETS, thresholds=thresholds, level=0.8)
    pinball = scores.pinball_loss(NORMALS, TARGETS, levels=[0.8])
    np.testing.assert_allclose(curve.score.sum() * step, pinball, rtol=1e-3)
    labels = (TARGETS > 0).astype(int)
    probs = distributions.Bernoulli(scipy.stats.norm.cdf(LOC))
    curve = scores.murphy_curve(probs, labels, thresholds=thresholds)
    np.testing.assert_allclose(
        4 * curve.score.sum() * step, 2 * scores.brier_score(probs, labels), rtol=1e-3
    )


@pytest.mark.parametrize("level", [None, 0.7])
def test_numbers_of_model_diagnostics(level):
    scoring = pytest.importorskip("model_diagnostics.scoring")
    forecasts = LOC if level is None else LOC + 0.5 * scipy.stats.norm.ppf(level)
    curve = scores.murphy_curve(NORMALS, TARGETS, level=level, thresholds=jnp.linspace(-2, 2, 50))
    options = (
        {"functional": "mean"} if level is None else {"functional": "quantile", "level": level}
    )
    expected = [
        scoring.ElementaryScore(eta=float(theta), **options)(y_obs=TARGETS, y_pred=forecasts)
        for theta in np.asarray(curve.thresholds)
    ]
    np.testing.assert_allclose(curve.score, expected, atol=1e-6)


def test_decomposition_of_model_diagnostics():
    """The parts of the Brier score, of which each class counts, are those of its `decompose`."""
    scoring = pytest.importorskip("model_diagnostics.scoring")
    probs, labels = scipy.stats.norm.cdf(LOC), (TARGETS > 0).astype(int)
    found = scores.brier_decomposition(distributions.Bernoulli(probs), labels)
    expected = scoring.decompose(labels, probs, scoring_function=scoring.SquaredError())
    for part in ("miscalibration", "discrimination", "uncertainty", "score"):
        np.testing.assert_allclose(getattr(found, part) / 2, expected[part].item(), atol=1e-6)


@pytest.mark.parametrize("unit", [1e-7, 1e7])
def test_units(unit):
    large = distributions.Normal(LOC * unit, np.full(40, 0.5 * unit))
    found = scores.murphy_curve(large, TARGETS * unit)
    expected = scores.murphy_curve(NORMALS, TARGETS)
    np.testing.assert_allclose(found.score[1:-1] / unit, expected.score[1:-1], rtol=1e-4, atol=1e-6)


def test_refused_by_name():
    for options, message in (
        ({"level": 1.5}, "^level: "),
        ({"thresholds": [1.0, 0.0]}, "^thresholds: expected numbers that do not decrease"),
        ({"thresholds": [[0.0]]}, "^thresholds: "),
        ({"thresholds": [jnp.nan]}, "^thresholds: "),
    ):
        with pytest.raises(ValueError, match=message):
            scores.murphy_curve(NORMALS, TARGETS, **options)
    classes = distributions.Categorical(jnp.full((4, 3), 1 / 3))
    with pytest.raises(ValueError, match="^predictions: "):
        scores.murphy_curve(classes, jnp.zeros(4, int))
    vectors = distributions.Dirichlet(jnp.ones((4, 3)))
    with pytest.raises(TypeError, match="icdf"):
        scores.murphy_curve(vectors, jnp.full((4, 3), 1 / 3), level=0.5)
