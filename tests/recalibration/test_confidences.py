"""Recalibration of confidences, and of classes one against the rest."""

import warnings
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression as Isotonic
from sklearn.linear_model import LogisticRegression

from calibjax import estimators, scores
from calibjax.binnings import interval_index
from calibjax.distributions import Bernoulli, Categorical, CategoricalLogits, Mixture, Quantiles
from calibjax.recalibration import (
    BetaCalibration,
    HistogramBinning,
    IsotonicRegression,
    PlattScaling,
    VennAbers,
)
from calibjax.recalibration.base import ClassWiseParams
from calibjax.recalibration.confidences import (
    BetaMap,
    MMCEScaling,
    QuadraticMap,
    QuadraticScaling,
    SigmoidMap,
)

RNG = np.random.default_rng(0)
R = RNG.beta(0.8, 1.2, 200).clip(0.01, 0.99)
Z, WEIGHTS, NEW = logit(R), np.arange(200) % 3, np.linspace(0, 1, 101)
MAPS = {
    "Platt": (PlattScaling(), SigmoidMap(0.7, -0.3), 0.7 * Z - 0.3),
    "beta": (BetaCalibration(), BetaMap(1.5, 0.4, 0.2), 1.5 * np.log(R) - 0.4 * np.log1p(-R) + 0.2),
    "quadratic": (QuadraticScaling(), QuadraticMap(0.3, 0.7, -0.2), 0.3 + 0.7 * Z - 0.2 * Z**2),
}


@pytest.mark.parametrize("name", MAPS)
def test_maps(name):
    """Of certain predictions as of the next number of single precision that is not."""
    method, params, odds = MAPS[name]
    params = jax.tree.map(jnp.asarray, params)
    np.testing.assert_allclose(method.apply(params, R), expit(odds), rtol=1e-12)
    np.testing.assert_array_equal(method.apply(params, Bernoulli(R)), method.apply(params, R))
    single = jax.tree.map(jnp.float32, params)
    eps = np.finfo(np.float32).eps
    certain = method.apply(single, np.float32([0, 1, eps, 1 - eps]))
    np.testing.assert_allclose(certain[:2], certain[2:], rtol=1e-5)
    slopes = jax.grad(lambda r: jnp.sum(method.apply(params, r)))(jnp.array([0.0, 0.5, 1.0]))
    assert np.isfinite(slopes).all()


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_slope_of_beta_calibration_that_is_left_out(weights):
    """As in the package betacal, which leaves out features of negative slopes."""
    rise = np.log(R)
    correct = RNG.uniform(size=200) < expit(2.5 * rise + np.log1p(-R) + 1)
    params = BetaCalibration().fit(jnp.asarray(R), jnp.asarray(correct), weights)
    theirs = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10000)
    theirs.fit(rise[:, None], correct, weights)
    assert params.fall == 0
    np.testing.assert_allclose(params.rise, theirs.coef_[0, 0], atol=2e-5)
    np.testing.assert_allclose(params.intercept, theirs.intercept_[0], atol=2e-5)


TARGETS = {
    "curved": RNG.uniform(size=200) < expit(0.3 + 0.7 * Z - 0.2 * Z**2),
    "steep": RNG.uniform(size=200) < expit(3 * Z),
    "separated": R > 0.4,
    "reversed": R < 0.4,
    "one class": np.zeros(200, bool),
}


def quadratic(z, correct, weights):
    """Parameters with the least sum of losses and ridge, by SciPy."""

    def loss(x):
        images = x[0] + x[1] * z + x[2] * z**2
        slope = np.stack([z**0, z, z**2]) @ (weights * (expit(images) - correct))
        ridge, losses = x - [0, 1, 0], np.logaddexp(0, images) - correct * images
        return weights @ losses + ridge @ ridge, slope + 2 * ridge

    return optimize.minimize(loss, [0, 1, 0], jac=True, tol=1e-14, options={"gtol": 1e-9}).x


def test_quadratic_scaling_against_scipy():
    """In single precision with log-odds of ±16, some of the wrong sign."""
    fit = jax.jit(QuadraticScaling().fit)
    for weights in (np.ones(200), WEIGHTS):
        for name, correct in TARGETS.items():
            found = [*vars(fit(R, correct, weights)).values()]
            expected = quadratic(Z, correct, weights)
            np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=name)
    r = np.r_[R, np.repeat([0.0, 1.0], 20)].astype(np.float32)
    correct = np.r_[TARGETS["curved"], np.arange(40) % 4 == 0]
    eps = np.finfo(np.float32).eps
    expected = quadratic(logit(r.astype(float).clip(eps, 1 - eps)), correct, np.ones(240))
    params = QuadraticScaling().fit(r, correct)
    np.testing.assert_allclose([*vars(params).values()], expected, atol=1e-3)
    assert params.slope.dtype == np.float32


def test_flat_likelihoods_of_platt_scaling():
    """Platt's targets of any labels, and labels that are nearly separated: slopes are zero."""
    confidences = np.linspace(0.1, 0.9, 60)
    nearly = confidences > 0.6
    for correct in (nearly, np.ones(60), np.zeros(60), nearly ^ (np.arange(60) % 7 == 0)):
        params = PlattScaling(smooth_targets=True).fit(confidences, correct.astype(int))
        ones = correct.sum()
        targets = np.where(correct, (ones + 1) / (ones + 2), 1 / (60 - ones + 2))
        residuals = expit(params.slope * logit(confidences) + params.intercept) - targets
        slopes = [residuals.sum(), residuals @ logit(confidences)]
        np.testing.assert_allclose(slopes, 0, atol=1e-11)


def smallest_loss(r, correct):
    """Slope and intercept with the least log-loss and squared MMCE, by Nelder and Mead."""

    def loss(parameters):
        z = np.exp(parameters[0]) * logit(r) + parameters[1]
        gap = correct - expit(z)
        matrix = np.exp(-np.abs(expit(z)[:, None] - expit(z)) / 0.4) * np.outer(gap, gap)
        return np.mean(np.logaddexp(0, z) - correct * z) + 10 * matrix.mean()

    options = {"xatol": 1e-9, "fatol": 1e-14}
    best = optimize.minimize(loss, np.zeros(2), method="Nelder-Mead", options=options)
    return np.exp(best.x[0]), best.x[1]


def test_mmce_scaling_against_scipy():
    """The loss has no minimum where a threshold separates, and its order is never reversed."""
    r = RNG.beta(3, 1.5, (7, 60))
    correct = (RNG.uniform(size=(7, 60)) < np.where(r > 0.7, r - 0.3, r)).astype(int)
    r[4:] = np.repeat([0.3, 0.6], 30)
    r[4, 29:31] = 0.45  # one of each class is on the threshold
    correct[4:] = np.repeat([[0, 1], [1, 1], [1, 0]], 30, 1)
    params = jax.jit(jax.vmap(MMCEScaling().fit))(r, correct)
    assert np.isnan(params.slope).tolist() == [False] * 4 + [True, True, False]
    for i in range(4):
        found = params.slope[i], params.intercept[i]
        np.testing.assert_allclose(found, smallest_loss(r[i], correct[i]), rtol=1e-6, atol=1e-6)
    images = jax.jit(jax.vmap(MMCEScaling().apply))(params, np.sort(r, 1))
    assert np.all(jnp.diff(images[:4], axis=1) >= 0)
    np.testing.assert_allclose(images[6], 0.5, atol=1e-6)


BINS = HistogramBinning(10)


def in_intervals(r, correct, new):
    """Counts, and new confidences by a loop over the samples."""
    place = lambda c: max(int(np.ceil(10 * c)), 1) - 1  # noqa: E731
    members = [[] for _ in range(10)]
    for one, c in zip(r, correct, strict=True):
        members[place(one)].append(c)
    images = [np.mean(members[place(c)]) if members[place(c)] else c for c in new]
    return [len(group) for group in members], images


def test_histogram_binning_against_a_loop():
    confidences = RNG.beta(3, 1, (9, 40))
    confidences[:5] = confidences[:5].round(1)  # edges
    correct = RNG.uniform(size=confidences.shape) < confidences
    new = np.concatenate([RNG.uniform(size=(9, 40)), np.tile([0, 0.1, 0.3, 1], (9, 1))], 1)
    params = jax.jit(jax.vmap(BINS.fit))(confidences, correct)
    images = jax.jit(jax.vmap(BINS.apply))(params, new)
    for i, data in enumerate(zip(confidences, correct, new, strict=True)):
        counts, expected = in_intervals(*data)
        assert params.counts[i].tolist() == counts
        np.testing.assert_allclose(images[i], expected, rtol=1e-14)
    assert np.array_equal(np.isnan(params.accuracies), params.counts == 0)
    edges = np.append(confidences[8], np.linspace(0, 1, 11))
    bins = np.asarray(estimators.UniformBins(10)(Bernoulli(edges)))
    _, ranks = np.unique(interval_index(edges, 10), return_inverse=True)
    np.testing.assert_array_equal(ranks, bins.max() - bins)


def test_confidences_without_calibration_samples_are_kept():
    params = BINS.fit(np.array([0.85, 0.95]), np.array([1, 0]))
    new = np.array([0.82, 0.5, 0.99, 0.0])
    with pytest.warns(UserWarning, match="HistogramBinning: 2 of 4 confidences .* were kept") as w:
        images = BINS.apply(params, new)
    assert w[0].filename == __file__
    assert images.tolist() == [1, 0.5, 0, 0]
    assert np.array_equal(jax.jit(BINS.apply)(params, new), images)  # without a warning
    with warnings.catch_warnings(action="error"):
        BINS.apply(params, new[[0, 2]])
    gradient = jax.jit(jax.grad(lambda new: jnp.vdot(BINS.apply(params, new), new**0)))(new)
    assert gradient.tolist() == [0, 1, 0, 1]
    method = HistogramBinning(2)
    params = method.fit(Categorical(np.full((3, 3), 1 / 3)), np.array([0, 1, 2]))
    with pytest.warns(UserWarning, match="HistogramBinning: 1 of 6 confidences") as w:
        method.apply(params, Categorical(np.array([[0.8, 0.1, 0.1], [0.4, 0.3, 0.3]])))
    assert w[0].filename == __file__


STEPS = IsotonicRegression(smooth=False)


def cascade():
    """Blocks of increasing accuracies, all fractions of small denominators, then zeros.

    From the right they are pooled one after the other: the largest number of rounds.
    """
    fractions = sorted({Fraction(a, b) for b in range(1, 6) for a in range(1, b)})
    correct = []
    for f in fractions:
        correct += [1] * f.numerator + [0] * (f.denominator - f.numerator)
    return np.array(correct + [0] * (80 - len(correct)))


def test_isotonic_regression_against_scikit_learn():
    """With many ties, few, and none; increasing, constant and decreasing accuracies; weights."""
    confidences = RNG.uniform(size=(30, 80))
    for i in range(30):
        if i % 3:
            confidences[i] = confidences[i].round(i % 3)
    accuracies = np.stack([confidences**2, 0 * confidences + 0.6, 1 - confidences])
    correct = RNG.uniform(size=(30, 80)) < accuracies[np.arange(30) // 10, np.arange(30)]
    correct[0], correct[1] = 1, 0
    confidences[2], correct[2] = np.linspace(0.2, 0.9, 80), cascade()
    weights = np.where(np.arange(30)[:, None] % 2, RNG.uniform(0.1, 2, (30, 80)), 1)
    weights[5::6] = np.arange(80) % 3
    new = np.concatenate([np.tile(NEW, (30, 1)), confidences], 1)

    def images(r, correct, weights, new):
        return STEPS.apply(STEPS.fit(r, correct, weights), new)

    found = jax.jit(jax.vmap(images))(confidences, correct, weights, new)
    for i in range(30):
        model = Isotonic(out_of_bounds="clip").fit(confidences[i], correct[i], weights[i])
        np.testing.assert_allclose(found[i], model.predict(new[i]), atol=1e-12)
    for confidence, outcome in ((0.3, 0), (1.0, 1)):
        one = STEPS.fit(np.array([confidence]), np.array([outcome]))
        assert np.all(STEPS.apply(one, NEW) == outcome)


def test_slopes_of_isotonic_regression():
    """By new confidences, zero outside; and by one of the calibration samples."""
    r, correct = jnp.array([0.2, 0.4, 0.4, 0.5, 0.7]), np.array([0, 1, 0, 0, 1])
    new = jnp.array([0.1, 0.3, 0.45, 0.55, 0.8])
    images = jax.jit(lambda r, new: STEPS.apply(STEPS.fit(r, correct), new))
    by_samples, by_new = jax.jacrev(images, (0, 1))(r, new)
    slopes = [0, (1 / 3) / 0.2, 0, (2 / 3) / 0.2, 0]
    np.testing.assert_allclose(by_new, np.diag(slopes), atol=1e-12)
    step = jnp.zeros(5).at[3].set(1e-6)
    numeric = (images(r + step, new) - images(r - step, new)) / 2e-6
    np.testing.assert_allclose(by_samples[:, 3], numeric, atol=1e-8)


def test_subnormal_confidences_count_as_zero():
    """JAX sorts them so; naive Bayes predicts them."""
    confidences, correct = np.array([1e-40, 0.0, 0.5, 0.9], np.float32), np.array([0, 1, 0, 1])
    params = STEPS.fit(confidences, correct)
    expected = STEPS.fit(np.array([0.0, 0.0, 0.5, 0.9], np.float32), correct)
    np.testing.assert_array_equal(STEPS.apply(params, confidences), expected.values)
    below = jnp.array([3e-40, 1e-40, 0.0, -2e-40], jnp.float32)[None]
    forecast = Quantiles.sorted(jnp.array([0.2, 0.4, 0.6, 0.8], jnp.float32), below)
    assert 0 < scores.pinball_loss(forecast, np.ones(1, np.float32)) < 1


def test_smooth_isotonic_regression():
    """Mixed with the uniform distribution, of weights as numbers of copies."""
    for weights, n in ((None, 200), (WEIGHTS, WEIGHTS.sum())):
        data = R, TARGETS["curved"], weights
        smooth = IsotonicRegression()
        found = smooth.apply(smooth.fit(*data), NEW)
        expected = (n * STEPS.apply(STEPS.fit(*data), NEW) + 1) / (n + 2)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert found.min() > 0
        assert found.max() < 1


N, M = 150, 4
PROBS = RNG.dirichlet(np.full(M, 0.7), N)
LABELS = (PROBS.cumsum(1) < RNG.uniform(size=(N, 1))).sum(1)
ALL = {
    "isotonic": IsotonicRegression(),
    "quadratic": QuadraticScaling(),
    "venn-abers": VennAbers(),
    "histogram": HistogramBinning(3),
    "platt": PlattScaling(),
    "steps": IsotonicRegression(smooth=False),
    "smooth": PlattScaling(smooth_targets=True),
    "beta": BetaCalibration(),
}


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.slow] * (i > 2)) for i, x in enumerate(ALL)]
)
def test_each_class_against_the_rest(name):
    method, columns, weights = ALL[name], [], np.arange(N) % 3
    new = RNG.dirichlet(np.full(M, 0.7), 40)
    for c in range(M):
        params = method.fit(PROBS[:, c], c == LABELS, weights)
        columns.append(np.asarray(method.apply(params, new[:, c])))
    expected = np.stack(columns, 1)
    params = method.fit(Categorical(PROBS), LABELS, weights)
    assert isinstance(params, ClassWiseParams)
    found = method.apply(params, Categorical(new)).probs
    np.testing.assert_allclose(found, expected / expected.sum(1, keepdims=True), atol=1e-6)


def test_other_predictions_of_classes():
    method = IsotonicRegression()
    params = method.fit(Categorical(PROBS), LABELS)
    expected = method.apply(params, Categorical(PROBS)).probs
    logits = CategoricalLogits(np.log(PROBS))
    mixture = Mixture(None, Categorical(np.stack([PROBS, PROBS], 1)))
    for predictions in (logits, mixture):
        ours = method.apply(method.fit(predictions, LABELS), predictions).probs
        np.testing.assert_allclose(ours, expected, atol=1e-9)
    binary = method.fit(Bernoulli(PROBS[:, 0]), LABELS % 2)
    assert method.apply(binary, Bernoulli(PROBS[:, 0])).shape == (N,)  # confidences, as ever
    with pytest.raises(ValueError, match="params: expected params of 2 classes, got params of 4"):
        method.apply(params, Categorical(np.stack([PROBS[:, 0], 1 - PROBS[:, 0]], 1)))


def test_rows_without_any_class_are_uniform():
    method = HistogramBinning(2)
    train = Categorical(np.array([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05]]))
    new = Categorical(np.array([[0.4, 0.3, 0.3], [0.8, 0.1, 0.1]]))
    found = method.apply(method.fit(train, np.array([0, 1])), new).probs
    np.testing.assert_allclose(found, [[1 / 3] * 3, [1, 0, 0]])
