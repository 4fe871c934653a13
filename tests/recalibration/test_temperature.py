import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special, stats

from calibjax import estimators, scores
from calibjax.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    CategoricalLogits,
    DiagNormal,
    Dirichlet,
    Ensemble,
    Laplace,
    Mixture,
    MvNormal,
    Normal,
)
from calibjax.recalibration import TemperatureScaling
from calibjax.recalibration.base import tempered
from tests import oracles

N = 10_000
TEMPERATURES = np.array([0.25, 1.0, 4.0])
METHOD = TemperatureScaling()
FIT, APPLY = METHOD.fit, METHOD.apply


def uniform(rng):
    """Stratified draws: one in each of N intervals, so that N of them are almost no noise."""
    return (rng.permutation(N) + rng.uniform(size=N)) / N


def standard_normal(rng, d):
    return special.ndtri(np.stack([uniform(rng) for _ in range(d)], 1))


def label(probs, rng):
    """Labels drawn from class probabilities by inversion."""
    return np.sum(probs.cumsum(1) < uniform(rng)[:, None], 1)


def powers(probs, temperature):
    """p^{1/T}, normalised."""
    q = probs ** (1 / temperature)
    return q / q.sum(1, keepdims=True)


# Calibrated predictions and their targets, to be seen through predictions of another temperature.


def normal(rng):
    loc, scale = rng.normal(size=N), rng.uniform(0.2, 2, N)
    return Normal(loc, scale), loc + scale * standard_normal(rng, 1)[:, 0]


def diagonal_normal(rng):
    loc, scale = rng.normal(size=(N, 3)), rng.uniform(0.2, 2, (N, 3))
    return DiagNormal(loc, scale), loc + scale * standard_normal(rng, 3)


def multivariate_normal(rng):
    loc, root = rng.normal(size=(N, 2)), rng.normal(size=(N, 2, 2)) + 2 * np.eye(2)
    targets = loc + np.einsum("nij,nj->ni", root, standard_normal(rng, 2))
    return MvNormal(loc, root @ root.transpose(0, 2, 1)), targets


def laplace(rng):
    loc, scale = rng.normal(size=N), rng.uniform(0.2, 2, N)
    return Laplace(loc, scale), stats.laplace(loc, scale).ppf(uniform(rng))


def categorical(rng):
    probs = rng.dirichlet(np.ones(5), N)
    return Categorical(probs), label(probs, rng)


def bernoulli(rng):
    probs = np.where(rng.permutation(N) % 2, 0.08, 0.92)
    return Bernoulli(probs), label(np.stack([1 - probs, probs], 1), rng)


def beta(rng):
    alpha, beta = rng.uniform(1, 9, (2, N))
    return Beta(alpha, beta), special.betaincinv(alpha, beta, uniform(rng))


def dirichlet(rng):
    concentration = rng.uniform(1, 9, (N, 3))
    gamma = rng.gamma(concentration)
    return Dirichlet(concentration), gamma / gamma.sum(1, keepdims=True)


def mixture(rng):
    loc, scale = rng.normal(size=(N, 2)), rng.uniform(1, 2, (N, 2))
    weights = rng.dirichlet([2, 2], N)
    of = np.arange(N), label(weights, rng)
    return Mixture(weights, Normal(loc, scale)), loc[of] + scale[of] * standard_normal(rng, 1)[:, 0]


def at_temperature(p, t):
    """Parameters of p^{1/t}, in NumPy."""
    if isinstance(p, Bernoulli):
        return Bernoulli(powers(np.stack([1 - p.probs, p.probs], 1), t)[:, 1])
    if isinstance(p, Mixture):
        return Mixture(p.weights, at_temperature(p.components, t))
    new = {
        Normal: lambda: {"scale": p.scale * np.sqrt(t)},
        DiagNormal: lambda: {"scale": p.scale * np.sqrt(t)},
        MvNormal: lambda: {"cov": p.cov * t},
        Laplace: lambda: {"scale": p.scale * t},
        Beta: lambda: {"alpha": p.alpha / t, "beta": p.beta / t},
        Dirichlet: lambda: {"concentration": p.concentration / t},
        Categorical: lambda: {"probs": powers(p.probs, t)},
    }
    return dataclasses.replace(p, **new[type(p)]())


# All have rules of their own, tested in test_powers.py, but one fit.
QUICK = (normal, mixture)
SLOW = (diagonal_normal, multivariate_normal, laplace, categorical, bernoulli, beta, dirichlet)
FAMILIES = (*QUICK, *(pytest.param(family, marks=pytest.mark.slow) for family in SLOW))


@pytest.mark.parametrize("family", FAMILIES)
def test_temperatures_are_recovered(family):
    """Within 2 %, and within 3 standard errors from the Fisher information at the estimate.

    10 000 independent draws would have standard errors of 0.8 to 1.5 %; these are stratified.
    """
    rng = np.random.default_rng(0)
    data = []
    for t in TEMPERATURES:
        predictions, targets = family(rng)
        data.append((at_temperature(predictions, 1 / t), targets))
    data = jax.tree.map(lambda *leaves: np.stack(leaves), *data)

    def log_likelihood(log_temperature, p, y):
        return tempered(p, jnp.exp(log_temperature)).log_prob(y)

    @jax.jit
    @jax.vmap
    def fit(predictions, targets):
        temperature = FIT(predictions, targets)
        rates = jax.vmap(jax.grad(log_likelihood), (None, 0, 0))
        slopes = rates(jnp.log(temperature), predictions, targets)
        return temperature, 1 / jnp.sqrt(jnp.sum(slopes**2))

    fitted, errors = map(np.asarray, fit(*data))
    ratio = fitted / TEMPERATURES
    assert np.all(np.abs(ratio - 1)[[0, 2]] <= 0.02)
    assert np.all(np.abs(np.log(ratio)) <= 3 * errors)


def class_data(dtype=np.float64, n=2000):
    """Logits four times too large, and labels."""
    rng = np.random.default_rng(1)
    logits = 4 * rng.normal(size=(n, 4))
    labels = (rng.gumbel(size=(n, 4)) + logits / 4).argmax(1)
    return logits, Categorical(special.softmax(logits, 1).astype(dtype)), labels


@pytest.mark.parametrize("temperature", [20105.0, 22000.0, 4.6e-5])
def test_temperatures_near_the_ends_of_the_range(temperature):
    """That of normals with scale 1 is the mean square of the residuals."""
    targets = np.sqrt(temperature) * np.array([-1.2, 0.4, 1.0, np.sqrt(1.4)])
    predictions = Normal(np.zeros(4), np.ones(4))
    np.testing.assert_allclose(FIT(predictions, targets), temperature, rtol=1e-4)


def test_classes_against_scipy():
    logits, predictions, labels = class_data()

    def loss(log_temperature):
        return -special.log_softmax(logits.astype(np.float64) / np.exp(log_temperature), 1)[
            np.arange(len(labels)), labels
        ].mean()

    expected = np.exp(optimize.minimize_scalar(loss, bracket=(1, 2), tol=1e-12).x)
    temperature = FIT(predictions, labels)
    np.testing.assert_allclose(temperature, expected, rtol=1e-6)
    single = FIT(*class_data(np.float32)[1:])
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=1e-5)
    scaled = APPLY(single, class_data(np.float32)[1])
    assert scaled.probs.dtype == np.float32
    expected = special.softmax(logits / expected, 1)
    np.testing.assert_allclose(scaled.probs, expected, rtol=2e-4, atol=1e-7)


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
SKCE_ERROR = 0.065  # standard deviation of log T, from the slow test


@pytest.mark.slow
def test_fitted_by_the_skce():
    ratio = SKCE.fit(*skce_data(np.random.default_rng(3), 4.0)) / 4
    assert abs(np.log(ratio)) < 3 * SKCE_ERROR


@pytest.mark.slow
def test_dispersion_of_the_temperature_fitted_by_the_skce():
    """Log T is without bias, its standard deviation the stated one."""
    rng = np.random.default_rng(4)
    for temperature in TEMPERATURES:
        ratios = [SKCE.fit(*skce_data(rng, temperature)) / temperature for _ in range(100)]
        logs = np.log(ratios)
        assert abs(logs.mean()) < 3 * SKCE_ERROR / 10
        assert 0.75 * SKCE_ERROR < logs.std() < 1.25 * SKCE_ERROR


BINARY = Bernoulli(np.array([0.3, 0.6, 0.8]))
SEPARATED, INVERTED = np.array([0, 1, 1]), np.array([1, 0, 0])


@pytest.mark.parametrize(
    ("probs", "targets", "message"),
    [
        (BINARY.probs, SEPARATED, r"smallest value at T = 4.5e-05, .* predictions separate them"),
        (BINARY.probs, INVERTED, r"smallest value at T = 2.2e\+04, at an end of the range"),
        ([0.3, 1, 0.8], INVERTED, "expected finite values at some temperature, got inf"),
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
    with pytest.raises(ValueError, match="params: expected positive finite values"):
        APPLY(temperatures[0], predictions)


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


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (None, "loss: expected a loss function, got NoneType"),
        (Normal, "loss: expected a loss function, got the class Normal"),
        (lambda p, y: p.scale, r"loss: .* returns a real scalar, got float64\[2\]"),
        (lambda p, y: 1, r"loss: .* returns a real scalar, got int64\[\]"),
        (scores.brier_score, "predictions: expected class predictions"),
    ],
)
def test_wrong_losses(loss, message):
    with pytest.raises(TypeError, match=message):
        TemperatureScaling(loss).fit(Normal(np.zeros(2), np.ones(2)), np.zeros(2))
