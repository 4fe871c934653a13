"""What holds of everything that takes weights of samples."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import kernels
from calibjax.distributions import Categorical, Normal
from tests import oracles

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
KERNEL = oracles.normal_kernel()
WHITE = kernels.TensorProduct(kernels.Exponential(0.5), kernels.White())
LOW_RANK = kernels.TensorProduct(
    kernels.Nystrom(kernels.Exponential(0.5), Categorical(np.eye(3) * 0.7 + 0.1)), kernels.White()
)


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
