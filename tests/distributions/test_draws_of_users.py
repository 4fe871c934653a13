"""What a user's own family draws is looked at before its statistics are believed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import hypothesis_tests, record
from calibjax.distributions import Distribution, constraints, parameter

KEY = jax.random.key(0)
Y = np.linspace(0.1, 2.0, 30)


@record
class Flat(Distribution):
    """Draws are [1] where a scalar is meant."""

    scale: jax.Array = parameter(constraints.positive)

    def sample(self, key):
        return self.scale * jax.random.normal(key, (1,))


@record
class Leaving(Distribution):
    """Some draws are outside of the support."""

    support = constraints.nonnegative
    scale: jax.Array = parameter(constraints.positive)

    def sample(self, key):
        return self.scale * (jax.random.exponential(key) - 0.3)


@pytest.mark.parametrize("test", [hypothesis_tests.exact_test, hypothesis_tests.consistency_test])
def test_shapes_of_draws(test):
    with pytest.raises(ValueError, match=r"predictions.sample: .* \(30,\) .* got \(30, 1\)"):
        test(KEY, lambda p, y: jnp.mean(y**2), Flat(jnp.ones(30)), Y, num_draws=9)


def test_missing_statistics_are_said():
    with pytest.warns(
        UserWarning, match="of the statistics under the null are nan, .*sample_targets"
    ):
        hypothesis_tests.exact_test(
            KEY, lambda p, y: jnp.mean(jnp.log(y)), Leaving(jnp.ones(30)), Y, num_draws=9
        )
