"""The risk against a double loop from the paper, its standard error against leaving samples out."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from calibjax import record, risk
from calibjax.distributions import Bernoulli, Categorical, CategoricalLogits
from calibjax.operators import tiles
from calibjax.risk.estimation import losses_of_factors
from tests import oracles

RNG = np.random.default_rng(0)
N, M = 23, 4
PROBS = RNG.dirichlet(np.ones(M), N)
LABELS = RNG.integers(0, M, N)
RESIDUALS = PROBS - np.eye(M)[LABELS]
VALUES = RNG.normal(size=(N, N))
VALUES = VALUES + VALUES.T
CONFIDENCES = RNG.uniform(size=N)
CORRECT = RNG.integers(0, 2, N)


DIFFERENCES = CONFIDENCES - CORRECT
DATA = {
    "classes": (Categorical, PROBS, LABELS, RESIDUALS),
    "logits": (CategoricalLogits, np.log(PROBS) + 3, LABELS, RESIDUALS),
    "confidences": (jnp.asarray, CONFIDENCES, CORRECT, DIFFERENCES[:, None]),
    "bernoulli": (Bernoulli, CONFIDENCES, CORRECT, np.outer(DIFFERENCES, [-1, 1])),
}


@pytest.mark.parametrize("kind", DATA)
def test_risk_is_the_double_loop(kind):
    family, parameters, targets, residuals = DATA[kind]
    predictions = family(jnp.array(parameters))
    found = risk.estimation_risk(jnp.array(VALUES), predictions, jnp.array(targets))
    assert found.value == pytest.approx(oracles.estimation_risk(VALUES, residuals), rel=1e-12)


def test_gradient():
    data = Categorical(jnp.array(PROBS)), jnp.array(LABELS)

    def value(scale):
        values = lambda p, q: scale * p.probs @ q.probs.T  # noqa: E731
        return risk.estimation_risk(values, *data).value

    check_grads(jax.jit(value), (0.3,), 1, modes=["rev"], rtol=1e-6)


def test_standard_error_is_the_jackknife():
    data = Categorical(jnp.array(PROBS)), jnp.array(LABELS)
    error = risk.estimation_risk(jnp.array(VALUES), *data).standard_error
    rest = [np.delete(np.arange(N), i) for i in range(N)]
    without = [oracles.estimation_risk(VALUES[np.ix_(i, i)], RESIDUALS[i]) for i in rest]
    expected = np.sqrt((N - 1) / N * np.sum((without - np.mean(without)) ** 2))
    assert error == pytest.approx(expected, rel=1e-11)
    two = risk.estimation_risk(jnp.zeros((2, 2)), jnp.array([0.5, 0.2]), jnp.array([1, 1]))
    assert np.isnan(two.standard_error)


@pytest.mark.parametrize("n", [30, tiles.TILE_SIZE + 5])
def test_factors_are_matrices(n):
    """Small n goes through tiles, large n through the quadratic form."""
    residuals, left, right = (RNG.normal(size=(n, k)) for k in (M, 5, 5))
    losses = np.square(residuals @ residuals.T - left @ right.T)
    expected = (losses.sum(1) - np.diag(losses)) / (n - 1)
    np.testing.assert_allclose(losses_of_factors(residuals, left, right), expected, rtol=1e-12)


@record
class Flat(risk.EstimationFunction):
    def evaluate(self, params, p, q):
        return p * q


def test_values_of_functions_have_the_right_shape():
    data = jnp.array(CONFIDENCES), jnp.array(CORRECT)
    message = re.escape("values: expected shape [n, n']")
    for function in (lambda p, q: p * q, lambda p, q: jnp.outer(q, p), lambda p, q: 0.0):
        with pytest.raises(ValueError, match=message):
            risk.estimation_risk(function, *data)
    with pytest.raises(ValueError, match=re.escape("function.evaluate: expected shape [n, n']")):
        Flat().diagonal(1.0, data[0])
