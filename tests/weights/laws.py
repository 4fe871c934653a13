"""What holds of everything that takes weights of samples."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distances, kernels
from calibjax.distributions import Categorical, Normal

# As many copies as there are samples, so that these are the data of a program that is compiled.
WEIGHTS = np.array([1, 0, 1, 1, 1, 2, 0, 2, 1, 1, 1, 1])
N = len(WEIGHTS)
# Redraws are those of the rows before them if samples without weight are the last ones.
OF_REDRAWS = np.array([2.0, 3, 1, 1, 1.5, 2, 1, 1, 2, 0.5, 0, 0])
COUNT = 10
KEY = jax.random.key(0)
_random = np.random.default_rng(8)
NORMALS = Normal(_random.normal(size=N), _random.uniform(0.5, 1, N))
TARGETS = NORMALS.loc + _random.normal(size=N)
CLASSES, LABELS = Categorical(_random.dirichlet(np.ones(3), N)), _random.integers(0, 3, N)
CONFIDENCES = _random.uniform(0.05, 0.95, size=N).round(1)  # with ties
CORRECT = (_random.uniform(size=N) < CONFIDENCES).astype(int)
FEATURES = _random.normal(size=(N, 2))
KERNEL = kernels.TensorProduct(
    kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
)
WHITE = kernels.TensorProduct(kernels.Exponential(0.5), kernels.White())
LOW_RANK = kernels.TensorProduct(
    kernels.Nystrom(kernels.Exponential(0.5), Categorical(np.eye(3) * 0.7 + 0.1)), kernels.White()
)
PLACES = Normal(np.array([0.0, 1.0]), np.ones(2)), np.array([0.5, -0.5])


def rows(tree: Any, chosen: Any) -> Any:
    """Some rows of data."""
    return jax.tree.map(lambda leaf: leaf[np.asarray(chosen)], tree)


def bias(predictions: Any, targets: Any, weights: Any = None) -> jax.Array:
    """A statistic that knows weights."""
    return jnp.abs(jnp.average(targets - predictions.loc, weights=weights))


def close(found: Any, expected: Any, rtol: float = 1e-10) -> None:
    """All numbers of two pytrees have to agree."""
    for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


def check_weights(
    function: Callable[..., Any],
    *data: Any,
    copies: bool = True,
    scaled: bool = True,
    compiled: bool = True,
    differentiable: bool = True,
    rtol: float = 1e-11,
) -> None:
    """All laws for a function of data with N rows and of weights.

    Args:
        function: (*data, weights) → pytree of numbers; weights may be None.
        data: pytrees with N rows each.
        copies: whether an integer weight is the same as that number of copies.
        scaled: whether a factor of all weights changes nothing.
        compiled: whether it may be compiled.
        differentiable: whether gradients by the weights are finite, also where these are zero.
        rtol: relative tolerance in float64.
    """
    same = functools.partial(close, rtol=rtol)
    weighted = function(*data, WEIGHTS)
    # A test that cannot tell weights from none tests nothing.
    unweighted = function(*data, None)
    assert any(
        not np.allclose(x, y, rtol=1e-6)
        for x, y in zip(*map(jax.tree.leaves, (weighted, unweighted)), strict=True)
    )
    same(function(*data, np.ones(N)), unweighted)
    if scaled:
        same(function(*data, np.full(N, 1e-30)), unweighted)
        same(function(*data, 1e20 * WEIGHTS), weighted)
    same(function(*data, WEIGHTS > 0), function(*data, (WEIGHTS > 0).astype(float)))
    if copies:  # none of a sample without weight
        same(function(*rows(data, np.repeat(np.arange(N), WEIGHTS)), None), weighted)
    else:
        positive = np.flatnonzero(WEIGHTS)
        same(function(*rows(data, positive), WEIGHTS[positive]), weighted)
    same(function(*data, jnp.asarray(WEIGHTS, float)), weighted)
    if compiled:
        traced = jax.jit(_with_gradient(function) if differentiable else function)
        found = traced(*data, jnp.asarray(WEIGHTS, float))
        wrong = traced(*data, jnp.asarray(-WEIGHTS, float))
        if differentiable:
            (found, gradient), (wrong, _) = found, wrong
            assert np.isfinite(gradient).all()
        same(found, weighted)
        assert any(np.isnan(leaf).any() for leaf in map(np.asarray, jax.tree.leaves(wrong)))


def check_test(function: Callable[..., Any], *data: Any, of_samples: bool = False) -> None:
    """All laws for a test of data with N rows and of weights.

    Args:
        function: (*data, weights) → result of a test; weights may be None.
        data: pytrees with N rows each.
        of_samples: whether the statistics are those of the samples.
    """
    weighted, plain = function(*data, OF_REDRAWS), function(*data, None)

    def same(other: Any, expected: Any, count: int = N) -> None:
        for field in ("statistic", "estimate", "pvalue", "null_samples"):
            both = (jax.tree.leaves(getattr(x, field)) for x in (other, expected))
            for one, two in zip(*both, strict=True):
                known = two[..., :count] if of_samples else two
                np.testing.assert_allclose(one, known, rtol=1e-9, atol=1e-12)

    same(function(*data, 1e-20 * OF_REDRAWS), weighted)
    same(function(*rows(data, np.arange(COUNT)), OF_REDRAWS[:COUNT]), weighted, COUNT)
    same(jax.jit(function)(*data, OF_REDRAWS), weighted)
    same(function(*data, np.full(N, 0.3)), plain)
    found, without = (jax.tree.leaves(x.null_samples)[0] for x in (weighted, plain))
    assert not np.allclose(found, without)
    wrong = jax.jit(function)(*data, -OF_REDRAWS)
    assert all(np.isnan(leaf).all() for leaf in jax.tree.leaves(wrong.pvalue))


def _with_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """The results, and the gradient of their sum by the weights."""

    def total(weights: Any, *data: Any) -> Any:
        found = function(*data, weights)
        return sum(map(jnp.sum, jax.tree.leaves(found))), found

    def call(*arguments: Any) -> Any:
        *data, weights = arguments
        gradient, found = jax.grad(total, has_aux=True)(weights, *data)
        return found, gradient

    return call
