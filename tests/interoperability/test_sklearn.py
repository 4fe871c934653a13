import jax
import numpy as np
import pandas as pd
import pytest
from sklearn import ensemble, gaussian_process, linear_model, model_selection, multiclass, svm
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from calibjax import distributions, interoperability, scores
from calibjax.interoperability.sklearn import label_indices

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
    both = np.stack([LABELS > 0, LABELS > 1], 1).astype(int)
    several = multiclass.OneVsRestClassifier(linear_model.LogisticRegression()).fit(X, both)
    forest = ensemble.RandomForestClassifier(2).fit(X, both)
    for model, error, message in (
        (
            linear_model.LinearRegression().fit(X, Y),
            TypeError,
            "LinearRegression; pass predictions",
        ),
        (svm.LinearSVC().fit(X, LABELS), TypeError, "LinearSVC; .*CalibratedClassifierCV turns"),
        (np.zeros(3), TypeError, "model: expected .* got ndarray"),
        (forest, TypeError, "expected a classifier of one label, got 2 outputs"),
        (several, ValueError, r"predictions.probs.*: expected rows that sum to one"),
    ):
        with pytest.raises(error, match=message):
            interoperability.from_sklearn(model, X)


NAMES = ["owl", "cat", "owl", "dog"]


@pytest.mark.parametrize(
    "labels", [NAMES, np.array(NAMES), np.array(NAMES, object), pd.Series(NAMES, dtype="category")]
)
def test_words(labels):
    for classes in (["cat", "dog", "owl"], np.array(["owl", "cat", "emu", "dog"], object)):
        found = label_indices(labels, classes)
        assert [list(classes)[i] for i in found] == NAMES
        assert found.dtype == int


def test_numbers():
    np.testing.assert_array_equal(label_indices([7, -1, 7], [-1, 3, 7]), [2, 0, 2])
    np.testing.assert_array_equal(label_indices([True, False], [0, 1]), [1, 0])


@pytest.mark.parametrize(
    ("labels", "classes"),
    [(["a", "z"], ["a", "b"]), (["1"], [0, 1]), ([0.0, np.nan], [0, 1]), ([-1], [0, 1]), ([0], 0)],
)
def test_labels_that_are_no_class(labels, classes):
    with pytest.raises(ValueError, match=r"(labels|classes): expected (labels among|one axis)"):
        label_indices(labels, classes)


def test_masked_labels():
    with pytest.raises(ValueError, match="labels: expected values without a mask"):
        label_indices(np.ma.array([0, 1], mask=[0, 1]), [0, 1])
