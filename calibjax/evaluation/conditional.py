"""Errors in groups, and given features."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from calibjax import distances, distributions, estimators, hypothesis_tests
from calibjax.distributions import Uniform
from calibjax.evaluation.data import Data, Part, central, measured, reached, shown_classes
from calibjax.evaluation.findings import GroupError
from calibjax.evaluation.overall import SCALE_SAMPLES, Choice, chosen_kernels, exact_skce, low_rank
from calibjax.evaluation.record import Entry, Section
from calibjax.hypothesis_tests import CalibrationTestResult
from calibjax.kernels import SquaredExponential, TensorProduct, median_heuristic

LOCAL_SAMPLES = 5000  # up to this n local errors are tested
_KINDS = {  # of errors, see `GroupError`
    "bias": "bias",
    "confidence": "accuracy - mean confidence",
    "class": "observed - predicted frequency",
    "PIT": "mean PIT - 1/2",
}
_NEIGHBOURHOOD = estimators.Neighbourhood.laplacian(0.5, 10)


def errors_in_groups(data: Data) -> Part:
    """Mean errors in each group, with family-wise p-values."""
    if data.memberships is None:
        return Part()
    tested = _tested_groups(data)
    if tested is None:
        remark = (
            "Ensembles and quantile forecasts of vectors have no mean errors with an exact test."
        )
        return Part((Section("Groups", (), remark),))
    test, kinds, call = tested
    entries, errors = [], []
    for g, group in enumerate(data.group_names):
        for (kind, name), place in kinds.items():
            at = (g, *place)
            chance = reached(test.null_samples[(slice(None), *at)])
            value, pvalue = float(test.estimate[at]), float(test.adjusted_pvalue[at])
            words = _KINDS[kind] + (f" of {name}" if name else "")
            entry = Entry(
                f"{words}, {group}",
                value,
                by_chance=(-chance, chance),
                pvalue=pvalue,
                function=f"{call}.estimate[{', '.join(map(str, at))}]",
            )
            entries.append(entry)
            errors.append(GroupError(group, kind, name, value, pvalue))
    remark = (
        "Mean errors of the members; p-values are exact and adjusted for all groups and errors."
    )
    findings = {"groups": tuple(errors)}
    section = Section("Groups", tuple(entries), remark)
    return Part((section,), findings, tests={"groups": test})


def _tested_groups(
    data: Data,
) -> tuple[CalibrationTestResult, dict[tuple[str, str], tuple[int, ...]], str] | None:
    """The test, the places of the kinds of errors in its arrays, and its call."""
    predictions, targets = data.predictions, data.targets
    arguments = "predictions, targets"
    if data.is_of_classes:
        kinds = {("class", f"class {c}"): (c,) for c in shown_classes(predictions.class_probs)}
        if data.task == "classification":
            kinds = {("confidence", ""): (predictions.class_probs.shape[1],)} | kinds
    elif data.task in ("ensembles", "quantiles") or not hasattr(predictions, "mean"):
        if data.pit is None:
            return None
        # Under calibration PIT values are uniform, whatever else is known of the predictions.
        n, dtype = data.size, data.pit.dtype
        predictions, targets = Uniform(jnp.zeros(n, dtype), jnp.ones(n, dtype)), data.pit
        arguments = f"distributions.Uniform(jnp.zeros({n}), jnp.ones({n})), result.arrays['pit']"
        kinds = {("PIT", ""): ()}
    elif jnp.ndim(targets) == 1:
        kinds = {("bias", ""): ()}
    else:
        kinds = {("bias", f"coordinate {i}"): (i,) for i in range(targets.shape[1])}
    test = hypothesis_tests.group_calibration_test(
        data.at(7), predictions, targets, data.memberships
    )
    call = f"hypothesis_tests.group_calibration_test(jax.random.fold_in(key, 7), {arguments}, "
    return test, kinds, call + "result.arrays['memberships'])"


def errors_given_features(data: Data) -> Part:
    """Whether predictions are right given the features, and local errors of classes."""
    if data.features is None:
        return Part()
    if data.task == "quantiles":
        return Part(
            (Section("Features", (), "Quantile forecasts have no kernel calibration error."),)
        )
    entry, test, kernel, how = _features_test(data, chosen_kernels(data))
    findings: dict[str, float | None] = {"features": entry.value}
    entries = [entry]
    remark = "Asks for more than calibration: that predictions are right given the features, which "
    remark += f"are divided by their standard deviations. {how}"
    if data.is_of_classes:
        local = _local_entries(data)
        entries += local
        findings["local"] = local[-1].pvalue
        remark += "Local errors are those of the top label in neighbourhoods with a length scale of"
        remark += " half a standard deviation of each feature, and ten confidence bins."
    section = Section("Given the features", tuple(entries), remark)
    return Part((section,), findings, {"features": kernel}, {"features": test})


def _features_test(data: Data, chosen: Choice) -> tuple[Entry, CalibrationTestResult, Any, str]:
    """The exact test with a kernel that looks at the features."""
    step = -(-data.size // SCALE_SAMPLES)
    assert data.features is not None, "by the caller"
    features = data.features
    scale = median_heuristic(distances.Euclidean(), features[::step])
    closeness = SquaredExponential(scale, distances.Features(distances.Euclidean()))
    kernel = TensorProduct(closeness, chosen.kernel.target)
    predictions = distributions.with_features(chosen.predictions, features)
    kernel, how = low_rank(data, kernel, predictions)
    test, name = exact_skce(data, kernel, predictions, 8)
    call = f"hypothesis_tests.{name}(jax.random.fold_in(key, 8), result.kernels['features'], "
    call += f"distributions.with_features({chosen.drawn}, result.arrays['features']), targets, "
    call += "num_samples=999)"
    entry = measured("exact p-value given the features", call, lambda: test)
    return entry, test, kernel, how


def _local_entries(data: Data) -> list[Entry]:
    """Mean and largest local errors of the top label."""
    assert data.features is not None, "by the caller"
    confidences, correct = estimators.top_label(data.predictions, data.targets)
    arguments = _NEIGHBOURHOOD, data.features, confidences, correct
    call = "estimators.Neighbourhood.laplacian(0.5, 10), result.arrays['features'], "
    call += "*estimators.top_label(predictions, targets))"
    mean_chance = largest_chance = pvalue = None
    if data.size <= LOCAL_SAMPLES:
        test = hypothesis_tests.local_calibration_test(data.at(10), *arguments, num_samples=199)
        draws = np.asarray(test.null_samples, float)
        mean_chance, largest_chance = map(central, (draws.mean(1), draws.max(1)))
        pvalue = float(jnp.min(test.adjusted_pvalue))
    return [
        measured(
            "mean local error (LCE)",
            f"estimators.mean_lce({call}",
            lambda: estimators.mean_lce(*arguments),
            by_chance=mean_chance,
        ),
        measured(
            "largest local error (MLCE)",
            f"estimators.mlce({call}",
            lambda: estimators.mlce(*arguments),
            by_chance=largest_chance,
            pvalue=pvalue,
            note="the p-value is that of the largest standardised local error",
        ),
    ]
