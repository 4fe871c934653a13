"""Several models of the same targets in one call, `calibjax.compare`."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping

import jax
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax.distributions.base import Distribution
from calibjax.evaluation import model_differences
from calibjax.evaluation.assembly import Progress, task_in_words, weights_in_words
from calibjax.evaluation.classes import overall_reliability_panel
from calibjax.evaluation.entries import Panel, Section
from calibjax.evaluation.model_sentences import told_of
from calibjax.evaluation.models import Compared, checked_models
from calibjax.evaluation.numbers import pit_panel
from calibjax.evaluation.record import Evaluation

_OF_SAMPLES = {
    "scores": model_differences.of_scores,
    "what recalibration gains": model_differences.of_gains,
}
OF_PAIRS = {  # of samples, which take longer than compiling
    "calibration of each model": model_differences.calibration,
    "differences of calibration": model_differences.of_skces,
    "what one model knows": model_differences.cross_calibration,
}


@checks.key_first
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
    work = {**_OF_SAMPLES, **OF_PAIRS}
    sections: dict[str, Section] = {}
    for number, (name, part) in enumerate(work.items()):
        if progress is not None:
            progress(name, number, len(work) + 1)
        found = part(compared)
        if found is not None:
            sections[name] = found
    told, advice = told_of(compared, sections)
    if progress is not None:
        progress("figures", len(work), len(work) + 1)
    panels = tuple(_panels(compared))
    first = compared.first
    names = ", ".join(compared.models)
    read_as = f"; arrays were read as {first.read_as}" if first.read_as else ""
    return Evaluation(
        task=first.task,
        num_samples=first.size,
        description=f"{len(compared.models)} models ({names}) of {first.size} targets: "
        f"{task_in_words(first)}{weights_in_words(first)}{read_as}.",
        sections=tuple(sections.values()),
        sentences=tuple(told),
        other_kernels={}
        if compared.kernel is None
        else {"SKCE": compared.kernel, **model_differences.kernels_given(compared)},
        arrays={} if compared.rows is None else {"rows": jax.device_put(compared.rows)},
        panels=panels,
        advice=tuple(advice),
    )


def _panels(c: Compared) -> Iterator[Panel]:
    """The reliability diagram of classes, or the PIT histogram of numbers, of each model."""
    for name, data in c.data.items():
        if data.is_of_classes:
            panel = overall_reliability_panel(data)
        elif data.pit is not None:
            panel = pit_panel(data)
        else:
            continue
        caption = f"{name}: {panel.caption}"
        if c.clusters is not None:
            caption += " That is so for independent samples: clusters scatter more."
        yield dataclasses.replace(panel, name=f"{name}, {panel.name}", caption=caption)
