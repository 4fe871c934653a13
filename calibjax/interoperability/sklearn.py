"""A classifier and a regressor of scikit-learn that recalibrate another one."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from scipy.special import softmax
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils import metadata_routing as routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, has_fit_parameter

from calibjax import estimators
from calibjax._core import checks, environment
from calibjax._core.pytree import record
from calibjax.distances import TotalVariation
from calibjax.distributions import Bernoulli
from calibjax.distributions.base import Distribution
from calibjax.distributions.classes import Categorical
from calibjax.distributions.continuous import LogNormal
from calibjax.distributions.normal import DiagNormal, Normal
from calibjax.kernels import Exponential, Kernel, TensorProduct, White
from calibjax.recalibration import AffineScaling, GroupWise, PlattScaling, Recalibrator

_SCALERS = "StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler"  # affine maps


def from_sklearn(model: Any, X: Any) -> Distribution:
    """Predicted distributions of a fitted model of scikit-learn, for the inputs X.

    - A classifier with `predict_proba` gives a `Categorical`, also of two classes: as a
      `Bernoulli`, a probability of 1 − 10⁻⁹ would be 1 in float32, and the other label impossible.
      Class c is `model.classes_[c]`; for labels that are not 0, 1, 2, ... themselves,
      `interoperability.sklearn.label_indices` finds their numbers.
    - A regressor whose `predict` has `return_std`, such as `GaussianProcessRegressor`,
      `BayesianRidge` and `ARDRegression`, gives a `Normal`; of several outputs a `DiagNormal`.

    Pipelines and searches of such models are read as well. So is a `TransformedTargetRegressor` of
    a regressor whose predictions are normal: with a scaler of scikit-learn its predictions are
    normal, with `inverse_func=numpy.exp` they are a `LogNormal`.

    The standard deviation of a Gaussian process is that of an observation only if its kernel has a
    `WhiteKernel`; the noise `alpha` of a `GaussianProcessRegressor` is not part of it.

    Args:
        model: the fitted model.
        X: what its `predict` takes, n inputs.

    Returns:
        A batch of n predictions.

    Raises:
        ImportError: if scikit-learn is not installed (`pip install 'calibjax[sklearn]'`).
        TypeError: if the model predicts no distribution.
        ValueError: if probabilities or standard deviations are invalid, such as a standard
            deviation of zero, or there is only one class. The model's own errors, such as that it
            is not fitted, come as they are.

    Cost: that of the model.

    >>> import numpy as np
    >>> from sklearn.linear_model import BayesianRidge, LogisticRegression
    >>> from calibjax.interoperability import from_sklearn
    >>> X = np.arange(6.0)[:, None]
    >>> print(type(from_sklearn(BayesianRidge().fit(X, [0, 1, 3, 2, 4, 5]), X)).__name__)
    Normal
    >>> print(type(from_sklearn(LogisticRegression().fit(X, list("ababcc")), X)).__name__)
    Categorical
    """
    base = environment.imported(
        "sklearn.base", "from_sklearn reads models of scikit-learn", "sklearn"
    )
    if not isinstance(model, base.BaseEstimator):
        raise TypeError(
            f"model: expected a fitted model of scikit-learn, got {checks.described(model)}"
        )
    checks.refuse_masked("X", X)
    if hasattr(model, "predict_proba"):
        return _of_classes(model, X)
    if base.is_regressor(model):
        return _of_numbers(model, X)
    _refuse(model)


def _of_numbers(model: Any, inputs: Any) -> Distribution:
    """The predicted numbers; searches, pipelines and transformed targets hand no options on."""
    best = getattr(model, "best_estimator_", model)
    if hasattr(best, "steps"):
        if len(best.steps) > 1:
            inputs = best[:-1].transform(inputs)
        return _of_numbers(best.steps[-1][1], inputs)
    if hasattr(best, "regressor_"):
        return _transformed(_of_numbers(best.regressor_, inputs), best)
    if "return_std" in inspect.signature(best.predict).parameters:
        return _normal(*best.predict(inputs, return_std=True))
    _refuse(model)


def _refuse(model: Any) -> NoReturn:
    raise TypeError(
        "model: expected a classifier with predict_proba, or a regressor whose predict has "
        f"return_std, such as GaussianProcessRegressor, got {checks.described(model)}{_way(model)}"
    )


def _of_classes(model: Any, inputs: Any) -> Distribution:
    """The predicted classes."""
    probs = model.predict_proba(inputs)
    if isinstance(probs, list):
        raise TypeError(
            f"model: expected a classifier of one label, got {checks.described(model)} with "
            f"{len(probs)} outputs; hand over their predict_proba one by one, in "
            "distributions.Categorical"
        )
    return checks.batch(Categorical(probs), keep_logs=True)  # which several labels at once are not


def _normal(loc: Any, scale: Any) -> Distribution:
    """Means and standard deviations, [n], or [n, d] of several outputs."""
    return checks.batch((Normal if loc.ndim == 1 else DiagNormal)(loc, scale))


def _transformed(predictions: Distribution, model: Any) -> Distribution:
    """Predictions of the target whose transformation by the model they predict."""
    transformer = model.transformer_
    if isinstance(predictions, Normal):
        if getattr(transformer, "inverse_func", None) is np.exp:
            return checks.batch(LogNormal(predictions.loc, predictions.scale))
        if type(transformer).__name__ in _SCALERS:
            zero, one = np.ravel(transformer.inverse_transform([[0.0], [1.0]]))
            slope = one - zero
            return _normal(zero + slope * predictions.loc, abs(slope) * predictions.scale)
    raise TypeError(
        "model: expected a TransformedTargetRegressor of normal predictions whose transformer is "
        f"one of {', '.join(_SCALERS)}, or whose inverse_func is numpy.exp, got "
        f"{checks.described(transformer)} of {type(predictions).__name__} predictions"
    )


def _way(model: object) -> str:
    """What to do with a model that predicts no distribution."""
    if hasattr(model, "decision_function"):
        return "; interoperability.RecalibratedClassifier turns scores into probabilities"
    if hasattr(model, "predict"):
        return "; hand over its predictions in a record such as distributions.Normal"
    return ""


def label_indices(labels: Any, classes: Any) -> jax.Array:
    """Numbers of labels: the i with classes[i] = label, which is how `Categorical` counts.

    Args:
        labels: labels that can be ordered, such as words or integers, [n].
        classes: the different labels there are, [m], such as `classes_` of a fitted classifier of
            scikit-learn, whose `predict_proba` has its columns in this order.

    Returns:
        Integers 0, ..., m − 1, [n].

    Raises:
        TypeError: if labels of one array are of kinds that cannot be compared.
        ValueError: if an array has not one axis, a class appears twice, or a label is none of
            the classes.

    Cost: O(n log n).

    >>> print(label_indices(["dog", "cat", "dog"], ["cat", "dog", "owl"]))
    [1 0 1]
    """
    labels, classes = _vector("labels", labels), _vector("classes", classes)
    numbers = {label: i for i, label in enumerate(classes.tolist())}
    if len(numbers) < len(classes):
        raise ValueError(f"classes: expected different labels, got {classes.tolist()}")
    try:
        different, positions = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise TypeError(f"labels: expected labels that can be ordered, got {error}") from None
    is_unknown = np.array([label not in numbers for label in different.tolist()], bool)[positions]
    if is_unknown.any():
        i = int(np.argmax(is_unknown))
        raise ValueError(
            f"labels: expected labels among the classes {classes.tolist()}, got "
            f"labels[{i}] = {labels.tolist()[i]!r}"
        )
    return jnp.asarray([numbers[label] for label in different.tolist()], int)[positions]


def _vector(name: str, values: Any) -> np.ndarray:
    """An array of at least one label."""
    checks.refuse_masked(name, values)
    try:
        array = np.asarray(values)
    except Exception as error:  # of ragged lists, and what other libraries raise
        raise TypeError(
            f"{name}: expected an array of labels, got {checks.described(values)}: {error}"
        ) from None
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name}: expected one axis with at least one label, got {array.shape}")
    return array


environment.imported("sklearn", "RecalibratedClassifier is a classifier of scikit-learn", "sklearn")


class _Recalibrated(MetaEstimatorMixin, BaseEstimator):
    """The parameters, data, and how weights of samples reach the estimator."""

    estimator: Any
    recalibrator: Recalibrator | None
    estimator_: Any
    _default_estimator: Callable[[], Any]
    _default_recalibrator: Recalibrator

    def _estimator(self) -> Any:
        return self._default_estimator() if self.estimator is None else self.estimator

    def _recalibrator(self) -> Recalibrator:
        """The recalibrator, refused if its fit takes anything but predictions and targets."""
        if self.recalibrator is None:
            return self._default_recalibrator
        if not isinstance(self.recalibrator, Recalibrator):
            raise TypeError(
                "recalibrator: expected a record such as recalibration.TemperatureScaling(), got "
                f"{checks.described(self.recalibrator)}"
            )
        if isinstance(self.recalibrator, GroupWise):  # whose fit takes any arguments
            raise TypeError("recalibrator: expected one that needs no groups, got GroupWise")
        fit = self.recalibrator.fit
        checks.function("method", "recalibrator.fit", fit, "predictions", "targets")
        return self.recalibrator

    def _keep_names(self) -> None:
        """Copies what is known about the inputs from the fitted estimator."""
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))

    def get_metadata_routing(self) -> routing.MetadataRouter:
        """Who takes `sample_weight`, where metadata routing of scikit-learn is enabled."""
        mapping = routing.MethodMapping().add(caller="fit", callee="fit")
        router = routing.MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self._estimator(), method_mapping=mapping)

    def _routed(self, sample_weight: np.ndarray | None) -> dict[str, Any]:
        """Arguments of the estimator's fit; those of its last step in a pipeline."""
        if sample_weight is None:
            return {}
        if get_config()["enable_metadata_routing"]:
            routed: Any = routing.process_routing(self, "fit", sample_weight=sample_weight)
            return dict(routed.estimator.fit)
        prefix, final = "", self._estimator()
        while isinstance(final, Pipeline | TransformedTargetRegressor):
            if isinstance(final, Pipeline):
                prefix += f"{final.steps[-1][0]}__"
                final = final.steps[-1][1]
            else:
                final = final.regressor
        if not has_fit_parameter(final, "sample_weight"):
            raise TypeError(
                "estimator: expected one whose fit takes sample_weight, got "
                f"{checks.described(final)}"
            )
        return {f"{prefix}sample_weight": sample_weight}


class RecalibratedClassifier(ClassifierMixin, _Recalibrated):
    """A classifier whose probabilities are corrected by a recalibrator of this package.

    `fit` predicts every sample by a classifier that was fitted without its fold, fits the
    recalibrator to these predictions, and the classifier to all samples: the way of scikit-learn's
    `CalibratedClassifierCV(ensemble=False)`. A classifier that is fitted already comes as
    `sklearn.frozen.FrozenEstimator(classifier)`; then the recalibrator alone is fitted, and X and y
    have to be samples that the classifier has not seen.

    Two classes are recalibrated by the probability of the second, more of them together
    (`TemperatureScaling`, `MatrixScaling`) or one against the rest
    (`HistogramBinning`, `IsotonicRegression`, `PlattScaling`, `BetaCalibration`, `VennAbers`).
    `fit` takes `sample_weight`, [n], for the classifier, unless it is frozen, and for the
    recalibrator. The last step of a pipeline gets it, or with metadata routing every step that
    requests it.
    Computations are in float64, whatever the setting of JAX.

    Scores of a classifier that has `decision_function` only have no scale. They are divided by
    their root mean square, and are then the log-odds of the second of two classes or the logits
    of more classes. This changes nothing for the recalibrators that learn the scale of log-odds.

    Attributes:
        estimator: the classifier, which has `predict_proba` or `decision_function`; None for
            `LogisticRegression()`.
        recalibrator: a `recalibration.Recalibrator` of classes; None for
            `PlattScaling(smooth_targets=True)`, which has a solution for all samples but those
            whose probabilities are all equal. `TemperatureScaling()` has none where the classes
            are perfectly separated.
        cv: folds, as in `sklearn.model_selection.cross_val_predict`: a number (None for 5,
            stratified), or a splitter that predicts every sample once.
        smallest_probability: probabilities are raised to at least this, and divided by their sum,
            before anything else is done with them; None leaves them alone. Likelihoods need it if
            the classifier says that something is impossible, as forests and naive Bayes do: 1e-6,
            say.
        classes_: the labels, [m], in the order of the columns of `predict_proba`.
        estimator_: the classifier that was fitted to all samples.
        score_scale_: root mean square of the scores; None for a classifier with `predict_proba`.
        params_: what the recalibrator has learned.

    Raises:
        TypeError: by `fit` if the classifier predicts neither probabilities nor a score for each
            class, or the recalibrator is none of classes, or needs groups or features, or one of
            them takes no weights but there are some.
        ValueError: by `fit` if there is one class only, all samples of a class are in one fold,
            or the recalibrator has no solution for these samples; and for invalid data, by
            the classifier.

    Cost: with k folds, k + 1 fits of the classifier, and that of the recalibrator.

    References: Platt (1999), Probabilistic outputs for support vector machines, §2.1 (predictions
    of samples that were left out).

    >>> from sklearn.datasets import make_classification
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from calibjax.recalibration import TemperatureScaling
    >>> X, y = make_classification(200, random_state=0)
    >>> model = RecalibratedClassifier(GaussianNB(), TemperatureScaling()).fit(X, y)
    >>> print(f"{model.params_:.1f}", model.predict_proba(X).shape)
    2.8 (200, 2)
    """

    _default_estimator = LogisticRegression
    _default_recalibrator = PlattScaling(smooth_targets=True)

    def __init__(
        self,
        estimator: Any = None,
        recalibrator: Recalibrator | None = None,
        *,
        cv: Any = None,
        smallest_probability: float | None = None,
    ) -> None:
        """Keeps the parameters; `fit` looks at them."""
        self.estimator = estimator
        self.recalibrator = recalibrator
        self.cv = cv
        self.smallest_probability = smallest_probability

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "RecalibratedClassifier":
        """Fits the classifier and the recalibrator to inputs and labels, [n] each."""
        recalibrator, smallest = self._recalibrator(), self._smallest()
        checks.refuse_masked("X", X)
        checks.refuse_masked("y", y)
        X, y = indexable(X, y)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if sample_weight is not None:
            sample_weight = _checked_weights(sample_weight, y, recalibrator)
        outputs, self.estimator_ = self._predicted(X, y, sample_weight)
        self.classes_ = self.estimator_.classes_
        self.score_scale_ = None
        if self._method == "decision_function":
            squares = np.average(np.square(outputs), axis=0, weights=sample_weight)
            self.score_scale_ = np.sqrt(np.mean(squares)) or 1.0
        probs = self._probs(outputs)
        self._keep_names()
        with jax.enable_x64(True):
            targets = label_indices(y, self.classes_)
            weights = {} if sample_weight is None else {"weights": sample_weight}
            params = recalibrator.fit(_predictions(probs, smallest), targets, **weights)
            self.params_ = jax.device_get(params)  # JAX would unpickle float64 as float32
        return self

    def _predicted(
        self, X: Any, y: np.ndarray, sample_weight: np.ndarray | None
    ) -> tuple[Any, Any]:
        """Outputs for samples that the classifier has not seen, and the classifier."""
        estimator, method = self._estimator(), self._method
        if isinstance(estimator, FrozenEstimator):
            return getattr(estimator, method)(X), estimator
        weights = self._routed(sample_weight)
        splitter: Any = check_cv(self.cv, y, classifier=True)
        folds = list(splitter.split(X, y))
        _refuse_missing_classes(y, folds)
        outputs = cross_val_predict(estimator, X, y, cv=folds, method=method, params=weights)
        fitted: Any = clone(estimator)
        return outputs, fitted.fit(X, y, **weights)

    @property
    def _method(self) -> str:
        """The method of the classifier that is recalibrated."""
        for name in ("predict_proba", "decision_function"):
            if hasattr(self._estimator(), name):
                return name
        raise TypeError(
            "estimator: expected a classifier with predict_proba or decision_function, got "
            f"{checks.described(self._estimator())}"
        )

    def _probs(self, outputs: Any) -> Any:
        """Probabilities, or those of scores, [n], or [n, m] of more than two classes."""
        if self.score_scale_ is None:
            return outputs
        scores = np.asarray(outputs, np.float64) / self.score_scale_
        logits = scores if scores.ndim == 2 else np.stack([np.zeros_like(scores), scores], 1)
        shapes = [v for k, v in self.get_params().items() if k.endswith("decision_function_shape")]
        if logits.shape[1] != len(self.classes_) or (scores.ndim == 2 and "ovo" in shapes):
            raise TypeError(
                f"estimator: expected a score for each of {len(self.classes_)} classes, not for "
                f"pairs, got {logits.shape[1]} from decision_function of "
                f"{checks.described(self._estimator())}"
            )
        return softmax(logits, axis=1)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Recalibrated probabilities of the classes, [n, m]."""
        check_is_fitted(self)
        checks.refuse_masked("X", X)
        recalibrator, smallest = self._recalibrator(), self._smallest()
        with jax.enable_x64(True):
            outputs = getattr(self.estimator_, self._method)(X)
            predictions = _predictions(self._probs(outputs), smallest)
            values = recalibrator.apply(self.params_, predictions)
            if not hasattr(values, "class_probs"):  # confidences in the second class
                values = Bernoulli(values)
            return np.array(values.class_probs)

    def predict(self, X: Any) -> np.ndarray:
        """The labels of largest recalibrated probability, [n]."""
        indices = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[indices]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = get_tags(self._estimator()).input_tags.sparse
        return tags

    def _smallest(self) -> float:
        name, smallest = "smallest_probability", self.smallest_probability
        return 0.0 if smallest is None else float(checks.proportion(name, smallest))


class RecalibratedRegressor(RegressorMixin, _Recalibrated):
    """A regressor whose predictive distributions are corrected by a recalibrator of this package.

    `fit` predicts every sample by a regressor that was fitted without its fold, fits the
    recalibrator to these predictions, and the regressor to all samples. One that is fitted already
    comes as `sklearn.frozen.FrozenEstimator(regressor)`; then the recalibrator alone is fitted, and
    X and y have to be samples that the regressor has not seen. `fit` takes `sample_weight`, [n], as
    `RecalibratedClassifier` does. Computations are in float64, whatever the setting of JAX.

    Attributes:
        estimator: the regressor; None for `BayesianRidge()`.
        recalibrator: a `recalibration.Recalibrator` of its predictions, such as
            `QuantileRecalibration()`; None for `AffineScaling()`.
        predictive: function (fitted regressor, X) → batch of distributions; None for
            `from_sklearn`, which reads regressors whose `predict` has `return_std`, also in
            pipelines and a `TransformedTargetRegressor`.
        cv: folds: a number (None for 5), or a splitter that predicts every sample once.
        estimator_: the regressor that was fitted to all samples.
        params_: what the recalibrator has learned.

    Raises:
        TypeError: by `fit` if the regressor predicts no distributions, or the recalibrator is none
            of them, or one of both takes no weights but there are some.
        ValueError: by `fit` if y has several outputs, folds leave samples without prediction, or
            the recalibrator has no solution for these samples; and for invalid data, by the
            regressor.

    Cost: with k folds, k + 1 fits of the regressor, and that of the recalibrator.

    References: Kuleshov, Fenner and Ermon (2018), Accurate uncertainties for deep learning using
    calibrated regression, §3.2 (predictions of samples that were left out).

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

    _default_estimator = BayesianRidge
    _default_recalibrator = AffineScaling()

    def __init__(
        self,
        estimator: Any = None,
        recalibrator: Recalibrator | None = None,
        *,
        predictive: Callable[[Any, Any], Distribution] | None = None,
        cv: Any = None,
    ) -> None:
        """Keeps the parameters; `fit` looks at them."""
        self.estimator = estimator
        self.recalibrator = recalibrator
        self.predictive = predictive
        self.cv = cv

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "RecalibratedRegressor":
        """Fits the regressor and the recalibrator to inputs and targets, [n] each."""
        recalibrator = self._recalibrator()
        checks.refuse_masked("X", X)
        checks.refuse_masked("y", y)
        X, y = indexable(X, y)
        if np.ndim(y) == 2 and np.shape(y)[1] > 1:
            raise ValueError(
                f"y: expected one output, [n], got {np.shape(y)[1]}, {np.shape(y)}; fit a "
                "RecalibratedRegressor for each"
            )
        y = column_or_1d(y, dtype=np.float64, warn=True)
        weights: dict[str, Any] = {}
        if sample_weight is not None:
            sample_weight = _checked_weights(sample_weight, y, recalibrator)
            weights = {"weights": sample_weight}
        with jax.enable_x64(True):
            predictions, self.estimator_ = self._predicted(X, y, sample_weight)
            self.params_ = jax.device_get(recalibrator.fit(predictions, y, **weights))
        self._keep_names()
        return self

    def _predicted(
        self, X: Any, y: np.ndarray, sample_weight: np.ndarray | None
    ) -> tuple[Any, Any]:
        """Predictions of samples that the regressor has not seen, and the regressor."""
        estimator = self._estimator()
        if isinstance(estimator, FrozenEstimator):
            return self._distributions(estimator, X), estimator
        all_weights = self._routed(sample_weight)

        def fitted(rows: np.ndarray) -> Any:
            weights = {name: x[rows] for name, x in all_weights.items()}
            copied: Any = clone(estimator)
            return copied.fit(_safe_indexing(X, rows), y[rows], **weights)

        splitter: Any = check_cv(self.cv, y)
        folds = list(splitter.split(X, y))
        places = np.concatenate([test for _, test in folds])
        if not np.array_equal(np.sort(places), np.arange(len(y))):
            raise ValueError("cv: expected folds that predict every sample once, got others")
        parts = [self._distributions(fitted(rows), _safe_indexing(X, test)) for rows, test in folds]
        joined = jax.tree.map(lambda *x: jnp.concatenate(x)[np.argsort(places)], *parts)
        return joined, fitted(np.arange(len(y)))

    def _distributions(self, estimator: Any, X: Any) -> Distribution:
        predictive = from_sklearn if self.predictive is None else self.predictive
        return checks.batch(predictive(estimator, X))

    def predict_distribution(self, X: Any) -> Distribution:
        """Recalibrated predictive distributions, a batch of n, in float64."""
        check_is_fitted(self)
        checks.refuse_masked("X", X)
        recalibrator = self._recalibrator()
        with jax.enable_x64(True):
            return recalibrator.apply(self.params_, self._distributions(self.estimator_, X))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Means, [n]; with `return_std` a pair of means and standard deviations."""
        predictions = self.predict_distribution(X)
        with jax.enable_x64(True):
            means = np.array(jax.vmap(lambda p: p.mean())(predictions))
            if not return_std:
                return means
            return means, np.sqrt(np.array(jax.vmap(lambda p: p.variance())(predictions)))


def _checked_weights(sample_weight: Any, y: np.ndarray, recalibrator: Recalibrator) -> np.ndarray:
    """Weights as they came, which classifiers with penalties do not take for multiples of them."""
    names = "predictions", "targets"
    checks.function("method", "recalibrator.fit", recalibrator.fit, *names, keywords=("weights",))
    with jax.enable_x64(True):
        checks.sample_weights(sample_weight, np.zeros(len(y)), name="sample_weight")
    return np.array(sample_weight, np.float64)


def _predictions(probs: Any, smallest: float) -> Bernoulli | Categorical:
    """Predictions of classes, in float64 and none of them below the smallest probability."""
    checks.batch(Categorical(probs))  # in the precision of the classifier
    raised = jnp.maximum(jnp.asarray(probs, jnp.float64), smallest)
    raised /= jnp.sum(raised, 1, keepdims=True)
    return Bernoulli(raised[:, 1]) if raised.shape[1] == 2 else Categorical(raised)


def _refuse_missing_classes(y: np.ndarray, folds: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """Refuses one class only, and folds without which a class would have no samples left."""
    labels = np.unique(y)
    if len(labels) < 2:
        raise ValueError(f"y: expected at least two classes, got one class, {labels.tolist()}")
    for training, _ in folds:
        missing = np.setdiff1d(labels, y[training])
        if len(missing):
            raise ValueError(
                "y: expected samples of each class in at least two folds, got samples of class "
                f"{missing.tolist()[0]!r} in one alone"
            )


Estimator = Callable[..., jax.Array]
_OF_CLASSES = TensorProduct(Exponential(0.5, TotalVariation()), White())


@record
class SKCEScorer:
    """Minus the squared kernel calibration error, a `scoring` of scikit-learn: greater is better.

    `SKCEScorer()(model, X, y)` is −SKCE of `from_sklearn(model, X)` and y, a number.
    Labels of any kind are counted by their place in `model.classes_`.

    Models are compared by the same kernel. So its length scales are fixed, and not chosen from the
    predictions of each model, as one would for a test.

    Report it *beside* a proper score, and select by the latter: a model that always predicts the
    frequencies of the classes is calibrated, too. For example:
    `GridSearchCV(model, grid, scoring={"nll": "neg_log_loss", "skce": SKCEScorer()}, refit="nll")`.

    The same with scikit-learn's `make_scorer`, for three or more classes with labels 0, 1, 2, ...:
    `make_scorer(lambda y, p: estimators.skce(kernel, Categorical(p), y),
    response_method="predict_proba", greater_is_better=False)`.

    It takes `sample_weight`, [n], which the estimator then gets as `weights`.

    Attributes:
        kernel: kernel on predictions and targets. The default is that of classes,
            exp(−2 TV(p, q)) δ(y, z); regression needs one with the length scales of its targets.
        estimator: function (kernel, predictions, targets) → number, such as
            `estimators.skce_biased`.

    Raises:
        ImportError: when it is called, if scikit-learn is not installed.
        TypeError: when it is called, if the model predicts no distribution, or the estimator takes
            no weights but there are some.
        ValueError: when it is called, if predictions or targets are invalid, or a label is none of
            the model's classes, as may happen in folds without that class.
        NotImplementedError: when it is called, if the kernel does not fit the predictions.

    Cost: that of the model and of the estimator, by default O(n²).

    References: W19 Lemma 2 (unbiased estimator); W21 §4.

    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> X, y = make_classification(200, random_state=0)
    >>> values = cross_val_score(LogisticRegression(), X, y, scoring=SKCEScorer())
    >>> print(values.shape, f"{values.mean():.3f}")
    (5,) -0.002
    """

    kernel: Kernel = _OF_CLASSES
    estimator: Estimator = dataclasses.field(default=estimators.skce, metadata={"static": True})

    def __call__(self, model: Any, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Minus the estimate."""
        arguments = "kernel", "predictions", "targets"
        place = f"estimator({', '.join(arguments)})"
        weights = {} if sample_weight is None else {"weights": sample_weight}
        keywords = tuple(weights)
        checks.function("function", "estimator", self.estimator, *arguments, keywords=keywords)
        predictions = from_sklearn(model, X)
        targets = label_indices(y, model.classes_) if hasattr(predictions, "class_probs") else y
        value = checks.real(place, self.estimator(self.kernel, predictions, targets, **weights))
        checks.shape(place, value, (), "() (a number)")
        return -float(checks.finite(place, value))
