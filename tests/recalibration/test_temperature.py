import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special

from calibjax import estimators, scores
from calibjax.distributions import Bernoulli, Categorical, CategoricalLogits, Ensemble, Normal
from calibjax.recalibration import TemperatureScaling
from tests import oracles

METHOD = TemperatureScaling()
FIT, APPLY = METHOD.fit, METHOD.apply


@pytest.mark.parametrize("temperature", [20105.0, 22000.0, 4.6e-5])
def test_temperatures_near_the_ends_of_the_range(temperature):
    """That of normals with scale 1 is the mean square of the residuals."""
    targets = np.sqrt(temperature) * np.array([-1.2, 0.4, 1.0, np.sqrt(1.4)])
    predictions = Normal(np.zeros(4), np.ones(4))
    np.testing.assert_allclose(FIT(predictions, targets), temperature, rtol=1e-4)


def test_logits_where_probabilities_underflow():
    """Against SciPy's minimum, and with the order of the classes kept."""
    rng = np.random.default_rng(6)
    logits = (60 * rng.normal(size=(500, 100))).astype(np.float32)
    labels = (rng.gumbel(size=logits.shape) + logits / 40).argmax(1)
    predictions = CategoricalLogits(logits)
    assert np.mean(predictions.class_probs[np.arange(500), labels] == 0) > 0.1

    def loss(log_temperature):
        log_probs = special.log_softmax(logits.astype(np.float64) / np.exp(log_temperature), 1)
        return -log_probs[np.arange(500), labels].mean()

    expected = np.exp(optimize.minimize_scalar(loss, bracket=(3, 4), tol=1e-12).x)
    temperature = FIT(predictions, labels)
    assert temperature.dtype == np.float32
    np.testing.assert_allclose(temperature, expected, rtol=1e-5)
    scaled = APPLY(temperature, predictions)
    value = scores.negative_log_likelihood(scaled, labels)
    np.testing.assert_allclose(value, loss(np.log(expected)), rtol=1e-5)
    assert np.array_equal(jnp.argmax(scaled.class_probs, 1), logits.argmax(1))
    assert np.array_equal(jnp.argsort(scaled.logits, 1), jnp.argsort(logits, 1))


def test_gradient_of_the_temperature():
    """Of normal predictions it is the mean squared standardised error."""
    rng = np.random.default_rng(2)
    p, y = Normal(rng.normal(size=8), rng.uniform(1, 2, 8)), rng.normal(size=8)

    def explicit(p, y):
        return jnp.mean(((y - p.loc) / p.scale) ** 2)

    derivatives = jax.jit(jax.value_and_grad(FIT, (0, 1)))(p, y)
    expected = jax.value_and_grad(explicit, (0, 1))(p, y)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), derivatives, expected)


@pytest.mark.slow
def test_draws_fitted_by_their_crps():
    """Members that spread half as far as the targets, about the same centers."""
    rng = np.random.default_rng(5)
    center, members = rng.normal(size=(1000, 1)), rng.normal(size=(1000, 20))
    predictions, targets = Ensemble(center + 0.5 * members), center[:, 0] + rng.normal(size=1000)
    method = TemperatureScaling(scores.crps)
    temperature = method.fit(predictions, targets)
    assert 3.4 < temperature < 4.8
    loss = jax.jit(jax.vmap(lambda t: scores.crps(method.apply(t, predictions), targets)))
    best, *others = loss(temperature * jnp.array([1, 0.9, 1.1]))
    assert best < min(others)


def skce_data(rng, temperature, n=1000):
    """Predictions at a temperature of 1, and targets at another one."""
    loc, scale = rng.uniform(-1, 1, n), rng.uniform(0.5, 1.5, n)
    return Normal(loc, scale), loc + scale * np.sqrt(temperature) * rng.normal(size=n)


SKCE = TemperatureScaling(functools.partial(estimators.skce, oracles.normal_kernel()))
SKCE_ERROR = 0.065  # standard deviation of log T, of 300 data sets


@pytest.mark.slow
def test_fitted_by_the_skce():
    ratio = SKCE.fit(*skce_data(np.random.default_rng(3), 4.0)) / 4
    assert abs(np.log(ratio)) < 3 * SKCE_ERROR


BINARY = Bernoulli(np.array([0.3, 0.6, 0.8]))
SEPARATED, INVERTED = np.array([0, 1, 1]), np.array([1, 0, 0])


@pytest.mark.parametrize(
    ("probs", "targets", "message"),
    [
        (BINARY.probs, SEPARATED, r"smallest value at T = 4.5e-05; .* separate the classes"),
        (BINARY.probs, INVERTED, r"smallest value at T = 2.2e\+04; the likelihood"),
        (
            [0.3, 1, 0.8],
            INVERTED,
            "finite values at some temperature, .* pass logits in distributions.CategoricalLogits",
        ),
    ],
)
def test_losses_without_a_minimum(probs, targets, message):
    with pytest.raises(ValueError, match=message):
        FIT(Bernoulli(np.asarray(probs)), targets)


def test_without_a_minimum_the_compiled_temperature_is_nan():
    targets = np.array([SEPARATED, INVERTED, [0, 0, 1]])
    predictions = oracles.as_dtype(BINARY, np.float32)
    temperatures = jax.jit(jax.vmap(FIT, (None, 0)))(predictions, targets)
    assert np.isnan(temperatures).tolist() == [True, True, False]


def test_a_loss_that_does_not_depend_on_the_temperature():
    """Certain and equally probable classes are the same at every temperature."""
    predictions = Categorical(np.array([[1, 0, 0], [1 / 3, 1 / 3, 1 / 3], [0, 0.5, 0.5]]))
    assert FIT(predictions, np.array([0, 1, 2])) == 1


LOSSES = (
    lambda u: jnp.sqrt(1 + 100 * u**2),
    lambda u: jnp.where(u > -0.1, u**2, jnp.inf),
    lambda u: jnp.where(u > -0.1, u**2, jnp.nan),
    lambda u: jnp.expm1(30 * u) - 30 * u,  # steep on one side
    lambda u: jnp.expm1(100 * u) - 100 * u,  # overflows there
    lambda u: -jnp.cos(2 * u) + 0.01 * u**2,  # six minima
    lambda u: u**2 * jnp.exp(-(u**2) / 2),  # smaller, or equal, at both ends
)
SHIFTS = (1.234, -3.3, -3.4, 0.21, -3.1, 0.0, 2.6)


def shifted_loss(predictions, targets):
    """A function of log T, with the minimum at the shift."""
    which, shift = targets[0].astype(int), targets[1]
    return jax.lax.switch(which, LOSSES, 2 * jnp.log(predictions.scale[0]) - shift)


@pytest.mark.parametrize(("which", "shift"), [*enumerate(SHIFTS)])
def test_minimum_of_a_loss(which, shift):
    fit = TemperatureScaling(shifted_loss).fit
    temperature = fit(Normal(np.zeros(2), np.ones(2)), np.array([which, shift]))
    np.testing.assert_allclose(np.log(temperature), shift, atol=1e-9)
