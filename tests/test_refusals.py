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
    hypothesis_tests,
    interoperability,
    kernels,
    recalibration,
    risk,
    scores,
    streaming,
)

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
NEAR = estimators.Neighbourhood(kernels.Exponential(), estimators.UniformBins(1))
ON_PAIRS = estimators.Neighbourhood(OF_NUMBERS, estimators.UniformBins(1))
TWO = kernels.LabelKernel(np.eye(2, dtype=np.float32))


def masked(values, index=1):
    return np.ma.masked_array(values, np.arange(np.size(values)).reshape(np.shape(values)) == index)


def masked_rows(values):
    """A list of rows, one of them masked in part."""
    return [masked(row, 0) if i == 2 else row for i, row in enumerate(np.asarray(values))]


def drawn(values, index=None, weights=None):
    return estimators.skce(OF_NUMBERS, distributions.Samples(values, weights, index), Y)


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
        OF_CLASSES, distributions.MonteCarlo(predictions, distributions.Samples(values)), LABELS
    )


def bins(**changes):
    fields = {"accuracies": jnp.array([0.2, 0.7]), "counts": jnp.array([3, 3])} | changes
    params = recalibration.BinAccuracies(**fields)
    return recalibration.HistogramBinning(2).apply(params, CONFIDENCES)


def isotonic(thresholds, values):
    params = recalibration.IsotonicMap(jnp.asarray(thresholds), jnp.asarray(values))
    return recalibration.IsotonicRegression().apply(params, CONFIDENCES)


def fitted(function, hyperparameter, **changes):
    params = function.fit(CONFIDENCES, CORRECT, hyperparameter)
    changes = {key: change(getattr(params, key)) for key, change in changes.items()}
    return function.diagonal(dataclasses.replace(params, **changes), CONFIDENCES)


def ridge(**changes):
    """Params of two points."""
    fields = {"kernel": kernels.Exponential(), "points": CONFIDENCES[:2], "basis": np.eye(2)}
    fields |= {"eigenvalues": np.ones(2), "projections": np.ones((2, 1)), "residual": 0.0}
    return risk.KernelRidgeParams(**fields | {"penalty": 1.0} | changes, num_samples=2)


def local(**changes):
    params = recalibration.LocalRecalibration(NEAR).fit(CONFIDENCES, CORRECT, FEATURES)
    params = dataclasses.replace(params, **changes)
    return recalibration.LocalRecalibration(NEAR).apply(params, CONFIDENCES, FEATURES)


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


def _model():
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression().fit(FEATURES, LABELS)


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
    "correct": (
        _pandas(lambda p, y: estimators.mmce(kernels.Exponential(), p[0], y % 2)),
        "correct: expected rows with the labels of confidences",
    ),
    "features": (
        _pandas(lambda p, y: distributions.with_features(distributions.Normal(y * 1.0, 1.0), p)),
        "features: expected rows with the labels of predictions",
    ),
    "local": (
        _pandas(lambda p, y: estimators.lce(NEAR, p, y / 2, CORRECT)),
        "confidences: expected rows with the labels of features",
    ),
    "groups": (
        _pandas(
            lambda p, y: hypothesis_tests.group_calibration_test(
                KEY, distributions.Categorical(p), LABELS, y
            )
        ),
        "groups: expected rows with the labels of predictions",
    ),
}
OTHER_KIND = r"predictions\.draws\.values: expected"
CASES = {
    "zero indices": (lambda: drawn(DRAWS, np.zeros(N, int)), r"index: expected one .*got 0 for"),
    "fractions": (lambda: drawn(DRAWS, np.full(N, 0.5)), "index: expected integer"),
    "matrix of indices": (lambda: drawn(DRAWS, np.zeros((N, 2), int)), r"index: expected shape"),
    "concatenated": (concatenated, r"draws\.index: expected one index .* rows 0 and 3"),
    "missing draws": (
        lambda: drawn(np.full((N, 2), -(2**31), np.int32)),
        "values: expected draws that are not missing",
    ),
    "pairs, lce": (
        lambda: estimators.lce(ON_PAIRS, FEATURES, CONFIDENCES, CORRECT),
        "kernel: expected a kernel on single points .*got TensorProduct",
    ),
    "pairs, gram_matrix": (
        lambda: kernels.gram_matrix(OF_NUMBERS, FEATURES),
        "kernel: expected a kernel on single points",
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
    "X of a model": (
        lambda: interoperability.from_sklearn(_model(), masked(FEATURES)),
        "X: expected values without a mask",
    ),
    "accuracies": (lambda: bins(accuracies=jnp.array([7.0, -2.0])), r"accuracies\[0\] = 7"),
    "sizes": (lambda: bins(counts=jnp.array([3])), r"params\.counts: expected shape \[b\]"),
    "unsorted": (lambda: isotonic([0.7, 0.2], [0.1, 0.5]), r"thresholds: expected .* not decrease"),
    "decreasing": (lambda: isotonic([0.2, 0.7], [0.5, 0.1]), r"values: expected .* not decrease"),
    "beyond": (lambda: isotonic([0.2, 0.7], [-1.0, 5.0]), r"params\.values: expected proportions"),
    "lengths": (lambda: isotonic([0.2, 0.7], [0.5]), r"params\.values: expected shape \[k\]"),
    "labels of densities": (
        lambda: fitted(risk.KernelDensity(), 0.1, labels=lambda y: y + 7),
        r"params\.labels: expected labels in 0, \.\.\., 1",
    ),
    "points of densities": (
        lambda: fitted(risk.KernelDensity(), 0.1, vectors=lambda x: x + 7),
        r"params\.vectors: expected proportions",
    ),
    "no intervals": (
        lambda: fitted(risk.Binning(4), 2, num_bins=lambda b: b * 0),
        r"params\.num_bins: expected a number from 1 to 4",
    ),
    "means": (
        lambda: fitted(risk.Binning(4), 2, means=lambda x: x + 9),
        r"params\.means: expected values from -1 to 1",
    ),
    "basis": (
        lambda: risk.KernelRidge().diagonal(ridge(points=CONFIDENCES), CONFIDENCES),
        r"params\.basis: expected shape \[R, r\], as the points, got \(2, 2\)",
    ),
    "local correct": (lambda: local(correct=9 * CORRECT), r"params\.correct: expected 0 or 1"),
    "other sizes": (
        lambda: state(lambda c: {"sizes": 7 * c["sizes"]}),
        "state: expected counts .* that add up",
    ),
    "other labels": (
        lambda: sums("labels", lambda x: 0 * x),
        "state: expected counts .* that add up",
    ),
    "residuals": (
        lambda: sums("residuals", lambda x: x + 9),
        "state: expected counts .* and sums of residuals",
    ),
    "draws of numbers": (lambda: of_draws(CLASSES, DRAWS), OTHER_KIND),
    "draws of other classes": (lambda: of_draws(CLASSES, np.full((N, 2), 7)), OTHER_KIND),
    "draws of vectors": (lambda: of_draws(NORMAL, np.ones((N, 2, 2), np.float32)), OTHER_KIND),
    "no draws": (
        lambda: estimators.skce(OF_CLASSES, distributions.MonteCarlo(CLASSES, 1.0), LABELS),
        r"predictions",
    ),
    "subnormal rate": (
        lambda: distributions.sample_targets(
            KEY, distributions.Poisson(np.full(N, 1e-40, np.float32))
        ),
        r"predictions\.rate: expected values from 1\.18e-38, the smallest normal number of float32",
    ),
    "subnormal scale": (
        lambda: scores.crps(distributions.Normal(Y, np.full(N, 1e-40)), Y),
        r"predictions\.scale: expected values from 1\.18e-38",
    ),
    "subnormal variance": (
        lambda: distributions.sample_targets(
            KEY, distributions.MvNormal(np.zeros((N, 2)), 1e-40 * np.eye(2))
        ),
        r"cov\.diagonal: expected positive variances",
    ),
    "subnormal length scale": (
        lambda: kernels.gram_matrix(kernels.Exponential(1e-40), Y),
        r"kernel\.length_scale: expected values from 1\.18e-38",
    ),
    "length scale beyond float32": (
        lambda: kernels.gram_matrix(kernels.Exponential(1e39), Y),
        r"kernel\.length_scale: expected values from 1\.18e-38.* to 3\.4e\+38",
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
            distributions.Samples(np.zeros((N, 2), int)),
            LABELS,
        ),
        r"targets: expected labels in 0, \.\.\., 1",
    ),
    "draws beyond labels": (
        lambda: estimators.skce(
            kernels.TensorProduct(kernels.Exponential(), TWO),
            distributions.Samples(np.full((N, 2), 5)),
            CORRECT,
        ),
        r"predictions\.values: expected labels in 0, \.\.\., 1",
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


def test_traced_params():
    """All numbers that depend on wrong params are NaN."""
    platt = recalibration.PlattScaling()

    @jax.jit
    def results(accuracies, counts, thresholds, slope, vectors, number):
        densities = risk.KernelDensities(vectors, jnp.asarray(CORRECT), jnp.float32(0.1))
        residuals = risk.BinResiduals(jnp.zeros((4, 1)), jnp.ones(4, int), number)
        return (
            bins(accuracies=accuracies, counts=counts),
            isotonic(thresholds, jnp.array([0.1, 0.2])),
            platt.apply(recalibration.SigmoidMap(slope, jnp.float32(0)), CONFIDENCES),
            risk.KernelDensity().diagonal(densities, CONFIDENCES),
            risk.Binning(4).diagonal(residuals, CONFIDENCES),
        )

    right = (jnp.array([0.2, 0.7]), jnp.array([3, 3]), jnp.array([0.2, 0.4]), jnp.float32(1))
    right += (jnp.asarray(CONFIDENCES)[:, None], jnp.int32(2))
    wrong = (jnp.array([7.0, -2.0]), jnp.array([-3, -3]), jnp.array([0.4, 0.2]))
    wrong += (jnp.float32(jnp.inf), right[4] + 7, jnp.int32(9))
    assert all(np.isfinite(x).all() for x in results(*right))
    for i, affected in enumerate((0, 0, 1, 2, 3, 4)):
        changed = results(*right[:i], wrong[i], *right[i + 1 :])
        assert np.isnan(changed[affected]).all(), i
        others = [x for j, x in enumerate(changed) if j != affected]
        assert all(np.isfinite(x).all() for x in others), i


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
        error = estimators.skce(OF_CLASSES, distributions.Samples(values), jnp.asarray(CORRECT))
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
