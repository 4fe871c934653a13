"""Probabilities that rounding pushed past 0 or 1, by a few units in the last place, are 0 and 1."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, hypothesis_tests, recalibration, scores

N = 40
RNG = np.random.default_rng(0)
PROBS = RNG.uniform(0.05, 0.95, N)
LABELS = (RNG.uniform(size=N) < PROBS).astype(int)
PROBS[:4], LABELS[:4] = [1, 0, 1, 0], [1, 0, 1, 0]
DTYPES = (np.float16, jnp.bfloat16, np.float32, np.float64)


def loss(probs):
    return scores.negative_log_likelihood(distributions.Bernoulli(probs), LABELS)


def pushed(dtype, number):
    """The probabilities, of which four are beyond their ends by so many roundings."""
    step = number * np.asarray(jnp.finfo(dtype).eps, np.float64)
    return (PROBS + np.where(np.arange(N) < 4, [step, -step] * (N // 2), 0)).astype(dtype)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [1, 2])
def test_they_are_ends(dtype, number, x64):
    with jax.enable_x64(x64):
        given = pushed(dtype, number)
        ends = np.clip(given.astype(np.float64), 0, 1)
        wanted = -np.log(np.where(LABELS == 1, ends, 1 - ends)).mean()
        for probs in (given, jnp.asarray(given)):
            np.testing.assert_allclose(loss(probs), wanted, rtol=1e-5)
            rows = distributions.Categorical(np.stack([1 - ends, given], 1).astype(dtype))
            score = scores.negative_log_likelihood(rows, LABELS)
            np.testing.assert_allclose(score, wanted, rtol=3e-2 if given.itemsize < 4 else 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_traced_ones_are_ends_and_others_are_not_numbers(dtype):
    compiled = jax.jit(jax.value_and_grad(loss))
    value, gradient = compiled(jnp.asarray(pushed(dtype, 2)))
    np.testing.assert_allclose(value, loss(pushed(dtype, 2)), rtol=1e-5)
    assert np.isfinite(np.asarray(gradient, np.float32)).all()
    assert np.isnan(compiled(jnp.asarray(pushed(dtype, 40)))[0])


def test_tests_recalibration_and_confidences():
    given = pushed(np.float64, 1)
    p = distributions.Bernoulli(given)
    result = hypothesis_tests.exact_test(
        jax.random.key(0), scores.negative_log_likelihood, p, LABELS, num_draws=19
    )
    assert np.isfinite(result.statistic)
    assert np.isfinite(recalibration.TemperatureScaling().fit(p, LABELS))
    fit = recalibration.IsotonicRegression().fit
    for dtype in DTYPES:
        ends = np.clip(pushed(dtype, 1).astype(np.float64), 0, 1).astype(dtype)
        found, wanted = fit(pushed(dtype, 1), LABELS), fit(ends, LABELS)
        jax.tree.map(np.testing.assert_array_equal, found, wanted)
