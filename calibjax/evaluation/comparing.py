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
from calibjax.evaluation.record import Entry, Evaluation, Part, Section, p_is, with_ends
from calibjax.hypothesis_tests.ensembles import clusters_of
from calibjax.kernels import TensorProduct, default_kernel
from calibjax.kernels.defaults import affordable


@dataclasses.dataclass(frozen=True)
class Compared:
    """Checked models.

    Attributes:
        first: the data of the first model.
        models: predictions by name.
        targets: the same for all.
        options: weights and clusters, as far as there are any.
        score: the function, what it is called, its unit, and its expression.
    """

    first: Data
    models: dict[str, Any]
    targets: Any
    options: dict[str, Any]
    score: tuple[Callable[..., Any], str, str, str]

    def rows_of(
        self, what: str, function: Callable[..., Any], call: str, unused: str = ""
    ) -> dict[Any, Entry]:
        """A function of each model or of pairs, with p-values adjusted for all of these.

        Args:
            what: is computed.
            function: of the predictions, the targets and the options.
            call: its expression, with a gap for the name of each of these.
            unused: the name of an option that the function does not have.
        """
        entries, options = {}, {x: value for x, value in self.options.items() if x != unused}
        count = call.count("{}")
        call = call.replace(", targets", ", targets" + "".join(f", {x}={x}" for x in options))
        for names in itertools.combinations(self.models, count):
            arguments, text = [self.models[x] for x in names], call
            for x in names:  # which may have braces
                text = text.replace("{}", f"models[{x!r}]", 1)
            compute = functools.partial(function, *arguments, self.targets, **options)
            entry = measured(f"{' - '.join(names)}: {what}", compute, text)
            entries[names if count > 1 else names[0]] = entry
        return _adjusted(entries)


def compared(
    key: jax.Array, models: Any, targets: Any, weights: Any, clusters: Any, score: Any
) -> Compared:
    """The arguments of `compare`, checked, and the score."""
    if not isinstance(models, Mapping) or len(models) < 2:
        got = list(models) if isinstance(models, Mapping) else checks.described(models)
        raise TypeError(f"models: expected a dictionary of at least two by name, got {got}")
    data: dict[str, Data] = {}
    for name, predictions in ((str(name), p) for name, p in models.items()):
        try:
            data[name] = checked_data(key, predictions, targets, None, None, weights)
        except (TypeError, ValueError) as error:
            raise type(error)(f"models[{name!r}]: {error}") from error
    levels = {x: getattr(one.predictions, "levels", ()) for x, one in data.items()}
    if len({(one.is_of_classes, np.asarray(levels[x]).tobytes()) for x, one in data.items()}) > 1:
        expected = "predictions of classes, of numbers, or quantiles of the same levels"
        raise ValueError(f"models: expected {expected} by all models, got a mixture of these")
    one = next(iter(data.values()))
    options = {"weights": one.known(one.weights)} if one.has_weights else {}
    if clusters is not None:
        options["clusters"] = np.asarray(group_ids("clusters", clusters, one.size))
        clusters_of(options["clusters"], float, options.get("weights"))
    models = {x: p.known(p.predictions) for x, p in data.items()}
    targets = one.known(one.targets)
    return Compared(one, models, targets, options, _score([*models.values()], targets, score))


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


def common_kernels(c: Compared) -> dict[str, Any]:
    """The default kernel of all predictions together, and that of tests; none for scores only."""
    one, values = c.first, [*c.models.values()]
    kinds = {(jax.tree.structure(p), *(x.shape for x in jax.tree.leaves(p))) for p in values}
    if len(kinds) > 1 or one.task in ("ensembles", "quantiles") or one.size**2 > sections.PAIRS:
        return {}
    together = jax.tree.map(lambda *leaves: np.concatenate(leaves), *values)
    with contextlib.suppress(NotImplementedError):
        kernel = default_kernel(together)
        if sections.has_features(kernel, one) or one.size <= sections.FEW:
            tested = TensorProduct(affordable(kernel.prediction, together), kernel.target)
            return {"SKCE": kernel, "exact test": tested}
    return {}


def _adjusted(entries: Mapping[Any, Entry]) -> dict[Any, Entry]:
    """The entries with p-values by the method of Holm (1979), where they have any."""
    adjusted, pvalues, largest = dict(entries), _pvalues(entries), 0.0
    for rank, x in enumerate(sorted(pvalues, key=pvalues.__getitem__)):
        largest = min(1.0, max(largest, (len(pvalues) - rank) * pvalues[x]))
        adjusted[x] = dataclasses.replace(entries[x], pvalue=largest)
    return adjusted


def _pvalues(entries: Mapping[Any, Entry]) -> dict[Any, float]:
    return {x: entry.pvalue for x, entry in entries.items() if entry.pvalue is not None}


def of_scores(c: Compared) -> Part:
    """The score of each model, and paired differences: the verdict first."""
    score, name, unit, text = c.score
    means = c.rows_of(name, score, f"{text}({{}}, targets)", "clusters")
    test = functools.partial(hypothesis_tests.score_difference, score=score)
    call = f"hypothesis_tests.score_difference({{}}, {{}}, targets, score={text})"
    differences = c.rows_of(name, test, call)
    order, pvalues = sorted(means, key=lambda x: means[x].value), _pvalues(differences)
    significant = [x for x, p in pvalues.items() if p <= LEVEL]
    is_best, texts = sum(order[0] in x for x in significant) == len(order) - 1 > 1, []
    # The best model and the next best come first.
    for pair in sorted(pvalues, key=lambda pair: sorted(map(order.index, pair))):
        value, ends = differences[pair].value, differences[pair].ends
        if ends is None or (texts and pair not in significant):
            continue
        (worse, better), sign = (pair, 1) if value > 0 else (pair[::-1], -1)
        size, low, high = with_ends(sign * value + 0.0, *sorted(sign * x + 0.0 for x in ends))
        has = "has a" if pair in significant else "does not have a significantly"
        lower = f"it is lower by {size}{unit} per sample"
        text = f"{better} {has} better {name} than {worse}: {lower}"
        if is_best and not texts:
            text = f"{better} has the best {name}: {lower} than that of {worse}, the next best"
        texts.append(f"{text} (95 % interval {low} to {high}; {p_is(pvalues[pair])}).")
    remark = "Smaller is better. Differences are paired; their p-values are those of the t-test."
    rows = *means.values(), *differences.values()
    section = Section("Which has the better score?", rows, remark)
    return Part((section,), remarks=tuple(texts))


def calibration(c: Compared, kernels: Mapping[str, Any]) -> Part:
    """The test of each model, its SKCE, and differences of SKCEs."""
    test: Any = hypothesis_tests.exact_skce_test
    if "clusters" in c.options:
        test = hypothesis_tests.cluster_skce_test
    text = "result.other_kernels['exact test']"
    call = f"hypothesis_tests.{test.__name__}(jax.random.fold_in(key, 1), {text}, {{}}, targets)"
    tests = c.rows_of(
        "p-value", functools.partial(test, c.first.at(1), kernels["exact test"]), call
    )
    kernel, text = kernels["SKCE"], "result.other_kernels['SKCE']"
    skce = functools.partial(estimators.skce, kernel)
    skces = c.rows_of("SKCE", skce, f"estimators.skce({text}, {{}}, targets)", "clusters")
    difference = functools.partial(hypothesis_tests.skce_difference, kernel)
    call = f"hypothesis_tests.skce_difference({text}, {{}}, {{}}, targets).estimate"
    differences = c.rows_of("SKCE", difference, call)
    pvalues, of_pairs = _pvalues(tests), _pvalues(differences)
    texts = [f"{x} is not calibrated ({p_is(p)})." for x, p in pvalues.items() if p <= LEVEL]
    if pvalues and not texts:
        texts = [f"No miscalibration was found (smallest {p_is(min(pvalues.values()))})."]
    for pair in [x for x, p in of_pairs.items() if p <= LEVEL]:
        better, worse = pair if differences[pair].value < 0 else pair[::-1]
        texts.append(f"{better} is better calibrated than {worse} ({p_is(of_pairs[pair])}).")
    smallest = min(of_pairs.values(), default=0.0)
    if smallest > LEVEL:
        texts.append(f"No difference in calibration was found (smallest {p_is(smallest)}).")
    remark = "The SKCE of a calibrated model is zero. Of two models with the same error, the one "
    remark += "with more similar predictions has the larger SKCE."
    rows = *tests.values(), *skces.values(), *differences.values()
    section = Section("Which is better calibrated?", rows, remark)
    return Part((section,), remarks=tuple(texts))


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
    or pairs. The kernel is `kernels.default_kernel` of all predictions together, for tests of many
    predictions with 100 landmarks. There are scores only for ensembles, quantiles, models of
    different families, families without closed-form expectations, more than 4 · 10⁴ predictions,
    and more than 400 if tests would need all pairs in each redraw, as for vectors.

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
        weights: w ≥ 0 of the samples, [n], as in `evaluate`: all means and tests are weighted.
        clusters: for dependent samples, integers that are equal within clusters, at least 10
            different ones, [n]. Standard errors and tests are then those of clusters.
        progress: as in `evaluate`.

    Returns:
        A result with the methods of that of `evaluate`. Calls of its entries contain `models`,
        `targets`, `key`, `weights` and `clusters` as they were passed. `notes` say what
        p-values are adjusted for. There are no `figures`: `evaluate` draws them for one model.

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
    c = compared(key, models, targets, weights, clusters, score)
    say = progress or (lambda *stage: None)
    say("scores", 0, 2)
    parts, kernels = of_scores(c), common_kernels(c)
    say("calibration", 1, 2)
    if kernels:
        parts |= calibration(c, kernels)
    note = "p-values are adjusted for the number of models or pairs, each question separately."
    described = f"{len(c.models)} models ({', '.join(c.models)}) of {c.first.size} targets: "
    described += c.first.task + c.first.weights_in_words
    described += f"; arrays were read as {c.first.read_as}" * bool(c.first.read_as)
    return Evaluation(
        task=c.first.task,
        num_samples=c.first.size,
        description=f"{described}.",
        sections=parts.sections,
        sentences=parts.remarks,
        notes=(note,),
        other_kernels=kernels,
    )
