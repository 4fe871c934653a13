"""Wrong values that a fuzzer once got a plausible number, or NaN without a word, for.

Each is refused by name where it is known, and makes results NaN where it is traced.
"""

import dataclasses
import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import (
    distances,
    distributions,
    estimators,
    interoperability,
    kernels,
    recalibration,
    scores,
    streaming,
)
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.recalibration.confidences import BinAccuracies, IsotonicMap

N = 6
_random = np.random.default_rng(3)
PROBS = _random.dirichlet(np.ones(3), N).astype(np.float32)
LABELS = np.array([0, 2, 1, 1, 0, 2])
Y = _random.normal(size=N).astype(np.float32)
CONFIDENCES = np.array([0.1, 0.3, 0.35, 0.6, 0.7, 0.9], np.float32)
CORRECT = np.array([0, 0, 1, 1, 0, 1])
FEATURES = _random.normal(size=(N, 3)).astype(np.float32)
DRAWS = _random.normal(size=(N, 4)).astype(np.float32)
CLASSES = distributions.Categorical(PROBS)
NORMAL = distributions.Normal(np.zeros(N, np.float32), np.ones(N, np.float32))
OF_CLASSES = kernels.TensorProduct(kernels.Exponential(), kernels.White())
OF_NUMBERS = kernels.TensorProduct(kernels.Exponential(), kernels.SquaredExponential())
KEY = jax.random.key(0)
ON_PAIRS = estimators.Neighbourhood(OF_NUMBERS, estimators.UniformBins(1))
TWO = kernels.LabelKernel(np.eye(2, dtype=np.float32))


def masked(values, index=1):
    return np.ma.masked_array(values, np.arange(np.size(values)).reshape(np.shape(values)) == index)


def masked_rows(values):
    """A list of rows, one of them masked in part."""
    return [masked(row, 0) if i == 2 else row for i, row in enumerate(np.asarray(values))]


def drawn(values, index=None, weights=None):
    return estimators.skce(OF_NUMBERS, distributions.Ensemble(values, weights, index), Y)


def concatenated():
    """Draws of two batches, as someone would put them together."""
    parts = [
        distributions.monte_carlo(
            jax.random.key(i), distributions.Normal(jnp.zeros(3), jnp.ones(3)), 4
        )
        for i in range(2)
    ]
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), *parts)
    return estimators.skce(OF_NUMBERS, both, Y)


def of_draws(predictions, values):
    return estimators.skce(
        OF_CLASSES, MonteCarlo(predictions, distributions.Ensemble(values)), LABELS
    )


def bins(**changes):
    fields = {"accuracies": jnp.array([0.2, 0.7]), "counts": jnp.array([3, 3])} | changes
    params = BinAccuracies(**fields)
    return recalibration.HistogramBinning(2).apply(params, CONFIDENCES)


def isotonic(thresholds, values):
    params = IsotonicMap(jnp.asarray(thresholds), jnp.asarray(values))
    return recalibration.IsotonicRegression().apply(params, CONFIDENCES)


def sums(name, change):
    accumulator = streaming.CalibrationBins(estimators.UniformBins(2))
    found = accumulator.update(accumulator.init(), distributions.Bernoulli(CONFIDENCES), CORRECT)
    changed = found.sums | {name: jax.tree.map(change, found.sums[name])}
    return accumulator.result(dataclasses.replace(found, sums=changed))


def state(change_of_counts):
    accumulator = streaming.CalibrationBins(estimators.UniformBins(2))
    found = accumulator.update(accumulator.init(), distributions.Bernoulli(CONFIDENCES), CORRECT)
    counts = found.counts | change_of_counts(found.counts)
    return accumulator.result(dataclasses.replace(found, counts=counts))


def classifier(X, y):
    return interoperability.RecalibratedClassifier(cv=2).fit(X, y)


def pandas_rows(labels_of_predictions, labels_of_targets):
    import pandas

    frame = pandas.DataFrame(PROBS, index=list(labels_of_predictions))
    series = pandas.Series(LABELS, index=list(labels_of_targets))
    return frame, series


def _pandas(call):
    """A call with tables whose rows are in another order."""
    return functools.partial(call, *pandas_rows("abcdef", "fabcde"))


WITH_PANDAS = {
    "targets": (
        _pandas(lambda p, y: estimators.skce(OF_CLASSES, distributions.Categorical(p), y)),
        r"targets: expected rows with the labels of predictions.*got 'f' in row 0 instead of 'a'",
    ),
    "weights": (
        _pandas(
            lambda p, y: (
                lambda mean: mean.update(
                    mean.init(), distributions.Normal(Y, Y**2 + 1), y, weights=p[0]
                )
            )(streaming.MeanScore(scores.crps))
        ),
        "weights: expected rows with the labels of targets",
    ),
    "parameters": (
        _pandas(lambda p, y: scores.crps(distributions.Normal(p[0], y + 1.0), Y)),
        r"predictions\.scale: expected rows with the labels of predictions\.loc",
    ),
}
OTHER_KIND = r"predictions\.draws\.values: expected"
CASES = {
    "zero indices": (lambda: drawn(DRAWS, np.zeros(N, int)), r"index: expected one .*got 0 for"),
    "concatenated": (concatenated, r"draws\.index: expected one index .* rows 0 and 3"),
    "missing draws": (
        lambda: drawn(np.full((N, 2), -(2**31), np.int32)),
        "values: expected draws that are not missing",
    ),
    "pairs, lce": (
        lambda: estimators.lce(ON_PAIRS, FEATURES, CONFIDENCES, CORRECT),
        "kernel: expected a kernel on single points .*got TensorProduct",
    ),
    "rows": (
        lambda: estimators.skce(OF_CLASSES, distributions.Categorical(masked_rows(PROBS)), LABELS),
        r"predictions\.probs\[2\]: expected values without a mask",
    ),
    "key": (
        lambda: distributions.sample_targets(masked(np.zeros(2, np.uint32)), NORMAL),
        "key: expected values without a mask",
    ),
    "X": (lambda: classifier(masked(FEATURES), LABELS), "X: expected values without a mask"),
    "accuracies": (lambda: bins(accuracies=jnp.array([7.0, -2.0])), r"accuracies\[0\] = 7"),
    "unsorted": (lambda: isotonic([0.7, 0.2], [0.1, 0.5]), r"thresholds: expected .* not decrease"),
    "decreasing": (lambda: isotonic([0.2, 0.7], [0.5, 0.1]), r"values: expected .* not decrease"),
    "other sizes": (
        lambda: state(lambda c: {"sizes": 7 * c["sizes"]}),
        "state: expected counts .* that add up",
    ),
    "other labels": (
        lambda: sums("labels", lambda x: 0 * x),
        "state: expected counts .* that add up",
    ),
    "draws of numbers": (lambda: of_draws(CLASSES, DRAWS), OTHER_KIND),
    "no draws": (
        lambda: estimators.skce(OF_CLASSES, MonteCarlo(CLASSES, 1.0), LABELS),
        r"predictions",
    ),
    "subnormal rate": (
        lambda: distributions.sample_targets(
            KEY, distributions.Poisson(np.full(N, 1e-40, np.float32))
        ),
        r"predictions\.rate: expected values from 1\.18e-38, the smallest normal number of float32",
    ),
    "uniform of no width": (
        lambda: scores.crps(distributions.Uniform(np.zeros(N), np.full(N, 1e-40)), np.zeros(N)),
        r"predictions\.high: expected values above low",
    ),
    "no features": (
        lambda: kernels.gram_matrix(kernels.Exponential(), np.zeros((4, 0))),
        r"xs: expected at least one feature, got shape \(4, 0\)",
    ),
    "labels of a matrix": (
        lambda: kernels.gram_matrix(TWO, np.array([0, 1, 2])),
        r"xs: expected labels in 0, \.\.\., 1, got xs\[2\] = 2",
    ),
    "targets beyond labels": (
        lambda: estimators.skce(
            kernels.TensorProduct(kernels.Exponential(), TWO),
            distributions.Ensemble(np.zeros((N, 2), int)),
            LABELS,
        ),
        r"targets: expected labels in 0, \.\.\., 1",
    ),
    "one-hot proportions": (
        lambda: scores.negative_log_likelihood(
            distributions.Dirichlet(np.tile(np.float32([0.5, 2.0, 1.0]), (N, 1))),
            np.eye(3, dtype=np.float32)[LABELS],
        ),
        r"predictions\.log_prob: expected numbers for these predictions and targets",
    ),
}


@pytest.fixture(autouse=True)
def _in_float32():
    with jax.enable_x64(False):
        yield


@pytest.mark.parametrize("case", CASES)
def test_known(case):
    call, message = CASES[case]
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.parametrize("case", WITH_PANDAS)
def test_rows_of_tables_are_paired_by_position(case):
    pytest.importorskip("pandas")
    call, message = WITH_PANDAS[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_tables_with_the_same_labels():
    pytest.importorskip("pandas")
    frame, series = pandas_rows("abcdef", "abcdef")
    expected = scores.brier_score(CLASSES, LABELS)
    assert scores.brier_score(distributions.Categorical(frame), series) == expected
    assert scores.brier_score(distributions.Categorical(frame), LABELS) == expected


def _pairs_of_draws(values, y, is_same):
    """The unbiased estimate by a loop over pairs of predictions and of draws, in float64."""
    values, y = np.asarray(values, float), np.asarray(y, float)

    def k(a, b):
        return np.exp(-0.5 * np.subtract.outer(a, b) ** 2)

    total, n, m = 0.0, len(y), values.shape[1]
    for i in range(n):
        for j in range(n):
            if i == j:
                continue
            double = k(values[i], values[j])
            mean = double.mean()
            if is_same(i, j):
                mean = (double.sum() - np.trace(double)) / m / (m - 1)
            h = k(y[i], y[j]) - k(values[i], y[j]).mean() - k(values[j], y[i]).mean() + mean
            total += np.exp(-np.linalg.norm(values[i] - values[j])) * h
    return total / n / (n - 1)


def test_draws_under_one_index():
    """Predictions that were drawn twice share their draws; others may not share an index."""
    values, index = DRAWS[[0, 1, 2, 0, 1, 2]], np.array([0, 1, 2, 0, 1, 2])
    expected = _pairs_of_draws(values, Y, lambda i, j: i % 3 == j % 3)
    np.testing.assert_allclose(drawn(values, index), expected, rtol=1e-4, atol=1e-6)
    compiled = jax.jit(drawn)
    np.testing.assert_allclose(compiled(values, index), expected, rtol=1e-4, atol=1e-6)
    own = np.array([5, 3, 4, 0, 1, 2])
    expected = _pairs_of_draws(DRAWS, Y, lambda i, j: False)
    np.testing.assert_allclose(compiled(DRAWS, own), expected, rtol=1e-4, atol=1e-6)
    assert np.isnan(compiled(DRAWS, index))
    assert np.isnan(compiled(DRAWS, np.zeros(N, int)))


FAMILIES = {
    "Bernoulli": lambda bad: distributions.Bernoulli(bad),
    "Categorical": lambda bad: distributions.Categorical(jnp.stack([bad, 1 - bad], 1)),
    "CategoricalLogits": lambda bad: distributions.CategoricalLogits(jnp.stack([bad, bad], 1)),
    "Poisson": lambda bad: distributions.Poisson(bad),
    "NegativeBinomial": lambda bad: distributions.NegativeBinomial(bad, jnp.ones(N)),
}


@pytest.mark.parametrize(
    "family", [x if x == "Bernoulli" else pytest.param(x, marks=pytest.mark.slow) for x in FAMILIES]
)
def test_traced_draws_of_wrong_rows(family):
    """Integers that stand for NaN in place of ordinary draws, and NaN of what is made of them."""

    @jax.jit
    def results(bad):
        made = FAMILIES[family](bad)
        values = distributions.monte_carlo(KEY, made, 3).draws.values
        error = estimators.skce(OF_CLASSES, distributions.Ensemble(values), jnp.asarray(CORRECT))
        return values, jax.vmap(lambda p: p.sample(KEY))(made), error

    values, one, error = results(jnp.asarray(CONFIDENCES).at[2].set(jnp.nan))
    assert np.isnan(error)
    is_wrong = np.arange(N) == 2
    missing = np.iinfo(np.int32).min
    np.testing.assert_array_equal(np.asarray(values) == missing, np.tile(is_wrong, (3, 1)).T)
    np.testing.assert_array_equal(np.asarray(one) == missing, is_wrong)
    assert np.isfinite(results(jnp.asarray(CONFIDENCES))[2])


def test_subnormal_rate_of_one_distribution():
    assert distributions.Poisson(jnp.float32(1e-40)).icdf(0.5) == np.iinfo(np.int32).min
    assert distributions.Poisson(jnp.float32(1e-37)).icdf(0.5) == 0


def test_logits_that_are_probabilities():
    with pytest.warns(UserWarning, match=r"predictions\.logits: all rows are probabilities"):
        scores.brier_score(distributions.CategoricalLogits(PROBS), LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores.brier_score(distributions.CategoricalLogits(np.log(PROBS)), LABELS)
        scores.brier_score(distributions.CategoricalLogits(PROBS + 1), LABELS)


@pytest.mark.parametrize("size", [1e20, 1e30])
def test_far_targets(size):
    """The kernel is zero there, and was NaN."""
    targets = np.float32([0.3, size, -size, 0.1, size, 0.5])
    kernel = kernels.TensorProduct(
        kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential()
    )
    y, total = targets.astype(float), 0.0
    for i in range(N):
        for j in range(N):
            if i != j:
                single = (np.exp(-(y[[i, j]] ** 2) / 4) / np.sqrt(2)).sum()
                total += np.exp(-0.5 * (y[i] - y[j]) ** 2) - single + 1 / np.sqrt(3)
    expected = total / N / (N - 1)
    np.testing.assert_allclose(estimators.skce(kernel, NORMAL, targets), expected, rtol=1e-5)
