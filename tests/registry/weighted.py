"""Calls of what takes weights of samples, which are their only argument."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from calibjax import (
    distances,
    estimators,
    hypothesis_tests,
    kernels,
    recalibration,
    risk,
    scores,
    streaming,
)
from calibjax.distributions import Bernoulli, Categorical, Normal, Quantiles, Samples
from tests.registry import arguments as a
from tests.registry.arguments import Call, call
from tests.weights.laws import bias

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
_KERNEL = kernels.TensorProduct(
    kernels.Exponential(1.5, distances.Wasserstein()), kernels.SquaredExponential(1.2)
)
_PLACES = Normal(np.float32([0, 1]), np.float32([1, 1])), np.float32([0.5, -0.5])
_BINS = {"binning": estimators.UniformBins(3)}


def _functions() -> dict[str, Callable[..., Any]]:
    """Functions of weights, by the names of what they call."""
    found: dict[str, Callable[..., Any]] = {}

    def add(room: Any, names: str, *data: Any, **options: Any) -> None:
        for name in names.split():
            place = f"{room.__name__.split('.')[-1]}.{name}"
            found[place] = functools.partial(getattr(room, name), *data, **options)

    add(
        scores,
        "negative_log_likelihood mean_squared_error pinball_loss crps murphy_curve",
        *_NORMAL,
    )
    add(scores, "threshold_weighted_crps", *_NORMAL, low=0.5)
    draws = Samples(_REAL[0][:, None] + np.float32([0.0, 0.5, -1.0]))
    add(scores, "energy_score fair_energy_score fair_crps", draws, _REAL[2])
    vectors = Samples(np.float32(a.VECTORS)[:, None] * np.float32([[1.0], [0.5], [-1.0]]))
    add(scores, "variogram_score", vectors, np.float32(a.VECTORS))
    add(scores, "brier_score accuracy brier_decomposition", *_CLASSES)
    add(scores, "rejection_curve prediction_rejection_ratio", *_SAMPLES)
    add(scores, "decision_cost", *_SAMPLES, np.float32(4))
    add(scores, "reward_improvement", _SAMPLES[0], _SAMPLES[0][::-1], a.CORRECT, np.float32(4))
    add(scores, "group_wise_ece group_wise_mce", *_CLASSES, _GROUPS, num_groups=2, **_BINS)
    add(risk, "estimation_risk estimation_risk_standard_error", _VALUES, *_SAMPLES)
    add(hypothesis_tests, "spiegelhalter cox cumulative_difference cox_regression", *_BINARY)
    add(hypothesis_tests, "hosmer_lemeshow", *_BINARY, num_bins=2)
    add(hypothesis_tests, "pit_ks berkowitz", *_NORMAL)
    return {**found, **_estimators(), **_exact_tests(), **_accumulators()}


def _estimators() -> dict[str, Callable[..., Any]]:
    """Estimators, and binnings that weights change."""
    near = estimators.Neighbourhood.laplacian(np.float32(0.7), 2)
    local, key = (near, _FEATURES, *_SAMPLES), jax.random.key(0)
    low = {"levels": np.float32([0.2, 0.8]), "num_draws": 19}
    found = {}
    for name in ("ece", "mce", "debiased_squared_ece"):
        found[name] = functools.partial(getattr(estimators, name), *_CLASSES, **_BINS)
    for name in ("EqualMassBins", "MedianVarianceBins"):
        bins = getattr(estimators, name)(2)
        found[name] = functools.partial(estimators.ece, *_BINARY, binning=bins)
    for name in ("lce", "mlce", "mean_lce", "local_errors"):
        found[name] = functools.partial(getattr(estimators, name), *local)
    for name in ("ucme", "witness"):
        found[name] = functools.partial(getattr(estimators, name), _KERNEL, *_NORMAL, *_PLACES)
    for name in ("quantile_coverage", "interval_coverage"):
        found[name] = functools.partial(getattr(estimators, name), key, _SAMPLES[0], **low)
    found |= {
        "pit_histogram": functools.partial(
            estimators.pit_histogram, key, _SAMPLES[0], num_bins=3, num_draws=19
        ),
        "reliability_curve": functools.partial(
            estimators.reliability_curve, key, *_BINARY, **_BINS, num_draws=19
        ),
        "isotonic_curve": functools.partial(estimators.isotonic_curve, key, *_BINARY, num_draws=19),
        "smooth_ece": functools.partial(estimators.smooth_ece, *_BINARY, bandwidth=0.1),
        "skce_block": functools.partial(estimators.skce_block, _KERNEL, *_NORMAL, block_size=2),
        "kde_calibration_error": functools.partial(
            estimators.kde_calibration_error, *_CLASSES, bandwidth=0.1, order=2
        ),
        "kde_bandwidth": functools.partial(
            estimators.kde_bandwidth, _CLASSES[0], np.float32([0.02, 0.1, 0.5])
        ),
    }
    return {f"estimators.{name}": function for name, function in found.items()}


def _exact_tests() -> dict[str, Callable[..., Any]]:
    """p-values of tests whose redraws keep the weights."""
    near = estimators.Neighbourhood.laplacian(np.float32(0.7), 1)
    values = np.sort(np.stack([_REAL[0] - 1, _REAL[0] + _REAL[1]], 1), 1)
    quantiles = Quantiles(np.float32([0.2, 0.8]), values)
    members = Samples(np.float32(a.LOC[:, None] + np.array([0.0, 0.5, -1.0])))
    parts = {
        "coverage_test": (quantiles, _REAL[2]),
        "rank_histogram_test": (members, _REAL[2]),
        "local_calibration_test": (near, _FEATURES, *_SAMPLES),
        "witness_test": (_KERNEL, *_NORMAL, *_PLACES),
        "consistency_test": (bias, *_NORMAL),
    }

    def pvalue(name: str, data: Any, weights: Any) -> Any:
        test = getattr(hypothesis_tests, name)
        found = test(jax.random.key(0), *data, weights=weights, num_draws=9)
        return found.statistic, found.pvalue

    return {
        f"hypothesis_tests.{name}": functools.partial(pvalue, name, data)
        for name, data in parts.items()
    }


def _accumulators() -> dict[str, Callable[..., Any]]:
    landmarks = Categorical(np.float32([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]))
    kernel = kernels.TensorProduct(
        kernels.LowRank(kernels.Exponential(0.5), landmarks), kernels.White()
    )
    parts = {
        "SKCE": (streaming.SKCE(kernel), _CLASSES),
        "ExactSKCETest": (
            streaming.ExactSKCETest(jax.random.key(0), kernel, num_draws=9),
            _CLASSES,
        ),
        "BlockSKCE": (streaming.BlockSKCE(_KERNEL, 2), _NORMAL),
        "CalibrationBins": (streaming.CalibrationBins(estimators.UniformBins(3)), _BINARY),
    }

    def streamed(accumulator: Any, data: Any, weights: Any) -> Any:
        state = accumulator.update(accumulator.init(), *data, weights=weights)
        return accumulator.result(state)

    return {f"streaming.{name}": functools.partial(streamed, *one) for name, one in parts.items()}


def _recalibrators() -> dict[str, Callable[..., Any]]:
    r, new = recalibration, _SAMPLES[0][:3]
    methods = {
        "HistogramBinning": (r.HistogramBinning(2), _SAMPLES, (new,)),
        "IsotonicRegression": (r.IsotonicRegression(), _SAMPLES, (new,)),
        "PlattScaling": (r.PlattScaling(smooth_targets=True), _SAMPLES, (new,)),
        "MMCEScaling": (r.MMCEScaling(), _SAMPLES, (new,)),
        "TemperatureScaling": (r.TemperatureScaling(), _NORMAL, _NORMAL[:1]),
        "AffineScaling": (r.AffineScaling(), _NORMAL, _NORMAL[:1]),
        "BetaScaling": (r.BetaScaling(), _SAMPLES, (new,)),
        "QuantileRecalibration": (r.QuantileRecalibration(), _NORMAL, _NORMAL[:1]),
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
    slow = "Scaling", "Ridge", "cross", "_test", "Test"

    def of_weights(function: Callable[..., Any], weights: Any) -> Any:
        return function(weights=weights)

    return [
        call(
            name,
            functools.partial(of_weights, function),
            "weights",
            # An accumulator says only in the end that no sample had a weight.
            weights=dataclasses.replace(_WEIGHTS, called=("state",))
            if name.startswith("streaming")
            else _WEIGHTS,
            slow=any(word in name for word in slow),
        )
        for name, function in functions.items()
    ]
