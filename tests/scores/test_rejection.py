import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from calibjax import scores
from calibjax.distributions import Bernoulli

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
    curves = [rejection_curve_oracle(confidences[o], correct[o]) for o in orders]
    ratios = [ratio_oracle(confidences[o], correct[o]) for o in orders]
    ours = scores.rejection_curve(Bernoulli(jnp.asarray(confidences)), correct == 1)
    np.testing.assert_allclose(ours, np.mean(curves, 0), atol=1e-14)
    ours = scores.prediction_rejection_ratio(confidences, correct)
    np.testing.assert_allclose(ours, np.mean(ratios), atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_against_a_loop_and_the_area_under_the_roc_curve(dtype):
    """Without ties in the last ten data sets the curve is that of the loop."""
    data = jnp.asarray(CONFIDENCES.astype(dtype)), jnp.asarray(CORRECT)
    both = jax.vmap(lambda *x: (scores.prediction_rejection_ratio(*x), scores.rejection_curve(*x)))
    ratios, curves = jax.jit(both)(*data)
    assert ratios.dtype == curves.dtype == dtype
    tolerance = 1e-13 if dtype == np.float64 else 1e-6
    expected = [2 * roc_auc_score(y, c) - 1 for c, y in zip(CONFIDENCES, CORRECT)]
    np.testing.assert_allclose(ratios, expected, atol=tolerance)
    expected = [ratio_oracle(*data) for data in zip(CONFIDENCES[-10:], CORRECT[-10:])]
    np.testing.assert_allclose(ratios[-10:], expected, atol=tolerance)
    expected = [rejection_curve_oracle(*data) for data in zip(CONFIDENCES[-10:], CORRECT[-10:])]
    np.testing.assert_allclose(curves[-10:], expected, atol=tolerance)
    order = np.random.default_rng(2).permutation(N)
    shuffled = scores.rejection_curve(data[0][0, order], data[1][0, order])
    np.testing.assert_allclose(shuffled, curves[0], atol=tolerance)


def test_best_worst_and_random_order():
    correct = np.arange(N) % 3 > 0
    for sign in (1, -1, 0):
        ratio = scores.prediction_rejection_ratio(0.5 + sign * (correct / 2 - 0.25), correct)
        np.testing.assert_allclose(ratio, sign, atol=1e-14)


def cost_oracle(confidences, correct, ratio):
    """Mean cost by a loop."""
    costs = []
    for c, y in zip(confidences, correct, strict=True):
        is_answered = c > 1 - 1 / ratio
        costs.append((0 if y else ratio) if is_answered else 1)
    return np.mean(costs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_decisions_against_a_loop(dtype):
    ratios = np.array([1, 1.3, 2, 4, 5.7, 30, 1e4])  # of 1, 2 and 4, thresholds 0, 0.5 and 0.75
    data = CONFIDENCES.astype(dtype), CONFIDENCES.astype(dtype) ** 2, CORRECT

    @jax.jit
    @jax.vmap
    def values(confidences, original, correct):
        gain = scores.reward_improvement(Bernoulli(confidences), original, correct, ratios)
        return scores.decision_cost(confidences, correct, ratios), gain

    costs, gains = values(*data)
    assert costs.dtype == gains.dtype == dtype
    expected, before = (
        np.array([[cost_oracle(c, y, r) for r in ratios] for c, y in zip(confidences, CORRECT)])
        for confidences in data[:2]
    )
    rtol = 1e-13 if dtype == np.float64 else 1e-6
    np.testing.assert_allclose(costs, expected, rtol=rtol)
    np.testing.assert_allclose(gains, before - expected, rtol=rtol, atol=rtol * before.max())
    one = scores.decision_cost(data[0][3], CORRECT[3], 4)
    assert one.shape == ()
    np.testing.assert_allclose(one, costs[3, 3], rtol=rtol)


def test_if_calibrated_no_other_threshold_costs_less():
    """Differences of mean costs, within four of their standard errors, of 10⁵ samples."""
    rng = np.random.default_rng(1)
    confidences = rng.beta(3, 1, 10**5)
    correct = rng.random(10**5) < confidences
    for ratio in (1.5, 4.0, 20.0):
        ours = np.where(confidences > 1 - 1 / ratio, ratio * ~correct, 1.0)
        mean = float(scores.decision_cost(confidences, correct, ratio))
        np.testing.assert_allclose(mean, ours.mean(), rtol=1e-12)
        for threshold in np.linspace(0, 1, 21):
            excess = np.where(confidences > threshold, ratio * ~correct, 1.0) - ours
            error = excess.std() / np.sqrt(excess.size)
            assert excess.mean() >= -4 * error
            # Costs differ by the mean of |ratio (1 − c) − 1| where the decisions do.
            differ = (confidences > threshold) != (confidences > 1 - 1 / ratio)
            expected = np.mean(differ * np.abs(ratio * (1 - confidences) - 1))
            assert abs(excess.mean() - expected) <= 4 * error


C, Y = jnp.array([0.2, 0.9, 0.6]), jnp.array([0, 1, 0])


def test_without_errors_or_right_predictions_the_compiled_ratio_is_nan():
    for same in (Y * 0, Y * 0 + 1):
        assert np.isnan(jax.jit(scores.prediction_rejection_ratio)(C, same))
        assert np.isfinite(jax.jit(scores.rejection_curve)(C, same)).all()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((C + 0.2, Y), ValueError, r"confidences: expected probabilities .*confidences\[1\] = 1.1"),
        ((C.at[0].set(jnp.nan), Y), ValueError, "confidences: expected probabilities"),
        ((C[:, None], Y), ValueError, r"confidences: expected shape \[n\]"),
        ((C[:0], Y[:0]), ValueError, "confidences: expected at least 1 sample"),
        ((Y, Y), TypeError, "confidences: expected floating-point values"),
        ((C, Y[:2]), ValueError, r"correct: expected shape \[n\], as the confidences"),
        ((C, Y + 1), ValueError, r"correct: expected 0 or 1, got correct\[1\] = 2"),
        ((C, Y, 0.5), ValueError, "ratio: expected finite values of at least 1, got ratio = 0.5"),
        ((C, Y, jnp.array([2, jnp.inf])), ValueError, r"got ratio\[1\] = inf"),
        ((C, Y, jnp.nan), ValueError, "ratio: expected finite values of at least 1"),
        ((C, Y, jnp.ones((2, 2))), ValueError, r"ratio: expected shape \(\) or \[r\], got \(2, 2"),
        ((C, Y, "2"), TypeError, "ratio: expected a number, got str"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    confidences, correct, *ratio = arguments
    if not ratio:
        for score in (scores.rejection_curve, scores.prediction_rejection_ratio):
            with pytest.raises(error, match=message):
                score(confidences, correct)
    with pytest.raises(error, match=message):
        scores.decision_cost(confidences, correct, *(ratio or [2]))


@pytest.mark.parametrize("correct", [Y * 0, Y * 0 + 1])
def test_the_ratio_needs_right_and_wrong_predictions(correct):
    with pytest.raises(ValueError, match=r"correct: expected right and wrong .* got [01] for all"):
        scores.prediction_rejection_ratio(C, correct)


def test_wrong_original_confidences():
    with pytest.raises(ValueError, match=r"original_confidences: expected shape \[n\], as the con"):
        scores.reward_improvement(C, C[:2], Y, 2.0)
    with pytest.raises(ValueError, match="original_confidences: expected probabilities in"):
        scores.reward_improvement(C, C * 2, Y, 2.0)
