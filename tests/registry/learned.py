"""Calls of recalibration and of calibration estimation functions."""

import dataclasses
import functools

import numpy as np

from calibjax import kernels, recalibration, risk, scores
from calibjax.distributions import Categorical, Quantiles
from calibjax.recalibration.confidences import (
    BetaMap,
    BinAccuracies,
    IsotonicMap,
    MMCEScaling,
    QuadraticMap,
    QuadraticScaling,
    SigmoidMap,
)
from calibjax.recalibration.numbers import AffineMap
from tests.registry import arguments as a
from tests.registry.arguments import call
from tests.registry.estimators import laplacian, near
from tests.registry.families import CATEGORICAL, NORMAL

_SAMPLES = {"confidences": a.unit(a.CONFIDENCES), "correct": a.truths(a.CORRECT)}
_NEW = {"new": a.unit(np.array([0.5, 0.7, 0.9]), "confidences", without=a.ALONE)}
_MADE = {"reason": "a function that makes functions; what they compute is compiled elsewhere"}


def _of_confidences():
    def evaluate(confidences, correct, new, method, weights=None):
        """Params, and what they make of new confidences."""
        params = method.fit(confidences, correct, weights=weights)
        return params, method.apply(params, new)

    r, kernel = recalibration, a.kernel(kernels.Exponential(0.4))
    methods = {
        "HistogramBinning": a.made(r.HistogramBinning, num_bins=a.integer(2)),
        "IsotonicRegression": a.made(
            lambda smooth: r.IsotonicRegression(smooth=smooth), smooth=a.truth(True)
        ),
        "PlattScaling": a.made(
            lambda smooth: r.PlattScaling(smooth_targets=smooth), smooth_targets=a.truth(True)
        ),
        "confidences.QuadraticScaling": QuadraticScaling(),
        "BetaCalibration": r.BetaCalibration(),
        "VennAbers": r.VennAbers(),
        "confidences.MMCEScaling": a.made(MMCEScaling, kernel=kernel, weight=a.scale(10.0)),
    }
    found = [
        call(f"recalibration.{name} recalibration.Recalibrator", "", evaluate, **_NEW, method=one)
        for name, one in methods.items()
    ]
    ends = np.array([0.1, 0.4, 0.9], np.float32)
    for method, params in (
        (r.HistogramBinning(2), BinAccuracies(ends[:2], np.array([3, 5], np.int32))),
        (r.IsotonicRegression(), IsotonicMap(ends, ends**2)),
        (r.PlattScaling(), SigmoidMap(np.float32(0.5), np.float32(0.1))),
        (QuadraticScaling(), QuadraticMap(*np.float32([0.1, 0.5, 0.2]))),
        (r.BetaCalibration(), BetaMap(np.float32(0.5), np.float32(2.0), np.float32(0.1))),
    ):
        apply = lambda params, new, method: method.apply(params, new)  # noqa: E731
        room = "" if hasattr(r, type(method).__name__) else "confidences."
        covers, params = f"recalibration.{room}{type(method).__name__}", a.record(params)
        found.append(call(covers, "params", apply, params=params, **_NEW, method=method))
    return found


def _of_features():
    def local(neighbourhood, confidences, correct, features, new, weights=None):
        method = recalibration.LocalRecalibration(neighbourhood)
        params = method.fit(confidences, correct, features, weights=weights)
        return method.apply(params, new, np.zeros((3, 2), np.float32))

    def grouped(confidences, correct, groups, new, new_groups, weights=None):
        method = recalibration.GroupWise(recalibration.HistogramBinning(1))
        params = method.fit(confidences, correct, groups, weights=weights)
        return method.apply(params, new, new_groups)

    # GroupWise does not know what its arguments are.
    samples = {k: dataclasses.replace(v, called=("arguments",)) for k, v in _SAMPLES.items()}
    new = a.unit(np.array([0.5, 0.7, 0.9]), "confidences")
    new_of_group = dataclasses.replace(new, called=("confidences", "arguments"))
    covers = "recalibration.LocalRecalibration"
    return [
        call(covers, "Laplacian", local, new=new, neighbourhood=laplacian(1)),
        call(covers, "kernel", local, new=new, neighbourhood=near(0.7, 1)),
        call(
            "recalibration.GroupWise",
            "",
            grouped,
            **samples,
            new=new_of_group,
            groups=a.groups(np.array([0, 3, 0, 3, 0, 3, 0, 3]), traced=False),
            new_groups=a.groups(np.array([3, 0, 3]), "groups", traced=False),
        ),
        call(
            "recalibration.GroupWise recalibration.Recalibrator",
            "recalibrator",
            lambda recalibrator: recalibration.GroupWise(recalibrator).fit(
                np.float32([0.5, 0.6]), np.array([0, 1]), np.array([0, 0])
            )[0],
            recalibrator=a.record(recalibration.HistogramBinning(1)),
            reason="a function of functions",
        ),
    ]


def _of_distributions():
    """Recalibrations of classes and of numbers, and what they earn."""
    r = recalibration
    temperature, affine = r.TemperatureScaling(), r.AffineScaling()

    def fit(predictions, targets, method, weights=None):
        return method.fit(predictions, targets, weights=weights)

    def apply(predictions, params, method):
        found = method.apply(params, predictions)
        # Of probabilities in float64 there are logarithms as well.
        return getattr(found, "class_probs", found)

    def both(predictions, targets, method, weights=None):
        return apply(predictions, fit(predictions, targets, method, weights), method)

    loss = a.made(r.TemperatureScaling, loss=a.function(scores.negative_log_likelihood))
    number = a.made(lambda temperature: temperature, temperature=a.scale(2.0))
    law = a.made(AffineMap, by=a.number(0.3), factor=a.scale(2.0))
    covers = "recalibration.TemperatureScaling"
    found = []
    for family in (CATEGORICAL, NORMAL):
        name = family.name
        found += [
            family.call(covers, f"fit {name}", fit, method=loss, slow=True),
            family.call(covers, f"apply {name}", apply, params=number, method=temperature),
        ]
    # No linear map of the log-probabilities tells these classes apart.
    mixed = dataclasses.replace(
        CATEGORICAL, targets=a.labels(np.array([0, 1, 2, 1, 1, 2, 0, 1]), limit=3)
    )
    methods = {
        "QuantileRecalibration": (NORMAL, r.QuantileRecalibration()),
        "KernelRecalibration": (NORMAL, r.KernelRecalibration(kernels.SquaredExponential(1.0))),
        "MatrixScaling": (CATEGORICAL, r.MatrixScaling(1.0)),
    }
    found += [
        family.call(f"recalibration.{name}", "fit and apply", both, method=method, slow=True)
        for name, (family, method) in methods.items()
    ]
    for structure, family in (("bias", CATEGORICAL), ("diagonal", mixed)):
        method = r.MatrixScaling(None, structure=structure)
        label = f"fit and apply {structure}"
        options = {"method": method, "slow": True}
        found.append(family.call("recalibration.MatrixScaling", label, both, **options))
    quantiles = a.made(
        lambda values: Quantiles(np.float32([0.3, 0.6]), values),
        values=a.real(np.stack([a.LOC, a.LOC + 1], 1), without=("inf", "-inf")),
    )
    folds, label = {"num_folds": a.integer(2, limit=8), "slow": True}, "data"
    return [
        *found,
        NORMAL.call("recalibration.AffineScaling", "fit and apply", both, method=affine),
        NORMAL.call("recalibration.AffineScaling", "apply", apply, method=affine, params=law),
        call(
            "recalibration.QuantileShift",
            "fit and apply",
            both,
            predictions=quantiles,
            targets=a.real(a.Y),
            method=r.QuantileShift(),
        ),
        NORMAL.call(
            "recalibration.recalibration_gain", label, recalibrations={"affine": affine}, **folds
        ),
        CATEGORICAL.call(
            "recalibration.recalibration_gain",
            "errors",
            recalibrations={"T": temperature},
            score=a.choice("l2", without=("None", "lambda")),  # scores, too
            **folds,
        ),
        NORMAL.call("recalibration.Recalibrator", "cross_fitted", affine.cross_fitted, **folds),
        NORMAL.call(
            "recalibration.temperature_interval",
            loss=a.function(scores.negative_log_likelihood),
            one_of=8,
            slow=True,
        ),
    ]


def _functions():
    """Estimation functions, fitted and evaluated."""

    def of_classes(predictions, targets, new, hyperparameter, function):
        params = function.fit(predictions, targets, hyperparameter)
        return function.evaluate(params, new, new)

    def run(predictions, targets, p, q, hyperparameter, function):
        params = function.fit(predictions, targets, hyperparameter)
        return function.evaluate(params, p, q), function.diagonal(params, p)

    def diagonal(function):  # eigenvectors of small eigenvalues differ between machines
        confidences = np.asarray(a.CONFIDENCES, float)  # and so do the last digits of float32
        return function.diagonal(function.fit(confidences, a.CORRECT, 0.3), confidences)

    def means(function):
        return function.fit(a.CONFIDENCES.astype(np.float32), a.CORRECT, 2).means

    found = []
    for label, function, hyperparameter in (
        ("", risk.Binning(5), a.at_least_one(3.0)),
        (", debias", risk.Binning(5, debias=True), a.at_least_one(3.0)),
        ("", risk.KernelDensity(), a.scale(0.1)),
        ("", risk.Recalibrated(recalibration.TemperatureScaling()), a.scale(1.5)),
        ("", risk.KernelRidge(), a.scale(0.3)),
        (", two steps", risk.KernelRidge(two_step=True), a.scale(0.3)),
    ):
        name = type(function).__name__
        of_both = {"hyperparameter": hyperparameter, "function": function}
        found.append(
            call(
                f"risk.{name} risk.EstimationFunction",
                f"confidences{label}",
                run,
                predictions=a.unit(a.CONFIDENCES),
                targets=a.truths(a.CORRECT),
                p=a.unit(np.array([0.5, 0.7, 0.9]), without=a.ALONE),
                q=a.unit(np.array([0.4, 0.8]), without=a.ALONE),
                **of_both,
                slow="Ridge" in name,
            )
        )
        if name != "Binning":
            new = a.made(Categorical, p=a.simplex(a.PROBS[:3], without=a.ALONE))
            options = {"new": new, "slow": True} | of_both
            found.append(
                CATEGORICAL.call(f"risk.{name}", f"Categorical{label}", of_classes, **options)
            )
    ridge = a.made(
        lambda kernel, two_step, rank, tolerance: risk.KernelRidge(
            kernel, two_step=two_step, rank=rank, tolerance=tolerance
        ),
        # Any function may be the kernel.
        kernel=a.kernel(kernels.SquaredExponential(0.3), without=("unregistered",)),
        two_step=a.truth(False),
        rank=a.integer(8, limit=8, without=a.OPTIONAL),
        tolerance=a.proportion(1e-3, without=a.OPTIONAL),
    )
    found.append(call("risk.KernelRidge", "options", diagonal, function=ridge, **_MADE))
    binning = a.made(
        lambda max_bins, debias: risk.Binning(max_bins, debias=debias),
        max_bins=a.integer(4),
        debias=a.truth(False),
    )
    return [*found, call("risk.Binning", "options", means, function=binning, **_MADE)]


def _risks():
    values = (a.CONFIDENCES[:, None] - 0.5) * (a.CONFIDENCES - 0.5)
    data = {"predictions": a.unit(a.CONFIDENCES), "targets": a.truths(a.CORRECT)}
    matrix = a.real(values, without=("transposed",))
    function = a.function(lambda p, q: p.class_probs @ q.class_probs.T, "function")
    name = "risk.estimation_risk"
    return [
        call(name, "confidences", values=matrix, **data),
        CATEGORICAL.call(name, values=function),
    ]


def _cross_validation():
    numbers = np.linspace(0.3, 0.97, 24).round(3)
    correct = np.array([1, 0, 1, 1, 0, 1] * 4)
    grid = np.array([0.1, 0.3])
    data = {"predictions": a.unit(numbers), "targets": a.truths(correct)}
    own = (*a.ALONE, "scalar", "one more axis")

    @functools.wraps(risk.cross_validate)
    def cross_validate(*args, **options):
        result = risk.cross_validate(*args, **options)
        return result, result.risk

    shared = {"function": risk.KernelDensity(), "grid": a.positive(grid, "function", without=own)}
    return [
        call("risk.cross_validate", "", cross_validate, **data, **shared, slow=True),
        call(
            "risk.squared_calibration_error",
            **data,
            **shared,
            test_fraction=a.proportion(0.25, traced=False),  # a size
            slow=True,
        ),
    ]


def calls():
    """Calls of what is learned from data."""
    return [
        *_of_confidences(),
        *_of_features(),
        *_of_distributions(),
        *_functions(),
        *_risks(),
        *_cross_validation(),
    ]
