import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from calibjax.distributions import Bernoulli, Categorical, CategoricalLogits
from calibjax.risk import Temperature


@jax.jit
def values(points, temperatures):
    """Values at points for all temperatures, [k, n, n]."""
    function = Temperature()
    n = jax.tree.leaves(points)[0].shape[0]
    params = function.fit(points, jnp.zeros(n, int), 1.0)

    def at(temperature):
        return function.evaluate(function.refit(params, temperature), points, points)

    return jax.lax.map(at, temperatures)


def test_against_the_formula_of_the_paper():
    """Of G24 §5.1: T = 0.3/θ."""
    probs = np.random.default_rng(0).dirichlet(np.full(5, 0.3), size=12)
    thetas = np.array([0.1, 0.3, 1.0, 1.7])
    ours = values(Categorical(jnp.asarray(probs)), jnp.asarray(0.3 / thetas))
    for theta, value in zip(thetas, ours, strict=True):
        errors = probs - scipy.special.softmax(10 / 3 * theta * np.log(probs), axis=1)
        np.testing.assert_allclose(value, errors @ errors.T, atol=1e-14)


def test_logits_that_underflow():
    logits = (np.random.default_rng(1).normal(size=(9, 4)) * 100).astype(np.float32)
    temperatures = np.array([0.5, 3.0, 300.0], np.float32)
    ours = values(CategoricalLogits(jnp.asarray(logits)), jnp.asarray(temperatures))
    assert ours.dtype == jnp.float32
    logits = logits.astype(np.float64)
    for temperature, value in zip(temperatures.astype(np.float64), ours, strict=True):
        errors = scipy.special.softmax(logits, 1) - scipy.special.softmax(logits / temperature, 1)
        np.testing.assert_allclose(value, errors @ errors.T, atol=2e-6)


def test_confidences_are_half():
    confidences = jnp.append(jnp.linspace(0, 1, 12), 1e-300)
    temperatures = jnp.array([0.4, 1.0, 5.0])
    ours = values(confidences, temperatures)
    np.testing.assert_allclose(ours, values(Bernoulli(confidences), temperatures) / 2, atol=1e-15)
    np.testing.assert_array_equal(ours[1] < 1e-30, True)


def test_gradient_in_the_temperature():
    """Also with zeros, ones, and numbers that underflow."""
    probs = jnp.array([[0.2, 0.3, 0.5], [0.9, 0.1, 0.0], [1.0, 0.0, 0.0], [1.0, 1e-300, 0.0]])
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)))

    def total(temperature):
        return jnp.sum(weights * values(Categorical(probs), temperature[None])[0])

    for temperature in (0.3, 2.0, 500.0):
        step = 1e-6 * temperature
        above, below = (total(jnp.array(temperature + d)) for d in (step, -step))
        slope = jax.grad(total)(jnp.array(temperature))
        np.testing.assert_allclose(slope, (above - below) / (2 * step), rtol=1e-6, atol=1e-10)
