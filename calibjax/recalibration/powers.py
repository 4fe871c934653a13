"""Distributions at another temperature, q ∝ p^{1/T}."""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.pytree import T


def tempered(p: T, temperature: jax.Array | float) -> T:
    """The distribution p at temperature T: density q ∝ p^{1/T} with respect to a measure.

    T > 1 flattens, T < 1 sharpens, T = 1 leaves p unchanged. The measure is chosen such that q is
    in the family of p: Lebesgue or counting measure, and for proportions and positive numbers
    (`Gamma`, `LogNormal`) the measure with density 1 / ∏_k x_k:

    | family | parameters of q |
    | --- | --- |
    | `Categorical`, `Bernoulli` | p^{1/T}, normalised; probabilities of zero stay zero |
    | `CategoricalLogits` | logits / T, shifted so that the largest is zero |
    | `Normal`, `DiagNormal` | scale · √T |
    | `MvNormal` | cov · T |
    | `Laplace` | scale · T |
    | `Beta`, `Dirichlet` | alpha / T, beta / T, concentration / T |
    | `Gamma` | concentration / T, rate / T |
    | `LogNormal` | scale · √T |
    | `GeneralizedNormal` | scale · T^{1 / power} |
    | `StudentT` | df' = (df + 1) / T − 1, scale · √(df / df'); NaN for T ≥ df + 1 |
    | `Uniform` | p itself |
    | `Mixture` | every component at temperature T, with unchanged weights |
    | `Ensemble` | deviations from the mean · √T |

    The last two are conventions: the density of the new mixture is not a power, and draws have no
    density; their variance is multiplied by T like that of normal distributions. Draws of a density
    ∝ exp(−½ q^β), q = (y − μ)ᵀ Σ⁻¹ (y − μ), are at temperature T where theirs is T^{1/β}. Means do
    not change, except for `LogNormal` and for classes, which keep the order of their probabilities;
    parameters `loc` never change.

    Families without a rule, and those that are not closed under powers, such as Poisson
    distributions, raise an error. A family of your own defines the method
    `tempered(temperature)`, which returns another instance; where no power of its density is in the
    family, it may follow a convention of its own, such as scale · T of a logistic distribution.

    Args:
        p: one distribution; for a batch use `jax.vmap`.
        temperature: T > 0, a scalar.

    Returns:
        A distribution of the type of p.

    Raises:
        TypeError: if the temperature is not a number.
        ValueError: if it is not positive and finite.
        NotImplementedError: if the family has no rule.

    Cost: the number of parameters.

    References: W21 App. F; Guo et al. (2017), On calibration of modern neural networks, §4.2.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> print(tempered(Categorical(jnp.array([0.0, 0.2, 0.8])), 0.5).probs.round(2))
    [0.   0.06 0.94]
    """
    temperature = checks.positive_scalar("temperature", temperature)
    if not hasattr(p, "tempered"):
        raise NotImplementedError(
            f"tempered is not defined for {type(p).__name__}; define its method "
            "tempered(temperature), which returns another instance"
        )
    return _tempered(p, jnp.asarray(temperature, floating_dtype(p)))


@jax.jit
def _tempered(p: Any, temperature: jax.Array) -> Any:
    return p.tempered(temperature)
