"""Errors of the predictions and what they cost: means, coverage, bins, groups, scores."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import estimators, hypothesis_tests, plotting, recalibration, scores
from calibjax._core.gate import inner
from calibjax.binnings import EqualMassBins, UniformBins
from calibjax.distributions import Bernoulli, Uniform, with_features
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.evaluation import words
from calibjax.evaluation.data import (
    RANKS,
    REDRAWS,
    TARGETS,
    Data,
    Finding,
    Named,
    Part,
    measured,
    ranges,
    scatter_of,
    shown_classes,
)
from calibjax.evaluation.record import BAND_LEVEL, Advice, Entry, Panel, Section, number
from calibjax.hypothesis_tests.groups import central_pairs, mean_residual
from calibjax.lenses import OneVersusRest
from calibjax.recalibration.base import tempered

LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)  # of predictions without levels of their own
NUM_BINS = 10
_LEAST = 20  # samples in a bin of the reliability diagram, on average
_NUM_DRAWS = 199  # for the ranges of ECEs


@dataclasses.dataclass(frozen=True)
class Residuals:
    """Residuals of numbers, whose means are zero under calibration: [n, d + 1 + k + c].

    They are those of the mean, of the squared error over the variance, of the events "at most the
    quantile" of k levels, and of c central intervals between two of these. What they need of the
    predictions, [n, 2 d + 3 k], are their features: means, inverse standard deviations (zero where
    there is none), quantiles, and the probabilities of targets up to and below these.

    Attributes:
        size: d.
        pairs: places of both levels of each interval.
    """

    size: int
    pairs: tuple[tuple[int, int], ...]

    def __call__(self, predictions: Any, targets: jax.Array) -> jax.Array:
        """The residuals."""
        d, columns = self.size, predictions.features
        y = targets.reshape(len(targets), -1).astype(columns.dtype)
        error, inverse = y - columns[:, :d], columns[:, d : 2 * d]
        quantiles, probs, under = jnp.split(columns[:, 2 * d :], 3, 1)
        spread = jnp.mean(jnp.square(inverse * error) - (inverse > 0), 1, keepdims=True)
        events, below = (y[:, :1] <= quantiles) - probs, (y[:, :1] < quantiles) - under
        central = [events[:, [high]] - below[:, [low]] for low, high in self.pairs]
        return jnp.concatenate([error, spread, events, *central], 1)


class _Law(NamedTuple):
    """What errors of numbers are computed from.

    Attributes:
        predictions: [N], from which targets are redrawn.
        targets: [N] or [N, d].
        columns: the features of `Residuals`, [N, 2 d + 3 k].
        levels: of the k quantiles.
        redrawn: the targets, or PIT values where the predictions are ensembles or quantiles.
    """

    predictions: Any
    targets: jax.Array
    columns: Any
    levels: np.ndarray
    redrawn: str

    @property
    def size(self) -> int:
        """Number of coordinates d."""
        return (self.columns.shape[1] - 3 * len(self.levels)) // 2


def _law(data: Data) -> _Law | None:
    """The distributions and their targets, or uniform ones and PIT values; None without both."""
    predictions, targets = bare(data.predictions, MonteCarlo), data.targets
    is_scalar, is_forecast = jnp.ndim(targets) == 1, data.task in ("ensembles", "quantiles")
    if not is_forecast and hasattr(predictions, "mean"):
        levels = LEVELS if is_scalar and hasattr(predictions, "icdf") else ()
        columns = _columns(predictions, np.asarray(levels, np.float32))
        return _Law(predictions, targets, columns, np.array(levels), TARGETS)
    if data.pit is None:
        return None
    pit = np.asarray(data.pit)  # NumPy has no programs
    levels = np.asarray(getattr(predictions, "levels", LEVELS), pit.dtype)
    each = np.broadcast_to(levels, (data.length, levels.shape[-1]))
    inverse = 12**0.5 if data.task == "ensembles" else 0.0  # quantiles have their levels
    moments = np.full((data.length, 2), [0.5, inverse], pit.dtype)
    columns = np.concatenate([moments, each, each, each], 1)
    mean = levels.astype(float).reshape(-1, levels.shape[-1]).mean(0)
    zeros: Any = np.zeros_like(pit)
    return _Law(Uniform(zeros, zeros + 1), data.pit, columns, mean, RANKS)


@jax.jit
def _columns(predictions: Distribution, levels: Any) -> jax.Array:
    """Means, inverse deviations, quantiles and their probabilities, [n, 2 d + 3 k]."""

    def one(p: Any) -> jax.Array:
        mean = jnp.atleast_1d(p.mean())
        variance = p.variance() if hasattr(p, "variance") else jnp.zeros_like(mean)
        has_one = jnp.isfinite(variance) & (variance > 0)
        inverse = jnp.atleast_1d(jnp.where(has_one, jnp.where(has_one, variance, 1) ** -0.5, 0))
        parts = [mean, jnp.broadcast_to(inverse, mean.shape)]
        if levels.size:
            quantiles = jax.vmap(p.icdf)(levels.astype(mean.dtype))
            is_whole = getattr(getattr(p, "support", None), "is_integer", False)
            both = levels.astype(mean.dtype), levels.astype(mean.dtype)
            if is_whole:
                both = (jax.vmap(p.cdf)(x).astype(mean.dtype) for x in (quantiles, quantiles - 1))
            parts += [quantiles.astype(mean.dtype), *both]
        return jnp.concatenate(parts)

    return jax.vmap(one)(predictions)


@functools.partial(jax.jit, static_argnums=0)
def _residuals(residual: Residuals, samples: tuple[Any, jax.Array]) -> jax.Array:
    return residual(*samples)


Told = Callable[[Entry, np.ndarray], "tuple[str, str] | None"]  # with all errors of the group


@dataclasses.dataclass(frozen=True)
class Column:
    """One residual: what is observed and predicted.

    Attributes:
        place: of the residual.
        name: of what is observed.
        values: an expression of it; its mean is the call of the entry. Empty without a call.
        expected: its predicted mean, [n].
        told: what is wrong and the numbers, None if other columns say it.
        advice: what to do about it.
        is_share: whether it is between 0 and 1.
        in_groups: whether groups have it, too.
        is_last: whether it is said only if nothing else is.
        is_root: whether the root of the mean is shown, whose prediction is one.
        is_repaired: whether a temperature that helps makes the advice unnecessary.
    """

    place: int
    name: str
    values: str
    expected: np.ndarray
    told: Told
    advice: Advice | None = None
    is_share: bool = False
    in_groups: bool = True
    is_last: bool = False
    is_root: bool = False
    is_repaired: bool = False

    def shown(self, expected: float, error: float) -> float:
        """The observed value."""
        value = expected + error
        if self.is_root:
            return math.sqrt(max(0.0, value))
        # Rounding must not take a share out of its range.
        return min(1.0, max(0.0, value)) if self.is_share else value


def mean_errors(data: Data) -> Part:
    """What is observed and predicted on average, over all samples and in groups."""
    law = None if data.is_of_classes else _law(data)
    if data.is_of_classes:
        columns, residual, redrawn = _of_classes(data), None, TARGETS
        samples = data.predictions, data.targets
    elif law is None:
        return Part()
    else:
        has_pairs = bool(law.levels.size) and not _differ(data)
        pairs = central_pairs(law.levels).T.tolist() if has_pairs else []
        residual = Residuals(law.size, tuple((low, high) for low, high in pairs))
        samples = with_features(law.predictions, law.columns), law.targets
        columns, redrawn = [*_of_numbers(data, law, residual)], law.redrawn
    members, names = np.ones((data.length, 1)), ("", *data.group_names)
    if data.memberships is not None:
        members = np.concatenate([members, np.asarray(data.memberships)], 1)
    options: Any = {"weights": data.weights, "residual": residual}
    test = hypothesis_tests.group_calibration_test(data.at(REDRAWS), *samples, members, **options)
    values = mean_residual(*samples) if residual is None else _residuals(residual, samples)
    values = data.known(values).astype(float).reshape(data.size, -1)
    shape = len(names), values.shape[1]
    arrays = test.estimate, test.adjusted_pvalue, test.critical_value()
    arrays = [np.asarray(x, float).reshape(shape) for x in arrays]
    own = data.known(members).astype(float) * data.shares[:, None]
    count = sum(1 + column.in_groups * (len(names) - 1) for column in columns)
    of_all, of_groups, findings = [], [], []
    for g, name in enumerate(names):
        for column in (x for x in columns if x.in_groups or not g):
            entry = _entry(data, column, [x[g] for x in arrays], values, own[:, g], count, g)
            (of_groups if g else of_all).append(entry)
            found = _finding(column, entry, arrays[0][g])
            if found is not None and g:
                # What is wrong in the same way everywhere is no error of a group.
                difference = abs(arrays[0][g, column.place] - arrays[0][0, column.place])
                is_same = difference <= 1.96 * scatter_of(values[:, column.place], own[:, g])[0]
                advice = words.GROUPS if data.is_of_classes else None
                more = {"is_last": is_same, "is_repaired": False, "advice": advice}
                found = dataclasses.replace(found, word=f"{found.word} in {name}", **more)
            findings += [found] * (found is not None)
    order = {x.name: (x.pvalue, -abs(x.difference or 0)) for x in (*of_all, *of_groups)}
    first = columns[0].name if data.task == "classification" else ""
    later = {x.name for x in of_groups}
    findings.sort(key=lambda x: (x.entry != first, x.entry in later, *order[x.entry]))
    widths = [x for x in findings if x.word.startswith(_WIDTH) and x.entry not in later]
    # Of shapes that are both too narrow and too wide the clearer one is said.
    findings = [x for x in findings if x not in widths or x.word == widths[0].word]
    sections = [Section("Observed and predicted", tuple(of_all), _remark(data, law), test=_TEST)]
    panels = _panels(data, law)
    if of_groups:
        sections.append(Section("Groups", tuple(of_groups), test=_TEST))
        panels.append(_group_panel(data, test, names, law))
    if data.is_of_classes:
        sections.append(_binned(data))
    return Part(tuple(sections), tuple(findings), {(redrawn, _TEST): test}, panels=tuple(panels))


_TEST, _WIDTH = "mean errors", "the predicted distributions are too"


def _entry(
    data: Data,
    column: Column,
    arrays: Any,
    residuals: np.ndarray,
    members: np.ndarray,
    count: int,
    group: int = 0,
) -> Entry:
    """The row of an error of all samples, group 0, or in one group."""
    error, p, chance = (float(x[column.place]) for x in arrays)
    scatter, by_scatter = scatter_of(residuals[:, column.place], members)
    expected = float(members @ column.expected / np.abs(members).sum())
    ends = error, error - 1.96 * scatter, error + 1.96 * scatter, -chance, chance
    value, low, high, *range_ = (column.shown(expected, x) for x in ends)
    weights = f"result.arrays['memberships'][:, {group - 1}]" * bool(group)
    call = data.mean_of(column.values, weights) + " ** 0.5" * column.is_root
    return Entry(
        f"{column.name}, {data.group_names[group - 1]}" if group else column.name,
        value,
        expected=expected,
        low=low if scatter else None,
        high=high if scatter else None,
        by_chance=(range_[0], range_[1]),
        pvalue=min(1.0, max(p, count * by_scatter)),
        call=call * bool(column.values),
    )


def _finding(column: Column, entry: Entry, errors: np.ndarray) -> Finding | None:
    """What is said of an entry."""
    told = column.told(entry, errors)
    if told is None:
        return None
    # Where one tail alone is wrong, a bias says more.
    is_last = column.is_last or told[0].startswith("the intervals contain")
    more = {"is_last": is_last, "advice": column.advice, "is_repaired": column.is_repaired}
    return Finding(entry.name, *told, **more)


def _of_classes(data: Data) -> list[Column]:
    """Accuracy beside confidence, and frequencies beside probabilities."""
    probs = data.known(data.predictions.class_probs).astype(float)
    advice, right = words.map_of_classes(data.size), "estimators.top_label(predictions, targets)[1]"
    columns = [(probs.shape[1], "accuracy", right, probs.max(1), _top)]
    for c in shown_classes(probs):
        called = data.class_called(c)
        told = functools.partial(_of_class, called)
        columns.append((c, f"frequency of {called}", f"targets == {c}", probs[:, c], told))
    return [Column(*x, advice, is_share=True, is_repaired=x[-1] is _top) for x in columns]


def _top(entry: Entry, errors: np.ndarray) -> tuple[str, str]:
    """Confidences that are too large or too small."""
    confidence, accuracy = words.percents(entry.expected or 0.0, entry.value)
    kind = "overconfident" if (entry.difference or 0) < 0 else "underconfident"
    return kind, f"mean confidence {confidence}, accuracy {accuracy}"


def _of_class(name: str, entry: Entry, errors: np.ndarray) -> tuple[str, str]:
    """A class that is predicted too often or too rarely."""
    predicted, observed = words.percents(entry.expected or 0.0, entry.value)
    kind = "over" if (entry.difference or 0) < 0 else "under"
    return f"{name} is {kind}estimated", f"predicted {predicted} on average, observed {observed}"


def _of_numbers(data: Data, law: _Law, residual: Residuals) -> Iterator[Column]:
    """Means, size of the errors, and coverage."""
    table, d, levels = data.known(law.columns).astype(float), law.size, law.levels
    means, inverse = table[:, :d], table[:, d : 2 * d]
    _, probs, under = np.split(table[:, 2 * d :], 3, 1)
    has_spread, pit = bool((inverse > 0).all()), "result.arrays['pit']"
    is_own = law.redrawn == RANKS
    scales = np.median(1 / inverse, 0) if has_spread else np.full(d, np.nan)
    # Where deviations differ much, an error in units of a typical one says little.
    is_alike = has_spread and d == 1 and inverse.max() <= 2 * inverse.min()
    for i in range(d):
        name, values = "mean of the targets", "targets"
        if is_own:
            name, values = "mean PIT value", pit
        elif data.task == "multivariate":
            name, values = f"mean of coordinate {i}", f"targets[:, {i}]"
        told = functools.partial(_bias, name, float(scales[0]) if is_alike else math.nan)
        advice = words.OTHER_COUNTS if data.task == "counts" else words.SCALING
        if data.task != "quantiles":  # whose levels say where they are
            yield Column(i, name, values, means[:, i], told, advice)
    advice = words.map_of(data.task, data.size)
    if has_spread:
        moments = (f"jax.vmap(lambda p: p.{name}())(predictions)" for name in ("mean", "variance"))
        squares, name = "(targets - {}) ** 2 / {}".format(*moments), _SPREAD
        squares = squares if d == 1 else f"jnp.mean({squares}, 1)"
        if is_own:
            squares, name = f"12 * ({pit} - 0.5) ** 2", "spread of the PIT values"
        ones, more = np.ones(data.size), {"is_last": is_own}
        told = functools.partial(_spread, name, scales)
        yield Column(d, name, squares, ones, told, advice, is_root=True, is_repaired=True, **more)
    # Where levels differ between the samples, or targets are whole numbers, PIT values tell less.
    is_plain = np.ndim(getattr(data.predictions, "levels", 0)) < 2 and data.task != "counts"
    nearest = _nearest(levels, residual.pairs)
    for i, (low, high) in enumerate(residual.pairs):
        nominal, place = levels[high] - levels[low], d + 1 + len(levels) + i
        name = f"central {100 * nominal:.4g} % intervals"
        inside = f"({levels[low]:.6g} < {pit}) & ({pit} <= {levels[high]:.6g})" * is_plain
        told = functools.partial(_central, name, (d + 1 + low, d + 1 + high), _ties(data))
        is_shown = i == nearest and not has_spread and data.task != "quantiles"
        expected = probs[:, high] - under[:, low]
        more: Any = {"is_share": True, "in_groups": is_shown, "is_repaired": True}
        yield Column(place, f"coverage of the {name}", inside, expected, told, advice, **more)
    is_last = data.task != "quantiles" and bool(residual.pairs)
    middle = int(np.abs(levels - 0.5).argmin()) if data.task == "quantiles" else -1
    for j, level in enumerate(levels):
        if is_own or level in (0.05, 0.5, 0.95):
            name, inside = f"{100 * level:.4g} % quantiles", f"{pit} <= {level:.6g}" * is_plain
            name = f"quantiles {j + 1} of {len(levels)}" if _differ(data) else name
            more = {"is_share": True, "in_groups": j == middle, "is_last": is_last}
            own = words.SHIFTS if data.task == "quantiles" and not _differ(data) else None
            told = functools.partial(_quantile, name, _ties(data))
            column = d + 1 + j, f"coverage of the {name}", inside, probs[:, j], told
            yield Column(*column, own, **more)


def _differ(data: Data) -> bool:
    """Whether the levels of quantiles differ between the samples."""
    levels = data.known(getattr(data.predictions, "levels", np.zeros(1)))
    return data.task == "quantiles" and levels.ndim > 1 and bool((levels != levels[0]).any())


def _nearest(levels: np.ndarray, pairs: Any) -> int:
    """The interval whose probability is next to 90 %."""
    nominal = [levels[high] - levels[low] for low, high in pairs]
    return int(np.abs(np.array(nominal) - 0.9).argmin()) if nominal else -1


def _bias(name: str, scale: float, entry: Entry, errors: np.ndarray) -> tuple[str, str]:
    """Targets that are higher or lower than predicted."""
    error = entry.difference or 0.0
    which = f" in {name.removeprefix('mean of ')}" if "coordinate" in name else ""
    word = f"the targets{which} are {'higher' if error > 0 else 'lower'} than predicted"
    if name == "mean PIT value":
        rank, half = words.percents(entry.value, 0.5)
        return word, f"their mean rank within the predictions is {rank} instead of {half}"
    text = f"by {number(abs(error))} on average"
    if math.isfinite(scale):
        text += f", or {number(abs(error) / scale, 2)} predicted standard deviations"
    return word, text


_SPREAD = "errors in predicted standard deviations"


def _spread(
    name: str, scales: np.ndarray, entry: Entry, errors: np.ndarray
) -> tuple[str, str] | None:
    """Errors that are larger or smaller than predicted, unless they have one sign."""
    bias = float(np.mean((errors[: scales.size] / scales) ** 2))
    if entry.value > 1 and bias > (entry.value**2 - 1) / 2:
        return None
    times = f"{entry.value:.2f}" if entry.value < 9.995 else number(entry.value)
    word = f"{_WIDTH} {'narrow' if entry.value > 1 else 'wide'}"
    if name != _SPREAD:
        return word, f"PIT values are {times} times as far from one half as they should be"
    return word, f"the errors are {times} times as large as the predicted standard deviations"


def _ties(data: Data) -> str:
    """What a share of targets rests on where these equal quantiles."""
    if data.task != "quantiles":
        return ""
    values, targets = data.known((data.predictions.values, data.targets))
    return " (ties are broken at random)" * bool((values == targets[:, None]).any())


def _central(
    name: str, ends: tuple[int, int], ties: str, entry: Entry, errors: np.ndarray
) -> tuple[str, str]:
    """Too narrow or too wide where both tails agree."""
    below, above, is_few = errors[ends[0]], -errors[ends[1]], (entry.difference or 0) < 0
    word = f"the intervals contain too {'few' if is_few else 'many'} targets"
    if min(below, above) > 0 or max(below, above) < 0:
        word = f"{_WIDTH} {'narrow' if below > 0 else 'wide'}"
    return word, f"the {name} contain {words.percent(entry.value)} of the targets{ties}"


def _quantile(name: str, ties: str, entry: Entry, errors: np.ndarray) -> tuple[str, str]:
    """Quantiles that are too low or too high."""
    word = f"the {name} are too {'low' if (entry.difference or 0) < 0 else 'high'}"
    return word, f"{words.percent(entry.value)} of the targets are at most these{ties}"


def _remark(data: Data, law: _Law | None) -> str:
    if law is None:
        return "Predicted beside the accuracy is the mean confidence." + (
            "" if data.class_names else " Classes are numbered from 0."
        )
    if data.pit is None:
        return ""
    remark = "PIT values are those of result.arrays['pit'] (estimators.pit_values)."
    if law.redrawn == RANKS:
        remark += " Where targets tie with members or quantiles the ties are broken at random."
    values = data.known(data.predictions.values) if data.task == "quantiles" else np.zeros((1, 1))
    if infinite := np.isinf(values).any(1).sum():
        remark += f" {infinite} of {data.size} predictions have intervals of infinite width."
    return remark


def _binned(data: Data) -> Section:
    """ECEs beside those of redrawn labels."""
    notions = ("top_label", "class_wise") if data.task == "classification" else ("top_label",)
    options: Any = {"num_draws": _NUM_DRAWS, "weights": data.weights}
    samples = data.predictions, data.targets
    test = hypothesis_tests.exact_test(data.at(4), _eces(notions), *samples, **options)
    chances, more = ranges(test.null_samples), f"UniformBins({NUM_BINS}){data.and_weights}"
    entries = [
        Entry(
            f"ECE, {notion.replace('_', ' ')}",
            float(test.statistic[notion]),
            by_chance=chances[notion],
            call=f"estimators.ece(predictions, targets, {notion=}, binning=estimators.{more})",
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
    used = data.predictions if predictions is None else predictions
    reduced, observed = lens(used, data.targets)
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


def _panels(data: Data, law: _Law | None) -> list[Panel]:
    """Reliability diagram, or PIT histogram and coverage of the intervals over their level."""
    if law is None:
        return [reliability_panel(data)]
    if data.pit is None:
        return []
    levels = None
    if data.task == "quantiles":  # which say nothing about other levels
        low, high = central_pairs(law.levels)
        levels = law.levels[high] - law.levels[low]
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


def _group_panel(data: Data, test: Any, groups: Any, law: _Law | None) -> Panel:
    """Errors of all samples and of the groups."""
    names, size = None, 0 if law is None else law.size
    if law is None:
        classes = range(data.predictions.class_probs.shape[1])
        names = [*map(data.class_called, classes), "accuracy - confidence"]
    else:  # the other errors have other units
        test = jax.tree.map(lambda x: x[..., :size], test)
    caption = "Errors of the groups, observed minus predicted, with standard errors; frames mark "
    caption += "those with an adjusted p-value of at most 5 %."
    groups = ("all samples", *groups[1:])
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
    "pinball loss": (scores.pinball_loss, "values", ("quantiles",), _OF_TARGETS),
    "mean squared error": (scores.mean_squared_error, "mean", (*_NUMBERS, "ensembles"), _SQUARED),
}


def proper_scores(data: Data) -> Part:
    """The scores that exist for the task, and outcomes that were predicted never to happen."""
    predictions, entries = bare(data.predictions, MonteCarlo), []
    for name, (function, needed, tasks, unit) in _SCORES.items():
        has_thresholds = name != "CRPS" or jnp.ndim(data.targets) == 1
        if data.task in tasks and hasattr(predictions, needed) and has_thresholds:
            call = data.call(function, Named(data.predictions, "predictions"))
            entries.append(measured(name, *call, note=unit))
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
    named_loss = _loss(data)
    if named_loss is None or not hasattr(predictions, "tempered"):
        return Part()
    name, loss = named_loss
    # Its name is shown only if it is not the default.
    option = "" if loss is scores.negative_log_likelihood else f"scores.{loss.__name__}"
    method, call = recalibration.TemperatureScaling(loss), f"TemperatureScaling({option})"
    samples, scored = Named(predictions, "predictions"), Named(loss, option)
    if data.task == "ensembles":  # their CRPS is not twice differentiable
        best = data.call(Named(method.fit, f"recalibration.{call}.fit"), samples)
    else:
        best = data.call(recalibration.temperature_interval, samples, loss=scored)
    value = measured("temperature", *best)
    if not np.isfinite([value.value, value.standard_error or 0]).all():
        text = "No temperature changes these predictions: they are all 0 or 1, give all classes "
        text += "the same probability, or are uniform distributions."
        text = f"The temperature {value.note}." if value.note else text
        return Part((Section(title, (), text),))
    methods = Named({"temperature": method}, f"{{'temperature': recalibration.{call}}}")
    arguments = recalibration.recalibration_gain, data.key_at(2), methods, samples
    held_out, call = data.call(*arguments, score=scored)
    call, title_of = f"{call}['temperature']", f"held-out gain in {name}"
    gain = measured(title_of, lambda: held_out()["temperature"], call)
    remark = "All predictions p become q ∝ p^(1/T)"
    if data.task == "ensembles":
        remark = "The deviations of all members from their mean are multiplied by √T"
    remark += " with one temperature T, see recalibration.TemperatureScaling: above one they "
    remark += "become less certain. The gain is that of predictions that T was not fitted to "
    remark += "(five folds)."
    section = Section(title, (value, gain), remark)
    ends = words.ends_of(gain)
    if ends is None or ends[0] <= 0:
        return Part((section,))
    won, low, high = words.with_ends(gain.value, *ends)
    lowered = f"{number(value.value)} lowers the {name} of held-out data by {won}"
    text = f"Temperature {lowered} (95 % interval {low} to {high})"
    panels = ()
    if data.is_of_classes:
        repaired = _tempered(predictions, jnp.asarray(value.value, jnp.float32))
        panels = (reliability_panel(data, repaired, " after temperature scaling"),)
    return Part((section,), panels=panels, repair=((words.repair_by(option), text),))


_tempered = jax.jit(jax.vmap(tempered, (0, None)))  # predictions at a temperature


def _loss(data: Data) -> tuple[str, Callable[..., Any]] | None:
    """Name and function of the loss that the temperature minimises, if there is one."""
    if data.task == "ensembles":
        is_scalar = jnp.ndim(data.targets) == 1
        is_floating = jnp.issubdtype(jnp.result_type(data.targets), jnp.floating)
        return ("CRPS", scores.crps) if is_scalar and is_floating else None
    if not hasattr(bare(data.predictions, MonteCarlo), "log_prob"):
        return None
    value = scores.negative_log_likelihood(data.predictions, data.targets, weights=data.weights)
    if np.isfinite(float(value)):
        return "log score (nats per sample)", scores.negative_log_likelihood
    return ("Brier score", scores.brier_score) if data.is_of_classes else None
