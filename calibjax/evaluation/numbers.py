"""Errors of predicted numbers and vectors: coverage, bias and spread."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax import estimators, hypothesis_tests, plotting
from calibjax._core import checks
from calibjax.distributions import Ensemble, Quantiles
from calibjax.distributions.base import Distribution
from calibjax.evaluation.classes import means_test
from calibjax.evaluation.data import RANKS, REDRAWS, TARGETS, Data, Part, ranks
from calibjax.evaluation.entries import BAND_LEVEL, Entry, Panel, Section
from calibjax.evaluation.findings import Coverage, MeanError
from calibjax.evaluation.measures import mean_error
from calibjax.hypothesis_tests import CalibrationTestResult
from calibjax.hypothesis_tests.coverage import central_pairs, coverage_among_redraws, differences
from calibjax.hypothesis_tests.groups import mean_residual

LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)
_NUM_REDRAWS = 999


def residual_spread(
    predictions: Distribution, targets: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Standard deviation of the targets about the predicted means, in predicted deviations.

        √(n⁻¹ Σ_i (z_i - z̄)²),    z_i = (y_i - E Y_i) / √(Var Y_i),    Y_i ~ p_i;

    about one for a calibrated model, above it if predictions are too narrow, below it if they are
    too wide. A bias that all predictions share does not change it. Of vectors, the root mean square
    over the coordinates.

    Args:
        predictions: batch of n distributions with `mean` and `variance`.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n], with which both means are taken.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind, or the predictions have no `mean` or no
            `variance`.
        ValueError: if shapes or values are wrong.

    Cost: O(n).

    References: none of the four papers has it.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, evaluation
    >>> predictions = distributions.Normal(jnp.zeros(1000), jnp.full(1000, 2.0))
    >>> targets = 5.0 + 3.0 * jax.random.normal(jax.random.key(0), (1000,))
    >>> print(f"{evaluation.residual_spread(predictions, targets):.1f}")
    1.5
    """
    predictions, targets, weights = checks.weighted_samples(predictions, targets, weights)
    checks.method("predictions", predictions, "mean")
    checks.method("predictions", predictions, "variance")

    return _residual_spread(predictions, targets, weights)


@jax.jit
def _residual_spread(
    predictions: Distribution, targets: Any, weights: jax.Array | None
) -> jax.Array:
    def standardised(p: Any, y: jax.Array) -> jax.Array:
        variance = p.variance()
        deviation = jnp.sqrt(jnp.where(variance > 0, variance, jnp.nan))
        return (y - p.mean()) / deviation

    values = jax.vmap(standardised)(predictions, targets)
    mean = functools.partial(jnp.average, axis=0, weights=weights)
    return jnp.sqrt(jnp.mean(mean(jnp.square(values - mean(values)))))


def errors_of_numbers(data: Data) -> Part:
    """Bias, spread, and coverage of the central intervals."""
    found = _bias(data) | _spread(data) | _coverage(data) | Part(panels=_figures(data))
    entries = tuple(entry for section in found.sections for entry in section.entries)
    remark = " ".join(section.remark for section in found.sections if section.remark)
    section = (Section("Bias, spread and coverage", entries, remark),) if entries else ()
    return dataclasses.replace(found, sections=section)


def _bias(data: Data) -> Part:
    """Mean of targets minus predictions, in units of the targets."""
    if data.task in ("ensembles", "quantiles") or not hasattr(data.predictions, "mean"):
        return Part()
    predictions, targets = data.samples
    test, call = means_test(data)
    means = data.known(_means(predictions)).astype(float)
    residuals = data.known(mean_residual(predictions, targets))
    both = (x.reshape(data.size, -1).T for x in (means, residuals))
    entries, errors = [], []
    for i, (mean, residual) in enumerate(zip(*both, strict=True)):
        coordinate, name, place = "", "bias (target - predicted mean)", (0,)
        if means.ndim > 1:
            coordinate, place = f"coordinate {i}", (0, i)
            name = f"bias of {coordinate}"
        entry, p = mean_error(name, test, call, place, residual, data.shares)
        entries.append(entry)
        predicted = float(data.average(mean))
        errors.append(MeanError(coordinate, predicted, predicted + entry.value, p))
    findings: dict[str, Any] = {"bias": tuple(errors)}
    if means.ndim == 1 and hasattr(predictions, "variance"):
        variances = data.known(_variances(predictions)).astype(float)
        deviation = float(np.median(np.sqrt(variances)))
        findings["deviation"] = deviation if math.isfinite(deviation) else None
    return Part((Section("", tuple(entries)),), findings, tests={(TARGETS, "means"): test})


@jax.jit
def _means(predictions: Distribution) -> jax.Array:
    return jax.vmap(lambda p: p.mean())(predictions)


@jax.jit
def _variances(predictions: Distribution) -> jax.Array:
    return jax.vmap(lambda p: p.variance())(predictions)


def _spread(data: Data) -> Part:
    """Spread of the residuals."""
    has_moments = all(hasattr(data.predictions, name) for name in ("mean", "variance"))
    if data.task in ("ensembles", "quantiles") or not has_moments:
        return Part()
    value = float(residual_spread(*data.samples, weights=data.weights))
    if not (math.isfinite(value) and value > 0):  # there are distributions without a variance
        return Part()
    test = hypothesis_tests.exact_test(
        data.at(REDRAWS),
        _distance_from_one,
        data.predictions,
        data.targets,
        weights=data.weights,
        num_draws=_NUM_REDRAWS,
    )
    chance = math.exp(test.critical_value())
    entry = Entry(
        "spread of the residuals",
        value,
        by_chance=(1 / chance, chance),
        pvalue=float(test.pvalue),
        function=f"evaluation.residual_spread(predictions, targets{data.and_weights})",
    )
    remark = "The spread is the standard deviation of (target - mean) / standard deviation."
    sections = (Section("", (entry,), remark),)
    return Part(sections, {"spread": entry}, tests={(TARGETS, "spread"): test})


def _distance_from_one(
    predictions: Distribution, targets: Any, weights: jax.Array | None = None
) -> jax.Array:
    """The statistic of the spread, two-sided."""
    return jnp.abs(jnp.log(residual_spread(predictions, targets, weights=weights)))


def _coverage(data: Data) -> Part:
    """Shares of targets in the central intervals, and up to the quantiles."""
    if data.pit is None:
        return Part()
    test, ties, redrawn = _coverage_test(data)
    levels, central, pairs = _levels(data)
    entries, largest = [], test.critical_value()
    errors, pvalues, ties = jax.tree.map(np.asarray, (test.estimate, test.adjusted_pvalue, ties))
    for kind, values, words in (
        ("central", central, "central {} % intervals"),
        ("levels", levels, "{} % quantiles"),
    ):
        for i, nominal in enumerate(map(float, values)):
            chance, tied = float(largest[kind][i]), float(ties[kind][i])
            entry = Entry(
                f"coverage of the {words.format(f'{100 * nominal:.4g}')}",
                # Rounding must not take a share of 0 or 1 out of its range.
                min(1.0, max(0.0, nominal + float(errors[kind][i]))),
                # A calibrated model covers more than the nominal share where targets tie.
                by_chance=(max(0.0, nominal - chance), min(1.0, nominal + chance + tied)),
                pvalue=float(pvalues[kind][i]),
                function=_coverage_call(data, kind, i, nominal),
            )
            entries.append(entry)
    remark, exact = "Coverage is that of the ", "exact"
    findings = _coverages(levels, central, pairs, entries)
    if data.task == "quantiles":
        remark += "predicted quantiles; "
        found = zip(levels, entries[central.size :], pvalues["levels"], strict=True)
        errors = (MeanError("", float(x), entry.value, float(p)) for x, entry, p in found)
        findings["quantiles"] = tuple(error for error in errors if error.predicted != 0.5)
        if ties["central"].any() or ties["levels"].any():
            remark += "intervals contain their ends, with which targets tie; "
            exact = "those of randomised ranks"
        if number := np.isinf(data.known(data.predictions.values)).any(1).sum():
            remark += f"{number} of {data.size} predictions have intervals of infinite width; "
    else:
        remark += "PIT values in result.arrays['pit'] (estimators.pit_values); "
    remark += (
        f"its p-values are {exact} and adjusted for all levels (hypothesis_tests.coverage_test)."
    )
    sections = (Section("", tuple(entries), remark),)
    return Part(sections, findings, tests={(redrawn, "coverage"): test})


def _coverage_call(data: Data, kind: str, place: int, nominal: float) -> str:
    """The share of targets in an interval, or up to a quantile."""
    key = "jax.random.fold_in(key, 6)"
    if data.task == "quantiles":
        call = f"{nominal:.6g} + hypothesis_tests.coverage_test({key}, predictions, targets, "
        return f"{call}num_draws={_NUM_REDRAWS}{data.and_weights}).estimate[{kind!r}][{place}]"
    option = "" if kind == "central" else "kind='quantile', "
    call = f"estimators.coverage_curve({key}, result.arrays['pit'], {option}"
    call += f"levels=jnp.array([{nominal:.6g}])"
    return f"{call}{data.and_weights}).coverage[0]"


def _coverages(levels: Any, central: Any, pairs: Any, entries: list[Entry]) -> dict[str, Any]:
    """What the sentences say of the coverage of the intervals, and of the median."""
    intervals, quantiles = entries[: central.size], entries[central.size :]
    above = [levels[i] - quantiles[i].value for i in pairs[1]]
    pvalues = [1.0 if entry.pvalue is None else entry.pvalue for entry in entries]
    found: dict[str, Any] = {
        "coverage": tuple(
            Coverage(
                nominal=float(central[i]),
                observed=entry.value,
                below=float(central[i]) - entry.value - above[i],
                above=above[i],
                pvalue=pvalues[i],
            )
            for i, entry in enumerate(intervals)
        )
    }
    for entry, level in zip(quantiles, levels, strict=True):
        if level == 0.5 and entry.pvalue is not None:
            found["median"] = MeanError("", 0.5, entry.value, entry.pvalue)
    return found


def _coverage_test(data: Data) -> tuple[CalibrationTestResult, Any, str]:
    """The test of the coverage, shares that it has by ties alone, and what is redrawn.

    The levels are those of the predictions if they have some. Of predictions with quantiles the
    targets are redrawn, as for the other tests, and otherwise uniform PIT values.
    """
    uniform, pit = ranks(data)
    inner, redrawn, drawn = data.predictions, RANKS, (uniform, pit)
    levels = jnp.asarray(LEVELS, pit.dtype)
    is_continuous = not getattr(getattr(inner, "support", None), "is_integer", False)
    if isinstance(inner, Quantiles):
        levels = inner.levels
    if hasattr(inner, "icdf") and is_continuous and not isinstance(inner, Quantiles | Ensemble):
        redrawn, drawn = TARGETS, (inner, data.targets)
        values: Any = _quantiles(inner, levels)
    else:
        values = np.broadcast_to(levels, (data.length, levels.shape[-1]))
    key, quantiles = data.at(REDRAWS), Quantiles(levels, values)
    more = data.weights, central_pairs(levels)
    test = coverage_among_redraws(key, quantiles, *drawn, more[0], num_draws=_NUM_REDRAWS)
    errors = found = differences(quantiles, *more, drawn[1])
    if isinstance(inner, Quantiles):
        errors = differences(inner, *more, data.targets)
    ties = jax.tree.map(jnp.subtract, errors, found)
    return dataclasses.replace(test, estimate=errors), ties, redrawn


@jax.jit
def _quantiles(predictions: Distribution, levels: jax.Array) -> jax.Array:
    return jax.vmap(lambda p: jax.vmap(p.icdf)(levels))(predictions)


def _levels(data: Data) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Levels, [k], probabilities of central intervals, and `central_pairs`.

    Levels that differ between the predictions are their means.
    """
    is_own = isinstance(data.predictions, Quantiles)
    levels = np.asarray(data.predictions.levels if is_own else LEVELS, float)
    pairs, levels = central_pairs(levels), levels.reshape(-1, levels.shape[-1]).mean(0)
    return levels, levels[pairs[1]] - levels[pairs[0]], pairs


def pit_panel(data: Data) -> Panel:
    """PIT histogram, if there are PIT values."""
    assert data.pit is not None, "by the caller"
    caption = "Histogram of the PIT values: flat for a calibrated model, whose bars are all in the "
    caption += (
        "band with a probability of 95 %. High ends mean that the predictions are too narrow, "
    )
    caption += "a high middle that they are too wide, a slope that they are biased."
    options = {"weights": data.weights, "confidence_level": BAND_LEVEL}
    pit = estimators.pit_counts(data.at(5), data.pit, **options)
    return Panel("PIT histogram", caption, plotting.pit_histogram, pit)


def _figures(data: Data) -> tuple[Panel, ...]:
    """PIT histogram, and coverage of the intervals over their level."""
    if data.pit is None:
        return ()
    panels, levels = (pit_panel(data),), None
    if isinstance(data.predictions, Quantiles):  # which say nothing about other levels
        _, levels, _ = _levels(data)
        if not levels.size:
            return panels
    caption = "Share of targets in the central prediction intervals over their level: below the "
    caption += "diagonal they are too narrow, above it too wide. The band contains all points of a "
    caption += "calibrated model with a probability of 95 %."
    curve = estimators.coverage_curve(
        data.at(5), data.pit, levels=levels, weights=data.weights, confidence_level=BAND_LEVEL
    )
    return (*panels, Panel("coverage", caption, plotting.coverage_curve, curve))
