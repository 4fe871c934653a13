import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from scipy.special import gammaln

from calibjax.distributions import Bernoulli, Categorical
from calibjax.estimators.binned import (
    Point,
    dirichlet_kernels,
    kde_calibration_error,
    label_proportions,
)

DTYPES = [np.float32, np.float64]


def proportions_oracle(q, centres, labels, h):
    """The ratio at q from scipy's densities; at zeros where all of them vanish, its limit."""
    values = np.array([scipy.stats.dirichlet.logpdf(q, p / h + 1) for p in centres])
    if np.all(values == -np.inf):  # ε = exp(-10^7) in place of 0
        logs = np.where(q == 0, -1e7, np.log(np.where(q == 0, 1, q)))
        values = centres @ logs / h - gammaln(centres / h + 1).sum(1)
    weights = np.exp(values - values.max())
    return weights @ np.eye(len(q))[labels] / weights.sum()


def error_oracle(probs, labels, h, order):
    """CE_p^p by loops over samples and classes."""
    n, m = probs.shape
    total = 0.0
    for j in range(n):
        others = np.arange(n) != j
        ratio = proportions_oracle(probs[j], probs[others], labels[others], h)
        for c in range(m):
            total += abs(ratio[c] - probs[j, c]) ** order
    return total / n


def interior(n, m, seed=0, concentration=1.0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(m, concentration), size=n), rng.integers(0, m, size=n)


def boundary(n, m, seed=0):
    """Predictions with zeros of all kinds, each of which occurs more than once."""
    probs, labels = interior(n, m, seed)
    rng = np.random.default_rng(seed + 1)
    probs = np.where(rng.uniform(size=(n, m)) < 0.3, 0, probs)
    probs[:m] = np.eye(m)
    probs[m : m + 2] = np.eye(m)[0]
    probs[probs.sum(1) == 0] = 1
    return probs / probs.sum(1, keepdims=True), labels


def error(probs, targets, bandwidth=0.05, order=2):
    family = Bernoulli if np.ndim(probs) == 1 else Categorical
    predictions, targets = family(jnp.asarray(probs)), jnp.asarray(targets)
    return kde_calibration_error(predictions, targets, bandwidth=bandwidth, order=order)


@pytest.mark.parametrize("order", [1, 1.5, 2, 3])
@pytest.mark.parametrize("h", [2.0, 0.1, 0.01, 1e-4])
@pytest.mark.parametrize(("n", "m"), [(2, 3), (20, 2), (20, 5)])
def test_against_loops(n, m, h, order):
    for make in (interior, boundary) if n > m else (interior,):
        data = *make(n, m), h, order
        np.testing.assert_allclose(error(*data), error_oracle(*data), rtol=2e-9)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ties_at_the_boundary_up_to_rounding(dtype):
    """All orders of the other probabilities are as far from a certain prediction."""
    rest = np.array(list(itertools.permutations([0.1, 0.2, 0.3])))
    centres = np.concatenate([np.full((6, 1), 0.4), rest], 1).astype(dtype)
    kernels = dirichlet_kernels(jnp.asarray(centres), 1e-3)
    point = Point(jnp.eye(4, dtype=dtype)[:1], jnp.array([-1]))
    ours = label_proportions(kernels, jnp.array([0, 0, 1, 1, 2, 3]), point)
    np.testing.assert_allclose(ours, [[1 / 3, 1 / 3, 1 / 6, 1 / 6]], rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_finite_everywhere(dtype):
    """Values and gradients, with zeros, ones, the tiniest numbers and any bandwidth."""
    tiny = np.finfo(dtype).tiny
    probs = boundary(60, 3, seed=2)[0].astype(dtype)
    probs[20:24] = np.array([[1, tiny, 0], [0, 1, 100 * tiny], [0.5, 0.5, tiny], [1, 0, tiny / 4]])
    probs[24:44] = 1 / 3
    # Weights that move by 1/(h q) with the first: the derivative is above the largest number.
    probs[44:47] = [[1, tiny, tiny], [0.4, 0.5, 0.1], [0.4, 0.1, 0.5]]
    labels = np.random.default_rng(0).integers(0, 3, size=60)
    labels[44:47] = 0, 0, 1
    evaluate = jax.jit(jax.value_and_grad(error, argnums=(0, 2)))
    many, few = (slice(60), slice(24, 44), slice(20)), (slice(2), slice(20, 22), slice(44, 47))
    for rows in many + few if dtype == np.float32 else many:
        for h in (1e-8, 1e-5, 1e-2, 1.0, 1e3):
            for order in (1.0, 1.5, 2.0):
                value, gradients = evaluate(probs[rows], labels[rows], dtype(h), order)
                assert np.isfinite(value)
                assert 0 <= value <= 2
                chex.assert_tree_all_finite(gradients)


def test_memory_is_linear():
    n = 6000

    def value(probs, h):
        return error(probs, jnp.zeros(n, int), h)

    compiled = jax.jit(jax.grad(value, argnums=(0, 1))).lower(jnp.ones((n, 3)), 0.1).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 8 * n**2 / 4
