"""Laws of logits: adding a constant changes nothing, and −∞ is probability zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import estimators, kernels, recalibration, scores
from calibjax.distributions import Categorical, CategoricalLogits
from tests import registry
from tests.registry.arguments import LABELS, REPLACED

SHIFTS = np.random.default_rng(0).normal(scale=9, size=(99, 1))
# Their landmarks are of the class of the predictions.
WITHOUT_LOGITS = "streaming.SKCE[Categorical]", "streaming.ExactSKCETest[Categorical]"
OF_CLASSES = {
    name: call
    for name, call in registry.calls().items()
    if ("Categorical" in name or "Scaling" in name) and name not in WITHOUT_LOGITS
}
QUICK = (
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


def without_one_class(probs):
    """The smallest probability of each row becomes zero, but for that of the label."""
    own = np.arange(probs.shape[-1]) == LABELS[: len(probs), None]
    smallest = np.where(own, np.inf, probs).argmin(-1)[..., None]
    probs = np.where(np.arange(probs.shape[-1]) == smallest, 0, probs)
    return probs / probs.sum(-1, keepdims=True)


def with_infinite_logits(probs):
    """The same predictions by logits."""
    probs = without_one_class(probs)
    return CategoricalLogits(np.log(probs, where=probs > 0, out=np.full(probs.shape, -np.inf)))


EQUAL = {
    "shifted": (
        lambda p: CategoricalLogits(np.log(p)),
        lambda p: CategoricalLogits(np.log(p) + SHIFTS[: len(p)]),
    ),
    "infinite": (lambda p: Categorical(without_one_class(p)), with_infinite_logits),
}


@pytest.mark.parametrize("change", EQUAL)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in OF_CLASSES],
)
@pytest.mark.filterwarnings("ignore")
def test_equal_predictions(name, change):
    if change == "infinite" and "MatrixScaling" in name:
        pytest.skip("smooths probabilities of zero, and leaves infinite logits masked")
    (plain, count), (changed, _) = (_result(OF_CLASSES[name], make) for make in EQUAL[change])
    if not count:
        pytest.skip("makes no class predictions")
    # Fits end where a step changes half of the digits.
    is_rough = change == "infinite" or "Scaling" in name
    rtol, atol = (1e-4, 1e-6) if is_rough else (1e-9, 1e-12)
    for one, other in zip(plain, changed, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


LOGITS = np.array([[0.3, -np.inf, 1.0], [0.2, 0.1, -np.inf], [-1.0, 0.5, 0.0]], np.float32)


@pytest.mark.parametrize(
    "value",
    [
        lambda logits: scores.negative_log_likelihood(CategoricalLogits(logits), [0, 1, 2]),
        lambda logits: scores.brier_score(CategoricalLogits(logits), [0, 1, 2]),
        lambda logits: scores.brier_score(
            recalibration.TemperatureScaling().apply(1.7, CategoricalLogits(logits)), [0, 1, 2]
        ),
    ],
)
def test_gradients_of_infinite_logits_are_zero(value):
    slopes = jax.grad(value)(jnp.asarray(LOGITS))
    assert np.all(np.isfinite(slopes))
    assert np.all(slopes[np.isinf(LOGITS)] == 0)


def test_known_logits_where_something_else_is_traced():
    kernel = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    value = lambda scale: scale * estimators.skce(kernel, CategoricalLogits(LOGITS), [0, 1, 2])  # noqa: E731
    np.testing.assert_allclose(jax.jit(value)(2.0), 2 * value(1.0), rtol=1e-6)


def test_matrix_scaling_leaves_classes_masked():
    random = np.random.default_rng(3)
    logits = random.normal(size=(60, 4)).astype(np.float32)
    logits[random.random((60, 4)) < 0.3] = -np.inf
    logits[:, 0] = 0
    labels = np.array([random.choice(4, p=p / p.sum()) for p in np.exp(logits.astype(float))])
    predictions, method = CategoricalLogits(logits), recalibration.MatrixScaling()
    probs = method.apply(method.fit(predictions, labels), predictions).class_probs
    np.testing.assert_array_equal(probs == 0, np.isinf(logits))


@pytest.mark.parametrize("row", [[-np.inf] * 3, [0, 0, np.inf], [0, 0, np.nan]])
def test_rows_without_a_possible_class_are_refused(row):
    logits = np.vstack([LOGITS, np.float32(row)])
    with pytest.raises(ValueError, match=r"logits\[3, 0\]|logits\[3, 2\]"):
        scores.brier_score(CategoricalLogits(logits), [0, 1, 2, 0])
    traced = jax.jit(lambda x: scores.brier_score(CategoricalLogits(x), [0, 1, 2, 0]))
    assert np.isnan(traced(logits))
