"""What all estimation functions have in common."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from calibjax import record, risk
from calibjax.distributions import Bernoulli, Categorical

FUNCTIONS = {  # with a hyperparameter
    "binning": (risk.Binning(16), 5.0),
    "debiased binning": (risk.Binning(16, debias=True), 5.0),
    "kernel density": (risk.KernelDensity(), 0.1),
    "temperature": (risk.Temperature(), 2.0),
    "kernel ridge": (risk.KernelRidge(), 1e-3),
    "two-step kernel ridge": (risk.KernelRidge(two_step=True, rank=12), 1e-3),
}
N = 12
RNG = np.random.default_rng(0)
CONFIDENCES = RNG.uniform(size=(2, N))
CORRECT = RNG.integers(0, 2, size=(2, N))


def learned(function, predictions, targets, hyperparameter, p):
    """Values with the training data, [n, n'], and the diagonal, [n']."""
    params = function.fit(predictions, targets, hyperparameter)
    return function.evaluate(params, predictions, p), function.diagonal(params, p)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_for_several_data_sets(name):
    function, hyperparameter = FUNCTIONS[name]
    confidences = jnp.asarray(CONFIDENCES)
    predictions, p = Bernoulli(confidences), Bernoulli(confidences[0, :5])
    compiled = jax.jit(jax.vmap(functools.partial(learned, function), in_axes=(0, 0, None, None)))
    values, diagonals = compiled(predictions, CORRECT, hyperparameter, p)
    one = Bernoulli(confidences[1])
    expected = learned(function, one, CORRECT[1], hyperparameter, p)
    np.testing.assert_allclose(values[1], expected[0], atol=1e-13)
    np.testing.assert_allclose(diagonals[1], expected[1], atol=1e-13)
    np.testing.assert_array_equal(expected[0].shape, (N, 5))
    # p are the first samples of the first data set.
    np.testing.assert_allclose(values[0, :5], values[0, :5].T, atol=1e-13)
    np.testing.assert_allclose(jnp.diagonal(values[0]), diagonals[0], atol=1e-13)


def network(params, p):
    hidden, out = params
    return jnp.tanh(p.class_probs @ hidden) @ out


@record
class Network(risk.EstimationFunction):
    """Inner products of the outputs of a network."""

    def fit(self, predictions, targets, learning_rate):
        """Lowers the risk on random pairs, with optax."""
        optimizer = optax.adam(learning_rate)

        def loss(params, key):
            pairs = jax.random.permutation(key, len(targets))[:128]
            chosen = Categorical(predictions.probs[pairs])
            values = functools.partial(self.evaluate, params)
            return risk.estimation_risk(values, chosen, targets[pairs]).value

        def step(state, key):
            params, memory = state
            updates, memory = optimizer.update(jax.grad(loss)(params, key), memory)
            return (optax.apply_updates(params, updates), memory), None

        keys = jax.random.split(jax.random.key(0), 2001)
        params = 3 * jax.random.normal(keys[0], (3, 8)), jnp.eye(8, 3) / 3
        return jax.lax.scan(step, (params, optimizer.init(params)), keys[1:])[0][0]

    def evaluate(self, params, p, q):
        return network(params, p) @ network(params, q).T


@pytest.mark.slow
def test_network_of_ones_own():
    """Its risk is near that of the truth, which is near its estimate; no calibration is worse."""
    function = Network()
    logits = jax.random.normal(jax.random.key(1), (4000, 3))
    labels = jax.random.categorical(jax.random.key(2), 3 * logits)
    residuals = jax.nn.softmax(logits) - jax.nn.softmax(3 * logits)
    part, rest = slice(2000), slice(2000, 4000)
    predictions = Categorical(jax.nn.softmax(logits))
    train, test = (Categorical(predictions.probs[x]) for x in (part, rest))

    params = function.fit(train, labels[part], 0.03)
    values = function.evaluate(params, test, test)
    diagonal = function.diagonal(params, test)
    np.testing.assert_allclose(diagonal, jnp.diagonal(values), atol=1e-12)
    true_values = residuals[rest] @ residuals[rest].T
    true_risk, ours, none = (
        risk.estimation_risk(x, test, labels[rest]).value for x in (true_values, values, 0 * values)
    )
    assert true_risk < ours < true_risk + 0.3 * (none - true_risk)
    truth = jnp.mean(jnp.diagonal(true_values))
    np.testing.assert_allclose(jnp.mean(diagonal), truth, rtol=0.2)

    grid = jnp.array([1e-4, 0.03])
    result = risk.squared_calibration_error(
        jax.random.key(3), function, grid, predictions, labels, num_folds=2
    )
    assert result.hyperparameter == 0.03
    np.testing.assert_allclose(result.estimate, truth, rtol=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("sharpness", [1.0, 2.0])
def test_tuned_estimates_are_biased(sharpness):
    """With 10 classes and 500 samples, as the page of G24 says: means of five data sets."""
    truths, estimates = [], {"kernel density": [], "two-step kernel ridge": []}
    for seed in range(5):
        keys = jax.random.split(jax.random.key(seed))
        probs = jax.random.dirichlet(keys[0], jnp.ones(10), (500,))
        labels = jax.random.categorical(keys[1], jnp.log(probs))
        predicted = probs**sharpness / jnp.sum(probs**sharpness, 1, keepdims=True)
        truths.append(float(jnp.mean(jnp.sum((predicted - probs) ** 2, 1))))
        for function in (risk.KernelDensity(), risk.KernelRidge(two_step=True)):
            result = risk.squared_calibration_error(
                jax.random.key(1), function, function.grid(320), Categorical(predicted), labels
            )
            is_kde = isinstance(function, risk.KernelDensity)
            name = "kernel density" if is_kde else "two-step kernel ridge"
            estimates[name].append(float(result.estimate))
    truth = np.mean(truths)
    density, ridge = map(np.mean, estimates.values())
    if sharpness == 1:
        assert 0 < ridge < 0.01 < 0.03 < density < 0.05
    else:
        assert ridge < 0.5 * truth < 2 * truth < density


def test_grids_are_those_of_the_appendix():
    """G24 App. B."""
    np.testing.assert_array_equal(risk.Binning().grid(2), [5 * i for i in range(1, 21)])
    bandwidths = [10 ** (-5 * (i - 1) / 14 - (1 - (i - 1) / 14)) for i in range(1, 16)]
    bandwidths += [0.2 * i for i in range(1, 6)]
    np.testing.assert_allclose(risk.KernelDensity().grid(2), np.sort(bandwidths), rtol=1e-12)
    n = 6400
    for grid, canonical, powers in (
        (risk.KernelRidge().grid, False, [-2 * i + 1 for i in range(1, 10)]),
        (risk.KernelRidge(two_step=True).grid, False, [-i for i in range(1, 10)]),
        (risk.KernelRidge().grid, True, [-i + 9 for i in range(1, 19)]),
        (risk.KernelRidge(two_step=True).grid, True, [-0.5 * i + 4.5 for i in range(1, 19)]),
    ):
        expected = [n**0.5 * 10.0**power for power in powers]
        np.testing.assert_allclose(grid(n, canonical=canonical), expected, rtol=1e-12)
        assert jnp.all(grid(n, canonical=canonical).astype(jnp.float32) > 0)
