import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from calibjax import distances, distributions, estimators
from calibjax.estimators import UniformBins
from calibjax.streaming import CalibrationBins
from tests.streaming.batches import merged, states_of

RNG = np.random.default_rng(4)
N = 60
PROBS, LABELS = RNG.dirichlet(np.ones(3), N), RNG.integers(0, 3, N)
PROBS[:4] = [[0.1, 0.2, 0.7], [1, 0, 0], [0.3, 0.3, 0.4], [0, 0.5, 0.5]]  # edges of bins
CLASSES = distributions.Categorical(PROBS)
BINNING = UniformBins(10)
PARTS = np.arange(1), np.arange(1, 40), np.arange(40, N)


def result_of(accumulator, predictions, targets):
    return accumulator.result(
        merged(accumulator, states_of(accumulator, predictions, targets, PARTS))
    )


def test_top_label():
    data = estimators.top_label(CLASSES, LABELS)
    found = result_of(CalibrationBins(BINNING), *data)
    assert_allclose(found.ece, estimators.ece(*data, binning=BINNING), rtol=1e-12)
    assert_allclose(found.mce, estimators.mce(*data, binning=BINNING), rtol=1e-12)
    curve = estimators.reliability_curve(jax.random.key(0), *data, binning=BINNING, num_draws=19)
    used, theirs = found.counts > 0, curve.counts > 0
    np.testing.assert_array_equal(found.counts[used], curve.counts[theirs])
    assert_allclose(found.means[used, 1], curve.confidence[theirs], rtol=1e-12)
    assert_allclose(found.proportions[used, 1], curve.frequency[theirs], rtol=1e-12)
    np.testing.assert_array_equal(found.means[~used], 0.5)


@pytest.mark.parametrize("num_bins", [1, 4])
def test_all_classes(num_bins):
    binning, distance = UniformBins(num_bins), distances.Euclidean()
    found = result_of(CalibrationBins(binning, 3, distance), CLASSES, LABELS)
    for name in ("ece", "mce"):
        function = getattr(estimators, name)
        options = {"binning": binning, "distance": distance, "notion": "canonical"}
        expected = function(CLASSES, LABELS, **options)
        assert_allclose(getattr(found, name), expected, rtol=1e-12)
    assert found.counts.shape == (num_bins**3,)
    assert found.counts.sum() == N


def test_float32():
    with jax.enable_x64(False):
        probs = PROBS.astype(np.float32)
        data = distributions.Categorical(probs), LABELS
        found = result_of(CalibrationBins(BINNING, 3), *data)
        expected = estimators.ece(*data, binning=BINNING, notion="canonical")
    assert found.ece.dtype == np.float32
    assert_allclose(found.ece, expected, rtol=1e-5)


def test_other_numbers_of_classes():
    binary, three = CalibrationBins(BINNING), CalibrationBins(BINNING, 3)
    with pytest.raises(ValueError, match=r"predictions: expected num_classes = None, got 3"):
        binary.update(binary.init(), CLASSES, LABELS)
    with pytest.raises(ValueError, match=r"state: expected a state of this accumulator"):
        three.update(binary.init(), CLASSES, LABELS)
