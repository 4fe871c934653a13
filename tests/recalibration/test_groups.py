import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax.distributions import CategoricalLogits, Normal
from calibjax.estimators import Neighbourhood
from calibjax.recalibration import (
    GroupWise,
    HistogramBinning,
    IsotonicRegression,
    LocalRecalibration,
    PlattScaling,
    TemperatureScaling,
)

RNG = np.random.default_rng(0)
N = 60
GROUPS = RNG.permutation(np.repeat([0, 2, 7], N // 3))
CONFIDENCES, FEATURES = RNG.uniform(0.3, 1, N), RNG.normal(size=(N, 2))
CORRECT = RNG.uniform(size=N) < CONFIDENCES
LOGITS = CategoricalLogits(jnp.asarray(3 * RNG.normal(size=(N, 3)), jnp.float32))
LABELS = (np.asarray(LOGITS.logits) / 2 + RNG.gumbel(size=(N, 3))).argmax(1)
NEW = RNG.permutation(N)


class MeanShift:
    """A recalibrator of a user: no record, and no subclass."""

    def fit(self, predictions, targets):
        return jnp.mean(targets - predictions.loc)

    def apply(self, shift, predictions):
        return Normal(predictions.loc + shift, predictions.scale)


CASES = {
    "histogram": (HistogramBinning(3), (CONFIDENCES, CORRECT)),
    "isotonic": (IsotonicRegression(), (CONFIDENCES, CORRECT)),
    "platt": (PlattScaling(), (CONFIDENCES, CORRECT)),
    "local": (
        LocalRecalibration(Neighbourhood.laplacian(0.4, 2)),
        (CONFIDENCES, CORRECT, FEATURES),
    ),
    "temperature": (TemperatureScaling(), (LOGITS, LABELS)),
    "user's": (MeanShift(), (Normal(FEATURES[:, 0], CONFIDENCES), FEATURES[:, 1])),
}


def take(tree, indices):
    return jax.tree.map(lambda leaf: leaf[indices], tree)


def new_inputs(arguments):
    """All arguments but the targets, of new samples."""
    return take((arguments[0], *arguments[2:]), NEW)


@pytest.mark.parametrize("name", CASES)
def test_each_group_is_treated_alone(name):
    recalibrator, arguments = CASES[name]
    method = GroupWise(recalibrator)
    params = method.fit(*arguments, GROUPS)
    assert list(params) == [0, 2, 7]
    corrected = method.apply(params, *new_inputs(arguments), GROUPS[NEW])
    for group in params:
        members = GROUPS[NEW] == group
        expected = recalibrator.apply(
            recalibrator.fit(*take(arguments, group == GROUPS)),
            *take(new_inputs(arguments), members),
        )
        ours = take(corrected, members)
        assert jax.tree.structure(ours) == jax.tree.structure(expected)
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected)):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def test_compiled_with_groups_that_are_known():
    method = GroupWise(HistogramBinning(1))

    def fit_apply(confidences, correct):
        return method.apply(method.fit(confidences, correct, GROUPS), confidences, GROUPS)

    correct = np.stack([CORRECT, ~CORRECT])
    images = jax.jit(jax.vmap(fit_apply, (None, 0)))(CONFIDENCES, correct)
    for group in (0, 2, 7):
        members = group == GROUPS
        expected = correct[:, members].mean(1, keepdims=True)
        np.testing.assert_allclose(images[:, members], expected + np.zeros(N // 3), rtol=1e-14)


METHOD = GroupWise(PlattScaling())


def test_groups_that_fit_does_not_know():
    with pytest.raises(ValueError, match=r"fit has seen, \[0, 2\], got \[7\]"):
        METHOD.apply({0: None, 2: None}, CONFIDENCES, GROUPS)
    with pytest.raises(TypeError, match="groups: expected integers that are known when compiling"):
        jax.jit(METHOD.fit)(CONFIDENCES, CORRECT, GROUPS)
    with pytest.raises(TypeError, match="groups: expected it as the last argument"):
        METHOD.fit(CONFIDENCES, CORRECT, GROUPS, np.ones(N))  # weights in the place of groups
