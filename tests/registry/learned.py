"""Calls of recalibration and of calibration estimation functions."""

import functools
from typing import Any

import jax
import numpy as np

from calibjax import kernels, recalibration, risk, scores
from calibjax.distributions import Categorical, Quantiles
from calibjax.estimators import Neighbourhood, UniformBins
from tests.registry import arguments as a
from tests.registry.arguments import Call, call
from tests.registry.families import CATEGORICAL, NORMAL

_SAMPLES = {"confidences": a.unit(a.CONFIDENCES), "correct": a.truths(a.CORRECT)}
_NEW = {"new": a.unit(np.array([0.5, 0.7, 0.9]), "confidences", without=a.ALONE)}


def _fit_and_apply(make: Any) -> Any:
    """Params, and what they make of new confidences."""

    def evaluate(confidences: Any, correct: Any, new: Any, **options: Any) -> Any:
        method = make(**options)
        params = method.fit(confidences, correct)
        return params, method.apply(params, new)

    return evaluate


def _of_confidences() -> list[Call]:
    r = recalibration
    makers = {
        "HistogramBinning recalibration.BinAccuracies": (
            r.HistogramBinning,
            {"num_bins": a.integer(2)},
        ),
        "IsotonicRegression recalibration.IsotonicMap": (r.IsotonicRegression, {}),
        "PlattScaling recalibration.SigmoidMap": (
            r.PlattScaling,
            {"smooth_targets": a.truth(True)},
        ),
        "BetaScaling recalibration.BetaMap": (r.BetaScaling, {}),
        "VennAbers recalibration.CalibrationSamples": (r.VennAbers, {}),
        "MMCEScaling recalibration.SigmoidMap": (
            r.MMCEScaling,
            {"kernel": a.kernel(kernels.Exponential(0.4)), "weight": a.scale(10.0)},
        ),
    }
    found = [
        call(
            f"recalibration.{name} recalibration.Recalibrator",
            _fit_and_apply(make),
            **_SAMPLES,
            **_NEW,
            **options,
            slow="scaling" in name,
        )
        for name, (make, options) in makers.items()
    ]
    ends = np.array([0.1, 0.4, 0.9], np.float32)
    for recalibrator, params in (
        (r.HistogramBinning(2), r.BinAccuracies(ends[:2], np.array([3, 5], np.int32))),
        (r.IsotonicRegression(), r.IsotonicMap(ends, ends**2)),
        (r.PlattScaling(), r.SigmoidMap(np.float32(0.5), np.float32(0.1))),
        (r.BetaScaling(), r.BetaMap(np.float32(0.5), np.float32(2.0), np.float32(0.1))),
    ):
        name = type(params).__name__
        found.append(
            call(
                f"recalibration.{name}",
                lambda params, new, apply=recalibrator.apply: apply(params, new),
                "params",
                params=a.record(params),
                **_NEW,
            )
        )
    return found


def _of_params() -> list[Call]:
    """Params of estimation functions, which someone may have made or changed."""
    points, label = np.array([0.2, 0.6, 0.7], np.float32), np.array([0, 1, 1], np.int32)
    zeros = np.zeros((4, 1), np.float32)
    bins = risk.BinResiduals(zeros + 0.1, np.array([2, 0, 3, 1], np.int32), np.int32(4))
    ones, one = np.ones(3, np.float32), np.float32(1)
    ridge = risk.KernelRidgeParams(
        kernels.Exponential(0.5),
        points,
        ones,
        np.eye(3, dtype=np.float32),
        ones[:, None],
        one,
        one,
        3,
    )
    functions = (
        (risk.Binning(4), bins),
        (risk.DebiasedBinning(4), risk.DebiasedBinResiduals(bins, 0.1 + zeros[:, 0])),
        (risk.KernelDensity(), risk.KernelDensities(points[:, None], label, one)),
        (risk.Temperature(), risk.TemperatureParams(one, 1)),
        (risk.KernelRidge(), ridge),
    )
    return [
        call(
            f"risk.{type(params).__name__}",
            lambda params, p, function=function: function.diagonal(params, p),
            "params",
            params=a.record(params),
            p=a.unit(points, without=a.ALONE),
        )
        for function, params in functions
    ]


def _of_features() -> list[Call]:
    def local(
        make: Any, confidences: Any, correct: Any, features: Any, new: Any, **options: Any
    ) -> Any:
        method = recalibration.LocalRecalibration(make(**options))
        params = method.fit(confidences, correct, features)
        return method.apply(params, new, np.zeros((3, 2), np.float32))

    def grouped(confidences: Any, correct: Any, groups: Any, new: Any, new_groups: Any) -> Any:
        method = recalibration.GroupWise(recalibration.HistogramBinning(1))
        params = method.fit(confidences, correct, groups)
        return method.apply(params, new, new_groups)

    data = {**_SAMPLES, "features": a.real(a.FEATURES, without=("first column",))}
    new = {"new": a.unit(np.array([0.5, 0.7, 0.9]), "confidences")}
    given = ("arguments",)  # GroupWise does not know what its arguments are
    samples = {
        "confidences": a.unit(a.CONFIDENCES, *given),
        "correct": a.truths(a.CORRECT, *given),
        "new": a.unit(np.array([0.5, 0.7, 0.9]), "confidences", *given),
    }
    return [
        call(
            "recalibration.LocalRecalibration recalibration.LocalAccuracies",
            functools.partial(local, Neighbourhood.laplacian),
            "Laplacian",
            **data,
            **new,
            length_scale=a.scale(0.7),
            num_bins=a.integer(1),
        ),
        call(
            "recalibration.LocalRecalibration",
            functools.partial(local, lambda kernel: Neighbourhood(kernel, UniformBins(1))),
            "kernel",
            **data,
            **new,
            kernel=a.kernel(kernels.Exponential(0.7)),
        ),
        call(
            "recalibration.GroupWise",
            grouped,
            **samples,
            groups=a.groups(np.array([0, 3, 0, 3, 0, 3, 0, 3]), traced=False),
            new_groups=a.groups(np.array([3, 0, 3]), "groups", traced=False),
        ),
        call(
            "recalibration.GroupWise recalibration.Recalibrator",
            lambda recalibrator: recalibration.GroupWise(recalibrator).fit(
                np.float32([0.5, 0.6]), np.array([0, 1]), np.array([0, 0])
            )[0],
            "recalibrator",
            recalibrator=a.record(recalibration.HistogramBinning(1)),
            compiled=False,
            reason="a function of functions",
        ),
    ]


def _temperature() -> list[Call]:
    found = []
    for family, name in ((CATEGORICAL, "Categorical"), (NORMAL, "Normal")):

        def evaluate(predictions: Any, targets: Any, loss: Any) -> Any:
            return recalibration.TemperatureScaling(loss).fit(predictions, targets)

        found.append(
            family.call(
                "recalibration.TemperatureScaling",
                evaluate,
                f"fit {name}",
                loss=a.function(scores.negative_log_likelihood),
                slow=True,
            )
        )

    def affine(predictions: Any, targets: Any, by: Any, factor: Any) -> Any:
        method = recalibration.AffineScaling()
        params = recalibration.AffineMap(by, factor)
        return method.fit(predictions, targets), method.apply(params, predictions)

    found.append(
        NORMAL.call(
            "recalibration.AffineScaling recalibration.AffineMap",
            affine,
            "fit and apply",
            by=a.number(0.3, "params"),
            factor=a.scale(2.0, "params"),
        )
    )

    def apply(predictions: Any, temperature: Any) -> Any:
        found = recalibration.TemperatureScaling().apply(temperature, predictions)
        # Of probabilities in float64 there are logarithms as well.
        return getattr(found, "class_probs", found)

    for family, name in ((CATEGORICAL, "Categorical"), (NORMAL, "Normal")):
        found.append(
            family.call(
                "recalibration.TemperatureScaling recalibration.tempered",
                apply,
                f"apply {name}",
                "targets",
                temperature=a.scale(2.0, "params"),
            )
        )
    return found


def _of_distributions() -> list[Call]:
    """Recalibrations of classes and of numbers, and what they earn."""
    r = recalibration

    def fit_and_apply(method: Any) -> Any:
        def evaluate(predictions: Any, targets: Any) -> Any:
            found = method.apply(method.fit(predictions, targets), predictions)
            return getattr(found, "class_probs", found)

        return evaluate

    def shifted(values: Any, targets: Any) -> Any:
        predictions = Quantiles(np.float32([0.3, 0.6]), values)
        return fit_and_apply(r.QuantileShift())(predictions, targets)

    methods = {
        "QuantileRecalibration": (NORMAL, r.QuantileRecalibration()),
        "KernelRecalibration recalibration.LocalScores": (
            NORMAL,
            r.KernelRecalibration(kernels.SquaredExponential(1.0)),
        ),
        "BiasScaling recalibration.LogitMap": (CATEGORICAL, r.BiasScaling()),
        "VectorScaling": (CATEGORICAL, r.VectorScaling()),
        "MatrixScaling": (CATEGORICAL, r.MatrixScaling(1.0)),
    }
    found = [
        family.call(f"recalibration.{name}", fit_and_apply(method), "fit and apply", slow=True)
        for name, (family, method) in methods.items()
    ]

    def gains(predictions: Any, targets: Any, key: Any, num_folds: Any, **rest: Any) -> Any:
        methods = {"affine": r.AffineScaling()}
        return r.recalibration_gain(key, methods, predictions, targets, num_folds=num_folds, **rest)

    def fitted(predictions: Any, targets: Any, key: Any, num_folds: Any) -> Any:
        return r.cross_fitted(key, r.AffineScaling(), predictions, targets, num_folds=num_folds)

    options = {"key": a.key(), "num_folds": a.integer(2, limit=8), "slow": True}
    return [
        *found,
        call(
            "recalibration.QuantileShift recalibration.Shifts",
            shifted,
            "fit and apply",
            values=a.real(np.stack([a.LOC, a.LOC + 1], 1), "predictions"),
            targets=a.real(a.Y),
        ),
        NORMAL.call(
            "recalibration.recalibration_gain recalibration.Gain",
            gains,
            "data",
            confidence_level=a.proportion(0.9),
            **options,
        ),
        NORMAL.call("recalibration.cross_fitted", fitted, "data", **options),
    ]


def _functions() -> list[Call]:
    """Estimation functions, fitted and evaluated."""
    makers = {
        "Binning risk.BinResiduals": (lambda: risk.Binning(5), a.at_least_one(3.0)),
        "DebiasedBinning risk.DebiasedBinResiduals": (
            lambda: risk.DebiasedBinning(5),
            a.at_least_one(3.0),
        ),
        "KernelDensity risk.KernelDensities": (risk.KernelDensity, a.scale(0.1)),
        "Temperature risk.TemperatureParams": (risk.Temperature, a.scale(1.5)),
        "KernelRidge risk.KernelRidgeParams": (risk.KernelRidge, a.scale(0.3)),
        "TwoStepKernelRidge": (risk.TwoStepKernelRidge, a.scale(0.3)),
    }

    def of_classes(make: Any) -> Any:
        def evaluate(predictions: Any, targets: Any, p: Any, hyperparameter: Any) -> Any:
            function = make()
            params = function.fit(predictions, targets, hyperparameter)
            return function.evaluate(params, Categorical(p), Categorical(p))

        return evaluate

    def run(make: Any) -> Any:
        def evaluate(predictions: Any, targets: Any, p: Any, q: Any, hyperparameter: Any) -> Any:
            function = make()
            params = function.fit(predictions, targets, hyperparameter)
            return function.evaluate(params, p, q), function.diagonal(params, p)

        return evaluate

    found = []
    for name, (make, hyperparameter) in makers.items():
        found.append(
            call(
                f"risk.{name} risk.EstimationFunction",
                run(make),
                "confidences",
                predictions=a.unit(a.CONFIDENCES),
                targets=a.truths(a.CORRECT),
                p=a.unit(np.array([0.5, 0.7, 0.9]), without=a.ALONE),
                q=a.unit(np.array([0.4, 0.8]), without=a.ALONE),
                hyperparameter=hyperparameter,
                slow="Ridge" in name,
            )
        )
        if "Binning" in name:
            continue

        found.append(
            CATEGORICAL.call(
                f"risk.{name}",
                of_classes(make),
                "Categorical",
                p=a.simplex(a.PROBS[:3], without=a.ALONE),
                hyperparameter=hyperparameter,
                slow=True,
            )
        )
    for name in ("KernelRidge", "TwoStepKernelRidge"):
        make = getattr(risk, name)

        def with_options(kernel: Any, rank: Any, tolerance: Any, make: Any = make) -> Any:
            function = make(kernel, rank=rank, tolerance=tolerance)
            return function.fit(a.CONFIDENCES.astype(np.float32), a.CORRECT, 0.3).projections

        found.append(
            call(
                f"risk.{name}",
                with_options,
                "options",
                # Any function may be the kernel.
                kernel=a.kernel(kernels.SquaredExponential(0.3), without=("unregistered",)),
                rank=a.integer(8, limit=8, without=a.OPTIONAL),
                tolerance=a.proportion(1e-3, without=a.OPTIONAL),
                compiled=False,
                reason="a function that makes functions; what they compute is compiled above",
            )
        )
    found.append(
        call(
            "risk.Binning",
            lambda max_bins: (
                risk.Binning(max_bins).fit(a.CONFIDENCES.astype(np.float32), a.CORRECT, 2).means
            ),
            "options",
            max_bins=a.integer(4, without=a.OPTIONAL),
            compiled=False,
            reason="a function that makes functions; what they compute is compiled above",
        )
    )
    return found


def _risks() -> list[Call]:
    values = (a.CONFIDENCES[:, None] - 0.5) * (a.CONFIDENCES - 0.5)
    found = []
    for name in ("estimation_risk", "estimation_risk_standard_error"):
        function = getattr(risk, name)
        found.append(
            call(
                f"risk.{name}",
                function,
                "confidences",
                values=a.real(values, without=("transposed",)),
                predictions=a.unit(a.CONFIDENCES),
                targets=a.truths(a.CORRECT),
            )
        )
        found.append(
            CATEGORICAL.call(
                f"risk.{name}",
                lambda predictions, targets, values, function=function: function(
                    values, predictions, targets
                ),
                "Categorical",
                values=a.function(lambda p, q: p.class_probs @ q.class_probs.T, "function"),
            )
        )
    found.append(
        CATEGORICAL.call(
            "risk.estimation_risk_block",
            lambda predictions, targets, values, **options: risk.estimation_risk_block(
                values, predictions, targets, **options
            ),
            "Categorical",
            values=a.function(lambda p, q: p.class_probs @ q.class_probs.T, "function"),
            block_size=a.integer(3),
        )
    )
    return found


def _cross_validation() -> list[Call]:
    numbers = np.linspace(0.3, 0.97, 24).round(3)
    correct = np.array([1, 0, 1, 1, 0, 1] * 4)
    grid = np.array([0.1, 0.3])
    data = {"predictions": a.unit(numbers), "targets": a.truths(correct)}
    own = (*a.ALONE, "scalar", "one more axis")

    def cross_validate(predictions: Any, targets: Any, key: Any, grid: Any, num_folds: Any) -> Any:
        function = risk.Temperature()
        result = risk.cross_validate(key, function, grid, predictions, targets, num_folds=num_folds)
        return result, result.risk

    def squared(predictions: Any, targets: Any, key: Any, grid: Any, **options: Any) -> Any:
        function = risk.Temperature()
        return risk.squared_calibration_error(key, function, grid, predictions, targets, **options)

    def difference(predictions: Any, targets: Any) -> Any:
        functions = risk.Temperature(), risk.KernelDensity()
        key = jax.random.key(0)
        results = [
            risk.cross_validate(key, f, grid, predictions, targets, num_folds=2) for f in functions
        ]
        return risk.risk_difference(*results)

    losses = np.random.default_rng(4).normal(size=(2, 2, len(numbers))).astype(np.float32)
    folds = np.arange(len(numbers), dtype=np.int32) % 2
    empty = np.zeros((2, 2, 0), np.float32)
    results = [risk.CrossValidation(grid.astype(np.float32), folds, x, empty) for x in losses]
    shared = {"key": a.key(), "grid": a.positive(grid, without=own), "num_folds": a.integer(2)}
    return [
        call(
            "risk.cross_validate risk.CrossValidation", cross_validate, **data, **shared, slow=True
        ),
        call(
            "risk.cross_validate risk.EstimationFunction",
            lambda function, previous=None, on_fold=None: (
                risk.cross_validate(
                    jax.random.key(0),
                    function,
                    grid.astype(np.float32),
                    numbers.astype(np.float32),
                    correct,
                    num_folds=2,
                    on_fold=on_fold,
                    previous=previous,
                ).losses
            ),
            "records",
            function=a.record(risk.Temperature()),
            previous=a.record(None, without=a.OPTIONAL),
            # None is the default; the others can be called.
            on_fold=a.record(None, without=("None", "lambda", "object", "other")),
            compiled=False,
            reason="compiled above",
        ),
        call(
            "risk.squared_calibration_error risk.SquaredCalibrationError",
            squared,
            **data,
            **shared,
            test_fraction=a.proportion(0.25, traced=False),  # a size
            slow=True,
        ),
        call("risk.risk_difference risk.RiskDifference", difference, "data", **data, slow=True),
        call(
            "risk.risk_difference",
            risk.risk_difference,
            "records",
            first=a.record(results[0]),
            second=a.record(results[1]),
            compiled=False,
            reason="compiled above",
        ),
    ]


def calls() -> list[Call]:
    """Calls of what is learned from data."""
    found = [
        *_of_confidences(),
        *_of_params(),
        *_of_features(),
        *_temperature(),
        *_of_distributions(),
        *_functions(),
        *_risks(),
    ]
    return [*found, *_cross_validation()]
