import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import estimators
from calibjax.binnings import interval_index
from calibjax.distributions import Bernoulli
from calibjax.recalibration import HistogramBinning

NUM_BINS = 10
METHOD = HistogramBinning(NUM_BINS)
FIT, APPLY = METHOD.fit, METHOD.apply


def interval(confidence):
    return max(int(np.ceil(NUM_BINS * confidence)), 1) - 1


def histogram_oracle(confidences, correct, new):
    """Counts, and new confidences by a loop over the samples."""
    members = [[] for _ in range(NUM_BINS)]
    for r, c in zip(confidences, correct):
        members[interval(r)].append(c)
    images = [np.mean(members[interval(r)]) if members[interval(r)] else r for r in new]
    return [len(group) for group in members], images


def test_against_a_loop():
    rng = np.random.default_rng(0)
    confidences = rng.beta(3, 1, (30, 40))
    confidences[:10] = confidences[:10].round(1)  # edges
    correct = rng.uniform(size=confidences.shape) < confidences
    new = np.concatenate([rng.uniform(size=(30, 40)), np.tile([0, 0.1, 0.3, 1], (30, 1))], 1)
    params = jax.jit(jax.vmap(FIT))(confidences, correct)
    images = jax.jit(jax.vmap(APPLY))(params, new)
    for i, data in enumerate(zip(confidences, correct, new)):
        counts, expected = histogram_oracle(*data)
        assert params.counts[i].tolist() == counts
        np.testing.assert_allclose(images[i], expected, rtol=1e-14)
    assert np.array_equal(np.isnan(params.accuracies), params.counts == 0)
    assert 0 < np.mean(params.counts == 0) < 1
    single = FIT(confidences[20].astype(np.float32), correct[20])
    assert single.accuracies.dtype == np.float32
    np.testing.assert_allclose(single.accuracies, params.accuracies[20], rtol=1e-7)


def test_intervals_are_those_of_uniform_bins():
    confidences = np.append(np.random.default_rng(1).uniform(size=50), np.linspace(0, 1, 11))
    bins = np.asarray(estimators.UniformBins(NUM_BINS)(Bernoulli(confidences)))
    _, ranks = np.unique(interval_index(confidences, NUM_BINS), return_inverse=True)
    assert np.array_equal(ranks, bins.max() - bins)


def test_confidences_without_calibration_samples_are_kept():
    params = FIT(np.array([0.85, 0.95]), np.array([1, 0]))
    new = np.array([0.82, 0.5, 0.99, 0.0])
    with pytest.warns(UserWarning, match="HistogramBinning: 2 of 4 confidences .* were kept") as w:
        images = APPLY(params, new)
    assert w[0].filename == __file__
    assert images.tolist() == [1, 0.5, 0, 0]
    assert np.array_equal(jax.jit(APPLY)(params, new), images)  # without a warning
    with warnings.catch_warnings(action="error"):
        APPLY(params, new[[0, 2]])
    gradient = jax.jit(jax.grad(lambda new: jnp.vdot(APPLY(params, new), new**0)))(new)
    assert gradient.tolist() == [0, 1, 0, 1]
