"""Kernels on normal scores: expectations are those under the standard normal distribution.

The rules are for all classes of continuous predictions and of counts, those of a user, too.
Expectations under ensembles are means over the members.
"""

import dataclasses
import math
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core.arithmetic import einsum, floating_dtype, largest_score
from calibjax._core.pytree import PyTree
from calibjax.distributions import (
    Bernoulli,
    Categorical,
    CategoricalLogits,
    Ensemble,
    Mixture,
    Normal,
    Poisson,
    constraints,
)
from calibjax.distributions.base import Distribution
from calibjax.distributions.draws import MonteCarlo
from calibjax.kernels.expectations import (
    batch_features,
    centered_kernel,
    check_expectations,
    diagonal_expectation,
    double_expectation,
    features,
    prepare_features,
    register_expectations,
    single_expectation,
)
from calibjax.kernels.normal_scores import (
    VECTORS,
    NormalScore,
    score_of_rank,
    scores,
    standard_normal,
    total,
)


def _single(kernel: NormalScore, p: Distribution, z: ArrayLike) -> jax.Array:
    """The score is that of a target of p."""
    standard = standard_normal(p)
    return total(scores(p, z), lambda s: single_expectation(kernel.kernel, standard, s))


def _double(kernel: NormalScore, p: Distribution, q: Distribution) -> jax.Array:
    return double_expectation(kernel.kernel, standard_normal(p), standard_normal(q))


def _centered(
    kernel: NormalScore, p: Distribution, y: ArrayLike, q: Distribution, z: ArrayLike
) -> jax.Array:
    standard = standard_normal(p)

    def of_score(s: jax.Array) -> jax.Array:
        return total(
            scores(q, z), lambda t: centered_kernel(kernel.kernel, standard, s, standard, t)
        )

    return total(scores(p, y), of_score)


def _diagonal(kernel: NormalScore, p: Distribution) -> jax.Array | float:
    return diagonal_expectation(kernel.kernel, standard_normal(p))


def _prepare_features(kernel: NormalScore, predictions: Distribution, targets: Any) -> PyTree:
    """Those of the inner kernel for the standard normal distribution, and all scores there are."""
    del targets
    if isinstance(predictions, VECTORS):
        return None
    dtype = np.dtype(floating_dtype(predictions))
    zeros: Any = np.zeros(2, dtype)  # of NumPy: never traced
    standard = Normal(zeros, zeros + 1)
    ends = largest_score(dtype) * np.array([-1, 1], dtype)
    return prepare_features(kernel.kernel, standard, ends)


def _features(kernel: NormalScore, prepared: tuple, p: Distribution, y: jax.Array) -> jax.Array:
    standard = standard_normal(p)
    return total(scores(p, y), lambda s: features(kernel.kernel, prepared, standard, s))


def _batch_features(
    kernel: NormalScore, prepared: tuple, predictions: Distribution, targets: jax.Array
) -> jax.Array:
    """Features of targets [b, n], [r, b, n], in loops of the inner kernel over all of them."""
    own, *panels = jax.vmap(jax.vmap(scores), (None, 0))(predictions, targets)
    zeros = jnp.zeros(targets.shape[1], floating_dtype(predictions))
    standard = Normal(zeros, zeros + 1)
    points, weights = (jnp.moveaxis(x, -1, 0) for x in own[:2])  # [k, b, n]
    flat = points.reshape(-1, points.shape[-1])
    values = batch_features(kernel.kernel, prepared, standard, flat)
    total_features = jnp.sum(weights * values.reshape(-1, *points.shape), 1)
    for part in panels:
        one, normal = jax.tree.map(lambda x: x[0, 0], part), jax.tree.map(lambda x: x[0], standard)
        of_panels = one.mapped(lambda s, p=normal: features(kernel.kernel, prepared, p, s))
        total_features += einsum("kr,bnk->rbn", of_panels, part.weights)
    return total_features


def _check(kernel: NormalScore, predictions: Distribution) -> None:
    """Refuses predictions of other things than numbers, or without a distribution function."""
    if isinstance(predictions, Ensemble):
        is_scalar = jnp.ndim(predictions.values) == 2
    else:
        support = getattr(predictions, "support", constraints.real)
        is_scalar = not getattr(support, "axes", ()) and hasattr(predictions, "cdf")
    if not isinstance(predictions, VECTORS) and not is_scalar:
        _refuse(kernel, predictions)
    check_expectations(kernel.kernel, jax.tree.map(lambda x: x[None], standard_normal(predictions)))


def _refuse(kernel: NormalScore, predictions: Distribution, *others: object) -> NoReturn:
    del kernel, others
    raise NotImplementedError(
        f"no normal scores of targets of {type(predictions).__name__} predictions; expected "
        "distributions of numbers with a method cdf, ensembles of numbers, DiagNormal or MvNormal"
    )


def _of_members(kernel: NormalScore, p: Ensemble, z: ArrayLike) -> jax.Array:
    return single_expectation(kernel.kernel, _of_scores(p), score_of_rank(p, z))


def _of_two(kernel: NormalScore, p: Ensemble, q: Ensemble) -> jax.Array:
    return double_expectation(kernel.kernel, _of_scores(p), _of_scores(q))


def _of_scores(p: Ensemble) -> Ensemble:
    return dataclasses.replace(p, values=score_of_rank(p, p.values))


# There are rules of other kernels for some, which the search for classes of predictions finds.
for _distribution in (object, Mixture, Poisson, Ensemble):
    of_members = _distribution is Ensemble  # whose scores are the same for all targets
    register_expectations(
        NormalScore,
        _distribution,
        single=_of_members if of_members else _single,
        double=_of_two if of_members else _double,
        centered=_centered,
        features=(_prepare_features, _features, math.inf, None if of_members else _batch_features),
        check=_check,
        diagonal=_diagonal,
    )
for _distribution in (MonteCarlo, Categorical, CategoricalLogits, Bernoulli):
    register_expectations(NormalScore, _distribution, single=_refuse, double=_refuse, check=_refuse)
