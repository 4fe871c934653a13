"""The law of logits: a constant that is added to all logits of a prediction changes nothing."""

import jax
import numpy as np
import pytest

from calibjax.distributions import Categorical, CategoricalLogits
from tests import registry
from tests.registry.arguments import REPLACED

SHIFTS = np.random.default_rng(0).normal(scale=9, size=(99, 1))
# Their landmarks are of the class of the predictions.
WITHOUT_LOGITS = "streaming.SKCE[Categorical]", "streaming.ExactSKCETest[Categorical]"
OF_CLASSES = {
    name: call
    for name, call in registry.calls().items()
    if ("Categorical" in name or "Scaling" in name) and name not in WITHOUT_LOGITS
}
QUICK = (
    "recalibration.MatrixScaling[fit and apply diagonal]",
    "recalibration.MatrixScaling[fit and apply]",
    "recalibration.TemperatureScaling[fit Categorical]",
    "estimators.skce[Categorical]",
    "kernels.Fisher[Categorical, target]",
    "scores.brier_score[Categorical]",
)


def _result(call, make):
    """The leaves of what a call returns if its class predictions are made by `make`."""
    count = 0

    def made(probs):
        nonlocal count
        count += 1
        return make(probs)

    REPLACED[Categorical] = made
    try:
        found = jax.tree.leaves(call.function(**call.values(np.float64)))
    finally:
        del REPLACED[Categorical]
    return found, count


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in OF_CLASSES],
)
@pytest.mark.filterwarnings("ignore")
def test_shifted_logits_are_the_same_predictions(name):
    with jax.enable_x64(True):
        plain, count = _result(OF_CLASSES[name], lambda p: CategoricalLogits(np.log(p)))
        if not count:
            pytest.skip("makes no class predictions")
        shifted, _ = _result(
            OF_CLASSES[name], lambda p: CategoricalLogits(np.log(p) + SHIFTS[: len(p)])
        )
    # Fits end where a step changes half of the digits.
    rtol, atol = (1e-4, 1e-6) if "Scaling" in name else (1e-9, 1e-12)
    for one, other in zip(plain, shifted, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)
