"""Weights of calibration estimation functions and of their risks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import estimators, kernels, record, risk
from calibjax.distances import SquaredEuclidean
from calibjax.distributions import Bernoulli, Categorical
from calibjax.risk.estimation import losses_of_factors
from tests.weights.laws import WEIGHTS, N, check_weights

_random = np.random.default_rng(8)
CONFIDENCES = _random.uniform(0.05, 0.95, size=N)
CORRECT = (_random.uniform(size=N) < 0.2 + 0.5 * CONFIDENCES).astype(int)
CLASSES = Categorical(_random.dirichlet(np.ones(3), N))
LABELS = _random.integers(0, 3, N)
NEW = np.linspace(0.02, 0.98, 7)
KERNEL = kernels.SquaredExponential(0.3)
FUNCTIONS = {
    "Binning": (risk.Binning(3), 3, {}),
    "DebiasedBinning": (risk.DebiasedBinning(2), 2, {"copies": False}),
    "KernelDensity": (risk.KernelDensity(), 0.1, {}),
    # Eigenvalues of 0, which copies and weights of 0 make, have no derivatives.
    "KernelRidge": (risk.KernelRidge(KERNEL, rank=100), 1e-3, {"differentiable": False}),
    "TwoStepKernelRidge": (
        risk.TwoStepKernelRidge(KERNEL, rank=100),
        1e-2,
        {"differentiable": False},
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_laws_of_functions(name):
    function, parameter, options = FUNCTIONS[name]

    def fit(p, y, w):
        params = function.fit(p, y, parameter, weights=w)
        return function.evaluate(params, NEW, NEW)

    check_weights(fit, CONFIDENCES, CORRECT, rtol=1e-8 if "Ridge" in name else 1e-11, **options)


def _values(p, q):
    return (p[:, None] - 0.4) * (q[None] - 0.4)


@pytest.mark.parametrize("values", ["matrix", "function"])
def test_laws_of_risks(values):
    def estimate(function):
        def call(p, y, w):
            h = _values(jnp.asarray(p), jnp.asarray(p)) if values == "matrix" else _values
            return function(h, p, y, weights=w)

        return call

    check_weights(estimate(risk.estimation_risk), CONFIDENCES, CORRECT, copies=False)
    error = risk.estimation_risk_standard_error
    check_weights(estimate(error), CONFIDENCES, CORRECT, copies=False)


def _losses(p, y):
    errors = p - y
    return (np.outer(errors, errors) - _values(p, p)) ** 2


def test_risks_by_their_formulas():
    losses, w = _losses(CONFIDENCES, CORRECT), WEIGHTS / 7
    pairs = np.outer(w, w) * (1 - np.eye(N))
    given = _values, CONFIDENCES, CORRECT
    found = risk.estimation_risk(*given, weights=w)
    np.testing.assert_allclose(found, (pairs * losses).sum() / pairs.sum(), rtol=1e-12)
    blocks = pairs * np.kron(np.eye(3), np.ones((4, 4)))
    found = risk.estimation_risk_block(*given, block_size=4, weights=w)
    np.testing.assert_allclose(found, (blocks * losses).sum() / blocks.sum(), rtol=1e-12)
    same = risk.estimation_risk_block(*given, block_size=4, weights=np.full(N, 0.3))
    np.testing.assert_allclose(same, risk.estimation_risk_block(*given, block_size=4), rtol=1e-12)


def test_risks_of_factors():
    """Few factors of many predictions take another way."""
    n = 60
    p, y = _random.uniform(size=n), _random.integers(0, 2, n)
    w = _random.lognormal(size=n)
    values = lambda p, q: _values(p, q) + 0.1  # noqa: E731
    left = np.stack([p - 0.4, np.full(n, 0.1)], 1)
    right = np.stack([p - 0.4, np.ones(n)], 1)
    u = jnp.asarray(w * w.sum() / (w**2).sum())
    errors = jnp.asarray(p - y)[:, None]
    losses = losses_of_factors(errors, jnp.asarray(left), jnp.asarray(right), u)
    expected = risk.estimation_risk(values, p, y, weights=w)
    np.testing.assert_allclose(np.average(losses, weights=w), expected, rtol=1e-10)


def test_the_standard_error_is_the_spread_over_data_sets():
    n, repetitions = 60, 1500
    keys = jax.random.split(jax.random.key(0), repetitions)

    @jax.jit
    @jax.vmap
    def simulate(key):
        first, second, third = jax.random.split(key, 3)
        p = jax.random.uniform(first, (n,))
        y = jax.random.bernoulli(second, p**2).astype(float)
        w = jnp.exp(0.7 * jax.random.normal(third, (n,)) + p)  # which say something of the values
        given = _values, p, y
        error = risk.estimation_risk_standard_error(*given, weights=w)
        return risk.estimation_risk(*given, weights=w), error

    risks, errors = simulate(keys)
    np.testing.assert_allclose(np.sqrt(np.mean(errors**2)), np.std(risks), rtol=0.12)


def test_bins_are_those_of_ece():
    predictions, w = Bernoulli(CONFIDENCES), WEIGHTS + 0.25
    given = {"binning": estimators.UniformBins(3), "weights": w}
    mean = lambda f: np.average(  # noqa: E731
        f.diagonal(f.fit(CONFIDENCES, CORRECT, 3, weights=w), CONFIDENCES), weights=w
    )
    expected = estimators.ece(predictions, CORRECT, distance=SquaredEuclidean(), **given)
    np.testing.assert_allclose(2 * mean(risk.Binning()), expected, rtol=1e-10)
    expected = estimators.debiased_squared_ece(predictions, CORRECT, **given)
    np.testing.assert_allclose(2 * mean(risk.DebiasedBinning()), expected, rtol=1e-10)


def test_kernel_density_is_that_of_the_estimator():
    w = WEIGHTS + 0.25
    params = risk.KernelDensity().fit(CLASSES, LABELS, 0.2, weights=w)
    expected = estimators.kde_calibration_error(CLASSES, LABELS, bandwidth=0.2, order=2, weights=w)
    np.testing.assert_allclose(np.average(params.leave_one_out(), weights=w), expected, rtol=1e-10)


def test_ridge_solves_the_weighted_problem():
    """Up to roots of rounding errors, from eigenvalues that are no more than these."""
    w, n = WEIGHTS + 0.25, N
    u, errors = np.diag(w * n / w.sum()), (CONFIDENCES - CORRECT)
    gram = lambda x, y: np.exp(-0.5 * ((x[:, None] - y) / 0.3) ** 2)  # noqa: E731
    K, k = gram(CONFIDENCES, CONFIDENCES), gram(NEW, CONFIDENCES)
    function = risk.TwoStepKernelRidge(KERNEL, rank=100)
    params = function.fit(CONFIDENCES, CORRECT, 0.01, weights=w)
    estimate = k @ np.linalg.solve(u @ K + 0.01 * n * np.eye(n), u @ errors)
    found = function.evaluate(params, NEW, NEW)
    np.testing.assert_allclose(found, np.outer(estimate, estimate), atol=1e-8)
    pairs, weights = np.kron(K, K), np.kron(u, u)
    function = risk.KernelRidge(KERNEL, rank=100)
    params = function.fit(CONFIDENCES, CORRECT, 1e-3, weights=w)
    system = weights @ pairs + 1e-3 * n**2 * np.eye(n**2)
    alpha = np.linalg.solve(system, weights @ np.kron(errors, errors))
    np.testing.assert_allclose(
        function.evaluate(params, NEW, NEW), (np.kron(k, k) @ alpha).reshape(7, 7), atol=1e-8
    )


def test_ridge_of_low_rank():
    n = 200
    p, y, w = _random.uniform(size=n), _random.integers(0, 2, n), _random.lognormal(size=n)
    for make in (risk.KernelRidge, risk.TwoStepKernelRidge):
        low, full = make(KERNEL), make(KERNEL, rank=n)
        found, expected = (f.fit(p, y, 1e-3, weights=w) for f in (low, full))
        assert len(found.points) < n
        found, expected = low.evaluate(found, NEW, NEW), full.evaluate(expected, NEW, NEW)
        np.testing.assert_allclose(found, expected, atol=1e-9)


def _data(n=80):
    p = _random.uniform(size=n)
    return p, (_random.uniform(size=n) < p**2).astype(int), _random.lognormal(size=n)


@pytest.mark.parametrize("function", [risk.Binning(), risk.KernelDensity()])
def test_cross_validation(function):
    p, y, w = _data()
    grid = np.array([2, 4]) if isinstance(function, risk.Binning) else np.array([0.1, 0.3])
    key = jax.random.key(0)
    result = risk.cross_validate(key, function, grid, p, y, num_folds=4, weights=w)
    for fold, members in enumerate(np.asarray(result.members)):
        rest = ~members
        for point, parameter in enumerate(grid):
            params = function.fit(p[rest], y[rest], parameter, weights=w[rest])
            values = functools.partial(function.evaluate, params)
            expected = risk.estimation_risk(values, p[members], y[members], weights=w[members])
            np.testing.assert_allclose(result.risks[fold, point], expected, rtol=1e-10)
    scaled = risk.cross_validate(key, function, grid, p, y, num_folds=4, weights=1e20 * w)
    np.testing.assert_allclose(scaled.risks, result.risks, rtol=1e-10)
    whole = risk.cross_validate(key, function, grid, p, y, num_folds=4)
    same = risk.cross_validate(key, function, grid, p, y, num_folds=4, weights=np.full(80, 3))
    np.testing.assert_allclose(same.risks, whole.risks, rtol=1e-10)
    seen = []
    on_fold = seen.append
    risk.cross_validate(key, function, grid, p, y, num_folds=4, weights=w, on_fold=on_fold)
    resume = seen[1]
    resumed = risk.cross_validate(
        key, function, grid, p, y, num_folds=4, weights=w, previous=resume
    )
    np.testing.assert_allclose(resumed.risks, result.risks, rtol=1e-12)
    with pytest.raises((TypeError, ValueError), match=r"previous.weights: expected"):
        risk.cross_validate(
            key, function, grid, p, y, num_folds=4, weights=w[::-1], previous=resume
        )


def test_differences_between_risks():
    p, y, w = _data()
    key, grid = jax.random.key(0), np.array([2])
    few, many = (
        risk.cross_validate(key, risk.Binning(), grid * k, p, y, num_folds=4, weights=w)
        for k in (1, 8)
    )
    found = risk.risk_difference(few, many)
    np.testing.assert_allclose(found.fold_differences, (few.risks - many.risks)[:, 0], rtol=1e-9)
    variances = []
    for members in np.asarray(few.members):
        u = w[members] * w[members].sum() / (w[members] ** 2).sum()
        n, losses = u.sum(), np.asarray(few.losses - many.losses)[0, members]
        changes = u * (losses - (u @ losses / n) * (n - u) / (n - 1))
        variances.append(4 * (n - 1) / n * (changes**2).sum() / (n - 2) ** 2)
    np.testing.assert_allclose(found.standard_error, np.sqrt(np.sum(variances)) / 4, rtol=1e-9)
    others = risk.cross_validate(key, risk.Binning(), grid, p, y, num_folds=4)
    with pytest.raises(ValueError, match="second.weights: expected"):
        risk.risk_difference(few, others)


def test_squared_calibration_error():
    p, y, w = _data(100)
    key, grid = jax.random.key(3), np.array([2, 4])
    found = risk.squared_calibration_error(key, risk.Binning(), grid, p, y, num_folds=4, weights=w)
    test, tuning = np.asarray(found.test), np.asarray(found.tuning)
    values = []
    for members in np.asarray(found.cross_validation.members):
        rest = tuning[~members]
        params = risk.Binning().fit(p[rest], y[rest], int(found.hyperparameter), weights=w[rest])
        values.append(np.asarray(risk.Binning().diagonal(params, p[test])))
    values, own = np.array(values), w[test]
    np.testing.assert_allclose(found.estimate, np.average(values.mean(0), weights=own), rtol=1e-10)
    mean, n = values.mean(0), own.sum() ** 2 / (own**2).sum()
    squares = (own**2 * (mean - np.average(mean, weights=own)) ** 2).sum() / own.sum() ** 2
    np.testing.assert_allclose(found.sampling_error, np.sqrt(squares * n / (n - 1)), rtol=1e-9)


@record
class _Own(risk.EstimationFunction):
    """A function of a user, which knows nothing of weights."""

    def fit(self, predictions, targets, hyperparameter):
        return jnp.mean(predictions - targets) * hyperparameter

    def factors(self, params, p):
        values = jnp.broadcast_to(params, (len(p), 1))
        return values, values


def test_functions_of_users_without_weights():
    p, y, w = _data()
    given = jax.random.key(0), _Own(), np.array([0.5, 1.0]), p, y
    assert np.isfinite(risk.cross_validate(*given).risk).all()
    expected = r"function.fit: expected a method .*weights=weights\), got fit\("
    with pytest.raises(TypeError, match=expected):
        risk.cross_validate(*given, weights=w)
    with pytest.raises(TypeError, match=expected):
        risk.squared_calibration_error(*given, weights=w)


def test_folds_without_samples_that_count():
    p, y, _ = _data(20)
    with pytest.raises(ValueError, match=r"weights: expected at least two positive .* in fold"):
        risk.cross_validate(
            jax.random.key(0), risk.Binning(), np.array([2]), p, y, weights=np.arange(20.0) // 14
        )
