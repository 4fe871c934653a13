"""Messages name the argument as the user knows it, what was expected and what came."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax
from calibjax import (
    distances,
    distributions,
    estimators,
    hypothesis_tests,
    kernels,
    recalibration,
    scores,
)
from calibjax.distributions import Bernoulli, Categorical, Normal, WithFeatures
from calibjax.recalibration import GroupWise, HistogramBinning, IsotonicMap, IsotonicRegression
from tests.wrong_data import LABELS, LOC, PROBS, SCALE, N, Y

NORMALS, CLASSES = Normal(LOC, SCALE), Categorical(PROBS)
POINTS, CORRECT = jnp.ones((N, 2)), LABELS > 0
DURATIONS, DATES = np.ones(N, "m8[h]"), np.ones(N, "M8[D]")
WORDS = np.array(["a", "b", "c", "a", "b", "c"])
EXPONENTIAL, WHITE = kernels.Exponential, kernels.White()
GAUSSIAN = kernels.SquaredExponential
UNITS = r"timedelta64\[h\]; divide by a unit"


def log_likelihood(predictions, targets):
    return lambda: scores.negative_log_likelihood(predictions, targets)


def gram(kernel, points):
    return lambda: kernels.gram_matrix(kernel, points)


def distance(metric, points):
    return gram(EXPONENTIAL(1.0, metric), points)


def fitted(method, *arguments):
    return lambda: method.fit(*arguments)


def applied(params):
    return lambda: IsotonicRegression().apply(params, LOC)


BY_GROUP = GroupWise(HistogramBinning(1))
ONE_KIND = r"expected two distributions, got an array of shape \(2,\) and an array"
CASES = {
    "durations": (log_likelihood(NORMALS, DURATIONS), TypeError, "targets: .*" + UNITS),
    "durations as parameter": (
        log_likelihood(Normal(DURATIONS, SCALE), Y),
        TypeError,
        r"predictions.loc: .*" + UNITS,
    ),
    "list of durations": (
        log_likelihood(NORMALS, list(DURATIONS)),
        TypeError,
        "targets: expected numbers, got list of " + UNITS,
    ),
    "duration as length scale": (
        gram(EXPONENTIAL(DURATIONS[0]), POINTS),
        TypeError,
        "kernel.length_scale: expected numbers, got timedelta64; divide",
    ),
    "duration as order": (
        gram(EXPONENTIAL(1.0, distances.MixtureWasserstein(DURATIONS[0])), POINTS),
        TypeError,
        "kernel.distance.order: expected a number .*, got timedelta64",
    ),
    "dates": (log_likelihood(NORMALS, DATES), TypeError, "targets: .*; subtract a date"),
    "names of classes": (
        log_likelihood(CLASSES, WORDS),
        TypeError,
        r"targets: expected numbers, got an array of <U1; .*label_indices\(labels, classes\)",
    ),
    "grid of names": (
        lambda: distributions.with_features(NORMALS, np.full((N, 2), "a")),
        TypeError,
        r"features: expected numbers, got an array of <U1; .*numpy.unique",
    ),
    "ragged": (
        log_likelihood(NORMALS, [[0.0], [0.0, 1.0]] * 3),
        TypeError,
        "targets: expected an array of numbers, got list with entries of different lengths",
    ),
    "a key": (
        log_likelihood(jax.random.key(0), Y),
        TypeError,
        "predictions: expected a batch of distributions .*, got a random key",
    ),
    "missing": (
        log_likelihood(NORMALS, [None, *Y.tolist()[1:]]),
        TypeError,
        "targets: .* of type NoneType; leave out what is missing",
    ),
    "masked scalar": (
        gram(EXPONENTIAL(np.ma.masked), POINTS),
        ValueError,
        "kernel.length_scale: expected values without a mask, got a masked kernel.length_scale$",
    ),
    "labels from one": (
        log_likelihood(CLASSES, LABELS + 1),
        ValueError,
        r"targets: expected labels in 0, ..., 2 \(subtract 1 from labels 1, ..., 3\), got",
    ),
    "one-hot labels": (
        log_likelihood(CLASSES, np.eye(3)[LABELS]),
        ValueError,
        r"targets: expected shape \[n\], .*; labels of one-hot rows are jnp.argmax\(targets, 1",
    ),
    "one probability each": (
        log_likelihood(Categorical(PROBS[:, 0]), CORRECT),
        ValueError,
        r"probs: expected shape \[n, m\] .*, got \(6,\);.*distributions.Bernoulli\(probs\)$",
    ),
    "one column of probabilities": (
        log_likelihood(Categorical(PROBS[:, :1]), CORRECT),
        ValueError,
        r"got \(6, 1\);.*distributions.Bernoulli\(probs\[:, 0\]\)$",
    ),
    "probabilities of both classes": (
        log_likelihood(Bernoulli(PROBS[:, :2]), CORRECT),
        ValueError,
        r"probs: expected shape \[n\], got \(6, 2\);.*distributions.Categorical\(probs\)",
    ),
    "rows that are not normalised": (
        log_likelihood(Categorical(PROBS.at[4].multiply(0.5)), LABELS),
        ValueError,
        r"got predictions.probs.sum\(-1\)\[4\] = 0.5.*; .*probs / .*probs.sum\(-1, keepdims=True\)",
    ),
    "no key": (
        lambda: calibjax.evaluate(CLASSES, LABELS),
        TypeError,
        r"key: expected one random key such as jax.random.key\(0\), got Categorical$",
    ),
    "no key of a test": (
        lambda: hypothesis_tests.aggregated_skce_test(CLASSES, LABELS),
        TypeError,
        r"key: expected one random key such as jax.random.key\(0\), got Categorical$",
    ),
    "a sample for a key": (
        lambda: calibjax.evaluate(CLASSES, CLASSES, LABELS),
        TypeError,
        r"key: expected one random key such as jax.random.key\(0\), got Categorical$",
    ),
    "percentages": (
        log_likelihood(Categorical(100 * PROBS), LABELS),
        ValueError,
        r"predictions.probs: expected probabilities in \[0, 1\] \(not logits.*percentages\), got",
    ),
    "probabilities that are normals": (
        log_likelihood(Categorical(NORMALS), LABELS),
        TypeError,
        "predictions.probs: expected an array, got Normal",
    ),
    "a Bernoulli of normals": (
        log_likelihood(Bernoulli(NORMALS), CORRECT),
        TypeError,
        "predictions.probs: expected an array, got Normal",
    ),
    "array with features": (
        log_likelihood(WithFeatures(LOC, POINTS), Y),
        TypeError,
        r"predictions\.distribution: expected a batch of distributions .*, got an array",
    ),
    "features that are predictions": (
        lambda: distributions.with_features(NORMALS, Categorical(NORMALS)),
        TypeError,
        "features.probs: expected an array of numbers, got Normal",
    ),
    "Wasserstein of arrays": (
        distance(distances.Wasserstein(), POINTS),
        TypeError,
        "kernel Exponential: distance Wasserstein: " + ONE_KIND,
    ),
    "Wasserstein of classes": (
        distance(distances.Wasserstein(), CLASSES),
        NotImplementedError,
        "kernel Exponential: distance Wasserstein is not defined for Categorical",
    ),
    "mixture Wasserstein of arrays": (
        distance(distances.MixtureWasserstein(), POINTS),
        NotImplementedError,
        r"kernel Exponential: distance MixtureWasserstein .* got an array of shape \(2,\)",
    ),
    "total variation of normals": (
        distance(distances.TotalVariation(), NORMALS),
        NotImplementedError,
        "kernel Exponential: distance TotalVariation .*, got Normal and Normal",
    ),
    "features of arrays": (
        distance(distances.Features(), POINTS),
        TypeError,
        r"kernel Exponential: distance Features: .*, got an array of shape \(2,\)",
    ),
    "mean discrepancy of arrays": (
        distance(distances.MaximumMeanDiscrepancy(WHITE), POINTS),
        NotImplementedError,
        r"kernel White under an array of shape \(2,\), which has no method sample",
    ),
    "Euclidean of two kinds": (
        lambda: distances.Euclidean()(NORMALS, LOC),
        TypeError,
        r"distance: expected two points of one kind, got Normal and an array of shape \(6,\)",
    ),
    "white kernel of predictions": (
        gram(WHITE, NORMALS),
        TypeError,
        "kernel White: expected arrays of labels or numbers as points, got Normal",
    ),
    "label kernel of predictions": (
        gram(kernels.LabelKernel(jnp.eye(3)), CLASSES),
        TypeError,
        "kernel LabelKernel: expected class labels as points, got Categorical",
    ),
    "label kernel of numbers": (
        gram(kernels.LabelKernel(jnp.eye(3)), Y),
        TypeError,
        "kernel LabelKernel: expected class labels as points, got numbers of float",
    ),
    "points of two kinds": (
        lambda: kernels.gram_matrix(GAUSSIAN(), LOC, NORMALS),
        ValueError,
        "ys: expected entries like those of xs, arrays with entries .*, got Normal",
    ),
    "classes and their correct": (
        fitted(IsotonicRegression(), CLASSES, np.full(N, 3)),
        ValueError,
        "^correct: expected labels in 0, ..., 2",
    ),
    "classes as confidences": (
        fitted(IsotonicRegression(), Categorical(2 * PROBS), LABELS),
        ValueError,
        "^confidences.probs.sum",
    ),
    "confidences of groups": (
        fitted(BY_GROUP, WORDS, CORRECT, LABELS),
        TypeError,
        "^confidences: expected numbers",
    ),
    "fewer correct in groups": (
        fitted(BY_GROUP, LOC, CORRECT[1:], LABELS),
        ValueError,
        "^correct: expected 6 samples, as confidences, got 5",
    ),
    "no groups": (
        fitted(BY_GROUP, LOC, CORRECT),
        TypeError,
        "groups: expected it as the last argument, after confidences, correct, got 2 arguments",
    ),
    "params that are words": (
        applied(IsotonicMap(WORDS, LOC)),
        TypeError,
        r"params.thresholds: expected numbers, got an array of <U1",
    ),
    "params that are lists": (
        applied(IsotonicMap([0.1, 0.2], LOC)),
        TypeError,
        "params.thresholds: expected an array of numbers, as fit returns it, got list",
    ),
    "params that are missing": (
        applied(IsotonicMap(LOC, None)),
        TypeError,
        "params.values: expected an array, got NoneType",
    ),
    "temperature": (
        lambda: recalibration.TemperatureScaling().apply(-1.0, CLASSES),
        ValueError,
        "params: expected positive finite values, got params = -1.0",
    ),
    "length scale of a neighbourhood": (
        lambda: estimators.lce(estimators.Neighbourhood.laplacian("1", 2), POINTS, LOC, CORRECT),
        TypeError,
        "neighbourhood.kernel.length_scale: expected a number, got str",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_message(name):
    call, error, message = CASES[name]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("scale", [2**31, 2**70, np.ma.masked_array(2.0**40)])
def test_large_and_unmasked_hyperparameters_are_taken(scale):
    kernel = kernels.Scaled(scale, kernels.Constant())
    np.testing.assert_allclose(kernels.gram_matrix(kernel, jnp.zeros((2, 2))), float(scale), 1e-6)
    assert np.all(kernels.gram_matrix(EXPONENTIAL(scale), jnp.zeros((2, 2))) == 1)


def test_the_checked_kernel_of_a_witness_is_used():
    kernel = kernels.TensorProduct(EXPONENTIAL(2**40), GAUSSIAN())
    value = estimators.witness(kernel, NORMALS, Y, NORMALS, Y)
    same = kernels.TensorProduct(EXPONENTIAL(2.0**40), GAUSSIAN())
    np.testing.assert_array_equal(value, estimators.witness(same, NORMALS, Y, NORMALS, Y))
