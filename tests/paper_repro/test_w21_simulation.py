import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions
from paper_repro import w21_simulation


@pytest.mark.parametrize("dimension", [1, 10])
def test_models(dimension):
    """Calibrated targets are draws from the predictions; uncalibrated ones have another mean."""
    draw = lambda calibrated: w21_simulation.draw_data_set(  # noqa: E731
        jax.random.key(0), calibrated, dimension, 4000
    )
    predictions, targets = draw(True)
    scores = np.asarray((targets - predictions.loc) / predictions.scale)
    assert abs(scores.mean()) < 4 / np.sqrt(scores.size)
    assert abs(scores.std() - 1) < 4 / np.sqrt(2 * scores.size)
    assert float(predictions.scale.min()) == float(predictions.scale.max()) == 0.1
    family = distributions.Normal if dimension == 1 else distributions.DiagNormal
    assert isinstance(predictions, family)
    _, wrong = draw(False)
    first, rest = wrong.reshape(4000, -1)[:, 0], wrong.reshape(4000, -1)[:, 1:]
    assert abs(first.mean() - 0.1) < 4 * 0.1 / np.sqrt(4000)
    np.testing.assert_allclose(rest, targets.reshape(4000, -1)[:, 1:])


def test_simulations_repeat_and_differ():
    simulation = w21_simulation.Simulation("calibrated", 1, 8, 5)
    estimator = w21_simulation.ESTIMATORS[0]
    values = w21_simulation.simulate(estimator, simulation)["values"]
    assert values == w21_simulation.simulate(estimator, simulation)["values"]
    assert len(set(values)) == 5
    assert jnp.all(jnp.asarray(values) > 0)
