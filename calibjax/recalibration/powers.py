"""Distributions at another temperature, q ∝ p^{1/T}."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax import _checks
from calibjax._arithmetic import floating_dtype
from calibjax.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    CategoricalLogits,
    DiagNormal,
    Dirichlet,
    Laplace,
    Mixture,
    MonteCarlo,
    MvNormal,
    Normal,
    Poisson,
    Samples,
)

_UNDERFLOW = -800.0  # smaller exponents give zero; without them no derivative is 0 / 0


def tempered(p: Any, temperature: jax.Array | float) -> Any:
    """The distribution p at temperature T: density q ∝ p^{1/T} with respect to a measure.

    T > 1 spreads, T < 1 sharpens, T = 1 leaves p as it is. The measure is chosen such that q is
    of the family of p: that of lengths and volumes, or of counts, and for proportions the one with
    density 1 / ∏_k x_k:

    | family | parameters of q |
    | --- | --- |
    | `Categorical`, `Bernoulli` | p^{1/T}, normalised; probabilities of zero stay zero |
    | `CategoricalLogits` | logits / T, the largest of them zero |
    | `Normal`, `DiagNormal` | scale · √T |
    | `MvNormal` | cov · T |
    | `Laplace` | scale · T |
    | `Beta`, `Dirichlet` | alpha / T, beta / T, concentration / T |
    | `Mixture` | every component at temperature T, the weights as they are |
    | `Samples` | deviations from the mean · √T |

    The last two are conventions: the density of a mixture is then no power, and draws have none;
    their variance grows by T as that of normal distributions. Means are those of p, but for
    classes, whose order of probabilities is that of p; parameters `loc` do not change at all.

    Families without a rule, and those of which no power is in the family, such as Poisson
    distributions, raise an error. For a family of your own use
    `tempered.register(Family, function)`, where function(p, temperature) returns another instance.

    Args:
        p: one distribution; for a batch use `jax.vmap`.
        temperature: T > 0, a scalar.

    Returns:
        A distribution of the type of p.

    Raises:
        TypeError: if the temperature is no number.
        ValueError: if it is not positive and finite.
        NotImplementedError: if the family has no rule.

    Cost: the number of parameters.

    References: W21 App. F; Guo et al. (2017), On calibration of modern neural networks, §4.2.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> print(tempered(Categorical(jnp.array([0.0, 0.2, 0.8])), 0.5).probs.round(2))
    [0.   0.06 0.94]
    """
    temperature = _checks.positive_scalar("temperature", temperature)
    return _tempered(p, jnp.asarray(temperature, floating_dtype(p)))


@functools.singledispatch
def _tempered(p: Any, temperature: jax.Array) -> Any:
    raise NotImplementedError(
        f"tempered is not defined for {type(p).__name__}; add it with "
        f"recalibration.tempered.register({type(p).__name__}, function)"
    )


tempered.register = _tempered.register


@_tempered.register(Normal)
@_tempered.register(DiagNormal)
def _(p: Any, temperature: jax.Array) -> Any:
    return dataclasses.replace(p, scale=p.scale * jnp.sqrt(temperature))


@_tempered.register
def _(p: MvNormal, temperature: jax.Array) -> MvNormal:
    return dataclasses.replace(p, cov=p.cov * temperature)


@_tempered.register
def _(p: Laplace, temperature: jax.Array) -> Laplace:
    return dataclasses.replace(p, scale=p.scale * temperature)


@_tempered.register
def _(p: Beta, temperature: jax.Array) -> Beta:
    return dataclasses.replace(p, alpha=p.alpha / temperature, beta=p.beta / temperature)


@_tempered.register
def _(p: Dirichlet, temperature: jax.Array) -> Dirichlet:
    return dataclasses.replace(p, concentration=p.concentration / temperature)


@_tempered.register
def _(p: Poisson, temperature: jax.Array) -> Poisson:
    raise NotImplementedError(
        "tempered is not defined for Poisson: no power of its probabilities is those of another "
        "Poisson distribution"
    )


@_tempered.register
def _(p: Mixture, temperature: jax.Array) -> Mixture:
    components = jax.vmap(_tempered, (0, None))(p.components, temperature)
    return dataclasses.replace(p, components=components)


@_tempered.register
def _(p: Samples, temperature: jax.Array) -> Samples:
    if not jnp.issubdtype(jnp.result_type(p.values), jnp.floating):
        raise NotImplementedError("tempered is not defined for Samples of integers")
    mean = p.mean()
    return dataclasses.replace(p, values=mean + jnp.sqrt(temperature) * (p.values - mean))


@_tempered.register
def _(p: MonteCarlo, temperature: jax.Array) -> MonteCarlo:
    raise NotImplementedError(
        "tempered is not defined for MonteCarlo, whose draws belong to one temperature: scale "
        "its distribution, and draw again with distributions.monte_carlo"
    )


@_tempered.register
def _(p: Categorical, temperature: jax.Array) -> Categorical:
    probs = jnp.asarray(p.probs)
    is_possible = probs > 0
    logs = jnp.log(jnp.where(is_possible, probs, 1))
    # The largest exponent is zero, so that nothing overflows; the shift cancels.
    largest = jnp.max(jnp.where(is_possible, logs, -jnp.inf), -1, keepdims=True)
    logs = logs - lax.stop_gradient(largest)
    remains = is_possible & (logs > _UNDERFLOW * temperature)
    powers = jnp.where(remains, jnp.exp(jnp.where(remains, logs, 0) / _divisor(temperature)), 0)
    return dataclasses.replace(p, probs=powers / jnp.sum(powers, -1, keepdims=True))


@_tempered.register
def _(p: CategoricalLogits, temperature: jax.Array) -> CategoricalLogits:
    logits = jnp.asarray(p.logits)
    # Without the shift, which cancels, low temperatures would lead to differences of infinities.
    shifted = logits - lax.stop_gradient(jnp.max(logits, -1, keepdims=True))
    return dataclasses.replace(p, logits=shifted / _divisor(temperature))


@_tempered.register
def _(p: Bernoulli, temperature: jax.Array) -> Bernoulli:
    probs = jnp.asarray(p.probs)
    is_certain = (probs <= 0) | (probs >= 1)
    inside = jnp.where(is_certain, 0.5, probs)
    log_odds = jnp.log(inside) - jnp.log1p(-inside)
    remains = jnp.abs(log_odds) < -_UNDERFLOW * temperature
    power = jax.nn.sigmoid(jnp.where(remains, log_odds, 0) / _divisor(temperature))
    power = jnp.where(remains, power, jnp.where(log_odds > 0, 1, 0))
    return dataclasses.replace(p, probs=jnp.where(is_certain, probs, power))


def _divisor(temperature: jax.Array) -> jax.Array:
    """The temperature, but for values at which only equal probabilities remain anyway.

    There the derivative, with the square of the temperature, would be zero times infinity.
    """
    return jnp.maximum(temperature, 1e-4 * jnp.finfo(temperature.dtype).eps)
