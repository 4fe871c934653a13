"""Kernels of residuals, whose expectations are zero under all predictions they are defined for."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core.arithmetic import floating_dtype, matmul
from calibjax.distributions import Bernoulli, Categorical, CategoricalLogits, Ensemble, Mixture
from calibjax.distributions.base import Distribution
from calibjax.distributions.draws import MonteCarlo
from calibjax.kernels.expectations import register_expectations
from calibjax.kernels.residuals import Residual


def _zero(kernel: Residual, p: Distribution, *others: object) -> jax.Array:
    del kernel, others
    return jnp.zeros((), floating_dtype(p))


def _centered(
    kernel: Residual, p: Distribution, y: ArrayLike, q: Distribution, z: ArrayLike
) -> jax.Array:
    return matmul(kernel.residual(p, y), kernel.residual(q, z))


def _features(kernel: Residual, prepared: tuple[()], p: Distribution, y: ArrayLike) -> jax.Array:
    del prepared
    return kernel.residual(p, y)


# The search goes through classes of predictions first, and some of them have rules of all kernels.
EVERY_FAMILY = object, Mixture, Categorical, CategoricalLogits, Bernoulli, Ensemble, MonteCarlo
for _distribution in EVERY_FAMILY:
    register_expectations(
        Residual,
        _distribution,
        single=_zero,
        double=_zero,
        centered=_centered,
        features=(lambda *_: (), _features),
        check=lambda kernel, predictions: kernel.check_predictions(predictions),
        diagonal=lambda kernel, p: kernel.expected_norm(p),
    )
