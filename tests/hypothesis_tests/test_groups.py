import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax.distributions import Bernoulli, Categorical, MvNormal, Normal
from calibjax.hypothesis_tests import group_calibration_test

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
PROBS = np.array([0.2, 0.7, 0.55, 0.9, 0.35, 0.6, 0.15, 0.45])
LABELS = np.array([1, 1, 1, 0, 0, 1, 1, 1])
GROUPS = np.array([[1, 0], [1, 0], [1, 1], [1, 1], [0, 1], [0, 1], [0, 1], [1, 1]])


def test_pvalues_against_all_outcomes():
    """Every vector of labels with its probability: the exact p-values of both groups."""
    outcomes = np.array(list(itertools.product([0, 1], repeat=8)))
    weights = np.prod(np.where(outcomes == 1, PROBS, 1 - PROBS), 1)
    errors = np.abs((outcomes - PROBS) @ GROUPS / GROUPS.sum(0))
    observed = np.abs((LABELS - PROBS) @ GROUPS / GROUPS.sum(0))
    expected = weights @ (errors >= observed - 1e-12)
    mean, deviation = weights @ errors, np.sqrt(weights @ errors**2 - (weights @ errors) ** 2)
    largest = ((errors - mean) / deviation).max(1)
    scores = (observed - mean) / deviation
    adjusted = [weights @ (largest >= score - 1e-12) for score in scores]
    options = {"num_draws": 20_000, "residual": lambda p, y: y - p.probs}
    test = group_calibration_test(KEY, Bernoulli(PROBS), LABELS, GROUPS, **options)
    np.testing.assert_allclose(test.pvalue, expected, atol=4 * np.sqrt(0.25 / 20_000))
    # The standardisation is that of the draws.
    np.testing.assert_allclose(test.adjusted_pvalue, adjusted, atol=6 * np.sqrt(0.25 / 20_000))
    sizes = np.sqrt(weights @ errors**2)
    np.testing.assert_allclose(test.null_size, sizes, rtol=0.03)  # 4 / √(2 · 20 000) = 0.02


def test_errors_of_classes_against_loops():
    probs = RNG.dirichlet(np.ones(3), 7)
    labels, weights = RNG.integers(0, 3, 7), RNG.normal(size=(7, 4))
    test = group_calibration_test(KEY, Categorical(probs), labels, weights, num_draws=9)
    for g, of_group in enumerate(weights.T):
        rows = list(zip(of_group, labels, probs, strict=True))
        errors = [sum(w * ((y == c) - p[c]) for w, y, p in rows) for c in range(3)]
        errors.append(sum(w * ((y == p.argmax()) - p.max()) for w, y, p in rows))
        expected = np.array(errors) / np.abs(of_group).sum()
        np.testing.assert_allclose(test.estimate[g], expected, rtol=1e-9)
    np.testing.assert_array_equal(test.statistic, jnp.abs(test.estimate))


def test_errors_of_vectors():
    loc, y = RNG.normal(size=(2, 6, 2))
    groups = jnp.arange(6) < jnp.array([[3], [6]])  # the second one has all samples
    predictions = MvNormal(jnp.asarray(loc), jnp.broadcast_to(jnp.eye(2), (6, 2, 2)))
    test = group_calibration_test(KEY, predictions, jnp.asarray(y), groups.T, num_draws=9)
    np.testing.assert_allclose(test.estimate, [(y - loc)[:3].mean(0), (y - loc).mean(0)])


def test_wrong_residuals():
    predictions, targets = Normal(jnp.zeros(8), jnp.ones(8)), jnp.asarray(RNG.normal(size=8))

    def test(residual):
        options = {"residual": residual, "num_draws": 99}
        return group_calibration_test(KEY, predictions, targets, GROUPS, **options)

    with pytest.raises(ValueError, match="mean of residual: expected zero"):
        test(lambda p, y: y**2)
    test(lambda p, y: y**2 - p.scale**2)
    # None of the redraws may have such an event: that is chance.
    rare, options = Bernoulli(jnp.full(8, 1e-4)), {"residual": lambda p, y: y - p.probs}
    group_calibration_test(KEY, rare, np.zeros(8, int), GROUPS, num_draws=99, **options)
    test(lambda p, y: (y <= 3) - jax.vmap(lambda q: q.cdf(3.0))(p))  # as in the docstring
    with pytest.raises(ValueError, match=r"residual: expected shape \[8\]"):
        test(lambda p, y: jnp.mean(y))
