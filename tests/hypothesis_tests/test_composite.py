"""The composite test against a loop that redraws, fits and evaluates one data set at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from calibjax import distributions as D
from calibjax import kernels as K
from calibjax import record
from calibjax.distances import Euclidean, TotalVariation, Wasserstein
from calibjax.hypothesis_tests import composite_calibration_test
from calibjax.kernels.residuals import Residual
from calibjax.lenses import OneVersusRest
from calibjax.recalibration import (
    AffineScaling,
    IsotonicRegression,
    PlattScaling,
    TemperatureScaling,
)
from calibjax.recalibration.numbers import AffineMap

KEYS = jax.random.split(jax.random.key(0), 4)
N = 40
LOGITS = 1.5 * jax.random.normal(KEYS[0], (N,))
BINARY = D.Bernoulli(jax.nn.sigmoid(LOGITS))
LABELS = D.sample_targets(KEYS[1], D.Bernoulli(jax.nn.sigmoid(LOGITS / 2)))
NORMAL = D.Normal(jnp.linspace(0, 1, N), jnp.full(N, 0.1))


def _statistic(k_p, k_y, before, after, labels):
    """Biased SKCE by a matrix of kernels on original and residuals of repaired probabilities."""
    p, q = np.asarray(before.probs), np.asarray(after.probs)
    residuals = np.stack([q - labels, labels - q], 1) / np.sqrt(np.stack([1 - q, q], 1) + k_y)
    return np.mean(np.exp(-np.abs(p[:, None] - p) / k_p) * (residuals @ residuals.T))


def test_same_as_a_loop_over_redraws():
    method, scale = PlattScaling(), 0.3
    kernel = K.TensorProduct(K.Exponential(scale, TotalVariation()), K.PearsonResidual(0.05))
    found = composite_calibration_test(
        KEYS[2], method, BINARY, LABELS, kernels=kernel, num_draws=5, batch_size=2
    )
    fitted = method.apply(method.fit(BINARY, LABELS), BINARY)
    expected = _statistic(scale, 0.05, BINARY, D.Bernoulli(fitted), np.asarray(LABELS))
    assert_allclose(found.components.biased.statistic[0], expected, rtol=1e-3)
    draws = []
    for key in jax.random.split(KEYS[2], 5):
        labels = D.sample_targets(key, D.Bernoulli(fitted))
        again = method.apply(method.fit(BINARY, labels), BINARY)
        draws.append(_statistic(scale, 0.05, BINARY, D.Bernoulli(again), np.asarray(labels)))
    assert_allclose(found.components.biased.null_samples[:, 0], draws, rtol=1e-3)


def _of_pools(seen, pools):
    """Biased SKCE of pools with the target first, by loops over pairs of samples."""
    k = lambda x, y: np.exp(-0.5 * np.subtract.outer(x, y) ** 2)  # noqa: E731
    total = 0
    for own, a in zip(seen, pools, strict=True):
        for other, b in zip(seen, pools, strict=True):
            near = np.exp(-np.sqrt(np.mean((np.sort(own) - np.sort(other)) ** 2)))
            values = k(a, b)
            total += near * (values[0, 0] - values[0].mean() - values[:, 0].mean() + values.mean())
    return total / len(pools) ** 2


def _spread_of_pools(pools):
    """The mean on the diagonal, and its mean over which of the values is the target."""
    k = np.exp(-0.5 * (pools[:, :, None] - pools[:, None]) ** 2)
    values = 1 - 2 * k.mean(2) + k.mean((1, 2), keepdims=True)[:, :, 0]
    return values[:, 0].mean(), values.mean()


@pytest.mark.parametrize("unit", [1e-7, 1.0])
def test_ensembles_by_a_loop(unit):
    """It is redrawn which of the repaired members and the target is the target."""
    random, n, m = np.random.default_rng(0), 12, 3
    values, targets = random.normal(size=(n, m)), 1.5 * random.normal(size=n) + 0.5
    kernel = K.TensorProduct(K.Exponential(unit, Wasserstein()), K.SquaredExponential(unit))
    method = AffineScaling()
    found = composite_calibration_test(
        KEYS[2], method, D.Ensemble(unit * values), unit * targets, kernels=kernel, num_draws=5
    )

    def repaired(members, own):
        members = D.Ensemble(members)
        after = method.apply(method.fit(members, own), members)
        return np.concatenate([np.asarray(own)[:, None], after.values], 1)

    first = repaired(values, targets)
    draws, spreads = [], []
    for key in jax.random.split(KEYS[2], 5):
        pools = first.copy()
        for i, j in enumerate(jax.random.randint(key, (n,), 0, m + 1)):
            pools[i, [0, j]] = pools[i, [j, 0]]
        again = repaired(pools[:, 1:], pools[:, 0])
        draws.append(_of_pools(first, again))
        spreads.append(_spread_of_pools(again))
    biased, spread = found.components.biased, found.components.dispersion
    # The observed one is fitted again, too: to repaired members, which changes nothing.
    assert_allclose(biased.statistic[0], _of_pools(first, first), rtol=1e-6)
    assert_allclose(biased.null_samples[:, 0], draws, rtol=1e-6)
    observed, expected = np.transpose(spreads)
    own, of_fit = _spread_of_pools(first)
    assert_allclose(spread.statistic[0], own, rtol=1e-6)
    draws = observed - expected + of_fit
    assert_allclose(spread.null_samples[:, 0], draws, rtol=1e-6)


def test_ensembles_that_become_distributions():
    """Targets are redrawn from what the recalibration returns."""

    @record
    class Smooth:
        def fit(self, predictions, targets, weights=None):
            return jnp.sqrt(jnp.average((targets - predictions.values.mean(1)) ** 2))

        def apply(self, params, predictions):
            means = predictions.values.mean(1)
            return D.Normal(means, jnp.full_like(means, params))

    random = np.random.default_rng(0)
    values = random.normal(size=(N, 1)) + random.normal(size=(N, 5))
    kernel = K.TensorProduct(K.Exponential(1.0, Wasserstein()), K.SquaredExponential(1.0))
    for targets, is_found in ((values[:, 0], False), (values[:, 0] + 1, True)):
        test = composite_calibration_test(
            KEYS[2], Smooth(), D.Ensemble(values[:, 1:]), targets, kernels=kernel, num_draws=99
        )
        assert (test.pvalue <= 0.05) == is_found


def _norms(q, label, kernel):
    """Squared norms of the residuals of a label, as a kernel of the test below sees them."""
    unit = np.eye(q.shape[1])[label]
    if kernel.startswith("class"):
        c = int(kernel[-1])
        return 2 * (unit[c] - q[:, c]) ** 2
    if kernel == "temperature":
        logs = np.log(q)
        return (logs[:, label] - np.sum(q * logs, 1)) ** 2
    return np.sum((unit - q) ** 2 / (q + 0.05), 1)


@pytest.mark.parametrize(("num_classes", "last"), [(2, 1.0), (2, 0.1), (3, 1.0), (70, 1.0)])
def test_dispersion_is_measured_from_what_each_fit_expects(num_classes, last):
    """By loops over redraws and classes; what the fit to the observed labels expects is added."""
    logits = jax.random.normal(KEYS[0], (N, num_classes))
    predictions, method = D.CategoricalLogits(2 * logits), TemperatureScaling()
    labels = D.sample_targets(KEYS[1], D.CategoricalLogits(logits))
    weights = jnp.where(jnp.arange(N) < 30, 1.0, last)
    near = K.Exponential(0.3, TotalVariation())
    kernels = {
        "near predictions": K.TensorProduct(near, K.PearsonResidual(0.05)),
        "all predictions": K.TensorProduct(K.Constant(), K.PearsonResidual(0.05)),
        "temperature": K.TensorProduct(near, K.Fisher(method)),
        "class 0": (OneVersusRest(0), K.TensorProduct(near, K.White())),  # both in one loop
        "class 1": (OneVersusRest(1), K.TensorProduct(near, K.White())),
    }
    test = composite_calibration_test(
        KEYS[2], method, predictions, labels, kernels=kernels, weights=weights, num_draws=5
    )

    def fitted(labels):
        return method.apply(method.fit(predictions, labels, weights), predictions)

    drawn = [D.sample_targets(key, fitted(labels)) for key in jax.random.split(KEYS[2], 5)]
    for name in kernels:
        observed, expected = [], []
        for y in (labels, *drawn):
            q = np.asarray(fitted(y).class_probs)
            norms = np.stack([_norms(q, c, name) for c in range(num_classes)], 1)
            shares = np.eye(num_classes)[y], q
            of_data, of_fit = (np.average(np.sum(x * norms, 1), weights=weights**2) for x in shares)
            observed.append(of_data)
            expected.append(of_fit)
        spread = test.components.of_kernel(name).dispersion
        unit = spread.statistic / observed[0]
        if name != "temperature":  # which is in units of its information
            assert_allclose(unit, 1, rtol=1e-3)
        draws = (np.array(observed) - expected + expected[0])[1:]
        assert_allclose(spread.null_samples, unit * draws, rtol=1e-3)


def test_kernels_without_the_expectation_are_not_corrected():
    """A user's kernel need not have that of k(Z, Z)."""

    @record
    class Own(Residual):
        def residual(self, p, y):
            return jnp.atleast_1d(y - p.probs)

    kernels = [K.TensorProduct(K.Exponential(0.5), Own())]
    test = composite_calibration_test(
        KEYS[2], TemperatureScaling(), BINARY, LABELS, kernels=kernels, num_draws=5
    )
    draws = [getattr(test.components, x).null_samples for x in ("biased", "unbiased", "dispersion")]
    assert_allclose(draws[2], N * draws[0] - (N - 1) * draws[1], rtol=1e-4)


def test_what_the_fit_makes_zero_has_no_say():
    """The score of the fitted temperature is zero in every redraw, even if its scatter is not."""
    kernels = K.default_kernels(BINARY)["log-odds"]
    test = composite_calibration_test(
        KEYS[2], TemperatureScaling(), BINARY, LABELS, kernels=kernels, num_draws=19
    )
    slope, intercept = (test.components.of_kernel(name) for name in ("slope", "intercept"))
    assert slope.dispersion.statistic > 0
    assert np.ptp(slope.dispersion.null_samples) == np.ptp(slope.unbiased.null_samples) == 0
    assert np.ptp(intercept.dispersion.null_samples) > 0
    alone = composite_calibration_test(
        KEYS[2], TemperatureScaling(), BINARY, LABELS, kernels=kernels["intercept"], num_draws=19
    )
    assert_allclose(test.estimate[0], alone.estimate[0], rtol=1e-5)
    assert test.pvalue == alone.pvalue


def test_names_what_is_left():
    """A shift that changes its sign is not repaired by another scale."""
    wrong = NORMAL.loc + 0.15 * jnp.where(jnp.arange(N) < 20, 1, -1) + 0.1 * (LOGITS / 1.5)
    groups = K.default_kernels(NORMAL)
    few = {group: groups[group] for group in ("directions", "normal scores 2")}
    found = composite_calibration_test(KEYS[2], AffineScaling(), NORMAL, wrong, kernels=few)
    assert found.pvalue < 0.02
    assert "shift by location" in str(found)
    squares = dict(zip(found.components.kernel_names, found.components.squares, strict=True))
    assert squares["directions, shift by location"]
    assert not squares["normal scores 2, all predictions"]


@pytest.mark.slow
def test_a_fit_is_enough_for_predictions_with_features():
    right = NORMAL.loc + 0.2 * (LOGITS / 1.5) + 0.1
    carrying = D.with_features(NORMAL, NORMAL.loc)
    assert composite_calibration_test(KEYS[2], AffineScaling(), carrying, right).pvalue > 0.05


def test_redraws_without_a_fit_are_named():
    """Of seven samples, some outcomes are separated by a threshold."""
    predictions = D.Bernoulli(jnp.linspace(0.6, 0.9, 7))
    labels = jnp.where(jnp.arange(7) % 4 == 1, 0, 1)
    kernel = K.TensorProduct(K.Exponential(0.5), K.PearsonResidual())
    with pytest.warns(UserWarning, match="PlattScaling could not be fitted to these"):
        composite_calibration_test(
            KEYS[2], PlattScaling(), predictions, labels, kernels=kernel, num_draws=19
        )


def test_weighted_members_are_not_exchangeable():
    weighted = D.Ensemble(jnp.ones((N, 3)), jnp.full((N, 3), 1 / 3))
    with pytest.raises(ValueError, match="predictions.weights: expected None"):
        composite_calibration_test(KEYS[2], AffineScaling(), weighted, jnp.ones(N))


def _rate(method, cases, n, num_sets):
    """Share of p-values up to 0.05."""
    pvalues = []
    for i in range(num_sets):
        predictions, targets = cases(jax.random.key(1000 * n + i), n)
        test = composite_calibration_test(jax.random.key(i), method, predictions, targets)
        pvalues.append(float(test.pvalue))
    return np.mean(np.array(pvalues) <= 0.05)


def _logits(key, n):
    return 1.5 * jax.random.normal(key, (n,))


def _binary(key, n):
    keys = jax.random.split(key)
    x = _logits(keys[0], n)
    return D.Bernoulli(jax.nn.sigmoid(x)), D.sample_targets(
        keys[1], D.Bernoulli(jax.nn.sigmoid(x / 1.5))
    )


def _wave(key, n):
    keys = jax.random.split(key)
    p = jax.nn.sigmoid(_logits(keys[0], n))
    truth = jnp.clip(p + 0.2 * jnp.sin(6 * jnp.pi * p), 0, 1)
    return D.Bernoulli(p), D.sample_targets(keys[1], D.Bernoulli(truth))


def _numbers(make):
    def case(key, n):
        keys = jax.random.split(key, 3)
        predictions = make(jax.random.uniform(keys[0], (n,)))
        params = AffineMap(jnp.array(0.3), jnp.array(1.4))
        return predictions, D.sample_targets(keys[1], AffineScaling().apply(params, predictions))

    return case


def _members(key, n):
    keys = jax.random.split(key)
    predictions, targets = _numbers(lambda x: D.Normal(10 * x, 1 + x / 3))(keys[0], n)
    noise = jax.random.normal(keys[1], (n, 11))
    return D.Ensemble(predictions.loc[:, None] + predictions.scale[:, None] * noise), targets


def _bent(key, n):
    """The sign of the error depends on the prediction."""
    ensembles, targets = _members(key, n)
    return ensembles, targets + 1.5 * jnp.sign(jnp.mean(ensembles.values, 1) - 5)


def _classes(key, n):
    keys = jax.random.split(key)
    logits = jnp.log(jax.random.dirichlet(keys[0], jnp.full(10, 0.5), (n,)))
    predictions = D.CategoricalLogits(logits)
    return predictions, D.sample_targets(keys[1], TemperatureScaling().apply(1.5, predictions))


_LEVELS = {
    "binary": (TemperatureScaling(), _binary),
    "classes": (TemperatureScaling(), _classes),
    "normal": (AffineScaling(), _numbers(lambda x: D.Normal(x, jnp.full_like(x, 0.1)))),
    "gamma": (AffineScaling(), _numbers(lambda x: D.Gamma(1 + 3 * x, jnp.ones_like(x)))),
    "ensembles": (AffineScaling(), _members),
    "isotonic": (IsotonicRegression(smooth=False), _binary),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _LEVELS)
def test_level(name):
    """At most .05 and 2.5 standard errors of 200 data sets."""
    assert _rate(*_LEVELS[name], 64, 200) <= 0.09


@pytest.mark.slow
@pytest.mark.parametrize("m", [2, 5])
def test_level_of_skewed_members(m):
    """Exponential members, whose scales differ; the same bound."""

    def data(key, n):
        keys = jax.random.split(key, 3)
        scale = jnp.exp(0.5 * jax.random.normal(keys[0], (n, 1)))
        drawn = scale * jax.random.exponential(keys[1], (n, m + 1))
        means = drawn[:, 1:].mean(1, keepdims=True)
        return D.Ensemble(means + 1.5 * (drawn[:, 1:] - means)), drawn[:, 0]

    assert _rate(AffineScaling(), data, 64, 200) <= 0.09


@pytest.mark.slow
def test_power_where_maps_are_monotone():
    """The wave of the guide is no monotone map: found in at least 45 % of data sets."""
    assert _rate(IsotonicRegression(smooth=False), _wave, 256, 100) >= 0.45


@pytest.mark.slow
def test_power_of_ensembles():
    assert _rate(AffineScaling(), _bent, 64, 100) >= 0.8


def test_normal_scores_are_those_of_the_kernels():
    """Sums of kernels compute their own, one kernel has them from the test: half of the sum."""
    predictions = D.Uniform(jnp.linspace(0, 1, 20), jnp.linspace(0, 1, 20) + 2)
    targets = D.sample_targets(KEYS[0], predictions)
    score, near = K.NormalScore(K.SquaredExponential(1.0)), K.SquaredExponential(1.0, Euclidean())
    kernels = {"alone": K.TensorProduct(near, score), "both": K.TensorProduct(near, score + score)}
    data = AffineScaling(), predictions, targets
    found = composite_calibration_test(KEYS[1], *data, kernels=kernels, num_draws=19)
    alone, both = (found.components.of_kernel(name).biased for name in kernels)
    assert_allclose(2 * alone.statistic, both.statistic, rtol=1e-4)
    assert_allclose(2 * alone.null_samples, both.null_samples, rtol=1e-4)
