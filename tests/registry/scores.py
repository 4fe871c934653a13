"""Calls of scores, adapters and reliability curves."""

from typing import Any

import numpy as np

from calibjax import distances, distributions, estimators, interoperability, scores
from tests.registry import arguments as a
from tests.registry.arguments import Call, call
from tests.registry.families import BERNOULLI, CATEGORICAL, FAMILIES, NORMAL

_BINNING = estimators.UniformBins(3)
_GROUPS = np.array([0, 1, 1, 0, 2, 1, 2, 0])


def _decisions() -> list[Call]:
    data = {"confidences": a.unit(a.CONFIDENCES), "correct": a.truths(a.CORRECT)}
    ratio = a.at_least_one(4.0, limit="vector")
    return [
        call("scores.rejection_curve", scores.rejection_curve, **data),
        call("scores.prediction_rejection_ratio", scores.prediction_rejection_ratio, **data),
        call("scores.decision_cost", scores.decision_cost, **data, ratio=ratio),
        call(
            "scores.reward_improvement",
            scores.reward_improvement,
            **data,
            original_confidences=a.unit(a.CONFIDENCES[::-1].copy()),
            ratio=ratio,
        ),
    ]


def _of_classes() -> list[Call]:
    found = []
    for family, name in ((CATEGORICAL, "Categorical"), (BERNOULLI, "Bernoulli")):
        found.append(family.call("scores.brier_score", scores.brier_score, name))
        found.append(family.call("scores.accuracy", scores.accuracy, name))
        covers = "scores.brier_decomposition scores.ScoreDecomposition"
        found.append(family.call(covers, scores.brier_decomposition, name))
    for name in ("group_wise_ece", "group_wise_mce"):
        found.append(
            CATEGORICAL.call(
                f"scores.{name}",
                getattr(scores, name),
                "",
                groups=a.groups(_GROUPS),
                binning=a.binning(_BINNING),
                num_groups=a.integer(3, without=a.OPTIONAL),
                distance=a.distance(distances.TotalVariation()),
            )
        )
    return found


def _from_numpyro() -> list[Call]:
    import numpyro.distributions as numpyro

    def draws(concentration: Any, rate: Any) -> Any:
        parameters = {"concentration": concentration, "rate": rate}
        p = interoperability.NumpyroDistribution(parameters, numpyro.Gamma)
        return distributions.monte_carlo(a.key().value, p, 3).draws.values

    return [
        call(
            "interoperability.from_numpyro",
            interoperability.from_numpyro,
            "record",
            distribution=a.record(numpyro.Normal(np.zeros(3), np.ones(3))),
            compiled=False,
            reason="a conversion of one object to another",
        ),
        call(
            "interoperability.NumpyroDistribution",
            draws,
            "Gamma",
            concentration=a.positive(a.SCALE, "predictions"),
            rate=a.positive(a.SCALE[::-1].copy(), "predictions"),
            slow=True,
        ),
    ]


def _from_sklearn() -> list[Call]:
    import sklearn.linear_model as sklearn

    model = sklearn.BayesianRidge().fit(a.FEATURES, a.Y)
    return [
        call(
            "interoperability.from_sklearn",
            lambda model: interoperability.from_sklearn(model, a.FEATURES),
            "model",
            model=a.record(model),
            compiled=False,
            reason="a conversion of one object to another",
        )
    ]


def _curves() -> list[Call]:
    def curve(predictions: Any, targets: Any, key: Any, **options: Any) -> Any:
        return estimators.reliability_curve(key, predictions, targets, **options)

    return [
        BERNOULLI.call(
            "estimators.reliability_curve estimators.ReliabilityCurve",
            curve,
            "",
            key=a.key(),
            binning=a.binning(_BINNING),
            num_draws=a.integer(19),
            level=a.proportion(0.9, "num_draws", traced=False),
            max_bins=a.integer(100, limit=100),
            slow=True,
        ),
        BERNOULLI.call(
            "estimators.isotonic_curve estimators.IsotonicCurve",
            lambda predictions, targets, key, **options: estimators.isotonic_curve(
                key, predictions, targets, **options
            ),
            "",
            key=a.key(),
            num_draws=a.integer(19),
            level=a.proportion(0.9, "num_draws", traced=False),
            max_points=a.integer(8, limit=8),
            slow=True,
        ),
        NORMAL.call(
            "estimators.isotonic_curve",
            lambda predictions, targets, key, **options: estimators.isotonic_curve(
                key, predictions, targets, num_draws=19, **options
            ),
            "Normal",
            key=a.key(),
            quantile=a.proportion(0.75, traced=False, without=a.OPTIONAL),
            slow=True,
        ),
        BERNOULLI.call(
            "estimators.smooth_ece",
            estimators.smooth_ece,
            "",
            bandwidth=a.scale(0.1, traced=False, without=a.OPTIONAL),
        ),
        *(
            FAMILIES[name].call(
                "estimators.AtMost",
                lambda predictions, targets: estimators.AtMost(0.5)(predictions, targets),
                name,
            )
            for name in ("Normal", "Poisson")
        ),
        NORMAL.call(
            "scores.murphy_curve scores.MurphyCurve",
            scores.murphy_curve,
            "",
            level=a.proportion(0.3, traced=False, without=a.OPTIONAL),
            thresholds=a.real(np.array([-0.5, 0.1, 0.6]), without=(*a.ALONE, *a.OPTIONAL)),
        ),
    ]


def _pit() -> list[Call]:
    def pit(predictions: Any, targets: Any, key: Any) -> Any:
        return estimators.pit_values(key, predictions, targets)

    found = [
        FAMILIES[name].call("estimators.pit_values", pit, name, key=a.key())
        for name in ("Normal", "Poisson")
    ]

    def ranks(values: Any, targets: Any, key: Any) -> Any:
        return pit(distributions.Samples(values), targets, key)

    members = a.real(np.stack([a.LOC, a.LOC + 0.5, a.LOC - 1.0], 1), "predictions")
    found.append(
        call(
            "estimators.pit_values",
            ranks,
            "Samples",
            values=members,
            targets=a.real(a.Y),
            key=a.key(),
        )
    )
    return found


def _uniformity() -> list[Call]:
    band = {"num_draws": a.integer(19), "level": a.proportion(0.9, "num_draws", traced=False)}
    found = [
        call(
            "estimators.pit_histogram estimators.PITHistogram",
            estimators.pit_histogram,
            key=a.key(),
            values=a.unit(a.CONFIDENCES, without=a.ALONE),
            num_bins=a.integer(4),
            **band,
        )
    ]
    for name in ("quantile_coverage", "interval_coverage"):
        found.append(
            call(
                f"estimators.{name} estimators.CoverageCurve",
                getattr(estimators, name),
                key=a.key(),
                values=a.unit(a.CONFIDENCES, without=a.ALONE),
                levels=a.positive(np.array([0.1, 0.5, 0.9]), without=(*a.ALONE, *a.OPTIONAL)),
                **band,
            )
        )
    return found


def calls() -> list[Call]:
    """Calls of the scores and what is left."""
    quantiles = NORMAL.call(
        "scores.pinball_loss",
        scores.pinball_loss,
        "levels",
        levels=a.positive(
            np.array([0.1, 0.5, 0.9]),
            without=("one row less", "one row more", "one row", "scalar", *a.OPTIONAL),
        ),
    )
    numbers = [
        NORMAL.call(
            "scores.crps_decomposition scores.ScoreDecomposition",
            scores.crps_decomposition,
            "",
            num_thresholds=a.integer(5),
            slow=True,
        ),
        call(
            "scores.interval_widths",
            lambda loc, scale, level: scores.interval_widths(
                distributions.Normal(loc, scale), level=level
            ),
            loc=a.real(a.LOC, "predictions"),
            scale=a.positive(a.SCALE, "predictions"),
            level=a.proportion(0.9),
        ),
    ]
    return [
        *numbers,
        *_decisions(),
        *_of_classes(),
        *_from_numpyro(),
        *_from_sklearn(),
        *_curves(),
        *_pit(),
        *_uniformity(),
        quantiles,
    ]
