"""Calls of scores, adapters and reliability curves."""

import numpy as np
import numpyro.distributions as numpyro
from sklearn.linear_model import BayesianRidge

from calibjax import estimators
from tests.registry import arguments as a
from tests.registry.arguments import call
from tests.registry.families import BERNOULLI, CATEGORICAL, EQUAL_DRAWS, FAMILIES, NORMAL

_BINNING = estimators.UniformBins(3)
_BAND = {
    "num_draws": a.integer(19),
    "confidence_level": a.proportion(0.9, "num_draws", traced=False),
}


def _of_classes():
    names = "brier_score", "accuracy", "brier_decomposition", "ranked_probability_score"
    return [family.call(f"scores.{name}") for family in (CATEGORICAL, BERNOULLI) for name in names]


def _conversions():
    normals = a.record(numpyro.Normal(np.zeros(3), np.ones(3)))
    model = {"model": a.record(BayesianRidge().fit(a.FEATURES, a.Y)), "X": a.FEATURES}
    options = {"reason": "a conversion of one object to another"}
    return [
        call("interoperability.from_numpyro", "record", distribution=normals, **options),
        call("interoperability.from_sklearn", "model", **model, **options),
    ]


def _curves():
    return [
        BERNOULLI.call(
            "estimators.reliability_curve",
            **_BAND,
            binning=a.binning(_BINNING),
            max_bins=a.integer(100, limit=100),
            slow=True,
        ),
        BERNOULLI.call(
            "estimators.isotonic_curve", **_BAND, max_points=a.integer(8, limit=8), slow=True
        ),
        NORMAL.call("estimators.isotonic_curve", num_draws=19, confidence_level=0.9, slow=True),
        NORMAL.call(
            "scores.murphy_curve",
            level=a.proportion(0.3, traced=False, without=a.OPTIONAL),
            thresholds=a.real(np.array([-0.5, 0.1, 0.6]), without=(*a.ALONE, *a.OPTIONAL)),
        ),
    ]


def _pit():
    covers, values = "estimators.pit_values", a.unit(a.CONFIDENCES, without=a.ALONE)
    levels = a.positive(np.array([0.1, 0.5, 0.9]), without=(*a.ALONE, *a.OPTIONAL))
    return [
        *(FAMILIES[name].call(covers) for name in ("Normal", "Poisson")),
        EQUAL_DRAWS.call(covers, "Ensemble"),
        call("estimators.pit_counts", values=values, num_bins=a.integer(4), **_BAND),
        *(
            call(
                "estimators.coverage_curve", kind, kind=kind, values=values, levels=levels, **_BAND
            )
            for kind in ("quantile", "interval")
        ),
    ]


def calls():
    """Calls of the scores and what is left."""
    alone = (*a.ALONE, "scalar", *a.OPTIONAL)
    return [
        NORMAL.call("scores.crps_decomposition", num_thresholds=a.integer(5), slow=True),
        NORMAL.call("scores.interval_score", confidence_level=a.proportion(0.9)),
        NORMAL.call(
            "scores.pinball_loss",
            "levels",
            levels=a.positive(np.array([0.1, 0.5, 0.9]), without=alone),
        ),
        call("scores.decomposition.prediction_rejection_ratio"),
        *_of_classes(),
        *_conversions(),
        *_curves(),
        *_pit(),
    ]
