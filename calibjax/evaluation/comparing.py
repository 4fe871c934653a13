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

from calibjax import estimators, hypothesis_tests
from calibjax._core import checks
from calibjax._core.gate import checked, group_ids, unchecked
from calibjax.distributions.base import Distribution
from calibjax.evaluation import sections
from calibjax.evaluation.assembly import Progress
from calibjax.evaluation.data import LEVEL, Data, checked_data, measured
from calibjax.evaluation.record import Entry, Evaluation, Panel, Part, Section, p_is, with_ends
from calibjax.hypothesis_tests.ensembles import clusters_of
from calibjax.kernels import default_kernel

_MOST = 5000  # predictions of which all pairs are taken


@dataclasses.dataclass(frozen=True)
class Compared:
    """Checked models.

    Attributes:
        data: of each model by name.
        models: predictions by name.
        targets: the same for all.
        options: weights and clusters, as far as there are any.
        score: the function, what it is called, its unit, and its expression.
        rows: those that are in models, targets and options, [n'], or None for all.
        kernel: of `paired`, or None.
    """

    data: dict[str, Data]
    models: dict[str, Any]
    targets: Any
    options: dict[str, Any]
    score: tuple[Callable[..., Any], str, str, str]
    rows: np.ndarray | None = None
    kernel: Any = None

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Names of the models that are compared."""
        return [*itertools.combinations(self.data, 2)]

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
        unused: str = "",
    ) -> dict[Any, Entry]:
        """A function of each model or of pairs, with p-values adjusted for all of these.

        Args:
            what: is computed.
            function: of the predictions, the targets and the options.
            call: its expression, with a gap for the name of each of these.
            models: pairs of names; None for single models.
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
            entries[x] = measured(f"{' - '.join(both)}: {what}", compute, text)
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


def compared(data: dict[str, Data], score: Any, clusters: Any) -> Compared:
    """All samples, with the score."""
    one = next(iter(data.values()))
    options = {"weights": one.known(one.weights)} if one.has_weights else {}
    if clusters is not None:
        options["clusters"] = np.asarray(group_ids("clusters", clusters, one.size))
        clusters_of(options["clusters"], float, options.get("weights"))
    models = {x: p.known(p.predictions) for x, p in data.items()}
    targets = one.known(one.targets)
    chosen = _score([*models.values()], targets, score)
    return Compared(data, models, targets, options, chosen)


def _kind(data: Data) -> str:
    """What is predicted, by which models can be compared."""
    if data.is_of_classes:
        return f"{data.predictions.class_probs.shape[1]} classes"
    return "quantiles" if data.task == "quantiles" else "numbers"


def _score(values: Sequence[Any], targets: Any, score: Any) -> tuple[Any, str, str, str]:
    """The score, or the first that is finite for all models."""
    known = {x[0]: (name, "") for name, x in sections.SCORES.items()}
    likelihood, *_ = known
    known[likelihood] = "log score", " nats"
    if score is not None:
        checks.function("function", "score", score)
        name = getattr(score, "__name__", "score").replace("_", " ")
        return score, *known.get(score, (name, "")), "score"
    is_whole = {sections.is_whole(p) for p in values}
    left_out = [likelihood][: len(is_whole) - 1]  # no density is compared with a probability
    for function in (x for x in known if x not in left_out):
        with contextlib.suppress(TypeError, ValueError, NotImplementedError):
            if np.isfinite([function(p, targets) for p in values]).all():
                return function, *known[function], f"scores.{function.__name__}"
    raise ValueError("score: expected a function, since no score is finite for all models")


def paired(c: Compared) -> Compared:
    """The samples of which all pairs are taken, with the kernel if there is one."""
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
    return dataclasses.replace(c, kernel=kernel)


def _common_kernel(c: Compared) -> Any:
    """The default kernel of all predictions together; None if they are of several families."""
    values = [*c.models.values()]
    kinds = {(jax.tree.structure(p), *(x.shape for x in jax.tree.leaves(p))) for p in values}
    if len(kinds) > 1 or c.first.task in ("ensembles", "quantiles"):
        return None
    with contextlib.suppress(NotImplementedError):
        return default_kernel(jax.tree.map(lambda *leaves: np.concatenate(leaves), *values))
    return None


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


def of_scores(c: Compared) -> Part:
    """The score of each model, and paired differences: the verdict first."""
    score, name, unit, text = c.score
    means = c.rows_of(name, score, f"{text}({{}}, targets)", unused="clusters")
    test = functools.partial(hypothesis_tests.score_difference, score=score)
    call = f"hypothesis_tests.score_difference({{}}, {{}}, targets, score={text})"
    differences = c.rows_of(name, test, call, c.pairs)
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


def calibration(c: Compared) -> Part:
    """The test of each model, its SKCE, and differences of SKCEs."""
    (test, name), text = c.test, "result.other_kernels['SKCE']"
    call = f"hypothesis_tests.{test.__name__}(jax.random.fold_in(key, 1), {text}, {{}}, targets)"
    tests = c.rows_of(name, functools.partial(test, c.first.at(1), c.kernel), call)
    skce, call = (
        functools.partial(estimators.skce, c.kernel),
        f"estimators.skce({text}, {{}}, targets)",
    )
    skces = c.rows_of("SKCE", skce, call, unused="clusters")
    difference = functools.partial(hypothesis_tests.skce_difference, c.kernel)
    call = f"hypothesis_tests.skce_difference({text}, {{}}, {{}}, targets).estimate"
    differences = c.rows_of("SKCE", difference, call, c.pairs)
    pvalues, unclear = _pvalues(tests), _pvalues(differences)
    texts = [f"{x} is not calibrated ({p_is(p)})." for x, p in pvalues.items() if p <= LEVEL]
    if pvalues and not texts:
        texts = [f"No miscalibration was found (smallest {p_is(min(pvalues.values()))})."]
    for pair in [x for x, p in unclear.items() if p <= LEVEL]:
        better, worse = pair if differences[pair].value < 0 else pair[::-1]
        texts += [f"{better} is better calibrated than {worse} ({p_is(unclear.pop(pair))})."]
    texts += _neither(unclear, "be better calibrated")
    remark = "The SKCE of a calibrated model is zero. Of two models with the same error, the one "
    remark += "with more similar predictions has the larger SKCE."
    return _part("Which is better calibrated?", remark, texts, tests, skces, differences)


@checked(targets=unchecked, weights=unchecked, clusters=unchecked, score=unchecked)
def compare(
    key: jax.Array,
    models: Mapping[str, Distribution | ArrayLike],
    targets: ArrayLike,
    *,
    score: Callable[..., jax.Array] | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Which of several models of the same targets is better, and in what, in one call.

    It answers two questions about each pair of models:

    - Which has the better *score*, and is that more than chance?
      (`hypothesis_tests.score_difference`)
    - Which is better *calibrated*? (`hypothesis_tests.skce_difference`, with one kernel for all)

    The first sentence of the result is the verdict: which model has the better score, and by how
    much. p-values are adjusted by the method of Holm, separately for each question, for all models
    or pairs. The kernel is `kernels.default_kernel` of all predictions together. Of more than 5000
    predictions, the SKCE and the tests use 5000 that are chosen at random (400 if tests would need
    all pairs in each redraw). For ensembles, quantiles, models of different families, and families
    without closed-form expectations there are scores only.

    Args:
        key: a JAX random key.
        models: predictions of at least two models by name, each as in `evaluate`: batches of
            n ≥ 10 distributions, or arrays of probabilities. They may be of different families if
            their targets are of one kind.
        targets: [n] or [n, d], the same for all models.
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
        `targets`, `key`, `weights` and `clusters` as they were passed. `figures` are the
        reliability diagram (of class 1 of two, or the top label) or PIT histogram of each. `notes`
        say what p-values are adjusted for.

    Raises:
        TypeError: if an argument is of the wrong kind, or traced by JAX.
        ValueError: if shapes or values are wrong; the message names the model.

    Cost: n² evaluations of the kernel for each model and pair, and a test of 999 redraws for each
    model.

    References: Holm (1979).

    >>> import jax, jax.numpy as jnp
    >>> import calibjax
    >>> probs = jax.random.uniform(jax.random.key(0), (300,))
    >>> labels = jax.random.bernoulli(jax.random.key(1), probs).astype(int)
    >>> models = {"sharp": probs, "coarse": jnp.full(300, 0.5)}
    >>> comparison = calibjax.compare(jax.random.key(2), models, labels)
    >>> print(comparison.sentences[0])
    sharp has a better log score than coarse: it is lower by 0.20 nats per sample ...
    """
    c = compared(checked_models(key, models, targets, weights), score, clusters)
    say = progress or (lambda *stage: None)
    say("scores", 0, 3)
    parts, some = of_scores(c), paired(c)
    say("calibration", 1, 3)
    if some.kernel is not None:
        parts |= calibration(some)
    say("figures", 2, 3)
    notes = ["p-values are adjusted for the number of models or pairs, each question separately."]
    if some.rows is not None:
        text = f"SKCEs and their tests use {len(some.rows)} samples that were chosen at random, of "
        notes.append(f"{text}the rows result.arrays['rows'].")
    described = f"{len(c.data)} models ({', '.join(c.data)}) of {c.first.size} targets: "
    described += c.first.task + c.first.weights_in_words
    described += f"; arrays were read as {c.first.read_as}" * bool(c.first.read_as)
    return Evaluation(
        task=c.first.task,
        num_samples=c.first.size,
        description=f"{described}.",
        sections=parts.sections,
        sentences=parts.remarks,
        notes=tuple(notes),
        other_kernels={} if some.kernel is None else {"SKCE": some.kernel},
        arrays={} if some.rows is None else {"rows": jax.device_put(some.rows)},
        panels=_panels(c),
    )


def _panels(c: Compared) -> tuple[Panel, ...]:
    """The reliability diagram of classes, or the PIT histogram of numbers, of each model."""
    more, panels = " This holds for independent samples: clusters scatter more.", []
    for name, data in c.data.items():
        if panel := sections.main_panel(data):
            caption = f"{name}: {panel.caption}{more * ('clusters' in c.options)}"
            panels.append(panel._replace(name=f"{name}, {panel.name}", caption=caption))
    return tuple(panels)
