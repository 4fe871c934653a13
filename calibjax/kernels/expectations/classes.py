"""Expectations under predictions of classes and of beta distributions.

Expectations under class predictions: sums over the classes.

Labels are names, not numbers: estimators and tests refuse kernels of distances between labels.

Expectations of smooth kernels under beta predictions, by projection on Chebyshev polynomials.

On [0, 1] a smooth kernel is, up to an error that falls faster than every power of r, a polynomial
of degree < r in each argument, k(y, z) = Σ_ij T_i(y) K_ij T_j(z) with shifted Chebyshev
polynomials T_i(y) = cos(i arccos(2y − 1)). The moments τ_i = E T_i(Z) of Z ~ Beta(α, β) follow
exactly from

    (α + β + i) τ_{i+1} = 2 (α − β) τ_i − (α + β − i) τ_{i−1},   τ_0 = 1,  τ_1 = (α − β)/(α + β),

so that m_p(z) = ⟨τ_p, K T(z)⟩, M_{p,q} = ⟨τ_p, K τ_q⟩, and the centered kernel is the bilinear
form of the differences T(y) − τ_p and T(z) − τ_q: within a tile, a product of matrices.

The recurrence is exact up to rounding, so the projection is the only error, whatever the
parameters. With r = 96 it is below 1e-9 for squared exponential kernels of length scale ≥ 0.04.
Narrower kernels are refused; if they are traced, the expectations are NaN.

References: Piessens and Branders (1973), The evaluation and application of some modified moments.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._core import checks
from calibjax._core.arithmetic import matmul, one_hot
from calibjax._core.gate import inner
from calibjax.distances import Euclidean, Manhattan
from calibjax.distances.elementary import SquaredEuclidean
from calibjax.distributions import Bernoulli, Beta, Categorical, CategoricalLogits
from calibjax.distributions.base import ClassPredictions
from calibjax.kernels.base import Kernel, LabelKernel, White, gram_matrix
from calibjax.kernels.expectations import Features, length_scale, register_expectations
from calibjax.kernels.stationary import SquaredExponential, Stationary


def _bilinear(
    at: Callable[[Any, Any], jax.Array],
    mean: Callable[[Any], jax.Array],
    product: Callable[..., jax.Array],
) -> dict[str, Any]:
    """Rules for a kernel with values a(y)ᵀ A a(z), from a, its expectation, and (kernel, p) ↦ A.

    The last is a function (kernel, p, x, y) → xᵀ A y: within a tile, a product of matrices.
    """
    return {
        "mean": lambda kernel, p, z: product(kernel, p, mean(p), at(p, z)),
        "inner": lambda kernel, p, q: product(kernel, p, mean(p), mean(q)),
        "centered": lambda kernel, p, y, q, z: product(
            kernel, p, at(p, y) - mean(p), at(q, z) - mean(q)
        ),
    }


def _label_matrix(kernel: Kernel, p: ClassPredictions) -> jax.Array:
    """Matrix A[c, c'] = k(c, c') over all classes, [m, m].

    Distances between class labels, which are names and not numbers, are refused.
    """
    num_classes = p.class_probs.shape[-1]
    parts = jax.tree.leaves(kernel, is_leaf=lambda part: isinstance(part, Stationary | LabelKernel))
    for part in parts:
        if isinstance(part, LabelKernel):
            described = f"[{num_classes}, {num_classes}], as the predictions' classes"
            checks.shape("kernel.target.matrix", part.matrix, (num_classes,) * 2, described)
        distance = getattr(part, "distance", None)
        if isinstance(distance, Euclidean | SquaredEuclidean | Manhattan):
            name = type(part).__name__
            raise ValueError(
                f"kernel.target: expected a kernel on class labels, such as White(), got {name} "
                f"with distance {type(distance).__name__}; for ordered classes take "
                f"LabelKernel(gram_matrix({name}(...), jnp.arange({num_classes}.0)))"
            )
    return inner(gram_matrix)(kernel, jnp.arange(num_classes))


def _labels(p: ClassPredictions, y: jax.Array) -> jax.Array:
    """One-hot encoded label, e_y, [m]."""
    return one_hot(jnp.asarray(y), p.class_probs.shape[-1], p.class_probs.dtype)


def _residual(p: ClassPredictions, y: jax.Array) -> jax.Array:
    """One-hot encoded label minus the prediction, e_y − p, [m]."""
    return _labels(p, y) - p.class_probs


def _product(kernel: Kernel, p: ClassPredictions, x: jax.Array, y: jax.Array) -> jax.Array:
    return matmul(x, matmul(_label_matrix(kernel, p), y))


def _root(kernel: Kernel, predictions: ClassPredictions, targets: jax.Array) -> jax.Array | None:
    """Square root R of the label matrix, A = R Rᵀ, [m, m]."""
    del targets
    if not checks.is_concrete(kernel):
        return None  # a traced matrix is not known to have a root
    matrix = _label_matrix(kernel, predictions)
    dtype = jnp.result_type(matrix, predictions.class_probs)  # that of h, also of a float32 matrix
    eigenvalues, vectors = jnp.linalg.eigh(matrix.astype(dtype))
    return vectors * jnp.sqrt(jnp.maximum(eigenvalues, 0))


def _probs(p: ClassPredictions) -> jax.Array:
    return p.class_probs


for _distribution in (Categorical, CategoricalLogits, Bernoulli):
    register_expectations(
        Kernel,
        _distribution,
        **_bilinear(_labels, _probs, _product),
        features=Features(lambda kernel, root, p, y: matmul(_residual(p, y), root), _root),
    )
    register_expectations(
        White,
        _distribution,
        **_bilinear(_labels, _probs, lambda kernel, p, x, y: matmul(x, y)),
        features=Features(lambda kernel, prepared, p, y: _residual(p, y)),
    )


_SIZE = 96
_ANGLES = (np.arange(_SIZE) + 0.5) * (math.pi / _SIZE)
_NODES = 0.5 + 0.5 * np.cos(_ANGLES)
# Coefficients of T_i from values at the nodes, [r, r].
_TRANSFORM = np.cos(np.outer(np.arange(_SIZE), _ANGLES)) * (2 / _SIZE)
_TRANSFORM[0] *= 0.5
_NARROWEST = 0.04  # length scale that the polynomials resolve


def _coefficients(kernel: Kernel, p: Beta) -> jax.Array:
    """Matrix K of the kernel in Chebyshev polynomials, [r, r]; NaN if r is too small."""
    scale = length_scale(kernel, p)
    nodes, transform = (jnp.asarray(x, scale.dtype) for x in (_NODES, _TRANSFORM))
    values = inner(gram_matrix)(kernel, nodes).astype(scale.dtype)
    coefficients = matmul(transform, matmul(values, transform.T))
    return jnp.where(scale >= _NARROWEST, coefficients, jnp.nan)


def _recurrence(first: jax.Array, total: jax.Array | float) -> jax.Array:
    """Sequence τ_0 = 1, τ_1 = first of the recurrence above, divided by α + β; [r].

    With 1 / (α + β) → 0 these are the polynomials themselves.
    """

    def step(pair: tuple, index: jax.Array) -> tuple[tuple, jax.Array]:
        before, current = pair
        small = index * total
        following = (2 * first * current - (1 - small) * before) / (1 + small)
        return (current, following), before

    index = jnp.arange(1, _SIZE + 1, dtype=jnp.result_type(first))
    return lax.scan(step, (jnp.ones_like(first), first), index)[1]


def _polynomials(y: jax.Array) -> jax.Array:
    """T_i(y), [r]."""
    return _recurrence(2 * y - 1, 0.0)


def _moments(p: Beta) -> jax.Array:
    """E T_i(Z), [r]."""
    total = p.alpha + p.beta
    return _recurrence((p.alpha - p.beta) / total, 1 / total)


def _check(kernel: SquaredExponential, predictions: Beta) -> None:
    """Refuses kernels that the polynomials cannot resolve; of traced ones the values are NaN."""
    if checks.is_concrete(kernel) and length_scale(kernel, predictions) < _NARROWEST:
        raise ValueError(
            f"kernel.target: expected a length scale >= {_NARROWEST} for Beta predictions, got "
            f"{kernel}; others need distributions.monte_carlo"
        )


register_expectations(
    SquaredExponential,
    Beta,
    **_bilinear(
        lambda p, y: _polynomials(y),
        _moments,
        lambda kernel, p, x, y: matmul(x, matmul(_coefficients(kernel, p), y)),
    ),
    check=_check,
)
