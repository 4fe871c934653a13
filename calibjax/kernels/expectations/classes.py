"""Expectations under predictions of classes and of beta distributions.

Expectations under class predictions: sums over the classes.

Labels are names, not numbers: estimators and tests refuse kernels that would compute distances
between them.

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

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._core import checks
from calibjax._core.arithmetic import matmul, one_hot
from calibjax.distances import Euclidean, Manhattan
from calibjax.distances.elementary import SquaredEuclidean
from calibjax.distributions import Bernoulli, Beta, Categorical, CategoricalLogits
from calibjax.distributions.base import ClassPredictions
from calibjax.kernels.base import Kernel
from calibjax.kernels.expectations import missing, register_expectations
from calibjax.kernels.labels import LabelKernel, White, gram_matrix
from calibjax.kernels.stationary import SquaredExponential, Stationary

_OF_NUMBERS = Euclidean | SquaredEuclidean | Manhattan


def _label_matrix(kernel: Kernel, p: ClassPredictions) -> jax.Array:
    """Matrix A[c, c'] = k(c, c') over all classes, [m, m]."""
    num_classes = p.class_probs.shape[-1]
    for part in jax.tree.leaves(kernel, is_leaf=lambda k: isinstance(k, LabelKernel)):
        if isinstance(part, LabelKernel):
            expected = (num_classes, num_classes)
            described = f"[{num_classes}, {num_classes}], as the predictions' classes"
            checks.shape("kernel.target.matrix", part.matrix, expected, described)
    return gram_matrix(kernel, jnp.arange(num_classes))


def _check(kernel: Kernel, predictions: ClassPredictions) -> None:
    """Refuses distances between class labels, which are names, not numbers."""
    num_classes = predictions.class_probs.shape[-1]
    parts = jax.tree.leaves(kernel, is_leaf=lambda part: isinstance(part, Stationary | LabelKernel))
    for part in parts:
        distance = getattr(part, "distance", None)
        if isinstance(part, Stationary) and isinstance(distance, _OF_NUMBERS):
            name, metric = type(part).__name__, type(distance).__name__
            raise ValueError(
                f"kernel.target: expected a kernel on class labels such as White() or "
                f"LabelKernel(matrix), got {name} with distance {metric}, which takes the labels "
                f"0, ..., {num_classes - 1} for numbers with distances; if the classes are "
                f"ordered, ask for it: LabelKernel(gram_matrix({name}(...), "
                f"jnp.arange({num_classes}.0)))"
            )


def _entry(values: jax.Array, label: jax.Array) -> jax.Array:
    """values[label]; NaN for a label out of range, where indexing would clamp."""
    return values.at[label].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)


def _residual(p: ClassPredictions, y: jax.Array) -> jax.Array:
    """One-hot encoded label minus the prediction, e_y − p, [m]."""
    probs = p.class_probs
    return one_hot(jnp.asarray(y), probs.shape[-1], probs.dtype) - probs


def _any_single(kernel: Kernel, p: ClassPredictions, z: jax.Array) -> jax.Array:
    return _entry(matmul(_label_matrix(kernel, p), p.class_probs), z)


def _any_double(kernel: Kernel, p: ClassPredictions, q: ClassPredictions) -> jax.Array:
    return matmul(p.class_probs, matmul(_label_matrix(kernel, p), q.class_probs))


def _any_centered(
    kernel: Kernel, p: ClassPredictions, y: jax.Array, q: ClassPredictions, z: jax.Array
) -> jax.Array:
    """⟨e_y − p, A (e_z − q)⟩: within a tile, a product of matrices."""
    return matmul(_residual(p, y), matmul(_label_matrix(kernel, p), _residual(q, z)))


def _any_diagonal(kernel: Kernel, p: ClassPredictions) -> jax.Array:
    return matmul(p.class_probs, jnp.diagonal(_label_matrix(kernel, p)))


def _any_prepare(
    kernel: Kernel, predictions: ClassPredictions, targets: jax.Array
) -> jax.Array | None:
    """Square root R of the label matrix, A = R Rᵀ, [m, m]."""
    del targets
    if not checks.is_concrete(kernel):
        return None  # a traced matrix is not known to have a root
    eigenvalues, vectors = jnp.linalg.eigh(_label_matrix(kernel, predictions))
    return vectors * jnp.sqrt(jnp.maximum(eigenvalues, 0))


def _any_features(kernel: Kernel, root: jax.Array, p: ClassPredictions, y: jax.Array) -> jax.Array:
    del kernel
    return matmul(_residual(p, y), root)


def _white_single(kernel: White, p: ClassPredictions, z: jax.Array) -> jax.Array:
    del kernel
    return _entry(p.class_probs, z)


def _white_double(kernel: White, p: ClassPredictions, q: ClassPredictions) -> jax.Array:
    del kernel
    return matmul(p.class_probs, q.class_probs)


def _white_centered(
    kernel: White, p: ClassPredictions, y: jax.Array, q: ClassPredictions, z: jax.Array
) -> jax.Array:
    """⟨e_y − p, e_z − q⟩: within a tile, a product of matrices."""
    del kernel
    return matmul(_residual(p, y), _residual(q, z))


def _white_prepare(kernel: White, predictions: ClassPredictions, targets: jax.Array) -> tuple[()]:
    del kernel, predictions, targets
    return ()


def _white_features(
    kernel: White, prepared: tuple[()], p: ClassPredictions, y: jax.Array
) -> jax.Array:
    del kernel, prepared
    return _residual(p, y)


for _distribution in (Categorical, CategoricalLogits, Bernoulli):
    register_expectations(
        Kernel,
        _distribution,
        single=_any_single,
        double=_any_double,
        centered=_any_centered,
        features=(_any_prepare, _any_features),
        diagonal=_any_diagonal,
        check=_check,
    )
    register_expectations(
        White,
        _distribution,
        single=_white_single,
        double=_white_double,
        centered=_white_centered,
        features=(_white_prepare, _white_features),
    )


_SIZE = 96
_ANGLES = (np.arange(_SIZE) + 0.5) * (math.pi / _SIZE)
_NODES = 0.5 + 0.5 * np.cos(_ANGLES)
# Coefficients of T_i from values at the nodes, [r, r].
_TRANSFORM = np.cos(np.outer(np.arange(_SIZE), _ANGLES)) * (2 / _SIZE)
_TRANSFORM[0] *= 0.5
_UNRESOLVED = 1e-9  # relative size of the last coefficients above which the projection is refused


def _coefficients(kernel: Kernel, p: Beta) -> jax.Array:
    """Matrix K of the kernel in Chebyshev polynomials, [r, r]; NaN if r is too small."""
    distance = getattr(kernel, "distance", Euclidean())
    if not isinstance(distance, Euclidean):
        raise missing(kernel, p, f" with distance {type(distance).__name__}")
    dtype = jnp.result_type(p.alpha, p.beta)
    values = gram_matrix(kernel, jnp.asarray(_NODES, dtype)).astype(dtype)
    transform = jnp.asarray(_TRANSFORM, dtype)
    coefficients = matmul(transform, matmul(values, transform.T))
    last = jnp.max(jnp.abs(coefficients[-4:]))
    limit = max(_UNRESOLVED, 10 * float(jnp.finfo(dtype).eps)) * jnp.max(jnp.abs(coefficients))
    return jnp.where(last <= limit, coefficients, jnp.nan)


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


def single(kernel: Kernel, p: Beta, z: jax.Array) -> jax.Array:
    """Expectation m_p(z) of a kernel that is smooth on [0, 1]."""
    return matmul(matmul(_coefficients(kernel, p), _moments(p)), _polynomials(z))


def double(kernel: Kernel, p: Beta, q: Beta) -> jax.Array:
    """Expectation M_{p,q} of a kernel that is smooth on [0, 1]."""
    return matmul(_moments(p), matmul(_coefficients(kernel, p), _moments(q)))


def centered(kernel: Kernel, p: Beta, y: jax.Array, q: Beta, z: jax.Array) -> jax.Array:
    """Centered kernel of a kernel that is smooth on [0, 1]."""
    one, two = _polynomials(y) - _moments(p), _polynomials(z) - _moments(q)
    return matmul(one, matmul(_coefficients(kernel, p), two))


def check(kernel: Kernel, predictions: Beta) -> None:
    """Refuses kernels that the polynomials cannot resolve."""
    if not checks.is_outermost(kernel, predictions):
        return  # its values are NaN then
    if bool(jnp.any(jnp.isnan(_coefficients(kernel, predictions)))):
        raise ValueError(
            f"kernel.target: expected a kernel that polynomials of degree {_SIZE - 1} resolve on "
            "[0, 1], such as SquaredExponential with a length scale >= 0.04, for Beta predictions, "
            f"got {kernel}; use distributions.monte_carlo for narrower ones"
        )


register_expectations(
    SquaredExponential, Beta, single=single, double=double, centered=centered, check=check
)
