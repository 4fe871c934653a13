"""Expectations under mixtures, which are averages over components.

For mixtures p = Σ_i w_i p_i and q = Σ_j v_j q_j

    m_p(z) = Σ_i w_i m_{p_i}(z),    M_{p,q} = Σ_i Σ_j w_i v_j M_{p_i, q_j}

over **all** pairs of components. (CalibrationErrors.jl skips the pairs with i ≥ 2 and j = 1.)

References: W21 App. D.3.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._core.arithmetic import matmul
from calibjax.distributions import Categorical, Mixture
from calibjax.distributions.base import Distribution
from calibjax.kernels.base import Kernel
from calibjax.kernels.expectations import (
    centered_kernel,
    check_expectations,
    diagonal_expectation,
    double_expectation,
    features,
    four_terms,
    prepare_features,
    register_expectations,
    single_expectation,
)

_UNROLLED = 4  # components; a loop over more of them holds one tile of pairs at a time


def _classes(p: Mixture) -> Categorical | None:
    """A mixture of class predictions as a single class prediction."""
    return Categorical(p.class_probs) if hasattr(p.components, "class_probs") else None


def _average(function: Callable[[Any], jax.Array | float], p: Mixture) -> jax.Array:
    """Σ_k w_k f(p_k)."""

    def term(part: tuple[jax.Array, Any]) -> jax.Array:
        weight, component = part
        return weight * function(component)

    parts = (p.mixing_probs, p.components)
    num_components = parts[0].shape[0]
    num_written = num_components if num_components <= _UNROLLED else 1
    first, *written = (
        term(jax.tree.map(lambda leaf, k=k: leaf[k], parts)) for k in range(num_written)
    )
    rest = jax.tree.map(lambda leaf: leaf[num_written:], parts)
    add = jax.checkpoint(lambda total, part: (total + term(part), None))
    return lax.scan(add, sum(written, 0 + first), rest)[0]


def _single(kernel: Kernel, p: Mixture, z: ArrayLike) -> jax.Array:
    if (classes := _classes(p)) is not None:
        return single_expectation(kernel, classes, z)
    return _average(lambda component: single_expectation(kernel, component, z), p)


def _double(kernel: Kernel, p: Mixture, q: Mixture) -> jax.Array:
    classes, others = _classes(p), _classes(q)
    if classes is not None and others is not None:
        return double_expectation(kernel, classes, others)
    return _average(lambda a: _average(lambda b: double_expectation(kernel, a, b), q), p)


def _diagonal(kernel: Kernel, p: Mixture) -> jax.Array | float:
    if (classes := _classes(p)) is not None:
        return diagonal_expectation(kernel, classes)
    return _average(lambda component: diagonal_expectation(kernel, component), p)


def _centered(kernel: Kernel, p: Mixture, y: ArrayLike, q: Mixture, z: ArrayLike) -> jax.Array:
    """Four terms in float64; in float32 the average of the components' centered kernels.

    The latter, Σ_ij w_i v_j [k(y, z) − m_{p_i}(z) − m_{q_j}(y) + M_{p_i, q_j}], costs up to five
    times as much, but cancels within the components, which have forms that are accurate there.
    """
    classes, others = _classes(p), _classes(q)
    if classes is not None and others is not None:
        return centered_kernel(kernel, classes, y, others, z)
    if p.mixing_probs.dtype == jnp.float64:
        return four_terms(kernel, p, y, q, z)
    return _average(lambda a: _average(lambda b: centered_kernel(kernel, a, y, b, z), q), p)


def _prepare(kernel: Kernel, predictions: Mixture, targets: ArrayLike) -> tuple | None:
    """What the features of the components need, and a target at which to compare components."""
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), predictions.components)
    num_components = jnp.shape(jax.tree.leaves(predictions.components)[0])[1]
    each = jax.tree.map(lambda y: jnp.repeat(y, num_components, 0), targets)
    prepared = prepare_features(kernel, flat, each)
    return None if prepared is None else (prepared, jax.tree.map(lambda y: y[0], targets))


def _features(kernel: Kernel, prepared: tuple, p: Mixture, y: ArrayLike) -> jax.Array:
    """Σ_k w_k f(p_k, y), where f(p_k, y) − f(p_0, y) is the same for all y."""
    prepared, anywhere = prepared

    def of_component(component: Distribution, y: ArrayLike) -> jax.Array:
        return features(kernel, prepared, component, y)

    first = jax.tree.map(lambda leaf: leaf[0], p.components)
    all_there = jax.vmap(of_component, in_axes=(0, None))(p.components, anywhere)
    offset = matmul(p.mixing_probs, all_there - all_there[0])
    return of_component(first, y) + offset


register_expectations(
    Kernel,
    Mixture,
    single=_single,
    double=_double,
    centered=_centered,
    features=(_prepare, _features),
    check=lambda kernel, predictions: check_expectations(kernel, predictions.components),
    diagonal=_diagonal,
)
