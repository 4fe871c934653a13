"""The Stein kernel, whose expectations are zero under every density that it is defined for.

For functions f that vanish with the density at the ends of its support E[s_p(Y) f(Y) + ∇f(Y)] = 0,
with the score s_p = ∇ log p. The rule is for all classes of predictions, those of a user, too.
"""

from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import matmul
from calibjax.distributions import (
    Bernoulli,
    Categorical,
    CategoricalLogits,
    Ensemble,
    Mixture,
    Uniform,
    constraints,
)
from calibjax.distributions.base import Distribution
from calibjax.distributions.draws import MonteCarlo
from calibjax.kernels.expectations import register_expectations
from calibjax.kernels.stein import Stein


def _weight(p: Distribution, y: jax.Array) -> jax.Array | float:
    """A smooth factor that is zero at the ends of the support."""
    support = getattr(p, "support", constraints.real)
    if support is constraints.unit_interval:
        return y * (1 - y)
    return y if support in (constraints.positive, constraints.nonnegative) else 1.0


def _inside(p: Distribution, y: jax.Array) -> jax.Array:
    """The nearest point inside of the support, where draws and targets were rounded to its ends.

    The density may be infinite or zero there. Its slope times the weight has a limit, which is
    taken as close to the end as the slope, for concentrations up to 1e4, does not overflow.
    """
    info = jnp.finfo(y.dtype)
    support = getattr(p, "support", constraints.real)
    is_positive = support in (constraints.positive, constraints.nonnegative)
    if not is_positive and support is not constraints.unit_interval:
        return y
    least = float(info.tiny) * 1e6
    # What is outside of the support stays there.
    inner = jnp.where((y >= 0) & (y < least), least, y)
    if is_positive:
        return inner
    return jnp.where((y <= 1) & (y > 1 - info.epsneg), 1 - info.epsneg, inner)


def _zero(kernel: Stein, p: Distribution, *others: object) -> jax.Array:
    del kernel, others
    return jnp.zeros((), jnp.result_type(*jax.tree.leaves(p)))


def _centered(kernel: Stein, p: Any, y: ArrayLike, q: Any, z: ArrayLike) -> jax.Array:
    y, z = _inside(p, jnp.asarray(y)), _inside(q, jnp.asarray(z))

    def value(y: jax.Array, z: jax.Array) -> jax.Array:
        return _weight(p, y) * _weight(q, z) * kernel.kernel(y, z)

    in_y, in_z = jax.grad(value, 0), jax.grad(value, 1)
    score_y, score_z = jax.grad(p.log_prob)(y), jax.grad(q.log_prob)(z)
    mixed = jax.jacfwd(in_z)(y, z)
    if jnp.ndim(y) == 0:
        # The slopes are large where the weights are small: their product would overflow.
        slope_y, slope_z = score_y * _weight(p, y), score_z * _weight(q, z)
        both = slope_y * slope_z * kernel.kernel(y, z)
        return both + score_y * in_z(y, z) + score_z * in_y(y, z) + mixed
    both = matmul(score_y, score_z) * value(y, z)
    return both + matmul(score_y, in_z(y, z)) + matmul(score_z, in_y(y, z)) + jnp.trace(mixed)


def _check(kernel: Stein, predictions: Distribution) -> None:
    """Refuses predictions without a density on numbers, positive numbers, proportions, vectors."""
    support = getattr(predictions, "support", constraints.real)
    known = (constraints.positive, constraints.nonnegative, constraints.unit_interval)
    is_known = support in known or getattr(support, "words", None) == constraints.real.words
    if isinstance(predictions, Uniform) or not is_known:
        _refuse(kernel, predictions)
    checks.method("predictions", predictions, "log_prob")


def _refuse(kernel: Stein, predictions: Distribution, *others: object) -> NoReturn:
    del kernel, others
    raise NotImplementedError(
        f"no Stein kernel for {type(predictions).__name__} predictions; expected a density on real "
        "numbers, positive numbers, proportions or vectors, without a step at its ends, whose "
        "attribute support, if there is one, is one of calibjax.distributions.constraints"
    )


for _distribution in (object, Mixture):
    register_expectations(
        Stein, _distribution, single=_zero, double=_zero, centered=_centered, check=_check
    )
# There are rules of other kernels for these, which the search for classes of predictions finds.
for _distribution in (Ensemble, MonteCarlo, Categorical, CategoricalLogits, Bernoulli):
    register_expectations(Stein, _distribution, single=_refuse, double=_refuse, check=_refuse)
