"""Recalibration of class predictions, one class against the rest."""

import jax
import numpy as np
import pytest

from calibjax.distributions import Bernoulli, Categorical, CategoricalLogits, Mixture
from calibjax.recalibration import (
    BetaCalibration,
    HistogramBinning,
    IsotonicRegression,
    PlattScaling,
    VennAbers,
)
from calibjax.recalibration.base import ClassWiseParams
from calibjax.recalibration.confidences import QuadraticScaling

RNG = np.random.default_rng(0)
N, M = 150, 4
PROBS = RNG.dirichlet(np.full(M, 0.7), N)
LABELS = (PROBS.cumsum(1) < RNG.uniform(size=(N, 1))).sum(1)
NEW = RNG.dirichlet(np.full(M, 0.7), 40)
RECALIBRATORS = {
    "histogram": HistogramBinning(3),
    "isotonic": IsotonicRegression(),
    "platt": PlattScaling(),
}
ALL = RECALIBRATORS | {
    "steps": IsotonicRegression(smooth=False),
    "smooth": PlattScaling(smooth_targets=True),
    "beta": BetaCalibration(),
    "quadratic": QuadraticScaling(),
    "venn-abers": VennAbers(),
}


QUICK = "isotonic", "quadratic", "venn-abers"


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.slow] * (x not in QUICK)) for x in ALL]
)
def test_each_class_against_the_rest(name):
    method, columns, weights = ALL[name], [], np.arange(N) % 3
    for c in range(M):
        params = method.fit(PROBS[:, c], c == LABELS, weights)
        columns.append(np.asarray(method.apply(params, NEW[:, c])))
    expected = np.stack(columns, 1)
    params = method.fit(Categorical(PROBS), LABELS, weights)
    found = method.apply(params, Categorical(NEW)).probs
    np.testing.assert_allclose(found, expected / expected.sum(1, keepdims=True), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECALIBRATORS)
def test_agrees_with_one_class_against_the_rest(name):
    method = RECALIBRATORS[name]
    params = method.fit(Categorical(PROBS), LABELS)
    assert isinstance(params, ClassWiseParams)
    ours = method.apply(params, Categorical(NEW))
    each = [method.apply(method.fit(PROBS[:, c], c == LABELS), NEW[:, c]) for c in range(M)]
    expected = np.stack(each, 1)
    np.testing.assert_allclose(ours.probs, expected / expected.sum(1, keepdims=True), atol=1e-6)
    assert isinstance(ours, Categorical)

    @jax.jit
    def compiled(probs, labels, new):
        return method.apply(method.fit(Categorical(probs), labels), Categorical(new)).probs

    # float64 all the way, but other orders of sums.
    np.testing.assert_allclose(compiled(PROBS, LABELS, NEW), ours.probs, atol=1e-9)
    mapped = jax.jit(jax.vmap(compiled))(*(np.stack([x, x]) for x in (PROBS, LABELS, NEW)))
    np.testing.assert_allclose(mapped, np.stack([ours.probs] * 2), atol=1e-9)
    wrong = compiled(PROBS, np.where(np.arange(N) == 3, M, LABELS), NEW)
    assert np.all(np.isnan(wrong))


def test_other_predictions_of_classes():
    method = IsotonicRegression()
    expected = method.apply(method.fit(Categorical(PROBS), LABELS), Categorical(PROBS)).probs
    logits = CategoricalLogits(np.log(PROBS))
    mixture = Mixture(None, Categorical(np.stack([PROBS, PROBS], 1)))
    for predictions in (logits, mixture):
        ours = method.apply(method.fit(predictions, LABELS), predictions).probs
        np.testing.assert_allclose(ours, expected, atol=1e-9)
    half = PROBS[:, 0] / (PROBS[:, 0] + PROBS[:, 1])
    binary = method.fit(Bernoulli(half), LABELS % 2)
    assert method.apply(binary, Bernoulli(half)).shape == (N,)  # confidences, as ever


def test_rows_without_any_class_are_uniform():
    method = HistogramBinning(2)
    params = method.fit(
        Categorical(np.array([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05]])), np.array([0, 1])
    )
    new = Categorical(np.array([[0.4, 0.3, 0.3], [0.8, 0.1, 0.1]]))
    np.testing.assert_allclose(method.apply(params, new).probs, [[1 / 3] * 3, [1, 0, 0]])


def test_kept_probabilities_are_counted():
    method = HistogramBinning(2)
    params = method.fit(Categorical(np.full((3, 3), 1 / 3)), np.array([0, 1, 2]))
    with pytest.warns(UserWarning, match="HistogramBinning: 1 of 6 confidences") as caught:
        method.apply(params, Categorical(np.array([[0.8, 0.1, 0.1], [0.4, 0.3, 0.3]])))
    assert caught[0].filename == __file__
