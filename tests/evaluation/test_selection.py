"""Which recalibration is enough: names, numbers, sentences, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distributions, record, scores, select_recalibration
from calibjax.distances import Wasserstein
from calibjax.distributions import Bernoulli, Ensemble, Mixture, Normal, sample_targets
from calibjax.evaluation import selection
from calibjax.evaluation.selection import Repairs
from calibjax.hypothesis_tests.aggregated import as_tested, hypothesis_of
from calibjax.hypothesis_tests.exact import checked_family
from calibjax.kernels import Exponential, SquaredExponential, TensorProduct
from calibjax.recalibration import AffineScaling, TemperatureScaling
from calibjax.recalibration.local import Gain

KEYS = [jax.random.key(i) for i in range(4)]
N = 100
NORMAL = Normal(np.linspace(0, 1, N), np.full(N, 0.1))
RNG = np.random.default_rng(0)
SCORES = stats.norm.ppf((RNG.permutation(N) + 0.5) / N)
NOISE = RNG.normal(size=N)


def test_a_shift_is_repaired():
    shifted = NORMAL.loc[:40] + 0.1 * (1.0 + NOISE[:40])
    few, methods = jax.tree.map(lambda x: x[:40], NORMAL), {"affine": AffineScaling()}
    found = select_recalibration(KEYS[1], few, shifted, methods, num_draws=39)
    assert found.enough == "affine"
    assert found.pvalues["nothing"] == 1 / 40
    assert found.gains["affine"].low > 0


@pytest.mark.slow
def test_the_first_that_is_enough():
    shifted = NORMAL.loc + 0.1 * (1.0 + NOISE)
    methods = {"temperature": TemperatureScaling(), "affine": AffineScaling()}
    found = select_recalibration(KEYS[1], NORMAL, shifted, methods)
    assert found.enough == "affine"
    assert list(found.pvalues) == ["nothing", "temperature", "affine"]
    assert found.gains["affine"].low > found.gains["temperature"].mean
    assert "The recalibration 'affine' repairs it (p = " in str(found)
    right = select_recalibration(KEYS[1], NORMAL, NORMAL.loc + 0.1 * SCORES, methods)
    assert right.enough == "nothing"
    assert "No sign that it has to be repaired" in right.sentence
    wave = NORMAL.loc + 0.1 * (NOISE + 1.5 * jnp.sign(NORMAL.loc - 0.5))
    assert select_recalibration(KEYS[1], NORMAL, wave, methods).enough is None


def test_weights_of_losses_and_of_refits():
    """Of pools of ensembles, too, whose first value is the target."""
    random = np.random.default_rng(0)
    values, targets, weights = random.normal(size=(9, 4)), random.normal(size=9), np.arange(9.0)
    members, method = Ensemble(values), AffineScaling()
    pools, repaired, drawn = as_tested(members, members, targets)
    kernels = {"k": TensorProduct(Exponential(1.0, Wasserstein()), SquaredExponential(1.0))}
    family = checked_family(kernels, pools, targets)
    one = hypothesis_of(method, family, pools, repaired, targets, jnp.asarray(weights))
    found = one.loss(scores.crps, repaired, drawn)
    np.testing.assert_allclose(found, scores.crps(members, targets, weights=weights), rtol=1e-6)
    expected = method.apply(method.fit(members, targets, weights=weights), members).values
    np.testing.assert_allclose(one.fitted(drawn).values[:, 1:], expected, rtol=1e-5)


@record
class _Smoothed:
    """Normal distributions of the members' means and standard deviations."""

    def fit(self, predictions, targets, weights=None):
        return ()

    def apply(self, params, predictions):
        return Normal(predictions.values.mean(1), predictions.values.std(1))


def _members(key, change):
    """Eleven members and a target of the same law, the members changed around their mean."""
    keys = jax.random.split(key)
    loc = 3 * jax.random.normal(keys[0], (200, 1))
    values = loc + jax.random.normal(keys[1], (200, 12))
    means = jnp.mean(values[:, 1:], 1, keepdims=True)
    return Ensemble(means + change(values[:, 1:] - means, loc)), values[:, 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("enough", "change"),
    [
        ("nothing", lambda deviations, _: deviations),
        ("affine", lambda deviations, _: 0.4 + 1.4 * deviations),
        (None, lambda deviations, loc: deviations + jnp.sign(loc)),
    ],
)
def test_ensembles(enough, change):
    """Named right in eight of ten data sets at least; the first has level 5 %."""
    found = [
        select_recalibration(KEYS[1], *_members(key, change), num_draws=99).enough
        for key in jax.random.split(KEYS[3], 10)
    ]
    assert sum(name == enough for name in found) >= 8
    with pytest.raises(NotImplementedError, match="expected repaired ensembles, got Normal .*from"):
        select_recalibration(KEYS[1], *_members(KEYS[3], change), {"smooth": _Smoothed()})


@pytest.mark.slow
@pytest.mark.parametrize(
    "predictions",
    [
        Bernoulli(jnp.linspace(0.1, 0.9, 30)),
        distributions.CategoricalLogits(jax.random.normal(KEYS[2], (30, 3))),
        distributions.Gamma(jnp.linspace(1, 3, 30), jnp.ones(30)),
        distributions.DiagNormal(jax.random.normal(KEYS[1], (30, 2)), jnp.ones((30, 2))),
    ],
)
def test_every_kind_of_prediction(predictions):
    targets = sample_targets(KEYS[3], predictions)
    options = {"num_draws": 19, "significance_level": 0.04}
    found = select_recalibration(KEYS[1], predictions, targets, **options)
    assert found.enough == "nothing"
    assert len(found.gains) == len(found.pvalues) - 1 >= 2


def test_families_without_some_default():
    """Those of labels, of classes and of numbers; ensembles have no quantile map."""
    mixture = Mixture(None, Normal(jnp.zeros((N, 2)), jnp.ones((N, 2))))
    for predictions, names in (
        (mixture, ["temperature", "affine", "beta", "kernel"]),
        (Ensemble(np.zeros((N, 2))), ["affine"]),
        (Bernoulli(np.full(N, 0.5)), ["temperature", "affine", "beta"]),
        (distributions.Categorical(np.full((N, 3), 1 / 3)), ["temperature", "vector"]),
    ):
        assert list(selection._default(predictions)) == names
    with pytest.raises(NotImplementedError, match="no default for Poisson"):
        select_recalibration(KEYS[1], distributions.Poisson(jnp.ones(N)), jnp.ones(N, int))


def test_sentences():
    gains = {"temperature": Gain(0.2, 0.1, 0.0, 0.4), "beta": Gain(*[jnp.nan] * 4)}
    pvalues = {"nothing": 0.01, "temperature": 0.4, "beta": jnp.nan}
    found = Repairs(pvalues, gains, 0.05, (("beta", "too few"),))
    assert found.sentence == "The recalibration 'temperature' repairs it (p = 0.4 afterwards)."
    assert "0.4  +0.2000 [+0.0000, +0.4000]" in str(found)
    assert "not fitted  too few" in str(found)


class _Plain:
    """A recalibration that is no record."""

    fit = apply = lambda self, *_: None


def test_wrong_input():
    with pytest.raises(TypeError, match=r"s\['plain'\].*: expected a record.* got _Plain"):
        select_recalibration(KEYS[1], NORMAL, NORMAL.loc, {"plain": _Plain()})
    with pytest.raises(TypeError, match="recalibrations: expected a dictionary .* none of them"):
        select_recalibration(KEYS[1], NORMAL, NORMAL.loc, {"nothing": AffineScaling()})


@record
class _Unfit:
    """A recalibration that is never fitted, or to no fold."""

    everywhere: bool

    def fit(self, predictions, targets, weights=None):
        if self.everywhere or weights is not None:
            raise ValueError("no maximum")
        return ()

    def apply(self, params, predictions):
        return predictions


@record
class _Shift:
    def fit(self, predictions, targets, weights=None):
        return jnp.average(targets - predictions.loc, weights=weights)

    def apply(self, params, predictions):
        return Normal(predictions.loc + params, predictions.scale)


@pytest.mark.parametrize("everywhere", [True, False])
def test_what_cannot_be_fitted_is_said(everywhere):
    methods = {"unfit": _Unfit(everywhere), "shift": _Shift()}
    found = select_recalibration(KEYS[1], NORMAL, NORMAL.loc + 0.3 + 0.1 * SCORES, methods)
    assert found.enough == "shift"
    assert jnp.isnan(found.pvalues["unfit"])
    assert jnp.isnan(found.gains["unfit"].mean)
    ((name, reason),) = found.not_fitted
    assert name == "unfit"
    assert "no maximum" in reason
    assert f"unfit           not fitted  {reason}" in str(found)
    with pytest.raises(ValueError, match="at least one that can be fitted, got 'unfit': .*no max"):
        select_recalibration(KEYS[1], NORMAL, NORMAL.loc, {"unfit": _Unfit(everywhere)})


def test_smallest_rank_by_hand():
    """Ranks among all values, and among the smallest ranks; one that is missing is large."""
    pool = jnp.array([[3.0, 0.0], [1.0, 5.0], [jnp.nan, 1.0], [2.0, 2.0]])
    # Ranks from the largest: (2, 4), (4, 1), (1, 3), (3, 2); the smallest: 2, 1, 1, 2.
    np.testing.assert_allclose(selection._smallest(pool), 1.0)
    np.testing.assert_allclose(selection._smallest(pool[jnp.array([1, 0, 2, 3])]), 0.5)
    assert np.isnan(selection._smallest(pool[jnp.array([2, 0, 1, 3])]))  # of invalid targets
