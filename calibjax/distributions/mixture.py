"""Mixtures and ensembles of distributions of one family."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import (
    matmul,
    tensordot,
    unit_and_rate,
    weighted_mean,
    weighted_variance,
)
from calibjax._core.pytree import parameter, record
from calibjax._core.special import implicit_quantile, inverse_of_cdf, smallest_integer
from calibjax.distributions.base import Distribution
from calibjax.distributions.categorical import Categorical
from calibjax.distributions.constraints import simplex
from calibjax.distributions.normal import Normal, mean_distance


@record
class Mixture(Distribution):
    """Mixture Σ_k w_k p_k of k distributions of one family, such as an ensemble of models.

    Attributes:
        weights: w, probabilities of the components, [k], or [n, k] for a batch; None if all
            are 1 / k.
        components: the distributions p_1, ..., p_k as a batch, with a leading axis k, or [n, k]
            for a batch of mixtures.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> ensemble = Mixture(None, Normal(loc=jnp.array([-1.0, 1.0]), scale=jnp.array([1.0, 1.0])))
    >>> print(ensemble.mean(), ensemble.variance(), ensemble.cdf(0.0))
    0.0 2.0 0.5
    """

    weights: jax.Array | None = parameter(simplex.with_axes("k"))
    components: Any = dataclasses.field(metadata={"axes": 1})

    @property
    def mixing_probs(self) -> jax.Array:
        """Probability of each component, [k], with sum one even if weights are rounded."""
        if self.weights is None:
            first = jax.tree.leaves(self.components)[0]
            num_components = jnp.shape(first)[0]
            dtype = jnp.result_type(*jax.tree.leaves(self.components), jnp.float32)
            return jnp.full(num_components, 1 / num_components, dtype)
        return self.weights / jnp.sum(self.weights, -1, keepdims=True)

    @property
    def class_probs(self) -> jax.Array:
        """Probability of each class, [m], or [n, m] for a batch; for mixtures over classes."""
        probs = self.components.class_probs
        if self.weights is None:
            return jnp.mean(probs, -2)
        return jnp.sum(self.mixing_probs[..., None] * probs, -2)

    def _average(self, values: jax.Array) -> jax.Array:
        """Σ_k w_k x_k over the leading axis."""
        return tensordot(self.mixing_probs, values, 1)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws a component, and one value from it."""
        index_key, value_key = jax.random.split(key)
        index = Categorical(self.mixing_probs).sample(index_key)
        return jax.tree.map(lambda leaf: leaf[index], self.components).sample(value_key)

    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Log-density (or log-probability) at y."""
        log_probs = jax.vmap(lambda p: p.log_prob(y))(self.components)
        weights = self.mixing_probs.reshape(-1, *(1 for _ in log_probs.shape[1:]))
        # Components without weight have derivatives by it, which `logsumexp` leaves out.
        largest = jnp.max(log_probs, 0, where=weights > 0, initial=-jnp.inf)
        largest = lax.stop_gradient(jnp.where(jnp.isfinite(largest), largest, 0))
        log_probs = jnp.where(weights == 0, jnp.minimum(log_probs, largest + 80), log_probs)
        return largest + jnp.log(jnp.sum(weights * jnp.exp(log_probs - largest), 0))

    def mean(self) -> jax.Array:
        """Expectation."""
        return weighted_mean(self.mixing_probs, jax.vmap(lambda p: p.mean())(self.components))

    def variance(self) -> jax.Array:
        """Variance: the mean variance of the components plus the variance of their means."""
        means, variances = jax.vmap(lambda p: (p.mean(), p.variance()))(self.components)
        return self._average(variances) + weighted_variance(self.mixing_probs, means)

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of values up to y."""
        return self._average(jax.vmap(lambda p: p.cdf(y))(self.components))

    def icdf(self, level: jax.Array) -> jax.Array:
        """Smallest value y with cdf(y) ≥ level, by bisection to machine precision.

        It lies between the smallest and the largest quantile of components with positive weight.
        Derivatives are those of the function that cdf(y) = level defines implicitly; discrete
        components have none. Cost: 64 (float32: 32) evaluations of the cdf.
        """
        return jnp.vectorize(functools.partial(_quantile, self))(jnp.asarray(level))

    def crps(self, y: jax.Array) -> jax.Array:
        """Continuous ranked probability score of y, for normal components.

        Cost: k² distances. References: Grimit et al. (2006), eq. (5).
        """
        parts, weights = self.components, self.mixing_probs
        if not isinstance(parts, Normal):
            raise NotImplementedError(
                f"crps has no closed form for Mixture of {type(parts).__name__} predictions"
            )
        unit, rate = unit_and_rate(jnp.max(parts.scale))
        squares = jnp.square(parts.scale * rate)
        scales = unit * jnp.sqrt(squares[:, None] + squares)
        between = mean_distance(parts.loc[:, None] - parts.loc, scales)
        distances = mean_distance(y - parts.loc, parts.scale)
        return matmul(weights, distances - 0.5 * matmul(between, weights))

    def tempered(self, temperature: jax.Array) -> "Mixture":
        """Every component at temperature T, with unchanged weights: a convention."""
        components = jax.vmap(lambda p: p.tempered(temperature))(self.components)
        return dataclasses.replace(self, components=components)

    def with_index(self, num_axes: int = 1) -> "Mixture":
        """The batch, whose components have their own index if they need one."""
        if not hasattr(self.components, "with_index"):
            return self
        return dataclasses.replace(self, components=self.components.with_index(num_axes + 1))

    def without_index(self) -> "Mixture":
        """The mixture or batch as kernels on predictions see it."""
        if not hasattr(self.components, "without_index"):
            return self
        return dataclasses.replace(self, components=self.components.without_index())

    def check_structure(self, name: str) -> None:
        """Refuses components without leading axes [n, k], and weights of another shape."""
        if not checks.is_distribution(self.components):
            raise TypeError(
                f"{name}.components: expected distributions such as distributions.Normal, "
                f"got {checks.described(self.components)}"
            )
        sizes = {}
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.components):
            place = f"{name}.components{jax.tree_util.keystr(path)}"
            if jnp.ndim(leaf) < 2:
                raise ValueError(f"{place}: expected leading axes [n, k], got {jnp.shape(leaf)}")
            sizes[place] = jnp.shape(leaf)[:2]
        if len(set(sizes.values())) > 1:
            raise ValueError(f"{name}.components: expected the same axes [n, k], got {sizes}")
        num_samples, num_components = next(iter(sizes.values()))
        if num_components == 0:
            raise ValueError(f"{name}.components: expected at least one component, got [n, 0]")
        if self.weights is not None:
            checks.floating(f"{name}.weights", self.weights)
            expected = (num_samples, num_components)
            checks.shape(f"{name}.weights", self.weights, expected, f"{expected}, as components")
        if hasattr(self.components, "check_structure"):
            self._first().check_structure(f"{name}.components[:, 0]")

    def check_values(self, name: str) -> "Mixture":
        """Refuses weights outside the probability simplex, and invalid components."""
        weights = self.weights
        if weights is not None:
            weights = checks.simplex(f"{name}.weights", weights)
        components = checks.record_values(self.components, f"{name}.components")
        return checks.replaced(self, weights=weights, components=components)

    def check_targets(self, name: str, targets: ArrayLike) -> jax.Array:
        """Refuses targets that the first component refuses."""
        return checks.targets_of(self._first(), name, targets)

    def _first(self) -> Distribution:
        """The first component of each mixture of a batch."""
        return jax.tree.map(lambda leaf: leaf[:, 0], self.components)


def _quantile(p: Mixture, level: jax.Array) -> jax.Array:
    fixed, fixed_level = lax.stop_gradient((p, level))
    quantiles = jax.vmap(lambda component: component.icdf(fixed_level))(fixed.components)
    has_weight = fixed.mixing_probs > 0
    some = quantiles[jnp.argmax(has_weight)]
    candidates = jnp.where(has_weight, quantiles, some)
    low, high = jnp.min(candidates), jnp.max(candidates)
    if jnp.issubdtype(quantiles.dtype, jnp.integer):
        is_known = ~(checks.is_missing(low) | checks.is_missing(high) | jnp.isnan(fixed_level))
        low, high = jnp.where(is_known, low, 0), jnp.where(is_known, high, 0)
        quantile = smallest_integer(fixed.cdf, fixed_level, low, high)
        return checks.missing_unless(is_known, quantile)
    y = inverse_of_cdf(fixed.cdf, jnp.asarray(fixed_level, quantiles.dtype), low, high)
    return implicit_quantile(p, y, level) if hasattr(p.components, "log_prob") else y
