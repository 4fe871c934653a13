"""Kernels on normal scores: expectations are those under the standard normal distribution.

The rules are for all classes of continuous predictions, those of a user, too.
"""

from typing import Any, NoReturn

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax._arithmetic import floating_dtype
from calibjax._pytree import PyTree
from calibjax.distributions import (
    Bernoulli,
    Categorical,
    CategoricalLogits,
    Mixture,
    MonteCarlo,
    NegativeBinomial,
    Normal,
    Poisson,
    Samples,
    constraints,
)
from calibjax.distributions.base import Distribution
from calibjax.kernels.expectations import (
    FeatureRule,
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
    LARGEST_SCORE,
    VECTORS,
    NormalScore,
    normal_score,
    standard_normal,
)


def _single(kernel: NormalScore, p: Distribution, z: ArrayLike) -> jax.Array:
    """The score is that of a target of p."""
    return single_expectation(kernel.kernel, standard_normal(p), normal_score(p, z))


def _double(kernel: NormalScore, p: Distribution, q: Distribution) -> jax.Array:
    return double_expectation(kernel.kernel, standard_normal(p), standard_normal(q))


def _centered(kernel: NormalScore, p: Any, y: ArrayLike, q: Any, z: ArrayLike) -> jax.Array:
    samples = standard_normal(p), normal_score(p, y), standard_normal(q), normal_score(q, z)
    return centered_kernel(kernel.kernel, *samples)


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
    return prepare_features(
        kernel.kernel, standard, np.array([-LARGEST_SCORE, LARGEST_SCORE], dtype)
    )


def _features(kernel: NormalScore, prepared: Any, p: Distribution, y: jax.Array) -> jax.Array:
    return features(kernel.kernel, prepared, standard_normal(p), normal_score(p, y))


def _check(kernel: NormalScore, predictions: Any) -> None:
    """Refuses predictions that are not continuous, or without a distribution function."""
    support = getattr(predictions, "support", constraints.real)
    is_scalar = not getattr(support, "is_integer", False) and not getattr(support, "axes", ())
    if not isinstance(predictions, VECTORS) and not (is_scalar and hasattr(predictions, "cdf")):
        _refuse(kernel, predictions)
    check_expectations(kernel.kernel, jax.tree.map(lambda x: x[None], standard_normal(predictions)))


def _refuse(kernel: NormalScore, predictions: Distribution, *others: Any) -> NoReturn:
    del kernel, others
    raise NotImplementedError(
        f"no normal scores of targets of {type(predictions).__name__} predictions; expected "
        "continuous distributions of numbers with a method cdf, DiagNormal or MvNormal"
    )


for _distribution in (object, Mixture):
    register_expectations(
        NormalScore,
        _distribution,
        single=_single,
        double=_double,
        centered=_centered,
        features=FeatureRule(_prepare_features, _features),
        check=_check,
        diagonal=_diagonal,
    )
# There are rules of other kernels for these, which the search for classes of predictions finds.
_COUNTS = Poisson, NegativeBinomial
for _distribution in (Samples, MonteCarlo, Categorical, CategoricalLogits, Bernoulli, *_COUNTS):
    register_expectations(NormalScore, _distribution, single=_refuse, double=_refuse, check=_refuse)
