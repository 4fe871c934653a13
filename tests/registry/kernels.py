"""Calls of kernels and distances."""

import dataclasses
from typing import Any

import numpy as np

from calibjax import distances, distributions, estimators, hypothesis_tests, kernels, recalibration
from tests.registry import arguments as a
from tests.registry.arguments import Call, call
from tests.registry.families import CATEGORICAL, FAMILIES, NORMAL

_MATRIX = np.array([[2, 1, 0], [1, 2, 1], [0, 1, 2]], "f4")


def _target_kernels() -> list[Call]:
    """Hyperparameters of target kernels, through an estimator."""

    def of(make: Any) -> Any:
        def skce(predictions: Any, targets: Any, **hyperparameters: Any) -> Any:
            kernel = kernels.TensorProduct(kernels.Exponential(1.5), make(**hyperparameters))
            return estimators.skce(kernel, predictions, targets)

        return skce

    rbf = kernels.SquaredExponential
    makers = {
        "SquaredExponential": (rbf, {"length_scale": a.scale(1.2)}),
        "Scaled": (lambda factor: kernels.Scaled(factor, rbf(1.2)), {"factor": a.scale(2.0)}),
        "Sum": (
            lambda first, second: kernels.Sum((rbf(first), rbf(second))),
            {"first": a.scale(0.5, "length_scale"), "second": a.scale(2.0, "length_scale")},
        ),
        "Transformed": (
            lambda factor: kernels.Transformed(factor, rbf()),
            {"factor": a.number(0.8, "scale")},
        ),
    }
    found = [
        NORMAL.call(f"kernels.{name} kernels.TensorProduct", of(make), "target", **options)
        for name, (make, options) in makers.items()
    ]
    found.append(
        FAMILIES["Laplace"].call(
            "kernels.Exponential", of(kernels.Exponential), "target", length_scale=a.scale(1.2)
        )
    )
    found.append(
        NORMAL.call(
            "kernels.NormalScore",
            of(lambda length_scale: kernels.NormalScore(rbf(length_scale))),
            "target",
            length_scale=a.scale(1.2),
        )
    )
    found.append(
        CATEGORICAL.call(
            "kernels.Pearson kernels.Residual", of(kernels.Pearson), "target", offset=a.scale(0.01)
        )
    )
    found.append(
        NORMAL.call(
            "kernels.Shape", of(lambda: kernels.NormalScore(kernels.Shape("skewness"))), "target"
        )
    )
    found.append(
        CATEGORICAL.call(
            "kernels.Fisher",
            of(lambda: kernels.Fisher(recalibration.TemperatureScaling())),
            "target",
        )
    )
    found.append(
        FAMILIES["DiagNormal"].call(
            "kernels.Transformed",
            of(lambda factor: kernels.Transformed(factor, rbf())),
            "factors",
            # a matrix [k, d] is another map
            factor=a.real(np.array([0.8, 1.3]), "scale", without=("matrix", "leading axis")),
        )
    )
    found.append(
        CATEGORICAL.call(
            "kernels.LabelKernel",
            of(lambda matrix: kernels.LabelKernel(matrix)),
            "target",
            matrix=a.matrix(_MATRIX, without=("transposed",)),  # which is the same
        )
    )
    return found


def _landmarks() -> list[Call]:
    rough = kernels.Exponential(1.5, distances.Wasserstein())
    at = {
        "at_loc": a.real(np.array([-1.0, 0.5, 1.5]), "landmarks"),
        "at_scale": a.positive(np.array([0.5, 1.0, 0.7]), "landmarks"),
    }

    def skce(predictions: Any, targets: Any, at_loc: Any, at_scale: Any) -> Any:
        k = kernels.LowRank(rough, distributions.Normal(at_loc, at_scale))
        kernel = kernels.TensorProduct(k, kernels.SquaredExponential(1.2))
        return estimators.skce(kernel, predictions, targets)

    def choose(loc: Any, scale: Any, **rest: Any) -> Any:
        return kernels.choose_landmarks(rough, distributions.Normal(loc, scale), **rest)

    data = {"loc": a.real(a.LOC, "predictions"), "scale": a.positive(a.SCALE, "predictions")}
    number = a.integer(3)
    key = dataclasses.replace(a.key(), without=a.OPTIONAL)
    return [
        NORMAL.call("kernels.LowRank", skce, "landmarks", **at),
        call("kernels.choose_landmarks", choose, **data, num_landmarks=number),
        call("kernels.choose_landmarks", choose, "random", **data, num_landmarks=number, key=key),
    ]


def _prediction_kernels() -> list[Call]:
    """Hyperparameters of kernels on predictions."""

    def gram(make: Any) -> Any:
        def evaluate(predictions: Any, **hyperparameters: Any) -> Any:
            return kernels.gram_matrix(make(**hyperparameters), predictions)

        return evaluate

    makers = {
        "PowerExponential": (
            kernels.PowerExponential,
            {"length_scale": a.scale(1.2), "exponent": a.scale(0.7)},
        ),
        "Matern32": (kernels.Matern32, {"length_scale": a.scale(1.2)}),
        "Matern52": (kernels.Matern52, {"length_scale": a.scale(1.2)}),
        "Constant": (kernels.Constant, {"value": a.scale(1.2)}),
        "Regressor": (
            lambda center, unit: kernels.Regressor("location", center, unit),
            {"center": a.number(0.3, without=("True",)), "unit": a.scale(1.2, without=("0",))},
        ),
        "Product": (
            lambda length_scale: kernels.Product(
                (kernels.Exponential(length_scale), kernels.SquaredExponential(2.0))
            ),
            {"length_scale": a.scale(1.2)},
        ),
        "Exponential distances.SquaredEuclidean": (
            lambda length_scale: kernels.Exponential(length_scale, distances.SquaredEuclidean()),
            {"length_scale": a.scale(1.2)},
        ),
        "Exponential distances.Manhattan": (
            lambda length_scale: kernels.Exponential(length_scale, distances.Manhattan()),
            {"length_scale": a.scale(1.2)},
        ),
    }
    names = {"loc": ("xs",), "scale": ("xs",)}
    family = _renamed(NORMAL, names)
    return [
        family.call(f"kernels.gram_matrix kernels.{name}", gram(make), name, "targets", **options)
        for name, (make, options) in makers.items()
    ]


def _renamed(family: Any, names: dict[str, tuple[str, ...]]) -> Any:
    """A family whose parameters have further names."""
    parameters = {
        k: dataclasses.replace(v, called=v.called + names.get(k, ()))
        for k, v in family.parameters.items()
    }
    return dataclasses.replace(family, parameters=parameters)


def _points() -> list[Call]:
    # Other shapes are other points.
    alone = (*a.ALONE, "leading axis", "one more axis", "matrix", "first column", "transposed")
    alone += ("tuple",)  # a pytree, whose leaves are the coordinates
    points = {"xs": a.real(a.VECTORS, without=alone)}
    counted = np.array([10, 20, 40, 0, 3, 17, 25, 100])
    # The matrix may be one of any function, such as a distance.
    found = [
        call(
            "kernels.gram_matrix",
            lambda kernel, xs, ys: kernels.gram_matrix(kernel, xs, ys),
            "points",
            kernel=a.kernel(kernels.SquaredExponential(1.2), without=("distance", "unregistered")),
            xs=a.real(a.VECTORS, without=alone[:3]),
            ys=a.real(a.VECTORS[:5], without=(*alone[:3], *a.OPTIONAL)),
        ),
        call(
            "kernels.median_heuristic",
            kernels.median_heuristic,
            "points",
            distance=a.distance(distances.Euclidean()),
            **points,
            include_diagonal=a.truth(False),
        ),
    ]
    for distance in (
        distances.Euclidean(),
        distances.SquaredEuclidean(),
        distances.Manhattan(),
        distances.MeanAbsoluteDifference(),
    ):
        name = type(distance).__name__
        found.append(
            call(
                f"distances.{name} kernels.median_heuristic",
                lambda xs, distance=distance: kernels.median_heuristic(distance, xs),
                f"{name} of numbers",
                xs=a.integers(counted, without=(*alone, "float 0.5")),
            )
        )
    for name in ("Normal", "Categorical", "Mixture", "Samples"):
        family = _renamed(FAMILIES[name], {k: ("xs",) for k in FAMILIES[name].parameters})
        distance = family.prediction_kernel.distance
        found.append(
            family.call(
                "kernels.median_heuristic",
                lambda predictions, distance=distance: kernels.median_heuristic(
                    distance, predictions
                ),
                name,
                "targets",
            )
        )
    return found


def _distances() -> list[Call]:
    weights = {
        "weights_p": a.simplex(np.array([0.2, 0.5, 0.3])),
        "weights_q": a.simplex(np.array([0.1, 0.4, 0.2, 0.3])),
        "cost": a.real(a.FACTORS.reshape(-1)[:12].reshape(3, 4) ** 2),
    }
    found = [
        call(f"distances.{f.__name__}", f, **weights, slow=True)
        for f in (distances.transport_plan, distances.transport_cost)
    ]

    def with_order(predictions: Any, order: Any) -> Any:
        return kernels.median_heuristic(distances.MixtureWasserstein(order), predictions)

    found.append(
        FAMILIES["Mixture"].call(
            "distances.MixtureWasserstein",
            with_order,
            "order",
            "targets",
            order=a.at_least_one(1.5, traced=False),  # static
            slow=True,
        )
    )

    def with_kernel(predictions: Any, kernel: Any) -> Any:
        return kernels.median_heuristic(distances.MaximumMeanDiscrepancy(kernel), predictions)

    found.append(
        FAMILIES["Normal"].call(
            "distances.MaximumMeanDiscrepancy",
            with_kernel,
            "kernel",
            "targets",
            kernel=a.kernel(kernels.SquaredExponential(1.2)),
        )
    )
    return found


def _bounds() -> list[Call]:
    tensor = kernels.TensorProduct(kernels.Exponential(), kernels.SquaredExponential())
    return [
        call(
            "hypothesis_tests.calibration_kernel_bound",
            lambda kernel: hypothesis_tests.calibration_kernel_bound(kernel),
            kernel=a.kernel(tensor),
            compiled=False,
            reason="a function of the kernel's structure",
        ),
        call(
            "recalibration.tempered",
            lambda temperature: recalibration.tempered(
                distributions.Normal(np.float32(0.5), np.float32(2.0)), temperature
            ),
            temperature=a.scale(2.0),
        ),
    ]


def calls() -> list[Call]:
    """Calls of kernels and distances, through functions that check."""
    return [
        *_target_kernels(),
        *_landmarks(),
        *_prediction_kernels(),
        *_points(),
        *_distances(),
        *_bounds(),
    ]
