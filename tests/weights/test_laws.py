"""What holds of everything that takes weights of samples, for the registered calls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import registry
from tests.registry.outcomes import numbers_of

# Without scikit-learn, kernels, and linear maps that tell the classes of few rows apart.
LEFT_OUT = "interoperability", "kernels", "recalibration.MatrixScaling"
CALLS = {
    call.covers[0]: call
    for call in reversed(registry.calls().values())
    if "weights" in call.takes - call.arguments.keys() and not call.name.startswith(LEFT_OUT)
}
# Where a sample of weight 2 is two samples; elsewhere n is the effective number of samples.
COPIES = {
    *("estimators.EqualMassBins", "estimators.ece", "estimators.kernel.mmce", "estimators.mlce"),
    *("estimators.skce_biased", "estimators.ucme", "estimators.witness"),
    *("recalibration.BetaCalibration", "recalibration.GroupWise", "recalibration.PlattScaling"),
    *("recalibration.LocalRecalibration", "recalibration.TemperatureScaling"),
    "recalibration.confidences.QuadraticScaling",
    *("scores.accuracy", "scores.brier_decomposition", "scores.brier_score", "scores.crps"),
    *("scores.crps_decomposition", "scores.mean_squared_error", "scores.negative_log_likelihood"),
    *("scores.interval_score", "scores.pinball_loss", "scores.ranked_probability_score"),
    *("scores.murphy_curve", "scores.decomposition.prediction_rejection_ratio"),
}
# Where a weight is a number of samples in the first place, of which few say less than many.
COUNTED = {"KernelRecalibration", "PlattScaling", "QuantileShift", "VennAbers", "CalibrationBins"}
COUNTED |= {"IsotonicRegression", "QuadraticScaling"}
# Loops that end when nothing changes, which have no derivatives.
LOOPS = "recalibration.BetaCalibration", "recalibration.confidences.QuadraticScaling"
# Bands of equal weights come from other draws, or end at possible frequencies without weights.
BANDS = {"estimators.coverage_curve", "estimators.reliability_curve"}
POINTS = {"estimators.isotonic_curve"}  # at rows, which may have no weight
QUICK = {"estimators.skce", "estimators.ece", "scores.crps", "scores.accuracy"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.slow] * (x not in QUICK)) for x in sorted(CALLS)]
)
def test_laws(name):
    call, is_counted = CALLS[name], name.split(".")[-1] in COUNTED
    values = call.values(np.float64)
    n = max(len(x) for x in values.values() if isinstance(x, np.ndarray) and x.ndim)
    # Redraws are those of the rows before them if samples without weight are the last ones.
    w = np.r_[np.resize([2, 1, 3, 1, 1, 2, 1], n - 2), 0, 0]

    def found(weights, chosen=slice(None)):
        return numbers_of(call.function(**_rows(values, n, chosen), weights=weights))

    plain, weighted = found(None), found(w)
    with pytest.raises(AssertionError):
        _check(weighted, plain)  # a call that cannot tell weights from none tests nothing
    if name not in BANDS:
        _check(found(np.ones(n)), plain)
    if not is_counted:
        _check(found(1e-9 * w), weighted)
    _check(found(w > 0), found(1.0 * (w > 0)))
    if name not in POINTS:
        _check(found(w[:-2], slice(n - 2)), weighted)
    if name in COPIES:
        _check(found(None, np.repeat(np.arange(n), w)), weighted)
    if call.compiled:
        traced = jax.jit(lambda w: call.function(**values, weights=w))
        _check(numbers_of(traced(1.0 * w)), weighted)
    if call.compiled and name in COPIES and name not in LOOPS:

        def total(w):
            floats = [x for x in jax.tree.leaves(traced(w)) if x.dtype.kind == "f"]
            return sum(map(jnp.sum, floats), jnp.zeros(()))

        assert np.isfinite(jax.grad(total)(1.0 * w)).all()  # where weights are zero, too


def _rows(values, n, chosen):
    """Some rows of data."""

    def of(leaf):
        is_data = isinstance(leaf, np.ndarray) and leaf.ndim and len(leaf) == n
        return leaf[chosen] if is_data else leaf

    return {name: of(value) for name, value in values.items()}


def _check(found, expected):
    """All numbers agree, in the rows (and columns, one a row) that both have."""
    for x, y in zip(found, expected, strict=True):
        both = tuple(slice(min(sizes)) for sizes in zip(x.shape, y.shape, strict=True))
        np.testing.assert_allclose(x[both], y[both], rtol=1e-7, atol=1e-7)
