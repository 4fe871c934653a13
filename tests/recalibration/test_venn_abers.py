import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from sklearn.isotonic import IsotonicRegression

from calibjax.recalibration import VennAbers

METHOD = VennAbers()
RNG = np.random.default_rng(0)
N = 40
WEIGHTS = np.arange(N) % 3
FIT, INTERVAL = jax.jit(METHOD.fit), jax.jit(METHOD.interval)


def two_regressions(r, correct, weights, new):
    """Values at each new confidence of isotonic regressions with it, wrong and correct."""
    r, correct, weights = (x[weights > 0] for x in (r, correct, weights))

    def value(one, label):
        data = np.r_[r, one], np.r_[correct, label], np.r_[weights, 1]
        return IsotonicRegression().fit(*data).predict([one])[0]

    return np.array([[value(one, label) for one in new] for label in (0, 1)])


@pytest.mark.parametrize("digits", [1, 16])
def test_against_two_regressions(digits):
    """With ties and without, at calibration confidences, between and beyond them."""
    numbers = RNG.uniform(size=N) < 0.8  # integers
    for accuracy in (lambda r: r**2, lambda r: 0.6 + 0 * r, lambda r: 1 - r):
        r = RNG.uniform(0.1, 0.9, N).round(digits)
        correct = (RNG.uniform(size=N) < accuracy(r)).astype(int)
        new = np.r_[0, 1, r[:4], RNG.uniform(size=4).round(digits)]
        for weights in (np.ones(N), 1.0 * WEIGHTS, 1.0 * numbers, RNG.uniform(0.1, 3, N)):
            found = INTERVAL(FIT(r, correct, weights), new)
            expected = two_regressions(r, correct, weights, new)
            np.testing.assert_allclose(found, expected, atol=1e-6)
        params = METHOD.fit(r, correct)
        low, high = METHOD.interval(params, new)
        values = METHOD.apply(params, new)
        np.testing.assert_allclose(values, high / (1 - low + high), atol=1e-6)
        assert ((values > 0) & (values < 1)).all()


def test_many_weighted_samples_in_single_precision():
    n = 50_000
    r, weights = RNG.uniform(size=n).astype(np.float32), RNG.uniform(0, 2, n).astype(np.float32)
    correct = RNG.uniform(size=n) < r
    single = METHOD.fit(r, correct, weights)
    double = METHOD.fit(r.astype(float), correct, weights.astype(float))
    np.testing.assert_allclose(single.low, double.low, atol=1e-6)
    np.testing.assert_allclose(single.high, double.high, atol=1e-6)


def test_derivatives_by_weights():
    r = RNG.uniform(size=N)
    correct, new = (RNG.uniform(size=N) < r).astype(int), np.array([0.2, 0.5, 0.9])
    total = jax.jit(lambda weights: jnp.sum(METHOD.apply(METHOD.fit(r, correct, weights), new)))
    check_grads(total, (jnp.asarray(RNG.uniform(1, 2, N)),), 1, modes=["rev"], rtol=1e-4)
