"""Predictions of scikit-learn, numpyro and torch; labels and a score for scikit-learn.

Each package is imported when a function needs it.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distributions as d
from calibjax import estimators
from calibjax._core import checks, environment
from calibjax._core.gate import Seen, checked
from calibjax._core.pytree import Numbers, PyTree, record
from calibjax.distances import TotalVariation
from calibjax.distributions import Distribution
from calibjax.kernels import Exponential, Kernel, TensorProduct, White


def from_sklearn(model: Any, X: Any) -> Distribution:
    """Predicted distributions of a fitted scikit-learn model for the inputs X.

    - A classifier with `predict_proba` gives a `Categorical`, even for two classes: a `Bernoulli`
      would round 1 − 10⁻⁹ to 1 in float32. Class c is `model.classes_[c]`; use
      `interoperability.sklearn.label_indices` for labels other than 0, 1, 2, ...
    - A regressor whose `predict` has `return_std`, such as `GaussianProcessRegressor`,
      `BayesianRidge` and `ARDRegression`, gives a `Normal`, or a `DiagNormal` for several outputs.

      Pipelines and searches of such models are supported.

    The standard deviation of a Gaussian process is that of an observation only if its kernel has a
    `WhiteKernel`; the noise `alpha` of a `GaussianProcessRegressor` is not part of it.

    Args:
        model: fitted model.
        X: n inputs of `model.predict`.

    Returns:
        A batch of n predictions.

    Raises:
        ImportError: if scikit-learn is not installed (`pip install 'calibjax[sklearn]'`).
        TypeError: if the model does not predict a distribution.
        ValueError: if probabilities or standard deviations are invalid, such as a standard
            deviation of zero, or there is only one class. Errors of the model are passed on.

    Cost: the model.

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
            if isinstance(probs, list):  # multi-label
                got = f"{len(probs)} outputs"
                raise TypeError(f"model: expected a classifier of one label, got {got}")
            return checks.batch(d.Categorical(probs))
        if base.is_regressor(model):
            return _of_numbers(model, X)
    _refuse(model)


def _of_numbers(model: Any, inputs: Any) -> Distribution:
    """Predicted numbers; pipelines pass `return_std` on, but do not declare it."""
    best = last = getattr(model, "best_estimator_", model)
    while hasattr(last, "steps"):
        last = last.steps[-1][1]
    if "return_std" not in inspect.signature(last.predict).parameters:
        _refuse(model)
    loc, scale = best.predict(inputs, return_std=True)
    return checks.batch((d.Normal if loc.ndim == 1 else d.DiagNormal)(loc, scale))


def _refuse(model: Any) -> NoReturn:
    advice = "pass predictions in a record such as distributions.Normal"
    if hasattr(model, "decision_function"):
        advice = "sklearn.calibration.CalibratedClassifierCV turns scores into probabilities"
    expected = "a classifier of scikit-learn with predict_proba, or a regressor with return_std"
    raise TypeError(f"model: expected {expected}, got {checks.described(model)}; {advice}")


# Families with equal names and parameters.
_ALIKE = (d.Bernoulli, d.Categorical, d.Dirichlet, d.Gamma, d.Laplace, d.LogNormal, d.Logistic)
_ALIKE += (d.Normal, d.Poisson, d.StudentT, d.Uniform)
# Name of their class: our class, and their names of our parameters.
_FAMILIES: dict[str, tuple[type, tuple[str, ...]]] = {
    **{x.__name__: (x, tuple(name for name, y, _ in checks.declared(x) if y)) for x in _ALIKE},
    "BernoulliProbs": (d.Bernoulli, ("probs",)),
    "CategoricalProbs": (d.Categorical, ("probs",)),
    "Beta": (d.Beta, ("concentration1", "concentration0")),
    "MultivariateNormal": (d.MvNormal, ("loc", "covariance_matrix")),
    "NegativeBinomial": (d.NegativeBinomial, ("mean", "total_count")),
    **dict.fromkeys(
        ("GammaPoisson", "NegativeBinomialProbs", "NegativeBinomialLogits", "NegativeBinomial2"),
        (d.NegativeBinomial, ("mean", "concentration")),
    ),
}


def from_numpyro(distribution: Any) -> PyTree:
    """Convert a batch of numpyro distributions to predictions.

    Normal, Laplace, Logistic, MultivariateNormal, Categorical, Bernoulli, Poisson, Beta, Dirichlet,
    StudentT, LogNormal, Gamma, Uniform, GammaPoisson and the negative binomial families,
    `Normal(...).to_event(1)` (→ `DiagNormal`) and `MixtureSameFamily` of these become the records
    of this package, with expectations in closed form where they exist; a Categorical with logits
    becomes a `CategoricalLogits`. Expanded distributions are converted as well. For other
    distributions, pass draws as `distributions.Ensemble`.

    Args:
        distribution: a numpyro distribution with batch shape (n,).

    Returns:
        A batch of n predictions.

    Raises:
        ImportError: if numpyro is not installed (`pip install 'calibjax[numpyro]'`).
        TypeError: if it is not a numpyro distribution, or the family is not supported.
        ValueError: if its batch shape is not (n,).

    >>> import jax.numpy as jnp, numpyro.distributions
    >>> from calibjax.interoperability import from_numpyro
    >>> p = from_numpyro(numpyro.distributions.Normal(jnp.array([0.0, 1.0]), 2.0))
    >>> print(type(p).__name__, p.scale)
    Normal [2. 2.]
    """
    use = "from_numpyro reads distributions of numpyro"
    numpyro = environment.imported("numpyro.distributions", use, "numpyro")
    if not isinstance(distribution, numpyro.Distribution):
        got = checks.described(distribution)
        raise TypeError(f"distribution: expected a numpyro distribution, got {got}")
    return _of_package("distribution", distribution, numpyro, _full)


def from_torch(value: Any) -> PyTree:
    """Convert a torch tensor to an array, or a batch of torch distributions to predictions.

    Memory is shared through DLPack, on CPUs and GPUs. Nothing is copied if the tensor is
    contiguous, its memory is aligned for XLA (as for whole tensors), and its dtype needs no
    conversion. float64 and int64 (torch's labels) are converted unless `jax_enable_x64` is set.
    Gradients are not passed between the libraries.

    Do not write to a tensor while its array is in use, as optimizers and `tensor.add_(…)` do: the
    array changes with it. `from_torch(tensor.clone())` is safe.

    Normal, Laplace, MultivariateNormal, Categorical, Bernoulli, Poisson, Beta, Dirichlet, StudentT,
    LogNormal, Gamma, Uniform, NegativeBinomial, `Independent(Normal(…), 1)` (→ `DiagNormal`) and
    `MixtureSameFamily` of these become the records of this package; a Categorical with logits
    becomes a `CategoricalLogits`.

    Args:
        value: a tensor of any shape, or a `torch.distributions.Distribution` with batch shape (n,).

    Returns:
        A JAX array with the tensor's shape and dtype, or a batch of n predictions.

    Raises:
        ImportError: if torch is not installed.
        TypeError: if it is neither, the family is not supported, or the tensor is sparse or on a
            device that JAX cannot access.
        ValueError: if the batch shape is not (n,), or, without `jax_enable_x64`, an integer does
            not fit into 32 bits.

    Cost: O(1) without copies.

    >>> import torch  # doctest: +SKIP
    >>> from calibjax.interoperability import from_torch  # doctest: +SKIP
    >>> p = from_torch(torch.distributions.Normal(torch.zeros(2), 2.0))  # doctest: +SKIP
    >>> print(type(p).__name__, p.scale)  # doctest: +SKIP
    Normal [2. 2.]
    """
    torch = environment.imported("torch", "from_torch reads what torch made", "torch")
    if isinstance(value, torch.Tensor):
        array = _array("value", value)
        return checks.as_arrays("value", array) if isinstance(array, np.ndarray) else array
    if not isinstance(value, torch.distributions.Distribution):
        got = checks.described(value)
        raise TypeError(f"value: expected a tensor or a distribution of torch, got {got}")
    return _of_package("value", value, torch.distributions, _array)


def _of_package(name: str, distribution: Any, package: Any, read: Callable[..., Any]) -> PyTree:
    """Predictions from a torch or numpyro distribution; `read` converts parameters to arrays."""
    batch = tuple(distribution.batch_shape)
    if len(batch) != 1:
        raise ValueError(f"{name}: expected batch shape (n,), got {batch}")
    return checks.batch(_converted(name, distribution, package, read), name=name)


def _converted(name: str, distribution: Any, package: Any, read: Callable[..., Any]) -> PyTree:
    """Record of a distribution of any batch shape."""
    batch, kind = tuple(distribution.batch_shape), type(distribution).__name__
    family = kind.removesuffix("Logits")
    has_logits = kind != family or "probs" not in vars(distribution)

    def inner(attribute: str) -> PyTree:
        return _converted(name, getattr(distribution, attribute), package, read)

    def parameter(attribute: str, num_axes: int) -> Any:
        return read(f"{name}.{attribute}", getattr(distribution, attribute), batch, num_axes)

    if kind == "ExpandedDistribution":
        before = len(distribution.base_dist.batch_shape)
        base = inner("base_dist")
        return jax.tree.map(lambda x: _full(name, x, batch, jnp.ndim(x) - before), base)
    if kind == "MixtureSameFamily":
        is_torch = hasattr(distribution, "mixture_distribution")
        weights = inner("mixture_distribution" if is_torch else "mixing_distribution").class_probs
        return d.Mixture(_full(name, weights, batch, 1), inner("component_distribution"))
    if kind == "Independent" and distribution.reinterpreted_batch_ndims == 1:
        base = inner("base_dist")
        if isinstance(base, d.Normal):
            return d.DiagNormal(base.loc, base.scale)
    if family == "Bernoulli" and has_logits:
        return d.Bernoulli.of_log_odds(parameter("logits", 0))
    if family == "Categorical" and has_logits:
        return d.CategoricalLogits(parameter("logits", 1))
    if kind not in _FAMILIES or getattr(package, kind, None) is not type(distribution):
        advice = "pass draws of others in distributions.Ensemble"
        expected = "one of a family of calibjax.distributions"
        raise TypeError(f"{name}: expected {expected}, got {kind}; {advice}")
    record, attributes = _FAMILIES[kind]
    axes = [len(constraint.axes) for _, constraint, _ in checks.declared(record) if constraint]
    return record(*map(parameter, attributes, axes))


def _full(_: str, value: Any, batch: tuple[int, ...], num_axes: int) -> jax.Array:
    """Parameter of numpyro with all batch axes."""
    value = jnp.asarray(value)
    return jnp.broadcast_to(value, batch + value.shape[value.ndim - num_axes :])


def _array(name: str, tensor: Any, *_: Any) -> np.ndarray | jax.Array:
    """Values of a tensor, without a copy if possible.

    64-bit values become NumPy arrays if JAX has no 64 bits, to be checked before conversion.
    """
    tensor = tensor.detach()
    if tensor.element_size() == 8 and not checks.has_64_bits():
        return tensor.cpu().numpy()
    try:
        # Conjugate, negative and strided views are copied.
        return jnp.from_dlpack(tensor.resolve_conj().resolve_neg().contiguous())
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        got = f"{tensor.dtype} on {tensor.device}"
        raise TypeError(f"{name}: expected a dense tensor that JAX can read, got {got}") from error


def _vector(name: str, value: Any, seen: Seen) -> np.ndarray:
    """Array of at least one label."""
    checks.refuse_masked(name, value)
    array = np.asarray(value)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name}: expected one axis with at least one label, got {array.shape}")
    return array


@checked(labels=_vector, classes=_vector)
def label_indices(labels: Any, classes: Any) -> jax.Array:
    """Indices i of labels with classes[i] = label, the labels of `Categorical`.

    Args:
        labels: labels such as words or integers, [n].
        classes: different labels, [m], such as `classes_` of a fitted scikit-learn classifier, in
            the order of the columns of `predict_proba`.

    Returns:
        Integers 0, ..., m − 1, [n].

    Raises:
        ValueError: if an array does not have one axis, a class appears twice, or a label is not
            among the classes.

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


@record
class SKCEScorer:
    """Minus the squared kernel calibration error, a `scoring` of scikit-learn (greater is better).

    `SKCEScorer()(model, X, y)` is −SKCE of `from_sklearn(model, X)` and y, a number. Labels are
    identified by their index in `model.classes_`.

    All models are compared by one kernel, so its length scales are fixed instead of chosen from the
    predictions of each model.

    Report it *in addition to* a proper score, and select by the score: a model that always predicts
    the class frequencies is also calibrated. For example: `GridSearchCV(model, grid,
    scoring={"nll": "neg_log_loss", "skce": SKCEScorer()}, refit="nll")`.

    With scikit-learn's `make_scorer`, for three or more classes with labels 0, 1, 2, ...:
    `make_scorer(lambda y, p: estimators.skce(kernel, Categorical(p), y),
    response_method="predict_proba", greater_is_better=False)`.

    It takes `sample_weight`, [n], and passes it to the estimator as `weights`.

    Attributes:
        kernel: kernel on predictions and targets. The default, exp(−2 TV(p, q)) δ(y, z), is for
            classes; for regression choose a kernel with length scales of the targets.
        estimator: function (kernel, predictions, targets) → number, such as
            `estimators.skce_biased`.

    Raises:
        ImportError: by the call, if scikit-learn is not installed.
        TypeError: by the call, if the model does not predict a distribution, or the estimator does
            not take the given weights.
        ValueError: by the call, if predictions or targets are invalid, or a label is not among the
            model's classes, as in folds without that class.
        NotImplementedError: by the call, if the kernel does not support the predictions.

    Cost: the model and the estimator, by default O(n²).

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

    @checked
    def __call__(self, model: Any, X: Any, y: Any, sample_weight: Numbers | None = None) -> float:
        """Minus the estimate."""
        predictions = from_sklearn(model, X)
        targets = label_indices(y, model.classes_) if hasattr(predictions, "class_probs") else y
        weights = {} if sample_weight is None else {"weights": sample_weight}
        return -float(self.estimator(self.kernel, predictions, targets, **weights))
