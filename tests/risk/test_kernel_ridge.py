import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from calibjax import risk
from calibjax.distributions import Bernoulli, Categorical
from calibjax.kernels import SquaredExponential

FUNCTIONS = (risk.KernelRidge, functools.partial(risk.KernelRidge, two_step=True))
PENALTIES = np.array([10.0, 1e-2, 1e-5])


def rbf(xs, ys, length_scale=1.0):
    """Kernel values of rows of two NumPy arrays."""
    return np.exp(-0.5 * np.square(xs[:, None] - ys).sum(-1) / length_scale**2)


def direct(errors, matrix, columns, penalty):
    """h_kkr and h_ukkr by the solves of G24 eq. (28) and (32)."""
    n, t = columns.shape
    pairs = np.kron(matrix, matrix) + penalty * n**2 * np.eye(n**2)
    weights = np.linalg.solve(pairs, (errors @ errors.T).reshape(-1))
    estimates = errors.T @ np.linalg.solve(matrix + penalty * n * np.eye(n), columns)
    return (weights @ np.kron(columns, columns)).reshape(t, t), estimates.T @ estimates


def samples(num_classes, n=14, t=5, seed=0):
    """Training predictions, labels and other predictions; confidences for one class."""
    rng = np.random.default_rng(seed)
    if num_classes == 1:
        return rng.uniform(size=(n, 1)), rng.integers(0, 2, n), rng.uniform(size=(t, 1))
    probs = rng.dirichlet(np.ones(num_classes), n + t)
    return probs[:n], rng.integers(0, num_classes, n), probs[n:]


def as_predictions(probs):
    """Confidences, a batch of `Bernoulli`s, or of `Categorical`s."""
    if probs.shape[1] <= 2:
        return (lambda x: x, Bernoulli)[probs.shape[1] - 1](jnp.asarray(probs[:, -1]))
    return Categorical(jnp.asarray(probs))


def residuals(probs, labels):
    return probs - (labels[:, None] if probs.shape[1] == 1 else np.eye(probs.shape[1])[labels])


@jax.jit
def values(functions, predictions, labels, p, penalties):
    """Values of functions at other predictions for several penalties, [k, t, t] each."""

    def curve(function):
        params = function.fit(predictions, labels, 1.0)
        refitted = functools.partial(function.refit, params)
        return jax.lax.map(lambda c: function.evaluate(refitted(c), p, p), penalties)

    return tuple(map(curve, functions))


def both(**options):
    """The two functions, as a pytree."""
    return tuple(function(**options) for function in FUNCTIONS)


@pytest.mark.parametrize("num_classes", [1, 2, 3, 10])
def test_against_direct_solves(num_classes):
    probs, labels, others = samples(num_classes)
    predictions, p = as_predictions(probs), as_predictions(others)
    ours = values(both(), predictions, labels, p, PENALTIES)
    for i, penalty in enumerate(PENALTIES):
        matrix, columns = rbf(probs, probs), rbf(probs, others)
        expected = direct(residuals(probs, labels), matrix, columns, penalty)
        for one, other in zip(ours, expected, strict=True):
            np.testing.assert_allclose(one[i], other, atol=1e-10)


def test_low_rank_against_direct_solves():
    """With few pivots it is the regression with their Nyström kernel."""
    probs, labels, others = samples(3, seed=1)
    predictions, p = as_predictions(probs), as_predictions(others)
    compiled = values._cache_size()
    for scale in (1.0, 0.7):
        kernel = SquaredExponential(scale)
        params = risk.KernelRidge(kernel, rank=5).fit(predictions, labels, 1.0)
        pivots = np.asarray(params.points.probs)
        assert pivots.shape == (5, 3)
        inverse = np.linalg.inv(rbf(pivots, pivots, scale))
        matrix, columns = (
            rbf(probs, pivots, scale) @ inverse @ rbf(pivots, x, scale) for x in (probs, others)
        )
        error = np.abs(rbf(probs, probs, scale) - matrix).max()
        np.testing.assert_allclose(params.residual, error, rtol=1e-6)
        ours = values(both(kernel=kernel, rank=5), predictions, labels, p, PENALTIES)
        for i, penalty in enumerate(PENALTIES):
            expected = direct(residuals(probs, labels), matrix, columns, penalty)
            for one, other in zip(ours, expected, strict=True):
                np.testing.assert_allclose(one[i], other, atol=1e-9)
    assert values._cache_size() == compiled + 1


def test_more_samples_than_the_square_root_of_the_largest_integer():
    """The square of n is no integer of 32 bits."""
    with jax.enable_x64(False):
        confidences = jnp.linspace(0.01, 0.99, 47_000)
        correct = jnp.arange(47_000) % 2
        function = risk.KernelRidge()
        params = function.fit(confidences, correct, 1.0)
        assert np.isfinite(function.diagonal(params, confidences[:2])).all()


@pytest.mark.slow
def test_gradients():
    """In penalty and prediction; and for the whole matrix in the kernel's length scale."""
    probs, labels, _ = samples(1, n=9)

    def value(penalty, point, length_scale):
        total = 0
        whole = both(kernel=SquaredExponential(length_scale), rank=9)
        for weight, function in zip((1, 3), whole, strict=True):
            params = function.fit(jnp.asarray(probs[:, 0]), labels, penalty)
            total += weight * function.diagonal(params, point[None])[0]
        return total

    at = jnp.array(0.01), jnp.array(0.4), jnp.array(0.2)
    check_grads(jax.jit(value), at, 1, modes=["rev"], rtol=1e-4, eps=1e-6)
