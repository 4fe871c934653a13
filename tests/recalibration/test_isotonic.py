from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import isotonic

from calibjax import scores
from calibjax.distributions import Bernoulli, Categorical, Quantiles
from calibjax.kernels import Fisher
from calibjax.recalibration import IsotonicRegression

METHOD = IsotonicRegression(smooth=False)

FIT, APPLY = METHOD.fit, METHOD.apply
NEW = np.linspace(0, 1, 101)


def fit_apply(confidences, correct):
    new = jnp.append(NEW.astype(confidences.dtype), confidences)
    return APPLY(FIT(confidences, correct), new)


def sklearn_images(confidences, correct):
    model = isotonic.IsotonicRegression(out_of_bounds="clip").fit(confidences, correct)
    return model.predict(np.append(NEW, confidences))


def cascade():
    """Blocks of increasing accuracies, all fractions of small denominators, then zeros.

    From the right they are pooled one after the other: the largest number of rounds.
    """
    fractions = sorted({Fraction(a, b) for b in range(1, 6) for a in range(1, b)})
    correct = []
    for f in fractions:
        correct += [1] * f.numerator + [0] * (f.denominator - f.numerator)
    return np.array(correct + [0] * (80 - len(correct)))


def test_against_scikit_learn():
    """With many ties, few, and none; increasing, constant and decreasing accuracies."""
    rng = np.random.default_rng(0)
    confidences = rng.uniform(size=(30, 80))
    for i in range(30):
        if i % 3:
            confidences[i] = confidences[i].round(i % 3)
    accuracies = np.stack([confidences**2, 0 * confidences + 0.6, 1 - confidences])
    correct = rng.uniform(size=(30, 80)) < accuracies[np.arange(30) // 10, np.arange(30)]
    correct[0], correct[1] = 1, 0
    confidences[2], correct[2] = np.linspace(0.2, 0.9, 80), cascade()
    expected = np.stack([sklearn_images(*data) for data in zip(confidences, correct)])
    bad_confidences, bad_correct = confidences[:2].copy(), 1 * correct[:2]
    bad_confidences[0, 7], bad_correct[1, 7] = np.nan, 2
    data = np.append(confidences, bad_confidences, 0), np.append(correct, bad_correct, 0)
    images = jax.jit(jax.vmap(fit_apply))(*data)
    assert np.all(np.isnan(images[30:, : NEW.size]))
    images = images[:30]
    np.testing.assert_allclose(images, expected, atol=1e-12)
    assert np.all(jnp.diff(images[:, : NEW.size]) >= 0)
    single = fit_apply(confidences[4].astype(np.float32), correct[4])
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected[4], atol=1e-5)


@pytest.mark.parametrize(("confidence", "correct"), [(0.3, 0), (1.0, 1)])
def test_one_sample(confidence, correct):
    assert np.all(fit_apply(np.array([confidence]), np.array([correct])) == correct)


@pytest.mark.slow
def test_gradients():
    """With respect to new confidences the slopes, zero outside; and to those of calibration."""
    confidences, correct = np.array([0.2, 0.4, 0.4, 0.5, 0.7]), np.array([0, 1, 0, 0, 1])
    new = np.array([0.1, 0.3, 0.45, 0.55, 0.8])

    @jax.jit
    def images(confidences, new):
        return APPLY(FIT(confidences, correct), new)

    slopes = jax.vmap(jax.grad(lambda r: images(confidences, r[None])[0]))(new)
    np.testing.assert_allclose(slopes, [0, (1 / 3) / 0.2, 0, (2 / 3) / 0.2, 0], atol=1e-12)
    direction = np.array([0.0, 0.0, 0.0, 1.0, 0.0])
    ours = jax.jit(jax.jacrev(images))(confidences, new) @ direction
    numeric = images(confidences + 1e-6 * direction, new) - images(
        confidences - 1e-6 * direction, new
    )
    np.testing.assert_allclose(ours, numeric / 2e-6, atol=1e-8)


def test_identity():
    method, r = IsotonicRegression(smooth=False), jnp.linspace(0.05, 0.95, 10)
    np.testing.assert_allclose(method.apply(method.identity(r), r), r, rtol=1e-6)
    classes = Categorical(jnp.stack([r, 1 - r], 1))
    same = method.apply(method.identity(classes), classes)
    np.testing.assert_allclose(same.probs, classes.probs, rtol=1e-5)
    # d/dv log(1 − r') of r' = (1 − r) v₀ + r v₁ at (0, 1)
    score = Fisher(method, "values").score(Bernoulli(jnp.array(0.3)), 0)
    np.testing.assert_allclose(score, -np.array([0.7, 0.3]) / 0.7, rtol=1e-5)


def test_subnormal_confidences_count_as_zero():
    """JAX sorts them so; naive Bayes predicts them."""
    confidences = np.array([1e-40, 0.0, 0.5, 0.9], np.float32)
    method, correct = IsotonicRegression(smooth=False), np.array([0, 1, 0, 1])
    params = method.fit(confidences, correct)
    expected = method.fit(np.array([0.0, 0.0, 0.5, 0.9], np.float32), correct)
    np.testing.assert_array_equal(method.apply(params, confidences), expected.values)
    below = jnp.array([3e-40, 1e-40, 0.0, -2e-40], jnp.float32)[None]
    forecast = Quantiles.sorted(jnp.array([0.2, 0.4, 0.6, 0.8], jnp.float32), below)
    assert 0 < scores.pinball_loss(forecast, np.ones(1, np.float32)) < 1


def test_smooth():
    """Mixed with the uniform distribution, of weights as numbers of copies."""
    rng = np.random.default_rng(1)
    r, correct, weights = rng.uniform(size=30), rng.integers(0, 2, 30), np.arange(30) % 3
    for w, n in ((None, 30), (weights, weights.sum())):
        values = METHOD.apply(METHOD.fit(r, correct, w), NEW)
        smooth = IsotonicRegression()
        found = smooth.apply(smooth.fit(r, correct, w), NEW)
        np.testing.assert_allclose(found, (n * values + 1) / (n + 2), rtol=1e-12)
        assert found.min() > 0
        assert found.max() < 1
