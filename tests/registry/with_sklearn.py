"""Calls of what scikit-learn uses."""

import functools

import numpy as np
import sklearn.linear_model as sklearn

from calibjax import estimators, interoperability, recalibration
from tests.registry import arguments as a
from tests.registry.arguments import call

known = functools.partial(
    call, reason="labels are known, and scikit-learn is no part of compiled programs"
)
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
    in_scorer = {"kernel": a.kernel(scorer.kernel), "estimator": a.function(estimators.skce)}
    model = a.record(_model(), without=a.OPTIONAL)
    bins = a.record(recalibration.HistogramBinning(2), without=a.OPTIONAL)
    smallest = a.proportion(0.01, without=a.OPTIONAL)
    affine = a.record(recalibration.AffineScaling(), without=a.OPTIONAL)
    sample_weight = a.weights(np.linspace(0.5, 2, 16), "weights", without=a.OPTIONAL)
    # More classes, and classes in another order, are other classes.
    classes = a.integers(np.arange(3), "labels", traced=False)
    labels = a.labels(a.LABELS, limit=3, traced=False, without=a.ALONE)
    everything = f"{of_classes} {of_scores} {of_numbers}"
    return [
        known(everything, "weights", weighted, sample_weight=sample_weight),
        known("interoperability.sklearn.label_indices", labels=labels, classes=classes),
        known(of_scores, "", score, **_LABELS, **in_scorer),
        known(of_scores, "model", score, **_LABELS, model=model),
        known(of_classes, "", recalibrated, recalibrator=bins, smallest_probability=smallest),
        known(of_numbers, "", regressed, recalibrator=affine),
    ]
