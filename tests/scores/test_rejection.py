import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from calibjax.distributions import Bernoulli
from calibjax.scores.decomposition import prediction_rejection_ratio

RNG = np.random.default_rng(0)
N = 60
# Twenty data sets with ties, ten without.
CONFIDENCES = np.concatenate([np.round(RNG.random((20, N)), 1), RNG.random((10, N))])
CORRECT = RNG.random((30, N)) < CONFIDENCES**2


def rejection_curve_oracle(confidences, correct):
    """One sample after the other is rejected, by a stable sort; rejected ones count as right."""
    n = len(confidences)
    order = sorted(range(n), key=lambda i: confidences[i])
    return np.array([sum(not correct[i] for i in order[k:]) / n for k in range(n + 1)])


def ratio_oracle(confidences, correct):
    """Areas by the trapezoidal rule."""

    def area(curve):
        return sum((a + b) / 2 for a, b in itertools.pairwise(curve)) / len(confidences)

    n, errors = len(confidences), sum(not c for c in correct)
    random = np.linspace(errors / n, 0, n + 1)
    best = np.maximum(errors - np.arange(n + 1), 0) / n
    curve = rejection_curve_oracle(confidences, correct)
    return (area(random) - area(curve)) / (area(random) - area(best))


def test_of_ties_the_mean_over_all_orders():
    confidences = np.array([0.7, 0.2, 0.5, 0.5, 0.2, 0.5, 0.5])
    correct = np.array([1, 0, 1, 0, 1, 1, 0])
    orders = [np.array(order) for order in itertools.permutations(range(7))]
    ratios = [ratio_oracle(confidences[o], correct[o]) for o in orders]
    ours = prediction_rejection_ratio(Bernoulli(jnp.asarray(confidences)), correct == 1)
    np.testing.assert_allclose(ours, np.mean(ratios), atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_against_a_loop_and_the_area_under_the_roc_curve(dtype):
    data = jnp.asarray(CONFIDENCES.astype(dtype)), jnp.asarray(CORRECT)
    ratios = jax.jit(jax.vmap(prediction_rejection_ratio))(*data)
    assert ratios.dtype == dtype
    tolerance = 1e-13 if dtype == np.float64 else 1e-6
    expected = [2 * roc_auc_score(y, c) - 1 for c, y in zip(CONFIDENCES, CORRECT)]
    np.testing.assert_allclose(ratios, expected, atol=tolerance)
    expected = [ratio_oracle(*data) for data in zip(CONFIDENCES[-10:], CORRECT[-10:])]
    np.testing.assert_allclose(ratios[-10:], expected, atol=tolerance)
    order = np.random.default_rng(2).permutation(N)
    shuffled = prediction_rejection_ratio(data[0][0, order], data[1][0, order])
    np.testing.assert_allclose(shuffled, ratios[0], atol=tolerance)


def test_best_worst_and_random_order():
    correct = np.arange(N) % 3 > 0
    for sign in (1, -1, 0):
        ratio = prediction_rejection_ratio(0.5 + sign * (correct / 2 - 0.25), correct)
        np.testing.assert_allclose(ratio, sign, atol=1e-14)


@pytest.mark.parametrize("same", [0, 1])
def test_without_errors_or_right_predictions_there_is_no_ratio(same):
    assert np.isnan(prediction_rejection_ratio(CONFIDENCES[0], np.full(N, same)))
