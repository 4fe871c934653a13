"""What all estimation functions have in common."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import risk
from calibjax.distributions import Bernoulli, Categorical

FUNCTIONS = {  # with a hyperparameter, and one that is refused
    "binning": (risk.binning_function(16), 5.0, 2.5),
    "kernel density": (risk.kernel_density_function(), 0.1, 0.0),
    "temperature": (risk.temperature_function(), 2.0, -1.0),
}
N = 12
RNG = np.random.default_rng(0)
CONFIDENCES = RNG.uniform(size=(2, N))
CORRECT = RNG.integers(0, 2, size=(2, N))
every_function = pytest.mark.parametrize("name", FUNCTIONS)


def learned(function, predictions, targets, hyperparameter, p):
    """Values with the training data, [n, n'], and the diagonal, [n']."""
    params = function.fit(predictions, targets, hyperparameter)
    return function.evaluate(params, predictions, p), function.diagonal(params, p)


@every_function
def test_compiled_for_several_data_sets(name):
    function, hyperparameter, _ = FUNCTIONS[name]
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


@every_function
def test_wrong_values_are_no_numbers_when_compiled(name):
    function, hyperparameter, refused = FUNCTIONS[name]
    predictions, targets, p = map(jnp.asarray, (CONFIDENCES[0], CORRECT[0], CONFIDENCES[1, :5]))
    diagonal = jax.jit(lambda *args: learned(function, *args)[1])
    assert np.isfinite(diagonal(predictions, targets, hyperparameter, p)).all()
    for wrong in (refused, np.nan, np.inf):
        assert np.isnan(diagonal(predictions, targets, wrong, p)).all()
    if name != "temperature":  # which does not look at them
        assert np.isnan(diagonal(predictions, targets.at[3].set(2), hyperparameter, p)).all()
        assert np.isnan(diagonal(predictions.at[3].set(-1), targets, hyperparameter, p)).all()
    values = diagonal(predictions, targets, hyperparameter, p.at[2].set(1.5))
    np.testing.assert_array_equal(np.isnan(values), np.arange(5) == 2)


@every_function
def test_wrong_input(name):
    function, hyperparameter, refused = FUNCTIONS[name]
    predictions, targets = jnp.asarray(CONFIDENCES[0]), jnp.asarray(CORRECT[0])
    params = function.fit(predictions, targets, hyperparameter)
    p = predictions[:3]
    cases = [
        (ValueError, "hyperparameter: expected", (predictions, targets, refused)),
        (ValueError, "hyperparameter: expected", (predictions, targets, np.nan)),
        (ValueError, "hyperparameter: expected shape", (predictions, targets, jnp.ones(2))),
        (TypeError, "hyperparameter: expected a number", (predictions, targets, None)),
        (ValueError, r"targets\[0\] = 2", (predictions, targets.at[0].set(2), hyperparameter)),
        (ValueError, r"predictions: .* in \[0, 1\]", (predictions + 1, targets, hyperparameter)),
        (ValueError, "targets: expected", (Bernoulli(predictions), targets + 1, hyperparameter)),
        (ValueError, "targets: expected shape", (predictions, targets[1:], hyperparameter)),
    ]
    for kind, message, args in cases:
        with pytest.raises(kind, match=message):
            function.fit(*args)
    for points, kind, message in (
        (Bernoulli(p), ValueError, "p: expected confidences, as those of fit, got .* of 2 classes"),
        (Categorical(jnp.ones((3, 4)) / 4), ValueError, "p: expected confidences, .* 4 classes"),
        (p + 1, ValueError, r"p: expected probabilities in \[0, 1\]"),
        ([0.5], TypeError, r"p\[0\]: expected an array"),
    ):
        with pytest.raises(kind, match=message):
            function.diagonal(params, points)
        with pytest.raises(kind, match=message):
            function.evaluate(params, p, points)
    with pytest.raises(TypeError, match="params: expected .* as fit returns it, got tuple"):
        function.diagonal((1.0,), p)
    if function.refit is not None:
        with pytest.raises(ValueError, match="hyperparameter: expected positive"):
            function.refit(params, refused)
        with pytest.raises(TypeError, match="params: expected .* as fit returns it, got float"):
            function.refit(1.0, hyperparameter)
