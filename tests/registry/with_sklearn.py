"""Calls of what scikit-learn uses."""

import functools

import numpy as np
import sklearn.linear_model as sklearn

from calibjax import estimators, interoperability, recalibration
from tests.registry import arguments as a
from tests.registry.arguments import call

_KNOWN = {"reason": "labels are known, and scikit-learn is no part of compiled programs"}
_X = np.tile(a.FEATURES, (2, 1))
_Y = np.tile(a.LABELS, 2)
_LABELS = {"y": a.labels(_Y, "labels", "targets", limit=3, traced=False)}


@functools.cache
def _model():
    return sklearn.LogisticRegression().fit(_X, _Y)


def calls():
    """Labels, a scorer and a classifier."""

    def score(y, model=None, **options):
        model = _model() if model is None else model
        return interoperability.SKCEScorer(**options)(model, _X, y)

    def recalibrated(**options):
        model = interoperability.RecalibratedClassifier(cv=2, **options)
        return model.fit(_X, _Y).predict_proba(_X)

    def weighted(sample_weight):
        model = interoperability.RecalibratedClassifier(cv=2)
        found = model.fit(_X, _Y, sample_weight).predict_proba(_X)
        score = interoperability.SKCEScorer()(_model(), _X, _Y, sample_weight=sample_weight)
        regressor = interoperability.RecalibratedRegressor(cv=2)
        return found, score, regressor.fit(_X, _X[:, 0], sample_weight).predict(_X)

    def regressed(**options):
        model = interoperability.RecalibratedRegressor(cv=2, **options)
        return model.fit(_X, _X[:, 0]).predict(_X, return_std=True)

    scorer = interoperability.SKCEScorer()
    of_classes = "interoperability.RecalibratedClassifier"
    of_numbers, of_scores = "interoperability.RecalibratedRegressor", "interoperability.SKCEScorer"
    return [
        call(
            f"{of_classes} {of_scores} {of_numbers}",
            "weights",
            weighted,
            sample_weight=a.weights(np.linspace(0.5, 2, 16), "weights", without=a.OPTIONAL),
            **_KNOWN,
        ),
        call(
            "interoperability.sklearn.label_indices",
            labels=a.labels(a.LABELS, limit=3, traced=False, without=a.ALONE),
            # More classes, and classes in another order, are other classes.
            classes=a.integers(np.arange(3), "labels", traced=False),
            **_KNOWN,
        ),
        call(
            of_scores,
            "",
            score,
            **_LABELS,
            kernel=a.kernel(scorer.kernel),
            estimator=a.function(estimators.skce),
            **_KNOWN,
        ),
        call(
            of_scores,
            "model",
            score,
            **_LABELS,
            model=a.record(_model(), without=a.OPTIONAL),
            **_KNOWN,
        ),
        call(
            of_classes,
            "",
            recalibrated,
            recalibrator=a.record(recalibration.HistogramBinning(2), without=a.OPTIONAL),
            smallest_probability=a.proportion(0.01, without=a.OPTIONAL),
            **_KNOWN,
        ),
        call(
            of_numbers,
            "",
            regressed,
            recalibrator=a.record(recalibration.AffineScaling(), without=a.OPTIONAL),
            **_KNOWN,
        ),
    ]
