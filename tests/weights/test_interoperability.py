"""Weights of samples in scikit-learn's terms."""

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from calibjax import recalibration
from calibjax.interoperability import RecalibratedClassifier

_random = np.random.default_rng(0)
X = np.repeat(_random.normal(size=(200, 2)), 2, 1)
Y = (X[:, [0, 2]] + _random.normal(size=(200, 2)) > 0.3).sum(1)
WEIGHTS = _random.integers(0, 4, 200)


def test_isotonic_regression_as_scikit_learn_has_it():
    ours = RecalibratedClassifier(
        GaussianNB(), recalibration.IsotonicRegression(smooth=False), cv=3
    )
    theirs = CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=3, ensemble=False)
    found, expected = (
        model.fit(X, Y, sample_weight=WEIGHTS).predict_proba(X) for model in (ours, theirs)
    )
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert np.abs(found - ours.fit(X, Y).predict_proba(X)).max() > 1e-3


def test_the_classifier_gets_the_weights_as_they_are():
    """Its penalty says what a weight is in units of."""
    method = recalibration.PlattScaling(smooth_targets=True)
    model = RecalibratedClassifier(LogisticRegression(C=0.01), method)
    found = model.fit(X, Y, sample_weight=3 * WEIGHTS)
    expected = LogisticRegression(C=0.01).fit(X, Y, sample_weight=3 * WEIGHTS)
    np.testing.assert_allclose(found.estimator_.coef_, expected.coef_)
