"""The composite test against a loop that redraws, fits and evaluates one data set at a time."""

import functools

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
from calibjax.recalibration import (
    AffineScaling,
    PlattScaling,
    TemperatureScaling,
)
from calibjax.reductions import OneVersusRest
from tests import oracles

KEYS = jax.random.split(jax.random.key(0), 4)
N = 40
LOGITS = 1.5 * jax.random.normal(KEYS[0], (N,))
BINARY = D.Bernoulli(jax.nn.sigmoid(LOGITS))
LABELS = D.sample_targets(KEYS[1], D.Bernoulli(jax.nn.sigmoid(LOGITS / 2)))


def composite(method, *data, key=KEYS[2], num_draws=5, **options):
    return composite_calibration_test(key, method, *data, num_draws=num_draws, **options)


def _statistic(k_p, k_y, before, after, labels):
    """Biased SKCE by a matrix of kernels on original and residuals of repaired probabilities."""
    p, q = np.asarray(before.probs), np.asarray(after.probs)
    residuals = np.stack([q - labels, labels - q], 1) / np.sqrt(np.stack([1 - q, q], 1) + k_y)
    return np.mean(np.exp(-np.abs(p[:, None] - p) / k_p) * (residuals @ residuals.T))


def test_same_as_a_loop_over_redraws():
    method, scale = PlattScaling(), 0.3
    kernel = K.TensorProduct(K.Exponential(scale, TotalVariation()), K.PearsonResidual(0.05))
    found = composite(method, BINARY, LABELS, kernels=kernel).components.biased
    repaired = lambda y: D.Bernoulli(method.apply(method.fit(BINARY, y), BINARY))  # noqa: E731
    keys = jax.random.split(KEYS[2], 5)
    drawn = [LABELS, *(D.sample_targets(key, repaired(LABELS)) for key in keys)]
    expected = [_statistic(scale, 0.05, BINARY, repaired(y), np.asarray(y)) for y in drawn]
    assert_allclose(np.r_[found.statistic[0], found.null_samples[:, 0]], expected, rtol=1e-3)


def _spread_of_pools(pools):
    """The mean on the diagonal, and its mean over which of the values is the target."""
    each = [oracles.pool_matrix(np.roll(pools, i, 1)).diagonal() for i in range(pools.shape[1])]
    return np.mean(each[0]), np.mean(each)


@pytest.mark.parametrize("unit", [1e-7, 1.0])
def test_ensembles_by_a_loop(unit):
    """It is redrawn which of the repaired members and the target is the target."""
    random, n, m = np.random.default_rng(0), 12, 3
    values, targets = random.normal(size=(n, m)), 1.5 * random.normal(size=n) + 0.5
    kernel = K.TensorProduct(K.Exponential(unit, Wasserstein()), K.SquaredExponential(unit))
    method = AffineScaling()
    found = composite(method, D.Ensemble(unit * values), unit * targets, kernels=kernel)

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
        draws.append(oracles.pool_matrix(again, first).mean())
        spreads.append(_spread_of_pools(again))
    biased, spread = found.components.biased, found.components.dispersion
    # The observed one is fitted again, too: to repaired members, which changes nothing.
    assert_allclose(biased.statistic[0], oracles.pool_matrix(first).mean(), rtol=1e-6)
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
        ensembles = D.Ensemble(values[:, 1:])
        test = composite(Smooth(), ensembles, targets, kernels=kernel, num_draws=99)
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
    test = composite(method, predictions, labels, kernels=kernels, weights=weights)

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
    test = composite(TemperatureScaling(), BINARY, LABELS, kernels=kernels)
    draws = [getattr(test.components, x).null_samples for x in ("biased", "unbiased", "dispersion")]
    assert_allclose(draws[2], N * draws[0] - (N - 1) * draws[1], rtol=1e-4)


def test_what_the_fit_makes_zero_has_no_say():
    """The score of the fitted temperature is zero in every redraw, even if its scatter is not."""
    kernels = K.default_kernels(BINARY)["log-odds"]
    run = functools.partial(composite, TemperatureScaling(), BINARY, LABELS, num_draws=19)
    test, alone = run(kernels=kernels), run(kernels=kernels["intercept"])
    slope, intercept = (test.components.of_kernel(name) for name in ("slope", "intercept"))
    assert slope.dispersion.statistic > 0
    assert np.ptp(slope.dispersion.null_samples) == np.ptp(slope.unbiased.null_samples) == 0
    assert np.ptp(intercept.dispersion.null_samples) > 0
    assert_allclose(test.estimate[0], alone.estimate[0], rtol=1e-5)
    assert test.pvalue == alone.pvalue


def test_redraws_without_a_fit_are_named():
    """Of seven samples, some outcomes are separated by a threshold."""
    predictions = D.Bernoulli(jnp.linspace(0.6, 0.9, 7))
    labels = jnp.where(jnp.arange(7) % 4 == 1, 0, 1)
    kernel = K.TensorProduct(K.Exponential(0.5), K.PearsonResidual())
    with pytest.warns(UserWarning, match="PlattScaling could not be fitted to these"):
        composite(PlattScaling(), predictions, labels, kernels=kernel, num_draws=19)


def test_normal_scores_are_those_of_the_kernels():
    """Sums of kernels compute their own, one kernel has them from the test: half of the sum."""
    predictions = D.Uniform(jnp.linspace(0, 1, 20), jnp.linspace(0, 1, 20) + 2)
    targets = D.sample_targets(KEYS[0], predictions)
    score, near = K.NormalScore(K.SquaredExponential(1.0)), K.SquaredExponential(1.0, Euclidean())
    kernels = {"alone": K.TensorProduct(near, score), "both": K.TensorProduct(near, score + score)}
    data = AffineScaling(), predictions, targets
    found = composite(*data, kernels=kernels, num_draws=19)
    alone, both = (found.components.of_kernel(name).biased for name in kernels)
    assert_allclose(2 * alone.statistic, both.statistic, rtol=1e-4)
    assert_allclose(2 * alone.null_samples, both.null_samples, rtol=1e-4)
