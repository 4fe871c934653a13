"""The sections of an evaluation: functions that return rows, and what may be said of them."""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import (
    distances,
    distributions,
    estimators,
    hypothesis_tests,
    kernels,
    plotting,
    recalibration,
    scores,
)
from calibjax._core.gate import inner
from calibjax.binnings import EqualMassBins, UniformBins
from calibjax.distributions import Bernoulli, Ensemble, Uniform
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.evaluation import record
from calibjax.evaluation.data import (
    LEVEL,
    MEMBERS,
    RANKS,
    REDRAWS,
    TARGETS,
    Data,
    Finding,
    Part,
    chance,
    measured,
    scatter_of,
    shown_classes,
)
from calibjax.evaluation.record import (
    BAND_LEVEL,
    Advice,
    Entry,
    Panel,
    Section,
    number,
    percent,
    percents,
    with_ends,
)
from calibjax.hypothesis_tests.ensembles import with_targets
from calibjax.hypothesis_tests.groups import central_pairs, mean_residual
from calibjax.kernels.defaults import NUM_LANDMARKS, affordable, thinned
from calibjax.kernels.expectations import prepare_features
from calibjax.lenses import OneVersusRest
from calibjax.recalibration.base import tempered

LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)  # of predictions without levels of their own
NUM_BINS = 10
_LEAST = 20  # samples in a bin of the reliability diagram, on average
_NUM_DRAWS = 199  # for the ranges of ECEs
_TEST = "mean errors"
_RANK = "their mean rank within the predictions is {} instead of {}"
_NARROW, _WIDE = (f"the predicted distributions are too {x}" for x in ("narrow", "wide"))


@dataclasses.dataclass(frozen=True)
class Residuals:
    """Residuals of numbers, whose means are zero under calibration: [n, d + 1 + k + c].

    They are those of the mean and of the squared error over the variance, of the events "PIT value
    at most the level" of k levels, and of c central intervals between two of these.

    Attributes:
        has_moments: whether there are the first d + 1.
        levels: of the events.
        pairs: places of both levels of each interval.
    """

    has_moments: bool
    levels: tuple[float, ...]
    pairs: tuple[tuple[int, int], ...]

    def __call__(self, predictions: Any, targets: jax.Array) -> jax.Array:
        """The residuals."""
        parts, n = [], len(targets)
        if self.has_moments:
            means, inverse = moments(predictions)
            error = targets.reshape(n, -1).astype(means.dtype) - means
            parts = [error, jnp.mean(jnp.square(inverse * error) - (inverse > 0), 1, keepdims=True)]
        if self.levels:
            pit = jax.vmap(lambda p, y: p.cdf(y))(predictions, targets)
            levels = jnp.asarray(self.levels, pit.dtype)
            events = (pit[:, None] <= levels) - levels
            parts += [events, *(events[:, [high]] - events[:, [low]] for low, high in self.pairs)]
        return jnp.concatenate(parts, 1)


def moments(predictions: Distribution) -> tuple[jax.Array, jax.Array]:
    """Means and inverse standard deviations, zero where there is none, [n, d] each."""

    def one(p: Any) -> tuple[jax.Array, jax.Array]:
        mean = jnp.atleast_1d(p.mean())
        variance = p.variance() if hasattr(p, "variance") else jnp.zeros_like(mean)
        has_one = jnp.isfinite(variance) & (variance > 0)
        inverse = jnp.where(has_one, jnp.where(has_one, variance, 1) ** -0.5, 0)
        return mean, jnp.broadcast_to(jnp.atleast_1d(inverse), mean.shape).astype(mean.dtype)

    return jax.vmap(one)(predictions)


_moments = jax.jit(moments)
_residuals = jax.jit(lambda residual, samples: residual(*samples), static_argnums=0)


class Column(NamedTuple):
    """One residual: what is observed and predicted, and what is said if they differ.

    Attributes:
        place: of the residual.
        name: of what is observed.
        values: an expression of it, whose mean is the call of the entry.
        expected: its predicted mean, [n], or a number.
        words: what is wrong if less is observed than predicted, and if more is.
        text: the numbers, a function of the entry.
        advice: what to do about it.
        kind: "share" is between 0 and 1; of "root" the root of the mean is shown, whose prediction
            is one.
        in_groups: whether groups have it, too.
        is_last: whether it is said only if nothing else is.
        is_repaired: whether a temperature that helps makes the advice unnecessary.
        tails: places of the errors at the two ends of an interval.
        scales: predicted standard deviations, by which a bias is divided, [d].
    """

    place: int
    name: str
    values: str
    expected: Any
    words: tuple[str, str]
    text: Callable[[Entry], str]
    advice: Advice | None
    kind: str = ""
    in_groups: bool = True
    is_last: bool = False
    is_repaired: bool = False
    tails: tuple[int, ...] = ()
    scales: Any = None

    def shown(self, error: float, expected: float) -> float:
        """The observed value."""
        if self.kind == "root":
            return math.sqrt(max(0.0, expected + error))
        # Rounding must not take a share out of its range.
        return min(1.0, max(0.0, expected + error)) if self.kind else expected + error


def mean_errors(data: Data) -> Part:
    """What is observed and predicted on average, over all samples and in groups."""
    law = _of_classes(data) if data.is_of_classes else _of_numbers(data)
    redrawn, samples, residual, columns = law
    if not columns:
        return Part()
    members, names = np.ones((data.length, 1)), ("", *data.group_names)
    if data.memberships is not None:
        members = np.concatenate([members, np.asarray(data.memberships)], 1)
    options: Any = {"weights": data.weights, "residual": residual}
    key = data.at(REDRAWS)
    test = hypothesis_tests.group_calibration_test(key, *samples, members, **options)
    values = mean_residual(*samples) if residual is None else _residuals(residual, samples)
    values = data.known(values).astype(float).reshape(data.size, -1)
    arrays = test.estimate, test.adjusted_pvalue, test.critical_value()
    errors, pvalues, critical = (np.asarray(x, float).reshape(len(names), -1) for x in arrays)
    own = data.known(members).astype(float) * data.shares[:, None]
    count = sum(1 + x.in_groups * (len(names) - 1) for x in columns)
    entries, findings = ([], []), []
    for g, c in [(g, c) for g in range(len(names)) for c in columns if c.in_groups or not g]:
        error, p, limit = (float(x[g, c.place]) for x in (errors, pvalues, critical))
        scatter, by_scatter = scatter_of(values[:, c.place], own[:, g])
        expected = own[:, g] @ np.broadcast_to(c.expected, data.size)
        expected = float(expected / np.abs(own[:, g]).sum())
        weights = f"result.arrays['memberships'][:, {g - 1}]" * bool(g)
        entry = Entry(
            f"{c.name}, {names[g]}" if g else c.name,
            c.shown(error, expected),
            expected=expected,
            low=c.shown(error - 1.96 * scatter, expected) if scatter else None,
            high=c.shown(error + 1.96 * scatter, expected) if scatter else None,
            by_chance=(c.shown(-limit, expected), c.shown(limit, expected)),
            pvalue=min(1.0, max(p, count * by_scatter)),
            call=data.mean_of(c.values, weights) + " ** 0.5" * (c.kind == "root"),
        )
        entries[g > 0].append(entry)
        if finding := _finding(c, entry, errors[g]):
            if g:
                # What is wrong in the same way everywhere is no error of a group.
                is_same = abs(error - errors[0, c.place]) <= 1.96 * scatter
                word, advice = f"{finding.word} in {names[g]}", None
                more = {"advice": record.GROUPS if data.is_of_classes else advice}
                more |= {"is_last": is_same, "is_repaired": False}
                finding = dataclasses.replace(finding, word=word, **more)
            findings.append(finding)
    order = {x.name: (g, x.pvalue, -abs(x.difference or 0)) for g in (0, 1) for x in entries[g]}
    first = columns[0].name if data.task == "classification" else ""
    findings.sort(key=lambda x: (x.entry != first, *order[x.entry]))
    widths = [x for x in findings if x.word in (_NARROW, _WIDE)]
    # Of shapes that are both too narrow and too wide the clearer one is said.
    findings = [x for x in findings if x not in widths or x.word == widths[0].word]
    remark = "PIT values are those of result.arrays['pit'] (estimators.pit_values)."
    remark += " Ties with members or quantiles are broken at random." * (redrawn == RANKS)
    if data.is_of_classes:
        remark = "Predicted beside the accuracy is the mean confidence."
        remark += "" if data.class_names else " Classes are numbered from 0."
    remark *= data.is_of_classes or data.pit is not None
    sections = [Section("Observed and predicted", tuple(entries[0]), remark, test=_TEST)]
    panels = _panels(data)
    if entries[1]:
        sections.append(Section("Groups", tuple(entries[1]), test=_TEST))
        panels.append(_group_panel(data, test))
    if data.is_of_classes:
        sections.append(_binned(data))
    tests = {(redrawn, _TEST): test}
    return Part(tuple(sections), tuple(findings), tests, panels=tuple(panels))


def _finding(column: Column, entry: Entry, errors: np.ndarray) -> Finding | None:
    """What is said of an entry, given all errors of its group; None if other entries say it."""
    is_more, is_last = (entry.difference or 0) > 0, column.is_last
    word = column.words[is_more]
    if column.scales is not None and is_more:
        bias = np.mean((errors[: column.place] / column.scales) ** 2)
        if bias > (entry.value**2 - 1) / 2:  # the errors have one sign
            return None
    if column.tails:
        below, above = errors[column.tails[0]], -errors[column.tails[1]]
        if below * above <= 0:  # one tail alone is wrong: a bias says more
            word, is_last = (
                f"the intervals contain too {'many' if is_more else 'few'} targets",
                True,
            )
    more = {"is_last": is_last, "advice": column.advice, "is_repaired": column.is_repaired}
    return Finding(entry.name, word, column.text(entry), **more)


Law = tuple[str, tuple[Any, Any], Residuals | None, list[Column]]


def _of_classes(data: Data) -> Law:
    """Accuracy beside confidence, and frequencies beside probabilities."""
    probs = data.known(data.predictions.class_probs).astype(float)
    m, advice = probs.shape[1], record.map_of_classes(data.size)

    def told(text: str, x: Entry) -> str:
        return text.format(*percents(x.expected or 0.0, x.value))

    words, text = ("overconfident", "underconfident"), "mean confidence {}, accuracy {}"
    right = "estimators.top_label(predictions, targets)[1]", probs.max(1), words
    rest = functools.partial(told, text), advice, "share"
    columns = [Column(m, "accuracy", *right, *rest, is_repaired=True)]
    for c in shown_classes(probs):
        name = data.class_called(c)
        words = (f"{name} is overestimated", f"{name} is underestimated")
        rest = functools.partial(told, "predicted {} on average, observed {}"), advice, "share"
        columns.append(
            Column(c, f"frequency of {name}", f"targets == {c}", probs[:, c], words, *rest)
        )
    return TARGETS, (data.predictions, data.targets), None, columns


def _of_numbers(data: Data) -> Law:
    """Means, size of the errors, and coverage of intervals and quantiles.

    They are those of targets, or of PIT values where the predictions are ensembles or quantiles.
    """
    predictions, samples, task = bare(data.predictions, MonteCarlo), None, data.task
    levels: Any = LEVELS
    is_quantiles = task == "quantiles"
    is_ranks = is_quantiles or task == "ensembles" or not hasattr(predictions, "mean")
    if is_quantiles:
        levels = tuple(data.levels.tolist())
    elif jnp.ndim(data.targets) > 1 or data.pit is None or _is_whole(predictions):
        levels = ()
    if is_ranks and data.pit is None:
        return TARGETS, (None, None), None, []
    samples = predictions, data.targets
    if is_ranks:
        zeros: Any = np.zeros_like(data.pit)
        samples = Uniform(zeros, zeros + 1), data.pit
    has_moments = not (is_quantiles and levels)  # whose levels say where they are
    means, inverse = (data.known(x).astype(float) for x in _moments(samples[0]))
    d = means.shape[1] if has_moments else -1
    pairs = central_pairs(np.array(levels)).T.tolist() if levels else []
    residual = Residuals(has_moments, levels, tuple((low, high) for low, high in pairs))
    columns = [*_moment_columns(data, means, inverse, is_ranks)] if has_moments else []
    has_spread = any(x.kind == "root" for x in columns)
    pit, advice = "result.arrays['pit']", record.map_of(task, data.size)
    for i, (low, high) in enumerate(pairs):
        nominal = levels[high] - levels[low]
        name = f"central {100 * nominal:.4g} % intervals"
        inside = f"({levels[low]:.6g} < {pit}) & ({pit} <= {levels[high]:.6g})"
        about = f"coverage of the {name}", inside, nominal, (_NARROW, _WIDE)
        text = functools.partial(_contain, f"the {name} contain {{}} of the targets")
        more: Any = {"is_repaired": True, "tails": (d + 1 + low, d + 1 + high)}
        more["in_groups"] = not (has_spread or is_quantiles) and abs(nominal - 0.9) < 1e-6
        columns.append(Column(d + 1 + len(levels) + i, *about, text, advice, "share", **more))
    for j, level in enumerate(levels):
        if is_ranks or level in (0.05, 0.5, 0.95):
            name = f"{100 * level:.4g} % quantiles"
            words = (f"the {name} are too low", f"the {name} are too high")
            about = f"coverage of the {name}", f"{pit} <= {level:.6g}", level, words
            text = functools.partial(_contain, "{} of the targets are at most these")
            middle = int(np.abs(np.array(levels) - 0.5).argmin())
            more = {"is_last": not is_quantiles, "in_groups": is_quantiles and j == middle}
            shift = record.SHIFTS if is_quantiles else None
            columns.append(Column(d + 1 + j, *about, text, shift, "share", **more))
    return RANKS if is_ranks else TARGETS, samples, residual, columns


def _is_whole(predictions: Any) -> bool:
    """Whether targets are whole numbers, whose PIT values are randomised."""
    return getattr(getattr(predictions, "support", None), "is_integer", False)


def _contain(text: str, entry: Entry) -> str:
    return text.format(percent(entry.value))


def _moment_columns(
    data: Data, means: np.ndarray, inverse: np.ndarray, is_ranks: bool
) -> Iterator[Column]:
    """Means and size of the errors."""
    d, values, name, where = means.shape[1], "targets", "mean of the targets", ""
    for i in range(d):
        if data.task == "multivariate":
            where, values, name = (
                f" in coordinate {i}",
                f"targets[:, {i}]",
                f"mean of coordinate {i}",
            )
        both = f"the targets{where} are lower than predicted"
        words = both, both.replace("lower", "higher")
        text = lambda x: f"by {number(abs(x.difference))} on average"  # noqa: E731
        if is_ranks:
            name, values = "mean PIT value", "result.arrays['pit']"
            text = lambda x: _RANK.format(*percents(x.value, 0.5))  # noqa: E731
        advice = record.OTHER_COUNTS if data.task == "counts" else record.SCALING
        yield Column(i, name, values, means[:, i], words, text, advice)
    if not (inverse > 0).all():
        return
    of = (f"jax.vmap(lambda p: p.{x}())(predictions)" for x in ("mean", "variance"))
    call = "(targets - {}) ** 2 / {}".format(*of)
    call = call if d == 1 else f"jnp.mean({call}, 1)"
    name, end = (
        "errors in predicted standard deviations",
        "large as the predicted standard deviations",
    )
    if is_ranks:
        name, call = "spread of the PIT values", "12 * (result.arrays['pit'] - 0.5) ** 2"
        end = "far from one half as they should be"
    start = "PIT values" if is_ranks else "the errors"
    text = lambda x: f"{start} are {number(x.value)} times as {end}"  # noqa: E731
    more = {"is_last": is_ranks, "is_repaired": True, "scales": np.median(1 / inverse, 0)}
    advice = record.map_of(data.task, data.size)
    yield Column(d, name, call, 1.0, (_WIDE, _NARROW), text, advice, "root", **more)


def _binned(data: Data) -> Section:
    """ECEs beside those of redrawn labels."""
    notions = ("top_label", "class_wise") if data.task == "classification" else ("top_label",)
    options: Any = {"num_draws": _NUM_DRAWS, "weights": data.weights}
    samples = data.predictions, data.targets
    test = hypothesis_tests.exact_test(data.at(4), _eces(notions), *samples, **options)
    entries = [
        Entry(
            f"ECE, {notion.replace('_', ' ')}",
            float(test.statistic[notion]),
            by_chance=chance(test.null_samples[notion], len(notions)),
            call=f"estimators.ece(predictions, targets, {notion=}, "
            f"binning=estimators.UniformBins({NUM_BINS}){data.and_weights})",
        )
        for notion in notions
    ]
    remark = f"Expected calibration errors in {NUM_BINS} bins (low, high] of equal width. They are "
    remark += f"biased upwards: a calibrated model has the range on the right ({_NUM_DRAWS} "
    remark += "redraws of the labels)."
    return Section("Expected calibration errors", tuple(entries), remark, is_detail=True)


@functools.cache  # one statistic, which JAX compiles once
def _eces(notions: tuple[Any, ...]) -> Callable[..., dict[str, jax.Array]]:
    """ECEs by notion, a statistic of redrawn labels."""

    def statistic(predictions: Any, targets: Any, weights: Any = None) -> dict[str, jax.Array]:
        options = {"binning": UniformBins(NUM_BINS), "weights": weights}
        ece = functools.partial(inner(estimators.ece), predictions, targets, **options)
        return {notion: ece(notion=notion) for notion in notions}

    return statistic


def reliability_panel(data: Data, predictions: Any = None, when: str = "") -> Panel:
    """Reliability diagram of class 1 of two, or of the top label, in bins of equal mass."""
    name, lens = "top label", estimators.top_label
    if data.task == "binary":
        name, lens = data.class_called(1), OneVersusRest(1)
    reduced, observed = lens(predictions or data.predictions, data.targets)
    curve = estimators.reliability_curve(
        data.at(5),
        Bernoulli(reduced.probs),
        observed,
        binning=EqualMassBins(max(1, min(NUM_BINS, data.size // _LEAST))),
        confidence_level=BAND_LEVEL,
        weights=data.weights,
    )
    caption = f"Observed frequency over predicted probability{when}, in bins with equally many "
    caption += "samples. Points below the diagonal: the event is rarer than predicted. The bands "
    caption += "contain all points of a calibrated model with a probability of 95 %."
    return Panel(f"reliability, {name}{when}", caption, plotting.reliability_diagram, curve)


def _panels(data: Data) -> list[Panel]:
    """Reliability diagram, or PIT histogram and coverage of the intervals over their level."""
    if data.is_of_classes or data.pit is None:
        return [reliability_panel(data)] if data.is_of_classes else []
    levels = None
    if data.task == "quantiles":  # which say nothing about other levels
        low, high = central_pairs(data.levels) if data.levels.size else np.zeros((2, 0), int)
        levels = data.levels[high] - data.levels[low]
        if not levels.size:
            return [pit_panel(data)]
    caption = "Share of targets in the central prediction intervals over their level: below the "
    caption += "diagonal they are too narrow, above it too wide. The band contains all points of a "
    caption += "calibrated model with a probability of 95 %."
    options = {"levels": levels, "weights": data.weights, "confidence_level": BAND_LEVEL}
    curve = estimators.coverage_curve(data.at(5), data.pit, **options)
    return [pit_panel(data), Panel("coverage", caption, plotting.coverage_curve, curve)]


def pit_panel(data: Data) -> Panel:
    """PIT histogram."""
    caption = "Histogram of the PIT values, whose bars are all in the band for a calibrated model "
    caption += "with a probability of 95 %. High ends mean that the predictions are too narrow, a "
    caption += "high middle that they are too wide, a slope that they are biased."
    options = {"weights": data.weights, "confidence_level": BAND_LEVEL}
    pit = estimators.pit_counts(data.at(5), data.pit, **options)
    return Panel("PIT histogram", caption, plotting.pit_histogram, pit)


def _group_panel(data: Data, test: Any) -> Panel:
    """Errors of all samples and of the groups."""
    names = None
    if data.is_of_classes:
        classes = range(data.predictions.class_probs.shape[1])
        names = [*map(data.class_called, classes), "accuracy - confidence"]
    else:  # the other errors have other units
        size = data.targets.shape[1] if jnp.ndim(data.targets) > 1 else 1
        test = jax.tree.map(lambda x: x[..., :size], test)
    caption = "Errors of the groups, observed minus predicted, with standard errors; frames mark "
    caption += "those with an adjusted p-value of at most 5 %."
    groups = ("all samples", *data.group_names)
    draw = functools.partial(plotting.group_errors, groups=groups, residuals=names)
    return Panel("errors in groups", caption, draw, test)


_CLASSES, _NUMBERS = ("classification", "binary"), ("regression", "counts", "multivariate")
_LIKELIHOOD, _OF_TARGETS = "negative log-likelihood", "in the unit of the targets"
_SQUARED = "in the squared unit of the targets"
# Scores by name: the function, what it needs of the predictions, the tasks that have it, its unit.
_SCORES: dict[str, tuple[Callable[..., jax.Array], str, tuple[str, ...], str]] = {
    _LIKELIHOOD: (scores.negative_log_likelihood, "log_prob", _CLASSES + _NUMBERS, "in nats"),
    "Brier score": (scores.brier_score, "class_probs", _CLASSES, ""),
    "CRPS": (scores.crps, "crps", ("regression", "ensembles"), _OF_TARGETS),
    "energy score": (scores.energy_score, "values", ("ensembles",), _OF_TARGETS),
    "pinball loss": (scores.pinball_loss, "values", ("quantiles",), _OF_TARGETS),
    "mean squared error": (scores.mean_squared_error, "mean", (*_NUMBERS, "ensembles"), _SQUARED),
}


def proper_scores(data: Data) -> Part:
    """The scores that exist for the task, and outcomes that were predicted never to happen."""
    predictions, entries = bare(data.predictions, MonteCarlo), []
    for name, (function, needed, tasks, unit) in _SCORES.items():
        is_other = name == ("CRPS" if jnp.ndim(data.targets) > 1 else "energy score")
        if data.task in tasks and hasattr(predictions, needed) and not is_other:
            call = f"scores.{function.__name__}(predictions, targets{data.and_weights})"
            samples = data.predictions, data.targets
            compute = functools.partial(function, *samples, weights=data.weights)
            entries.append(measured(name, compute, call, note=unit))
    warnings = ()
    if any(x.name == _LIKELIHOOD and x.value == np.inf for x in entries):
        count = int(data.known(_are_impossible(predictions, data.targets)).sum())
        is_discrete = data.task in ("classification", "binary", "counts")
        what = "probability" if is_discrete else "probability density"
        text = f"{count} of {data.size} samples had a predicted {what} of 0 for what happened"
        warnings = (text,) * bool(count)
    remark = "Smaller is better. A proper score mixes calibration with sharpness: a better score "
    remark += "alone does not mean better calibration."
    sections = (Section("Scores", tuple(entries), remark),) if entries else ()
    return Part(sections, warnings=warnings)


# Which targets have probability, or density, zero, [N].
_are_impossible = jax.jit(jax.vmap(lambda p, y: p.log_prob(y) == -jnp.inf))


def temperature(data: Data) -> Part:
    """The temperature that would repair the predictions, and what it wins on held-out data."""
    title, predictions = "What recalibration would gain", bare(data.predictions, MonteCarlo)
    samples: Any = (predictions, data.targets)
    weights: Any = {"weights": data.weights}
    if not (hasattr(predictions, "tempered") and hasattr(predictions, "log_prob")):
        return Part()
    if not np.isfinite(float(scores.negative_log_likelihood(*samples, **weights))):
        text = "No temperature makes the log score finite."
        return Part((Section(title, (), text),))

    def gain() -> Any:
        methods = {"temperature": recalibration.TemperatureScaling()}
        gains = recalibration.recalibration_gain(data.at(2), methods, *samples, **weights)
        return gains["temperature"]

    more, name = data.and_weights, "held-out gain in log score (nats per sample)"
    call = f"recalibration.temperature_interval(predictions, targets{more})"
    fit = functools.partial(recalibration.temperature_interval, *samples, **weights)
    value = measured("temperature", fit, call)
    if not np.isfinite([value.value, value.standard_error or 0]).all():
        text = "No temperature changes these predictions: they are all 0 or 1, give all classes "
        text += "the same probability, or are uniform distributions."
        text = f"The temperature {value.note}." if value.note else text
        return Part((Section(title, (), text),))
    call = f"{{'temperature': recalibration.TemperatureScaling()}}, predictions, targets{more}"
    call = f"recalibration.recalibration_gain(jax.random.fold_in(key, 2), {call})['temperature']"
    won = measured(name, gain, call)
    remark = "All predictions p become q ∝ p^(1/T) with one temperature T, see "
    remark += "recalibration.TemperatureScaling: above one they become less certain. The gain is "
    remark += "that of predictions that T was not fitted to (five folds)."
    section = Section(title, (value, won), remark)
    if won.ends is None or won.ends[0] <= 0:
        return Part((section,))
    gained, low, high = with_ends(won.value, *won.ends)
    text = f"Temperature {number(value.value)} lowers the log score (nats per sample) of held-out "
    text += f"data by {gained} (95 % interval {low} to {high})"
    panels = ()
    if data.is_of_classes:
        repaired = _tempered(predictions, jnp.asarray(value.value, jnp.float32))
        panels = (reliability_panel(data, repaired, " after temperature scaling"),)
    return Part((section,), panels=panels, repair=((record.TEMPERATURE, text),))


_tempered = jax.jit(jax.vmap(tempered, (0, None)))  # predictions at a temperature


FEW = 400  # up to this n tests see all pairs of targets without features, in each redraw
PAIRS = 2e9  # of samples that an SKCE takes at most
NUM_DRAWS = 20  # from each prediction whose expectations have no closed form
_WITH_FEATURES = "distributions.with_features({}, result.arrays['features'])"
_WRONG_WAY = 0.01  # largest p-value at which probabilities are said to go the wrong way


class Choice(NamedTuple):
    """The kernels of a data set.

    Attributes:
        groups: `default_kernels`, but of ensembles.
        kernel: `default_kernel`, that of the SKCE.
        predictions: those of the data, or draws where expectations have no closed form.
        text: an expression of these predictions.
        how: which kernels and why, in words.
    """

    groups: dict[str, Any]
    kernel: Any
    predictions: Any
    text: str
    how: str


def chosen_kernels(data: Data) -> Choice:
    """The default kernels."""
    predictions, text, kernel, is_closed = data.predictions, "predictions", None, False
    how = "The kernel of the SKCE is kernels.default_kernel, whose length scales are "
    how += "chosen from the predictions alone. "
    if isinstance(predictions, MonteCarlo):
        predictions, text = predictions.draws, "predictions.draws"
    else:
        with contextlib.suppress(NotImplementedError, TypeError):  # of families without a variance
            kernel = kernels.default_kernel(_seen(predictions, data))
            is_closed = is_ensemble(predictions) or has_features(kernel, data) or data.size <= FEW
    if not is_closed:
        if not is_ensemble(predictions):
            predictions = distributions.monte_carlo(data.at(9), predictions, NUM_DRAWS).draws
            text = "distributions.monte_carlo(jax.random.fold_in(key, 9), predictions, "
            text += f"{NUM_DRAWS}).draws"
        kernel = kernels.default_kernel(_seen(predictions, data))
        how += "Expectations have no closed form, or none that is fast enough: the SKCE and its "
        how += f"test are those of ensembles of {predictions.values.shape[1]} draws from the "
        how += "predictions. "
    groups = {} if is_ensemble(predictions) else kernels.default_kernels(_seen(predictions, data))
    return Choice(groups, kernel, predictions, text, how)


def has_features(kernel: Any, data: Data) -> bool:
    """Whether targets have features, with which redraws are matrix products."""
    return prepare_features(kernel.target, data.predictions, data.targets) is not None


def _seen(predictions: Any, data: Data) -> Any:
    """The predictions that kernels are chosen from."""
    if is_ensemble(predictions):  # whose length scales must not tell which is the target
        predictions = with_targets(predictions, data.targets)
    return data.known(predictions)


def is_ensemble(predictions: Distribution) -> bool:
    """Whether which of the members and the target is the target is redrawn."""
    return isinstance(bare(predictions), Ensemble)


def _exact(data: Data, title: str, kernel: Any, shown: str, samples: Any, text: str) -> Any:
    """The exact test with one kernel or with groups of them, and its row."""
    test: Any = hypothesis_tests.aggregated_skce_test
    arguments, call = samples, f"{text}, targets, kernels={shown}"
    more: dict[str, Any] = {"weights": data.weights}
    if isinstance(kernel, dict):
        more["kernels"] = kernel
    else:
        of_members = is_ensemble(samples[0])
        test = hypothesis_tests.exact_skce_test
        test = hypothesis_tests.ensemble_skce_test if of_members else test
        arguments, call = (kernel, *samples), f"{shown}, {text}, targets"
    result = test(data.at(REDRAWS), *arguments, **more)
    call = f"jax.random.fold_in(key, {REDRAWS}), {call}{data.and_weights}"
    call = f"hypothesis_tests.{test.__name__}({call}).statistic"
    return result, Entry(title, float(result.statistic), pvalue=float(result.pvalue), call=call)


def _linear(data: Data, kernel: Any, predictions: Distribution) -> tuple[Any, str]:
    """The kernel, or one of low rank on predictions if there are many, and what that means."""
    kept = affordable(kernel.prediction, _seen(predictions, data))
    if not isinstance(kept, kernels.Nystrom):
        return kernel, ""
    rank = jax.tree.leaves(kept.landmarks)[0].shape[0]
    how = f"The kernel on predictions is replaced by one of low rank with {rank} landmarks "
    how += "(kernels.Nystrom), with which the exact test takes linear time and stays exact. "
    return kernels.TensorProduct(kept, kernel.target), how


def all_errors(data: Data, chosen: Choice) -> Part:
    """The exact test of all errors together."""
    groups, kernel, predictions, text, how = chosen
    samples, title = (predictions, data.targets), "all errors together"
    note, others = "redrawn are the targets, independently given the predictions", {}
    if groups:
        test, entry = _exact(data, title, groups, "result.kernels", samples, text)
        count = len(jax.tree.leaves(test.adjusted_pvalue))
        how += f"The test has a soft maximum of {len(groups)} groups of {count} kernels, which "
        how += "result.tests['calibration'] shows. "
        parts = jax.tree.leaves(groups, is_leaf=lambda part: isinstance(part, kernels.Nystrom))
        if any(isinstance(part, kernels.Nystrom) for part in parts):
            how += f"Some are of low rank with up to {NUM_LANDMARKS} landmarks (kernels.Nystrom). "
    else:
        others["exact test"], low_rank = _linear(data, kernel, predictions)
        shown = "result.other_kernels['exact test']"
        test, entry = _exact(data, title, others["exact test"], shown, samples, text)
        how += f"The test has this one kernel. {low_rank}"
    if is_ensemble(predictions):
        note = "redrawn is which of the members and the target is the target"
    entries = (dataclasses.replace(entry, note=note),)
    section = Section("Is the model calibrated?", entries, how.strip(), test="calibration")
    tests = {(MEMBERS if is_ensemble(predictions) else TARGETS, "calibration"): test}
    finding = Finding(title, "not calibrated", "", is_last=True)
    return Part((section,), (finding,), tests, groups, others)


def errors_given_features(data: Data, chosen: Choice | None) -> Part:
    """The exact test with a kernel that looks at the features."""
    title = "Given the features"
    if chosen is None:
        remark = "Quantile forecasts have no kernel calibration error."
        return Part((Section(title, (), remark),))
    scale = kernels.median_heuristic(distances.Euclidean(), thinned(data.known(data.features)))
    closeness = kernels.SquaredExponential(scale, distances.Features(distances.Euclidean()))
    predictions = distributions.with_features(chosen.predictions, data.features)
    kernel, how = _linear(data, kernels.TensorProduct(closeness, chosen.kernel.target), predictions)
    samples, text = (predictions, data.targets), _WITH_FEATURES.format(chosen.text)
    shown, name = "result.other_kernels['features']", "all errors given the features"
    test, entry = _exact(data, name, kernel, shown, samples, text)
    # Samples with similar features share the same error, and not only all samples.
    part = test.components.unbiased
    is_shared = float(part.statistic) > chance(part.null_samples)[1]
    remark = "The test asks for more than calibration: that predictions are right given the "
    remark += f"features, which are divided by their standard deviations. {how}"
    words = "samples with similar features share the same error"
    finding = Finding(name, "wrong given the features", words, is_last=not is_shared)
    section = Section(title, (entry,), remark.strip(), test="features")
    tests = {(MEMBERS if is_ensemble(predictions) else TARGETS, "features"): test}
    return Part((section,), (finding,), tests, other_kernels={"features": kernel})


def kernel_errors(data: Data, chosen: Choice, parts: Part, pvalues: Mapping[str, float]) -> Part:
    """SKCEs, with intervals where the test rejects: they do not hold for calibrated models."""
    predictions, text, others, entries = chosen.predictions, chosen.text, {}, []
    test = parts.tests.get((MEMBERS, "calibration"))
    if test is not None:
        part: Any = test.components and test.components.unbiased
        call = "result.tests['calibration'].components.unbiased.statistic"
        skce, more = float(part.statistic), {"by_chance": chance(part.null_samples), "call": call}
        entries.append(Entry("SKCE, all targets", skce, **more))
    elif data.size**2 <= PAIRS:
        others["SKCE"] = chosen.kernel
        classes = "classes" if data.is_of_classes else "targets"
        asked = [(f"SKCE, all {classes}", "SKCE", "all errors together", predictions, text)]
        if "features" in parts.other_kernels:
            text = _WITH_FEATURES.format(text)
            predictions = distributions.with_features(predictions, data.features)
            name = "features", "all errors given the features", predictions, text
            asked.append(("SKCE given the features", *name))
        for title, name, of_test, predictions, text in asked:
            is_rejected = pvalues[of_test] <= LEVEL
            function = hypothesis_tests.skce_confidence_interval if is_rejected else estimators.skce
            where = "hypothesis_tests" if is_rejected else "estimators"
            call = f"{where}.{function.__name__}(result.other_kernels[{name!r}], {text}, targets"
            kernel = (parts.other_kernels | others)[name]
            samples = kernel, predictions, data.targets
            compute = functools.partial(function, *samples, weights=data.weights)
            entries.append(measured(title, compute, f"{call}{data.and_weights})"))
    remark = "The squared kernel calibration error is zero for a calibrated model. Intervals are "
    remark += "for models that are not calibrated, and left out where no test rejects."
    section = Section("Kernel calibration errors", tuple(entries), remark, is_detail=True)
    return Part((section,) * bool(entries), other_kernels=others)


def wrong_way(data: Data) -> list[Finding]:
    """That an outcome is rarer the larger its probability, by a z-test of the area under the ROC.

    It is only asked after a rejection.
    """
    probs = data.known(data.predictions.class_probs)[:, 1].astype(float)
    happened, shares = data.known(data.targets) == 1, data.shares / data.shares.sum()
    values, places = np.unique(probs, return_inverse=True)
    weights = np.bincount(places, shares, minlength=len(values))
    ranks = (np.cumsum(weights) - weights / 2)[places]  # of ties, their middle
    frequency = float(shares @ happened)
    products = (happened - frequency) * (ranks - 0.5)
    _, pvalue = scatter_of(products, shares)
    area = 0.5 + shares @ products / max(frequency * (1 - frequency), 1e-12)
    if area >= 0.5 or pvalue > _WRONG_WAY:
        return []
    text = f"{data.class_called(1)} is less frequent where its predicted probability is higher "
    text += f"(area under the ROC curve {area:.2f}, {record.p_is(pvalue)}); is it the probability "
    text += "of the other class?"
    return [Finding("", "the predictions go the wrong way", text, advice=record.OTHER_CLASS)]
