import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, estimators, scores
from calibjax.distributions import Bernoulli, Categorical
from tests.estimators.test_binned import ece_oracle, mce_oracle
from tests.estimators.test_binnings import BINNINGS, groups_of, random_data
from tests.wrong_data import LABELS, PROBS

UNIFORM = BINNINGS["uniform"]


def group_wise_oracle(error, probs, targets, groups, bins):
    """ECE or MCE of the samples of each group that occurs, by lists of those in each bin."""
    found = []
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        cells = [np.flatnonzero(np.isin(members, chosen)) for chosen in groups_of(bins)]
        found.append(error(probs[members], targets[members], [c for c in cells if c.size]))
    return found


@pytest.mark.parametrize(
    ("name", "m"), [("uniform", 2), ("uniform", 5), ("median_variance", 5), ("equal_mass", 5)]
)
def test_against_a_loop(name, m):
    probs, targets = random_data(200, m, seed=4)
    groups = np.random.default_rng(0).choice(4, size=200, p=[0.7, 0.2, 0.08, 0.02])
    predictions = Categorical(jnp.asarray(probs))
    data = predictions, targets, groups
    bins = BINNINGS[name](predictions)
    for function, error in (
        (scores.group_wise_mce, mce_oracle),
        (scores.group_wise_ece, ece_oracle),
    ):
        expected = group_wise_oracle(error, probs, targets, groups, bins)
        np.testing.assert_allclose(function(*data, binning=BINNINGS[name]), expected, atol=1e-14)


def test_of_uniform_bins_the_values_are_those_of_each_group_alone():
    probs, targets = random_data(150, 6, seed=1, dtype=np.float32)
    confidences, correct = estimators.top_label(Categorical(jnp.asarray(probs)), targets)
    groups = np.arange(150) % 3
    ours = scores.group_wise_mce(confidences, correct, groups, binning=UNIFORM)
    assert ours.dtype == np.float32
    alone = jax.jit(jax.vmap(lambda p, y: estimators.mce(Bernoulli(p), y, binning=UNIFORM)))(
        confidences.probs.reshape(50, 3).T, correct.reshape(50, 3).T
    )
    np.testing.assert_allclose(ours, alone, atol=1e-6)
    one = scores.group_wise_mce(confidences, correct, np.zeros(150, int), binning=UNIFORM)
    np.testing.assert_allclose(one[0], estimators.mce(confidences, correct, binning=UNIFORM))


@pytest.mark.slow
def test_jit_vmap_empty_groups_and_gradient():
    """Group 1 of 4 is empty in the second data set, group 3 in both."""
    probs, targets = random_data(2 * 80, 3, seed=2)
    groups = np.random.default_rng(1).integers(3, size=(2, 80))
    groups[1] = np.where(groups[1] == 1, 2, groups[1])
    probs = jnp.asarray(0.94 * probs + 0.02).reshape(2, 80, 3)  # the mean is cut off at zero
    targets = jnp.asarray(targets).reshape(2, 80)

    def values(probs, targets, groups):
        options = {"binning": UNIFORM, "distance": distances.Euclidean()}
        data = Categorical(probs), targets, groups
        each = scores.group_wise_mce(*data, num_groups=4, **options)
        return jnp.nanmax(each), each

    largest, each = jax.jit(jax.vmap(values))(probs, targets, groups)
    np.testing.assert_array_equal(np.isnan(each), [[0, 0, 0, 1], [0, 1, 0, 1]])
    for i in range(2):
        one = jax.jit(values)(probs[i], targets[i], groups[i])
        np.testing.assert_allclose(largest[i], one[0], rtol=1e-13)
        np.testing.assert_allclose(each[i], one[1], rtol=1e-13)

    def total(probs):
        maximum, each = values(probs, targets[0], groups[0])
        return maximum + jnp.sum(each[:3])

    direction = np.random.default_rng(2).normal(size=(80, 3)) * 1e-6
    direction -= direction.mean(1, keepdims=True)  # or rows would not sum to one any more
    along = jax.jit(lambda step: total(probs[0] + step * direction))
    slope, numeric = jax.jit(jax.grad(along))(0.0), (along(1.0) - along(-1.0)) / 2
    np.testing.assert_allclose(slope, numeric, rtol=1e-6)


def test_bins_out_of_range_under_jit_never_become_a_number():
    @jax.jit
    def values(bins):
        data = Categorical(PROBS), LABELS, LABELS % 2
        return scores.group_wise_mce(*data, num_groups=2, binning=lambda _: bins)

    assert np.isfinite(values(LABELS)).all()
    for wrong in (6, -1):
        assert np.isnan(values(LABELS.at[1].set(wrong))).all()


@pytest.mark.parametrize(
    ("groups", "options", "error", "message"),
    [
        (LABELS + 0.5, {}, ValueError, "groups: expected integer groups, one for each sample, got"),
        (LABELS[1:], {}, ValueError, r"groups: expected shape \(6,\), one group for each sample"),
        ([None] * 6, {}, TypeError, "groups: expected numbers, got list"),
        (
            LABELS - 1,
            {},
            ValueError,
            r"groups: expected groups in 0, .*2³¹ - 1, got groups\[0\] = -1",
        ),
        (np.array([0, 0, 0, 1, 1, 2**40]), {}, ValueError, r"groups\[5\] = 1099511627776"),
        (LABELS * 2, {}, ValueError, "groups: .* without gaps, got 3 groups up to 4"),
        (LABELS, {"num_groups": 2}, ValueError, r"groups in 0, ..., 1, got groups\[2\] = 2"),
        (
            LABELS,
            {"num_groups": 0},
            ValueError,
            "num_groups: expected an integer between 1 and 2147483647, got 0",
        ),
        (LABELS, {"num_groups": 2.5}, TypeError, "num_groups: expected an integer, got 2.5"),
        (LABELS, {"binning": 5}, TypeError, "binning: expected a binning such as"),
        (LABELS, {"distance": "tv"}, TypeError, "distance: expected a distance record, got str"),
    ],
)
def test_wrong_arguments(groups, options, error, message):
    data = Categorical(PROBS), LABELS, groups
    with pytest.raises(error, match=message):
        scores.group_wise_mce(*data, **({"binning": UNIFORM} | options))


def test_traced_groups_need_their_number():
    entry = functools.partial(scores.group_wise_mce, binning=UNIFORM)
    with pytest.raises(TypeError, match="num_groups: expected an integer where groups are traced"):
        jax.jit(entry)(Categorical(PROBS), LABELS, LABELS)
    assert jax.jit(lambda p: entry(Categorical(p), LABELS, LABELS))(PROBS).shape == (3,)
