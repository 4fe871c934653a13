"""Continuous predictions with another distribution of the probability integral transform."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtr, ndtri
from jax.typing import ArrayLike, DTypeLike

from calibjax._core import checks
from calibjax._core.arithmetic import (
    floating_dtype,
    largest_score,
    weighted_mean,
    weighted_variance,
)
from calibjax._core.pytree import record
from calibjax._core.special import implicit_quantile
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.distributions.constraints import Constraint

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


@record
class Recalibrated(Distribution):
    """Prediction p of a number of which the probability integral transform is not uniform.

    If F is the distribution function of p, and G that of F(Y), that of Y is G(F(y)):

        cdf(y) = G(F(y)),   icdf(u) = F⁻¹(G⁻¹(u)),   log_prob(y) = log p(y) + log G'(F(y)).

    `recalibration` makes such predictions; they are distributions like any other, also for another
    recalibration. The moments are integrals over their quantiles by a Gauss-Legendre rule with 2·64
    nodes between the normal scores ±8.2 (float32: ±5.2), and so is the CRPS, which is split at y.
    The rules are exact up to rounding where quantiles are smooth functions of the normal score,
    to about 10⁻³ where G is piecewise linear; they leave out the tails beyond, which count for
    predictions with very heavy ones.

    Attributes:
        distribution: p, a continuous distribution of a number, or a batch, with `cdf`, `icdf` and
            `log_prob`.
        map: the distribution of F(Y) on [0, 1]: a record with methods `cdf(level)`, `icdf(level)`
            and `log_prob(level)`, such as a `Beta`, or a batch with a leading axis n on every
            parameter.

    Raises:
        TypeError: when it is passed to a function, if the distribution is not continuous, or a
            method is missing.

    Cost: that of the distribution and the map; 128 quantiles for moments and the CRPS.

    References: Gneiting and Ranjan (2013), Combining predictive distributions, §3; Kuleshov,
    Fenner and Ermon (2018), Accurate uncertainties for deep learning using calibrated regression.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Beta, Normal
    >>> too_narrow = Normal(loc=jnp.array(0.0), scale=jnp.array(1.0))
    >>> p = Recalibrated(too_narrow, Beta(alpha=jnp.array(0.5), beta=jnp.array(0.5)))
    >>> print(f"{p.cdf(1.0):.3f} {too_narrow.cdf(1.0):.3f} {p.variance():.2f}")
    0.739 0.841 2.33
    """

    distribution: Any
    map: Any

    @property
    def support(self) -> Constraint:
        """That of the distribution."""
        return self.distribution.support

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one value."""
        dtype = floating_dtype(self.distribution)
        least = float(jnp.finfo(dtype).tiny)
        return self.icdf(jax.random.uniform(key, (), dtype, minval=least))

    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Log-density at y; beyond the last digit of levels that of the map is constant."""
        p = self.distribution
        level = p.cdf(y)
        last = jnp.finfo(level.dtype).eps
        return p.log_prob(y) + self.map.log_prob(jnp.clip(level, last / 4, 1 - last))

    def cdf(self, y: ArrayLike) -> jax.Array:
        """Probability of values up to y."""
        return self.map.cdf(self.distribution.cdf(y))

    def icdf(self, level: ArrayLike) -> jax.Array:
        """Value y with cdf(y) = level; derivatives are those of this equation."""
        level = jnp.asarray(level)
        fixed, fixed_level = lax.stop_gradient((self, level))
        inner = fixed.map.icdf(fixed_level)
        info = jnp.finfo(inner.dtype)
        # Levels between 0 and 1 have finite quantiles, also where the map rounds to its ends.
        is_inside = (fixed_level > 0) & (fixed_level < 1)
        inner = jnp.where(is_inside, jnp.clip(inner, info.tiny, 1 - info.epsneg), inner)
        y = fixed.distribution.icdf(inner)
        return implicit_quantile(self, y, level)

    def mean(self) -> jax.Array:
        """Expectation."""
        return weighted_mean(*self._atoms())

    def variance(self) -> jax.Array:
        """Variance."""
        return weighted_variance(*self._atoms())

    def crps(self, y: jax.Array) -> jax.Array:
        """Continuous ranked probability score of y.

        2 ∫₀^F u (y − Q(u)) du + 2 ∫_F¹ (1 − u) (Q(u) − y) du, with F = cdf(y) and the quantiles
        Q(u).
        """
        end = _end(floating_dtype(self.distribution))
        level = self.cdf(y)
        here = jnp.clip(ndtri(jnp.clip(level, ndtr(-end), ndtr(end))), -end, end)
        total = jnp.zeros_like(level)
        for low, high, sign in ((-end, here, 1), (here, end, -1)):
            points, weights = _rule(low, high)
            distances = jnp.abs(y - self._quantiles(points))
            total += 2 * jnp.sum(weights * ndtr(sign * points) * distances)
        return total

    def tempered(self, temperature: jax.Array) -> "Recalibrated":
        """The same map of the distribution at temperature T: a convention."""
        distribution = self.distribution.tempered(temperature)
        return dataclasses.replace(self, distribution=distribution)

    def _quantiles(self, scores: jax.Array) -> jax.Array:
        return jax.vmap(self.icdf)(ndtr(scores))

    def _atoms(self) -> tuple[jax.Array, jax.Array]:
        """Weights and quantiles with which expectations are computed."""
        end = _end(floating_dtype(self.distribution))
        rules = _rule(-end, jnp.zeros_like(end)), _rule(jnp.zeros_like(end), end)
        points, weights = (jnp.concatenate(parts) for parts in zip(*rules, strict=True))
        return weights / jnp.sum(weights), self._quantiles(points)

    def check_structure(self, name: str) -> None:
        """Refuses all but continuous distributions of numbers, and maps without methods."""
        check_continuous(f"{name}.distribution", self.distribution)
        for method in ("cdf", "icdf", "log_prob"):
            checks.method(f"{name}.map", self.map, method)
        if hasattr(self.distribution, "check_structure"):
            self.distribution.check_structure(f"{name}.distribution")
        if hasattr(self.map, "check_structure"):
            self.map.check_structure(f"{name}.map")
        else:
            checks.axis_lengths(f"{name}.map", self.map, ("n",))

    def check_values(self, name: str) -> "Recalibrated":
        """Checks the values of the distribution and of the map."""
        distribution = checks.record_values(self.distribution, f"{name}.distribution")
        has_own = hasattr(self.map, "check_values") or not checks.constraints_of(self.map)
        check = checks.record_values if has_own else lambda x, name: checks.constrained(name, x)
        return checks.replaced(self, distribution=distribution, map=check(self.map, f"{name}.map"))

    def check_targets(self, name: str, targets: ArrayLike) -> jax.Array:
        """Refuses targets that the distribution refuses."""
        return checks.targets_of(self.distribution, name, targets)


def check_continuous(name: str, predictions: Distribution) -> None:
    """Refuses all but continuous distributions of numbers with the methods that are needed."""
    support = getattr(predictions, "support", None)
    is_number = not getattr(support, "axes", ()) and not has_class_probs(predictions)
    needed = ("cdf", "icdf", "log_prob")
    has_all = all(callable(getattr(predictions, method, None)) for method in needed)
    if not is_number or not has_all or getattr(support, "is_integer", False):
        raise TypeError(
            f"{name}: expected continuous distributions of a number with methods cdf, icdf and "
            f"log_prob, got {checks.described(predictions)}"
        )


def _end(dtype: DTypeLike) -> jax.Array:
    """Largest normal score with a level below one."""
    return jnp.asarray(largest_score(dtype), dtype)


def _rule(low: jax.Array, high: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Normal scores in an interval, and weights that add up to its probability."""
    half = (high - low) / 2
    points = low + half * (1 + jnp.asarray(_NODES, half.dtype))
    density = jnp.exp(-0.5 * jnp.square(points)) / np.sqrt(2 * np.pi).astype(half.dtype)
    return points, half * jnp.asarray(_WEIGHTS, half.dtype) * density
