"""Power of the exact test: that of tests one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import kernels
from calibjax.distributions import Bernoulli, sample_targets
from calibjax.hypothesis_tests import exact_skce_test, power_curve

KEY = jax.random.key(0)
KERNEL = kernels.TensorProduct(kernels.Exponential(0.5), kernels.White())


def simulate(key, n, error=0.3):
    keys = jax.random.split(key)
    probs = jax.random.uniform(keys[0], (n,))
    truth = probs + error * jnp.minimum(probs, 1 - probs)
    return Bernoulli(probs), sample_targets(keys[1], Bernoulli(truth))


def test_power_is_that_of_tests_one_by_one():
    options = {"num_data_sets": 20, "num_draws": 199}
    sizes, power, error = power_curve(KEY, KERNEL, simulate, [40, 12], **options)
    assert sizes.tolist() == [40, 12]
    rejected = []
    for key in jax.random.split(jax.random.fold_in(KEY, 12), 20):
        own, redraws = jax.random.split(key)
        test = exact_skce_test(redraws, KERNEL, *simulate(own, 12), num_draws=199)
        rejected.append(test.pvalue <= 0.05 + 1e-6)
    np.testing.assert_allclose(power[1], np.mean(rejected), rtol=1e-6)
    inside = (sum(rejected) + 1) / 22
    np.testing.assert_allclose(error[1], np.sqrt(inside * (1 - inside) / 20), rtol=1e-6)


@pytest.mark.slow
def test_power_grows_and_the_level_holds():
    _, power, error = power_curve(KEY, KERNEL, simulate, [20, 80], num_data_sets=100, num_draws=199)
    assert power[1] - power[0] > 3 * error.max()
    calibrated = lambda key, n: simulate(key, n, 0.0)  # noqa: E731
    _, level, error = power_curve(KEY, KERNEL, calibrated, [20], num_draws=199)
    assert abs(level[0] - 0.05) < 4 * error[0]


def test_too_few_draws_to_reject():
    with pytest.raises(ValueError, match="^num_draws: expected more: 18 never reject"):
        power_curve(KEY, KERNEL, simulate, [9], num_draws=18)


def test_power_is_missing_if_a_pvalue_is():
    def broken(key, n):
        predictions, targets = simulate(key, n)
        return jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), predictions), targets

    _, power, _ = power_curve(KEY, KERNEL, broken, [9], num_data_sets=2, num_draws=19)
    assert np.isnan(power).all()
