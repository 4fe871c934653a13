import pickle
import sys

import jax
import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import BayesianRidge, LinearRegression, LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from calibjax import distributions, interoperability, recalibration
from calibjax.interoperability import RecalibratedClassifier, RecalibratedRegressor

random = np.random.default_rng(0)
X = np.repeat(
    random.normal(size=(200, 2)), 2, 1
)  # each feature twice: naive Bayes is overconfident
NOISY = X[:, [0, 2]] + random.normal(size=(200, 2))
WORDS = np.array(["b", "c", "a"])[(NOISY > 0.3).sum(1)]
TWO = np.where(WORDS == "c", "yes", "no")


@pytest.mark.parametrize(("y", "family"), [(WORDS, "Categorical"), (TWO, "Bernoulli")])
def test_cross_fitting_by_hand(y, family):
    method = recalibration.TemperatureScaling()
    model = RecalibratedClassifier(GaussianNB(), method, cv=StratifiedKFold(4)).fit(X, y)
    probs = np.zeros((200, len(set(y))))
    for training, test in StratifiedKFold(4).split(X, y):
        probs[test] = GaussianNB().fit(X[training], y[training]).predict_proba(X[test])

    def predictions(probs):
        return getattr(distributions, family)(probs if family == "Categorical" else probs[:, 1])

    targets = np.searchsorted(model.classes_, y)
    temperature = method.fit(predictions(probs), targets)
    np.testing.assert_allclose(model.params_, temperature, rtol=1e-9)
    assert temperature > 1.2
    whole = GaussianNB().fit(X, y).predict_proba(X)
    expected = method.apply(temperature, predictions(whole)).class_probs
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-9)


def test_a_frozen_classifier():
    classifier = GaussianNB().fit(X[:100], WORDS[:100])
    method = recalibration.HistogramBinning(3)
    model = RecalibratedClassifier(FrozenEstimator(classifier), method)
    rows = np.flatnonzero(WORDS[100:] != "a") + 100  # a class that the classifier knows is missing
    model.fit(X[rows], WORDS[rows])
    assert list(model.classes_) == ["a", "b", "c"]
    predictions = distributions.Categorical(classifier.predict_proba(X[rows]))
    params = method.fit(predictions, np.searchsorted(model.classes_, WORDS[rows]))
    expected = method.apply(params, predictions).probs
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(copied.predict_proba(X[rows]), expected, rtol=1e-12)


def test_probabilities_of_zero():
    forest = RandomForestClassifier(5, random_state=0)
    method = recalibration.TemperatureScaling()
    with pytest.raises(ValueError, match="loss: expected finite values at some temperature"):
        RecalibratedClassifier(forest, method, cv=2).fit(X, WORDS)
    model = RecalibratedClassifier(forest, method, cv=2, smallest_probability=1e-3).fit(X, WORDS)
    probs = model.predict_proba(X)
    assert (probs > 0).all()
    np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-12)


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.delitem(sys.modules, RecalibratedClassifier.__module__)
    message = r"estimator of scikit-learn, which is not installed: pip .*calibjax\[sklearn\]"
    with pytest.raises(ImportError, match=message):
        _ = interoperability.RecalibratedClassifier
    with pytest.raises(AttributeError, match="no attribute 'Recalibrated'"):
        _ = interoperability.Recalibrated


ALL = [
    *(RecalibratedClassifier(recalibrator=x) for x in (None, recalibration.IsotonicRegression())),
    RecalibratedClassifier(recalibrator=recalibration.HistogramBinning(5)),
    RecalibratedRegressor(),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of its data, and of bins without samples
@pytest.mark.parametrize("model", ALL, ids=lambda model: type(model).__name__)
def test_the_checks_of_scikit_learn(model):
    may_fail = {"check_dtype_object": "BayesianRidge has no deviations for inputs of dtype object"}
    expected = may_fail if isinstance(model, RecalibratedRegressor) else {}
    options = {"on_fail": None, "on_skip": None, "expected_failed_checks": expected}
    found = check_estimator(model, **options)
    assert len(found) > 40
    status = {x["check_name"]: x["status"] for x in found}
    assert not [name for name, x in status.items() if x not in ("passed", "skipped", "xfail")]
    assert [x for x in status if status[x] == "skipped"] in ([], ["check_array_api_input"])


Y = X[:, 0] + 0.5 * random.normal(size=200)


def test_a_regressor_by_hand():
    model = RecalibratedRegressor(BayesianRidge(), cv=KFold(4), predictive=_narrow).fit(X, Y)
    loc, scale = np.zeros(200), np.zeros(200)
    for training, test in KFold(4).split(X):
        fitted = BayesianRidge().fit(X[training], Y[training])
        loc[test], scale[test] = fitted.predict(X[test], return_std=True)
    z = (Y - loc) / (scale / 3)  # the affine map is the mean and deviation of the normal scores
    mean, deviation = model.predict(X, return_std=True)
    whole, spread = BayesianRidge().fit(X, Y).predict(X, return_std=True)
    np.testing.assert_allclose(mean, whole + spread / 3 * z.mean(), rtol=1e-6)
    np.testing.assert_allclose(deviation, spread / 3 * z.std(), rtol=1e-6)
    assert 0.9 < model.score(X, Y) / BayesianRidge().fit(X, Y).score(X, Y) < 1.1


def _narrow(regressor, inputs):
    mean, deviation = regressor.predict(inputs, return_std=True)
    return distributions.Normal(mean, deviation / 3)


WEIGHTS = np.random.default_rng(1).integers(1, 4, 200).astype(float)


def probabilities(estimator, recalibrator=None, weights=None, cv=3):
    """Of a recalibrated classifier at the samples that it was fitted to."""
    model = RecalibratedClassifier(estimator, recalibrator, cv=cv)
    return model.fit(X, WORDS, sample_weight=weights).predict_proba(X)


def test_weights_reach_the_last_step_of_a_pipeline():
    """A pipeline that only scales by powers of two is as good as its last step."""
    scaler = FunctionTransformer(lambda x: 2 * x)
    nested = make_pipeline(scaler, make_pipeline(scaler, GaussianNB()))
    plain = probabilities(GaussianNB(), weights=WEIGHTS)
    for estimator in (make_pipeline(scaler, GaussianNB()), nested):
        found = probabilities(estimator, weights=WEIGHTS)
        np.testing.assert_allclose(found, plain, rtol=1e-6)
    assert np.abs(probabilities(GaussianNB()) - plain).max() > 1e-3


def test_weights_are_those_of_scikit_learn():
    """The penalty of a classifier says what a weight is in units of: it gets them as they are."""
    steps = recalibration.IsotonicRegression(smooth=False)
    theirs = CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=3, ensemble=False)
    expected = theirs.fit(X, WORDS, sample_weight=WEIGHTS).predict_proba(X)
    found = probabilities(GaussianNB(), steps, WEIGHTS)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    model = RecalibratedClassifier(LogisticRegression(C=0.01), steps)
    found = model.fit(X, WORDS, sample_weight=3 * WEIGHTS).estimator_
    expected = LogisticRegression(C=0.01).fit(X, WORDS, sample_weight=3 * WEIGHTS)
    np.testing.assert_allclose(found.coef_, expected.coef_)


def test_pickles_predict_the_same():
    """To the last digit: float32 has none left of targets near 1e9."""
    for method in (recalibration.AffineScaling(), recalibration.KernelRecalibration()):
        model = RecalibratedRegressor(BayesianRidge(), method, cv=2).fit(X, 1e9 + Y)
        copied = pickle.loads(pickle.dumps(model))
        assert all(isinstance(x, np.ndarray | np.generic) for x in jax.tree.leaves(model.params_))
        for one, other in zip(copied.predict(X, True), model.predict(X, True), strict=True):
            np.testing.assert_array_equal(one, other)


def test_wrong_parameters():
    folds = [(np.arange(100), np.arange(100, 200)), (np.arange(100, 200), np.arange(100))]
    rare = np.where(np.arange(200) == 7, "d", WORDS)
    for options, labels, error, message in (
        (
            {"estimator": LinearRegression()},
            WORDS,
            TypeError,
            "estimator: .* with predict_proba",
        ),
        ({"recalibrator": "platt"}, WORDS, TypeError, "recalibrator: expected a record .* got str"),
        ({}, np.full(200, "b"), ValueError, "y: expected at least two classes.*{.*'b'"),
        ({"cv": folds}, rare, ValueError, "y: expected .* samples of each class in two folds"),
    ):
        with pytest.raises(error, match=message):
            RecalibratedClassifier(**{"estimator": GaussianNB()} | options).fit(X, labels)
