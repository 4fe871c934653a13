"""Calls of kernels and distances."""

import functools

import numpy as np

from calibjax import distances, distributions, estimators, kernels, recalibration
from calibjax.distances.elementary import SquaredEuclidean
from calibjax.kernels.residuals import Regressor, Shape
from calibjax.kernels.stationary import PowerExponential
from tests.registry import arguments as a
from tests.registry.arguments import call
from tests.registry.families import CATEGORICAL, FAMILIES, NORMAL

_MATRIX = np.array([[2, 1, 0], [1, 2, 1], [0, 1, 2]], "f4")


def _with_target(make, **parts):
    """A product with a target kernel that has hyperparameters."""

    def product(*values):
        return kernels.TensorProduct(kernels.Exponential(1.5), make(*values))

    return a.made(product, **parts)


def _target_kernels():
    """Hyperparameters of target kernels, through an estimator."""
    rbf, exponential, scale = kernels.SquaredExponential, kernels.Exponential, a.scale(1.2)
    matrix = a.matrix(_MATRIX, without=("transposed",))  # which is the same
    two = {"first": a.scale(0.5, "length_scale"), "second": a.scale(2.0, "length_scale")}
    temperature = recalibration.TemperatureScaling()

    def of_sum(first, second):
        return kernels.base.Sum((rbf(first), rbf(second)))

    of_numbers = {
        "SquaredExponential kernels.TensorProduct": _with_target(rbf, length_scale=scale),
        "NormalScore": _with_target(lambda x: kernels.NormalScore(rbf(x)), length_scale=scale),
    }
    private = {
        "Scaled": _with_target(lambda x: kernels.base.Scaled(x, rbf(1.2)), factor=a.scale(2.0)),
        "Sum": _with_target(of_sum, **two),
        "Shape": _with_target(lambda: kernels.NormalScore(Shape("skewness"))),
    }
    of_classes = {
        "PearsonResidual": _with_target(kernels.PearsonResidual, offset=a.scale(0.01)),
        "Fisher": _with_target(lambda: kernels.Fisher(temperature)),
        "LabelKernel": _with_target(kernels.LabelKernel, matrix=matrix),
    }
    families = (
        (NORMAL, of_numbers),
        (CATEGORICAL, of_classes),
        (FAMILIES["Laplace"], {"Exponential": _with_target(exponential, length_scale=scale)}),
    )
    return [
        *(
            family.call(f"kernels.{name}", f"{family.name}, target", estimators.skce, kernel=kernel)
            for family, makers in families
            for name, kernel in makers.items()
        ),
        *(NORMAL.call("estimators.skce", name, kernel=kernel) for name, kernel in private.items()),
    ]


def _landmarks():
    rough = kernels.Exponential(1.5, distances.Wasserstein())

    def low_rank(at_loc, at_scale):
        k = kernels.Nystrom(rough, distributions.Normal(at_loc, at_scale))
        return kernels.TensorProduct(k, kernels.SquaredExponential(1.2))

    kernel = a.made(
        low_rank,
        at_loc=a.real(np.array([-1.0, 0.5, 1.5]), "landmarks"),
        at_scale=a.positive(np.array([0.5, 1.0, 0.7]), "landmarks"),
    )
    chosen = {"kernel": rough, "num_landmarks": a.integer(3)}

    def choose(kernel, predictions, num_landmarks):
        return kernels.Nystrom.from_predictions(kernel, predictions, num_landmarks).landmarks

    return [
        NORMAL.call("kernels.Nystrom", "landmarks", estimators.skce, kernel=kernel),
        NORMAL.call("kernels.Nystrom", "from_predictions", choose, **chosen),
    ]


def _prediction_kernels():
    """Hyperparameters of kernels on predictions."""
    scale, exponential = {"length_scale": a.scale(1.2)}, kernels.Exponential

    def product(length_scale):
        return kernels.base.Product((exponential(length_scale), kernels.SquaredExponential(2.0)))

    makers = {
        "stationary.PowerExponential": a.made(PowerExponential, **scale, exponent=a.scale(0.7)),
        "Matern": a.made(kernels.Matern, **scale),
        "Constant": a.made(kernels.Constant, value=a.scale(1.2)),
        "Exponential distances.elementary.SquaredEuclidean": a.made(
            lambda x: exponential(x, SquaredEuclidean()), **scale
        ),
        "Exponential distances.Manhattan": a.made(
            lambda x: exponential(x, distances.Manhattan()), **scale
        ),
    }
    private = {
        "Regressor": a.made(
            lambda center, unit: Regressor("location", center, unit),
            center=a.number(0.3),
            unit=a.scale(1.2, without=("0", "subnormal")),  # which processors take for zero
        ),
        "Product": a.made(product, **scale),
        "Matern 5/2": a.made(functools.partial(kernels.Matern, nu=2.5), **scale),
    }
    return [
        *(
            NORMAL.call("kernels.gram_matrix", name, kernel=kernel, ys=None)
            for name, kernel in private.items()
        ),
        *(
            NORMAL.call(f"kernels.gram_matrix kernels.{name}", name, kernel=kernel, ys=None)
            for name, kernel in makers.items()
        ),
    ]


def _points():
    # Other shapes are other points.
    alone = (*a.ALONE, "leading axis", "one more axis", "matrix", "first column", "transposed")
    heuristic, counted = "kernels.median_heuristic", np.array([10, 20, 40, 0, 3, 17, 25, 100])
    of_numbers = {
        "Euclidean": distances.Euclidean(),
        "elementary.SquaredEuclidean": SquaredEuclidean(),
        "Manhattan": distances.Manhattan(),
        "Manhattan mean": distances.Manhattan(mean=True),
    }
    return [
        call(
            "kernels.gram_matrix",
            "points",
            # The matrix may be one of any function, such as a distance.
            kernel=a.kernel(kernels.SquaredExponential(1.2), without=("distance", "unregistered")),
            xs=a.real(a.VECTORS, without=alone[:3]),
            ys=a.real(a.VECTORS[:5], without=(*alone[:3], *a.OPTIONAL)),
        ),
        call(
            heuristic,
            "points",
            distance=a.distance(distances.Euclidean()),
            xs=a.real(a.VECTORS, without=alone),
            include_diagonal=a.truth(False),
        ),
        *(
            call(
                f"distances.{name.split()[0]} {heuristic}",
                f"{name} of numbers",
                kernels.median_heuristic,
                distance=distance,
                xs=a.integers(counted, without=(*alone, "float 0.5")),
            )
            for name, distance in of_numbers.items()
        ),
        *(
            family.call(heuristic, distance=family.prediction_kernel.distance)
            for family in map(FAMILIES.get, ("Normal", "Categorical", "Mixture", "Ensemble"))
        ),
    ]


def _distances():
    discrepancy = a.made(
        distances.MaximumMeanDiscrepancy, kernel=a.kernel(kernels.SquaredExponential(1.2))
    )
    of_order = a.made(
        distances.MixtureWasserstein,
        order=a.at_least_one(1.5, traced=False),  # static
    )
    heuristic = kernels.median_heuristic
    return [
        FAMILIES["Mixture"].call(
            "distances.MixtureWasserstein", "order", heuristic, distance=of_order, slow=True
        ),
        NORMAL.call("distances.MaximumMeanDiscrepancy", "kernel", heuristic, distance=discrepancy),
    ]


def calls():
    """Calls of kernels and distances, through functions that check."""
    return [*_target_kernels(), *_landmarks(), *_prediction_kernels(), *_points(), *_distances()]
