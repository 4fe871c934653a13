"""Cross-validation and the pipeline against plain loops over folds, with a function of the test."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import record, risk
from tests import oracles

KEY = jax.random.key(3)
GRID = np.array([0.5, 1.0, 2.0])
N, F = 53, 4


@record
class Plain(risk.EstimationFunction):
    """A line through the differences times the hyperparameter: only what a function must have."""

    factor: float = 1.0

    def fit(self, predictions, targets, hyperparameter):
        slope = predictions @ (predictions - targets) / (predictions @ predictions)
        return hyperparameter * slope

    def evaluate(self, params, p, q):
        return self.factor * jnp.outer(params * p, params * q)


@record
class Factored(risk.EstimationFunction):
    """The same with factors, and with a `refit`."""

    def fit(self, predictions, targets, hyperparameter):
        return hyperparameter, Plain().fit(predictions, targets, 1.0)

    def refit(self, params, hyperparameter):
        return hyperparameter, params[1]

    def factors(self, params, p):
        return ((params[0] * params[1] * p)[:, None],) * 2


PLAIN, FACTORED = Plain(), Factored()


def data(n=N):
    rng = np.random.default_rng(1)
    p = rng.uniform(size=n)
    return jnp.array(p), jnp.array((rng.uniform(size=n) < p**2).astype(int))


def slope(p, y):
    return np.linalg.lstsq(p[:, None], p - y, rcond=None)[0][0]


def loop(p, y, folds):
    """Risks of a line that was fitted by NumPy, [F, k]."""
    risks = np.zeros((folds.max() + 1, GRID.size))
    for fold in range(len(risks)):
        train, out = folds != fold, np.flatnonzero(folds == fold)
        line = slope(p[train], y[train])
        for k, scale in enumerate(GRID):
            h = scale * line * p[out]
            risks[fold, k] = oracles.estimation_risk(np.outer(h, h), (p - y)[out, None])
    return risks


def test_cross_validation_is_the_loop():
    p, y = data()
    result = risk.cross_validate(KEY, PLAIN, GRID, p, y, num_folds=F)
    assert sorted(np.bincount(result.folds)) == [13, 13, 13, 14]
    expected = loop(np.array(p), np.array(y), np.array(result.folds))
    np.testing.assert_allclose(result.risks, expected, rtol=1e-10)
    np.testing.assert_allclose(result.risk, expected.mean(0), rtol=1e-10)
    error = expected.std(0, ddof=1) / np.sqrt(F)
    np.testing.assert_allclose(result.standard_error, error, rtol=1e-9)
    best = np.argmin(expected.mean(0))
    assert result.hyperparameter == GRID[best]
    factored = risk.cross_validate(KEY, FACTORED, GRID, p, y, num_folds=F)
    np.testing.assert_allclose(factored.losses, result.losses, rtol=1e-9)


def test_pipeline_is_the_loop():
    p, y = data(60)
    result = risk.squared_calibration_error(KEY, FACTORED, GRID, p, y, num_folds=3)
    tuning, test = np.array(result.tuning), np.array(result.test)
    assert len(test) == 12
    assert sorted([*tuning, *test]) == list(range(60))
    p, y = np.array(p), np.array(y)
    folds = np.array(result.cross_validation.folds)
    risks = loop(p[tuning], y[tuning], folds)
    best = np.argmin(risks.mean(0))
    diagonals = []
    for fold in range(3):
        train = tuning[folds != fold]
        line = GRID[best] * slope(p[train], y[train])
        diagonals.append((line * p[test]) ** 2)
    means = np.mean(diagonals, 1)
    roots, errors = np.sqrt(means), np.mean(diagonals, 0)
    expected = {
        "estimate": np.mean(means),
        "root": np.sqrt(np.mean(means)),
        "standard_error": np.std(means, ddof=1) / np.sqrt(3),
        "root_standard_error": np.std(roots, ddof=1) / np.sqrt(3),
        "sampling_error": np.std(errors, ddof=1) / np.sqrt(12),
    }
    for name, value in expected.items():
        assert getattr(result, name) == pytest.approx(value, rel=1e-8), name
    np.testing.assert_allclose(result.fold_estimates, means, rtol=1e-10)


def test_negative_estimates_have_a_negative_root():
    result = risk.squared_calibration_error(KEY, Plain(-1.0), GRID[:1], *data(), num_folds=2)
    assert result.estimate < 0
    assert result.root == pytest.approx(-np.sqrt(-result.estimate), rel=1e-12)


def test_functions_without_numbers_are_refused():
    with pytest.raises(ValueError, match=re.escape("got function[0, 0] = nan")):
        risk.cross_validate(KEY, Plain(np.nan), GRID, *data())


def test_folds_have_two_samples():
    with pytest.raises(ValueError, match="predictions: expected at least 60 samples"):
        risk.cross_validate(KEY, PLAIN, GRID, *data(), num_folds=30)
    with pytest.raises(ValueError, match="predictions: expected at least 10 samples .* got 9"):
        risk.squared_calibration_error(KEY, PLAIN, GRID, *data(11))


def test_more_bins_than_there_are():
    expected = r"grid: expected .* between 1 and 100 \(max_bins\), got grid\[1\] = 101"
    with pytest.raises(ValueError, match=expected):
        risk.cross_validate(KEY, risk.Binning(), np.array([5, 101]), *data())
