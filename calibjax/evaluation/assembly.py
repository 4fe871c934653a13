"""The evaluation of a model, put together from all other subpackages."""

from typing import Any

import jax
from jax.typing import ArrayLike

from calibjax.distributions.base import Distribution
from calibjax.evaluation.classes import errors_of_classes
from calibjax.evaluation.conditional import errors_given_features, errors_in_groups
from calibjax.evaluation.data import Data, Part, checked_data
from calibjax.evaluation.findings import Findings
from calibjax.evaluation.losses import proper_scores, temperature
from calibjax.evaluation.numbers import errors_of_numbers
from calibjax.evaluation.overall import overall
from calibjax.evaluation.record import Evaluation
from calibjax.evaluation.sentences import sentences

_TASKS = {
    "classification": "classification with {size} classes",
    "binary": "binary classification",
    "regression": "regression (distributions of numbers)",
    "counts": "counts",
    "multivariate": "regression with vectors as targets",
    "ensembles": "ensembles of {size} members",
    "quantiles": "quantile forecasts",
}


def evaluate(
    key: jax.Array,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    features: Any = None,
    groups: ArrayLike | None = None,
) -> Evaluation:
    """Everything about the calibration of a model in one record."""
    data = checked_data(key, predictions, targets, features, groups)
    parts = _parts(data)
    found = Findings(
        data.task,
        data.size,
        **{name: value for part in parts for name, value in part.findings.items()},
    )
    return Evaluation(
        task=data.task,
        num_samples=data.size,
        description=_described(data),
        sections=tuple(section for part in parts for section in part.sections),
        sentences=tuple(sentences(found)),
        kernels={name: kernel for part in parts for name, kernel in part.kernels.items()},
        tests={name: test for part in parts for name, test in part.tests.items()},
        arrays=data.arrays,
        panels=tuple(panel for part in parts for panel in part.panels),
    )


def _parts(data: Data) -> list[Part]:
    """All parts that the task has."""
    parts = [] if data.task == "quantiles" else [overall(data)]
    parts.append(proper_scores(data))
    parts.append(errors_of_classes(data) if data.is_of_classes else errors_of_numbers(data))
    return [*parts, temperature(data), errors_in_groups(data), errors_given_features(data)]


def _described(data: Data) -> str:
    """What was evaluated, in words."""
    predictions = data.predictions
    size = 0
    if data.is_of_classes:
        size = predictions.class_probs.shape[1]
    elif data.task == "ensembles":
        size = predictions.values.shape[1]
    task = _TASKS[data.task].format(size=size)
    described = f"{data.size} predictions, {type(predictions).__name__}: {task}"
    if data.memberships is not None:
        described += f", {len(data.group_names)} groups"
    if data.features is not None:
        described += f", {data.features.shape[1]} features"
    return f"{described}."
