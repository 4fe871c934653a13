"""Composed distributions: mixtures, recalibrated distributions, and distributions with features."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtr, ndtri
from jax.typing import ArrayLike, DTypeLike

from calibjax._core import arithmetic, checks
from calibjax._core.arithmetic import floating_dtype, matmul, weighted_mean, weighted_variance
from calibjax._core.gate import checked
from calibjax._core.pytree import PyTree, record
from calibjax._core.special import implicit_quantile, inverse_of_cdf, smallest_integer
from calibjax.distributions.base import Distribution, Wrapper, has_class_probs, normalised
from calibjax.distributions.constraints import Constraint, real, simplex
from calibjax.distributions.continuous import Normal, mean_distance
from calibjax.distributions.discrete import Categorical
from calibjax.distributions.ensembles import MonteCarlo


@record
class Mixture(Distribution):
    """Mixture Σ_j w_j p_j of k distributions of one family, such as a deep ensemble.

    For classes the average of the probabilities in `Categorical` is the same distribution.

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

    weights: jax.Array | None = dataclasses.field(
        metadata={"constraint": simplex.with_axes("k"), "optional": True}
    )
    components: Any = dataclasses.field(metadata={"axes": ("k",)})

    @property
    def support(self) -> Constraint:
        """That of the components; numbers if they do not declare one."""
        return getattr(self.components, "support", real)

    @property
    def mixing_probs(self) -> jax.Array:
        """Probability of each component, [k], with sum one even if weights are rounded."""
        return normalised(self.weights, self.components)

    @property
    def class_probs(self) -> jax.Array:
        """Probability of each class, [m], or [n, m] for a batch; for mixtures over classes."""
        probs = self.components.class_probs
        if self.weights is None:
            return jnp.mean(probs, -2)
        return jnp.sum(self.mixing_probs[..., None] * probs, -2)

    def _average(self, values: jax.Array) -> jax.Array:
        """Σ_k w_k x_k over the leading axis."""
        return arithmetic.tensordot(self.mixing_probs, values, 1)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw a component, and one value from it."""
        index_key, value_key = jax.random.split(key)
        index = Categorical(self.mixing_probs).sample(index_key)
        return jax.tree.map(lambda leaf: leaf[index], self.components).sample(value_key)

    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Log-density (or log-probability) at y."""
        log_probs = jax.vmap(lambda p: p.log_prob(y))(self.components)
        weights = self.mixing_probs.reshape(-1, *(1 for _ in log_probs.shape[1:]))
        # Unlike `logsumexp`, keeps derivatives by weights of zero.
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
        Derivatives are implicit, from cdf(y) = level; discrete components have none. Cost: 64
        (float32: 32) evaluations of the cdf.
        """
        level = _as_levels(self, level)
        is_smooth = hasattr(self.components, "log_prob") and jnp.issubdtype(
            jax.eval_shape(_quantile, self, level.ravel()[0]).dtype, jnp.floating
        )
        quantile = _smooth_quantile if is_smooth else _quantile
        return jnp.vectorize(functools.partial(quantile, self))(level)

    def crps(self, y: jax.Array) -> jax.Array:
        """Continuous ranked probability score of y, for normal components.

        Cost: k² distances. References: Grimit et al. (2006), eq. (5).
        """
        parts, weights = self.components, self.mixing_probs
        if not isinstance(parts, Normal):
            kind = type(parts).__name__
            raise NotImplementedError(f"crps has no closed form for Mixture of {kind} predictions")
        unit, rate = arithmetic.unit_and_rate(jnp.max(parts.scale))
        squares = jnp.square(parts.scale * rate)
        scales = unit * jnp.sqrt(squares[:, None] + squares)
        between = mean_distance(parts.loc[:, None] - parts.loc, scales)
        distances = mean_distance(y - parts.loc, parts.scale)
        return matmul(weights, distances - 0.5 * matmul(between, weights))

    def tempered(self, temperature: jax.Array) -> "Mixture":
        """Every component at temperature T, with unchanged weights: a convention."""
        components = jax.vmap(lambda p: p.tempered(temperature))(self.components)
        return dataclasses.replace(self, components=components)

    def check_values(self, name: str) -> None:
        """Refuse components that are missing or not distributions."""
        if not checks.is_distribution(self.components):
            got = checks.described(self.components)
            expected = "distributions such as distributions.Normal"
            raise TypeError(f"{name}.components: expected {expected}, got {got}")


def _quantile(p: Mixture, level: jax.Array) -> jax.Array:
    quantiles = jax.vmap(lambda component: component.icdf(level))(p.components)
    has_weight = p.mixing_probs > 0
    some = quantiles[jnp.argmax(has_weight)]
    candidates = jnp.where(has_weight, quantiles, some)
    low, high = jnp.min(candidates), jnp.max(candidates)
    if jnp.issubdtype(quantiles.dtype, jnp.integer):
        is_known = ~(checks.is_missing(low) | checks.is_missing(high) | jnp.isnan(level))
        low, high = jnp.where(is_known, low, 0), jnp.where(is_known, high, 0)
        quantile = smallest_integer(p.cdf, level, low, high)
        return checks.missing_unless(is_known, quantile)
    return inverse_of_cdf(p.cdf, jnp.asarray(level, quantiles.dtype), low, high)


_smooth_quantile = implicit_quantile(_quantile)


def _as_levels(p: Distribution, level: ArrayLike) -> jax.Array:
    """Levels in their own precision, which may be higher than that of the parameters."""
    is_floating = jnp.issubdtype(jnp.result_type(level), jnp.floating)
    return jnp.asarray(level, None if is_floating else floating_dtype(p))


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


@record
class Recalibrated(Distribution):
    """Distribution of a scalar with its CDF composed with a recalibration map.

    With the distribution function F of p, and G of F(Y):

        cdf(y) = G(F(y)),   icdf(u) = F⁻¹(G⁻¹(u)),   log_prob(y) = log p(y) + log G'(F(y)).

    `recalibration` returns such predictions. Moments, and the CRPS (split at y), are integrals over
    quantiles by a Gauss–Legendre rule with 2·64 nodes between the normal scores ±8.2 (float32:
    ±5.2). They are exact up to rounding if quantiles are smooth functions of the normal score, and
    to about 10⁻³ if G is piecewise linear. The tails beyond are left out, which matters for very
    heavy tails.

    Attributes:
        distribution: p, a continuous distribution of a number, or a batch, with `cdf`, `icdf` and
            `log_prob`.
        map: distribution of F(Y) on [0, 1]: a record with methods `cdf(level)`, `icdf(level)` and
            `log_prob(level)`, such as a `Beta`, or a batch with a leading axis n on every
            parameter.

    Raises:
        TypeError: when it is passed to a function, if the distribution is not continuous, or a
            method is missing.

    Cost: the distribution and the map; 128 quantiles for moments and the CRPS.

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
        """Support of the distribution."""
        return getattr(self.distribution, "support", real)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one value."""
        dtype = floating_dtype(self.distribution)
        least = float(jnp.finfo(dtype).tiny)
        return self.icdf(jax.random.uniform(key, (), dtype, minval=least))

    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Log-density at y; the density of the map is constant beyond the last digit of levels."""
        p = self.distribution
        level = p.cdf(y)
        last = jnp.finfo(level.dtype).eps
        return p.log_prob(y) + self.map.log_prob(jnp.clip(level, last / 4, 1 - last))

    def cdf(self, y: ArrayLike) -> jax.Array:
        """Probability of values up to y."""
        return self.map.cdf(self.distribution.cdf(y))

    def icdf(self, level: ArrayLike) -> jax.Array:
        """Value y with cdf(y) = level; derivatives are implicit."""
        return _quantile_behind_map(self, _as_levels(self, level))

    def _solve(self, level: jax.Array) -> jax.Array:
        inner = self.map.icdf(level)
        info = jnp.finfo(inner.dtype)
        # Levels between 0 and 1 have finite quantiles, even if the map rounds to its ends.
        is_inside = (level > 0) & (level < 1)
        inner = jnp.where(is_inside, jnp.clip(inner, info.tiny, 1 - info.epsneg), inner)
        return self.distribution.icdf(inner)

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
        """The map with the distribution at temperature T: a convention."""
        distribution = self.distribution.tempered(temperature)
        return dataclasses.replace(self, distribution=distribution)

    def _quantiles(self, scores: jax.Array) -> jax.Array:
        return jax.vmap(self.icdf)(ndtr(scores))

    def _atoms(self) -> tuple[jax.Array, jax.Array]:
        """Weights and quantiles for expectations."""
        end = _end(floating_dtype(self.distribution))
        rules = _rule(-end, jnp.zeros_like(end)), _rule(jnp.zeros_like(end), end)
        points, weights = (jnp.concatenate(parts) for parts in zip(*rules, strict=True))
        return weights / jnp.sum(weights), self._quantiles(points)

    def check_values(self, name: str) -> None:
        """Refuse other than continuous distributions of numbers, and maps without methods."""
        check_continuous(f"{name}.distribution", self.distribution)
        for method in ("cdf", "icdf", "log_prob"):
            checks.method(f"{name}.map", self.map, method)


_quantile_behind_map = implicit_quantile(Recalibrated._solve)


def check_continuous(name: str, predictions: Distribution) -> None:
    """Refuse other than continuous distributions of numbers with the required methods."""
    support = getattr(predictions, "support", real)
    is_number = not support.axes and not support.is_integer and not has_class_probs(predictions)
    needed = ("cdf", "icdf", "log_prob")
    if not is_number or not all(callable(getattr(predictions, x, None)) for x in needed):
        expected = "continuous distributions of a number with methods cdf, icdf and log_prob"
        raise TypeError(f"{name}: expected {expected}, got {checks.described(predictions)}")


def _end(dtype: DTypeLike) -> jax.Array:
    """Largest normal score with a level below one."""
    return jnp.asarray(arithmetic.largest_score(dtype), dtype)


def _rule(low: jax.Array, high: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Normal scores in an interval, and weights that add up to its probability."""
    half = (high - low) / 2
    points = low + half * (1 + jnp.asarray(_NODES, half.dtype))
    density = jnp.exp(-0.5 * jnp.square(points)) / np.sqrt(2 * np.pi).astype(half.dtype)
    return points, half * jnp.asarray(_WEIGHTS, half.dtype) * density


@record
class WithFeatures(Wrapper):
    """Prediction with features, made by `with_features`.

    Only the distance `calibjax.distances.Features` uses the features. Everything else ignores the
    features.

    Attributes:
        distribution: the distribution.
        features: an array or pytree of arrays, with a leading axis n for a batch.
    """

    distribution: Any
    features: Any

    def tempered(self, temperature: jax.Array) -> "WithFeatures":
        """The tempered distribution with the same features."""
        return dataclasses.replace(self, distribution=self.distribution.tempered(temperature))


@checked
def with_features(predictions: Any, features: PyTree) -> PyTree:
    """Predictions with features for kernels on predictions.

    With the distance `calibjax.distances.Features` in the kernel on predictions, tests and
    estimators assess calibration *conditional on the features*, Y | X ~ P_X. For example, a
    posterior that equals the prior for all data is calibrated, but not conditionally. For a kernel
    on both use a product of kernels.

    All functions of `calibjax` take the result instead of the predictions; reductions and
    recalibration keep the features.

    Args:
        predictions: batch of n distributions of any family.
        features: [n, d], [n], or any pytree of arrays with leading axis n.

    Returns:
        The predictions with features, a `WithFeatures`.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: none.

    References: none of the four papers has it; with features as conditioning variables, the SKCE is
    the kernel conditional goodness-of-fit statistic of Jitkrittum, Kanagawa and Schölkopf (2020)
    for other target kernels.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> keys = jax.random.split(jax.random.key(0), 3)
    >>> truth = jax.random.normal(keys[0], (200,))
    >>> data = truth + jax.random.normal(keys[1], (200,))
    >>> prior = distributions.Normal(jnp.zeros(200), jnp.ones(200))  # a posterior without the data
    >>> predictions = distributions.with_features(prior, data)
    >>> k = kernels.SquaredExponential(1.0, distances.Features(distances.Euclidean()))
    >>> kernel = kernels.TensorProduct(k, kernels.SquaredExponential(1.0))
    >>> test = hypothesis_tests.exact_skce_test(keys[2], kernel, predictions, truth)
    >>> print(f"{test.pvalue:.3f}")
    0.001
    """
    distribution = bare(predictions, MonteCarlo)
    if isinstance(distribution, WithFeatures):
        expected = "predictions without features, got some with features"
        raise ValueError(f"predictions: expected {expected}; pass all features in one dictionary")
    if distribution is not predictions:  # kernels see the distribution
        inner = WithFeatures(distribution, features)
        return dataclasses.replace(predictions, distribution=inner)
    return WithFeatures(predictions, features)


def like(original: object, predictions: Any) -> Any:
    """New predictions with the features of the original ones, if any."""
    original = bare(original, MonteCarlo)
    has_any = isinstance(original, WithFeatures)
    return WithFeatures(predictions, original.features) if has_any else predictions


def bare(p: object, kind: type[Wrapper] = WithFeatures) -> Any:
    """Prediction without features; without draws for `MonteCarlo`, without both for `Wrapper`."""
    while isinstance(p, kind):
        p = p.distribution
    return p
