"""Sums by label, for so many classes that a redraw changes few entries of the residuals."""

import jax
import numpy as np
import pytest

from calibjax import distances, distributions, kernels
from calibjax.hypothesis_tests.redraws import as_means, number_with_pairs
from calibjax.operators.plan import has_many_labels, plan_of
from tests import oracles

N, M, B = 64, 80, 3
RNG = np.random.default_rng(0)
PROBS = RNG.dirichlet(np.full(M, 0.1), N)
PREDICTIONS = distributions.Categorical(PROBS)
LABELS = np.array([[RNG.choice(M, p=p) for p in PROBS] for _ in range(B)])
NEAR = kernels.Nystrom(
    kernels.Exponential(0.5, distances.TotalVariation()), jax.tree.map(lambda p: p[:5], PREDICTIONS)
)


@pytest.mark.parametrize("weights", [None, RNG.uniform(0, 2, N)], ids=["equal", "weights"])
@pytest.mark.parametrize("target", [kernels.PearsonResidual(0.02), kernels.White()])
def test_against_all_pairs(target, weights):
    products = [kernels.TensorProduct(k, target) for k in (NEAR, kernels.Constant())]
    used = None if weights is None else jax.numpy.asarray(weights)
    plan = plan_of([(None, k) for k in products], PREDICTIONS, LABELS[0])
    assert has_many_labels(target, PREDICTIONS)
    n = float(number_with_pairs(PREDICTIONS, used))
    found = np.array(as_means(n, *plan.sums(PREDICTIONS, LABELS, used)))
    w = np.ones(N) if weights is None else weights * n / weights.sum()
    for b, labels in enumerate(LABELS):
        for k, kernel in enumerate(products):
            h = np.asarray(oracles.calibration_kernel_matrix(kernel, PREDICTIONS, labels))
            h = h * w[:, None] * w
            diagonal = np.trace(h)
            expected = (h.sum() - diagonal) / (n * (n - 1)), diagonal / n
            np.testing.assert_allclose(found[:, b, k], expected, rtol=1e-10)
