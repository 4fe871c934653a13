"""Calls of the evaluation and of what it computes by itself."""

from typing import Any

import numpy as np

from calibjax import distributions, evaluation, recalibration, scores
from tests.registry import arguments as a
from tests.registry.arguments import Call, call
from tests.registry.families import CATEGORICAL, NORMAL


def _temperature() -> list[Call]:
    options = {
        "loss": a.function(scores.negative_log_likelihood),
        "confidence_level": a.proportion(0.9),
        "one_of": 8,
        "slow": True,
    }
    interval = evaluation.temperature_interval
    return [NORMAL.call("evaluation.temperature_interval", interval, "Normal", **options)]


def _evaluate() -> Call:
    """Of quantiles, for which least is computed."""
    generator = np.random.default_rng(4)
    loc = generator.normal(size=12).astype(np.float32)

    def evaluate(values: Any, targets: Any, key: Any, groups: Any) -> Any:
        is_single = getattr(values, "dtype", None) == np.float32
        levels = np.array([0.2, 0.5, 0.8], np.float32 if is_single else float)
        predictions = distributions.Quantiles(levels, values)
        found = evaluation.evaluate(key, predictions, targets, groups=groups)
        return np.array([entry.value for entry in found.entries])

    return call(
        "evaluation.evaluate evaluation.Evaluation evaluation.Entry evaluation.Section "
        "evaluation.Advice",
        evaluate,
        values=a.real(np.stack([loc - 1, loc, loc + 1], 1), "predictions"),
        targets=a.real(loc + generator.normal(size=12)),
        key=a.key(),
        groups=a.real(generator.normal(size=(12, 2)), without=(*a.OPTIONAL, "first column")),
        compiled=False,
        reason="it takes decisions that depend on the values, and refuses traced ones",
        one_of=8,
        slow=True,
    )


def _compare() -> Call:
    """Of quantiles, for which least is computed."""
    generator = np.random.default_rng(4)
    loc = generator.normal(size=12).astype(np.float32)
    values = np.stack([loc - 1, loc, loc + 1], 1)

    def compare(values: Any, others: Any, targets: Any, key: Any, **rest: Any) -> Any:
        levels = np.array([0.2, 0.5, 0.8])
        models = {"a": (levels, values), "b": (levels, others)}
        models = {name: distributions.Quantiles(*p) for name, p in models.items()}
        found = evaluation.compare(key, models, targets, **rest)
        return np.array([entry.value for entry in found.entries])

    return call(
        "evaluation.compare",
        compare,
        values=a.real(values, "models"),
        others=a.real(values + 0.3, "models"),
        targets=a.real(loc + generator.normal(size=12), "models", "targets"),
        key=a.key(),
        weights=a.weights(np.linspace(1, 2, 12), without=a.OPTIONAL),
        clusters=a.integers(np.arange(12), without=a.OPTIONAL),
        reference=a.choice("b", without=a.OPTIONAL),
        compiled=False,
        reason="it takes decisions that depend on the values, and refuses traced ones",
        one_of=8,
        slow=True,
    )


def _repair() -> Call:
    def repair(predictions: Any, targets: Any, key: Any, **rest: Any) -> Any:
        methods = {"affine": recalibration.AffineScaling()}
        found = evaluation.what_would_repair(key, predictions, targets, methods, **rest)
        return found.pvalues, found.gains

    return NORMAL.call(
        "evaluation.what_would_repair evaluation.Repairs",
        repair,
        "Normal",
        key=a.key(),
        num_draws=a.integer(9),
        level=a.proportion(0.1, traced=False),
        one_of=8,
        slow=True,
    )


def calls() -> list[Call]:
    """Calls of `evaluation`."""
    return [
        *_temperature(),
        NORMAL.call("evaluation.residual_spread", evaluation.residual_spread, "Normal"),
        CATEGORICAL.call("evaluation.binned_errors", evaluation.binned_errors, "Categorical"),
        _evaluate(),
        _compare(),
        _repair(),
    ]
