"""The evaluation of a model, put together from all other subpackages."""

from typing import Any

import jax
from jax.typing import ArrayLike

from calibjax import _checks, hypothesis_tests
from calibjax.distributions.base import Distribution
from calibjax.evaluation.record import Entry, Evaluation, Section


def evaluate(
    key: jax.Array,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    features: Any = None,
    groups: ArrayLike | None = None,
) -> Evaluation:
    """Everything about the calibration of a model in one record."""
    predictions, targets = _checks.predictions_and_targets(predictions, targets, minimum=3)
    test = hypothesis_tests.aggregated_skce_test(key, predictions, targets)
    entry = Entry(
        "p-value of the exact test",
        float(test.pvalue),
        float(test.pvalue_standard_error),
        function="hypothesis_tests.aggregated_skce_test(key, predictions, targets).pvalue",
    )
    size = _checks.leading_size("targets", targets)
    return Evaluation("skeleton", size, "", (Section("Is it calibrated?", (entry,)),), ())
