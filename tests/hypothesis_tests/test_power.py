"""Power of the exact test: that of tests one by one, and what is refused."""

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
    sizes, power, error = power_curve(
        KEY, KERNEL, simulate, [40, 12], num_data_sets=20, num_draws=199
    )
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
    _, level, error = power_curve(
        KEY, KERNEL, lambda key, n: simulate(key, n, 0.0), [20], num_draws=199
    )
    assert abs(level[0] - 0.05) < 4 * error[0]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"simulate": 1}, TypeError, "^simulate: expected a function"),
        ({"simulate": lambda key: key}, TypeError, "^simulate: "),
        ({"sizes": 9}, TypeError, "^sizes: expected a sequence of integers"),
        ({"sizes": []}, TypeError, "^sizes: expected a sequence of integers"),
        ({"sizes": [1]}, ValueError, r"^sizes\[0\]: expected an integer"),
        ({"num_draws": 18}, ValueError, "^num_draws: expected more: 18 never reject"),
        ({"statistic": "skce"}, ValueError, "^statistic: "),
    ],
)
def test_refused_by_name(change, error, message):
    arguments = {"kernel": KERNEL, "simulate": simulate, "sizes": [9], "num_draws": 19, **change}
    with pytest.raises(error, match=message):
        power_curve(KEY, **arguments)


def test_power_is_missing_if_a_pvalue_is():
    def broken(key, n):
        predictions, targets = simulate(key, n)
        return jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), predictions), targets

    _, power, _ = power_curve(KEY, KERNEL, broken, [9], num_data_sets=2, num_draws=19)
    assert np.isnan(power).all()
