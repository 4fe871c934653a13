"""Messages name the argument as the user knows it, what was expected and what came."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax
from calibjax import (
    distances,
    kernels,
    scores,
)
from calibjax.distributions import Bernoulli, Categorical, Normal
from calibjax.recalibration import GroupWise, HistogramBinning, IsotonicRegression
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


BY_GROUP = GroupWise(HistogramBinning(1))
ONE_KIND = r"expected two distributions, got an array of shape \(2,\) and an array"
CASES = {
    "durations": (log_likelihood(NORMALS, DURATIONS), TypeError, "targets: .*" + UNITS),
    "dates": (log_likelihood(NORMALS, DATES), TypeError, "targets: .*; subtract a date"),
    "names of classes": (
        log_likelihood(CLASSES, WORDS),
        TypeError,
        r"targets: expected numbers, got an array of <U1; .*label_indices\(labels, classes\)",
    ),
    "a key": (
        log_likelihood(jax.random.key(0), Y),
        TypeError,
        "predictions: expected a batch of distributions .*, got a random key",
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
    "percentages": (
        log_likelihood(Categorical(100 * PROBS), LABELS),
        ValueError,
        r"predictions.probs: expected probabilities in \[0, 1\] \(not logits.*percentages\), got",
    ),
    "Wasserstein of arrays": (
        distance(distances.Wasserstein(), POINTS),
        TypeError,
        "kernel Exponential: distance Wasserstein: " + ONE_KIND,
    ),
    "label kernel of predictions": (
        gram(kernels.LabelKernel(jnp.eye(3)), CLASSES),
        TypeError,
        "kernel LabelKernel: expected class labels as points, got Categorical",
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
    "no groups": (
        fitted(BY_GROUP, LOC, CORRECT),
        TypeError,
        "groups: expected it as the last argument, after confidences, correct, got 2 arguments",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_message(name):
    call, error, message = CASES[name]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("scale", [2**31, 2**70, np.ma.masked_array(2.0**40)])
def test_large_and_unmasked_hyperparameters_are_taken(scale):
    kernel = kernels.base.Scaled(scale, kernels.Constant())
    np.testing.assert_allclose(kernels.gram_matrix(kernel, jnp.zeros((2, 2))), float(scale), 1e-6)
    assert np.all(kernels.gram_matrix(EXPONENTIAL(scale), jnp.zeros((2, 2))) == 1)
