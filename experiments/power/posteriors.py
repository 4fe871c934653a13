"""A posterior that is the prior: calibrated, and wrong given the data that it ignores."""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax import hypothesis_tests as tests
from calibjax.distances import Features, Wasserstein
from calibjax.distributions import Normal, with_features
from calibjax.kernels import Exponential, SquaredExponential, TensorProduct
from experiments.power.simulation import DRAWS, PIT, Study

TRUE, PRIOR = "true posterior", "posterior = prior"
FEATURES = "exact_skce_test, kernel on the features"


def pvalues(
    data_key: jax.Array, test_key: jax.Array, place: Any, n: int, _: Any
) -> dict[str, jax.Array]:
    """θ standard normal, x = θ + noise; the posterior given x is N(x / 2, 1 / 2)."""
    keys = jax.random.split(data_key)
    theta = jax.random.normal(keys[0], (n,))
    x = theta + jax.random.normal(keys[1], (n,))
    is_prior = jnp.asarray(place) == 1
    loc = jnp.where(is_prior, 0, x / 2)
    posterior = Normal(loc, jnp.full(n, jnp.where(is_prior, 1, jnp.sqrt(0.5))))
    data = with_features(posterior, x), theta

    def pvalue(key: jax.Array, prediction_kernel: Any) -> jax.Array:
        kernel = TensorProduct(prediction_kernel, SquaredExponential(1.0))
        return tests.exact_skce_test(key, kernel, *data, num_draws=DRAWS).pvalue

    keys = jax.random.split(test_key)
    return {
        PIT: jax.vmap(lambda p, y: p.cdf(y))(posterior, theta),
        "exact_skce_test, kernel on the predictions": pvalue(
            keys[0], Exponential(1.0, Wasserstein())
        ),
        FEATURES: pvalue(keys[1], SquaredExponential(1.0, Features())),
    }


POSTERIORS = Study("posteriors", (TRUE, PRIOR), {200: 1.0}, pvalues, calibrated=(TRUE, PRIOR))
