"""Predictions of models of scikit-learn, which is imported only when `from_sklearn` is called."""

import inspect
from typing import Any, NoReturn

import numpy as np

from calibjax._core import checks, environment
from calibjax.distributions.base import Distribution
from calibjax.distributions.categorical import Categorical
from calibjax.distributions.log_normal import LogNormal
from calibjax.distributions.normal import DiagNormal, Normal

_SCALERS = "StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler"  # affine maps


def from_sklearn(model: Any, X: Any) -> Distribution:
    """Predicted distributions of a fitted model of scikit-learn, for the inputs X.

    - A classifier with `predict_proba` gives a `Categorical`, also of two classes: as a
      `Bernoulli`, a probability of 1 − 10⁻⁹ would be 1 in float32, and the other label impossible.
      Class c is `model.classes_[c]`; for labels that are not 0, 1, 2, ... themselves,
      `interoperability.label_indices` finds their numbers.
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
