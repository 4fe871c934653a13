"""The evaluation of a model, put together from all other subpackages."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax._core.gate import checked, unchecked
from calibjax.distributions.base import Distribution
from calibjax.evaluation.data import LOCAL, Data, Part, checked_data, checked_names
from calibjax.evaluation.errors import errors_of_classes, errors_of_numbers
from calibjax.evaluation.kernel_tests import (
    Choice,
    chosen_kernels,
    errors_given_features,
    errors_in_groups,
    overall,
)
from calibjax.evaluation.losses import proper_scores, temperature
from calibjax.evaluation.record import Evaluation
from calibjax.evaluation.regions import where_wrong
from calibjax.evaluation.selection import repairs as repairs_of
from calibjax.evaluation.sentences import (
    Findings,
    adjustment,
    advice,
    judged,
    names_an_error,
    sentences,
)

_TESTS = {"all": "calibration", "means": "mean errors"}  # other names in the record
Progress = Callable[[str, int, int], None]

_TASKS = {
    "classification": "classification with {size} classes",
    "binary": "binary classification",
    "regression": "regression (distributions of numbers)",
    "counts": "counts",
    "multivariate": "regression with vectors as targets",
    "ensembles": "ensembles of {size} members",
    "quantiles": "quantile forecasts",
}


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
    groups: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    repairs: bool = False,
    progress: Progress | None = None,
) -> Evaluation:
    """Everything about the calibration of a model in one call: numbers, sentences and figures.

    It only calls functions of the other subpackages. Each `Entry` of the result names the call that
    gives its value, so that every number can be computed again, and the sentences at the end say
    what the numbers mean: what is wrong, how much, and how sure that is.

    What it chooses, and why:

    - The *test* of all errors together is `hypothesis_tests.aggregated_skce_test` for n ≤ 2000,
      since nobody knows the scale of an unknown error; above that, where power is plenty and time
      is not, the exact test with one kernel, and for n > 5000 with one of low rank
      (`kernels.Nystrom`, 100 landmarks), which takes linear time. Ensembles have
      `hypothesis_tests.ensemble_skce_test` with one kernel. All of them are exact for every n, if
      targets are independent given the predictions: not for overlapping forecast horizons or
      clusters, see `hypothesis_tests.cluster_skce_test`.
    - Where the targets have no features, which make tests matrix products (as for vectors), all
      groups are tested for n ≤ 400. For n > 2000, and for families whose expectations have no
      closed form at all, each prediction is replaced by an ensemble of 20 draws from it, of which
      the test is exact, too.
    - The *kernels* are `kernels.default_kernels`, chosen from the predictions alone, from
      about 1000 of them if there are more. The SKCE, and the test with one kernel, have
      `kernels.default_kernel`.
    - *Bins* are ten of equal width that contain their upper ends: 0.7 is in (0.6, 0.7].
    - *p-values* of a section are adjusted for each other, those in the sentences also for the other
      tests: for a calibrated model the probability that any sentence says that something is wrong
      is at most 5 %. All tests see the same redrawn targets, so that the rank of the smallest
      p-value among those of the redraws is exact. Tests that have to redraw something else (PIT
      values of counts, ensembles and quantiles, or the local errors) are a set of their own, and
      p-values are multiplied by the number of sets. A sentence that names an error of a class or
      group asks for significance given the observed scatter as well, so that it does not blame a
      group for what is wrong with the scatter of all predictions.
    - Where a test rejects and no sentence would name an error, *places* are searched: events in
      regions of the predictions, such as targets between two numbers, that occur more or less often
      than predicted. Their p-values are adjusted for all of them, and only for them, since the
      search takes place after a rejection at 5 %.
    - The *temperature* minimises the negative log-likelihood; where that is infinite, the Brier
      score; for ensembles the CRPS. The gain is that of held-out predictions.

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
        groups: of each sample, integers or strings, [n]; or memberships of G groups, which may
            overlap, truth values or weights, [n, G]. They must not depend on the targets.
        weights: w ≥ 0 of the samples, [n], such as survey or importance weights: all means, tests,
            fits and figures are weighted. None for samples that count equally. Length scales of
            kernels and standard deviations of features are those of all samples.
        class_names: of the m classes, a list of strings, by which entries, sentences and figures
            call them; by default their numbers from 0, which the names of kernels always have.
        repairs: whether to ask in addition what would repair the predictions, by
            `select_recalibration`, whose first call compiles for half a minute or more.
        progress: called before each part of the work with its name, the number of the parts
            before it, and the number of all parts.

    Returns:
        The record, which prints as a table; `to_dict`, `to_json`, `figure` and `figures` are its
        methods.

    Raises:
        TypeError: if an argument is of the wrong kind, or traced by JAX: it is not a function of
            arrays, but makes decisions that depend on them.
        ValueError: if shapes or values are wrong, or n < 10.

    Cost: that of the test, and n² evaluations of the kernel for each SKCE with an interval, of
    which there are none for n > 4 · 10⁴. Up to n = 1000 most of the time goes to compiling.

    >>> import jax, jax.numpy as jnp
    >>> import calibjax
    >>> from calibjax import distributions
    >>> levels = jnp.array([0.1, 0.5, 0.9])
    >>> quantiles = jnp.tile(jnp.array([-0.8, 0.0, 0.8]), (200, 1))
    >>> predictions = distributions.Quantiles(levels, quantiles)
    >>> targets = jax.random.normal(jax.random.key(0), (200,))
    >>> evaluation = calibjax.evaluate(jax.random.key(1), predictions, targets)
    >>> print(f'{evaluation["coverage of the central 80 % intervals"].value:.2f}')
    0.56
    >>> print(evaluation.sentences[1])
    The predicted distributions are too narrow: the central 80 % intervals contain ...
    """
    data = checked_data(key, predictions, targets, features, groups, weights)
    if class_names is not None:
        data = dataclasses.replace(data, class_names=checked_names(data, class_names))
    chosen = None if data.task == "quantiles" else chosen_kernels(data)
    work = _work(data, chosen)
    if repairs:
        work["what would repair it"] = lambda: repairs_of(data)
    parts, say = Part(), progress or (lambda *stage: None)
    for number, (name, part) in enumerate(work.items()):
        say(name, number, len(work))
        parts |= part()
    findings = Findings(data.task, data.size, **parts.findings, adjustment=adjustment(parts.tests))
    if not names_an_error(findings):
        say("where it is wrong", len(work), len(work) + 1)
        places = where_wrong(data, chosen)
        parts, findings = parts | places, dataclasses.replace(findings, **places.findings)
    return Evaluation(
        task=data.task,
        num_samples=data.size,
        description=_described(data),
        sections=parts.sections,
        sentences=tuple(sentences(findings)),
        kernels=parts.kernels,
        other_kernels=parts.other_kernels,
        tests={_TESTS.get(name, name): x for (_, name), x in parts.tests.items() if name != LOCAL},
        arrays=data.arrays,
        panels=parts.panels,
        advice=advice(*judged(findings)),
    )


def _work(data: Data, chosen: Choice | None) -> dict[str, Callable[[], Part]]:
    """All parts that the task has, by name."""
    work: dict[str, Callable[[], Part]] = {}
    if chosen is not None:
        work["test of all errors together"] = lambda: overall(data, chosen)
    work["scores"] = lambda: proper_scores(data)
    if data.is_of_classes:
        work["errors of the probabilities"] = lambda: errors_of_classes(data)
    else:
        work["errors of the distributions"] = lambda: errors_of_numbers(data)
    if data.task != "quantiles":
        work["temperature"] = lambda: temperature(data)
    if data.memberships is not None:
        work["errors in groups"] = lambda: errors_in_groups(data)
    if data.features is not None:
        work["errors given the features"] = lambda: errors_given_features(data, chosen)
    return work


def task_in_words(data: Data) -> str:
    """What kind of targets is predicted, with the number of classes or members."""
    predictions, size = data.predictions, 0
    if data.is_of_classes or data.task == "ensembles":
        shape = (predictions.class_probs if data.is_of_classes else predictions.values).shape
        size = shape[1]
    return _TASKS[data.task].format(size=size)


def weights_in_words(data: Data) -> str:
    """How many samples there are with the weights, if there are any."""
    if not data.has_weights:
        return ""
    return f", with weights (effectively {1 / np.mean(data.shares**2) * data.size:.4g})"


def _described(data: Data) -> str:
    """What was evaluated, in words."""
    described = f"{data.size} predictions, {type(data.predictions).__name__}: {task_in_words(data)}"
    for number, what in (
        (len(data.group_names), "group"),
        (0 if data.features is None else data.features.shape[1], "feature"),
    ):
        if number:
            described += f", {number} {what}" + "s" * (number != 1)
    described += weights_in_words(data)
    if data.read_as:
        described += f"; the array of predictions was read as {data.read_as}"
    return f"{described}."
