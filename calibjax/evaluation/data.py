"""What is evaluated: checked data, the task, and what a part of the evaluation says."""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax import estimators
from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.gate import passed
from calibjax._core.pytree import PyTree
from calibjax.distributions import Bernoulli, Categorical, Ensemble, Quantiles
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.estimators.pit import randomised
from calibjax.evaluation.record import Entry
from calibjax.hypothesis_tests.ensembles import checked_ensembles
from calibjax.hypothesis_tests.intervals import SKCEDifference
from calibjax.hypothesis_tests.result import CalibrationTestResult

_LONGEST = 20_000  # samples that are filled up; beyond, computing takes longer than compiling


def filled(samples: tuple[Any, ...], weights: jax.Array | None) -> tuple[Any, jax.Array | None]:
    """Samples and weights, filled up with samples without weight to one of few lengths.

    There are four of these between n and 2 n, so that most data sets share their programs. Random
    numbers of the first samples do not depend on the length, so that neither do redraws.

    Args:
        samples: checked predictions and more, with leading axis n.
        weights: what `checks.sample_weights` returned for them.
    """
    n = jax.tree.leaves((samples, weights))[0].shape[0]
    added = -n % max(1, 2 ** ((n - 1).bit_length() - 3))
    if n > _LONGEST:
        return samples, weights
    padded = np.zeros(n + added, floating_dtype(samples[0]))
    padded[:n] = 1 if weights is None else weights

    def fill(leaf: ArrayLike) -> ArrayLike:
        return np.asarray(leaf)[np.pad(np.arange(n), (0, added))] if added else leaf

    # Unlike `jnp.asarray` this has no program for each shape.
    return jax.device_put((jax.tree.map(fill, samples), padded))


LEVEL = 0.05  # at which sentences say that something is wrong
MAX_CLASSES = 20  # with entries of their own
REDRAWS = 1  # of the keys, that of all redraws: tests with the same key share them
_ARRAY = (
    "predictions: expected a batch of distributions, or an array of probabilities, [n] for labels "
    "0 and 1, or [n, m] for labels 0, ..., m - 1, got {got}; {advice}"
)
_ANY = (
    "say what it is by distributions.Bernoulli(probs), Categorical(probs), Normal(loc, scale), "
    "Ensemble(values), ..."
)
_NO_GROUPS = "None", "nan", "NaT", "<NA>"


@dataclasses.dataclass(frozen=True)
class Data:
    """A checked data set.

    Attributes:
        key: that of the caller; `at` gives those of the parts.
        size: n.
        predictions: batch of N ≥ n distributions without features: data sets are filled up with
            samples without weight to one of few lengths, so that they share their programs.
        targets: [N] or [N, d].
        weights: of the samples, [N]; None where all count equally and none were added.
        has_weights: whether samples have weights of the user's.
        task: see `Evaluation.task`.
        features: [N, d], divided by their standard deviations, or None.
        memberships: of G groups, [N, G], or None.
        group_names: of the groups.
        pit: PIT values, [N], or None if there are none.
        class_names: of the m classes, or empty where they are numbered.
        read_as: how plain arrays were read, an expression of `predictions`; or empty.
    """

    key: jax.Array
    size: int
    predictions: Any
    targets: Any
    weights: jax.Array | None
    has_weights: bool
    task: str
    features: Any = None
    memberships: jax.Array | None = None
    group_names: tuple[str, ...] = ()
    pit: Any = None
    class_names: tuple[str, ...] = ()
    read_as: str = ""

    def class_called(self, number: int) -> str:
        """What a class is called: by its name, or by its number from 0."""
        return f"class {self.class_names[number] if self.class_names else number}"

    def known(self, values: PyTree) -> Any:
        """The first n rows of arrays, as arrays of NumPy."""
        return jax.tree.map(lambda leaf: np.asarray(leaf)[: self.size], values)

    @property
    def shares(self) -> np.ndarray:
        """Weights of the samples, whose mean is one, [n]."""
        if self.weights is None:
            return np.ones(self.size)
        weights = np.asarray(self.weights, float)[: self.size]
        return weights / weights.mean()

    def mean_of(self, values: str, weights: str = "", rows: str = "") -> str:
        """The expression of a mean over some rows, with these weights and those of the user."""
        both = " * ".join(filter(None, (weights, f"weights{rows}" * self.has_weights)))
        values += rows
        return f"jnp.average({values}, weights={both})" if both else f"jnp.mean({values})"

    @property
    def and_weights(self) -> str:
        """The last argument of calls that are shown, if the weights are the user's."""
        return ", weights=weights" if self.has_weights else ""

    def at(self, place: int) -> jax.Array:
        """The key of a part, `jax.random.fold_in(key, place)`."""
        return jax.random.fold_in(self.key, place)

    @property
    def is_of_classes(self) -> bool:
        """Whether predictions are of classes."""
        return self.task in ("classification", "binary")

    @property
    def levels(self) -> np.ndarray:
        """Levels of quantiles, if all samples have the same ones; otherwise none, [k]."""
        levels = np.asarray(self.predictions.levels, float)
        each = levels.reshape(-1, levels.shape[-1])
        return each[0] if (each == each[0]).all() else each[0, :0]

    @property
    def shown_classes(self) -> Sequence[int]:
        """The classes with the largest mean probability, in order; of two class 1."""
        means = self.known(self.predictions.class_probs).mean(0)
        largest = np.argsort(-means, kind="stable")[:MAX_CLASSES]
        return [1] if means.size == 2 else sorted(largest.tolist())

    @property
    def weights_in_words(self) -> str:
        """How many samples there are with the weights, if there are any."""
        effective = self.size / np.mean(self.shares**2)
        return f", with weights (effectively {effective:.4g})" * self.has_weights

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Those of `Evaluation.arrays`."""
        arrays = {"pit": self.pit, "memberships": self.memberships, "features": self.features}
        return {name: self.known(values) for name, values in arrays.items() if values is not None}


def checked_data(
    key: jax.Array,
    predictions: Any,
    targets: ArrayLike,
    features: Any,
    groups: Any,
    weights: Any,
) -> Data:
    """Checks all arguments of `evaluate`."""
    key = checks.random_key(key)
    if not checks.is_concrete(key, predictions, targets, features, groups, weights):
        expected = "expected known values, got traced ones; call it outside of jit"
        raise TypeError(f"predictions, targets: {expected}")
    checks.same_rows(predictions=predictions, targets=targets, features=features, groups=groups)
    predictions, read_as = read_plainly(predictions, targets)
    has_weights = weights is not None
    predictions, targets, weights, features = passed(
        minimum=10, predictions=predictions, targets=targets, weights=weights, features=features
    )
    if bare(predictions) is not predictions:
        got = "a WithFeatures; pass the features as the argument features"
        raise TypeError(f"predictions: expected predictions without features, got {got}")
    n = checks.leading_size("targets", targets)
    memberships, names = (None, ()) if groups is None else checked_groups(groups, n)
    features = None if features is None else _scaled(features, n)
    samples = predictions, targets, features, memberships
    (predictions, targets, features, memberships), weights = filled(samples, weights)
    task = task_of(predictions, targets)
    if task == "ensembles":
        predictions = checked_ensembles(predictions)
    data = Data(
        key, n, predictions, targets, weights, has_weights, task, features, memberships, names
    )
    return dataclasses.replace(data, pit=_pit(data), read_as=read_as)


def read_plainly(predictions: Distribution, targets: ArrayLike) -> tuple[Any, str]:
    """Distributions instead of a plain array of probabilities, and how it was read.

    Args:
        predictions: distributions, which stay as they are; or an array, [n] or [n, m].
        targets: labels, [n].

    Returns:
        The distributions, and an expression of `predictions`, empty if they were distributions.

    Raises:
        TypeError: if an array is of the wrong kind.
        ValueError: if an array has the wrong shape, or is not one of probabilities.
    """
    is_array = isinstance(predictions, list | tuple) or hasattr(predictions, "__array__")
    if not is_array or checks.is_distribution(predictions):
        return predictions, ""
    values, labels = np.asarray(predictions), np.asarray(targets)
    got = f"{values.dtype}{list(values.shape)}, with targets {labels.dtype}{list(labels.shape)}"
    if values.ndim not in (1, 2) or values.dtype.kind != "f":
        advice = _ANY
        if isinstance(predictions, list) and values.ndim == 3:
            advice = "a list of arrays, as of several outputs: evaluate one of them"
        raise TypeError(_ARRAY.format(got=got, advice=advice))
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError("targets: expected labels, got NaN; leave out these rows")
    if labels.dtype.kind in "if" and labels.size and {*np.unique(labels)} == {-1, 1}:
        raise ValueError("targets: expected labels 0 and 1, got -1 and 1; pass (targets + 1) // 2")
    # They stay arrays of NumPy, of whose float64 the logarithms are taken before it is rounded.
    # Labels of another kind are left to the families, which say what to do with them.
    probs: Any = values
    is_binary = labels.dtype.kind not in "iufb" or np.isin(labels, (0, 1)).all()
    inside = checks.unrounded(values)
    if ((inside >= 0) & (inside <= 1)).all():
        if values.ndim == 1 and labels.ndim == 1 and is_binary:
            return Bernoulli(probs), "distributions.Bernoulli(predictions)"
        if values.ndim == 2 and values.shape[1] > 1:
            return Categorical(probs), "distributions.Categorical(predictions)"
    raise ValueError(_ARRAY.format(got=got, advice=_advice(values)))


def _advice(values: np.ndarray) -> str:
    """What an array that is not one of probabilities may be."""
    if values.ndim == 2 and values.shape[1] == 1:
        return "pass predictions[:, 0]"
    if np.isnan(values).any():
        return "leave out rows with NaN"
    if (values < 0).any():
        made = "CategoricalLogits(logits)" if values.ndim == 2 else "Bernoulli(jax.nn.sigmoid(x))"
        return f"of logits make distributions.{made}"
    return "divide percentages by 100" if (values > 1).any() and (values <= 100).all() else _ANY


def task_of(predictions: Distribution, targets: PyTree) -> str:
    """What kind of targets is predicted; see `Evaluation.task`."""
    inner = bare(predictions, MonteCarlo)
    probs = jax.eval_shape(lambda p: getattr(p, "class_probs", None), inner)
    if probs is not None:
        number = probs.shape[1]
        return "binary" if number == 2 else "classification"
    if isinstance(inner, Ensemble | Quantiles):
        return "ensembles" if isinstance(inner, Ensemble) else "quantiles"
    if jnp.issubdtype(jnp.result_type(targets), jnp.integer):
        return "counts"
    return "multivariate" if jnp.ndim(targets) > 1 else "regression"


def checked_groups(groups: Any, num_samples: int) -> tuple[jax.Array, tuple[str, ...]]:
    """Memberships, [n, G], and names of groups: one for each sample, or columns of these."""
    names = [*(groups if isinstance(groups, Mapping) else getattr(groups, "columns", ()))]
    columns = {f"{name} =": [*groups[name]] for name in names}
    if not names:  # a list may hold None, which is not "None"
        checks.refuse_masked("groups", groups)
        columns["group"] = groups if isinstance(groups, list) else np.asarray(groups).tolist()
    parts = [_of_column(name, column, num_samples) for name, column in columns.items()]
    memberships, names = zip(*parts, strict=True)
    return jax.device_put(np.concatenate(memberships, 1)), sum(names, ())


def _of_column(name: str, column: Sequence[Any], size: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """Memberships of the groups that divide the samples."""
    array = np.asarray(column)
    if array.shape != (size,):
        raise ValueError(f"groups: expected shape [n] with n = {size}, got {array.shape}")
    missing = [i for i, x in enumerate(column) if not isinstance(x, str) and str(x) in _NO_GROUPS]
    if missing:
        got = f"{column[missing[0]]} in row {missing[0]}; give these rows a group of their own"
        raise ValueError(f"groups: expected integers or strings, got {got}")
    if array.dtype.kind not in "iubUSTO":
        got = f"{array.dtype}; numbers that vary continuously have to be cut into intervals"
        raise TypeError(f"groups: expected integers or strings, got {got}")
    names = np.unique(array)
    return (array[:, None] == names) * 1.0, tuple(f"{name} {x}" for x in names)


def checked_names(data: Data, names: Any) -> tuple[str, ...]:
    """Names of all classes."""
    if not data.is_of_classes:
        raise ValueError(f"class_names: expected None for the task {data.task}, got {names!r}")
    number, different = data.predictions.class_probs.shape[1], {*map(str, names)}
    if isinstance(names, str) or len(different) != number or len(names) != number:
        raise ValueError(f"class_names: expected {number} different names, got {names!r}")
    return tuple(map(str, names))


def _scaled(features: Any, num_samples: int) -> jax.Array:
    """Features [n, d] divided by their standard deviations, where these are not zero."""
    if not hasattr(features, "ndim") or features.ndim not in (1, 2):
        got = checks.described(features)
        raise ValueError(f"features: expected an array [n] or [n, d], got {got}")
    columns = np.asarray(features).reshape(num_samples, -1)
    deviations = columns.std(0)
    if not (deviations > 0).any():
        raise ValueError("features: expected features that differ between samples, got equal ones")
    return jax.device_put(columns / np.where(deviations > 0, deviations, 1))


def _pit(data: Data) -> jax.Array | None:
    """PIT values, if targets are numbers with a distribution function."""
    inner = bare(data.predictions, MonteCarlo)
    has_cdf = isinstance(inner, Ensemble | Quantiles) or hasattr(inner, "cdf")
    if data.is_of_classes or jnp.ndim(data.targets) != 1 or not has_cdf:
        return None
    if isinstance(inner, Quantiles):  # samples that were filled up tie as well
        return randomised(data.at(0), inner, data.targets, data.weights)
    return estimators.pit_values(data.at(0), data.predictions, data.targets)


def measured(name: str, compute: Callable[[], Any], call: str, **more: Any) -> Entry:
    """The entry of what a call returns: a number, an interval, or a test with its p-value.

    Where it does not exist for these data, the value is NaN and the note says why.

    Args:
        name: of the entry.
        compute: returns the value.
        call: the expression that is shown.
        **more: other fields of the entry.
    """
    try:
        value = compute()
    except (ValueError, NotImplementedError) as error:
        reason = re.sub(r"^[^ ]+: expected (.*?), got ", r"it needs \1, not ", str(error))
        return Entry(name, math.nan, call=call, note=f"does not exist: {reason}")
    names = {x: x for x in ("standard_error", "low", "high", "pvalue")}
    if isinstance(value, CalibrationTestResult):
        names = {"value": "pvalue", "standard_error": "pvalue_standard_error", "pvalue": "pvalue"}
        if isinstance(value, SKCEDifference):
            names = {"value": "estimate", "pvalue": "pvalue"}
    elif hasattr(value, "standard_error"):
        names["value"] = "estimate" if hasattr(value, "estimate") else "mean"  # of a `Gain`
    else:
        return Entry(name, float(value), call=call, **more)
    numbers = {x: getattr(value, attribute, None) for x, attribute in names.items()}
    numbers = {x: float(number) for x, number in numbers.items() if number is not None}
    return Entry(name, **numbers, call=call, **more)


def chance(draws: ArrayLike) -> tuple[float, float]:
    """Range of a value under calibration in 95 % of data sets, from B ≥ 39 draws of it."""
    ordered = np.sort(np.asarray(draws, float))
    left_out = math.floor(0.025 * (len(ordered) + 1) + 1e-9)
    return float(ordered[left_out - 1]), float(ordered[-left_out])


def scatter_of(residuals: ArrayLike, weights: ArrayLike) -> tuple[float, float]:
    """Standard error of a weighted mean by the observed scatter, and the p-value of a z-test.

    The error is zero where the residuals do not scatter.

    A calibrated model has an error with the exact p-value. Of one that is not calibrated in another
    way, say with targets that scatter more than predicted, that may be small although the error is
    zero. p-values of errors that are named are therefore at least those of the z-test.

    Args:
        residuals: observed minus predicted values, [n].
        weights: of the samples, [n].
    """
    values, shares = np.asarray(residuals, float), np.asarray(weights, float)
    shares = shares / np.abs(shares).sum()
    mean, squares = float(shares @ values), float(np.sum(shares**2))
    scatter = np.abs(shares * (values - mean))
    if squares > 1 - 1e-6 or scatter.max() <= 1e-6 * np.abs(shares * values).max():
        return 0.0, float(mean == 0)
    error = math.sqrt(np.sum(scatter**2) / (1 - squares))  # of equal weights sd / √n
    return error, math.erfc(abs(mean) / error / math.sqrt(2))
