import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from calibjax import distributions, estimators, kernels
from calibjax.interoperability import SKCEScorer

random = np.random.default_rng(0)
X = random.normal(size=(60, 2))
LABELS = (X[:, 0] + random.normal(size=60) > 0).astype(int) + (X[:, 1] > 0.5)
WORDS = np.array(["low", "middle", "high"])[LABELS]
KERNEL = kernels.TensorProduct(kernels.Exponential(1.0), kernels.SquaredExponential(0.5))


def test_the_score_is_minus_the_skce():
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, WORDS)
    probs = model.predict_proba(X)
    # The unbiased estimator with exp(−2 TV) δ, written out; words are sorted: high, low, middle.
    errors = np.eye(3)[np.array([1, 2, 0])[LABELS]] - probs
    variation = 0.5 * np.abs(probs[:, None] - probs).sum(-1)
    terms = np.exp(-2 * variation) * (errors @ errors.T)
    expected = (terms.sum() - np.trace(terms)) / (60 * 59)
    np.testing.assert_allclose(SKCEScorer()(model, X, WORDS), -expected, rtol=1e-6)
    biased = SKCEScorer(estimator=estimators.skce_biased)
    np.testing.assert_allclose(biased(model, X, WORDS), -terms.mean(), rtol=1e-6)


def test_searches_and_cross_validation():
    scoring = {"nll": "neg_log_loss", "skce": SKCEScorer()}
    grid = {"C": [1e-3, 1.0]}
    search = clone(GridSearchCV(LogisticRegression(), grid, scoring=scoring, refit="nll", cv=2))
    results = search.fit(X, WORDS).cv_results_
    folds = cross_val_score(LogisticRegression(), X, WORDS, scoring=SKCEScorer(), cv=2)
    np.testing.assert_allclose(results["mean_test_skce"][1], folds.mean(), rtol=1e-12)


def test_regression():
    model = BayesianRidge().fit(X, X[:, 0])
    loc, scale = model.predict(X, return_std=True)
    expected = estimators.skce(KERNEL, distributions.Normal(loc, scale), X[:, 0])
    scorer = pickle.loads(pickle.dumps(SKCEScorer(KERNEL)))
    assert scorer(model, X, X[:, 0]) == -expected


def test_folds_that_lack_a_class():
    with pytest.warns(UserWarning, match="Scoring failed"):
        values = cross_val_score(
            LogisticRegression(), X, np.sort(LABELS), scoring=SKCEScorer(), cv=KFold(3)
        )
    assert np.isnan(values).any()
