"""Several models of the same targets in one call, `calibjax.compare`."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax import hypothesis_tests, recalibration, scores
from calibjax._core import checks
from calibjax._core.gate import checked, group_ids, unchecked
from calibjax.distances import Features
from calibjax.distributions import with_features
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare
from calibjax.evaluation.assembly import Progress, task_in_words, weights_in_words
from calibjax.evaluation.data import LEVEL, Data, Named, checked_data, measured
from calibjax.evaluation.errors import pit_panel, reliability_panel
from calibjax.evaluation.kernel_tests import FEW, has_features
from calibjax.evaluation.record import Advice, Entry, Evaluation, Panel, Section
from calibjax.evaluation.words import alike, p_is
from calibjax.hypothesis_tests.ensembles import clusters_of
from calibjax.kernels import Constant, SquaredExponential, TensorProduct, default_kernel
from calibjax.kernels.base import without_draws
from calibjax.kernels.defaults import distance_of_predictions, typical_distance
from calibjax.recalibration.local import Gain

_MOST = 5000  # predictions of which all pairs are taken
# Scores, of which the first is taken that all models have: its name, and its unit.
_SCORES: Mapping[Callable[..., Any], tuple[str, str]] = {
    scores.negative_log_likelihood: ("log score", " nats"),
    scores.brier_score: ("Brier score", ""),
    scores.crps: ("CRPS", ""),
    scores.energy_score: ("energy score", ""),
    scores.pinball_loss: ("pinball loss", ""),
}


@dataclasses.dataclass(frozen=True)
class Compared:
    """Checked models.

    Attributes:
        data: of each model by name.
        models: predictions by name.
        targets: the same for all.
        pairs: names of the models that are compared.
        reference: the one that the others are compared with, or None.
        score: the function, and the expression that is shown for it.
        score_name: what it is called, and its unit.
        clusters: of the samples, or None.
        weights: of the samples, or None.
        kernel: on pairs (prediction, target), the same for all models; None if there is none.
        rows: those of which all pairs are taken, [n'], or None for all.
    """

    data: dict[str, Data]
    models: dict[str, Any]
    targets: Any
    pairs: list[tuple[str, str]]
    reference: str | None
    score: Named
    score_name: tuple[str, str]
    clusters: Any
    weights: Any
    kernel: Any
    rows: np.ndarray | None

    @property
    def first(self) -> Data:
        """That of the first model."""
        return next(iter(self.data.values()))

    def some(self, values: Any, text: str) -> Named:
        """The rows of which all pairs are taken."""
        rows = self.rows
        if rows is None:
            return Named(values, text)
        chosen = jax.tree.map(lambda x: x[rows], values)
        return Named(chosen, f"jax.tree.map(lambda x: x[result.arrays['rows']], {text})")

    def samples(self, *names: str) -> Named:
        """Models and targets, those rows."""
        values, texts = zip(*self.in_rows(*names), strict=True)
        return Named(values, ", ".join(texts))

    def in_rows(self, *names: str) -> list[Named]:
        """Models and targets, those rows, one by one."""
        models = [self.some(self.models[name], f"models[{name!r}]") for name in names]
        return [*models, self.some(self.targets, "targets")]

    def options(self, *, in_rows: bool = False) -> Named:
        """Weights and clusters as keyword arguments, as far as there are any."""
        arguments = {"weights": self.weights, "clusters": self.clusters}
        options = {name: Named(x, name) for name, x in arguments.items() if x is not None}
        if in_rows:
            options = {name: self.some(*x) for name, x in options.items()}
        text = "".join(f", {name}={x.text}" for name, x in options.items())
        return Named({name: x.value for name, x in options.items()}, text)

    @property
    def test(self) -> tuple[Any, str]:
        """The test of one model, and what its p-values are."""
        if self.clusters is None:
            return hypothesis_tests.exact_skce_test, "exact p-value"
        return hypothesis_tests.cluster_skce_test, "p-value"


def checked_models(
    key: jax.Array,
    models: Any,
    targets: Any,
    reference: Any = None,
    score: Any = None,
    weights: Any = None,
    clusters: Any = None,
) -> Compared:
    """Checks all arguments, and chooses the score, the kernel and the rows."""
    if not isinstance(models, Mapping) or len(models) < 2:
        got = list(models) if isinstance(models, Mapping) else checks.described(models)
        raise TypeError(f"models: expected a dictionary of at least two by name, got {got}")
    models = {str(name): predictions for name, predictions in models.items()}
    if reference is not None:
        reference = checks.choice("reference", reference, tuple(models))
    data = {name: _data(key, name, p, targets, weights) for name, p in models.items()}
    first = next(iter(data))
    expected = _kind(data[first])
    for name, one in data.items():
        if (kind := _kind(one)) != expected:
            as_first = f"predictions of {expected}, as models[{first!r}]"
            raise ValueError(f"models[{name!r}]: expected {as_first}, got {kind}")
    values = {name: one.known(one.predictions) for name, one in data.items()}
    targets = data[first].known(data[first].targets)
    shares = None if weights is None else data[first].known(data[first].weights)
    if clusters is not None:
        ids = group_ids("clusters", clusters, data[first].size)
        clusters_of(ids, float, shares)
        clusters = np.asarray(ids)
    pairs = list(itertools.combinations(data, 2))
    if reference is not None:
        pairs = [(name, reference) for name in data if name != reference]
    chosen = _score(list(values.values()), targets, score)
    kernel = _common_kernel(list(data.values()), list(values.values()))
    rows = _rows(data[first], kernel)
    samples = data, values, targets
    return Compared(*samples, pairs, reference, *chosen, clusters, shares, kernel, rows)


def _data(key: jax.Array, name: str, predictions: Distribution, targets: Any, weights: Any) -> Data:
    try:
        return checked_data(key, predictions, targets, None, None, weights)
    except (TypeError, ValueError) as error:
        raise type(error)(f"models[{name!r}]: {error}") from error


def _kind(data: Data) -> str:
    """What is predicted, by which models can be compared."""
    if data.is_of_classes:
        return f"{data.predictions.class_probs.shape[1]} classes"
    return "quantiles" if data.task == "quantiles" else "numbers"


def _score(values: Sequence[Any], targets: Any, score: Any) -> tuple[Named, tuple[str, str]]:
    """The score, with the expression that is shown for it, and what it is called."""
    if score is not None:
        checks.function("function", "score", score)
        name = getattr(score, "__name__", "score").replace("_", " ")
        return Named(score, "score"), _SCORES.get(score, (name, ""))
    supports = [getattr(p, "support", None) for p in values]
    is_mixed = len({getattr(support, "is_integer", None) for support in supports}) > 1
    for function, name in _SCORES.items():
        if is_mixed and function is scores.negative_log_likelihood:
            continue  # a density and a probability
        try:
            means = [float(function(p, targets)) for p in values]
        except (TypeError, ValueError, NotImplementedError):
            continue
        if np.all(np.isfinite(means)):
            return Named(function, f"scores.{function.__name__}"), name
    raise ValueError("score: expected a function, since no score is finite for all models")


def _common_kernel(data: Sequence[Data], values: Sequence[Any]) -> Any:
    """The default kernel of all predictions together, None if there is none."""
    if any(one.task in ("ensembles", "quantiles") for one in data):
        return None
    kinds = {(jax.tree.structure(p), *(x.shape for x in jax.tree.leaves(p))) for p in values}
    try:
        if len(kinds) == 1:
            together = jax.tree.map(lambda *leaves: np.concatenate(leaves), *values)
            return default_kernel(together)
        kernel = default_kernel(values[0])
    except NotImplementedError:
        return None
    return TensorProduct(Constant(), kernel.target)


def _rows(data: Data, kernel: Any) -> np.ndarray | None:
    most = data.size if kernel is None else _MOST if has_features(kernel, data) else FEW
    if data.size <= most:
        return None
    order = np.asarray(jax.random.permutation(data.at(0), data.size))
    return np.sort(order[data.shares[order] > 0][:most])


def kernel_given(kernel: Any, given: Distribution) -> TensorProduct:
    """The kernel k_P k_Q k_Y, where k_Q looks at the predictions of the other model."""
    distance = distance_of_predictions(given)
    nearness = SquaredExponential(typical_distance(distance, given), Features(distance))
    return TensorProduct(kernel.prediction * nearness, kernel.target)


def predictions_given(predictions: Distribution, given: Distribution) -> Any:
    """Predictions with those of the other model as features."""
    return with_features(predictions, without_draws(bare(given)))


_KERNEL = "result.other_kernels['SKCE']"


def _adjusted(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries, with p-values by the method of Holm (1979) where they have any."""
    entries = tuple(entries)
    values = np.array([x.pvalue for x in entries if x.pvalue is not None])
    order = np.argsort(values)
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    values[order] = np.minimum(stepped, 1)
    adjusted = iter(values.tolist())
    return tuple(
        x if x.pvalue is None else dataclasses.replace(x, pvalue=next(adjusted)) for x in entries
    )


def _tested(name: str, compute: Callable[[], Any], call: str, field: str = "") -> Entry:
    """The entry of a test, or of a field of its result, with the p-value."""
    pvalues = []

    def value() -> Any:
        test = compute()
        pvalues.append(float(test.pvalue))
        return getattr(test, field) if field else test

    entry = measured(name, value, f"{call}.{field}" if field else call)
    return dataclasses.replace(entry, pvalue=pvalues[0]) if pvalues else entry


def _differences(
    c: Compared, what: str, function: Any, *first: Any, call: str
) -> tuple[Entry, ...]:
    """Paired differences of all pairs, with a call that takes what comes after its bracket."""
    score, options = c.score, c.options()
    return _adjusted(
        _tested(
            f"{a} - {b}: {what}",
            functools.partial(
                *(function, *first, c.models[a], c.models[b], c.targets),
                score=score.value,
                **options.value,
            ),
            f"{call}models[{a!r}], models[{b!r}], targets, score={score.text}{options.text})",
        )
        for a, b in c.pairs
    )


def of_scores(c: Compared) -> Section:
    """The score of each model, and paired differences."""
    name, _ = c.score_name
    weights = {} if c.weights is None else {"weights": c.weights}
    entries = [
        measured(
            f"{x}: {name}",
            functools.partial(c.score.value, p, c.targets, **weights),
            f"{c.score.text}(models[{x!r}], targets{c.first.and_weights})",
        )
        for x, p in c.models.items()
    ]
    function = hypothesis_tests.score_difference
    entries += _differences(c, name, function, call="hypothesis_tests.score_difference(")
    remark = "Smaller is better. Differences are paired; their p-values are those of the t-test."
    return Section("Which has the better score?", tuple(entries), remark)


def _recalibration(data: Data) -> Any:
    if data.task == "quantiles":
        return recalibration.QuantileShift
    if data.is_of_classes or data.task == "counts":
        return recalibration.TemperatureScaling
    return recalibration.AffineScaling


def of_gains(c: Compared) -> Section | None:
    """What recalibration gains, and differences of that."""
    kind = _recalibration(c.first)
    have_temperature = all(hasattr(p, "tempered") for p in c.models.values())
    if kind is recalibration.TemperatureScaling and not have_temperature:
        return None
    key, method, recalibrator = c.first.at(2), f"recalibration.{kind.__name__}", kind()

    def gain(predictions: Any) -> Gain:
        options = {"score": c.score.value, "weights": c.weights}
        samples = predictions, c.targets
        return recalibration.recalibration_gain(key, {"": recalibrator}, *samples, **options)[""]

    call = f"recalibration.recalibration_gain(jax.random.fold_in(key, 2), {{'': {method}()}}, "
    more = f"targets, score={c.score.text}{c.first.and_weights})['']"
    entries = [
        measured(f"{x}: gain", functools.partial(gain, p), f"{call}models[{x!r}], {more}")
        for x, p in c.models.items()
    ]
    call = f"hypothesis_tests.gain_difference(jax.random.fold_in(key, 2), {method}(), "
    entries += _differences(
        c, "gain", hypothesis_tests.gain_difference, key, recalibrator, call=call
    )
    remark = f"By how much {method} lowers the {c.score_name[0]} of predictions that it "
    remark += "was not fitted to. A difference of gains is the part of the difference above that "
    remark += "recalibration takes away."
    return Section("Which has more to gain from recalibration?", tuple(entries), remark)


def calibration(c: Compared) -> Section:
    """The test of each model, and its SKCE."""
    (test, words), options = c.test, c.options(in_rows=True)
    key, first = c.first.at(1), f"hypothesis_tests.{test.__name__}(jax.random.fold_in(key, 1), "
    interval, entries = hypothesis_tests.skce_confidence_interval, []
    samples = {name: c.samples(name) for name in c.models}
    for name, (values, shown) in samples.items():
        compute = functools.partial(test, key, c.kernel, *values, **options.value)
        call = f"{first}{_KERNEL}, {shown}{options.text})"
        entries.append(_tested(f"{name}: {words}", compute, call))
    for name, (values, shown) in samples.items():
        compute = functools.partial(interval, c.kernel, *values, **options.value)
        call = f"hypothesis_tests.skce_confidence_interval({_KERNEL}, {shown}{options.text})"
        entries.append(measured(f"{name}: SKCE", compute, call))
    remark = "The kernel is the same for all models. Intervals are for models that are not "
    return Section(
        "Is each model calibrated?", _adjusted(entries), f"{remark}calibrated.{_seen(c)}"
    )


def _seen(c: Compared) -> str:
    if c.rows is None:
        return ""
    return f" Of {c.first.size} predictions {len(c.rows)} are looked at, chosen at random."


def of_skces(c: Compared) -> Section:
    """Differences of SKCEs."""
    test, options, entries = hypothesis_tests.skce_difference, c.options(in_rows=True), []
    for a, b in c.pairs:
        values, shown = c.samples(a, b)
        compute = functools.partial(test, c.kernel, *values, **options.value)
        call = f"hypothesis_tests.skce_difference({_KERNEL}, {shown}{options.text})"
        entries.append(_tested(f"{a} - {b}: SKCE", compute, call, "estimate"))
    entries = _adjusted(entries)
    remark = "The SKCE is zero for a calibrated model. Of models that are wrong in the same way, "
    remark += "the one whose predictions are more alike has the larger one."
    return Section("Which is better calibrated?", entries, remark)


def kernels_given(c: Compared) -> dict[str, Any]:
    """Kernels of the tests of a model given another one, by "given" and the name of the latter."""
    return {f"given {x}": kernel_given(c.kernel, c.samples(x).value[0]) for x in c.models}


def cross_calibration(c: Compared) -> Section:
    """Tests of each model given another."""
    test, kernels, options = c.test[0], kernels_given(c), c.options(in_rows=True)
    entries: list[Entry] = []
    for a, b in (others for pair in c.pairs for others in (pair, pair[::-1])):
        (own, other, targets), _ = c.samples(a, b)
        both, kernel = predictions_given(own, other), kernels[f"given {b}"]
        compute = functools.partial(test, c.first.at(3), kernel, both, targets, **options.value)
        shown, others, ys = (x.text for x in c.in_rows(a, b))
        call = f"hypothesis_tests.{test.__name__}(jax.random.fold_in(key, 3), "
        call += f"result.other_kernels['given {b}'], "
        call += f"distributions.with_features({shown}, {others}), {ys}{options.text})"
        entries.append(_tested(f"{a} given {b}: {c.test[1]}", compute, call))
    remark = "Is the first model right given the predictions of the second, too? If it is "
    remark += "calibrated by itself, a small p says that the second knows what it does not."
    return Section("Does one know what the other does not?", _adjusted(entries), remark + _seen(c))


_ADJUSTED = "p-values are adjusted for the number of models or pairs, those of each question by "
_ADJUSTED += "themselves."


def told_of(c: Compared, sections: Mapping[str, Section]) -> tuple[list[str], list[Advice]]:
    """The sentences, and what to do."""
    entries = {x.name: x for section in sections.values() for x in section.entries}
    pvalues = {x: e.pvalue for x, e in entries.items() if e.pvalue is not None}
    alone = {x: p for x in c.models if (p := pvalues.get(f"{x}: {c.test[1]}")) is not None}
    wrong = [x for x, p in alone.items() if p <= LEVEL]
    texts = [text for pair in c.pairs for text in _score_told(c, *pair, entries)]
    texts += [f"{x} is not calibrated ({p_is(alone[x])})." for x in wrong]
    if alone and not wrong:
        smallest = p_is(min(alone.values()))
        texts.append(f"No miscalibration of any model was found (smallest {smallest}).")
    advice = []
    for a, b in c.pairs:
        texts += _calibration_told(a, b, entries)
        knows = {
            y: p
            for x, y in ((a, b), (b, a))
            if (p := pvalues.get(f"{x} given {y}: {c.test[1]}")) is not None and x not in wrong
        }
        texts += _knowledge_told((a, b), knows)
        if len(knows) == 2 and max(knows.values()) <= LEVEL:
            text = f"Combine {a} and {b}, for example by a mixture of their predictions, and "
            text += "compare it with both on data that its weights were not fitted to."
            advice.append(Advice(text))
    return [*texts, _ADJUSTED], advice


def _score_told(c: Compared, a: str, b: str, entries: Mapping[str, Entry]) -> Iterator[str]:
    name, unit = c.score_name
    entry = entries[f"{a} - {b}: {name}"]
    p, low, high = entry.pvalue, entry.low, entry.high
    if p is None or low is None or high is None or not np.isfinite([low, high]).all():
        return
    better, worse = (a, b) if entry.value <= 0 else (b, a)
    if p <= LEVEL and low * high > 0:
        ends = sorted((abs(low), abs(high)))
        size, *ends = alike(abs(entry.value), *ends)
        text = f"{better} has a better {name} than {worse}: it is lower by {size}{unit} per sample"
    else:
        size, *ends = alike(entry.value, low, high)
        text = f"Which of {a} and {b} has the better {name} is not clear from these data: the "
        text += f"difference is {size}{unit}"
    yield f"{text} (95 % interval {ends[0]} to {ends[1]}; {p_is(p)})."
    gain = entries.get(f"{a} - {b}: gain")
    if gain is None or gain.pvalue is None or gain.pvalue > LEVEL:
        return
    more, less = (a, b) if gain.value > 0 else (b, a)
    if (entries[f"{more}: gain"].low or 0) > 0:  # otherwise it only loses less
        size, error = alike(abs(gain.value), gain.standard_error or 0.0)
        text = f"Recalibration gains {size} ± {error}{unit} more for {more} than for {less}"
        yield f"{text} ({p_is(gain.pvalue)})."


def _calibration_told(a: str, b: str, entries: Mapping[str, Entry]) -> Iterator[str]:
    entry = entries.get(f"{a} - {b}: SKCE")
    if entry is None or entry.pvalue is None:
        return
    better, worse = (a, b) if entry.value < 0 else (b, a)
    text = f"{better} is better calibrated than {worse}"
    if entry.pvalue > LEVEL:
        text = f"Neither of {a} and {b} is seen to be better calibrated"
    yield f"{text} ({p_is(entry.pvalue)})."


def _knowledge_told(pair: Sequence[str], knows: Mapping[str, float]) -> Iterator[str]:
    """What one model knows that the other does not, by p-values of the one that knows it."""
    significant, both = {y: p for y, p in knows.items() if p <= LEVEL}, " and ".join(pair)
    if len(significant) == 2:
        text = f"Each of {both} knows something that the other does not"
        yield f"{text} ({p_is(max(significant.values()))}): combining them would help."
    for y, p in significant.items() if len(significant) == 1 else ():
        [x] = (x for x in pair if x != y)
        text = f"{y} knows something that {x} does not ({p_is(p)}): given the predictions of {y}, "
        yield f"{text}those of {x} are wrong."
    if len(knows) == 2 and not significant:
        smallest = p_is(min(knows.values()))
        yield f"Neither of {both} is seen to know what the other does not ({smallest})."


_OF_SAMPLES = {
    "scores": of_scores,
    "what recalibration gains": of_gains,
}
_WITH_KERNEL = {
    "calibration of each model": calibration,
    "differences of calibration": of_skces,
    "what one model knows": cross_calibration,
}


@checked(targets=unchecked, weights=unchecked, clusters=unchecked, score=unchecked)
def compare(
    key: jax.Array,
    models: Mapping[str, Distribution | ArrayLike],
    targets: ArrayLike,
    *,
    reference: str | None = None,
    score: Callable[..., jax.Array] | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Which of several models of the same targets is better, and in what, in one call.

    For two models p and q it asks four questions, whose answers differ:

    - Which has the better *score*, and is that more than chance?
      (`hypothesis_tests.score_difference`)
    - How much of it could *recalibration* take away? (`hypothesis_tests.gain_difference`)
    - Which is better *calibrated*? (`hypothesis_tests.skce_difference`, with one kernel for all)
    - Does q *know something that p does not*: is p wrong given q? (`exact_skce_test` with q as
      features of p) If that is so in both directions, a combination of both is better than each.
      Only a model that is not rejected by itself can say so: one that is not calibrated is wrong
      given anything.

    p-values are adjusted by the method of Holm, those of each question for all models or pairs. The
    kernel is `kernels.default_kernel` of all predictions together; if they are of
    different families, its target kernel alone. Of more than 5000 predictions, the SKCE and the
    tests look at 5000 that are chosen at random (400 where tests would have to look at all pairs in
    each redraw). For ensembles, quantiles, and families without closed-form expectations there are
    scores and gains only.

    Args:
        key: a JAX random key.
        models: predictions of at least two models by name, each as in `evaluate`: batches of
            n ≥ 10 distributions, or arrays of probabilities. They may be of different families if
            their targets are of one kind.
        targets: [n] or [n, d], the same for all models.
        reference: name of the model that the others are compared with; by default all pairs.
        score: function (predictions, targets) → mean, smaller for better predictions; by default
            the first that is finite for all models of the log score, the Brier score, the CRPS, the
            energy score and the pinball loss. If there are weights it is called with them as
            `weights=`, too.
        weights: w ≥ 0 of the samples, [n], as in `evaluate`: all means, tests, fits and figures are
            weighted.
        clusters: for dependent samples, integers that are equal within clusters, at least 10
            different ones, [n]. Standard errors and tests are then those of clusters; bands of
            figures are not.
        progress: as in `evaluate`.

    Returns:
        The record, as that of `evaluate`; calls of its entries contain `models`, `targets`, `key`,
        `weights` and `clusters` as they were passed. `advice` is about combinations. `figures` are
        the reliability diagram (of class 1 of two, or the top label) or PIT histogram of each.

    Raises:
        TypeError: if an argument is of the wrong kind, or traced by JAX.
        ValueError: if shapes or values are wrong; the message names the model.

    Cost: for each pair n² evaluations of the kernel, and two tests of 999 redraws.

    References: Strähl and Ziegel (2017) for cross-calibration; Holm (1979).

    >>> import jax, jax.numpy as jnp
    >>> import calibjax
    >>> probs = jax.random.uniform(jax.random.key(0), (300,))
    >>> labels = jax.random.bernoulli(jax.random.key(1), probs).astype(int)
    >>> models = {"sharp": probs, "coarse": jnp.full(300, 0.5)}
    >>> comparison = calibjax.compare(jax.random.key(2), models, labels)
    >>> print(comparison.sentences[0])
    sharp has a better log score than coarse: it is lower by 0.20 nats per sample ...
    >>> print(comparison.sentences[-2])
    sharp knows something that coarse does not (p = 0.002): given the predictions of sharp, ...
    """
    compared = checked_models(key, models, targets, reference, score, weights, clusters)
    work = _OF_SAMPLES | (_WITH_KERNEL if compared.kernel is not None else {})
    sections: dict[str, Section] = {}
    say = progress or (lambda *stage: None)
    for number, (name, part) in enumerate(work.items()):
        say(name, number, len(work) + 1)
        section = part(compared)
        if section is not None:
            sections[name] = section
    texts, advice = told_of(compared, sections)
    say("figures", len(work), len(work) + 1)
    kernel = compared.kernel
    kernels = {} if kernel is None else {"SKCE": kernel, **kernels_given(compared)}
    first = compared.first
    names = ", ".join(compared.models)
    read_as = f"; arrays were read as {first.read_as}" if first.read_as else ""
    return Evaluation(
        task=first.task,
        num_samples=first.size,
        description=f"{len(compared.models)} models ({names}) of {first.size} targets: "
        f"{task_in_words(first)}{weights_in_words(first)}{read_as}.",
        sections=tuple(sections.values()),
        sentences=tuple(texts),
        other_kernels=kernels,
        arrays={} if compared.rows is None else {"rows": jax.device_put(compared.rows)},
        panels=tuple(_panels(compared)),
        advice=tuple(advice),
    )


def _panels(c: Compared) -> Iterator[Panel]:
    """The reliability diagram of classes, or the PIT histogram of numbers, of each model."""
    for name, data in c.data.items():
        if data.is_of_classes:
            panel = reliability_panel(data)
        elif data.pit is not None:
            panel = pit_panel(data)
        else:
            continue
        caption = f"{name}: {panel.caption}"
        if c.clusters is not None:
            caption += " That is so for independent samples: clusters scatter more."
        yield dataclasses.replace(panel, name=f"{name}, {panel.name}", caption=caption)
