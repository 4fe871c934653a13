"""Distributions given by draws or quantiles."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import absolute, weighted_mean, weighted_variance
from calibjax._core.gate import checked
from calibjax._core.pytree import Numbers, parameter, record, varying_as
from calibjax.distributions.base import Distribution, Wrapper, checked_targets, draw, normalised
from calibjax.distributions.constraints import Constraint, simplex
from calibjax.distributions.discrete import Categorical


@jax.jit
def _present(values: jax.Array, weights: jax.Array) -> jax.Array:
    """Draws of a batch; one of positive weight replaces those without weight."""
    more, axis = [1] * (values.ndim - weights.ndim), weights.ndim - 1
    index = jnp.argmax(weights > 0, -1, keepdims=True)
    others = jnp.take_along_axis(values, index.reshape(*index.shape, *more), axis)
    return jnp.where((weights == 0).reshape(*weights.shape, *more), others, values)


# Values are checked together with weights.
_DRAWS = Constraint("draws", lambda name, x: x, ("m",), 2, None, ("d",))


@record
class Ensemble(Distribution):
    """Distribution given by m ≥ 2 draws z_1, ..., z_m: ensemble members or runs of a simulator.

    Any target kernel works. Draws and targets are both integers (class labels, counts) or both
    floating-point numbers. Methods are for one distribution; use `jax.vmap` for a batch.

    Estimators treat the draws as independent draws from the predicted distribution. Expectations
    are averages over the draws; if a prediction is paired with itself, a draw is never paired with
    itself (see `calibjax.kernels.expectations.others`). The SKCE is estimated without bias if
    the kernel on predictions does not depend on the draws. Otherwise, for example with
    `Wasserstein`, calibrated ensembles have a positive SKCE of order 1 / m. With `monte_carlo` the
    kernel depends on the parameters instead.

    Sampling, mean, variance, distribution function and quantiles are those of the empirical
    distribution. So tests such as `exact_skce_test` draw targets from the members, and reject even
    calibrated ensembles if they are small (at level 5 %, 73 % with 3 members and 16 predictions).
    Use `hypothesis_tests.ensemble_skce_test`.

    Attributes:
        values: draws of a scalar, [m], or of a vector, [m, d]; [n, m] or [n, m, d] for a batch.
        weights: probabilities of the draws, [m], or [n, m] for a batch; None if all are 1 / m. For
            a batch also a mask of present members: `~numpy.isnan(values)`, if missing members are
            NaN. Values of weight zero are not used.
        index: number that identifies each prediction of a batch, [n]; estimators and tests fill it
            in. Draws of predictions with different numbers, or without a number, are treated as
            different; draws with one number have to be equal.

    >>> import jax.numpy as jnp
    >>> p = Ensemble(jnp.array([1.0, 2.0, 6.0]))
    >>> print(p.mean(), p.icdf(0.5), f"{p.cdf(2.0):.2f}")
    3.0 2.0 0.67
    """

    support = Constraint("targets, as the draws", checks.finite, (), 1, None, ("d",))

    values: jax.Array = parameter(_DRAWS)
    weights: jax.Array | None = dataclasses.field(
        default=None,
        metadata={"constraint": simplex.with_axes("m"), "optional": True, "mask": True},
    )
    index: jax.Array | None = dataclasses.field(default=None, metadata={"numbers": True})

    @property
    def probs(self) -> jax.Array:
        """Probability of each draw, [m], with sum one even if weights are rounded."""
        return normalised(self.weights, self.values)

    def sample(self, key: jax.Array) -> jax.Array:
        """One of the draws, at random."""
        if self.weights is None:
            return self.values[jax.random.randint(key, (), 0, jnp.shape(self.values)[0])]
        return self.values[Categorical(self.probs).sample(key)]

    def mean(self) -> jax.Array:
        """Weighted mean of the draws, a scalar or [d]."""
        return weighted_mean(self.probs, self.values)

    def variance(self) -> jax.Array:
        """Weighted mean squared deviation of the draws, a scalar or [d]."""
        return weighted_variance(self.probs, self.values)

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of the scalar draws up to y."""
        is_upto = self._scalars("cdf") <= jnp.asarray(y)[..., None]
        return jnp.sum(jnp.where(is_upto, self.probs, 0), -1)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Smallest scalar draw z of positive probability with cdf(z) ≥ level."""
        order = jnp.argsort(self._scalars("icdf"))
        quantile = self.values[order][Categorical(self.probs[order]).icdf(jnp.asarray(level))]
        if jnp.issubdtype(quantile.dtype, jnp.integer):
            return checks.missing_unless(~jnp.isnan(level), quantile)
        return jnp.where(jnp.isnan(level), jnp.nan, quantile)

    def crps(self, y: jax.Array) -> jax.Array:
        """Continuous ranked probability score of y, of the empirical distribution."""
        if jnp.ndim(self.values) != 1:
            other = "vectors; it has a scores.energy_score"
            raise NotImplementedError(f"crps has no closed form for an Ensemble of {other}")
        to_target, between = self.mean_distances(y)
        return to_target - 0.5 * between

    def mean_distances(
        self, y: jax.Array, distance: Callable[..., jax.Array] | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """E d(Z, y) and E d(Z, Z') of independent draws Z, Z' from the empirical distribution.

        Without a distance, it is |z − z'| of numbers, from their order. Otherwise m² distances are
        evaluated.
        """
        probs, values = self.probs, self.values.astype(self.probs.dtype)
        y = jnp.asarray(y, values.dtype)
        if distance is None:
            order = jnp.argsort(values)
            upto = jnp.cumsum(probs[order])[:-1]
            between = 2 * jnp.sum(upto * (1 - upto) * jnp.diff(values[order]))
            return jnp.sum(probs * absolute(values - y)), between
        to_all = jax.vmap(distance, (0, None))

        @jax.checkpoint  # stores draws, not distances, for derivatives
        def add(sums: jax.Array, draw: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            return sums + draw[1] * to_all(values, draw[0]), None

        zeros = varying_as(jnp.zeros_like(probs), (values, probs))
        sums = lax.scan(add, zeros, (values, probs))[0]
        return jnp.sum(probs * to_all(values, y)), jnp.sum(probs * sums)

    def tempered(self, temperature: jax.Array) -> "Ensemble":
        """Deviations from the mean times √T: a convention, because draws have no density."""
        if not jnp.issubdtype(jnp.result_type(self.values), jnp.floating):
            raise NotImplementedError("tempered is not defined for an Ensemble of integers")
        mean = self.mean()
        values = mean + jnp.sqrt(temperature) * (self.values - mean)
        return dataclasses.replace(self, values=values)

    def _scalars(self, name: str) -> jax.Array:
        if jnp.ndim(self.values) != 1:
            got = f"values of shape {jnp.shape(self.values)}; use jax.vmap for a batch"
            raise ValueError(f"{name}: expected draws [m] of one scalar distribution, got {got}")
        return self.values

    def check_values(self, name: str) -> "Ensemble":
        """Refuse missing draws, and fewer than two draws of positive weight."""
        values, weights, place = self.values, self.weights, f"{name}.values"
        if weights is not None:
            values = _present(values, weights)
            expected = "at least two draws of positive weight"
            has_two = lambda w: (w != 0).sum(-1, keepdims=True) > 1  # noqa: E731
            weights = checks.satisfying(f"{name}.weights", weights, has_two, expected)
        if jnp.issubdtype(values.dtype, jnp.integer):
            is_there = lambda z: z != np.iinfo(z.dtype).min  # noqa: E731
            values = checks.satisfying_integers(place, values, is_there, "draws")
        self._refuse_other_draws(name, values)
        return checks.replaced(self, values=checks.finite(place, values), weights=weights)

    def _refuse_other_draws(self, name: str, values: jax.Array) -> None:
        """Refuses different draws of predictions with one index."""
        if self.index is None or not checks.is_concrete(self.index, values):
            return
        index = checks.integer(f"{name}.index", self.index, "numbers of the predictions")
        index = np.asarray(index).reshape(-1)
        rows, order = np.asarray(values).reshape(index.size, -1), index.argsort()
        first = rows[order[np.searchsorted(index[order], index)]]
        # Rounding of equal rows depends on their places in a vector register.
        differs = (np.abs(rows - first) > 1e-6 * np.abs(rows).max(1, keepdims=True)).any(1)
        expected = "one number for each prediction, and Ensemble(values) for joined batches"
        checks.refuse_where(differs, f"{name}.index", expected, index)


@record
class MonteCarlo(Wrapper):
    """Distribution with draws from it, made by `monte_carlo`.

    Expectations of target kernels are averages over the draws. Kernels on predictions, distances,
    sampling of targets, features, and attributes such as `log_prob`, `mean` or the parameters use
    the distribution. Predictions derived from it have no draws.

    Attributes:
        distribution: the distribution.
        draws: its draws, an `Ensemble`.
    """

    distribution: Any
    draws: Any

    def check_values(self, name: str) -> "MonteCarlo":
        """Refuse draws that are not possible targets."""
        inner, draws = getattr(self.distribution, "distribution", self.distribution), self.draws
        values = checked_targets(inner, f"{name}.draws.values", draws.values, ("draws",))
        return checks.replaced(self, draws=checks.replaced(draws, values=values))


@functools.partial(jax.jit, static_argnames="num_samples")
def _draw_many(key: jax.Array, predictions: Distribution, num_samples: int) -> jax.Array:
    """Independent draws from each prediction, [n, m] or [n, m, d]."""
    keys = jax.random.split(key, num_samples)
    return jax.vmap(lambda k: draw(k, predictions), out_axes=1)(keys)


@checked(needs=("sample",))
def monte_carlo(key: jax.Array, predictions: Distribution, num_samples: int) -> MonteCarlo:
    """Draws from each prediction, for unbiased estimates of expectations.

    For predictions and target kernels without closed-form expectations: pass the result to
    estimators and tests instead of the predictions. The draws of different predictions are
    independent. So the means of the expectations, and of the unbiased and the biased SKCE, are
    those with exact expectations; their variance grows by terms of order 1 / num_samples. If a
    prediction is paired with itself, a draw is never paired with itself. So h is no longer positive
    semi-definite, and even the biased SKCE may be negative. The exact tests stay exact.

    Args:
        key: a JAX random key.
        predictions: batch of n distributions.
        num_samples: m ≥ 2, number of draws from each prediction.

    Returns:
        The predictions with their draws.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if the parameters have wrong shapes or values, or m < 2.

    Cost: n m draws and their memory; without features of the target kernel, the SKCE then takes n²
    m² / 2 evaluations: m = 10 is a hundred times as expensive as a closed form, minutes for n = 30
    000. A few draws suffice, because each of the n predictions has its own.

    References: none of the four papers has it.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, estimators, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.Exponential(1.0)
    ... )
    >>> predictions = distributions.Normal(jnp.zeros(8), jnp.ones(8))
    >>> drawn = distributions.monte_carlo(jax.random.key(0), predictions, 50)
    >>> print(f"{estimators.skce(kernel, drawn, jnp.full(8, 2.0)):.1f}")
    1.0
    """
    if isinstance(predictions, MonteCarlo):
        predictions = predictions.distribution
    values = _draw_many(key, predictions, num_samples)
    return MonteCarlo(predictions, Ensemble(values, index=jnp.arange(len(values))))


def _levels(name: str, levels: jax.Array) -> Any:
    levels = checks.proportions(name, levels)
    return checks.increasing(name, levels, "increasing levels", strictly=True)


def _quantiles(name: str, values: Any) -> Any:
    values = checks.satisfying(name, values, lambda x: x == x, "finite values, -inf or inf")
    advice = "distributions.Quantiles.sorted(levels, values) sorts them"
    return checks.increasing(name, values, f"quantiles that do not cross ({advice})")


@record
class Quantiles(Distribution):
    """Quantile forecast of a number: P(Y ≤ values_j) = levels_j, j = 1, ..., k.

    If Y may equal a quantile with positive probability, as for counts and days without rain, it
    means P(Y < values_j) ≤ levels_j ≤ P(Y ≤ values_j). Quantiles may be −∞ and ∞, as from conformal
    methods with few calibration data; `scores.pinball_loss` is then infinite.

    The distribution between and beyond the quantiles is not specified, so there is no density, no
    sampling and no kernel calibration error. Use `scores.pinball_loss`, and
    `hypothesis_tests.coverage_test` for the coverage of each level and interval.

    Attributes:
        levels: in (0, 1), increasing, [k]; for a batch [n, k], or [k] if all share them.
        values: quantiles at these levels, not decreasing, [k], or [n, k] for a batch; −∞ and ∞
            are allowed.

    Raises:
        TypeError, ValueError: when it is passed to a function, if levels or values are invalid;
            `Quantiles.sorted` takes quantiles that cross.

    References: Koenker and Bassett (1978), Regression quantiles.

    >>> import jax.numpy as jnp
    >>> p = Quantiles(levels=jnp.array([0.25, 0.75]), values=jnp.array([-1.0, 2.0]))
    >>> print(p.interval(1.5), p.interval(2.0), p.interval(3.0), p.probs)
    1 1 2 [0.25 0.5  0.25]
    """

    levels: jax.Array = parameter(Constraint("increasing levels in (0, 1)", _levels, ("k",)))
    values: jax.Array = parameter(Constraint("quantiles", _quantiles, ("k",)))

    @classmethod
    def sorted(cls, levels: Numbers, values: Numbers) -> "Quantiles":
        """Forecast with the quantiles of each row, and the levels, in increasing order.

        Quantiles that were estimated one by one may cross. Sorted quantiles are never further from
        the true quantiles, on average over equidistant levels.

        Args:
            levels: in (0, 1), in any order, [k], or [n, k] for a batch.
            values: quantiles at these levels, [k], or [n, k] for a batch.

        Returns:
            The forecast, with unchanged shapes and precision of levels and values.

        Raises:
            TypeError: if levels or values are not arrays of real numbers.

        Cost: O(n k log k).

        References: Chernozhukov, Fernández-Val and Galichon (2010), Quantile and probability curves
        without crossing.

        >>> print(Quantiles.sorted([0.1, 0.5, 0.9], [-1.0, 2.0, 1.5]).values)
        [-1.   1.5  2. ]
        """
        # Keeps the precision of the arguments.
        arrays = checks.originals("levels", levels), checks.originals("values", values)
        in_order: Any = (np.sort(x) if isinstance(x, np.ndarray) else jnp.sort(x) for x in arrays)
        return cls(*in_order)

    @property
    def probs(self) -> jax.Array:
        """Probabilities of the k + 1 intervals between the quantiles, [k + 1], or [n, k + 1]."""
        zeros = jnp.zeros_like(self.levels[..., :1])
        return jnp.diff(self.levels, prepend=zeros, append=zeros + 1)

    def interval(self, y: ArrayLike) -> jax.Array:
        """Index of the interval that contains y, 0, ..., k: the number of quantiles below y."""
        return jnp.sum(self.values < jnp.asarray(y), -1)
