"""Errors of methods of recalibration within groups of samples with one predicted class."""

import jax
import jax.numpy as jnp
import numpy as np

from paper_repro.l21 import methods as l21_methods


def test_errors_by_predicted_class():
    rng = np.random.default_rng(0)
    n, num_bins = 200, 5
    logits, confidences = rng.normal(size=(n, 3)), rng.uniform(size=n)
    correct = (rng.uniform(size=n) < confidences**2).astype(int)
    arrays = (confidences, correct, None, logits, None)
    data = l21_methods.Data(*(x if x is None else jnp.asarray(x) for x in arrays), {})

    def errors(correct):
        groups, ece, mce = logits.argmax(1), [], []
        for group in range(3):
            chosen = groups == group
            bins = np.clip(np.ceil(confidences[chosen] * num_bins) - 1, 0, num_bins - 1)
            gaps = (confidences - correct)[chosen]
            sums = np.abs([gaps[bins == b].sum() for b in range(num_bins)])
            sizes = np.bincount(bins.astype(int), minlength=num_bins)
            ece.append(sums.sum() / chosen.sum())
            mce.append(np.max(sums[sizes > 0] / sizes[sizes > 0]))
        return np.mean(ece), np.max(mce)

    key = jax.random.key(0)
    found = l21_methods.errors_by_class(key, data.confidences, data, num_bins, 400)
    expected = errors(correct)
    np.testing.assert_allclose([found["class ECE"], found["class MCE"]], expected, rtol=1e-10)
    redrawn = rng.uniform(size=(400, n)) < confidences  # of another generator
    chance = np.array([errors(x) for x in redrawn])
    se = np.sqrt(2) * chance.std(0) / 20
    ours = np.array([found["class ECE by chance"], found["class MCE by chance"]])
    assert np.all(np.abs(ours - chance.mean(0)) < 4 * se)
