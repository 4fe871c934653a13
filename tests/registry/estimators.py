"""Calls of the estimators."""

import numpy as np

from calibjax import distances, estimators, kernels
from calibjax.distributions import Bernoulli, Categorical
from calibjax.estimators import Neighbourhood
from tests.registry import arguments as a
from tests.registry.arguments import Call, call
from tests.registry.families import BERNOULLI, CATEGORICAL, FAMILIES, NORMAL

_BINNING = estimators.UniformBins(3)
SEVERAL = ("length scale array([1., 1.])",)  # are several kernels for local errors
_AT = {
    "at_features": a.real(a.FEATURES[:3] + 0.1, "at"),
    "at_confidences": a.unit(np.array([0.6, 0.7, 0.9]), "at"),
}
_LOCAL = {
    "features": a.real(a.FEATURES, without=("first column",)),  # one feature
    "confidences": a.unit(a.CONFIDENCES),
    "correct": a.truths(a.CORRECT),
}


def _kernel_estimators() -> list[Call]:
    found = []
    for name in ("Normal", "Categorical"):
        family = FAMILIES[name]
        functions = {
            "estimators.skce_biased": estimators.skce_biased,
            "estimators.skce_spread estimators.SpreadEstimate": estimators.skce_spread,
            "estimators.calibration_kernel_matrix": estimators.calibration_kernel_matrix,
        }
        for covers, function in functions.items():
            found.append(
                family.call(
                    covers,
                    lambda predictions, targets, kernel, function=function: function(
                        kernel, predictions, targets
                    ),
                    name,
                    kernel=a.kernel(family.kernel),
                )
            )
        found.append(
            family.call(
                "estimators.skce_block",
                lambda predictions, targets, kernel, block_size: estimators.skce_block(
                    kernel, predictions, targets, block_size=block_size
                ),
                name,
                kernel=a.kernel(family.kernel),
                block_size=a.integer(2),
            )
        )

    def ucme(predictions, targets, test_loc, test_scale, test_targets):
        test = type(predictions)(test_loc, test_scale)
        return estimators.ucme(NORMAL.kernel, predictions, targets, test, test_targets)

    found.append(
        NORMAL.call(
            "estimators.ucme",
            ucme,
            "Normal",
            test_loc=a.real(a.LOC[:3] + 0.5, "test_predictions"),
            test_scale=a.positive(a.SCALE[:3], "test_predictions"),
            test_targets=a.real(a.Y[3:6]),
        )
    )

    def ucme_of_classes(predictions, targets, test_probs, test_targets):
        return estimators.ucme(
            CATEGORICAL.kernel, predictions, targets, Categorical(test_probs), test_targets
        )

    found.append(
        CATEGORICAL.call(
            "estimators.ucme",
            ucme_of_classes,
            "Categorical",
            test_probs=a.simplex(a.PROBS[4:7], "test_predictions"),
            test_targets=a.labels(a.LABELS[:3], limit=3),
        )
    )
    found.append(
        call(
            "estimators.mmce",
            estimators.mmce,
            kernel=a.kernel(kernels.Exponential(0.4)),
            confidences=a.unit(a.CONFIDENCES),
            correct=a.truths(a.CORRECT),
        )
    )
    return found


def _in_bins() -> list[Call]:
    found = []
    for family, name in ((CATEGORICAL, "Categorical"), (BERNOULLI, "Bernoulli")):
        for function in (estimators.ece, estimators.mce):
            found.append(
                family.call(
                    f"estimators.{function.__name__}",
                    function,
                    name,
                    binning=a.binning(_BINNING),
                    distance=a.distance(distances.TotalVariation()),
                )
            )
        found.append(
            family.call(
                "estimators.debiased_squared_ece",
                estimators.debiased_squared_ece,
                name,
                binning=a.binning(_BINNING),
            )
        )
        for bins in (estimators.EqualMassBins, estimators.MedianVarianceBins):
            found.append(
                family.call(
                    f"estimators.{bins.__name__}",
                    lambda predictions, targets, number, bins=bins: estimators.ece(
                        predictions, targets, binning=bins(number)
                    ),
                    name,
                    number=a.integer(2, "num_bins", "min_size", "predictions"),
                )
            )
        found.append(
            family.call(
                "estimators.UniformBins",
                lambda predictions, num_bins: estimators.UniformBins(num_bins)(predictions),
                name,
                "targets",
                num_bins=a.integer(4),
            )
        )
    return found


def _lenses() -> list[Call]:
    found = []
    for lens in (estimators.top_label, estimators.class_wise):
        found.append(CATEGORICAL.call(f"estimators.{lens.__name__}", lens, "Categorical"))

    def ece_of(lens):
        def evaluate(predictions, targets):
            return estimators.ece(*lens(predictions, targets), binning=_BINNING)

        return evaluate

    one = lambda predictions, targets: estimators.OneVersusRest(1)(predictions, targets)  # noqa: E731
    found.append(CATEGORICAL.call("estimators.OneVersusRest", one, "Categorical"))
    found.append(CATEGORICAL.call("estimators.top_label", ece_of(estimators.top_label), "ece"))
    found.append(
        CATEGORICAL.call(
            "estimators.group_classes",
            estimators.group_classes,
            "Categorical",
            groups=a.groups(np.array([0, 1, 1]), traced=False),
        )
    )
    return found


def _density() -> list[Call]:
    return [
        CATEGORICAL.call(
            "estimators.kde_calibration_error",
            estimators.kde_calibration_error,
            "",
            bandwidth=a.scale(0.1),
            order=a.at_least_one(1.5),
        ),
        CATEGORICAL.call(
            "estimators.kde_bandwidth",
            estimators.kde_bandwidth,
            "",
            "targets",
            candidates=a.positive(np.array([0.02, 0.1, 0.5]), without=a.ALONE + a.OPTIONAL),
        ),
        call(
            "estimators.kde_bandwidth",
            lambda probs: estimators.kde_bandwidth(Bernoulli(probs)),
            "Bernoulli",
            probs=a.unit(a.CONFIDENCES, "predictions", without=a.ALONE),
        ),
    ]


def _local() -> list[Call]:
    found = []
    for name in ("lce", "mlce", "mean_lce", "local_errors"):
        function = getattr(estimators, name)
        covers = f"estimators.{name} estimators.Neighbourhood"
        if name == "local_errors":
            covers += " estimators.LocalErrors"
        found.append(
            call(
                covers,
                lambda length_scale, num_bins, function=function, **rest: function(
                    Neighbourhood.laplacian(length_scale, num_bins), **rest
                ),
                "Laplacian",
                **_LOCAL,
                length_scale=a.scale(0.7, limit="vector"),
                num_bins=a.integer(2),
            )
        )
        found.append(
            call(
                covers,
                lambda at_features, at_confidences, kernel, function=function, **rest: function(
                    Neighbourhood(kernel, estimators.UniformBins(2)),
                    **rest,
                    at=(at_features, at_confidences),
                ),
                "kernel",
                **_LOCAL,
                **_AT,
                kernel=a.kernel(kernels.Exponential(0.5), without=SEVERAL),
            )
        )
    found.append(
        call(
            "estimators.local_errors",
            lambda binning, **rest: estimators.local_errors(
                Neighbourhood(kernels.Exponential(0.7), binning), **rest
            ),
            "binning",
            **_LOCAL,
            binning=a.binning(_BINNING),
        )
    )
    found.append(
        call(
            "estimators.lce",
            lambda neighbourhood: estimators.lce(
                neighbourhood, *(np.asarray(x) for x in (a.FEATURES, a.CONFIDENCES, a.CORRECT))
            ),
            "neighbourhood",
            neighbourhood=a.record(Neighbourhood.laplacian(0.7, 2)),
            compiled=False,
            reason="compiled above",
        )
    )
    return found


def calls() -> list[Call]:
    """Calls of the estimators, but for the SKCE of all families."""
    return [*_kernel_estimators(), *_in_bins(), *_lenses(), *_density(), *_local()]
