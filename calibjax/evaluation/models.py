"""Checked models of the same targets, and what they are compared by."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from calibjax import hypothesis_tests, scores
from calibjax._core import checks
from calibjax.distributions.base import Distribution
from calibjax.evaluation.data import Data, Named, checked_data
from calibjax.evaluation.overall import FEW, has_features
from calibjax.hypothesis_tests.clusters import clusters_of
from calibjax.kernels import Constant, TensorProduct, default_kernel

_MOST = 5000  # predictions of which all pairs are taken
# Scores, of which the first is taken that all models have: its name, and its unit.
_SCORES: Mapping[Callable[..., Any], tuple[str, str]] = {
    scores.negative_log_likelihood: ("log score", " nats"),
    scores.brier_score: ("Brier score", ""),
    scores.crps: ("CRPS", ""),
    scores.energy_score: ("energy score", ""),
    scores.pinball_loss: ("pinball loss", ""),
}


@dataclasses.dataclass(frozen=True)
class Compared:
    """Checked models.

    Attributes:
        data: of each model by name.
        models: predictions by name.
        targets: the same for all.
        pairs: names of the models that are compared.
        reference: the one that the others are compared with, or None.
        score: the function, and the expression that is shown for it.
        score_name: what it is called, and its unit.
        clusters: of the samples, or None.
        weights: of the samples, or None.
        kernel: on pairs (prediction, target), the same for all models; None if there is none.
        rows: those of which all pairs are taken, [n'], or None for all.
    """

    data: dict[str, Data]
    models: dict[str, Any]
    targets: Any
    pairs: list[tuple[str, str]]
    reference: str | None
    score: Named
    score_name: tuple[str, str]
    clusters: Any
    weights: Any
    kernel: Any
    rows: np.ndarray | None

    @property
    def first(self) -> Data:
        """That of the first model."""
        return next(iter(self.data.values()))

    def some(self, values: Any, text: str) -> Named:
        """The rows of which all pairs are taken."""
        rows = self.rows
        if rows is None:
            return Named(values, text)
        found = jax.tree.map(lambda x: x[rows], values)
        return Named(found, f"jax.tree.map(lambda x: x[result.arrays['rows']], {text})")

    def samples(self, *names: str) -> Named:
        """Models and targets, those rows."""
        values, texts = zip(*self.in_rows(*names), strict=True)
        return Named(values, ", ".join(texts))

    def in_rows(self, *names: str) -> list[Named]:
        """Models and targets, those rows, one by one."""
        found = [self.some(self.models[name], f"models[{name!r}]") for name in names]
        return [*found, self.some(self.targets, "targets")]

    def options(self, *, in_rows: bool = False) -> Named:
        """Weights and clusters as keyword arguments, as far as there are any."""
        given = {"weights": self.weights, "clusters": self.clusters}
        found = {name: Named(x, name) for name, x in given.items() if x is not None}
        if in_rows:
            found = {name: self.some(*x) for name, x in found.items()}
        text = "".join(f", {name}={x.text}" for name, x in found.items())
        return Named({name: x.value for name, x in found.items()}, text)

    @property
    def and_weights(self) -> str:
        """The weights as the last argument of calls that are shown, if there are any."""
        return "" if self.weights is None else ", weights=weights"

    @property
    def test(self) -> tuple[Any, str]:
        """The test of one model, and what its p-values are."""
        if self.clusters is None:
            return hypothesis_tests.exact_skce_test, "exact p-value"
        return hypothesis_tests.cluster_skce_test, "p-value"


def checked_models(
    key: jax.Array,
    models: Any,
    targets: Any,
    reference: Any = None,
    score: Any = None,
    weights: Any = None,
    clusters: Any = None,
) -> Compared:
    """Checks all arguments, and chooses the score, the kernel and the rows."""
    if not isinstance(models, Mapping) or not all(isinstance(name, str) for name in models):
        got = checks.described(models)
        raise TypeError(f"models: expected a dictionary of predictions by name, got {got}")
    if len(models) < 2:
        raise ValueError(f"models: expected at least two models, got {list(models)}")
    if reference is not None:
        reference = checks.choice("reference", reference, tuple(models))
    checks.same_rows(targets=targets, weights=weights, clusters=clusters)
    data = {name: _data(key, name, p, targets, weights) for name, p in models.items()}
    first = next(iter(data))
    expected = _kind(data[first])
    for name, one in data.items():
        if (kind := _kind(one)) != expected:
            as_first = f"predictions of {expected}, as models[{first!r}]"
            raise ValueError(f"models[{name!r}]: expected {as_first}, got {kind}")
    values = {name: one.known(one.predictions) for name, one in data.items()}
    targets = data[first].known(data[first].targets)
    used = None if weights is None else data[first].known(data[first].weights)
    if clusters is not None:
        clusters_of(clusters, data[first].size, float, used)
        clusters = np.asarray(clusters)
    pairs = list(itertools.combinations(data, 2))
    if reference is not None:
        pairs = [(name, reference) for name in data if name != reference]
    keywords = () if weights is None else ("weights",)
    chosen = _score(list(values.values()), targets, score, keywords)
    kernel = _common_kernel(list(data.values()), list(values.values()))
    rows = _rows(data[first], kernel)
    samples = data, values, targets
    return Compared(*samples, pairs, reference, *chosen, clusters, used, kernel, rows)


def _data(key: jax.Array, name: str, predictions: Distribution, targets: Any, weights: Any) -> Data:
    try:
        return checked_data(key, predictions, targets, None, None, weights)
    except (TypeError, ValueError) as error:
        raise type(error)(f"models[{name!r}]: {error}") from error


def _kind(data: Data) -> str:
    """What is predicted, by which models can be compared."""
    if data.is_of_classes:
        return f"{data.predictions.class_probs.shape[1]} classes"
    return "quantiles" if data.task == "quantiles" else "numbers"


def _score(
    values: Sequence[Any], targets: Any, score: Any, keywords: tuple[str, ...]
) -> tuple[Named, tuple[str, str]]:
    """The score, with the expression that is shown for it, and what it is called."""
    if score is not None:
        checks.function("function", "score", score, "predictions", "targets", keywords=keywords)
        name = getattr(score, "__name__", "score").replace("_", " ")
        return Named(score, "score"), _SCORES.get(score, (name, ""))
    supports = [getattr(p, "support", None) for p in values]
    is_mixed = len({getattr(support, "is_integer", None) for support in supports}) > 1
    for function, name in _SCORES.items():
        if is_mixed and function is scores.negative_log_likelihood:
            continue  # a density and a probability
        try:
            means = [float(function(p, targets)) for p in values]
        except (TypeError, ValueError, NotImplementedError):
            continue
        if np.all(np.isfinite(means)):
            return Named(function, f"scores.{function.__name__}"), name
    raise ValueError("score: expected a function, since no score is finite for all models")


def _common_kernel(data: Sequence[Data], values: Sequence[Any]) -> Any:
    """The default kernel of all predictions together, None if there is none."""
    if any(one.task in ("ensembles", "quantiles") for one in data):
        return None
    kinds = {(jax.tree.structure(p), *(x.shape for x in jax.tree.leaves(p))) for p in values}
    try:
        if len(kinds) == 1:
            together = jax.tree.map(lambda *leaves: np.concatenate(leaves), *values)
            return default_kernel(together)
        kernel = default_kernel(values[0])
    except NotImplementedError:
        return None
    return TensorProduct(Constant(), kernel.target)


def _rows(data: Data, kernel: Any) -> np.ndarray | None:
    most = data.size if kernel is None else _MOST if has_features(kernel, data) else FEW
    if data.size <= most:
        return None
    order = np.asarray(jax.random.permutation(data.at(0), data.size))
    return np.sort(order[data.shares[order] > 0][:most])
