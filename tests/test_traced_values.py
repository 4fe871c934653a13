"""Under jit, what eager calls refuse is NaN, and what they take is the same number."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, estimators, hypothesis_tests, kernels, scores

KEY, N = jax.random.key(0), 6
LABELS, COUNTS = jnp.array([0, 1, 2, 1, 0, 1]), jnp.array([0, 3, 2, 1, 5, 1])
LOC, TARGETS = jnp.linspace(0.0, 1.0, N), jnp.linspace(-1.0, 2.0, N)
PROBS = jnp.array([[0.5, 0.25, 0.25], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]] * 2)
SMALLEST = -(2**31)

normal = distributions.Normal(LOC, jnp.full(N, 0.5))
classes = distributions.Categorical(PROBS)
poisson = distributions.Poisson(jnp.linspace(1.0, 4.0, N))
mixture = distributions.Mixture(
    jnp.full((N, 2), 0.5),
    distributions.Normal(jnp.stack([LOC, -LOC], 1), jnp.full((N, 2), 0.5)),
)
samples = distributions.Samples(jnp.stack([LOC, LOC + 1, LOC - 1], 1), jnp.full((N, 3), 1 / 3))
vectors = distributions.MvNormal(
    jnp.stack([LOC, -LOC], 1), jnp.stack([jnp.array([[1.0, 0.3], [0.3, 2.0]])] * N)
)
beta = distributions.Beta(jnp.full(N, 2.0), jnp.full(N, 3.0))

REAL = kernels.TensorProduct(kernels.Exponential(1.0), kernels.SquaredExponential(1.0))
LAPLACE = kernels.TensorProduct(kernels.Exponential(1.0), kernels.Exponential(1.0))
CLASSES = kernels.TensorProduct(
    kernels.Exponential(0.5, distances.TotalVariation()), kernels.White()
)


def _at(values, value):
    """The values with another fourth one."""
    return values.at[3].set(value)


def _with(record, **fields):
    return dataclasses.replace(record, **fields)


# Valid data and wrong ones: name → (predictions, targets)
CASES = {
    "normal": (
        (normal, TARGETS),
        {
            "negative scales": (_with(normal, scale=-normal.scale), TARGETS),
            "one negative scale": (_with(normal, scale=_at(normal.scale, -0.5)), TARGETS),
            "NaN loc": (_with(normal, loc=_at(LOC, jnp.nan)), TARGETS),
            "NaN target": (normal, _at(TARGETS, jnp.nan)),
            "infinite target": (normal, _at(TARGETS, jnp.inf)),
        },
    ),
    "classes": (
        (classes, LABELS),
        {
            "label -1": (classes, _at(LABELS, -1)),
            "label m": (classes, _at(LABELS, 3)),
            "smallest label": (classes, _at(LABELS, SMALLEST)),
            "percent": (_with(classes, probs=100 * PROBS), LABELS),
            "logits": (_with(classes, probs=jnp.log(PROBS)), LABELS),
            "one row": (_with(classes, probs=_at(PROBS, 0.5)), LABELS),
            "NaN": (_with(classes, probs=_at(PROBS, jnp.nan)), LABELS),
        },
    ),
    "poisson": (
        (poisson, COUNTS),
        {
            "count -1": (poisson, _at(COUNTS, -1)),
            "negative rate": (_with(poisson, rate=_at(poisson.rate, -1.0)), COUNTS),
            "NaN rate": (_with(poisson, rate=_at(poisson.rate, jnp.nan)), COUNTS),
        },
    ),
    "mixture": (
        (mixture, TARGETS),
        {
            "weights": (_with(mixture, weights=1.5 * mixture.weights), TARGETS),
            "scale": (
                _with(mixture, components=_with(mixture.components, scale=-jnp.ones((N, 2)))),
                TARGETS,
            ),
        },
    ),
    "samples": (
        (samples, TARGETS),
        {
            "weights": (_with(samples, weights=2 * samples.weights), TARGETS),
            "one draw": (
                _with(samples, weights=_at(samples.weights, jnp.array([1.0, 0.0, 0.0]))),
                TARGETS,
            ),
            "NaN draw": (_with(samples, values=samples.values.at[3, 1].set(jnp.nan)), TARGETS),
        },
    ),
    "vectors": (
        (vectors, vectors.loc),
        {
            "indefinite": (
                _with(vectors, cov=_at(vectors.cov, jnp.array([[1.0, 2.0], [2.0, 1.0]]))),
                vectors.loc,
            ),
            "asymmetric": (
                _with(vectors, cov=_at(vectors.cov, jnp.array([[1.0, 0.5], [0.0, 1.0]]))),
                vectors.loc,
            ),
            "negative": (_with(vectors, cov=-vectors.cov), vectors.loc),
        },
    ),
    "beta": (
        (beta, jnp.full(N, 0.5)),
        {
            "beyond one": (beta, _at(jnp.full(N, 0.5), 1.5)),
            "negative": (_with(beta, alpha=-beta.alpha), jnp.full(N, 0.5)),
        },
    ),
}


def _ignorant(predictions, targets):
    """A statistic that looks at few of the numbers."""
    return jnp.median(targets) * 1.0


def _pvalue(test, *arguments, **options):
    return lambda *data: test(*arguments, *data, **options).pvalue


_locations = {"normal": (normal, TARGETS), "classes": (classes, LABELS)}
FUNCTIONS = {
    "nll": (scores.negative_log_likelihood, ("normal", "classes", "poisson", "vectors", "beta")),
    "crps": (scores.crps, ("normal", "mixture", "samples")),
    "pinball": (
        functools.partial(scores.pinball_loss, levels=jnp.array([0.5])),
        ("normal", "classes", "poisson"),
    ),
    "brier": (scores.brier_score, ("classes",)),
    "ece": (functools.partial(estimators.ece, binning=estimators.UniformBins(3)), ("classes",)),
    "mce": (
        functools.partial(estimators.mce, binning=estimators.MedianVarianceBins(2)),
        ("classes",),
    ),
    "top label": (
        lambda *data: estimators.ece(
            *estimators.top_label(*data), binning=estimators.EqualMassBins(2)
        ),
        ("classes",),
    ),
    "kde": (
        functools.partial(estimators.kde_calibration_error, bandwidth=0.1, order=2),
        ("classes",),
    ),
    "skce": (functools.partial(estimators.skce, REAL), ("normal", "vectors", "mixture", "poisson")),
    "skce of classes": (functools.partial(estimators.skce, CLASSES), ("classes",)),
    "skce of draws": (functools.partial(estimators.skce, LAPLACE), ("samples",)),
    "exact test": (
        _pvalue(hypothesis_tests.exact_skce_test, KEY, REAL, num_draws=9),
        ("normal", "poisson"),
    ),
    "exact test of classes": (
        _pvalue(hypothesis_tests.exact_skce_test, KEY, CLASSES, num_draws=9),
        ("classes",),
    ),
    "any statistic": (
        _pvalue(hypothesis_tests.exact_test, KEY, _ignorant, num_draws=9),
        ("normal", "classes", "poisson", "vectors"),
    ),
    "consistency": (
        _pvalue(hypothesis_tests.consistency_test, KEY, _ignorant, num_draws=9),
        ("classes",),
    ),
    "bootstrap": (
        _pvalue(hypothesis_tests.bootstrap_skce_test, KEY, CLASSES, num_draws=9),
        ("classes",),
    ),
    "distribution-free": (
        _pvalue(hypothesis_tests.distribution_free_skce_test, CLASSES),
        ("classes",),
    ),
    "ucme": (
        lambda *data: estimators.ucme(CLASSES, *data, *jax.tree.map(lambda x: x[2:], data)),
        ("classes",),
    ),
    "cme test": (
        lambda *data: (
            hypothesis_tests.cme_test(CLASSES, *data, *jax.tree.map(lambda x: x[2:4], data)).pvalue
        ),
        ("classes",),
    ),
}


@pytest.mark.parametrize(
    ("function", "case"), [(f, case) for f, (_, cases) in FUNCTIONS.items() for case in cases]
)
def test_wrong_data_never_become_a_number(function, case):
    valid, wrong = CASES[case]
    evaluate = jax.jit(FUNCTIONS[function][0])
    assert np.isfinite(evaluate(*valid))
    for name, data in wrong.items():
        assert np.isnan(evaluate(*data)), name


def _normal_kernel(scale, factor, exponent):
    kernel = factor * kernels.PowerExponential(scale, exponent)
    return kernels.TensorProduct(kernel + kernels.Exponential(1.0), kernels.SquaredExponential(1.0))


HYPERPARAMETERS = {
    "length scale": (
        lambda x: estimators.skce(_normal_kernel(x, 1.0, 1.0), *CASES["normal"][0]),
        1,
    ),
    "factor": (lambda x: estimators.skce(_normal_kernel(1.0, x, 1.0), *CASES["normal"][0]), 1),
    "exponent": (lambda x: estimators.skce(_normal_kernel(1.0, 1.0, x), *CASES["normal"][0]), 1),
    "length scale of mmce": (
        lambda x: estimators.mmce(kernels.Exponential(x), jnp.array([0.5, 0.6]), jnp.array([0, 1])),
        1,
    ),
    "bandwidth": (
        lambda x: estimators.kde_calibration_error(classes, LABELS, bandwidth=x, order=1),
        0.5,
    ),
    "order": (
        lambda x: estimators.kde_calibration_error(classes, LABELS, bandwidth=0.5, order=x),
        1,
    ),
    "levels": (lambda x: scores.pinball_loss(normal, TARGETS, levels=x[None]), 0.5),
    "ratio": (
        lambda x: scores.decision_cost(jnp.array([0.4, 0.9]), jnp.array([0, 1]), x),
        2,
    ),
    "bound": (
        lambda x: (
            hypothesis_tests.distribution_free_skce_test(CLASSES, classes, LABELS, bound=x).pvalue
        ),
        2,
    ),
    "confidence level": (
        lambda x: (
            hypothesis_tests.skce_confidence_interval(
                CLASSES, classes, LABELS, confidence_level=x
            ).high
        ),
        0.9,
    ),
}


@pytest.mark.parametrize("name", HYPERPARAMETERS)
def test_wrong_hyperparameters_never_become_a_number(name):
    function, valid = HYPERPARAMETERS[name]
    evaluate = jax.jit(function)
    assert np.isfinite(evaluate(jnp.asarray(valid, float)))
    for wrong in (-1.0, 0.0, np.nan, np.inf):
        assert np.isnan(evaluate(jnp.array(wrong))), wrong


def test_label_matrices():
    def estimate(matrix):
        kernel = kernels.TensorProduct(CLASSES.prediction, kernels.LabelKernel(matrix))
        return estimators.skce(kernel, classes, LABELS)

    evaluate = jax.jit(estimate)
    np.testing.assert_allclose(evaluate(jnp.eye(3)), estimate(jnp.eye(3)), rtol=1e-12)
    for wrong in (-jnp.eye(3), jnp.triu(jnp.ones((3, 3))), jnp.full((3, 3), jnp.nan)):
        assert np.isnan(evaluate(wrong))


def test_draws_of_wrong_predictions_are_missing():
    draw = jax.jit(functools.partial(distributions.sample_targets, KEY))
    for case in ("normal", "classes", "poisson"):
        (predictions, targets), wrong = CASES[case]
        np.testing.assert_array_equal(
            draw(predictions), distributions.sample_targets(KEY, predictions)
        )
        for name, (bad, same) in wrong.items():
            if bad is not predictions:
                draws = draw(bad)
                is_integer = jnp.issubdtype(draws.dtype, jnp.integer)
                missing = draws == jnp.iinfo(draws.dtype).min if is_integer else jnp.isnan(draws)
                assert missing[3], name
                assert same is targets


@pytest.mark.slow
def test_gradients_do_not_see_the_checks():
    def loss(scale, loc):
        return estimators.skce(REAL, distributions.Normal(loc, scale), TARGETS)

    data = normal.scale.astype(float), LOC.astype(float)
    gradients = jax.jit(jax.grad(loss, (0, 1)))(*data)
    step = 1e-6
    for argument in (0, 1):
        losses = []
        for sign in (1, -1):
            moved = list(data)
            moved[argument] = moved[argument].at[2].add(sign * step)
            losses.append(loss(*moved))
        difference = (losses[0] - losses[1]) / (2 * step)
        np.testing.assert_allclose(gradients[argument][2], difference, rtol=1e-5)
