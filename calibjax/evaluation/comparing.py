"""Several models of the same targets in one call, `calibjax.compare`."""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax import hypothesis_tests
from calibjax._core import checks
from calibjax._core.gate import checked, group_ids, unchecked
from calibjax.distances import Features
from calibjax.distributions import with_features
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare
from calibjax.evaluation import sections
from calibjax.evaluation.assembly import Progress
from calibjax.evaluation.data import LEVEL, Data, checked_data, measured
from calibjax.evaluation.record import (
    Advice,
    Entry,
    Evaluation,
    Panel,
    Part,
    Section,
    p_is,
    with_ends,
)
from calibjax.hypothesis_tests.ensembles import clusters_of
from calibjax.kernels import Constant, SquaredExponential, TensorProduct, default_kernel
from calibjax.kernels.base import without_draws
from calibjax.kernels.defaults import distance_of_predictions, typical_distance

_MOST = 5000  # predictions of which all pairs are taken


@dataclasses.dataclass(frozen=True)
class Compared:
    """Checked models.

    Attributes:
        data: of each model by name.
        pairs: names of the models that are compared.
        models: predictions by name.
        targets: the same for all.
        options: weights and clusters, as far as there are any.
        score: the function, what it is called, its unit, and its expression.
        rows: those that are in models, targets and options, [n'], or None for all.
        kernels: of `paired`, "SKCE", and "given NAME" of each model.
    """

    data: dict[str, Data]
    pairs: list[tuple[str, str]]
    models: dict[str, Any]
    targets: Any
    options: dict[str, Any]
    score: tuple[Callable[..., Any], str, str, str]
    rows: np.ndarray | None = None
    kernels: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def first(self) -> Data:
        """The data of the first model."""
        return next(iter(self.data.values()))

    def rows_of(
        self,
        what: str,
        function: Callable[..., Any],
        call: str,
        models: Any = None,
        by: str = ": ",
        unused: str = "",
    ) -> dict[Any, Entry]:
        """A function of each model or of some pairs, with p-values adjusted for all of these.

        Args:
            what: is computed.
            function: of the predictions, the targets and the options.
            call: its expression, with a gap for the name of each of these.
            models: pairs of names; None for single models.
            by: what is between the names of a pair.
            unused: the name of an option that the function does not have.
        """
        entries, options = {}, {x: value for x, value in self.options.items() if x != unused}
        call = call.replace(", targets", ", targets" + "".join(f", {x}={x}" for x in options))
        for x in models or self.models:
            both, text = (x,) if isinstance(x, str) else x, call
            arguments = *(self.models[name] for name in both), self.targets
            for name in both:  # which may have braces
                text = text.replace("{}", f"models[{name!r}]", 1)
            compute = functools.partial(function, *arguments, **options)
            entries[x] = measured(f"{by.join(both)}: {what}", compute, text)
        return _adjusted(entries)

    @property
    def test(self) -> tuple[Callable[..., Any], str]:
        """The test of one model, and what its p-values are called."""
        if "clusters" in self.options:
            return hypothesis_tests.cluster_skce_test, "p-value"
        return hypothesis_tests.exact_skce_test, "exact p-value"


def checked_models(key: jax.Array, models: Any, targets: Any, weights: Any) -> dict[str, Data]:
    """The data of each model."""
    if not isinstance(models, Mapping) or len(models) < 2:
        got = list(models) if isinstance(models, Mapping) else checks.described(models)
        raise TypeError(f"models: expected a dictionary of at least two by name, got {got}")
    data: dict[str, Data] = {}
    for name, predictions in ((str(name), p) for name, p in models.items()):
        try:
            data[name] = checked_data(key, predictions, targets, None, None, weights)
        except (TypeError, ValueError) as error:
            raise type(error)(f"models[{name!r}]: {error}") from error
        first, *_ = data
        if (kind := _kind(data[name])) != (expected := _kind(data[first])):
            as_first = f"predictions of {expected}, as models[{first!r}]"
            raise ValueError(f"models[{name!r}]: expected {as_first}, got {kind}")
    return data


def compared(data: dict[str, Data], reference: Any, score: Any, clusters: Any) -> Compared:
    """All samples, with the score."""
    pairs, one = list(itertools.combinations(data, 2)), next(iter(data.values()))
    if reference is not None:
        reference = checks.choice("reference", reference, tuple(data))
        pairs = [(name, reference) for name in data if name != reference]
    options = {"weights": one.known(one.weights)} if one.has_weights else {}
    if clusters is not None:
        options["clusters"] = np.asarray(group_ids("clusters", clusters, one.size))
        clusters_of(options["clusters"], float, options.get("weights"))
    models = {x: p.known(p.predictions) for x, p in data.items()}
    targets = one.known(one.targets)
    chosen = _score([*models.values()], targets, score)
    return Compared(data, pairs, models, targets, options, chosen)


def _kind(data: Data) -> str:
    """What is predicted, by which models can be compared."""
    if data.is_of_classes:
        return f"{data.predictions.class_probs.shape[1]} classes"
    return "quantiles" if data.task == "quantiles" else "numbers"


def _score(values: Sequence[Any], targets: Any, score: Any) -> tuple[Any, str, str, str]:
    """The score, or the first that is finite for all models."""
    known = {x[0]: (name, "") for name, x in sections.SCORES.items()}
    likelihood, *_, squared = known
    known[likelihood] = "log score", " nats"
    if score is not None:
        checks.function("function", "score", score)
        name = getattr(score, "__name__", "score").replace("_", " ")
        return score, *known.get(score, (name, "")), "score"
    is_whole = {sections.is_whole(p) for p in values}
    left_out = [squared, likelihood][: len(is_whole)]  # no density is compared with a probability
    for function in (x for x in known if x not in left_out):
        with contextlib.suppress(TypeError, ValueError, NotImplementedError):
            if np.isfinite([function(p, targets) for p in values]).all():
                return function, *known[function], f"scores.{function.__name__}"
    raise ValueError("score: expected a function, since no score is finite for all models")


def paired(c: Compared) -> Compared:
    """The samples of which all pairs are taken, with kernels if there are any."""
    one, kernel = c.first, _common_kernel(c)
    if kernel is None:
        return c
    most = _MOST if sections.has_features(kernel, one) else sections.FEW
    if one.size > most:
        order = np.asarray(jax.random.permutation(one.at(0), one.size))
        rows = np.sort(order[one.shares[order] > 0][:most])
        some = jax.tree.map(lambda x: x[rows], (c.models, c.targets, c.options))
        models, targets, options = some
        c = dataclasses.replace(c, rows=rows, models=models, targets=targets, options=options)
    kernels = {f"given {x}": kernel_given(kernel, p) for x, p in c.models.items()}
    return dataclasses.replace(c, kernels={"SKCE": kernel, **kernels})


def _common_kernel(c: Compared) -> Any:
    """The default kernel of all predictions together, None if there is none."""
    if any(one.task in ("ensembles", "quantiles") for one in c.data.values()):
        return None
    values = [*c.models.values()]
    kinds = {(jax.tree.structure(p), *(x.shape for x in jax.tree.leaves(p))) for p in values}
    with contextlib.suppress(NotImplementedError):
        if len(kinds) == 1:
            return default_kernel(jax.tree.map(lambda *leaves: np.concatenate(leaves), *values))
        return TensorProduct(Constant(), default_kernel(values[0]).target)
    return None


def kernel_given(kernel: Any, given: Distribution) -> TensorProduct:
    """The kernel k_P k_Q k_Y, where k_Q looks at the predictions of the other model."""
    distance = distance_of_predictions(given)
    nearness = SquaredExponential(typical_distance(distance, given), Features(distance))
    return TensorProduct(kernel.prediction * nearness, kernel.target)


def predictions_given(predictions: Distribution, given: Distribution) -> Any:
    """Predictions with those of the other model as features."""
    return with_features(predictions, without_draws(bare(given)))


def _adjusted(entries: Mapping[Any, Entry]) -> dict[Any, Entry]:
    """The entries with p-values by the method of Holm (1979), where they have any."""
    adjusted, pvalues, largest = dict(entries), _pvalues(entries), 0.0
    for rank, x in enumerate(sorted(pvalues, key=pvalues.__getitem__)):
        largest = min(1.0, max(largest, (len(pvalues) - rank) * pvalues[x]))
        adjusted[x] = dataclasses.replace(entries[x], pvalue=largest)
    return adjusted


def _pvalues(entries: Mapping[Any, Entry]) -> dict[Any, float]:
    return {x: entry.pvalue for x, entry in entries.items() if entry.pvalue is not None}


def _part(title: str, remark: str, texts: list[str], *entries: Mapping[Any, Entry]) -> Part:
    """The answer to one question."""
    rows = tuple(entry for some in entries for entry in some.values())
    return Part((Section(title, rows, remark),), remarks=tuple(texts))


def _neither(pvalues: Mapping[tuple[str, str], float], verb: str) -> list[str]:
    """That no difference is significant in pairs of models, in one sentence."""
    pairs = ", nor of ".join(" and ".join(pair) for pair in pvalues)
    smallest = "smallest " * (len(pvalues) > 1) + p_is(min(pvalues.values(), default=1.0))
    return [f"Neither of {pairs} is seen to {verb} ({smallest})."] * bool(pvalues)


def of_scores(c: Compared, _: Part) -> Part:
    """The score of each model, and paired differences: the verdict first."""
    score, name, unit, text = c.score
    means = c.rows_of(name, score, f"{text}({{}}, targets)", unused="clusters")
    test = functools.partial(hypothesis_tests.score_difference, score=score)
    call = f"hypothesis_tests.score_difference({{}}, {{}}, targets, score={text})"
    differences = c.rows_of(name, test, call, c.pairs, " - ")
    order, pvalues = sorted(means, key=lambda x: means[x].value), _pvalues(differences)
    significant = [x for x, p in pvalues.items() if p <= LEVEL]
    is_best, texts = sum(order[0] in x for x in significant) == len(order) - 1 > 1, []
    # The best model and the next best come first.
    for pair in sorted(pvalues, key=lambda pair: sorted(map(order.index, pair))):
        value, ends = differences[pair].value, differences[pair].ends
        if ends is None or (texts and pair not in significant):
            continue
        (worse, better), sign = (pair, 1) if value > 0 else (pair[::-1], -1)
        size, low, high = with_ends(sign * value, *sorted(sign * x for x in ends))
        has = "has a" if pair in significant else "does not have a significantly"
        lower = f"it is lower by {size}{unit} per sample"
        text = f"{better} {has} better {name} than {worse}: {lower}"
        if is_best and not texts:
            text = f"{better} has the best {name}: {lower} than that of {worse}, the next best"
        texts.append(f"{text} (95 % interval {low} to {high}; {p_is(pvalues.pop(pair))}).")
    texts += _neither(pvalues, f"have the better {name}")
    remark = "Smaller is better. Differences are paired; their p-values are those of the t-test."
    return _part("Which has the better score?", remark, texts, means, differences)


def calibration(c: Compared, _: Part) -> Part:
    """The test of each model, its SKCE, and differences of SKCEs."""
    (test, name), kernel, text = c.test, c.kernels["SKCE"], "result.other_kernels['SKCE']"
    call = f"hypothesis_tests.{test.__name__}(jax.random.fold_in(key, 1), {text}, {{}}, targets)"
    tests = c.rows_of(name, functools.partial(test, c.first.at(1), kernel), call)
    interval = functools.partial(hypothesis_tests.skce_confidence_interval, kernel)
    call = f"hypothesis_tests.skce_confidence_interval({text}, {{}}, targets)"
    skces = c.rows_of("SKCE", interval, call)
    skces = {  # the interval is for models that are not calibrated
        x: entry
        if (tests[x].pvalue or 0) <= LEVEL
        else dataclasses.replace(entry, standard_error=None, low=None, high=None)
        for x, entry in skces.items()
    }
    difference = functools.partial(hypothesis_tests.skce_difference, kernel)
    call = f"hypothesis_tests.skce_difference({text}, {{}}, {{}}, targets).estimate"
    differences = c.rows_of("SKCE", difference, call, c.pairs, " - ")
    pvalues, unclear = _pvalues(tests), _pvalues(differences)
    texts = [f"{x} is not calibrated ({p_is(p)})." for x, p in pvalues.items() if p <= LEVEL]
    if pvalues and not texts:
        texts = [f"No miscalibration was found (smallest {p_is(min(pvalues.values()))})."]
    for pair in [x for x, p in unclear.items() if p <= LEVEL]:
        better, worse = pair if differences[pair].value < 0 else pair[::-1]
        texts += [f"{better} is better calibrated than {worse} ({p_is(unclear.pop(pair))})."]
    texts += _neither(unclear, "be better calibrated")
    remark = "The SKCE of a calibrated model is zero, and has no interval. Of two models with the "
    remark += "same error, the one with more similar predictions has the larger SKCE."
    return _part("Which is better calibrated?", remark, texts, tests, skces, differences)


def knowledge(c: Compared, before: Part) -> Part:
    """Tests of each model given another, after those of `calibration`.

    A model that is rejected by itself says nothing about others: it is wrong given anything.
    """
    (test, name), tests = c.test, {}
    for pair in itertools.chain(*((x, x[::-1]) for x in c.pairs)):
        kernel = f"given {pair[1]}"

        def given(p: Any, q: Any, y: Any, kernel: Any = c.kernels[kernel], **options: Any) -> Any:
            return test(c.first.at(3), kernel, predictions_given(p, q), y, **options)

        call = f"hypothesis_tests.{test.__name__}(jax.random.fold_in(key, 3), result.other_kernels"
        call += f"[{kernel!r}], distributions.with_features({{}}, {{}}), targets)"
        tests |= c.rows_of(name, given, call, [pair], " given ")
    tests = _adjusted(tests)
    alone = _pvalues({x.name: x for section in before.sections for x in section.entries})
    is_right = {x: alone.get(f"{x}: {name}", 1) > LEVEL for x in c.models}
    pvalues = {x: p for x, p in _pvalues(tests).items() if is_right[x[0]]}
    texts, advice, knows = [], [], {x: p for x, p in pvalues.items() if p <= LEVEL}
    unclear = [x for x in c.pairs if {x, x[::-1]} <= pvalues.keys() - knows.keys()]
    for a, b in c.pairs:
        if (a, b) in knows and (b, a) in knows:
            p = p_is(max(knows.pop((a, b)), knows.pop((b, a))))
            text = f"Each of {a} and {b} knows something that the other does not ({p})"
            texts.append(f"{text}: combining them would help.")
            text = f"Combine {a} and {b}, for example in a mixture; fit its weights to other data."
            advice.append(Advice(text))
    for (x, y), p in knows.items():
        text = f"{y} knows something that {x} does not ({p_is(p)})"
        texts.append(f"{text}: given the predictions of {y}, those of {x} are wrong.")
    smallest = {x: min(pvalues[x], pvalues[x[::-1]]) for x in unclear}
    texts += _neither(smallest, "know what the other does not")
    remark = "If the first is calibrated, a small p means that the second knows something else."
    part = _part("Does one know what the other does not?", remark, texts, tests)
    return dataclasses.replace(part, advice=tuple(advice))


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

    It answers three questions about two models p and q:

    - Which has the better *score*, and is that more than chance?
      (`hypothesis_tests.score_difference`)
    - Which is better *calibrated*? (`hypothesis_tests.skce_difference`, with one kernel for all)
    - Does q *know something that p does not*: is p wrong given q? (`exact_skce_test` with q as
      features of p) If that is so in both directions, a combination of both is better than each.
      This is only asked of models p that are not rejected by themselves: a model that is not
      calibrated is wrong given anything.

    The first sentence of the result is the verdict: which model has the better score, and by how
    much. p-values are adjusted by the method of Holm, separately for each question, for all models
    or pairs. The kernel is `kernels.default_kernel` of all predictions together; if they are of
    different families, its target kernel alone. Of more than 5000 predictions, the SKCE and the
    tests use 5000 that are chosen at random (400 if tests would need all pairs in each redraw). For
    ensembles, quantiles, and families without closed-form expectations there are scores
    only.

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
        weights: w ≥ 0 of the samples, [n], as in `evaluate`: all means, tests and figures are
            weighted.
        clusters: for dependent samples, integers that are equal within clusters, at least 10
            different ones, [n]. Standard errors and tests are then those of clusters; bands of
            figures are not.
        progress: as in `evaluate`.

    Returns:
        A result with the methods of that of `evaluate`. Calls of its entries contain `models`,
        `targets`, `key`, `weights` and `clusters` as they were passed. `advice` is about
        combinations. `figures` are the reliability diagram (of class 1 of two, or the top label) or
        PIT histogram of each. `notes` say what p-values are adjusted for.

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
    >>> print(comparison.sentences[-1])
    sharp knows something that coarse does not (p = 0.002): given the predictions of sharp, ...
    """
    c = compared(checked_models(key, models, targets, weights), reference, score, clusters)
    some, parts, say = paired(c), Part(), progress or (lambda *stage: None)
    work = [("scores", of_scores, c)]
    if some.kernels:
        work += [("calibration", calibration, some), ("what one model knows", knowledge, some)]
    for number, (name, question, samples) in enumerate(work):
        say(name, number, len(work) + 1)
        parts |= question(samples, parts)
    say("figures", len(work), len(work) + 1)
    notes = ["p-values are adjusted for the number of models or pairs, each question separately."]
    if some.rows is not None:
        text = f"SKCEs and their tests use {len(some.rows)} samples that were chosen at random, of "
        notes.append(f"{text}the rows result.arrays['rows'].")
    described = f"{len(c.data)} models ({', '.join(c.data)}) of {c.first.size} targets: "
    described += c.first.task_in_words + c.first.weights_in_words
    described += f"; arrays were read as {c.first.read_as}" * bool(c.first.read_as)
    return Evaluation(
        task=c.first.task,
        num_samples=c.first.size,
        description=f"{described}.",
        sections=parts.sections,
        sentences=parts.remarks,
        notes=tuple(notes),
        other_kernels=some.kernels,
        arrays={} if some.rows is None else {"rows": jax.device_put(some.rows)},
        panels=_panels(c),
        advice=parts.advice,
    )


def _panels(c: Compared) -> tuple[Panel, ...]:
    """The reliability diagram of classes, or the PIT histogram of numbers, of each model."""
    more, panels = " This holds for independent samples: clusters scatter more.", []
    for name, data in c.data.items():
        if panel := sections.main_panel(data):
            caption = f"{name}: {panel.caption}{more * ('clusters' in c.options)}"
            panels.append(panel._replace(name=f"{name}, {panel.name}", caption=caption))
    return tuple(panels)
