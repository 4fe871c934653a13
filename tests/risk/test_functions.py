"""What all estimation functions have in common."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import risk
from calibjax.distributions import Categorical


@pytest.mark.slow
@pytest.mark.parametrize("sharpness", [1.0, 2.0])
def test_tuned_estimates_are_biased(sharpness):
    """With 10 classes and 500 samples, as the page of G24 says: means of five data sets."""
    truths, estimates = [], {"kernel density": [], "two-step kernel ridge": []}
    for seed in range(5):
        keys = jax.random.split(jax.random.key(seed))
        probs = jax.random.dirichlet(keys[0], jnp.ones(10), (500,))
        labels = jax.random.categorical(keys[1], jnp.log(probs))
        predicted = probs**sharpness / jnp.sum(probs**sharpness, 1, keepdims=True)
        truths.append(float(jnp.mean(jnp.sum((predicted - probs) ** 2, 1))))
        for function in (risk.KernelDensity(), risk.KernelRidge(two_step=True)):
            result = risk.squared_calibration_error(
                jax.random.key(1), function, function.grid(320), Categorical(predicted), labels
            )
            is_kde = isinstance(function, risk.KernelDensity)
            name = "kernel density" if is_kde else "two-step kernel ridge"
            estimates[name].append(float(result.estimate))
    truth = np.mean(truths)
    density, ridge = map(np.mean, estimates.values())
    if sharpness == 1:
        assert 0 < ridge < 0.01 < 0.03 < density < 0.05
    else:
        assert ridge < 0.5 * truth < 2 * truth < density


def test_grids_are_those_of_the_appendix():
    """G24 App. B."""
    np.testing.assert_array_equal(risk.Binning().grid(2), [5 * i for i in range(1, 21)])
    bandwidths = [10 ** (-5 * (i - 1) / 14 - (1 - (i - 1) / 14)) for i in range(1, 16)]
    bandwidths += [0.2 * i for i in range(1, 6)]
    np.testing.assert_allclose(risk.KernelDensity().grid(2), np.sort(bandwidths), rtol=1e-12)
    n = 6400
    for grid, canonical, powers in (
        (risk.KernelRidge().grid, False, [-2 * i + 1 for i in range(1, 10)]),
        (risk.KernelRidge(two_step=True).grid, False, [-i for i in range(1, 10)]),
        (risk.KernelRidge().grid, True, [-i + 9 for i in range(1, 19)]),
        (risk.KernelRidge(two_step=True).grid, True, [-0.5 * i + 4.5 for i in range(1, 19)]),
    ):
        expected = [n**0.5 * 10.0**power for power in powers]
        np.testing.assert_allclose(grid(n, canonical=canonical), expected, rtol=1e-12)
        assert jnp.all(grid(n, canonical=canonical).astype(jnp.float32) > 0)
