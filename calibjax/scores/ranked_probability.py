"""Continuous ranked probability score (CRPS), of all thresholds or of some."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax.distributions import Mixture, Samples
from calibjax.distributions.base import Distribution
from calibjax.scores.base import mean_over_samples, weighted_samples

# Between quantiles at these levels distribution functions are smooth.
_LEVELS = np.array([1e-14, 1e-10, 1e-7, 1e-5, 1e-4, 1e-3, 0.01, *np.linspace(0.04, 0.5, 10)])
_LEVELS = np.concatenate([_LEVELS, 1 - _LEVELS[-2::-1]])
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)


def crps(
    predictions: Distribution, targets: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Mean continuous ranked probability score.

        CRPS = n⁻¹ Σ_i ∫ (F_i(x) − 1(x ≥ y_i))² dx = n⁻¹ Σ_i E|Z_i − y_i| − ½ E|Z_i − Z_i'|

    with the cdf F_i of p_i and independent Z_i, Z_i' ~ p_i; in units of the targets. With weights
    it is the weighted mean.

    Args:
        predictions: batch of n distributions of numbers whose score has a closed form:
            `Normal`, `Laplace`, `StudentT`, `LogNormal`, `Gamma`, `Uniform`, `Beta`, `Poisson`,
            `NegativeBinomial`, `Samples`, `Mixture`s of normal distributions, and every class with
            a method `crps(y)`. For an ensemble it is the score of the empirical distribution of its
            members.
        targets: [n].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: if the family has no closed form.

    Cost: O(n); O(n m²) for up to 200 samples, O(n m log m) for more, O(n k²) for k components.

    References: Gneiting and Raftery (2007), Strictly proper scoring rules, §4.2, with the opposite
    sign; Gneiting et al. (2005), Calibrated probabilistic forecasting using ensemble model output
    statistics, eq. (5) (normal); Grimit et al. (2006), The continuous ranked probability score for
    circular variables, eq. (5) (mixtures).

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> predictions = Normal(loc=jnp.array([0.0, 0.0]), scale=jnp.array([1.0, 1.0]))
    >>> print(f"{crps(predictions, jnp.array([0.0, 1.0])):.4f}")
    0.4181
    """
    samples, weights = weighted_samples(predictions, targets, weights, "sample")
    return mean_over_samples(_crps, samples, weights, "crps")


def _crps(p: Any, y: jax.Array) -> jax.Array:
    """CRPS of one prediction and one target."""
    if not hasattr(p, "crps"):
        raise NotImplementedError(
            f"crps has no closed form for {type(p).__name__} predictions; define the method "
            "crps(y) of the class"
        )
    return p.crps(y)


def threshold_weighted_crps(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    low: ArrayLike = -jnp.inf,
    high: ArrayLike = jnp.inf,
    chaining: Callable[[jax.Array], jax.Array] | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Mean threshold-weighted CRPS: the CRPS of the thresholds that matter.

        twCRPS = n⁻¹ Σ_i ∫_low^high (F_i(x) − 1(x ≥ y_i))² dx
               = n⁻¹ Σ_i E|v(Z_i) − v(y_i)| − ½ E|v(Z_i) − v(Z_i')|

    with the chaining function v(x) = min(max(x, low), high), or for draws any other function v, of
    which the integral is ∫ (F_i(x) − 1(x ≥ y_i))² dv(x) if it does not decrease. Proper, unlike the
    CRPS of the samples with targets in the interval. With weights it is the weighted mean.

    Args:
        predictions: batch of n `Samples` of numbers, or of continuous distributions with `cdf` and
            `icdf`.
        targets: [n].
        low: smallest threshold, a scalar.
        high: largest threshold, a scalar.
        chaining: function v of an array of numbers, elementwise, instead of an interval; for
            `Samples`.
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        A scalar, in units of the targets, or of v.

    Raises:
        TypeError: if an argument is of the wrong kind, the predictions lack a method, or are not
            continuous.
        ValueError: if shapes or values are wrong, or there are both an interval and a function.

    Cost: that of `crps` for draws; otherwise 32 quantiles and 544 distribution functions for each
    prediction, as the integral is by Gauss-Legendre quadrature between quantiles. Its relative
    error is about 1e-12 for normal distributions and 1e-6 for densities with a pole.

    References: Gneiting and Ranjan (2011), Comparing density forecasts using threshold- and
    quantile-weighted scoring rules, eq. (14); Allen, Ginsbourger and Ziegel (2023), Evaluating
    forecasts for high-impact events using transformed kernel scores, §3.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> predictions = Normal(loc=jnp.array([0.0]), scale=jnp.array([1.0]))
    >>> print(f"{threshold_weighted_crps(predictions, jnp.array([0.0]), low=0.0):.4f}")  # half
    0.1168
    """
    samples, weights = weighted_samples(predictions, targets, weights)
    p = samples[0]
    checks.shape("targets", samples[1], (None,), "[n]: only numbers have thresholds")
    dtype = floating_dtype(p)
    ends = [checks.real(name, x) for name, x in (("low", low), ("high", high))]
    for name, end in zip(("low", "high"), ends, strict=True):
        checks.shape(name, end, (), "a scalar")
    ends = [jnp.asarray(x, dtype) for x in ends]
    if checks.is_concrete(ends) and not ends[0] < ends[1]:
        raise ValueError(f"low: expected a number below high, got {ends[0]} and {ends[1]}")
    if chaining is not None:
        checks.function("chaining function", "chaining", chaining, "values")
        if not checks.is_concrete((low, high)) or low != -np.inf or high != np.inf:
            raise ValueError("chaining: expected None beside low or high, which define one")
        if not isinstance(p, Samples):
            raise TypeError(
                f"chaining: expected None for {checks.described(p)}; distributions.Samples, of "
                "draws from them, take any function"
            )
        chained = jax.tree_util.Partial(_chained, jax.tree_util.Partial(chaining))
        return mean_over_samples(chained, samples, weights)
    if not isinstance(p, Samples):
        for method in ("cdf", "icdf"):
            checks.method("predictions", p, method)
        if getattr(p, "support", None) is None or p.support.is_integer or hasattr(p, "class_probs"):
            raise TypeError(
                "predictions: expected continuous distributions or Samples, got "
                f"{checks.described(p)}; draws from them are distributions.Samples"
            )
    score = _clipped if isinstance(p, Samples) else _between
    value = mean_over_samples(jax.tree_util.Partial(score, *ends), samples, weights)
    return jnp.where(ends[0] < ends[1], value, jnp.nan)


def _chained(chaining: Callable[[jax.Array], jax.Array], p: Samples, y: jax.Array) -> jax.Array:
    dtype = p.probs.dtype
    values, y = (jnp.asarray(chaining(x.astype(dtype))) for x in (p.values, y))
    return Samples(values, p.weights).crps(y)


def _clipped(low: jax.Array, high: jax.Array, p: Samples, y: jax.Array) -> jax.Array:
    return _chained(lambda x: jnp.clip(x, low, high), p, y)


def _between(low: jax.Array, high: jax.Array, p: Any, y: jax.Array) -> jax.Array:
    """∫_low^high (F(x) − 1(x ≥ y))² dx by quadrature between quantiles."""
    cuts = lax.stop_gradient(_quantiles(p, low.dtype))
    # Where an end is infinite, nothing is left beyond the quantiles and the target.
    cuts = jnp.append(cuts, y)
    bottom = jnp.where(low == -jnp.inf, jnp.minimum(jnp.min(cuts), y), low)
    top = jnp.where(high == jnp.inf, jnp.maximum(jnp.max(cuts), y), high)
    cuts = jnp.sort(jnp.clip(jnp.concatenate([cuts, jnp.stack([bottom, top])]), bottom, top))
    start, half = cuts[:-1, None], jnp.diff(cuts)[:, None] / 2
    errors = p.cdf(start + half * (_NODES + 1).astype(low.dtype)) - (start >= y)
    return jnp.sum(half * jnp.square(errors) * _NODE_WEIGHTS.astype(low.dtype))


def _quantiles(p: Any, dtype: jnp.dtype) -> jax.Array:
    """Where the distribution function is not constant; of a mixture, of all its components."""
    if isinstance(p, Mixture):
        return jax.vmap(lambda one: _quantiles(one, dtype))(p.components).ravel()
    levels = np.clip(_LEVELS, jnp.finfo(dtype).eps, 1 - jnp.finfo(dtype).eps).astype(dtype)
    return jax.vmap(p.icdf)(jnp.asarray(levels))
