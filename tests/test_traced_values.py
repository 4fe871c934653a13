"""Under jit, what eager calls refuse is NaN, and what they take is the same number.

Of tests, which `tests.test_mutations` tries in its slow part only.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, estimators, hypothesis_tests, kernels

KEY, N = jax.random.key(0), 6
LABELS, COUNTS = jnp.array([0, 1, 2, 1, 0, 1]), jnp.array([0, 3, 2, 1, 5, 1])
LOC, TARGETS = jnp.linspace(0.0, 1.0, N), jnp.linspace(-1.0, 2.0, N)
PROBS = jnp.array([[0.5, 0.25, 0.25], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]] * 2)
SMALLEST = -(2**31)

normal = distributions.Normal(LOC, jnp.full(N, 0.5))
classes = distributions.Categorical(PROBS)
poisson = distributions.Poisson(jnp.linspace(1.0, 4.0, N))
REAL = kernels.TensorProduct(kernels.Exponential(1.0), kernels.SquaredExponential(1.0))
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
}


def _ignorant(predictions, targets):
    """A statistic that looks at few of the numbers."""
    return jnp.median(targets) * 1.0


def _pvalue(test, *arguments, **options):
    return lambda *data: test(*arguments, *data, **options).pvalue


FUNCTIONS = {
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
        ("normal", "classes"),
    ),
    "consistency": (
        _pvalue(hypothesis_tests.consistency_test, KEY, _ignorant, num_draws=9),
        ("classes",),
    ),
    "bootstrap": (
        _pvalue(hypothesis_tests.bootstrap_skce_test, KEY, CLASSES, num_draws=9),
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


def test_wrong_confidence_levels_never_become_a_number():
    @jax.jit
    def high(level):
        data = CLASSES, classes, LABELS
        return hypothesis_tests.skce_confidence_interval(*data, confidence_level=level).high

    assert np.isfinite(high(0.9))
    for wrong in (-1.0, 0.0, np.nan, np.inf):
        assert np.isnan(high(wrong)), wrong


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
