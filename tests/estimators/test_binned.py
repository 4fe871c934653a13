import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, estimators, kernels
from calibjax.distributions import Bernoulli, Categorical
from calibjax.estimators.kernel import mmce
from tests.estimators.test_binnings import BINNINGS, groups_of, random_data

ECE = functools.partial(estimators.ece, notion="canonical")
MCE = functools.partial(estimators.mce, notion="canonical")
DEBIASED = functools.partial(ECE, norm="l2", debiased=True, distance=distances.Euclidean())


def bins_by_loops(probs, targets, groups, distance):
    """Shares of the bins, given as lists of samples, and distances of their means."""
    both = probs, np.eye(probs.shape[1])[targets]
    values = np.array([distance(*(x[g].mean(0) for x in both)) for g in groups])
    return np.array([len(g) for g in groups]) / len(probs), values


def total_variation(p, q):
    return np.abs(p - q).sum() / 2


DISTANCES = {
    "total variation": (distances.TotalVariation(), total_variation),
    "euclidean": (distances.Euclidean(), lambda p, q: np.sqrt(np.square(p - q).sum())),
    "not a function of the difference": (
        lambda p, q: jnp.sum(jnp.square(jnp.sqrt(p.probs) - jnp.sqrt(q.probs))),
        lambda p, q: np.square(np.sqrt(p) - np.sqrt(q)).sum(),
    ),
}


@pytest.mark.parametrize("decimals", [None, 1])  # inside bins, or on edges, with 0 and 1
@pytest.mark.parametrize("m", [2, 1000])
@pytest.mark.parametrize("name", BINNINGS)
def test_ece_and_mce_against_a_loop(name, m, decimals):
    probs, targets = random_data(150, m, seed=3, decimals=decimals)
    data = Categorical(jnp.asarray(probs)), jnp.asarray(targets)
    groups = groups_of(BINNINGS[name](data[0]))
    for distance, oracle in DISTANCES.values() if name == "uniform" else ():
        found = [one(*data, binning=BINNINGS[name], distance=distance) for one in (ECE, MCE)]
        shares, values = bins_by_loops(probs, targets, groups, oracle)
        np.testing.assert_allclose(found, [shares @ values, values.max()], atol=1e-14)
    shares, values = bins_by_loops(probs, targets, groups, total_variation)
    found = ECE(*data, binning=BINNINGS[name])
    np.testing.assert_allclose(found, shares @ values, atol=1e-14)


def debiased_oracle(probs, targets, groups, w):
    """Products of the residuals of all pairs of different samples in each bin."""
    residuals = np.eye(probs.shape[1])[targets] - probs
    total = 0.0
    for g in groups:
        pairs = [(i, j) for i in g for j in g if i != j]
        products = [residuals[i] @ residuals[j] for i, j in pairs]
        shares = [w[i] * w[j] for i, j in pairs]
        total += w[g].sum() / w.sum() * np.average(products, weights=shares) if pairs else 0
    return total


@pytest.mark.parametrize("weights", [None, np.random.default_rng(6).uniform(0.5, 2, 120)])
@pytest.mark.parametrize("name", BINNINGS)
def test_debiased_ece_against_a_loop(name, weights):
    probs, targets = random_data(120, 10, seed=5)
    predictions = Categorical(jnp.asarray(probs))
    groups = groups_of(BINNINGS[name](predictions, weights=weights))
    data = predictions, jnp.asarray(targets)
    ours = DEBIASED(*data, binning=BINNINGS[name], weights=weights)
    shares = np.ones(120) if weights is None else weights
    expected = debiased_oracle(probs, targets, groups, shares)
    np.testing.assert_allclose(ours, expected, atol=1e-14)


@pytest.mark.parametrize("name", BINNINGS)
def test_bernoulli_gives_the_numbers_of_two_classes(name):
    rng = np.random.default_rng(0)
    probs = jnp.asarray(np.append(rng.uniform(size=60), [0, 1, 0.5]))
    targets = jnp.asarray(rng.integers(0, 2, size=63))
    one, two = Bernoulli(probs), Categorical(jnp.stack([1 - probs, probs], -1))
    np.testing.assert_array_equal(BINNINGS[name](one), BINNINGS[name](two))
    ours = ECE(one, targets, binning=BINNINGS[name])
    assert ours == ECE(two, targets, binning=BINNINGS[name])
    assert ours == ECE(one, targets == 1, binning=BINNINGS[name])


def test_float32_of_many_equal_predictions():
    """Sums of equal numbers lose digits, one by one 2e-3 here; the standard deviation is 1e-3."""
    n, confidence, tolerance = 2 * 10**5, 0.9, 1e-5
    predictions = Bernoulli(jnp.full(n, confidence, jnp.float32))
    targets = jnp.arange(n) % 10 < 7
    for binning in (estimators.UniformBins(10), lambda p: jnp.zeros(n, int)):
        value = ECE(predictions, targets, binning=binning)
        assert abs(float(value) - (confidence - 0.7)) < tolerance
        value = DEBIASED(predictions, targets, binning=binning)
        assert abs(float(value) - 2 * (confidence - 0.7) ** 2) < tolerance


def test_empty_bins_contribute_zero():
    """Also for a distance that is not finite at zero probabilities."""

    def divergence(p, q):
        return jnp.sum(p.probs * (jnp.log(p.probs) - jnp.log(q.probs)))

    def value(p):
        options = {"binning": lambda _: jnp.full(3, 2), "distance": divergence}
        return ECE(Categorical(p), jnp.array([0, 0, 1]), **options)

    value, gradient = jax.value_and_grad(value)(jnp.full((3, 2), 0.4).at[:, 1].set(0.6))
    np.testing.assert_allclose(value, 0.4 * np.log(0.4 * 1.5) + 0.6 * np.log(0.6 * 3))
    np.testing.assert_allclose(gradient[0], (1 + np.log([0.4 * 1.5, 0.6 * 3])) / 3)


def errors_of_bins(p, y, num_bins=15):
    """The three norms of a binary problem, in bins of equal width as in torchmetrics."""
    groups = groups_of(np.digitize(p, np.linspace(0, 1, num_bins + 1)))
    two, y = np.stack([1 - p, p], 1), y.astype(int)
    shares, gaps = bins_by_loops(two, y, groups, total_variation)
    return {"l1": shares @ gaps, "l2": np.sqrt(shares @ gaps**2), "max": gaps.max()}


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_notions_and_norms_against_a_loop(norm):
    """The conventions of torchmetrics and netcal: top label, or P(Y = 1) of two classes."""
    probs, labels = random_data(300, 10, seed=2)
    predictions = Categorical(jnp.asarray(probs))
    top = errors_of_bins(probs.max(1), probs.argmax(1) == labels)[norm]
    np.testing.assert_allclose(estimators.ece(predictions, labels, norm=norm), top, rtol=1e-12)
    each = [errors_of_bins(probs[:, c], labels == c)[norm] for c in range(10)]
    expected = {"l1": np.mean(each), "l2": np.sqrt(np.mean(np.square(each))), "max": max(each)}
    ours = estimators.ece(predictions, labels, norm=norm, notion="class_wise")
    np.testing.assert_allclose(ours, expected[norm], rtol=1e-12)
    one = Bernoulli(jnp.asarray(probs[:, 0]))
    for notion in ("top_label", "class_wise", "canonical"):
        ours = estimators.ece(one, labels == 0, norm=norm, notion=notion)
        np.testing.assert_allclose(ours, each[0], rtol=1e-12)
    if norm == "max":
        assert estimators.mce(predictions, labels) == estimators.ece(predictions, labels, norm=norm)


def test_debiased_error_of_the_top_label():
    """It estimates the square of the l2 error, in the units of |p̄ − ȳ|."""
    probs, labels = random_data(120, 4, seed=5)
    predictions, options = Categorical(jnp.asarray(probs)), {"norm": "l2", "debiased": True}
    confidences, correct = probs.max(1), probs.argmax(1) == labels
    groups = groups_of(estimators.UniformBins(15)(Bernoulli(jnp.asarray(confidences))))
    two = np.stack([1 - confidences, confidences], 1)
    expected = debiased_oracle(two, correct.astype(int), groups, np.ones(len(labels))) / 2
    np.testing.assert_allclose(estimators.ece(predictions, labels, **options), expected, rtol=1e-12)
    twice = estimators.ece(predictions, labels, distance=distances.Euclidean(), **options)
    np.testing.assert_allclose(twice, 2 * expected, rtol=1e-12)
    with pytest.raises(ValueError, match="debiased: expected distance=Euclidean"):
        estimators.ece(predictions, labels, notion="canonical", **options)
    with pytest.raises(ValueError, match='debiased: expected norm="l2"'):
        estimators.ece(predictions, labels, debiased=True)


def test_top_label():
    """The first class where two are equally likely."""
    probs, labels = random_data(40, 5, concentration=1)
    probs[:3] = [0.1, 0.4, 0, 0.4, 0.1]
    confidences, correct = estimators.top_label(Categorical(probs), labels)
    assert isinstance(confidences, Bernoulli)
    np.testing.assert_array_equal(confidences.probs, probs.max(1))
    np.testing.assert_array_equal(correct, labels == probs.argmax(1))
    assert 0 < correct.sum() < len(labels)


def test_gradient_of_the_mmce_of_perfect_confidences():
    """The root has an infinite slope at zero, its argument slope zero: 0 by convention, not NaN."""
    perfect = jax.grad(mmce, argnums=1)(
        kernels.Exponential(0.4), jnp.array([1.0, 0.0]), jnp.array([1, 0])
    )
    np.testing.assert_array_equal(perfect, 0)


def test_a_bernoulli_is_an_array_of_confidences():
    confidences = Bernoulli(jnp.array([0.25, 0.75]))
    assert np.asarray(confidences).tolist() == [0.25, 0.75]
    assert np.array(confidences, dtype=np.float32).dtype == np.float32
    assert jnp.max(confidences) == 0.75
    # Wrapped once more by accident, it is what it was.
    targets = jnp.array([0, 1])
    binning = estimators.UniformBins(2)
    assert estimators.ece(Bernoulli(confidences), targets, binning=binning) == 0.25


def test_features_of_each_class():
    probs, targets = random_data(6, 3)
    predictions = distributions.with_features(Categorical(probs), np.arange(6.0))
    each, labels = estimators.class_wise(predictions, targets)
    np.testing.assert_array_equal(each.features, np.tile(np.arange(6.0), (3, 1)))
    np.testing.assert_array_equal(each.probs, probs.T)
    np.testing.assert_array_equal(labels, targets == np.arange(3)[:, None])
