import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import estimators, kernels
from calibjax.distributions import Bernoulli, Categorical
from calibjax.estimators.kernel import mmce
from calibjax.lenses import OneVersusRest
from tests import oracles


def data(n=40, m=5, seed=0, dtype=np.float64):
    predictions, targets, _ = oracles.categorical_data(n, m, seed, dtype)
    return predictions, targets, np.array(predictions.probs), np.asarray(targets)


def test_top_label():
    """The first class where two are equally likely."""
    _, targets, probs, labels = data()
    probs[:3] = [0.1, 0.4, 0, 0.4, 0.1]
    confidences, correct = estimators.top_label(Categorical(probs), targets)
    assert isinstance(confidences, Bernoulli)
    np.testing.assert_array_equal(confidences.probs, probs.max(1))
    np.testing.assert_array_equal(correct, labels == probs.argmax(1))
    assert 0 < correct.sum() < len(labels)


def test_class_wise():
    predictions, targets, probs, labels = data()
    binary, is_class = estimators.class_wise(predictions, targets)
    assert binary.probs.shape == is_class.shape == (5, 40)
    binning = estimators.UniformBins(4)
    errors = jax.vmap(functools.partial(estimators.ece, binning=binning))(binary, is_class)
    for c in range(5):
        np.testing.assert_array_equal(binary.probs[c], probs[:, c])
        np.testing.assert_array_equal(is_class[c], labels == c)
        one, is_one = OneVersusRest(c)(predictions, targets)
        np.testing.assert_array_equal(one.probs, probs[:, c])
        np.testing.assert_array_equal(is_one, labels == c)
        alone = estimators.ece(
            Bernoulli(jnp.asarray(probs[:, c])), jnp.asarray(labels == c), binning=binning
        )
        np.testing.assert_allclose(errors[c], alone, atol=1e-15)


@pytest.mark.parametrize("lens", [estimators.top_label, estimators.class_wise])
def test_bernoulli_is_the_two_class_categorical(lens):
    probs = jnp.asarray(np.random.default_rng(0).uniform(size=9))
    targets = jnp.arange(9) % 2
    one, two = Bernoulli(probs), Categorical(jnp.stack([1 - probs, probs], -1))
    jax.tree.map(np.testing.assert_array_equal, lens(one, targets), lens(two, targets))


MMCE_KERNELS = {
    "laplacian": (kernels.Exponential(0.4), lambda d: np.exp(-abs(d) / 0.4)),
    "gaussian": (kernels.SquaredExponential(0.2), lambda d: np.exp(-(d**2) / (2 * 0.2**2))),
}


@pytest.mark.parametrize("name", MMCE_KERNELS)
def test_mmce_against_a_loop(name):
    kernel, oracle = MMCE_KERNELS[name]
    predictions, targets, _, _ = data()
    confidences, correct = estimators.top_label(predictions, targets)
    r = np.asarray(confidences)
    residual = np.asarray(correct) - r
    expected = np.sqrt(residual @ oracle(np.subtract.outer(r, r)) @ residual) / len(r)
    for arguments in ((confidences, correct), (r, np.asarray(correct, float))):
        np.testing.assert_allclose(mmce(kernel, *arguments), expected, rtol=1e-12)
    traced = jax.jit(mmce)(kernel, confidences, correct)
    np.testing.assert_allclose(traced, expected, rtol=1e-12)
    ours = mmce(kernel, confidences.probs.astype(jnp.float32), correct)
    assert ours.dtype == jnp.float32
    np.testing.assert_allclose(ours, expected, rtol=1e-5)


def test_gradient_of_the_mmce_of_perfect_confidences():
    """The root has an infinite slope at zero, its argument slope zero: 0 by convention, not NaN."""
    perfect = jax.grad(mmce, argnums=1)(
        kernels.Exponential(0.4), jnp.array([1.0, 0.0]), jnp.array([1, 0])
    )
    np.testing.assert_array_equal(perfect, 0)


def test_a_bernoulli_is_an_array_of_confidences():
    confidences = Bernoulli(jnp.array([0.25, 0.75]))
    assert np.asarray(confidences).tolist() == [0.25, 0.75]
    assert np.array(confidences, dtype=np.float32).dtype == np.float32
    assert jnp.max(confidences) == 0.75
    # Wrapped once more by accident, it is what it was.
    targets = jnp.array([0, 1])
    binning = estimators.UniformBins(2)
    assert estimators.ece(Bernoulli(confidences), targets, binning=binning) == 0.25
