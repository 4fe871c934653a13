"""Calls of the hypothesis tests and intervals."""

import dataclasses

import numpy as np

from calibjax import distributions, kernels, recalibration, scores
from calibjax.distributions import Categorical, Normal
from tests.registry import arguments as a
from tests.registry.arguments import Made, call
from tests.registry.estimators import laplacian, near
from tests.registry.families import BERNOULLI, CATEGORICAL, FAMILIES, NORMAL
from tests.weights.laws import bias

_PLAIN = kernels.TensorProduct(kernels.Exponential(1.5), kernels.SquaredExponential(1.2))
_WASSERSTEIN = NORMAL.kernel
_LONG = {"one_of": 4, "slow": True}
_AT = {"loc": np.array([-1.0, 0.5, 1.5]), "scale": np.array([0.5, 1.0, 0.7])}
_AT_TARGETS = a.real(np.array([0.1, -0.5, 1.3]))


def _normal(loc, scale, values):
    """Normal predictions whose parameters have these names."""
    return Made(Normal, {loc: a.real(values["loc"]), scale: a.positive(values["scale"])})


def _skce_tests(family):
    bound, drawn = a.scale(3.0, without=a.OPTIONAL), {"slow": True}
    free = {"estimator": a.choice("biased"), "bound": bound, "block_size": None}
    interval, fixed = "skce_confidence_interval", {"key": None, "num_draws": 999}
    free_interval = {"method": "distribution_free", "weights": None, "clusters": None}
    asymptotic = {"method": a.choice("asymptotic"), "block_size": None, "bound": None}
    asymptotic |= {"estimator": "biased", **drawn}
    blocks = {"null": "blocks", "block_size": a.integer(2)}
    in_blocks = {"null": "spectrum", "block_size": a.integer(2, without=a.OPTIONAL)}
    tests = {
        "exact_skce_test, options": {"statistic": a.choice("omnibus"), **drawn},
        "asymptotic_skce_test, bootstrap": {"null": a.choice("bootstrap"), "block_size": None},
        "asymptotic_skce_test, blocks": {**blocks, **fixed},
        "asymptotic_skce_test, spectrum": {**in_blocks, **fixed, **drawn},
        "asymptotic_skce_test, gamma": {"null": "gamma", "block_size": None, **fixed, **drawn},
        "asymptotic_skce_test, pearson": {"null": "pearson", "block_size": None, **fixed, **drawn},
        "distribution_free_skce_test, options": free,
        f"{interval}, distribution-free": {**free, **free_interval, **drawn},
        f"{interval}, options": asymptotic,
        "distribution_free_skce_test, block": {"estimator": "block", "block_size": a.integer(2)},
        f"{interval}, distribution-free, block": {
            **free_interval,
            "estimator": "block",
            "block_size": a.integer(2),
        },
    }
    calls = []
    for test, options in tests.items():
        names, label = test.split(", ", 1)
        # The small eigenvalues are differences of large numbers, which another rounding changes.
        without = ("once", "sum of one", "None") if "spectrum" in label else a.OPTIONAL
        kernel = (
            family.kernel if label[-5:] == "block" else a.kernel(family.kernel, without=without)
        )
        calls.append(
            family.call(
                f"hypothesis_tests.{names}", f"{family.name}, {label}", kernel=kernel, **options
            )
        )
    return calls


def _statistics():
    options = {"statistic": a.function(bias), **_LONG}
    return [
        NORMAL.call("hypothesis_tests.exact_test", adjust=a.truth(False), **options),
        NORMAL.call("hypothesis_tests.consistency_test", **options),
    ]


def _locations():
    places = Made(Categorical, {"at_probs": a.simplex(a.PROBS[4:7])})
    of_classes = {"at_predictions": places, "at_targets": a.labels(np.array([0, 1, 2]), limit=3)}
    at = {"at_predictions": _normal("at_loc", "at_scale", _AT), "at_targets": _AT_TARGETS}
    cme = "hypothesis_tests.cme_test"
    return [
        NORMAL.call(cme, **at, kernel=a.kernel(_PLAIN)),
        CATEGORICAL.call(cme, **of_classes),
        NORMAL.call("estimators.witness", kernel=a.kernel(_PLAIN), **at),
        NORMAL.call("hypothesis_tests.witness_test", kernel=_PLAIN, **at, **_LONG),
    ]


def _local():
    covers, options = "hypothesis_tests.local_calibration_test", {"one_of": 8, "slow": True}
    return [
        call(covers, "Laplacian", neighbourhood=laplacian(limit="vector"), **options),
        call(covers, "kernel", neighbourhood=near(0.5), **options),
    ]


def _groups():
    covers = "hypothesis_tests.group_calibration_test"
    groups = a.real(a.FEATURES, without=("first column",))  # one group

    def residual(predictions, targets):
        return targets - predictions.loc

    own = a.function(residual, without=a.OPTIONAL)
    return [
        CATEGORICAL.call(covers, groups=groups, **_LONG),
        NORMAL.call(covers, "residual", groups=groups, residual=own, **_LONG),
    ]


def _ensembles():
    values = np.stack([a.LOC - 1, a.LOC + 0.3, a.LOC + 1], 1)
    ensembles = a.made(distributions.Ensemble, values=a.real(values))
    data = {"predictions": ensembles, "targets": a.real(a.Y), **_LONG}
    options = {"statistic": a.choice("omnibus")}
    options["kernel"] = a.kernel(_WASSERSTEIN, without=a.OPTIONAL)
    return [
        call("hypothesis_tests.ensemble_skce_test", **data, **options),
        call("hypothesis_tests.rank_histogram_test", **data),
    ]


def _aggregated():
    one = a.made(lambda kernel: [kernel], kernel=a.kernel(_WASSERSTEIN, "kernels[0]"))
    method = recalibration.AffineScaling()
    composite = "hypothesis_tests.composite_calibration_test"
    return [
        NORMAL.call("hypothesis_tests.aggregated_skce_test", kernels=one, **_LONG),
        NORMAL.call(composite, recalibration=method, kernels=_WASSERSTEIN, **_LONG),
        NORMAL.call("kernels.default_kernels"),
        NORMAL.call("kernels.default_kernel"),
    ]


def _clusters():
    """Calls for 12 samples in 10 clusters, the fewest that are allowed."""
    generator = np.random.default_rng(3)
    loc, scale = generator.normal(size=12), generator.uniform(0.4, 1.2, 12)
    data = {
        "predictions": _normal("loc", "scale", {"loc": loc, "scale": scale}),
        "targets": a.real(generator.normal(size=12)),
        "kernel": _PLAIN,
        "slow": True,
    }
    clusters = a.integers(np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 4]))
    optional = dataclasses.replace(clusters, without=a.OPTIONAL)
    interval = "hypothesis_tests.skce_confidence_interval"
    return [
        call("hypothesis_tests.cluster_skce_test", **data, clusters=clusters),
        call(interval, "clusters", **data, clusters=optional),
    ]


def _comparison():
    models = {"kernel": _WASSERSTEIN, "predictions": NORMAL.predictions, "targets": a.real(a.Y)}
    weights = a.weights(np.linspace(1, 2, len(a.Y)), without=a.OPTIONAL)
    reverse = {"loc": a.LOC[::-1], "scale": a.SCALE}
    other = _normal("mean", "deviation", reverse)
    by_score = {"others": other, "score": a.function(scores.crps, without=a.OPTIONAL)}
    better = {"others": other, "weights": weights}
    margin = {"margin": a.scale(0.3), "alternative": a.choice("less")}
    gains = {"recalibration": recalibration.AffineScaling(), "one_of": 8, "slow": True}
    return [
        call("hypothesis_tests.skce_difference", **models, **better),
        call("hypothesis_tests.skce_margin_test", **models, **margin),
        NORMAL.call("hypothesis_tests.score_difference", **by_score, one_of=4),
        NORMAL.call("hypothesis_tests.gain_difference", **by_score, **gains),
    ]


def _power():
    def simulate(key, n):
        predictions = Normal(np.zeros(n), np.ones(n))
        return predictions, distributions.sample_targets(key, predictions)

    return [
        call(
            "hypothesis_tests.power_curve",
            kernel=a.kernel(_PLAIN, without=a.OPTIONAL),
            simulate=simulate,
            sizes=[3, 5],
            num_data_sets=a.integer(2),
            num_draws=a.integer(19),
            significance_level=a.proportion(0.2),
            statistic=a.choice("omnibus"),
            slow=True,
        )
    ]


def _coverage():
    own = (*a.ALONE, "scalar", "leading axis")
    quantiles = a.made(
        distributions.Quantiles,
        # Levels that are the same for all predictions come with one axis, or with two.
        levels=a.positive(np.array([0.2, 0.5, 0.8]), without=own),
        values=a.real(np.stack([a.LOC - 1, a.LOC, a.LOC + 1], 1), without=("inf", "-inf")),
    )
    return [
        call(f"{name} distributions.Quantiles", predictions=quantiles, targets=a.real(a.Y))
        for name in ("hypothesis_tests.coverage_test", "scores.pinball_loss")
    ]


def _classical():
    key = a.key(without=a.OPTIONAL)
    of_labels = "cox", "cumulative_difference", "spiegelhalter", "calibration_slope_intercept"
    return [
        *(BERNOULLI.call(f"hypothesis_tests.{name}") for name in of_labels),
        BERNOULLI.call("hypothesis_tests.hosmer_lemeshow", num_bins=a.integer(3)),
        CATEGORICAL.call("hypothesis_tests.spiegelhalter"),
        *(FAMILIES[x].call("hypothesis_tests.berkowitz") for x in ("Normal", "Laplace")),
        *(FAMILIES[x].call("hypothesis_tests.pit_ks", key=key) for x in ("Normal", "Laplace")),
    ]


def _sequential():
    """Bets by sums are quick to compile; the others are in tests/hypothesis_tests."""
    bets = (
        (NORMAL, recalibration.AffineScaling()),
        (BERNOULLI, recalibration.MatrixScaling(structure="bias")),
    )

    options = {"horizon": a.integer(1), "forget": a.scale(0.9)}
    options["significance_level"] = a.proportion(0.1)
    return [family.call("hypothesis_tests.e_process", bets=bet, **options) for family, bet in bets]


def calls():
    """Calls of all tests."""
    return [
        *_skce_tests(NORMAL),
        *_skce_tests(CATEGORICAL),
        *_statistics(),
        *_locations(),
        *_local(),
        *_groups(),
        *_ensembles(),
        *_aggregated(),
        *_clusters(),
        *_comparison(),
        *_power(),
        *_coverage(),
        *_classical(),
        *_sequential(),
    ]
