"""Image classifiers: what is read, and scores of all classes."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from calibjax.distributions import Bernoulli
from calibjax.recalibration import TemperatureScaling
from paper_repro.data import classifiers as l21_classifiers
from paper_repro.l21 import methods as l21_methods
from paper_repro.l21 import networks as l21_networks


def test_all_classes():
    """Probabilities and scores of all classes after the confidence was replaced."""
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(20, 4)), rng.integers(0, 4, 20)
    part = l21_classifiers.part_of_logits(logits, 3 + logits, labels)
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(part.confidences, probs.max(1))
    np.testing.assert_array_equal(part.correct, probs.argmax(1) == labels)
    np.testing.assert_allclose(l21_networks.class_probs(part.confidences, part), probs)
    new = rng.random(20)
    changed = l21_networks.class_probs(new, part)
    expected = np.empty_like(probs)
    for i, c in enumerate(probs.argmax(1)):
        expected[i] = probs[i] * (1 - new[i]) / (1 - probs[i, c])
        expected[i, c] = new[i]
    np.testing.assert_allclose(changed, expected)
    found = l21_networks.class_scores(changed, labels)
    nll = np.mean([-np.log(p[y]) for p, y in zip(expected, labels)])
    brier = np.mean([np.sum((p - np.eye(4)[y]) ** 2) for p, y in zip(expected, labels)])
    np.testing.assert_allclose([found["class NLL"], found["class Brier"]], [nll, brier])
    binary = l21_methods.Data(None, part.correct, None, None, None, {})
    scaled = functools.partial(l21_methods._scaled_confidences, jnp.array(2.0))
    roots = np.sqrt(probs) / np.sqrt(probs).sum(1, keepdims=True)
    data = binary._replace(logits=jnp.asarray(logits), confidences=jnp.asarray(part.confidences))
    np.testing.assert_allclose(scaled(data), roots.max(1))


def test_published_networks(data_dir):
    found = l21_classifiers.read_cifar10(data_dir, "resnet18")
    assert found.calibration.features.shape == found.evaluation.features.shape == (5000, 10)
    correct = found.calibration.correct.sum() + found.evaluation.correct.sum()
    assert correct == 9171
    found = l21_classifiers.read_logits(data_dir, "cifar100_resnet50")
    assert found.calibration.logits.shape == (5000, 100)
    assert found.evaluation.logits.shape == (10000, 100)
    np.testing.assert_allclose(found.evaluation.correct.mean(), 0.7661)
    np.testing.assert_allclose(found.evaluation.confidences.mean(), 0.82744, atol=1e-5)


@pytest.mark.slow
def test_temperatures_of_confidences():
    """A certain and wrong confidence is clipped; a group without members has no temperature."""
    rng = np.random.default_rng(0)
    confidences = rng.uniform(0.5, 0.95, 400)
    correct = (rng.random(400) < confidences).astype(int)
    confidences[np.flatnonzero(correct == 0)[0]] = 1
    arrays = jnp.asarray(confidences), jnp.asarray(correct)
    data = l21_methods.Data(*arrays, jnp.arange(400) // 200 * 2, None, None, {})
    found = np.asarray(l21_methods._group_temperatures(data, 3))
    assert np.isnan(found).tolist() == [False, True, False]
    odds = scipy.special.logit(np.minimum(confidences, 1 - np.finfo(float).eps))
    clipped, fit = Bernoulli(scipy.special.expit(odds)), TemperatureScaling().fit
    both = [fit(clipped[rows], correct[rows]) for rows in (slice(200), slice(200, 400))]
    np.testing.assert_allclose(found[[0, 2]], both, rtol=1e-5)
    scaled = l21_methods._scaled_confidences(found[0], data)
    np.testing.assert_allclose(scaled, scipy.special.expit(odds / found[0]))
