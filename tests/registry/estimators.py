"""Calls of the estimators."""

import functools

import numpy as np

from calibjax import distances, estimators, kernels
from calibjax.distributions import Categorical, Normal
from calibjax.estimators import Neighbourhood
from tests.registry import arguments as a
from tests.registry.arguments import Made, call
from tests.registry.families import BERNOULLI, CATEGORICAL, NORMAL

_BINNING = estimators.UniformBins(3)


def _kernel_estimators():
    found, parts = [], {"at_loc": a.real(a.LOC[:3] + 0.5), "at_scale": a.positive(a.SCALE[:3])}
    normals, classes = Made(Normal, parts), a.made(Categorical, at_probs=a.simplex(a.PROBS[4:7]))
    labels = a.labels(a.LABELS[:3], limit=3)
    for family in (NORMAL, CATEGORICAL):
        kernel = a.kernel(family.kernel)
        for name in ("skce_biased", "skce_dispersion"):
            found.append(family.call(f"estimators.{name}", kernel=kernel))
        found += [family.call("estimators.skce_block", kernel=kernel, block_size=a.integer(2))]
    return [
        *found,
        NORMAL.call("estimators.ucme", at_predictions=normals, at_targets=a.real(a.Y[3:6])),
        CATEGORICAL.call("estimators.ucme", at_predictions=classes, at_targets=labels),
        call("estimators.kernel.mmce", kernel=a.kernel(kernels.Exponential(0.4))),
    ]


def _in_bins():
    found = []
    binning, distance = a.binning(_BINNING), a.distance(distances.TotalVariation())
    number = a.integer(2, "num_bins", "min_size", "predictions")
    for family in (BERNOULLI, CATEGORICAL):  # the largest error of so few classes is of one sample
        canonical = {"binning": binning, "notion": "canonical"}
        for name in ("ece", "mce"):
            found.append(family.call(f"estimators.{name}", distance=distance, **canonical))
        debiased = {"norm": "l2", "debiased": True, "distance": distances.Euclidean()}
        label = f"debiased {family.name}"
        found.append(family.call("estimators.ece", label, **canonical, **debiased))
        for name in ("EqualMassBins", "MedianVarianceBins"):
            bins = Made(getattr(estimators, name), {"number": number})
            covers = f"estimators.{name}"
            found.append(
                family.call(covers, None, estimators.ece, binning=bins, notion="canonical")
            )
        found.append(
            family.call(
                "estimators.UniformBins",
                None,
                lambda predictions, num_bins: estimators.UniformBins(num_bins)(predictions),
                num_bins=a.integer(4),
            )
        )
    return found


def _reductions():
    notions = "top_label", "class_wise"
    options = {"bandwidth": a.scale(0.1), "order": a.scale(1.5)}
    return [
        *(CATEGORICAL.call(f"estimators.{notion}") for notion in notions),
        *(CATEGORICAL.call("estimators.ece", x, binning=_BINNING, notion=x) for x in notions),
        CATEGORICAL.call("estimators.binned.kde_calibration_error", **options),
    ]


def near(scale, num_bins=2):
    """Neighbourhoods of a kernel that is tried with wrong values."""
    binning, kernel = estimators.UniformBins(num_bins), a.kernel(kernels.Exponential(scale))
    return a.made(lambda kernel: Neighbourhood(kernel, binning), kernel=kernel)


def laplacian(num_bins=2, **options):
    """Neighbourhoods of a length scale."""
    scale = a.scale(0.7, **options)
    return a.made(Neighbourhood.laplacian, length_scale=scale, num_bins=a.integer(num_bins))


def _local():
    found = []
    at = a.made(
        lambda *at: at,
        at_features=a.real(a.FEATURES[:3] + 0.1, "features"),
        # None is refused in the words of NumPy.
        at_confidences=a.unit(np.array([0.6, 0.7, 0.9]), "confidences", without=("None",)),
    )
    for name in ("lce", "mlce", "local_errors"):
        covers = f"estimators.{name} estimators.Neighbourhood"
        found += [
            call(covers, "Laplacian", neighbourhood=laplacian(limit="vector")),
            call(covers, "kernel", neighbourhood=near(0.5), at=at),
        ]
    smooth = functools.partial(Neighbourhood, kernels.Exponential(0.7))
    in_bins = a.made(smooth, binning=a.binning(_BINNING))
    return [
        *found,
        call("estimators.local_errors", "binning", neighbourhood=in_bins),
        call(
            "estimators.lce",
            "neighbourhood",
            neighbourhood=a.record(Neighbourhood.laplacian(0.7, 2)),
            features=a.FEATURES,
            confidences=a.CONFIDENCES,
            correct=a.CORRECT,
            reason="compiled above",
        ),
    ]


def calls():
    """Calls of the estimators, but for the SKCE of all families."""
    return [*_kernel_estimators(), *_in_bins(), *_reductions(), *_local()]
