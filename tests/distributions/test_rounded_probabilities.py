"""Rounded probabilities: past 0 or 1 by a few units in the last place, or with other sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, scores

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


CLASSES = np.random.default_rng(0).dirichlet(np.ones(20), 50)
OF_CLASSES = np.arange(50) % 20


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("module", [np, jnp])
def test_probabilities_of_classes(dtype, module):
    probs = module.asarray(CLASSES, dtype)
    wide = np.asarray(probs, np.float64)
    wide /= wide.sum(1, keepdims=True)
    expected = -np.log(wide[np.arange(50), OF_CLASSES]).mean()
    loss = scores.negative_log_likelihood
    found = [loss(distributions.Categorical(probs), OF_CLASSES)]
    found.append(jax.jit(lambda p: loss(distributions.Categorical(p), OF_CLASSES))(probs))
    found.append(
        loss(distributions.with_features(distributions.Categorical(probs), CLASSES), OF_CLASSES)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found[0].dtype == jnp.float32


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_sums_that_rounding_does_not_explain(dtype):
    probs = jnp.asarray(CLASSES, dtype).at[3].multiply(0.9)
    with pytest.raises(ValueError, match=r"sum\(-1\)\[3\] = 0\.(89|90)"):
        scores.negative_log_likelihood(distributions.Categorical(probs), OF_CLASSES)
    loss = jax.jit(
        lambda p: scores.negative_log_likelihood(distributions.Categorical(p), OF_CLASSES)
    )
    assert jnp.isnan(loss(probs))


def test_weights_of_mixtures():
    weights = jnp.asarray(CLASSES, jnp.bfloat16)
    mixture = distributions.Mixture(
        weights, distributions.Normal(jnp.zeros((50, 20)), jnp.ones((50, 20)))
    )
    found = scores.negative_log_likelihood(mixture, np.zeros(50))
    np.testing.assert_allclose(found, 0.5 * np.log(2 * np.pi), rtol=1e-5)
