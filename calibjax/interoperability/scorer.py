"""The kernel calibration error as a score of scikit-learn."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from jax.typing import ArrayLike

from calibjax import estimators
from calibjax._core import checks
from calibjax._core.pytree import record
from calibjax.distances import TotalVariation
from calibjax.interoperability.labels import label_indices
from calibjax.interoperability.sklearn_models import from_sklearn
from calibjax.kernels import Exponential, Kernel, TensorProduct, White

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
