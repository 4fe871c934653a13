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

from calibjax import distributions, estimators, hypothesis_tests, kernels, recalibration, scores
from calibjax._core.gate import inner
from calibjax.binnings import EqualMassBins, UniformBins
from calibjax.distances import Euclidean, Features
from calibjax.distributions import Bernoulli, Ensemble, Uniform
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.evaluation import record
from calibjax.evaluation.data import LEVEL, REDRAWS, Data, chance, measured, scatter_of
from calibjax.evaluation.record import Advice, Entry, Finding, Panel, Part, Section
from calibjax.hypothesis_tests.ensembles import with_targets
from calibjax.hypothesis_tests.groups import central_pairs, mean_residual
from calibjax.kernels.defaults import affordable, thinned
from calibjax.kernels.expectations import prepare_features
from calibjax.plotting import pit_histogram, reliability_diagram
from calibjax.reductions import OneVersusRest

LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)  # of predictions without levels of their own
NUM_BINS = 10
_LEAST = 20  # samples in a bin of the reliability diagram, on average
_NUM_DRAWS = 199  # for the ranges of ECEs
_TEST = "mean errors"
_NARROW, _WIDE = (f"the predicted distributions are too {x}" for x in ("narrow", "wide"))
_PREDICTED = "Predicted beside the accuracy is the mean confidence."
_PIT = "PIT values are those of result.arrays['pit'] (estimators.pit_values)."
_TIES = " Ties with members or quantiles are broken at random."


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


@jax.jit
def moments(predictions: Distribution) -> tuple[jax.Array, jax.Array]:
    """Means and inverse standard deviations, zero where there is none, [n, d] each."""

    def one(p: Any) -> tuple[jax.Array, jax.Array]:
        mean = jnp.atleast_1d(p.mean())
        variance = p.variance() if hasattr(p, "variance") else jnp.zeros_like(mean)
        has_one = jnp.isfinite(variance) & (variance > 0)
        inverse = jnp.where(has_one, jnp.where(has_one, variance, 1) ** -0.5, 0)
        return mean, jnp.broadcast_to(jnp.atleast_1d(inverse), mean.shape).astype(mean.dtype)

    return jax.vmap(one)(predictions)


_residuals = jax.jit(lambda residual, samples: residual(*samples), static_argnums=0)


class Column(NamedTuple):
    """One residual: what is observed and predicted, and what is said if they differ.

    Attributes:
        number: of the residual.
        name: of what is observed.
        values: an expression of it, whose mean is the call of the entry.
        expected: its predicted mean, [n], or a number.
        words: what is wrong if less is observed than predicted, and if more is.
        text: the numbers: {observed} and {predicted} in percent, the {size} of their difference,
            and how many {times} the predicted value is observed.
        advice: what to do about it.
        kind: "share" is between 0 and 1; of "root" the root of the mean is shown, whose prediction
            is one.
        in_groups: whether groups have it, too.
        is_last: whether it is said only if nothing else is.
        is_repaired: whether a temperature that helps makes the advice unnecessary.
        is_explained: whether other errors of the same samples explain it.
    """

    number: int
    name: str
    values: str
    expected: Any
    words: tuple[str, str]
    text: str
    advice: Advice | None
    kind: str = ""
    in_groups: bool = True
    is_last: bool = False
    is_repaired: bool = False
    is_explained: Callable[[np.ndarray], bool] = lambda _: False

    def shown(self, error: float, expected: float) -> float:
        """The observed value."""
        if self.kind == "root":
            return math.sqrt(max(0.0, expected + error))
        # Rounding must not take a share out of its range.
        return min(1.0, max(0.0, expected + error)) if self.kind else expected + error

    def entry(
        self, name: str, shares: np.ndarray, error: float, scatter: float, limit: float
    ) -> Entry:
        """The row of samples with these shares, from their mean error and its critical value."""
        expected = shares @ np.broadcast_to(self.expected, len(shares))
        expected = float(expected / np.abs(shares).sum())
        both = (error, error - 1.96 * scatter, error + 1.96 * scatter, -limit, limit)
        value, low, high, *by_chance = (self.shown(x, expected) for x in both)
        ends: Any = {"low": low, "high": high} if scatter else {}
        return Entry(name, value, expected, by_chance=(by_chance[0], by_chance[1]), **ends)

    def finding(self, entry: Entry, group: str, is_same: bool, columns: str) -> Finding:
        """What is said of an entry; of a group only if it is not the same everywhere."""
        observed, predicted = record.percents(entry.value, entry.expected or 0.0)
        size, times = (record.number(x) for x in (abs(entry.difference or 0), entry.value))
        text = self.text.format(observed=observed, predicted=predicted, size=size, times=times)
        word = self.words[(entry.difference or 0) > 0]
        if group:
            call = record.GROUPS.call.format(columns)
            advice = dataclasses.replace(record.GROUPS, call=call) if columns else None
            return Finding(entry.name, f"{word} in {group}", text, is_same, advice)
        return Finding(entry.name, word, text, self.is_last, self.advice, self.is_repaired)


Law = tuple[str, tuple[Any, Any], Residuals | None, list[Column]]


def mean_errors(data: Data) -> Part:
    """What is observed and predicted on average, over all samples and in groups."""
    redrawn, samples, residual, columns = (
        _of_classes(data) if data.is_of_classes else _of_numbers(data)
    )
    if not columns:
        return Part()
    members, names = np.ones((len(data.targets), 1)), ("", *data.group_names)
    if data.memberships is not None:
        members = np.concatenate([members, np.asarray(data.memberships)], 1)
    options: Any = {"weights": data.weights, "residual": residual}
    key = data.at(REDRAWS)
    test = hypothesis_tests.group_calibration_test(key, *samples, members, **options)
    values = mean_residual(*samples) if residual is None else _residuals(residual, samples)
    values = data.known(values).astype(float).reshape(data.size, -1)
    arrays = test.estimate, test.adjusted_pvalue, test.critical_value()
    arrays = [np.asarray(x, float).reshape(len(names), -1) for x in arrays]
    shares = data.known(members).astype(float) * data.shares[:, None]
    sizes = data.known(members).mean(0)
    division = np.floor(np.cumsum(sizes) - sizes + 1e-6)  # shares of a division sum to one
    asked = [(g, c) for g in range(len(names)) for c in columns if c.in_groups or not g]
    entries, findings = ([], []), []
    for g, c in asked:
        error, pvalue, limit = (float(x[g, c.number]) for x in arrays)
        scatter, by_scatter = scatter_of(values[:, c.number], shares[:, g])
        weights = f"result.arrays['memberships'][:, {g - 1}]" * bool(g)
        name, call = f"{c.name}{f', {names[g]}' * bool(g)}", data.mean_of(c.values, weights)
        # The size of all errors is no other error's doing, unless a mean explains it.
        by_scatter *= bool(g) or c.kind != "root"
        more: Any = {"pvalue": min(1.0, max(pvalue, len(asked) * by_scatter))}
        more["call"] = call + " ** 0.5" * (c.kind == "root")
        entry = dataclasses.replace(c.entry(name, shares[:, g], error, scatter, limit), **more)
        entries[g > 0].append(entry)
        if not c.is_explained(arrays[0][g]):
            is_same = abs(error - arrays[0][0, c.number]) <= 1.96 * scatter
            same = (np.flatnonzero(division == division[g]) - 1).tolist()
            findings.append(c.finding(entry, names[g], is_same, f"{same}" * data.is_of_classes))
    order = {x.name: (g, x.pvalue, -abs(x.difference or 0)) for g in (0, 1) for x in entries[g]}
    first = columns[0].name if data.task == "classification" else ""
    findings.sort(key=lambda x: (x.entry != first, *order[x.entry]))
    widths = [x for x in findings if x.word in (_NARROW, _WIDE)]
    # Of shapes that are both too narrow and too wide the clearer one is said.
    findings = [x for x in findings if x not in widths or x.word == widths[0].word]
    remark = _PREDICTED if data.is_of_classes else ""
    if data.pit is not None:
        remark = _PIT + _TIES * (redrawn == "PIT values")
    sections = [Section("Observed and predicted", tuple(entries[0]), remark, test=_TEST)]
    if entries[1]:
        sections.append(Section("Groups", tuple(entries[1]), test=_TEST))
    if data.is_of_classes:
        sections.append(_binned(data))
    tests = {(redrawn, _TEST): test}
    panels = tuple(filter(None, [main_panel(data)]))
    return Part(tuple(sections), tuple(findings), tests, panels=panels)


def _of_classes(data: Data) -> Law:
    """Accuracy beside confidence, and frequencies beside probabilities."""
    probs = data.known(data.predictions.class_probs).astype(float)
    m, advice = probs.shape[1], record.map_of("classification", data.size)
    words, text = ("overconfident", "underconfident"), "mean confidence {predicted}, accuracy "
    right = "estimators.top_label(predictions, targets)[1]", probs.max(1), words
    rest = f"{text}{{observed}}", advice, "share"
    columns = [Column(m, "accuracy", *right, *rest, is_repaired=True)]
    for c in data.shown_classes:
        name = data.class_called(c)
        words = (f"{name} is overestimated", f"{name} is underestimated")
        rest = "predicted {predicted} on average, observed {observed}", advice, "share"
        values = f"targets == {c}", probs[:, c]
        columns.append(Column(c, f"frequency of {name}", *values, words, *rest))
    return "targets", (data.predictions, data.targets), None, columns


def _of_numbers(data: Data) -> Law:
    """Means, size of the errors, and coverage of intervals and quantiles.

    They are those of targets, or of PIT values where the predictions are ensembles or quantiles.
    """
    predictions, task = bare(data.predictions, MonteCarlo), data.task
    samples: Any = (predictions, data.targets)
    levels: Any = LEVELS
    is_quantiles = task == "quantiles"
    is_ranks = is_quantiles or task == "ensembles" or not hasattr(predictions, "mean")
    if is_quantiles:
        levels = tuple(data.levels.tolist())
    elif jnp.ndim(data.targets) > 1 or data.pit is None or is_whole(predictions):
        levels = ()
    if is_ranks and data.pit is None:
        return "targets", samples, None, []
    if is_ranks:
        zeros: Any = np.zeros_like(data.pit)
        samples = Uniform(zeros, zeros + 1), data.pit
    has_moments = not (is_quantiles and levels)  # whose levels say where they are
    columns = [*_moment_columns(data, samples[0], is_ranks)] if has_moments else []
    pairs = central_pairs(np.array(levels)).T.tolist() if levels else []
    residual = Residuals(has_moments, levels, tuple((low, high) for low, high in pairs))
    has_spread, first = any(x.kind == "root" for x in columns), 0
    if has_moments:
        first = (samples[1].shape[1] if jnp.ndim(samples[1]) > 1 else 1) + 1
    pit, advice = "result.arrays['pit']", record.map_of(task, data.size)
    for i, (low, high) in enumerate(pairs):
        nominal = levels[high] - levels[low]
        name = f"central {100 * nominal:.4g} % intervals"
        inside = f"({levels[low]:.6g} < {pit}) & ({pit} <= {levels[high]:.6g})"
        about = f"coverage of the {name}", inside, nominal, (_NARROW, _WIDE)
        text = f"the {name} contain {{observed}} of the targets"
        in_groups = not (has_spread or is_quantiles) and abs(nominal - 0.9) < 1e-6
        # An error of one end alone is one of that quantile.
        is_bias = functools.partial(_is_bias, first + low, first + high)
        more: Any = {"in_groups": in_groups, "is_repaired": True, "is_explained": is_bias}
        number = first + len(levels) + i
        columns.append(Column(number, *about, text, advice, "share", **more))
    middle = int(np.abs(np.array(levels) - 0.5).argmin()) if levels else 0
    for j, level in enumerate(levels):
        if is_ranks or level in (0.05, 0.5, 0.95):
            name = f"{100 * level:.4g} % quantiles"
            words = (f"the {name} are too low", f"the {name} are too high")
            about = f"coverage of the {name}", f"{pit} <= {level:.6g}", level, words
            text = "{observed} of the targets are at most these"
            more = {"is_last": not is_quantiles, "in_groups": is_quantiles and j == middle}
            shift = record.SHIFTS if is_quantiles else None
            columns.append(Column(first + j, *about, text, shift, "share", **more))
    return "PIT values" if is_ranks else "targets", samples, residual, columns


def _moment_columns(data: Data, predictions: Any, is_ranks: bool) -> Iterator[Column]:
    """Means and size of the errors."""
    means, inverse = (data.known(x).astype(float) for x in moments(predictions))
    d = means.shape[1]
    advice = record.OTHER_COUNTS if data.task == "counts" else record.SCALING
    for i in range(d):
        where, values, name = "", "targets", "mean of the targets"
        text = "the mean difference is {size}"
        if data.task == "multivariate":
            where, values = f" in coordinate {i}", f"targets[:, {i}]"
            name = f"mean of coordinate {i}"
        if is_ranks:
            name, values = "mean PIT value", "result.arrays['pit']"
            text = "their mean rank within the predictions is {observed} instead of {predicted}"
        words = f"the targets{where} are lower than predicted"
        words = words, words.replace("lower", "higher")
        yield Column(i, name, values, means[:, i], words, text, advice)
    if not (inverse > 0).all():
        return
    of = (f"jax.vmap(lambda p: p.{x}())(predictions)" for x in ("mean", "variance"))
    call = "(targets - {}) ** 2 / {}".format(*of)
    call = call if d == 1 else f"jnp.mean({call}, 1)"
    name = "errors in predicted standard deviations"
    text = "the errors are {times} times as large as the predicted standard deviations"
    if is_ranks:
        name, call = "spread of the PIT values", "12 * (result.arrays['pit'] - 0.5) ** 2"
        text = "PIT values are {times} times as far from one half as they should be"
    # Errors of one sign are large because they are biased.
    is_bias = functools.partial(_is_shift, np.median(1 / inverse, 0))
    more = {"is_last": is_ranks, "is_repaired": True, "is_explained": is_bias}
    advice = record.map_of(data.task, data.size)
    yield Column(d, name, call, 1.0, (_WIDE, _NARROW), text, advice, "root", **more)


def _is_shift(scales: np.ndarray, errors: np.ndarray) -> bool:
    """Whether mean errors make up half of the error of the squares, which is too large."""
    d = len(scales)
    return errors[d] > 0 and np.mean((errors[:d] / scales) ** 2) > errors[d] / 2


def _is_bias(low: int, high: int, errors: np.ndarray) -> bool:
    """Whether an interval has an error at one end only, or errors that cancel."""
    return errors[low] * errors[high] >= 0


def is_whole(predictions: Any) -> bool:
    """Whether targets are whole numbers, whose PIT values are randomised."""
    return getattr(getattr(predictions, "support", None), "is_integer", False)


def _binned(data: Data) -> Section:
    """The ECE beside those of redrawn labels."""
    options: Any = {"num_draws": _NUM_DRAWS, "weights": data.weights}
    samples = data.predictions, data.targets
    test: Any = hypothesis_tests.exact_test(data.at(4), _ece, *samples, **options)
    call = f"estimators.ece(predictions, targets, binning=estimators.UniformBins({NUM_BINS})"
    more: Any = {"by_chance": chance(test.null_samples), "call": f"{call}{data.and_weights})"}
    entry = Entry("ECE, top label", float(test.statistic), **more)
    remark = f"Expected calibration error in {NUM_BINS} bins (low, high] of equal width. It is "
    remark += f"biased upwards: a calibrated model has the range on the right ({_NUM_DRAWS} "
    remark += "redraws of the labels)."
    return Section("Expected calibration error", (entry,), remark, is_detail=True)


def _ece(predictions: Any, targets: Any, weights: Any = None) -> jax.Array:
    options: Any = {"binning": UniformBins(NUM_BINS), "weights": weights}
    return inner(estimators.ece)(predictions, targets, **options)


def main_panel(data: Data, predictions: Any = None, when: str = "") -> Panel | None:
    """Reliability diagram of class 1 of two or of the top label, or PIT histogram."""
    options: Any = {"weights": data.weights, "confidence_level": 0.95}
    if not data.is_of_classes:
        if data.pit is None:
            return None
        caption = "Histogram of the PIT values, whose bars are all in the band for a calibrated "
        caption += "model with a probability of 95 %. High ends mean that the predictions are too "
        caption += "narrow, a high middle that they are too wide, a slope that they are biased."
        counts = estimators.pit_counts(data.at(5), data.pit, **options)
        return Panel("PIT histogram", caption, pit_histogram, counts)
    name, reduction = "top label", estimators.top_label
    if data.task == "binary":
        name, reduction = data.class_called(1), OneVersusRest(1)
    reduced, observed = reduction(predictions or data.predictions, data.targets)
    options["binning"] = EqualMassBins(max(1, min(NUM_BINS, data.size // _LEAST)))
    samples = Bernoulli(reduced.probs), observed
    curve = estimators.reliability_curve(data.at(5), *samples, **options)
    caption = f"Observed frequency over predicted probability{when}, in bins with equally many "
    caption += "samples. Points below the diagonal: the event is rarer than predicted. The bands "
    caption += "contain all points of a calibrated model with a probability of 95 %."
    return Panel(f"reliability, {name}{when}", caption, reliability_diagram, curve)


_CLASSES, _NUMBERS = ("classification", "binary"), ("regression", "counts", "multivariate")
_UNIT, _LIKELIHOOD = "in the unit of the targets", "negative log-likelihood"
# Scores by name: the function, what it needs of the predictions, the tasks that have it, its unit.
SCORES: dict[str, tuple[Callable[..., jax.Array], str, tuple[str, ...], str]] = {
    _LIKELIHOOD: (scores.negative_log_likelihood, "log_prob", _CLASSES + _NUMBERS, "in nats"),
    "Brier score": (scores.brier_score, "class_probs", _CLASSES, ""),
    "CRPS": (scores.crps, "crps", ("regression", "ensembles"), _UNIT),
    "energy score": (scores.energy_score, "values", ("ensembles",), _UNIT),
    "pinball loss": (scores.pinball_loss, "values", ("quantiles",), _UNIT),
}


def proper_scores(data: Data) -> Part:
    """The scores that exist for the task, and outcomes that were predicted never to happen."""
    predictions, entries = bare(data.predictions, MonteCarlo), []
    for name, (function, needed, tasks, unit) in SCORES.items():
        is_other = name == ("CRPS" if jnp.ndim(data.targets) > 1 else "energy score")
        if data.task in tasks and hasattr(predictions, needed) and not is_other:
            call = f"scores.{function.__name__}(predictions, targets{data.and_weights})"
            samples = data.predictions, data.targets
            compute = functools.partial(function, *samples, weights=data.weights)
            entries.append(measured(name, compute, call, note=unit))
    warnings = ()
    if any(x.name == _LIKELIHOOD and x.value == np.inf for x in entries):
        count = int(data.known(_are_impossible(predictions, data.targets)).sum())
        text = f"{count} of {data.size} samples had a predicted probability of 0 for what happened"
        warnings = (text,) * bool(count)
    remark = "Smaller is better. A proper score mixes calibration with sharpness: a better score "
    remark += "alone does not mean better calibration."
    return Part((Section("Scores", tuple(entries), remark),) * bool(entries), warnings=warnings)


# Which targets have probability, or density, zero, [N].
_are_impossible = jax.jit(jax.vmap(lambda p, y: p.log_prob(y) == -jnp.inf))


def temperature(data: Data) -> Part:
    """The temperature that would recalibrate the predictions, and its gain on held-out data."""
    predictions, weights = bare(data.predictions, MonteCarlo), {"weights": data.weights}
    samples: Any = (predictions, data.targets)
    if not (hasattr(predictions, "tempered") and hasattr(predictions, "log_prob")):
        return Part()

    def told(remark: str, *entries: Entry, **more: Any) -> Part:
        section = Section("What recalibration would gain", entries, remark)
        return Part((section,), **more)

    interval = functools.partial(recalibration.temperature_interval, *samples, **weights)
    call = f"predictions, targets{data.and_weights})"
    fitted = measured("temperature", interval, f"recalibration.temperature_interval({call}")
    if fitted.note or not np.isfinite([fitted.value, fitted.standard_error or 0]).all():
        reason = fitted.note or "does not exist: predictions are all certain or uniform"
        return told(f"The temperature {reason}.")
    methods = {"temperature": recalibration.TemperatureScaling()}
    gains = functools.partial(recalibration.recalibration_gain, data.at(2), methods)
    call = f"{{'temperature': recalibration.TemperatureScaling()}}, {call}['temperature']"
    call = f"recalibration.recalibration_gain(jax.random.fold_in(key, 2), {call}"
    name = "held-out gain in log score (nats per sample)"
    won = measured(name, lambda: gains(*samples, **weights)["temperature"], call)
    remark = "All predictions p become q ∝ p^(1/T) with one temperature T, see "
    remark += "recalibration.TemperatureScaling: above one they become less certain. The gain is "
    remark += "that of predictions that T was not fitted to (five folds)."
    if won.ends is None or won.ends[0] <= 0:
        return told(remark, fitted, won)
    gained, low, high = record.with_ends(won.value, *won.ends)
    text = f"Temperature {record.number(fitted.value)} lowers the log score (nats per sample) of "
    text += f"held-out data by {gained} (95 % interval {low} to {high})."
    more: Any = {"remarks": (text,), "advice": (record.TEMPERATURE,)}
    if data.is_of_classes:
        recalibrated = methods["temperature"].apply(fitted.value, predictions)
        more["panels"] = (main_panel(data, recalibrated, " after temperature scaling"),)
    return told(remark, fitted, won, **more)


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
    """

    groups: dict[str, Any]
    kernel: Any
    predictions: Any
    text: str


def chosen_kernels(data: Data) -> Choice:
    """The default kernels."""
    predictions, text, kernel, is_closed = data.predictions, "predictions", None, False
    if isinstance(predictions, MonteCarlo):
        predictions, text = predictions.draws, "predictions.draws"
    with contextlib.suppress(NotImplementedError, TypeError):  # of families without a variance
        kernel = kernels.default_kernel(_seen(predictions, data))
        is_closed = is_ensemble(predictions) or has_features(kernel, data) or data.size <= FEW
    if not is_closed:
        predictions = distributions.monte_carlo(data.at(9), predictions, NUM_DRAWS).draws
        text = "distributions.monte_carlo(jax.random.fold_in(key, 9), predictions, "
        text += f"{NUM_DRAWS}).draws"
        kernel = kernels.default_kernel(_seen(predictions, data))
    groups = {} if is_ensemble(predictions) else kernels.default_kernels(_seen(predictions, data))
    return Choice(groups, kernel, predictions, text)


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
    arguments, call = (kernel, *samples), f"{shown}, {text}, targets"
    more, test = {"weights": data.weights}, hypothesis_tests.exact_skce_test
    if isinstance(kernel, dict):
        arguments, call = samples, f"{text}, targets, kernels={shown}"
        more, test = more | {"kernels": kernel}, hypothesis_tests.aggregated_skce_test
    elif is_ensemble(samples[0]):
        test = hypothesis_tests.ensemble_skce_test
    result: Any = test(data.at(REDRAWS), *arguments, **more)
    call = f"jax.random.fold_in(key, {REDRAWS}), {call}{data.and_weights}"
    call = f"hypothesis_tests.{test.__name__}({call}).statistic"
    return result, Entry(title, float(result.statistic), pvalue=float(result.pvalue), call=call)


def _linear(data: Data, kernel: Any, predictions: Distribution) -> Any:
    """The kernel, or one of low rank on predictions if there are many."""
    kept = affordable(kernel.prediction, _seen(predictions, data))
    return kernels.TensorProduct(kept, kernel.target)


def all_errors(data: Data, chosen: Choice) -> Part:
    """The exact test of all errors together."""
    groups, kernel, predictions, text = chosen
    samples, title = (predictions, data.targets), "all errors together"
    others = {}
    if groups:
        test, entry = _exact(data, title, groups, "result.kernels", samples, text)
        how = f"A soft maximum of {len(jax.tree.leaves(test.adjusted_pvalue))} kernels in "
        how += f"{len(groups)} groups, which result.tests['calibration'] shows."
    else:
        others["exact test"] = _linear(data, kernel, predictions)
        shown = "result.other_kernels['exact test']"
        test, entry = _exact(data, title, others["exact test"], shown, samples, text)
        how = "The test with kernels.default_kernel."
    if predictions is not data.predictions:
        how += " Expectations have no closed form, or none that is fast enough: the SKCE and its "
        how += f"test are those of ensembles of {predictions.values.shape[1]} draws."
    section = Section("Is the model calibrated?", (entry,), how, test="calibration")
    tests = {("members" if is_ensemble(predictions) else "targets", "calibration"): test}
    finding = Finding(title, "not calibrated", "", is_last=True)
    return Part((section,), (finding,), tests, groups, others)


def errors_given_features(data: Data, chosen: Choice | None) -> Part:
    """The exact test with a kernel that looks at the features."""
    title = "Given the features"
    if chosen is None:
        remark = "Quantile forecasts have no kernel calibration error."
        return Part((Section(title, (), remark),))
    scale = kernels.median_heuristic(Euclidean(), thinned(data.known(data.features)))
    closeness = kernels.SquaredExponential(scale, Features(Euclidean()))
    predictions = distributions.with_features(chosen.predictions, data.features)
    kernel = _linear(data, kernels.TensorProduct(closeness, chosen.kernel.target), predictions)
    samples, text = (predictions, data.targets), _WITH_FEATURES.format(chosen.text)
    shown, name = "result.other_kernels['features']", "all errors given the features"
    test, entry = _exact(data, name, kernel, shown, samples, text)
    # Samples with similar features share the same error, and not only all samples.
    part = test.components.unbiased
    is_shared = float(part.statistic) > chance(part.null_samples)[1]
    remark = "The test asks for more than calibration: that predictions are right given the "
    remark += "features, which are divided by their standard deviations."
    words = "samples with similar features share the same error"
    finding = Finding(name, "wrong given the features", words, is_last=not is_shared)
    section = Section(title, (entry,), remark, test="features")
    tests = {("members" if is_ensemble(predictions) else "targets", "features"): test}
    return Part((section,), (finding,), tests, other_kernels={"features": kernel})


def kernel_errors(data: Data, chosen: Choice, pvalues: Mapping[str, float]) -> Part:
    """The SKCE, with an interval where the test rejects: it does not hold for calibrated models."""
    if is_ensemble(chosen.predictions) or data.size**2 > PAIRS:
        return Part()
    is_rejected = pvalues["all errors together"] <= LEVEL
    function = hypothesis_tests.skce_confidence_interval if is_rejected else estimators.skce
    call = f"{'hypothesis_tests' if is_rejected else 'estimators'}.{function.__name__}"
    call += f"(result.other_kernels['SKCE'], {chosen.text}, targets{data.and_weights})"
    samples = chosen.kernel, chosen.predictions, data.targets
    compute = functools.partial(function, *samples, weights=data.weights)
    entry = measured(f"SKCE, all {'classes' if data.is_of_classes else 'targets'}", compute, call)
    remark = "The squared kernel calibration error is zero for a calibrated model. The interval is "
    remark += "for models that are not calibrated, and left out where no test rejects."
    section = Section("Kernel calibration error", (entry,), remark, is_detail=True)
    return Part((section,), other_kernels={"SKCE": chosen.kernel})


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
    text += f"(area under the ROC curve {area:.2f}, {record.p_is(pvalue)}); it may be the "
    text += "probability of the other class"
    return [Finding("", "the predictions go the wrong way", text, advice=record.OTHER_CLASS)]
