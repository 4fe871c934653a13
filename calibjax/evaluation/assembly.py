"""The evaluation of a model, put together from all other subpackages: `calibjax.evaluate`."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax._core.gate import checked, unchecked
from calibjax.distributions.base import Distribution
from calibjax.evaluation import record, sections
from calibjax.evaluation.data import LEVEL, Data, checked_data, checked_names
from calibjax.evaluation.record import Advice, Evaluation, Finding, Part, Section, p_is
from calibjax.evaluation.regions import where_wrong
from calibjax.hypothesis_tests.components import largest_scores
from calibjax.hypothesis_tests.result import CalibrationTestResult

Progress = Callable[[str, int, int], None]
_MOST = 4  # findings that are said
_TIED = 1e-5  # relative difference up to which standardised statistics are equal


@checked(
    predictions=unchecked,
    targets=unchecked,
    features=unchecked,
    groups=unchecked,
    weights=unchecked,
)
def evaluate(
    key: jax.Array,
    predictions: Distribution | ArrayLike,
    targets: ArrayLike,
    *,
    features: Any = None,
    groups: ArrayLike | Mapping[str, Any] | None = None,
    weights: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Everything about the calibration of a model in one call: numbers, sentences and figures.

    It only calls functions of the other subpackages. Each `Entry` of the result names the call that
    gives its value, so that every number can be computed again, and the sentences at the end say
    what the numbers mean: what is wrong, how much, and how sure that is.

    What it chooses, and why:

    - The *test* of all errors together is `hypothesis_tests.aggregated_skce_test`, because nobody
      knows the scale of an unknown error. For n > 2000 its kernels on predictions are of low rank
      (`kernels.Nystrom`, 100 landmarks), with which it takes linear time. Ensembles have
      `hypothesis_tests.ensemble_skce_test` with one kernel. Both are exact for every n, if
      targets are independent given the predictions: not for overlapping forecast horizons or
      clusters, see `hypothesis_tests.cluster_skce_test`.
    - Where the targets have no features, which make tests matrix products (as for vectors), all
      groups are tested for n ≤ 400. For n > 400, and for families whose expectations have no
      closed form at all, each prediction is replaced by an ensemble of 20 draws from it, of which
      the test is exact, too.
    - The *kernels* are `kernels.default_kernels`, chosen from the predictions alone, from
      about 1000 of them if there are more. The SKCE, and the test with one kernel, have
      `kernels.default_kernel`.
    - *Bins* are ten of equal width that contain their upper ends: 0.7 is in (0.6, 0.7].
    - There is one *p-value* for each finding, adjusted for all others: for a calibrated model the
      probability that any sentence says that something is wrong is at most 5 %. All tests see the
      same redrawn targets, so that the rank of the smallest p-value among those of the redraws is
      exact. Tests that have to redraw something else (PIT values of ensembles and quantiles) are a
      set of their own, and p-values are multiplied by the number of sets. That of a mean error is
      at least that of a z-test with the observed scatter, so that no group is blamed for what is
      wrong with the scatter of all predictions.
    - Where a test rejects and no sentence would name an error, *regions* are searched: events in
      regions of the predictions, such as targets between two numbers, that occur more or less often
      than predicted. Their p-values are adjusted for all of them, and only for them, because the
      search follows a rejection at 5 %.
    - Where a test rejects and one of two classes is less frequent where its probability is higher
      (area under the ROC curve below one half, p ≤ 1 %), the first sentence says that the
      probabilities may be those of the other class.
    - An *interval* of the SKCE is computed where the test rejects: it does not hold for calibrated
      models.
    - *Quantiles* whose levels differ between the samples have the mean and the spread of their PIT
      values only, and no regions.
    - The *temperature* minimises the negative log-likelihood, if that is finite. The gain is that
      of held-out predictions.

    Args:
        key: a JAX random key.
        predictions: batch of n ≥ 10 distributions of any family, without features. `Ensemble` are
            ensembles, whose members are exchangeable with the target. An array of probabilities
            is read as `Bernoulli` if it is [n] and the labels are 0 and 1, and as `Categorical` if
            it is [n, m] with rows that sum to one and the labels are integers; the description
            says so.
        targets: [n] or [n, d].
        features: [n] or [n, d]; asks in addition whether the predictions are right given the
            features, which are divided by their standard deviations.
        groups: of each sample, integers or strings, [n]; or a table (`pandas.DataFrame`) or
            dictionary of such columns, each a division of its own that names its groups. They must
            not depend on the targets.
        weights: w ≥ 0 of the samples, [n], such as survey or importance weights: all means, tests,
            fits and figures are weighted. None for samples that count equally. Length scales of
            kernels and standard deviations of features are those of all samples.
        class_names: of the m classes, a list of strings, by which entries, sentences and figures
            call them; by default their numbers from 0, which the names of kernels always have.
        progress: called before each part of the work with its name, the number of the parts
            before it, and the number of all parts.

    Returns:
        The record, which prints as text and tables; `to_dict`, `to_json` and `figures` are its
        methods.

    Raises:
        TypeError: if an argument is of the wrong kind, or traced by JAX: it is not a function of
            arrays, but makes decisions that depend on them.
        ValueError: if shapes or values are wrong, or n < 10.

    Cost: that of the test, and n² evaluations of the kernel for each SKCE, of which there are none
    for n > 4 · 10⁴. Up to n = 1000 most of the time goes to compiling.

    >>> import jax, jax.numpy as jnp
    >>> import calibjax
    >>> from calibjax import distributions
    >>> levels = jnp.array([0.1, 0.5, 0.9])
    >>> quantiles = jnp.tile(jnp.array([-0.8, 0.0, 0.8]), (200, 1))
    >>> predictions = distributions.Quantiles(levels, quantiles)
    >>> targets = jax.random.normal(jax.random.key(0), (200,))
    >>> evaluation = calibjax.evaluate(jax.random.key(1), predictions, targets)
    >>> print(f'{evaluation["coverage of the central 80 % intervals"].value:.3f}')
    0.565
    >>> print(evaluation.sentences[0])
    Miscalibrated: the predicted distributions are too narrow. The central 80 % intervals ...
    """
    data = checked_data(key, predictions, targets, features, groups, weights)
    if class_names is not None:
        data = dataclasses.replace(data, class_names=checked_names(data, class_names))
    chosen: Any = None if data.task == "quantiles" else sections.chosen_kernels(data)
    work: dict[str, Callable[[], Part]] = {
        "observed and predicted": lambda: sections.mean_errors(data),
        "features": lambda: sections.errors_given_features(data, chosen),
        "all errors together": lambda: sections.all_errors(data, chosen),
        "scores": lambda: sections.proper_scores(data),
        "temperature": lambda: sections.temperature(data),
    }
    left_out = {"features": data.features is None, "all errors together": chosen is None}
    names = [x for x in work if not left_out.get(x)]
    parts, say = Part(), progress or (lambda *stage: None)
    for number, name in enumerate(names):
        say(name, number, len(names) + 1)
        parts |= work[name]()
    say("where it is wrong", len(names), len(names) + 1)
    parts = adjusted(parts)
    said, pvalues = _said(parts)
    if chosen is not None:
        parts |= sections.kernel_errors(data, chosen, pvalues)
    if said and not any(finding.text for finding in said):
        regions = where_wrong(data)
        parts |= regions
        said = [*_said(regions)[0], *said]
    if said and data.task == "binary":
        said = [*sections.wrong_way(data), *said]
    described = f"{data.size} predictions, {type(data.predictions).__name__}: {data.task}"
    described += data.weights_in_words
    described += f"; the array of predictions was read as {data.read_as}" * bool(data.read_as)
    return Evaluation(
        task=data.task,
        num_samples=data.size,
        description=f"{described}.",
        sections=parts.sections,
        sentences=tuple(_sentences(int((data.shares > 0).sum()), parts, said, pvalues)),
        notes=tuple(_notes(parts, pvalues)),
        kernels=parts.kernels,
        other_kernels=parts.other_kernels,
        tests={name: test for (_, name), test in parts.tests.items()},
        arrays=data.arrays,
        panels=parts.panels,
        advice=tuple(_weighted(data, x) for x in _advice(parts, said)),
    )


def adjusted(parts: Part) -> Part:
    """The parts with p-values that are adjusted for all tests.

    An adjusted p-value is the probability under calibration that any test has one that small. It is
    exact for tests that share their redraws, and multiplied by the number of sets of these.
    """
    sets: dict[str, dict[str, np.ndarray]] = {}
    for (redrawn, name), test in parts.tests.items():
        sets.setdefault(redrawn, {})[name] = _ranks(test)
    smallest = {
        name: np.sort(np.min([*ranks.values()], 0)) for ranks in sets.values() for name in ranks
    }

    def adjust(section: Section) -> Section:
        entries, pool = [], smallest.get(section.test, np.ones(1))
        for entry in section.entries:
            if entry.pvalue is not None:
                count = np.searchsorted(pool, entry.pvalue * (1 + 1e-6), "right")
                p = min(1.0, len(sets) * max(1, int(count)) / len(pool))
                entry = dataclasses.replace(entry, pvalue=p)
            entries.append(entry)
        return dataclasses.replace(section, entries=tuple(entries))

    return dataclasses.replace(parts, sections=tuple(map(adjust, parts.sections)))


def _ranks(test: CalibrationTestResult) -> np.ndarray:
    """p-value of the observed data set, then of each redraw among all the others, [B + 1]."""
    if test.adjusted_pvalue is None or test.components is not None:
        pool = np.append(np.asarray(test.statistic), np.asarray(test.null_samples)).astype(float)
    else:
        pool = largest_scores(test.statistic, test.null_samples).astype(float)
    pool = np.where(np.isnan(pool), np.inf, pool)  # redraws that count against rejection
    ordered = np.sort(pool)
    finite = ordered[np.isfinite(ordered)]
    tolerance = _TIED * np.median(np.abs(finite)) if finite.size else 0.0
    at_least = len(pool) - np.searchsorted(ordered, pool - tolerance, "left")
    return at_least / len(pool)


def _said(parts: Part) -> tuple[list[Finding], dict[str, float]]:
    """The findings that are significant, and the p-values of all entries that have one.

    An entry that is significant and that no finding is about gives a vague one.
    """
    entries = (entry for section in parts.sections for entry in section.entries)
    pvalues = {entry.name: entry.pvalue for entry in entries if entry.pvalue is not None}
    found = [finding for finding in parts.findings if pvalues[finding.entry] <= LEVEL]
    first = {finding.word: finding for finding in reversed(found) if not finding.is_last}
    said = [*reversed(first.values())] or found[:1]
    worst = min(pvalues, key=pvalues.__getitem__, default="")
    if not said and pvalues.get(worst, 1.0) <= LEVEL:
        said = [Finding(worst, "not calibrated", "", is_last=True)]
    return said, pvalues


def _sentences(
    size: int, parts: Part, said: Sequence[Finding], pvalues: Mapping[str, float]
) -> list[str]:
    """The verdict, what else was found, and what repairs it."""
    warnings = [f"{text}, which never occurs if a model is calibrated." for text in parts.warnings]
    extra = [*_not_found(parts, pvalues)]
    if not said:
        smallest = f"smallest {p_is(min(pvalues.values()))}" if pvalues else "there was no test"
        if warnings:
            rest = f"No other error was found ({smallest})."
            return [f"Miscalibrated: {warnings[0]}", rest, *extra]
        first = f"No miscalibration was found in {size} predictions ({smallest})."
        return [first, "This does not show that the model is calibrated.", *extra]
    verdict = f"Miscalibrated: {said[0].word}. {_capital(said[0].text)}."
    if not said[0].text:
        p = p_is(pvalues[said[0].entry])
        verdict = f"Miscalibrated ({p}), but no single error explains it."
    others = [f"{_capital(x.word)}: {x.text}." for x in said[1:] if x.text]
    more = len(others) - _MOST + 1
    if more > 1:
        others = [*others[: _MOST - 1], f"{more} more errors were found, see the tables."]
    return [verdict, *warnings, *others, *parts.remarks, *extra]


def _not_found(parts: Part, pvalues: Mapping[str, float]) -> Iterator[str]:
    """Questions that the user asked, and that have been answered."""
    asked = {
        "Groups": "In none of the groups was an error found",
        "Given the features": "No error that depends on the features was found",
    }
    for section in parts.sections:
        values = [pvalues[x.name] for x in section.entries if x.name in pvalues]
        if section.title in asked and values and min(values) > LEVEL:
            yield f"{asked[section.title]} (smallest {p_is(min(values))})."


def _notes(parts: Part, pvalues: Mapping[str, float]) -> list[str]:
    """What the p-values are."""
    text = "p-values compare the data with data sets redrawn from the predictions; those of means "
    text += "and frequencies are at least those of a z-test with the observed scatter."
    if len(parts.tests) > 1:
        text += f" All are adjusted for the {len(parts.tests)} tests that the sentences rest on"
        text += ", so that for a calibrated model the probability of any error that is named is at "
        text += "most 5 %."
    if any(section.title == "Where it is wrong" for section in parts.sections):
        text += " Those of regions are adjusted for all regions searched, and for no test."
    return [text] * bool(pvalues)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _weighted(data: Data, advice: Advice) -> Advice:
    """The advice for samples with weights."""
    call = advice.call.replace("targets)", f"targets{data.and_weights})")
    return Advice(advice.text, call.replace("numbers)\n", f"numbers{data.and_weights})\n"))


def _advice(parts: Part, said: Sequence[Finding]) -> list[Advice]:
    """What to do, the most useful first."""
    first = [record.POSSIBLE] * bool(parts.warnings)
    if not said:
        return first
    if said[0].advice is record.OTHER_CLASS:
        return [*first, record.OTHER_CLASS]
    others = [x.advice for x in said if x.advice and not (x.is_repaired and parts.advice)]
    return [*first, *(dict.fromkeys([*parts.advice, *others]) or [record.OTHERWISE])]
