"""Meta-estimators for scikit-learn that recalibrate a classifier or a regressor."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn import base, linear_model
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.utils import get_tags, indexable
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_method_params, check_is_fitted, column_or_1d

from calibjax._core import checks
from calibjax._core.gate import Seen, usual
from calibjax.distributions import Bernoulli, Categorical
from calibjax.distributions.base import Distribution
from calibjax.interoperability.sklearn import from_sklearn, label_indices
from calibjax.recalibration import AffineScaling, PlattScaling, Recalibrator


class _Recalibrated(base.MetaEstimatorMixin, base.BaseEstimator):
    """Parameters, data, and routing of sample weights."""

    estimator: Any
    recalibrator: Recalibrator | None
    cv: Any
    estimator_: Any
    _default_estimator: Callable[[], Any]
    _default_recalibrator: Recalibrator

    def _estimator(self) -> Any:
        return self._default_estimator() if self.estimator is None else self.estimator

    def _recalibrator(self) -> Recalibrator:
        is_default = self.recalibrator is None
        recalibrator = self._default_recalibrator if is_default else self.recalibrator
        return usual("recalibration")("recalibrator", recalibrator, Seen({}))

    def _learn(self, predictions: Any, targets: Any, sample_weight: Any) -> None:
        """Fit the recalibrator, and copy attributes of the inputs from the estimator."""
        weights = {} if sample_weight is None else {"weights": sample_weight}
        params = self._recalibrator().fit(predictions, targets, **weights)
        self.params_ = jax.device_get(params)  # JAX would unpickle float64 as float32
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))

    def _cross_fitted(
        self, X: Any, y: np.ndarray, sample_weight: Any, predicted: Callable[[Any, Any], Any]
    ) -> Any:
        """Out-of-fold predictions; keeps the estimator fitted to all samples."""
        self._recalibrator()  # refused before fitting
        estimator = self._estimator()
        if isinstance(estimator, FrozenEstimator):
            self.estimator_ = estimator
            return predicted(estimator, X)
        all_weights = self._routed(sample_weight)
        splitter: Any = check_cv(self.cv, y, classifier=base.is_classifier(self))
        folds = list(splitter.split(X, y))
        labels = set(y) if base.is_classifier(self) else set()
        if len(labels) == 1 or any(labels - set(y[training]) for training, _ in folds):
            expected = "at least two classes, and samples of each class in two folds"
            raise ValueError(f"y: expected {expected}, got too few of {labels}")
        places = np.concatenate([test for _, test in folds])
        if not np.array_equal(np.sort(places), np.arange(len(y))):
            raise ValueError("cv: expected folds that contain every sample once, got others")

        def fitted(rows: np.ndarray) -> Any:
            weights = _check_method_params(X, all_weights, rows)
            copied: Any = base.clone(estimator)
            return copied.fit(*_safe_split(copied, X, y, rows), **weights)

        parts = [
            predicted(fitted(rows), _safe_split(estimator, X, None, test, rows)[0])
            for rows, test in folds
        ]
        self.estimator_ = fitted(np.arange(len(y)))
        return jax.tree.map(lambda *x: np.concatenate(x)[np.argsort(places)], *parts)

    def _routed(self, sample_weight: Any) -> dict[str, Any]:
        """Arguments of the estimator's fit, or of the last step of a pipeline."""
        if sample_weight is None:
            return {}
        prefix, final = "", self._estimator()
        while hasattr(final, "steps"):
            name, final = final.steps[-1]
            prefix += f"{name}__"
        return {f"{prefix}sample_weight": sample_weight}


class RecalibratedClassifier(base.ClassifierMixin, _Recalibrated):
    """Classifier with probabilities that are recalibrated by this package.

    `fit` fits the recalibrator to out-of-fold predictions, and the classifier to all samples, as in
    scikit-learn's `CalibratedClassifierCV(ensemble=False)`. Pass a fitted classifier as
    `sklearn.frozen.FrozenEstimator(classifier)`; then only the recalibrator is fitted, and X and y
    must not be training samples of the classifier.

    Two classes are recalibrated by the probability of the second, several classes jointly
    (`TemperatureScaling`, `MatrixScaling`) or one against the rest (`HistogramBinning`,
    `IsotonicRegression`, `PlattScaling`, `BetaCalibration`, `VennAbers`,
    `confidences.QuadraticScaling`). `fit` takes `sample_weight`, [n], for the classifier, unless it
    is frozen, and for the recalibrator. It is passed to the last step of a pipeline. Computations
    are in float64.

    A classifier with only `decision_function`, such as `LinearSVC`, gets probabilities by
    scikit-learn's `CalibratedClassifierCV`.

    Attributes:
        estimator: classifier with `predict_proba`; None for `LogisticRegression()`.
        recalibrator: a `recalibration.Recalibrator` of classes; None for
            `PlattScaling(smooth_targets=True)`, which has a solution unless all probabilities are
            equal. `TemperatureScaling()` has none if the classes are perfectly separated.
        cv: folds, as in `sklearn.model_selection.cross_val_predict`: a number (None for 5,
            stratified), or a splitter that predicts every sample once.
        smallest_probability: lower bound of the probabilities before recalibration, after which
            they are normalised; None for no bound. Use 1e-6, say, for likelihoods of classifiers
            that predict zero probabilities, such as forests and naive Bayes.
        classes_: labels, [m], in the order of the columns of `predict_proba`.
        estimator_: classifier fitted to all samples.
        params_: params of the recalibrator.

    Raises:
        TypeError: by `fit` if the classifier predicts no probabilities; if the recalibrator is not
            for classes, or needs groups or features; or if one of them does not take the given
            weights.
        ValueError: by `fit` if there is only one class, all samples of a class are in one fold, or
            the recalibrator has no solution; and for invalid data, by the classifier.

    Cost: k + 1 fits of the classifier for k folds, and one of the recalibrator.

    References: Platt (1999), Probabilistic outputs for support vector machines, §2.1 (out-of-fold
    predictions).

    >>> from sklearn.datasets import make_classification
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from calibjax.recalibration import TemperatureScaling
    >>> X, y = make_classification(200, random_state=0)
    >>> model = RecalibratedClassifier(GaussianNB(), TemperatureScaling()).fit(X, y)
    >>> print(f"{model.params_:.1f}", model.predict_proba(X).shape)
    2.8 (200, 2)
    """

    _default_estimator = linear_model.LogisticRegression
    _default_recalibrator = PlattScaling(smooth_targets=True)

    def __init__(
        self,
        estimator: Any = None,
        recalibrator: Recalibrator | None = None,
        *,
        cv: Any = None,
        smallest_probability: float | None = None,
    ) -> None:
        """Keep the parameters; `fit` checks them."""
        self.estimator = estimator
        self.recalibrator = recalibrator
        self.cv = cv
        self.smallest_probability = smallest_probability

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "RecalibratedClassifier":
        """Fit the classifier and the recalibrator to inputs and labels, [n] each."""
        estimator = self._estimator()  # parameters are refused before fitting
        if not hasattr(estimator, "predict_proba"):
            expected = "a classifier with predict_proba (of scores: CalibratedClassifierCV)"
            raise TypeError(f"estimator: expected {expected}, got {checks.described(estimator)}")
        self._smallest()
        X, y = indexable(X, y)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        probs = self._cross_fitted(X, y, sample_weight, lambda fitted, x: fitted.predict_proba(x))
        self.classes_ = self.estimator_.classes_
        with jax.enable_x64(True):
            targets = label_indices(y, self.classes_)
            self._learn(self._predictions(probs), targets, sample_weight)
        return self

    def _predictions(self, probs: Any) -> Bernoulli | Categorical:
        """Class predictions in float64 from the probabilities of a classifier, [n, m]."""
        checks.batch(Categorical(probs))  # in the precision of the classifier
        raised = jnp.maximum(jnp.asarray(probs, jnp.float64), self._smallest())
        raised /= jnp.sum(raised, 1, keepdims=True)
        return Bernoulli(raised[:, 1]) if raised.shape[1] == 2 else Categorical(raised)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Recalibrated probabilities of the classes, [n, m]."""
        check_is_fitted(self)
        with jax.enable_x64(True):
            predictions = self._predictions(self.estimator_.predict_proba(X))
            values = self._recalibrator().apply(self.params_, predictions)
            if not hasattr(values, "class_probs"):  # confidences in the second class
                values = Bernoulli(values)
            return np.array(values.class_probs)

    def predict(self, X: Any) -> np.ndarray:
        """Labels of largest recalibrated probability, [n]."""
        indices = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[indices]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = get_tags(self._estimator()).input_tags.sparse
        return tags

    def _smallest(self) -> float:
        name, smallest = "smallest_probability", self.smallest_probability
        return 0.0 if smallest is None else float(checks.proportion(name, smallest))


class RecalibratedRegressor(base.RegressorMixin, _Recalibrated):
    """Regressor with predictive distributions that are recalibrated by this package.

    `fit` fits the recalibrator to out-of-fold predictions, and the regressor to all samples. Pass a
    fitted regressor as `sklearn.frozen.FrozenEstimator(regressor)`; then only the recalibrator is
    fitted, and X and y must not be training samples of the regressor. `fit` takes `sample_weight`,
    [n], as in `RecalibratedClassifier`. Computations are in float64.

    Attributes:
        estimator: regressor; None for `BayesianRidge()`.
        recalibrator: a `recalibration.Recalibrator` of its predictions, such as
            `QuantileRecalibration()`; None for `AffineScaling()`.
        predictive: function (fitted regressor, X) → batch of distributions; None for
            `from_sklearn`, for regressors whose `predict` has `return_std`, also in pipelines.
        cv: folds: a number (None for 5), or a splitter that predicts every sample once.
        estimator_: regressor fitted to all samples.
        params_: params of the recalibrator.

    Raises:
        TypeError: by `fit` if the regressor does not predict distributions, the recalibrator is not
            for them, or one of both does not take the given weights.
        ValueError: by `fit` if y has several outputs, folds leave samples without prediction, or
            the recalibrator has no solution; and for invalid data, by the regressor.

    Cost: k + 1 fits of the regressor for k folds, and one of the recalibrator.

    References: Kuleshov, Fenner and Ermon (2018), Accurate uncertainties for deep learning using
    calibrated regression, §3.2 (out-of-fold predictions).

    >>> import numpy as np
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> X = np.linspace(0, 1, 60)[:, None]
    >>> y = X[:, 0] + 0.3 * np.random.default_rng(0).normal(size=60)
    >>> narrow = GaussianProcessRegressor(alpha=0.1, optimizer=None)  # without noise in its kernel
    >>> model = RecalibratedRegressor(narrow).fit(X, y)
    >>> before, after = narrow.fit(X, y).predict(X, return_std=True)[1], model.predict(X, True)[1]
    >>> print(bool((after > 2 * before).all()))
    True
    """

    _default_estimator = linear_model.BayesianRidge
    _default_recalibrator = AffineScaling()

    def __init__(
        self,
        estimator: Any = None,
        recalibrator: Recalibrator | None = None,
        *,
        predictive: Callable[[Any, Any], Distribution] | None = None,
        cv: Any = None,
    ) -> None:
        """Keep the parameters; `fit` checks them."""
        self.estimator = estimator
        self.recalibrator = recalibrator
        self.predictive = predictive
        self.cv = cv

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "RecalibratedRegressor":
        """Fit the regressor and the recalibrator to inputs and targets, [n] each."""
        X, y = indexable(X, y)
        y = column_or_1d(y, dtype=np.float64, warn=True)
        with jax.enable_x64(True):
            predictions = self._cross_fitted(X, y, sample_weight, self._distributions)
            self._learn(predictions, y, sample_weight)
        return self

    def _distributions(self, estimator: Any, X: Any) -> Distribution:
        predictive = from_sklearn if self.predictive is None else self.predictive
        return checks.batch(predictive(estimator, X))

    def predict_distribution(self, X: Any) -> Distribution:
        """Recalibrated predictive distributions, a batch of n, in float64."""
        check_is_fitted(self)
        with jax.enable_x64(True):
            predictions = self._distributions(self.estimator_, X)
            return self._recalibrator().apply(self.params_, predictions)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Means, [n]; with `return_std` a pair of means and standard deviations."""
        predictions = self.predict_distribution(X)
        with jax.enable_x64(True):
            means = np.array(jax.vmap(lambda p: p.mean())(predictions))
            if not return_std:
                return means
            return means, np.sqrt(np.array(jax.vmap(lambda p: p.variance())(predictions)))
