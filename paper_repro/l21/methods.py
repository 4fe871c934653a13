"""The recalibration methods that L21 compares, and the quantities that it compares them by."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import estimators, kernels, recalibration
from calibjax.binnings import interval_index
from calibjax.distributions import Bernoulli, CategoricalLogits
from calibjax.estimators import Neighbourhood
from calibjax.recalibration.confidences import MMCEScaling, log_odds
from experiments.harness import data_files
from paper_repro.data.classifiers import Part
from paper_repro.l21.embeddings import LENGTH_SCALES, Embedding

ORIGINAL = "No recalibration"
TEMPERATURE = "Temperature scaling"
GLOBAL = (ORIGINAL, TEMPERATURE, "Histogram binning", "Isotonic regression", "MMCE optimization")
GROUP_WISE = ("Group temp. scaling", "Group hist. binning")
LOCAL = ("LoRe (t-SNE)", "LoRe (PCA)")
CURVE_LENGTH_SCALES = np.logspace(-3, 2, 40)
# A wrong prediction with confidence 1 has an infinite NLL. The first is the value at which the
# log_loss of scikit-learn clipped at the time of the paper.
CLIPS = (1e-15, 1e-6)


class Data(NamedTuple):
    """One part of the data as arrays of JAX; see `classifiers.Part`.

    Attributes:
        confidences: [n].
        correct: [n].
        groups: [n], or None.
        logits: [n, m], or None.
        labels: [n], or None.
        embeddings: features by name, "t-SNE" and "PCA", [n, d] each.
    """

    confidences: jax.Array
    correct: jax.Array
    groups: jax.Array | None
    logits: jax.Array | None
    labels: jax.Array | None
    embeddings: dict[str, jax.Array]


class Recalibrated(NamedTuple):
    """What the methods make of the evaluation part.

    Attributes:
        confidences: new confidences by method, [n] each; without the methods that have no optimum.
        temperature: that of temperature scaling; NaN where the likelihood has no maximum.
        group_temperatures: that of each group, NaN where the likelihood has no maximum or no
            sample is in the group; or None.
    """

    confidences: dict[str, jax.Array]
    temperature: jax.Array
    group_temperatures: jax.Array | None


def data_of(part: Part, embeddings: dict[str, np.ndarray]) -> Data:
    """Arrays of one part; numbers in float64 where that is enabled."""
    arrays = (part.confidences, part.correct, part.groups, part.logits, part.labels)
    arrays = [None if array is None else jnp.asarray(array) for array in arrays]
    return Data(*arrays, {name: jnp.asarray(x) for name, x in embeddings.items()})


def both_parts(
    calibration: Part, evaluation: Part, embeddings: dict[str, Embedding]
) -> tuple[Data, Data]:
    """Arrays of both parts."""
    parts = zip((calibration, evaluation), ("calibration", "evaluation"), strict=True)
    return tuple(
        data_of(part, {name: getattr(x, which) for name, x in embeddings.items()})
        for part, which in parts
    )


def digest(parts: tuple[Part, Part], embeddings: dict[str, Embedding]) -> str:
    """Identifies all that the results depend on."""
    arrays = [x for embedding in embeddings.values() for x in embedding]
    for part in parts:
        arrays += [part.confidences, part.correct, part.groups, part.logits, part.labels]
    return data_files.digest(*arrays)


def _scaling_data(data: Data) -> tuple[Any, jax.Array]:
    """Predictions and targets of temperature scaling: all classes, or the predicted one alone.

    Confidences are clipped as by `recalibration.PlattScaling`: one wrong prediction with
    confidence 1 has likelihood zero at every temperature.
    """
    if data.logits is None:
        eps = jnp.finfo(data.confidences.dtype).eps
        return Bernoulli(jnp.clip(data.confidences, eps, 1 - eps)), data.correct
    return CategoricalLogits(data.logits), data.labels


def _scaled_confidences(temperature: jax.Array, data: Data) -> jax.Array:
    """Confidences in the predicted classes at one temperature, or at one for each sample [n]."""
    if data.logits is None:
        return jax.nn.sigmoid(log_odds(data.confidences) / temperature)
    return jnp.max(jax.nn.softmax(data.logits / jnp.expand_dims(temperature, -1)), -1)


def _group_temperatures(data: Data, num_groups: int) -> jax.Array:
    """Temperature of each group, NaN where there is none or the group has no member.

    The same as with `recalibration.GroupWise`, which is compiled for each size of a group:
    samples of other groups get equal probabilities, which no temperature changes.
    """
    fit = recalibration.TemperatureScaling().fit
    predictions, targets = _scaling_data(data)

    def fit_group(group: jax.Array) -> jax.Array:
        is_member = data.groups == group
        if data.logits is None:
            masked = Bernoulli(jnp.where(is_member, predictions.probs, 0.5))
        else:
            masked = CategoricalLogits(jnp.where(is_member[:, None], data.logits, 0))
        return jnp.where(jnp.any(is_member), fit(masked, targets), jnp.nan)

    return jax.vmap(fit_group)(jnp.arange(num_groups))


@functools.partial(jax.jit, static_argnames=("num_bins", "num_groups"))
def _recalibrate(
    calibration: Data, evaluation: Data, *, num_bins: int, num_groups: int
) -> Recalibrated:
    temperature = recalibration.TemperatureScaling().fit(*_scaling_data(calibration))
    new = {ORIGINAL: evaluation.confidences}
    new[TEMPERATURE] = _scaled_confidences(temperature, evaluation)
    on_confidences = {
        "Histogram binning": recalibration.HistogramBinning(num_bins),
        "Isotonic regression": recalibration.IsotonicRegression(smooth=False),
        "MMCE optimization": MMCEScaling(),
    }
    for name, method in on_confidences.items():
        params = method.fit(calibration.confidences, calibration.correct)
        new[name] = method.apply(params, evaluation.confidences)
    group_temperatures = None
    if num_groups:
        group_temperatures = _group_temperatures(calibration, num_groups)
        of_samples = group_temperatures[evaluation.groups]
        of_samples = jnp.where(jnp.isnan(of_samples), temperature, of_samples)
        new["Group temp. scaling"] = _scaled_confidences(of_samples, evaluation)
        # L21 §4: with the kernel 1(same group), LoRe is histogram binning within each group.
        same_group = Neighbourhood(kernels.White(), estimators.UniformBins(num_bins))
        method = recalibration.LocalRecalibration(same_group)
        params = method.fit(calibration.confidences, calibration.correct, calibration.groups)
        new["Group hist. binning"] = method.apply(params, evaluation.confidences, evaluation.groups)
    for name, (embedding, length_scale) in zip(LOCAL, LENGTH_SCALES.items(), strict=True):
        near = Neighbourhood.laplacian(length_scale, num_bins)
        method = recalibration.LocalRecalibration(near)
        features = calibration.embeddings[embedding]
        params = method.fit(calibration.confidences, calibration.correct, features)
        new[name] = method.apply(params, evaluation.confidences, evaluation.embeddings[embedding])
    return Recalibrated(new, temperature, group_temperatures)


def recalibrate(calibration: Data, evaluation: Data, num_bins: int) -> Recalibrated:
    """Learns all methods on the calibration part and applies them to the evaluation part.

    Group-wise methods are among them where there are groups. A group without a temperature of
    largest likelihood gets the temperature of all. A method without an optimum on the calibration
    part is left out.
    """
    num_groups = 0
    if calibration.groups is not None:
        num_groups = 1 + int(max(calibration.groups.max(), evaluation.groups.max()))
    found = _recalibrate(calibration, evaluation, num_bins=num_bins, num_groups=num_groups)
    new = {}
    for name in methods_of(has_groups=num_groups > 0):  # compiled functions sort the names
        if np.all(np.isfinite(found.confidences[name])):
            new[name] = found.confidences[name]
    return found._replace(confidences=new)


def complete(name: str, found: Recalibrated, *, has_groups: bool) -> Recalibrated:
    """What was found, if every method has an optimum.

    Raises:
        ValueError: if one has none.
    """
    missing = set(methods_of(has_groups=has_groups)) - set(found.confidences)
    if missing:
        raise ValueError(f"{name}: expected an optimum of every method, got none of {missing}")
    return found


def methods_of(*, has_groups: bool) -> tuple[str, ...]:
    """Names of the methods, with or without the group-wise ones."""
    return (*GLOBAL, *(GROUP_WISE if has_groups else ()), *LOCAL)


def _log_likelihoods(confidences: jax.Array, data: Data, clip: float) -> jax.Array:
    """Log-probability of the outcome: the predicted class, or another one, [n]."""
    inside = jnp.clip(confidences, clip, 1 - clip)
    return jnp.where(data.correct == 1, jnp.log(inside), jnp.log1p(-inside))


def _cells_mce(confidences: jax.Array, data: Data, num_bins: int, num_groups: int) -> jax.Array:
    """Maximum of |mean confidence − accuracy| over cells (group, bin)."""
    cells = data.groups * num_bins + interval_index(confidences, num_bins)

    def sums(values: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(values, cells, num_bins * num_groups).reshape(-1, num_bins)

    counts = sums(jnp.ones_like(confidences))
    return jnp.max(jnp.abs(sums(confidences - data.correct)) / jnp.maximum(counts, 1))


@functools.partial(jax.jit, static_argnames=("num_bins", "num_groups", "redraws"))
def _calibrated_maximum(
    key: jax.Array,
    confidences: jax.Array,
    data: Data,
    *,
    num_bins: int,
    num_groups: int,
    redraws: int,
) -> jax.Array:
    shape = (redraws, *confidences.shape)
    correct = jax.random.bernoulli(key, confidences, shape).astype(confidences.dtype)

    def maximum(correct: jax.Array) -> jax.Array:
        redrawn = data._replace(correct=correct)
        return _cells_mce(confidences, redrawn, num_bins, num_groups)

    return jnp.mean(jax.vmap(maximum)(correct))


def calibrated_maximum(
    key: jax.Array, confidences: jax.Array, data: Data, num_bins: int, redraws: int
) -> float:
    """What the maximum group-wise MCE is on average where the confidences are right.

    What came is redrawn from the confidences, in the same groups and bins.
    """
    found = _calibrated_maximum(
        key,
        confidences,
        data._replace(logits=None, labels=None, embeddings={}),
        num_bins=num_bins,
        num_groups=1 + int(data.groups.max()),
        redraws=redraws,
    )
    return float(found)


def _global_scores(
    confidences: jax.Array, data: Data, num_bins: int, num_groups: int
) -> dict[str, jax.Array]:
    """All but the local errors."""
    samples = Bernoulli(confidences), data.correct
    binning = estimators.UniformBins(num_bins)
    found = {
        "ECE": estimators.ece(*samples, binning=binning),
        "MCE": estimators.mce(*samples, binning=binning),
        "Brier": jnp.mean(jnp.square(confidences - data.correct)),
        "infinite": jnp.sum(jnp.isinf(_log_likelihoods(confidences, data, 0.0))),
    }
    for clip in CLIPS:
        found[f"NLL_{clip:g}"] = -jnp.mean(_log_likelihoods(confidences, data, clip))
    if num_groups:
        found["maximum"] = _cells_mce(confidences, data, num_bins, num_groups)
    return found


@functools.partial(jax.jit, static_argnames=("num_bins", "num_groups"))
def _evaluate(
    confidences: jax.Array, data: Data, *, num_bins: int, num_groups: int
) -> dict[str, jax.Array]:
    found = _global_scores(confidences, data, num_bins, num_groups)
    for name, length_scale in LENGTH_SCALES.items():
        length_scales = jnp.append(jnp.asarray(CURVE_LENGTH_SCALES), length_scale)
        features = data.embeddings[name]
        near = Neighbourhood.laplacian(length_scales.astype(features.dtype), num_bins)
        errors = estimators.lce(near, features, confidences, data.correct)
        largest, mean = jnp.max(errors, 1), jnp.mean(errors, 1)
        found[f"MLCE ({name})"], found[f"mean LCE ({name})"] = largest[-1], mean[-1]
        found[f"MLCE curve ({name})"], found[f"mean LCE curve ({name})"] = largest[:-1], mean[:-1]
    return found


def evaluate(confidences: jax.Array, data: Data, num_bins: int) -> dict[str, Any]:
    """ECE, MCE, NLL, Brier score, group-wise MCE and local errors of confidences, as numbers.

    NLL and Brier score are those of the predicted class against all others: −log of the
    confidence in what came, and the square of confidence − correct.
    """
    num_groups = 0 if data.groups is None else 1 + int(data.groups.max())
    data = data._replace(logits=None, labels=None)  # compiled once for data with and without
    found = _evaluate(confidences, data, num_bins=num_bins, num_groups=num_groups)
    return {name: np.asarray(value).tolist() for name, value in found.items()}
