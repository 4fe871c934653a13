"""Linear maps of classes in single precision, beside a minimum that SciPy finds in double."""

import jax
import numpy as np
from scipy import optimize, special

from calibjax import recalibration, scores
from calibjax.distributions import CategoricalLogits


def test_rounding_does_not_move_along_shifts_of_all_classes():
    """Shifts of all biases change no prediction and have no curvature."""
    rng = np.random.default_rng(2)
    n, m = 2000, 10
    logits = special.log_softmax(3 * rng.normal(size=(n, m)), 1)
    labels = (logits / 2 + rng.gumbel(size=(n, m))).argmax(1)

    def loss(params):
        slopes, biases = params.reshape(2, m)
        mapped = slopes * logits + biases
        return np.mean(special.logsumexp(mapped, 1) - mapped[np.arange(n), labels])

    expected = optimize.minimize(loss, np.repeat([0.5, 0.0], m), method="BFGS").fun
    with jax.enable_x64(False):
        predictions = CategoricalLogits(logits.astype(np.float32))
        method = recalibration.MatrixScaling(None, structure="diagonal")
        params = method.fit(predictions, labels)
        found = scores.negative_log_likelihood(method.apply(params, predictions), labels)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
