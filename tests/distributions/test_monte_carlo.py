import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distributions

KEY = jax.random.key(0)


def test_draws_are_independent_and_follow_the_distribution():
    predictions = distributions.Normal(jnp.array([0.0, 5.0, 5.0]), jnp.array([1.0, 0.5, 0.5]))
    drawn = distributions.monte_carlo(KEY, predictions, 5000)
    values = np.asarray(drawn.draws.values)
    assert values.shape == (3, 5000)
    np.testing.assert_allclose(values.mean(1), predictions.loc, atol=0.06)
    np.testing.assert_allclose(values.std(1), predictions.scale, atol=0.04)
    correlation = np.corrcoef(np.hstack([values[:, :-1].T, values[:, 1:].T]).T)
    assert np.abs(correlation - np.eye(6)).max() < 0.06
    again = distributions.monte_carlo(KEY, drawn, 5000)  # of what has draws already
    np.testing.assert_array_equal(again.draws.values, values)
    assert isinstance(again.distribution, distributions.Normal)
