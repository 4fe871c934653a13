"""Smooth ECE against relplot, and against its definition by quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, estimators, hypothesis_tests

GENERATOR = np.random.default_rng(0)


def data(n):
    probs = GENERATOR.uniform(size=n)
    chances = np.clip(probs + 0.2 * np.sin(6 * probs), 0, 1)
    return distributions.Bernoulli(probs), (GENERATOR.uniform(size=n) < chances).astype(int)


@pytest.mark.parametrize("n", [60, 5000])
def test_numbers_of_relplot(n):
    """Which adds 1e-4 to its densities of size n."""
    relplot = pytest.importorskip("relplot")
    predictions, labels = data(n)
    probs, truths = np.asarray(predictions.probs), labels.astype(float)
    for bandwidth in (0.004, 0.05, 0.3):
        found = estimators.smooth_ece(predictions, labels, bandwidth=bandwidth)
        np.testing.assert_allclose(found, relplot.smECE_sigma(probs, truths, bandwidth), atol=1e-6)
    found = estimators.smooth_ece(predictions, labels)
    np.testing.assert_allclose(found, relplot.smECE(probs, truths), atol=1e-6)


# relplot 1.0.3 on NumPy 2.4: smECE, and smECE_sigma with sigma = 0.05, of the data below.
PUBLISHED = {"fixed point": 0.139421797517, "sigma = 0.05": 0.159292674544}


def test_numbers_that_relplot_gave():
    probs = (np.arange(100) * 37 % 100 + 0.5) / 100
    labels = (np.arange(100) * 61 % 100 < 100 * probs**2).astype(int)
    predictions = distributions.Bernoulli(probs)
    found = estimators.smooth_ece(predictions, labels)
    np.testing.assert_allclose(found, PUBLISHED["fixed point"], atol=1e-6)
    found = estimators.smooth_ece(predictions, labels, bandwidth=0.05)
    np.testing.assert_allclose(found, PUBLISHED["sigma = 0.05"], atol=1e-6)


@pytest.mark.parametrize("bandwidth", [0.03, 0.1])
def test_definition_by_quadrature(bandwidth):
    predictions, labels = data(80)
    probs = np.asarray(predictions.probs, float)
    t = np.linspace(0, 1, 20001)[:, None]
    images = [2 * k + sign * probs for k in (-1, 0, 1) for sign in (-1, 1)]
    kernel = sum(np.exp(-0.5 * ((t - x) / bandwidth) ** 2) for x in images)
    kernel /= np.sqrt(2 * np.pi) * bandwidth
    expected = np.trapezoid(np.abs(kernel @ (probs - labels)) / 80, t[:, 0])
    found = estimators.smooth_ece(predictions, labels, bandwidth=bandwidth)
    np.testing.assert_allclose(found, expected, rtol=0.01)  # 200 points


def test_fixed_point():
    predictions, labels = data(500)
    found = float(estimators.smooth_ece(predictions, labels))
    below, above = (
        float(estimators.smooth_ece(predictions, labels, bandwidth=found + d)) - found - d
        for d in (-2e-3, 2e-3)
    )
    assert above < 0 < below
    assert 0.05 < found < 0.2


def test_weights_are_copies():
    predictions, labels = data(30)
    counts = GENERATOR.integers(0, 4, 30)
    copies = distributions.Bernoulli(np.repeat(predictions.probs, counts))
    expected = estimators.smooth_ece(copies, np.repeat(labels, counts))
    for weights in (counts, 7.5 * counts):
        found = estimators.smooth_ece(predictions, labels, weights=weights)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_jit_gradients_and_precision():
    predictions, labels = data(40)

    def value(probs):
        return estimators.smooth_ece(distributions.Bernoulli(probs), labels, bandwidth=0.1)

    probs = jnp.asarray(predictions.probs)
    np.testing.assert_allclose(jax.jit(value)(probs), value(probs), rtol=1e-5)
    slope = jax.grad(value)(probs)
    step = 1e-5
    higher, lower = (value(probs.at[3].add(d)) for d in (step, -step))
    np.testing.assert_allclose(slope[3], (higher - lower) / (2 * step), rtol=1e-3)
    single = value(probs.astype(jnp.float32))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, value(probs), atol=2e-6)
    test = hypothesis_tests.exact_test(
        jax.random.key(0),
        lambda p, y: estimators.smooth_ece(p, y, bandwidth=0.1),
        predictions,
        labels,
        num_draws=19,
    )
    assert test.pvalue <= 0.2


def test_refused_by_name():
    predictions, labels = data(5)
    for bandwidth, error in ((0.0, ValueError), (2.0, ValueError), ("a", TypeError)):
        with pytest.raises(error, match="^bandwidth: "):
            estimators.smooth_ece(predictions, labels, bandwidth=bandwidth)
    with pytest.raises(TypeError, match="^bandwidth: expected a number, since"):
        jax.jit(estimators.smooth_ece)(predictions, labels)
    with pytest.raises(ValueError, match="^targets"):
        estimators.smooth_ece(predictions, labels + 2)
