"""Calls of the hypothesis tests and intervals."""

import dataclasses
import functools
from typing import Any

import numpy as np

from calibjax import (
    distances,
    distributions,
    estimators,
    hypothesis_tests,
    kernels,
    recalibration,
    scores,
)
from calibjax.distributions import Categorical, Normal
from calibjax.estimators import Neighbourhood
from tests.registry import arguments as a
from tests.registry.arguments import Call, call
from tests.registry.estimators import SEVERAL
from tests.registry.families import BERNOULLI, CATEGORICAL, FAMILIES, NORMAL, Family

B = a.integer(9)
BATCH = a.integer(4, limit=4, without=a.OPTIONAL)  # how many at once changes nothing


def _of_kernel(function: Any, with_key: bool) -> Any:
    def evaluate(predictions, targets, kernel, key=None, **options):
        first = (key, kernel) if with_key else (kernel,)
        return function(*first, predictions, targets, **options)

    return evaluate


def _skce_tests(family: Family, name: str) -> list[Call]:
    tests = {
        "exact_skce_test": {
            "key": a.key(),
            "num_draws": B,
            "statistic": a.choice("omnibus"),
            "batch_size": BATCH,
        },
        "bootstrap_skce_test": {"key": a.key(), "num_draws": B, "batch_size": BATCH},
        "block_skce_test": {"block_size": a.integer(2), "variance": a.choice("blocks")},
        "spectrum_skce_test": {
            "key": a.key(),
            "num_draws": B,
            "num_eigenvalues": a.integer(3, limit=3),
            "method": a.choice("simulation"),
            "block_size": a.integer(2, without=a.OPTIONAL),
        },
        "gamma_skce_test": {},
        "pearson_skce_test": {"num_eigenvalues": a.integer(3, limit=3)},
        "distribution_free_skce_test": {
            "estimator": a.choice("biased"),
            "bound": a.scale(3.0, without=a.OPTIONAL),
        },
        "distribution_free_skce_confidence_interval": {
            "estimator": a.choice("biased"),
            "bound": a.scale(3.0, without=a.OPTIONAL),
            "confidence_level": a.proportion(0.9),
            "side": a.choice("lower"),
        },
        "skce_confidence_interval": {
            "confidence_level": a.proportion(0.9),
            "side": a.choice("two-sided"),
        },
        "bootstrap_skce_confidence_interval": {
            "key": a.key(),
            "confidence_level": a.proportion(0.9),
            "side": a.choice("lower"),
            "num_draws": B,
            "batch_size": BATCH,
        },
    }
    found = []
    for test, options in tests.items():
        function = _of_kernel(getattr(hypothesis_tests, test), "key" in options)
        record = "ConfidenceInterval" if "interval" in test else "CalibrationTestResult"
        covers = f"hypothesis_tests.{test} hypothesis_tests.{record}"
        if test == "exact_skce_test":
            covers += " hypothesis_tests.Component hypothesis_tests.SKCEComponents"
        # The small eigenvalues are differences of large numbers, which another rounding changes.
        without = ("once", "sum of one") if test == "spectrum_skce_test" else ()
        options = {"kernel": a.kernel(family.kernel, without=without), **options}
        slow = test not in ("block_skce_test", "distribution_free_skce_test")
        found.append(family.call(covers, function, f"{name}, options", slow=slow, **options))
    for name_of_blocks in (test for test in tests if test.startswith("distribution_free")):
        function = _of_kernel(getattr(hypothesis_tests, name_of_blocks), with_key=False)
        found.append(
            family.call(
                f"hypothesis_tests.{name_of_blocks}",
                functools.partial(function, kernel=family.kernel, estimator="block"),
                f"{name}, block",
                block_size=a.integer(2),
            )
        )
    return found


def _bias(predictions, targets):
    """The mean difference of what came and what was predicted."""
    return abs((targets - predictions.mean()).mean())


def _statistics() -> list[Call]:
    options = {"key": a.key(), "statistic": a.function(_bias), "num_draws": B}
    options["batch_size"] = BATCH

    def run(function):
        return lambda predictions, targets, key, statistic, **rest: function(
            key, statistic, predictions, targets, **rest
        )

    return [
        NORMAL.call(
            "hypothesis_tests.exact_test",
            run(hypothesis_tests.exact_test),
            "Normal",
            **options,
            adjust=a.truth(False),
            one_of=4,
            slow=True,
        ),
        NORMAL.call(
            "hypothesis_tests.consistency_test",
            run(hypothesis_tests.consistency_test),
            "Normal",
            **options,
            one_of=4,
            slow=True,
        ),
    ]


def _locations() -> list[Call]:
    kernel = kernels.TensorProduct(kernels.Exponential(1.5), kernels.SquaredExponential(1.2))

    def cme(predictions, targets, test_loc, test_scale, test_targets, kernel):
        test = Normal(test_loc, test_scale)
        return hypothesis_tests.cme_test(kernel, predictions, targets, test, test_targets)

    def cme_of_classes(predictions, targets, test_probs, test_targets):
        return hypothesis_tests.cme_test(
            CATEGORICAL.kernel, predictions, targets, Categorical(test_probs), test_targets
        )

    return [
        FAMILIES["Normal"].call(
            "hypothesis_tests.cme_test",
            cme,
            "Normal",
            test_loc=a.real(np.array([-1.0, 0.5, 1.5]), "test_predictions"),
            test_scale=a.positive(np.array([0.5, 1.0, 0.7]), "test_predictions"),
            test_targets=a.real(np.array([0.1, -0.5, 1.3])),
            kernel=a.kernel(kernel),
        ),
        CATEGORICAL.call(
            "hypothesis_tests.cme_test",
            cme_of_classes,
            "Categorical",
            test_probs=a.simplex(a.PROBS[4:7], "test_predictions"),
            test_targets=a.labels(np.array([0, 1, 2]), limit=3),
        ),
        call(
            "hypothesis_tests.draw_test_locations",
            hypothesis_tests.draw_test_locations,
            key=a.key(),
            num_locations=a.integer(3),
            dimension=a.integer(2, without=a.OPTIONAL),
            scale=a.scale(0.2),
        ),
    ]


def _local() -> list[Call]:
    data = {
        "features": a.real(a.FEATURES, without=("first column",)),  # one feature
        "confidences": a.unit(a.CONFIDENCES),
        "correct": a.truths(a.CORRECT),
    }
    options = {"num_draws": B, "batch_size": BATCH}
    return [
        call(
            "hypothesis_tests.local_calibration_test",
            lambda length_scale, num_bins, key, **rest: hypothesis_tests.local_calibration_test(
                key, Neighbourhood.laplacian(length_scale, num_bins), **rest
            ),
            "Laplacian",
            key=a.key(),
            **data,
            length_scale=a.scale(0.7, limit="vector"),
            num_bins=a.integer(2),
            **options,
            one_of=8,
            slow=True,
        ),
        call(
            "hypothesis_tests.local_calibration_test",
            lambda kernel, binning, key, **rest: hypothesis_tests.local_calibration_test(
                key, Neighbourhood(kernel, binning), **rest
            ),
            "kernel",
            key=a.key(),
            **data,
            kernel=a.kernel(kernels.Exponential(0.5), without=SEVERAL),
            binning=a.binning(estimators.UniformBins(2)),
            num_draws=B,
            one_of=8,
            slow=True,
        ),
    ]


def _groups() -> list[Call]:
    test = hypothesis_tests.group_calibration_test
    weights = a.real(a.FEATURES, "groups", without=("first column",))  # one group
    options = {"key": a.key(), "num_draws": B, "batch_size": BATCH, "one_of": 4, "slow": True}

    def run(predictions, targets, key, groups, **rest):
        return test(key, predictions, targets, groups, **rest)

    def run_with_residual(predictions, targets, key, groups, residual, **rest):
        return test(key, predictions, targets, groups, residual=residual, **rest)

    def residual(predictions, targets):
        return targets - predictions.loc

    covers = "hypothesis_tests.group_calibration_test"
    return [
        CATEGORICAL.call(covers, run, "Categorical", groups=weights, **options),
        NORMAL.call(
            covers,
            run_with_residual,
            "residual",
            groups=weights,
            residual=a.function(residual, without=a.OPTIONAL),
            **options,
        ),
    ]


def _ensembles() -> list[Call]:
    values = np.stack([a.LOC - 1, a.LOC + 0.3, a.LOC + 1], 1)
    data = {"values": a.real(values, "ensembles"), "targets": a.real(a.Y)}
    options = {"key": a.key(), "num_draws": B, "batch_size": BATCH, "one_of": 4, "slow": True}

    def skce(values, targets, key, kernel, **rest):
        ensembles = distributions.Samples(values)
        return hypothesis_tests.ensemble_skce_test(key, kernel, ensembles, targets, **rest)

    def ranks(values, targets, key, **rest):
        ensembles = distributions.Samples(values)
        return hypothesis_tests.rank_histogram_test(key, ensembles, targets, **rest)

    kernel = kernels.TensorProduct(
        kernels.Exponential(1.5, distances.Wasserstein()), kernels.SquaredExponential(1.2)
    )
    return [
        call(
            "hypothesis_tests.ensemble_skce_test",
            skce,
            **data,
            kernel=a.kernel(kernel),
            statistic=a.choice("omnibus"),
            **options,
        ),
        call("hypothesis_tests.rank_histogram_test", ranks, **data, **options),
    ]


def _aggregated() -> list[Call]:
    def one(predictions, targets, kernel, key, **rest):
        return hypothesis_tests.aggregated_skce_test(
            key, predictions, targets, kernels=[kernel], **rest
        )

    def default(predictions):
        return hypothesis_tests.default_kernels(predictions)

    def of_normals(loc, scale):
        return default(distributions.Normal(loc, scale))

    kernel = kernels.TensorProduct(
        kernels.Exponential(1.5, distances.Wasserstein()), kernels.SquaredExponential(1.2)
    )
    options = {"key": a.key(), "num_draws": B, "batch_size": BATCH, "one_of": 4, "slow": True}
    data = {"loc": a.real(a.LOC, "predictions"), "scale": a.positive(a.SCALE, "predictions")}
    return [
        NORMAL.call(
            "hypothesis_tests.aggregated_skce_test",
            one,
            "Normal",
            kernel=a.kernel(kernel, "kernels[0]"),
            **options,
        ),
        NORMAL.call(
            "hypothesis_tests.composite_calibration_test",
            lambda predictions, targets, key, **rest: hypothesis_tests.composite_calibration_test(
                key, recalibration.AffineScaling(), predictions, targets, kernels=kernel, **rest
            ),
            "Normal",
            **options,
        ),
        call("hypothesis_tests.default_kernels", of_normals, **data),
        call(
            "hypothesis_tests.default_kernel",
            lambda loc, scale: hypothesis_tests.default_kernel(distributions.Normal(loc, scale)),
            **data,
        ),
    ]


def _witness() -> list[Call]:
    at = {
        "at_loc": a.real(np.array([-1.0, 0.5, 1.5]), "at_predictions"),
        "at_scale": a.positive(np.array([0.5, 1.0, 0.7]), "at_predictions"),
        "at_targets": a.real(np.array([0.1, -0.5, 1.3])),
    }
    kernel = kernels.TensorProduct(kernels.Exponential(1.5), kernels.SquaredExponential(1.2))

    def values(predictions, targets, at_loc, at_scale, at_targets, kernel):
        at = Normal(at_loc, at_scale), at_targets
        return estimators.witness(kernel, predictions, targets, *at)

    def test(predictions, targets, at_loc, at_scale, at_targets, key, **rest):
        at = Normal(at_loc, at_scale), at_targets
        return hypothesis_tests.witness_test(key, kernel, predictions, targets, *at, **rest)

    options = {"key": a.key(), "num_draws": B, "batch_size": BATCH, "one_of": 4, "slow": True}
    return [
        NORMAL.call("estimators.witness", values, "Normal", **at, kernel=a.kernel(kernel)),
        NORMAL.call("hypothesis_tests.witness_test", test, "Normal", **at, **options),
    ]


def _clusters() -> list[Call]:
    """Calls for 12 samples in 10 clusters, the fewest that are allowed."""
    generator = np.random.default_rng(3)
    data = {
        "loc": a.real(generator.normal(size=12), "predictions"),
        "scale": a.positive(generator.uniform(0.4, 1.2, 12), "predictions"),
        "targets": a.real(generator.normal(size=12)),
        "clusters": a.integers(np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 4])),
    }
    kernel = kernels.TensorProduct(kernels.Exponential(1.5), kernels.SquaredExponential(1.2))

    def test(loc, scale, targets, key, **rest):
        predictions = Normal(loc, scale)
        return hypothesis_tests.cluster_skce_test(key, kernel, predictions, targets, **rest)

    def interval(loc, scale, targets, clusters):
        return hypothesis_tests.skce_confidence_interval(
            kernel, Normal(loc, scale), targets, clusters=clusters
        )

    options = {"key": a.key(), "num_draws": B, "batch_size": BATCH}
    covers = "hypothesis_tests.cluster_skce_test"
    return [
        call(covers, test, **data, **options, slow=True),
        call(
            "hypothesis_tests.skce_confidence_interval",
            interval,
            "clusters",
            **{**data, "clusters": dataclasses.replace(data["clusters"], without=a.OPTIONAL)},
            slow=True,
        ),
    ]


def _comparison() -> list[Call]:
    kernel = kernels.TensorProduct(
        kernels.Exponential(1.5, distances.Wasserstein()), kernels.SquaredExponential(1.2)
    )
    own = {
        "loc": a.real(a.LOC, "predictions"),
        "scale": a.positive(a.SCALE, "predictions"),
    }

    def with_other(name: str) -> dict[str, Any]:
        return {**own, "mean": a.real(a.LOC[::-1], name), "deviation": a.positive(a.SCALE, name)}

    def compare(loc, scale, mean, deviation, targets, **rest):
        models = Normal(loc, scale), Normal(mean, deviation)
        return hypothesis_tests.compare_skce(kernel, *models, targets, **rest)

    def cross(key, loc, scale, mean, deviation, targets, **rest):
        models = Normal(loc, scale), Normal(mean, deviation)
        return hypothesis_tests.cross_calibration_test(key, kernel, *models, targets, **rest)

    def of_truth(key, loc, scale, mean, deviation, **rest):
        models = Normal(loc, scale), Normal(mean, deviation)
        return hypothesis_tests.calibration_margin(key, kernel, *models, **rest)

    def exact(key, loc, scale, mean, deviation, targets, **rest):
        predictions, truth = Normal(loc, scale), Normal(mean, deviation)
        test = hypothesis_tests.exact_equivalence_test
        return test(key, kernel, predictions, targets, truth, **rest)

    def against(test):
        def evaluate(loc, scale, targets, margin):
            return test(kernel, Normal(loc, scale), targets, margin=margin)

        return evaluate

    targets, drawn = {"targets": a.real(a.Y)}, {"key": a.key(), "num_draws": a.integer(9)}
    covers = "hypothesis_tests.compare_skce"
    alternative = a.choice("greater")
    given, truth = with_other("given"), with_other("truth")
    return [
        call(
            covers,
            compare,
            **with_other("others"),
            **targets,
            alternative=alternative,
            weights=a.weights(np.linspace(1, 2, len(a.Y)), without=a.OPTIONAL),
        ),
        call(
            "hypothesis_tests.cross_calibration_test",
            cross,
            **drawn,
            **given,
            **targets,
            weights=a.weights(np.linspace(1, 2, len(a.Y)), without=a.OPTIONAL),
        ),
        call("hypothesis_tests.calibration_margin", of_truth, **drawn, **truth),
        call("hypothesis_tests.exact_equivalence_test", exact, **drawn, **truth, **targets),
        *_score_differences(with_other("others") | targets),
        *(
            call(
                f"hypothesis_tests.{test.__name__}",
                against(test),
                **own,
                **targets,
                margin=a.scale(0.3),
            )
            for test in (
                hypothesis_tests.tolerant_skce_test,
                hypothesis_tests.equivalence_skce_test,
            )
        ),
    ]


def _score_differences(data: dict[str, Any]) -> list[Call]:
    def of(function, *first):
        def difference(loc, scale, mean, deviation, targets, **rest):
            models = Normal(loc, scale), Normal(mean, deviation)
            keys = (rest.pop("key"),) if "key" in rest else ()
            return function(*keys, *first, *models, targets, **rest)

        return difference

    level = {"confidence_level": a.proportion(0.9)}
    method, score = recalibration.AffineScaling(), {"score": a.function(scores.crps)}
    optional = {"score": a.function(scores.crps, without=a.OPTIONAL)}
    sequence = hypothesis_tests.score_confidence_sequence
    shapes = ("one more axis", "matrix", "leading axis", "one-column DataFrame")  # all [..., k]
    pvalues = a.unit(a.CONFIDENCES, without=(*shapes, *a.ALONE))
    return [
        call(
            "hypothesis_tests.score_difference hypothesis_tests.ScoreDifference",
            of(hypothesis_tests.score_difference),
            **data,
            **level,
            **optional,
            one_of=4,
        ),
        call(
            "hypothesis_tests.gain_difference",
            of(hypothesis_tests.gain_difference, method),
            **data,
            **level,
            **optional,
            key=a.key(),
            num_folds=a.integer(2),
            one_of=8,
            slow=True,
        ),
        call(
            "hypothesis_tests.score_confidence_sequence hypothesis_tests.ConfidenceSequence",
            of(sequence),
            **data,
            **level,
            **score,
            bound=a.scale(9.0),
            one_of=4,
        ),
        call("hypothesis_tests.holm", hypothesis_tests.holm, pvalues=pvalues),
    ]


def _power() -> list[Call]:
    data = {
        "loc": a.real(a.LOC, "predictions"),
        "scale": a.positive(a.SCALE, "predictions"),
        "mean": a.real(a.LOC + 1, "alternative"),
        "deviation": a.positive(a.SCALE, "alternative"),
    }
    test = functools.partial(
        hypothesis_tests.exact_test, statistic=lambda p, y: ((y - p.loc) / p.scale).sum()
    )

    def curve(key, loc, scale, mean, deviation, size, **rest):
        models = Normal(loc, scale), Normal(mean, deviation)
        return hypothesis_tests.power_curve(key, test, *models, [size], **rest)

    def needed(key, loc, scale, mean, deviation, **rest):
        models = Normal(loc, scale), Normal(mean, deviation)
        return hypothesis_tests.sample_size(key, test, *models, **rest)

    options = {
        "key": a.key(),
        "num_data_sets": a.integer(20),
        "num_draws": a.integer(19, without=("one",)),
        "significance": a.proportion(0.2),
        "compiled": False,
        "reason": "kernels are planned for predictions that are known",
        "one_of": 8,
        "slow": True,
    }
    return [
        call(
            "hypothesis_tests.power_curve hypothesis_tests.PowerCurve",
            curve,
            **data,
            size=a.integer(3, "sizes"),
            **options,
        ),
        call(
            "hypothesis_tests.sample_size hypothesis_tests.SampleSize",
            needed,
            **data,
            power=a.proportion(0.6),
            max_size=a.integer(8, without=a.OPTIONAL),
            **options,
        ),
    ]


def _coverage() -> list[Call]:
    def of_quantiles(function: Any) -> Any:
        def evaluate(levels: Any, values: Any, targets: Any, **options: Any) -> Any:
            predictions = distributions.Quantiles(levels, values)
            return function(predictions=predictions, targets=targets, **options)

        return evaluate

    own = (*a.ALONE, "scalar", "one row", "one row less", "one row more", "leading axis")
    data = {
        # Levels that are the same for all predictions come with one axis, or with two.
        "levels": a.positive(np.array([0.2, 0.5, 0.8]), without=own),
        "values": a.real(np.stack([a.LOC - 1, a.LOC, a.LOC + 1], 1), "predictions"),
        "targets": a.real(a.Y),
    }
    return [
        call(
            "hypothesis_tests.coverage_test distributions.Quantiles",
            of_quantiles(hypothesis_tests.coverage_test),
            **data,
            key=a.key(),
            num_draws=B,
            batch_size=BATCH,
        ),
        call(
            "scores.pinball_loss distributions.Quantiles", of_quantiles(scores.pinball_loss), **data
        ),
    ]


def _combined() -> list[Call]:
    shape = (5,)
    generator = np.random.default_rng(2)

    def combine(statistic, first_draws, second_draws):
        make = hypothesis_tests.CalibrationTestResult
        one, two = (
            make(statistic, np.float32(0.5), np.float32(0.3), draws, draws="redrawn targets")
            for draws in (first_draws, second_draws)
        )
        return hypothesis_tests.combine_results(one, two)

    def combine_record(first, other):
        return hypothesis_tests.combine_results(first, other)

    def result(seed):
        return hypothesis_tests.CalibrationTestResult(
            np.float32(0.5),
            np.float32(0.5),
            np.float32(0.1),
            np.random.default_rng(seed).normal(size=5).astype(np.float32),
            draws="redrawn targets",
        )

    own = ("results", "null_samples", "draws")
    # Another number of draws is as good, and infinite statistics have a rank.
    alone = (*a.ALONE, "inf", "-inf")
    return [
        call(
            "hypothesis_tests.combine_results hypothesis_tests.CalibrationTestResult",
            combine,
            "draws",
            statistic=a.number(0.3, "results", without=("inf", "-inf")),
            first_draws=a.real(generator.normal(size=shape), *own, without=alone),
            second_draws=a.real(generator.normal(size=shape), *own, without=alone),
        ),
        call(
            "hypothesis_tests.combine_results",
            combine_record,
            "records",
            first=a.record(result(1), "results"),
            other=a.record(result(2), "results"),
            compiled=False,
            reason="of these records; the call above is compiled",
        ),
    ]


def _classical() -> list[Call]:
    found = []
    for name in ("cox", "cumulative_difference", "spiegelhalter"):
        statistic = getattr(hypothesis_tests, name)
        found.append(BERNOULLI.call(f"hypothesis_tests.{name}", statistic, "Bernoulli"))
    hosmer_lemeshow = hypothesis_tests.hosmer_lemeshow
    covers = "hypothesis_tests.hosmer_lemeshow"
    found.append(BERNOULLI.call(covers, hosmer_lemeshow, "Bernoulli", num_bins=a.integer(3)))
    covers = "hypothesis_tests.cox_regression hypothesis_tests.CoxRegression"
    regression = hypothesis_tests.cox_regression
    level = a.proportion(0.9)
    found.append(BERNOULLI.call(covers, regression, "Bernoulli", confidence_level=level))
    spiegelhalter = hypothesis_tests.spiegelhalter
    for name in ("berkowitz", "pit_ks"):
        statistic = getattr(hypothesis_tests, name)
        found += [
            FAMILIES[family].call(f"hypothesis_tests.{name}", statistic, family)
            for family in ("Normal", "Laplace")
        ]
    return [
        *found,
        CATEGORICAL.call("hypothesis_tests.spiegelhalter", spiegelhalter, "Categorical"),
    ]


def _sequential() -> list[Call]:
    """Bets by sums are quick to compile; the others are in tests/hypothesis_tests."""
    bets = {"Normal": recalibration.AffineScaling(), "Bernoulli": recalibration.BiasScaling()}
    families = {"Normal": NORMAL, "Bernoulli": BERNOULLI}
    found = [
        families[name].call(
            "hypothesis_tests.e_process hypothesis_tests.EProcessResult",
            functools.partial(hypothesis_tests.e_process, bet),
            name,
            horizon=a.integer(1),
            forget=a.scale(0.9),
            level=a.proportion(0.1),
        )
        for name, bet in bets.items()
    ]

    def number(predictions: Any) -> int:
        return len(hypothesis_tests.default_bets(predictions))

    return [*found, NORMAL.call("hypothesis_tests.default_bets", number, "Normal", "targets")]


def calls() -> list[Call]:
    """Calls of all tests."""
    found = [*_skce_tests(NORMAL, "Normal"), *_skce_tests(CATEGORICAL, "Categorical")]
    found += [*_groups(), *_ensembles(), *_clusters(), *_comparison(), *_witness()]
    found += [*_aggregated(), *_power(), *_sequential()]
    found += _classical()
    return [*found, *_statistics(), *_locations(), *_local(), *_coverage(), *_combined()]
