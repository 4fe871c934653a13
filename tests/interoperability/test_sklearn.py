import jax
import numpy as np
import pandas as pd
import pytest
from sklearn import ensemble, gaussian_process, linear_model, model_selection, multiclass, svm
from sklearn import exceptions as sklearn_exceptions
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from calibjax import distributions, interoperability, scores

random = np.random.default_rng(0)
X = random.normal(size=(30, 2))
LABELS = (X @ [1.0, 0.5] + random.normal(size=30) > 0).astype(int) + (X[:, 1] > 0.5)
Y = X[:, 0] + 0.3 * random.normal(size=30)
KERNEL = gaussian_process.kernels.RBF() + gaussian_process.kernels.WhiteKernel(0.1)


def test_classes():
    model = linear_model.LogisticRegression().fit(X, np.array(["a", "b", "c"])[LABELS])
    predictions = interoperability.from_sklearn(model, X)
    assert type(predictions) is distributions.Categorical
    np.testing.assert_array_equal(predictions.probs, model.predict_proba(X))
    # The likelihood with labels by position is what scikit-learn finds with their names.
    expected = -np.mean(model.predict_log_proba(X)[np.arange(30), LABELS])
    found = scores.negative_log_likelihood(predictions, LABELS)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_small_probabilities_of_two_classes_survive_float32():
    model = linear_model.LogisticRegression().fit(X, LABELS // 2)
    model.coef_, model.intercept_ = np.array([[1.0, 0.0]]), np.zeros(1)
    with jax.enable_x64(False):
        predictions = interoperability.from_sklearn(model, np.array([[30.0, 0.0], [-30.0, 0.0]]))
        found = scores.negative_log_likelihood(predictions, np.array([0, 1]))
    np.testing.assert_allclose(found, 30, rtol=1e-4)  # scikit-learn rounds 1 − p


@pytest.mark.parametrize(
    "model",
    [
        gaussian_process.GaussianProcessRegressor(KERNEL),
        linear_model.BayesianRidge(),
        linear_model.ARDRegression(),
        make_pipeline(StandardScaler(), linear_model.BayesianRidge()),
        model_selection.GridSearchCV(linear_model.BayesianRidge(), {"alpha_init": [None, 1.0]}),
        model_selection.GridSearchCV(
            make_pipeline(StandardScaler(), linear_model.BayesianRidge()),
            {"bayesianridge__alpha_init": [None, 1.0]},
        ),
    ],
    ids=lambda model: type(model).__name__,
)
def test_regression(model):
    model = model.fit(X, Y)
    predictions = interoperability.from_sklearn(model, X)
    loc, scale = getattr(model, "best_estimator_", model).predict(X, return_std=True)
    assert type(predictions) is distributions.Normal
    np.testing.assert_array_equal(predictions.loc, loc)
    np.testing.assert_array_equal(predictions.scale, scale)


def test_data_frames_and_float32():
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = linear_model.BayesianRidge().fit(frame, Y)
    with jax.enable_x64(False):
        predictions = interoperability.from_sklearn(model, frame)
    assert predictions.loc.dtype == "float32"
    np.testing.assert_allclose(predictions.loc, model.predict(frame), rtol=1e-5, atol=1e-6)


def test_models_that_predict_no_distribution():
    several = multiclass.OneVsRestClassifier(linear_model.LogisticRegression())
    cases = [
        (linear_model.LinearRegression().fit(X, Y), "LinearRegression; hand over its predictions"),
        (
            svm.LinearSVC().fit(X, LABELS),
            "LinearSVC; .*RecalibratedClassifier turns",
        ),
        (StandardScaler().fit(X), "got StandardScaler$"),
        (np.zeros(3), "expected a fitted model of scikit-learn, got ndarray"),
        (linear_model.BayesianRidge, "expected a fitted model .* got the class BayesianRidge"),
        (
            ensemble.RandomForestClassifier(2).fit(X, np.stack([LABELS, LABELS], 1)),
            "expected a classifier of one label, got RandomForestClassifier with 2 outputs",
        ),
    ]
    for model, message in cases:
        with pytest.raises(TypeError, match=f"model: .*{message}"):
            interoperability.from_sklearn(model, X)
    several.fit(X, np.stack([LABELS > 0, LABELS > 1], 1).astype(int))
    with pytest.raises(ValueError, match=r"predictions.probs.*: expected rows that sum to one"):
        interoperability.from_sklearn(several, X)
    with pytest.raises(sklearn_exceptions.NotFittedError):
        interoperability.from_sklearn(linear_model.LogisticRegression(), X)


def test_standard_deviations_of_zero_are_refused():
    model = gaussian_process.GaussianProcessRegressor(alpha=0, optimizer=None).fit(X[:2], Y[:2])
    with pytest.raises(ValueError, match="predictions.scale: expected positive"):
        interoperability.from_sklearn(model, X[:2])
