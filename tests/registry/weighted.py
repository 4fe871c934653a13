"""Calls of what takes weights of samples, which are their only argument."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from calibjax import estimators, hypothesis_tests, kernels, recalibration, risk, scores
from calibjax.distributions import Bernoulli, Categorical, Normal
from tests.registry import arguments as a
from tests.registry.arguments import Call, call

_WEIGHTS = a.weights(
    np.array([1.5, 0.25, 2.0, 0.5, 3.0, 0.75, 1.25, 2.5]), without=a.OPTIONAL
)  # all different
_REAL = np.float32([a.LOC, a.SCALE, a.Y])
_NORMAL = Normal(*_REAL[:2]), _REAL[2]
_CLASSES = Categorical(np.float32(a.PROBS)), a.LABELS
_SAMPLES = np.float32(a.CONFIDENCES), a.CORRECT
_BINARY = Bernoulli(_SAMPLES[0]), a.CORRECT
_VALUES = np.outer(_SAMPLES[0] - 0.5, _SAMPLES[0] - 0.5)
_GROUPS = np.array([0, 1, 1, 0, 0, 1, 1, 0])
_FEATURES = np.float32(a.FEATURES)
_BINS = {"binning": estimators.UniformBins(3)}


def _functions() -> dict[str, Callable[..., Any]]:
    """Functions of weights, by the names of what they call."""
    found: dict[str, Callable[..., Any]] = {}

    def add(room: Any, names: str, *data: Any, **options: Any) -> None:
        for name in names.split():
            place = f"{room.__name__.split('.')[-1]}.{name}"
            found[place] = functools.partial(getattr(room, name), *data, **options)

    add(scores, "negative_log_likelihood mean_squared_error pinball_loss crps", *_NORMAL)
    add(scores, "brier_score accuracy brier_decomposition", *_CLASSES)
    add(scores, "rejection_curve prediction_rejection_ratio", *_SAMPLES)
    add(scores, "decision_cost", *_SAMPLES, np.float32(4))
    add(scores, "reward_improvement", _SAMPLES[0], _SAMPLES[0][::-1], a.CORRECT, np.float32(4))
    add(scores, "group_wise_ece group_wise_mce", *_CLASSES, _GROUPS, num_groups=2, **_BINS)
    add(risk, "estimation_risk estimation_risk_standard_error", _VALUES, *_SAMPLES)
    add(hypothesis_tests, "spiegelhalter cox cumulative_difference cox_regression", *_BINARY)
    add(hypothesis_tests, "hosmer_lemeshow", *_BINARY, num_bins=2)
    add(hypothesis_tests, "pit_ks berkowitz", *_NORMAL)
    return found


def _recalibrators() -> dict[str, Callable[..., Any]]:
    r, new = recalibration, _SAMPLES[0][:3]
    methods = {
        "HistogramBinning": (r.HistogramBinning(2), _SAMPLES, (new,)),
        "IsotonicRegression": (r.IsotonicRegression(), _SAMPLES, (new,)),
        "PlattScaling": (r.PlattScaling(smooth_targets=True), _SAMPLES, (new,)),
        "MMCEScaling": (r.MMCEScaling(), _SAMPLES, (new,)),
        "TemperatureScaling": (r.TemperatureScaling(), _NORMAL, _NORMAL[:1]),
        "AffineScaling": (r.AffineScaling(), _NORMAL, _NORMAL[:1]),
        "GroupWise": (r.GroupWise(r.HistogramBinning(1)), (*_SAMPLES, _GROUPS), (new, [0, 1, 0])),
        "LocalRecalibration": (
            r.LocalRecalibration(estimators.Neighbourhood.laplacian(0.7, 1)),
            (*_SAMPLES, _FEATURES),
            (new, _FEATURES[:3]),
        ),
    }

    def recalibrated(method: Any, data: Any, new: Any, weights: Any) -> Any:
        return method.apply(method.fit(*data, weights=weights), *new)

    return {
        f"recalibration.{name}": functools.partial(recalibrated, *parts)
        for name, parts in methods.items()
    }


def _estimation_functions() -> dict[str, Callable[..., Any]]:
    kernel = kernels.SquaredExponential(0.5)
    functions = (
        risk.Binning(3),
        risk.DebiasedBinning(3),
        risk.KernelDensity(),
        risk.KernelRidge(kernel, rank=8),
        risk.TwoStepKernelRidge(kernel, rank=8),
    )

    def diagonal(function: Any, weights: Any) -> Any:
        return function.diagonal(function.fit(*_SAMPLES, 3, weights=weights), _SAMPLES[0])

    def validated(weights: Any) -> Any:
        grid = np.array([1, 3])
        function = risk.Binning(3)
        key = jax.random.key(0)
        return risk.cross_validate(
            key, function, grid, *_SAMPLES, num_folds=2, weights=weights
        ).risk

    found = {
        f"risk.{type(function).__name__}": functools.partial(diagonal, function)
        for function in functions
    }
    return {**found, "risk.cross_validate": validated}


def calls() -> list[Call]:
    """One call of each."""
    functions = {**_functions(), **_recalibrators(), **_estimation_functions()}
    slow = "Scaling", "Ridge", "cross"

    def of_weights(function: Callable[..., Any], weights: Any) -> Any:
        return function(weights=weights)

    return [
        call(
            name,
            functools.partial(of_weights, function),
            "weights",
            weights=_WEIGHTS,
            slow=any(word in name for word in slow),
        )
        for name, function in functions.items()
    ]
