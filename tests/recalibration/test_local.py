"""Recalibration near features, and by groups."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import kernels
from calibjax.distributions import CategoricalLogits, Normal
from calibjax.estimators import EqualMassBins, Neighbourhood, UniformBins
from calibjax.recalibration import (
    GroupWise,
    HistogramBinning,
    IsotonicRegression,
    LocalRecalibration,
    PlattScaling,
    TemperatureScaling,
)

RNG = np.random.default_rng(0)
N, D, BINS = 500, 4, 5
FEATURES, CONFIDENCES = RNG.normal(size=(N, D)), RNG.uniform(size=N)
CORRECT = (RNG.uniform(size=N) < CONFIDENCES).astype(int)
CALIBRATION = CONFIDENCES, CORRECT, FEATURES
POINTS = RNG.uniform(size=80), RNG.normal(size=(80, D))
APART = POINTS[1][:, None] - FEATURES


def above_a_half(predictions):
    return (predictions.probs > 0.5).astype(int)


# A neighbourhood, the logarithms of its weights, and bins of confidences.
NEAR = {
    f"laplacian {x}": (Neighbourhood.laplacian(x, BINS), -np.abs(APART).sum(-1) / (D * x))
    for x in (1e-3, 0.1, 0.4, 10.0)
}
_SQUARES = -np.square(APART).sum(-1) / 2
NEAR["squared"] = Neighbourhood(kernels.SquaredExponential(0.8), UniformBins(BINS)), _SQUARES / 0.64
NEAR["halves"] = Neighbourhood(kernels.SquaredExponential(0.7), above_a_half), _SQUARES / 0.49


@pytest.mark.parametrize("name", NEAR)
def test_means_near_points(name):
    """Also where params go through `jit`; a confidence that is NaN stays so."""
    near, logs = NEAR[name]
    bins = (lambda p: p > 0.5) if name == "halves" else (lambda p: np.ceil(p * BINS))
    logs = np.where(bins(POINTS[0])[:, None] == bins(CONFIDENCES), logs, -np.inf)
    weights = np.exp(logs - logs.max(1, keepdims=True))
    expected = weights @ CORRECT / weights.sum(1)
    method = LocalRecalibration(near)
    params = jax.jit(method.fit)(*CALIBRATION)
    points, expected[-1] = (np.append(POINTS[0][:-1], np.nan), POINTS[1]), np.nan
    np.testing.assert_allclose(jax.jit(method.apply)(params, *points), expected, atol=1e-12)


def test_bins_of_the_calibration_samples():
    """Whatever other confidences come with it, a confidence is in the same bin (L21 App. A)."""

    def bins_of(points):
        num_smaller = (points[:, None] > CONFIDENCES).sum(1)
        return np.minimum(num_smaller * BINS // N, BINS - 1)

    near, same = Neighbourhood(kernels.White(), EqualMassBins(BINS)), np.zeros(N, int)
    method = LocalRecalibration(near)
    params = method.fit(CONFIDENCES, CORRECT, same)
    values = method.apply(params, POINTS[0], same[:80])
    ours, theirs = bins_of(CONFIDENCES), bins_of(POINTS[0])
    assert len(np.unique(ours)) > 4
    expected = [CORRECT[ours == b].mean() for b in theirs]
    np.testing.assert_allclose(values, expected, atol=1e-13)
    alone = [method.apply(params, POINTS[0][i : i + 1], same[:1])[0] for i in (3, 7)]
    np.testing.assert_allclose(alone, values[np.array([3, 7])], atol=1e-14)


def test_empty_bins_keep_the_confidence():
    method = LocalRecalibration(Neighbourhood.laplacian(1.0, 10))
    params = method.fit(np.array([0.65, 0.68]), np.array([1, 0]), np.zeros((2, 1)))
    points = np.array([0.61, 0.95, 0.3]), np.zeros((3, 1))
    message = "LocalRecalibration: 2 of 3 confidences are in bins without calibration samples"
    with pytest.warns(UserWarning, match=message):
        kept = method.apply(params, *points)
    np.testing.assert_array_equal(kept, [0.5, 0.95, 0.3])
    with warnings.catch_warnings(action="error"):
        np.testing.assert_array_equal(jax.jit(method.apply)(params, *points), kept)


class MeanShift:
    """A recalibrator of a user: no record, and no subclass."""

    def fit(self, predictions, targets):
        return jnp.mean(targets - predictions.loc)

    def apply(self, shift, predictions):
        return Normal(predictions.loc + shift, predictions.scale)


FEW = 60
GROUPS, NEW = RNG.permutation(np.repeat([0, 2, 7], FEW // 3)), RNG.permutation(FEW)
LABELLED = CONFIDENCES[:FEW], CORRECT[:FEW]
LOGITS = CategoricalLogits(jnp.asarray(3 * RNG.normal(size=(FEW, 3)), jnp.float32))
LABELS = (np.asarray(LOGITS.logits) / 2 + RNG.gumbel(size=(FEW, 3))).argmax(1)
NUMBERS = Normal(FEATURES[:FEW, 0], LABELLED[0])
LOCAL = LocalRecalibration(Neighbourhood.laplacian(0.4, 2))
CASES = {
    "histogram": (HistogramBinning(3), LABELLED),
    "isotonic": (IsotonicRegression(), LABELLED),
    "local": (LOCAL, (*LABELLED, FEATURES[:FEW])),
    "temperature": (TemperatureScaling(), (LOGITS, LABELS)),
    "user's": (MeanShift(), (NUMBERS, FEATURES[:FEW, 1])),
}


def take(tree, indices):
    return jax.tree.map(lambda leaf: leaf[indices], tree)


@pytest.mark.filterwarnings("ignore:LocalRecalibration")
@pytest.mark.parametrize("name", CASES)
def test_each_group_is_treated_alone(name):
    recalibrator, arguments = CASES[name]
    inputs = take((arguments[0], *arguments[2:]), NEW)
    method = GroupWise(recalibrator)
    params = method.fit(*arguments, GROUPS)
    assert list(params) == [0, 2, 7]
    corrected = method.apply(params, *inputs, GROUPS[NEW])
    for group in params:
        members = GROUPS[NEW] == group
        fitted = recalibrator.fit(*take(arguments, group == GROUPS))
        expected = recalibrator.apply(fitted, *take(inputs, members))
        ours = take(corrected, members)
        assert jax.tree.structure(ours) == jax.tree.structure(expected)
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def test_groups_with_samples_without_weight():
    """A group is fitted to its other samples; one that has no others is not fitted."""
    method, weights = GroupWise(HistogramBinning(1)), np.ones(FEW)
    weights[np.flatnonzero(GROUPS == 0)[0]] = 0
    weights[GROUPS == 7] = 0
    params = method.fit(*LABELLED, GROUPS, weights=weights)
    assert list(params) == [0, 2]
    kept = (GROUPS == 0) & (weights > 0)
    np.testing.assert_allclose(params[0].accuracies, [LABELLED[1][kept].mean()], rtol=1e-14)


def test_groups_that_fit_does_not_know():
    method = GroupWise(PlattScaling())
    with pytest.raises(ValueError, match=r"were in fit, \[0, 2\], got \[7\]"):
        method.apply({0: None, 2: None}, LABELLED[0], GROUPS)
    with pytest.raises(TypeError, match="groups: expected integers that are known when compiling"):
        jax.jit(method.fit)(*LABELLED, GROUPS)
    with pytest.raises(TypeError, match="groups: expected it as the last argument"):
        method.fit(*LABELLED, GROUPS, np.ones(FEW))  # weights in the place of groups
