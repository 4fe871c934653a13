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
from calibjax.distributions import Bernoulli, Quantiles, Uniform, with_features
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.evaluation.data import (
    RANKS,
    REDRAWS,
    TARGETS,
    Data,
    Finding,
    Part,
    measured,
    ranges,
    scatter_of,
    shown_classes,
)
from calibjax.evaluation.record import BAND_LEVEL, Advice, Entry, Panel, Section, number
from calibjax.evaluation.words import (
    GROUPS,
    MAP_OF_QUANTILES,
    SCALING,
    SHAPE,
    SHIFTS,
    alike,
    ends_of,
    hundredths,
    map_of_classes,
    percent,
    percents,
    points,
    repair_by,
)
from calibjax.hypothesis_tests.groups import central_pairs, mean_residual
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.lenses import OneVersusRest
from calibjax.recalibration.base import tempered

LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)  # of predictions without levels of their own
NUM_BINS = 10
_LEAST = 20  # samples in a bin of the reliability diagram, on average
_NUM_DRAWS = 199  # for the ranges of ECEs
_ROUNDING = 8  # in units of the last place


@dataclasses.dataclass(frozen=True)
class Residuals:
    """Residuals of numbers, whose means are zero under calibration: [n, d + 1 + k + c].

    They are those of the mean, of the squared error over the variance, of the events "at most the
    quantile" of k levels, and of c central intervals between two of these. What they need of the
    predictions, [n, 2 d + 2 k], are their features: means, inverse variances (zero where there is
    none), quantiles and the probabilities of the events.

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
        error, precision = y - columns[:, :d], columns[:, d : 2 * d]
        quantiles, probs = jnp.split(columns[:, 2 * d :], 2, 1)
        spread = jnp.mean(precision * error**2 - (precision > 0), 1, keepdims=True)
        events = (y[:, :1] <= quantiles) - probs
        central = [events[:, [high]] - events[:, [low]] for low, high in self.pairs]
        return jnp.concatenate([error, spread, events, *central], 1)


class _Law(NamedTuple):
    """What errors of numbers are computed from.

    Attributes:
        predictions: [N], from which targets are redrawn.
        targets: [N] or [N, d].
        columns: the features of `Residuals`, [N, 2 d + 2 k].
        levels: of the k quantiles.
        redrawn: the targets, or PIT values where the predictions are ensembles or quantiles.
    """

    predictions: Any
    targets: jax.Array
    columns: jax.Array
    levels: np.ndarray
    redrawn: str


def _law(data: Data) -> _Law | None:
    """The distributions and their targets, or uniform ones and PIT values; None without both."""
    predictions, targets = bare(data.predictions, MonteCarlo), data.targets
    is_scalar, is_forecast = jnp.ndim(targets) == 1, data.task in ("ensembles", "quantiles")
    if not is_forecast and hasattr(predictions, "mean"):
        levels = LEVELS if is_scalar and hasattr(predictions, "icdf") else ()
        columns = _columns(predictions, jnp.asarray(levels, jnp.float32))
        return _Law(predictions, targets, columns, np.array(levels), TARGETS)
    if data.pit is None:
        return None
    zeros, pit = jnp.zeros_like(data.pit), data.pit
    levels = jnp.asarray(LEVELS, pit.dtype)
    if isinstance(predictions, Quantiles):
        levels = predictions.levels
    each = jnp.broadcast_to(levels, (data.length, levels.shape[-1]))
    columns = jnp.concatenate([zeros[:, None] + 0.5, zeros[:, None], each, each], 1)
    mean = np.asarray(levels, float).reshape(-1, levels.shape[-1]).mean(0)
    return _Law(Uniform(zeros, zeros + 1), pit, columns, mean, RANKS)


@jax.jit
def _columns(predictions: Distribution, levels: jax.Array) -> jax.Array:
    """Means, inverse variances, quantiles and their probabilities, [n, 2 d + 2 k]."""

    def one(p: Any) -> jax.Array:
        mean = jnp.atleast_1d(p.mean())
        variance = p.variance() if hasattr(p, "variance") else jnp.zeros_like(mean)
        has_one = jnp.isfinite(variance) & (variance > 0)
        precision = jnp.atleast_1d(jnp.where(has_one, 1 / jnp.where(has_one, variance, 1), 0))
        parts = [mean, jnp.broadcast_to(precision, mean.shape)]
        if levels.size:
            quantiles = jax.vmap(p.icdf)(levels.astype(mean.dtype))
            is_whole = getattr(p.support, "is_integer", False)
            probs = jax.vmap(p.cdf)(quantiles) if is_whole else levels.astype(mean.dtype)
            parts += [quantiles.astype(mean.dtype), probs]
        return jnp.concatenate(parts)

    return jax.vmap(one)(predictions)


@functools.partial(jax.jit, static_argnums=0)
def _residuals(residual: Residuals, predictions: Any, targets: jax.Array) -> jax.Array:
    return residual(predictions, targets)


@dataclasses.dataclass(frozen=True)
class _Means:
    """The test of mean errors, of which rows are made.

    Attributes:
        data: what is evaluated.
        test: the result.
        residuals: [n, k].
        members: weights of the samples in each group, [n, G].
        count: of the errors that are shown, for which z-tests are adjusted.
    """

    data: Data
    test: CalibrationTestResult
    residuals: np.ndarray
    members: np.ndarray
    count: int

    def entry(
        self,
        name: str,
        expected: float,
        call: str,
        place: tuple[int, int],
        *,
        is_share: bool = False,
        as_shown: Callable[[float], float] = float,
    ) -> Entry:
        """The row of one error: what was predicted plus the error, which `as_shown` may map."""
        arrays = self.test.estimate, self.test.adjusted_pvalue, self.test.critical_value()
        error, p, chance = (float(np.asarray(x).reshape(self.shape)[place]) for x in arrays)
        scatter, by_scatter = scatter_of(self.residuals[:, place[1]], self.members[:, place[0]])
        ends = [expected + as_shown(x) for x in (error - 1.96 * scatter, error + 1.96 * scatter)]
        reach = [expected + as_shown(x) for x in (-chance, chance)]
        value = expected + as_shown(error)
        if is_share:  # rounding must not take it out of its range
            value, *ends = (min(1.0, max(0.0, x)) for x in (value, *ends))
            reach = [min(1.0, max(0.0, x)) for x in reach]
        return Entry(
            name,
            value,
            expected=expected,
            low=ends[0] if scatter else None,
            high=ends[1] if scatter else None,
            by_chance=(reach[0], reach[1]),
            pvalue=min(1.0, max(p, self.count * by_scatter)),
            call=call,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of groups and residuals."""
        return self.members.shape[1], self.residuals.shape[1]


def _tested(
    data: Data, samples: Any, memberships: Any, residual: Any, count: int | None = None
) -> _Means:
    """Mean errors in groups, by redraws that all tests share."""
    predictions, targets = samples
    options = {"weights": data.weights, "residual": residual}
    test = hypothesis_tests.group_calibration_test(
        data.at(REDRAWS), predictions, targets, memberships, **options
    )
    values = _residuals(residual, *samples) if residual else mean_residual(*samples)
    values = data.known(values).astype(float).reshape(data.size, -1)
    members = data.known(memberships).astype(float) * data.shares[:, None]
    return _Means(data, test, values, members, count or members.shape[1] * values.shape[1])


def _mean_of(data: Data, values: str) -> str:
    """The call of a mean."""
    return f"jnp.average({values}{data.and_weights})" if data.has_weights else f"jnp.mean({values})"


def mean_errors(data: Data) -> Part:
    """What is observed and predicted on average over all samples."""
    return _of_classes(data) if data.is_of_classes else _of_numbers(data)


def _of_classes(data: Data) -> Part:
    """Accuracy beside confidence, and frequencies beside probabilities."""
    probs = data.known(data.predictions.class_probs).astype(float)
    shown, m = shown_classes(probs), probs.shape[1]
    ones, samples = np.ones((data.length, 1)), (data.predictions, data.targets)
    means = _tested(data, samples, ones, None, count=len(shown) + 1)
    call = _mean_of(data, "estimators.top_label(predictions, targets)[1]")
    top = means.entry("accuracy", data.average(probs.max(1)), call, (0, m), is_share=True)
    entries = [dataclasses.replace(top, note="predicted is the mean confidence in the top label")]
    confidence, accuracy = percents(data.average(probs.max(1)), top.value)
    word = "overconfident" if (top.difference or 0) < 0 else "underconfident"
    text = f"mean confidence {confidence}, accuracy {accuracy}"
    options: dict[str, Any] = {"advice": map_of_classes(data.size), "is_repaired": True}
    findings = [Finding(top.name, word, text, **options)]
    for c in shown:
        name, call = f"frequency of {data.class_called(c)}", _mean_of(data, f"targets == {c}")
        entry = means.entry(name, data.average(probs[:, c]), call, (0, c), is_share=True)
        entries.append(entry)
        predicted, observed = percents(data.average(probs[:, c]), entry.value)
        kind = "over" if (entry.difference or 0) < 0 else "under"
        text = f"predicted {predicted} on average, observed {observed}"
        findings.append(
            Finding(name, f"{data.class_called(c)} is {kind}estimated", text, **options)
        )
    findings[1:] = sorted(findings[1:], key=lambda x: _rank(entries, x.entry))
    remark = "" if data.class_names else "Classes are numbered from 0."
    if 2 < len(shown) < m:
        remark += f" Shown are the {len(shown)} with the largest predicted frequencies."
    section = Section("Observed and predicted", tuple(entries), remark.strip(), test="mean errors")
    tests = {(TARGETS, "mean errors"): means.test}
    binned = _binned(data)
    return Part((section, binned), tuple(findings), tests, panels=(reliability_panel(data),))


def _rank(entries: list[Entry], name: str) -> tuple[float, float]:
    """Smaller for the clearer errors."""
    entry = next(x for x in entries if x.name == name)
    return entry.pvalue or 0.0, -abs(entry.difference or 0.0)


def _binned(data: Data) -> Section:
    """ECEs beside those of redrawn labels."""
    notions = ("top_label", "class_wise") if data.task == "classification" else ("top_label",)
    options = {"binning": UniformBins(NUM_BINS), "weights": data.weights}
    call = f"binning=estimators.UniformBins({NUM_BINS}){data.and_weights})"
    entries, draws = [], {}
    for notion in notions:
        statistic = functools.partial(_ece, notion)
        more = {"num_draws": _NUM_DRAWS, "weights": data.weights}
        samples = data.predictions, data.targets
        test = hypothesis_tests.exact_test(data.at(4), statistic, *samples, **more)
        name = f"ECE, {notion.replace('_', ' ')}"
        value = float(estimators.ece(*samples, notion=notion, **options))
        draws[name] = test.null_samples
        shown = f"estimators.ece(predictions, targets, notion={notion!r}, {call}"
        entries.append(Entry(name, value, call=shown))
    chances = ranges(draws)
    entries = [dataclasses.replace(x, by_chance=chances[x.name]) for x in entries]
    remark = f"Expected calibration errors in {NUM_BINS} bins (low, high] of equal width. They are "
    remark += (
        f"biased upwards: a calibrated model has the range on the right ({_NUM_DRAWS} redraws "
    )
    remark += "of the labels)."
    return Section("Expected calibration errors", tuple(entries), remark, is_detail=True)


def _ece(notion: Any, predictions: Any, targets: Any, weights: Any = None) -> jax.Array:
    options = {"binning": UniformBins(NUM_BINS), "notion": notion}
    return inner(estimators.ece)(predictions, targets, weights=weights, **options)


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


def _of_numbers(data: Data) -> Part:
    """Means, size of the errors, and coverage."""
    law = _law(data)
    if law is None:
        return Part()
    k = len(law.levels)
    d = law.columns.shape[1] // 2 - k
    pairs = np.asarray(central_pairs(law.levels)).T.tolist() if k else []
    residual = Residuals(d, tuple((int(low), int(high)) for low, high in pairs))
    samples = with_features(law.predictions, law.columns), law.targets
    means = _tested(data, samples, np.ones((data.length, 1)), residual)
    rows = _Rows(data, law, means, d, k, residual.pairs)
    entries = [*rows.of_means(), *rows.of_spread(), *rows.of_coverage()]
    remark = "PIT values are those of result.arrays['pit'] (estimators.pit_values)."
    if law.redrawn == RANKS:
        remark += " Where targets tie with members or quantiles the ties are broken at random."
    values = data.known(data.predictions.values) if data.task == "quantiles" else np.zeros((1, 1))
    if count := np.isinf(values).any(1).sum():
        remark += f" {count} of {data.size} predictions have intervals of infinite width."
    remark = remark if data.pit is not None else ""
    section = Section("Observed and predicted", tuple(entries), remark, test="mean errors")
    panels = () if data.pit is None else tuple(_figures(data, law))
    tests = {(law.redrawn, "mean errors"): means.test}
    return Part((section,), tuple(rows.findings(entries)), tests, panels=panels)


@dataclasses.dataclass(frozen=True)
class _Rows:
    """The rows of errors of numbers, and what may be said of them."""

    data: Data
    law: _Law
    means: _Means
    d: int
    k: int
    pairs: tuple[tuple[int, int], ...]

    def of_means(self) -> Iterator[Entry]:
        """Means of the targets, or of PIT values."""
        columns = self.data.known(self.law.columns).astype(float)
        for i in range(self.d):
            name, values = "mean of the targets", "targets"
            if self.law.redrawn == RANKS:
                name, values = "mean PIT value", "result.arrays['pit']"
            elif self.data.task == "multivariate":
                name, values = f"mean of coordinate {i}", f"targets[:, {i}]"
            expected = float(self.data.average(columns[:, i]))
            yield self.means.entry(name, expected, _mean_of(self.data, values), (0, i))

    def of_spread(self) -> Iterator[Entry]:
        """Root mean square of the standardised errors."""
        if not np.asarray(self.law.columns[:, self.d : 2 * self.d] > 0).all():
            return
        moments = (f"jax.vmap(lambda p: p.{name}())(predictions)" for name in ("mean", "variance"))
        squares = "(targets - {}) ** 2 / {}".format(*moments)
        weights = ", axis=0" + self.data.and_weights if self.data.has_weights else ", axis=0"
        yield self.means.entry(
            "errors in predicted standard deviations",
            1.0,
            f"jnp.mean(jnp.average({squares}{weights})) ** 0.5",
            (0, self.d),
            as_shown=lambda x: math.sqrt(max(0.0, 1 + x)) - 1,
        )

    def of_coverage(self) -> Iterator[Entry]:
        """Shares of the targets in central intervals, and up to the quantiles."""
        probs = self.data.known(self.law.columns)[:, 2 * self.d + self.k :].astype(float)
        probs = np.atleast_1d(self.data.average(probs)) if self.k else np.zeros(0)
        pit, first = "result.arrays['pit']", self.d + 1
        is_own = self.law.redrawn == RANKS
        for i, (low, high) in enumerate(self.pairs):
            nominal = self.law.levels[high] - self.law.levels[low]
            ends = f"{self.law.levels[low]:.6g} < {pit}", f"{pit} <= {self.law.levels[high]:.6g}"
            call = _mean_of(self.data, f"({ends[0]}) & ({ends[1]})")
            name = f"coverage of the central {100 * nominal:.4g} % intervals"
            place, expected = (0, first + self.k + i), float(probs[high] - probs[low])
            yield self.means.entry(name, expected, self._call(call), place, is_share=True)
        for j, level in enumerate(self.law.levels):
            call = _mean_of(self.data, f"{pit} <= {level:.6g}")
            name = f"coverage of the {100 * level:.4g} % quantiles"
            if is_own or level in (0.05, 0.5, 0.95):
                expected, place = float(probs[j]), (0, first + j)
                yield self.means.entry(name, expected, self._call(call), place, is_share=True)

    def _call(self, call: str) -> str:
        """No call where levels differ between the samples, or targets are whole numbers."""
        is_plain = np.ndim(getattr(self.data.predictions, "levels", 0)) < 2
        return call if is_plain and self.data.task != "counts" else ""

    def findings(self, entries: list[Entry]) -> Iterator[Finding]:
        """Too narrow or too wide, quantiles that are off, and biases."""
        central = [x for x in entries if "central" in x.name]
        levels = [x for x in entries if x.name.endswith("% quantiles")]
        spread = next((x for x in entries if x.name.startswith("errors in")), None)
        if width := self._width(spread, central):
            yield width
        has_pairs = bool(central)
        if levels:
            worst = min(levels, key=lambda x: _rank(levels, x.name))
            low = worst.value < (worst.expected or 0)
            name = worst.name.removeprefix("coverage of ")
            word = f"{name} are too {'low' if low else 'high'}"
            text = f"{percent(worst.value)} of the targets are at most these"
            advice = SHIFTS if self.data.task == "quantiles" else None
            is_last = has_pairs and self.data.task != "quantiles"
            yield Finding(worst.name, word, text, is_last=is_last, advice=advice)
        for entry in sorted(entries[: self.d], key=lambda x: _rank(entries, x.name)):
            yield self._bias(entry, spread)

    def _width(self, spread: Entry | None, central: list[Entry]) -> Finding | None:
        """One finding of the size of the errors and of the intervals."""
        worst = min(central, key=lambda x: _rank(central, x.name), default=None)
        texts, entry, word = [], worst, ""
        if spread is not None and not self._is_of_bias(spread):
            times = (
                f"{spread.value:.2f} times"
                if spread.value < 9.995
                else f"{number(spread.value)} times"
            )
            texts.append(f"the errors are {times} as large as the predicted standard deviations")
            word = "too narrow" if spread.value > 1 else "too wide"
            entry = (
                spread if worst is None or (spread.pvalue or 0) <= (worst.pvalue or 0) else worst
            )
        if worst is not None:
            name = worst.name.removeprefix("coverage of the ")
            texts.append(f"the {name} contain {percent(worst.value)} of the targets")
            if entry is worst:
                word = self._tails(central.index(worst), worst)
        if entry is None or not texts:
            return None
        subject = f"the predicted distributions are {word}" if word.startswith("too") else word
        text = ", and ".join(texts)
        advice = {"regression": MAP_OF_QUANTILES, "quantiles": SHIFTS, "counts": SHAPE}
        chosen = advice.get(self.data.task, SCALING)
        # Where one tail alone is wrong, a bias says more.
        options = {"is_last": subject == word, "is_repaired": True}
        return Finding(entry.name, subject, text, advice=chosen, **options)

    def _is_of_bias(self, spread: Entry) -> bool:
        """Whether errors are large since all of them have one sign."""
        columns = self.data.known(self.law.columns).astype(float)[:, self.d : 2 * self.d]
        scores = self.data.average(self.means.residuals[:, : self.d] * np.sqrt(columns))
        return spread.value > 1 and float(np.mean(scores**2)) > (spread.value**2 - 1) / 2

    def _tails(self, place: int, entry: Entry) -> str:
        """Too narrow or wide where both tails agree."""
        low, high = self.pairs[place]
        first = self.d + 1
        errors = np.asarray(self.means.test.estimate).reshape(self.means.shape)[0]
        below, above = errors[first + low], -errors[first + high]
        if min(below, above) > 0 or max(below, above) < 0:
            return "too narrow" if below > 0 else "too wide"
        more = "few" if entry.value < (entry.expected or 0) else "many"
        return f"the intervals contain too {more} targets"

    def _bias(self, entry: Entry, spread: Entry | None) -> Finding:
        """Targets that are higher or lower than predicted."""
        error = entry.difference or 0.0
        word = f"the targets are {'higher' if error > 0 else 'lower'} than predicted"
        if self.law.redrawn == RANKS:
            rank, half = percents(entry.value, 0.5)
            text = f"their mean rank within the predictions is {rank} instead of {half}"
            advice = SHIFTS if self.data.task == "quantiles" else SCALING
            return Finding(entry.name, word, text, advice=advice)
        if self.data.task == "multivariate":
            word = word.replace("targets", f"targets in {entry.name.removeprefix('mean of ')}")
        text = f"by {number(abs(error))} on average"
        if spread is not None and self.d == 1:
            columns = self.data.known(self.law.columns).astype(float)
            deviation = float(np.median(columns[:, 1] ** -0.5))
            text += f", or {number(abs(error) / deviation, 2)} predicted standard deviations"
        add = Advice(
            f"Add {number(error)} to the predicted means: the targets lie that far from them."
        )
        return Finding(entry.name, word, text, advice=add if self.d == 1 else SCALING)


def _figures(data: Data, law: _Law) -> Iterator[Panel]:
    """PIT histogram, and coverage of the intervals over their level."""
    yield pit_panel(data)
    levels = None
    if data.task == "quantiles":  # which say nothing about other levels
        low, high = central_pairs(law.levels)
        levels = law.levels[high] - law.levels[low]
        if not levels.size:
            return
    caption = "Share of targets in the central prediction intervals over their level: below the "
    caption += "diagonal they are too narrow, above it too wide. The band contains all points of a "
    caption += "calibrated model with a probability of 95 %."
    options = {"levels": levels, "weights": data.weights, "confidence_level": BAND_LEVEL}
    curve = estimators.coverage_curve(data.at(5), data.pit, **options)
    yield Panel("coverage", caption, plotting.coverage_curve, curve)


def pit_panel(data: Data) -> Panel:
    """PIT histogram."""
    caption = "Histogram of the PIT values, whose bars are all in the band for a calibrated model "
    caption += "with a probability of 95 %. High ends mean that the predictions are too narrow, a "
    caption += "high middle that they are too wide, a slope that they are biased."
    options = {"weights": data.weights, "confidence_level": BAND_LEVEL}
    pit = estimators.pit_counts(data.at(5), data.pit, **options)
    return Panel("PIT histogram", caption, plotting.pit_histogram, pit)


def errors_in_groups(data: Data) -> Part:
    """Mean errors in each group."""
    title, samples, redrawn = "Groups", (data.predictions, data.targets), TARGETS
    if not data.is_of_classes:
        law = _law(data)
        if law is None:
            remark = "There is no exact test of mean errors for ensembles of vectors."
            return Part((Section(title, (), remark),))
        samples, redrawn = law[:2], law.redrawn
    means = _tested(data, samples, data.memberships, None)
    columns = [*_columns_of_groups(data, redrawn, means.shape[1])]
    means = dataclasses.replace(means, count=len(columns) * len(data.group_names))
    entries, findings = [], []
    observed = _observed(data, samples)
    for g, group in enumerate(data.group_names):
        members = means.members[:, g]
        share = members / np.abs(members).sum()
        for i, name, values in columns:
            rows = f"result.arrays['memberships'][:, {g}]" + " * weights" * data.has_weights
            call = f"jnp.average({values}, weights={rows})"
            expected = float(share @ (observed[:, i] - means.residuals[:, i]))
            entry = means.entry(f"{name}, {group}", expected, call, (g, i))
            entries.append(entry)
            finding = _of_group(data, entry, name, group)
            # What is wrong in the same way everywhere is no error of a group.
            error, overall = entry.difference or 0.0, data.average(means.residuals[:, i])
            scatter, _ = scatter_of(means.residuals[:, i], members)
            is_same = abs(error - overall) <= 1.96 * scatter
            findings.append(dataclasses.replace(finding, is_last=bool(is_same)))
    findings.sort(key=lambda x: _rank(entries, x.entry))
    caption = "Errors of the groups, observed minus predicted, with standard errors; frames mark "
    caption += "those with an adjusted p-value of at most 5 %."
    names = None
    if data.is_of_classes:
        classes = range(data.predictions.class_probs.shape[1])
        names = [*map(data.class_called, classes), "accuracy - confidence"]
    draw = functools.partial(plotting.group_errors, groups=data.group_names, residuals=names)
    return Part(
        (Section(title, tuple(entries), test="groups"),),
        tuple(findings),
        {(redrawn, "groups"): means.test},
        panels=(Panel("errors in groups", caption, draw, means.test),),
    )


def _columns_of_groups(data: Data, redrawn: str, size: int) -> Iterator[tuple[int, str, str]]:
    """Columns of the residuals, their names, and expressions of the observed values."""
    if data.is_of_classes:
        yield size - 1, "accuracy", "estimators.top_label(predictions, targets)[1]"
        for c in shown_classes(data.known(data.predictions.class_probs)):
            yield c, f"frequency of {data.class_called(c)}", f"targets == {c}"
    elif redrawn == RANKS:
        yield 0, "mean PIT value", "result.arrays['pit']"
    elif size == 1:
        yield 0, "mean of the targets", "targets"
    else:
        yield from ((i, f"mean of coordinate {i}", f"targets[:, {i}]") for i in range(size))


def _observed(data: Data, samples: Any) -> np.ndarray:
    """What the residuals compare with predictions, [n, k]."""
    if not data.is_of_classes:
        return data.known(samples[1]).astype(float).reshape(data.size, -1)
    probs, labels = data.known(data.predictions.class_probs), data.known(data.targets)
    hits = labels[:, None] == np.arange(probs.shape[1])
    return np.column_stack([hits, probs.argmax(1) == labels]).astype(float)


def _of_group(data: Data, entry: Entry, name: str, group: str) -> Finding:
    error = entry.difference or 0.0
    if name == "accuracy":
        word = f"{'under' if error > 0 else 'over'}confident in {group}"
        place = "above" if error > 0 else "below"
        text = f"its accuracy is {points(error)} {place} its mean confidence"
        return Finding(entry.name, word, text, advice=GROUPS)
    if data.is_of_classes:
        called = name.removeprefix("frequency of ")
        word = f"{called} is {'under' if error > 0 else 'over'}estimated in {group}"
        return Finding(entry.name, word, f"by {points(error)} on average", advice=GROUPS)
    word = f"the targets in {group} are {'higher' if error > 0 else 'lower'} than predicted"
    if name.startswith("mean of coordinate"):
        word = word.replace("targets", f"targets of {name.removeprefix('mean of ')}", 1)
    text = f"by {number(abs(error))} on average"
    if name == "mean PIT value":
        rank, half = percents(entry.value, 0.5)
        text = f"their mean rank within the predictions is {rank} instead of {half}"
    return Finding(entry.name, word, text)


class _Score(NamedTuple):
    """A score, the tasks that have it, what it needs of the predictions, and its unit."""

    function: Callable[..., jax.Array]
    tasks: tuple[str, ...]
    needed: str
    unit: str = ""


_CLASSES, _NUMBERS = ("classification", "binary"), ("regression", "counts", "multivariate")
_LIKELIHOOD, _OF_TARGETS = "negative log-likelihood", "in the unit of the targets"
_SCORES = {
    _LIKELIHOOD: _Score(scores.negative_log_likelihood, _CLASSES + _NUMBERS, "log_prob", "in nats"),
    "Brier score": _Score(scores.brier_score, _CLASSES, "class_probs"),
    "CRPS": _Score(scores.crps, ("regression", "ensembles"), "crps", _OF_TARGETS),
    "pinball loss": _Score(scores.pinball_loss, ("quantiles",), "values", _OF_TARGETS),
    "mean squared error": _Score(
        scores.mean_squared_error,
        (*_NUMBERS, "ensembles"),
        "mean",
        "in the squared unit of the targets",
    ),
}


def proper_scores(data: Data) -> Part:
    """The scores that exist for the task, and outcomes that were predicted never to happen."""
    predictions, entries = bare(data.predictions, MonteCarlo), []
    for name, score in _SCORES.items():
        has_thresholds = name != "CRPS" or jnp.ndim(data.targets) == 1
        if data.task in score.tasks and hasattr(predictions, score.needed) and has_thresholds:
            call = f"scores.{score.function.__name__}(predictions, targets{data.and_weights})"
            compute = functools.partial(score.function, data.predictions, data.targets)
            compute = functools.partial(compute, weights=data.weights)
            entries.append(measured(name, compute, call, note=score.unit))
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
    if _is_idle(predictions):
        text = "No temperature changes these predictions: they are all 0 or 1, give all classes "
        text += "the same probability, or are uniform distributions or ensembles whose members "
        return Part((Section(title, (), f"{text}agree."),))
    name, loss = named_loss
    samples, weights = (predictions, data.targets), data.weights
    # Its name is shown only if it is not the default.
    option = "" if loss is scores.negative_log_likelihood else f"scores.{loss.__name__}"
    method, call = recalibration.TemperatureScaling(loss), f"TemperatureScaling({option})"
    shown, more = "predictions, targets", f", loss={option}" * bool(option) + data.and_weights
    if data.task == "ensembles":  # their CRPS is not twice differentiable
        compute = functools.partial(method.fit, *samples, weights=weights)
        best = f"recalibration.{call}.fit({shown}{data.and_weights})"
    else:
        interval = recalibration.temperature_interval
        compute = functools.partial(interval, *samples, loss=loss, weights=weights)
        best = f"recalibration.temperature_interval({shown}{more})"
    value = measured("temperature", compute, best)
    if not np.isfinite(value.value):
        return Part((Section(title, (), f"The temperature {value.note or 'is not finite'}."),))

    def held_out() -> Any:
        methods, gain = {"temperature": method}, recalibration.recalibration_gain
        return gain(data.at(2), methods, *samples, score=loss, weights=weights)["temperature"]

    methods = f"{{'temperature': recalibration.{call}}}"
    call = f"recalibration.recalibration_gain(jax.random.fold_in(key, 2), {methods}, {shown}"
    call += f"{more.replace('loss=', 'score=')})['temperature']"
    gain = measured(f"held-out gain in {name}", held_out, call)
    remark = "All predictions p become q ∝ p^(1/T)"
    if data.task == "ensembles":
        remark = "The deviations of all members from their mean are multiplied by √T"
    remark += " with one temperature T, see recalibration.TemperatureScaling: above one they "
    remark += "become less certain. The gain is that of predictions that T was not fitted to "
    remark += "(five folds)."
    section = Section(title, (value, gain), remark)
    ends = ends_of(gain)
    if ends is None or ends[0] <= 0:
        return Part((section,))
    won, low, high = alike(gain.value, *ends)
    text = f"Temperature {hundredths(value.value)} lowers the {name} of held-out data by {won} "
    text += f"(95 % interval {low} to {high})"
    panels = ()
    if data.is_of_classes:
        repaired = method.apply(jnp.asarray(value.value, jnp.float32), data.predictions)
        panels = (reliability_panel(data, repaired, " after temperature scaling"),)
    return Part((section,), panels=panels, repair=((repair_by(option, text), text),))


@jax.jit
def _is_idle(predictions: Distribution) -> jax.Array:
    """Whether temperatures do not change the predictions, up to rounding."""
    hotter = jax.vmap(tempered, (0, None))(predictions, 2.0)
    before, after = (getattr(p, "class_probs", p) for p in (predictions, hotter))

    def is_close(x: jax.Array, y: jax.Array) -> jax.Array:
        if not jnp.issubdtype(x.dtype, jnp.floating):  # indices, which stay as they are
            return jnp.array(True)
        return jnp.all(jnp.abs(x - y) <= _ROUNDING * jnp.finfo(x.dtype).eps * jnp.abs(x))

    return jnp.all(jnp.stack(jax.tree.leaves(jax.tree.map(is_close, before, after))))


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
