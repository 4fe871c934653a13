"""Models of scikit-learn, imported only when it is asked for: predictions, labels, scores."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import estimators
from calibjax._core import checks, environment
from calibjax._core.gate import Seen, checked
from calibjax._core.pytree import Numbers, record
from calibjax.distances import TotalVariation
from calibjax.distributions.base import Distribution
from calibjax.distributions.classes import Categorical
from calibjax.distributions.continuous import LogNormal
from calibjax.distributions.normal import DiagNormal, Normal
from calibjax.kernels import Exponential, Kernel, TensorProduct, White

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
    if isinstance(model, base.BaseEstimator):
        if hasattr(model, "predict_proba"):
            probs = model.predict_proba(X)
            if isinstance(probs, list):  # of several labels at once
                got = f"{len(probs)} outputs"
                raise TypeError(f"model: expected a classifier of one label, got {got}")
            return checks.batch(Categorical(probs))
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
    if hasattr(model, "decision_function"):
        advice = "; interoperability.RecalibratedClassifier turns scores into probabilities"
    else:
        advice = "; hand over predictions in a record such as distributions.Normal"
    raise TypeError(
        "model: expected a classifier with predict_proba, or a regressor whose predict has "
        f"return_std, of scikit-learn, got {checks.described(model)}{advice}"
    )


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
        f"one of {', '.join(_SCALERS)}, or whose inverse_func is numpy.exp, got {transformer}"
    )


def _vector(name: str, value: Any, seen: Seen) -> np.ndarray:
    """An array of at least one label."""
    checks.refuse_masked(name, value)
    array = np.asarray(value)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name}: expected one axis with at least one label, got {array.shape}")
    return array


@checked(labels=_vector, classes=_vector)
def label_indices(labels: Any, classes: Any) -> jax.Array:
    """Numbers of labels: the i with classes[i] = label, which is how `Categorical` counts.

    Args:
        labels: labels such as words or integers, [n].
        classes: the different labels there are, [m], such as `classes_` of a fitted classifier of
            scikit-learn, whose `predict_proba` has its columns in this order.

    Returns:
        Integers 0, ..., m − 1, [n].

    Raises:
        ValueError: if an array has not one axis, a class appears twice, or a label is none of
            the classes.

    Cost: O(n).

    >>> print(label_indices(["dog", "cat", "dog"], ["cat", "dog", "owl"]))
    [1 0 1]
    """
    numbers = {label: i for i, label in enumerate(classes.tolist())}
    if len(numbers) < len(classes):
        raise ValueError(f"classes: expected different labels, got {classes.tolist()}")
    unknown = [label for label in labels.tolist() if label not in numbers]
    if unknown:
        got = f"among the classes {classes.tolist()}, got {unknown[0]!r}"
        raise ValueError(f"labels: expected labels {got}")
    return jnp.asarray([numbers[label] for label in labels.tolist()], int)


Estimator = Callable[..., jax.Array]
_OF_CLASSES = TensorProduct(Exponential(0.5, TotalVariation()), White())


def _estimator(value: Any, name: str) -> Any:
    checks.function("function", name, value)
    return value


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
    estimator: Estimator = dataclasses.field(
        default=estimators.skce, metadata={"static": True, "check": _estimator}
    )

    @checked
    def __call__(self, model: Any, X: Any, y: Any, sample_weight: Numbers | None = None) -> float:
        """Minus the estimate."""
        predictions = from_sklearn(model, X)
        targets = label_indices(y, model.classes_) if hasattr(predictions, "class_probs") else y
        weights = {} if sample_weight is None else {"weights": sample_weight}
        return -float(self.estimator(self.kernel, predictions, targets, **weights))
