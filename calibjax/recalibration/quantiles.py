"""Recalibration of quantiles: of all of a distribution, or those at given levels."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.fitting import newton_minimum
from calibjax._core.pytree import parameter, record
from calibjax.distributions import Beta, Quantiles
from calibjax.distributions.base import Distribution
from calibjax.distributions.constraints import real
from calibjax.distributions.features import bare, like
from calibjax.distributions.recalibrated import Recalibrated, check_continuous
from calibjax.recalibration.base import Recalibrator
from calibjax.recalibration.isotonic import IsotonicMap
from calibjax.scores.base import weighted_mean


@record
class QuantileRecalibration(Recalibrator):
    """Quantile recalibration: predictions get the distribution of their integral transforms.

        F'(y) = G(F(y)),   G the distribution function of u_i = F_i(y_i),

    so that all predictions have the same error of each level: what is called 90 % becomes G(90 %).

    | shape | G |
    | --- | --- |
    | `"beta"` | of a `Beta` distribution with the largest likelihood: bias and spread, smoothly |
    | `"isotonic"` | piecewise linear through the quantiles of the u_i at levels j / (k + 1) |

    The second is any monotone map, and needs many samples: about k / 2n nats are lost by its
    errors. The quantiles are those between order statistics u_(i) at levels i / (n + 1), so that
    targets beyond all that were seen keep their probability; weights are numbers of copies and n
    is their sum, so that their scale matters. Isotonic
    regression of the empirical levels on the u_i, which are monotone already, is the case of k = n.

    `fit` returns the distribution of the u_i, a `Beta` or an `IsotonicMap`;
    `apply(params, predictions)` a batch of `Recalibrated`.

    Attributes:
        shape: "beta" or "isotonic".
        num_knots: k, of "isotonic" maps.

    Raises:
        TypeError: by the methods if the predictions are not continuous numbers with `cdf`, `icdf`
            and `log_prob`.
        ValueError: by `fit` if there are fewer than two samples, or all u_i are equal; if the
            arrays are traced, the params are NaN instead.

    Cost: O(n) for each of about 6 iterations of Newton's method; a sort for "isotonic".

    References: Kuleshov, Fenner and Ermon (2018), Accurate uncertainties for deep learning using
    calibrated regression, Algorithm 1; Ranjan and Gneiting (2010), Combining probability forecasts,
    §2.2, for the beta transform.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax.distributions import Uniform
    >>> predictions = Uniform(low=jnp.zeros(3), high=jnp.ones(3))
    >>> method = QuantileRecalibration("isotonic", num_knots=3)
    >>> params = method.fit(predictions, jnp.array([0.1, 0.2, 0.5]))
    >>> recalibrated = method.apply(params, predictions)
    >>> print(params.thresholds, jax.vmap(lambda p: p.icdf(0.75))(recalibrated))
    [0.  0.1 0.2 0.5 1. ] [0.5 0.5 0.5]
    """

    shape: str = dataclasses.field(default="beta", metadata={"static": True})
    _: dataclasses.KW_ONLY
    num_knots: int = dataclasses.field(default=20, metadata={"static": True})

    def fit(
        self, predictions: Distribution, targets: ArrayLike, weights: ArrayLike | None = None
    ) -> Beta | IsotonicMap:
        """The distribution of the integral transforms."""
        is_beta, num_knots = self._options()
        predictions, targets, weights = checks.weighted_samples(
            predictions, targets, weights, minimum=2, as_copies=not is_beta
        )
        plain = bare(predictions)
        check_continuous("predictions", plain)
        levels, exists = _transforms(plain, targets, weights)
        if checks.is_concrete(exists) and not exists:
            raise ValueError(
                "targets: expected integral transforms that differ, got "
                f"{levels[0]} for all samples"
            )
        params = _most_likely(levels, weights) if is_beta else _knots(levels, weights, num_knots)
        return jax.tree.map(lambda x: jnp.where(exists, x, jnp.nan), params)

    def apply(self, params: Beta | IsotonicMap, predictions: Distribution) -> Recalibrated:
        """All predictions, with this distribution of the integral transform."""
        predictions = checks.batch(predictions)
        plain = bare(predictions)
        check_continuous("predictions", plain)
        law = checks.learned("params", params, Beta if self._options()[0] else IsotonicMap)
        n = checks.leading_size("predictions", predictions)
        law = jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *jnp.shape(x))), law)
        return like(predictions, Recalibrated(plain, law))

    def identity(self, predictions: Distribution) -> Beta | IsotonicMap:
        """The uniform distribution."""
        one = jnp.ones((), floating_dtype(predictions))
        is_beta, num_knots = self._options()
        if is_beta:
            return Beta(one, one)
        levels = jnp.linspace(0, 1, num_knots + 2, dtype=one.dtype)
        return IsotonicMap(levels, levels)

    def _options(self) -> tuple[bool, int]:
        """Whether the map is a beta distribution function, and the number of knots, checked."""
        is_beta = checks.choice("shape", self.shape, ("beta", "isotonic")) == "beta"
        return is_beta, checks.size_in_range("num_knots", self.num_knots, 1)


@jax.jit
def _transforms(
    predictions: Distribution, targets: jax.Array, weights: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """F_i(y_i), inside of (0, 1), and whether they differ."""
    levels = jax.vmap(lambda p, y: p.cdf(y))(predictions, targets)
    last = jnp.finfo(levels.dtype).eps
    levels = jnp.clip(levels, last / 4, 1 - last)
    counted = checks.counted(weights, levels)
    return levels, jnp.max(counted) > jnp.min(counted)


@jax.jit
def _most_likely(levels: jax.Array, weights: jax.Array | None) -> Beta:
    logs = weighted_mean(jnp.stack([jnp.log(levels), jnp.log1p(-levels)]), weights)

    def loss(log_sizes: jax.Array) -> jax.Array:
        alpha, beta = sizes = jnp.exp(log_sizes)
        return betaln(alpha, beta) - jnp.sum((sizes - 1) * logs)

    return Beta(*jnp.exp(newton_minimum(loss, jnp.zeros(2, levels.dtype))))


@jax.jit
def _sorted(values: jax.Array, weights: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """Numbers in increasing order, and their levels i / (n + 1), or the first and last of copies.

    Between two samples is a share of 1 / (n + 1); one of weight w < 1 lies in the middle of its own
    and this share. One without weight is a copy of another, whose levels it has.
    """
    order = jnp.argsort(values)
    if weights is None:
        return values[order], jnp.arange(1, len(values) + 1, dtype=values.dtype) / (len(values) + 1)
    heaviest, weights = jnp.argmax(weights), weights[order]
    upto = jnp.cumsum(weights)
    middle = upto - 0.5 * weights + 0.5
    copied = jnp.argmax(order == heaviest)  # by `checks.counted`
    middle = jnp.where(weights > 0, middle, middle[copied])
    half = 0.5 * jnp.maximum(weights - 1, 0)
    levels = jnp.sort(jnp.concatenate([middle - half, middle + half])) / (upto[-1] + 1)
    return jnp.repeat(values[order], 2), levels


def weighted_quantiles(
    values: jax.Array, weights: jax.Array | None, levels: jax.Array, ends: tuple[Any, Any]
) -> jax.Array:
    """Quantiles at levels between order statistics i / (n + 1), with ends at 0 and at 1."""
    values = checks.counted(weights, values)
    is_bad = jnp.isnan(jnp.max(values) + (0 if weights is None else jnp.sum(weights)))
    values, at = _sorted(values, weights)
    low, high = (jnp.asarray(end, values.dtype)[None] for end in ends)
    values = jnp.concatenate([low, values, high])
    quantiles = jnp.interp(levels, jnp.pad(at, 1).at[-1].set(1), values)
    return jnp.where(is_bad, jnp.nan, quantiles)


def _knots(levels: jax.Array, weights: jax.Array | None, num_knots: int) -> IsotonicMap:
    values = jnp.asarray(np.linspace(0, 1, num_knots + 2), levels.dtype)
    return IsotonicMap(weighted_quantiles(levels, weights, values, (0, 1)), values)


@record
class Shifts:
    """What `QuantileShift` learns.

    Attributes:
        shifts: what is added to the quantiles at each level, in units of the target, [k].
    """

    shifts: jax.Array = parameter(real.with_axes("k"))


@record
class QuantileShift(Recalibrator):
    """Shift of quantile forecasts at each level, such that the share of targets below is right.

        q_j → q_j + c_j,   c_j the quantile of y_i − q_ij at level τ_j,

    where order statistics have levels i / (n + 1), so that the new quantile covers a further,
    exchangeable target with probability τ_j, up to the interpolation between them; at levels
    beyond them it is the smallest or the largest residual. Weights are numbers of copies and n is
    their sum, so that their scale matters. Shifted quantiles that cross are sorted, and infinite
    ones stay infinite.

    `fit` returns the `Shifts`; `apply(params, predictions)` a batch of `Quantiles`.

    Raises:
        TypeError: by the methods if the predictions are not `Quantiles`.
        ValueError: by `fit` if they do not have the same levels for all samples, or so many of
            them are infinite that a shift is.

    Cost: O(k n log n).

    References: Romano, Patterson and Candès (2019), Conformalized quantile regression, with one
    level at each side.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Quantiles
    >>> predictions = Quantiles(levels=jnp.array([0.5]), values=jnp.zeros((3, 1)))
    >>> method = QuantileShift()
    >>> params = method.fit(predictions, jnp.array([1.0, 2.0, 7.0]))
    >>> print(params.shifts, method.apply(params, predictions).values[0])
    [2.] [2.]
    """

    def fit(
        self, predictions: Quantiles, targets: ArrayLike, weights: ArrayLike | None = None
    ) -> Shifts:
        """The shift of each level."""
        predictions, targets, weights = checks.weighted_samples(
            predictions, targets, weights, as_copies=True
        )
        plain = _quantiles(predictions)
        levels = plain.levels
        if levels.ndim == 2:
            if checks.is_concrete(levels) and not bool(jnp.all(levels == levels[0])):
                raise ValueError(
                    f"predictions.levels: expected the same for all samples, got {levels}"
                )
            levels = jnp.where(jnp.all(levels == levels[0], 0), levels[0], jnp.nan)
        shifts = _shifts(levels, jnp.asarray(targets)[:, None] - plain.values, weights)
        return Shifts(checks.finite("shifts", shifts))

    def apply(self, params: Shifts, predictions: Quantiles) -> Quantiles:
        """All predictions with shifted quantiles, in increasing order."""
        predictions = checks.batch(predictions)
        plain = _quantiles(predictions)
        shifts = checks.learned("params", params, Shifts).shifts
        k = plain.values.shape[1]
        checks.shape("params.shifts", shifts, (k,), f"({k},), a shift for each level")
        shifted = plain.values + shifts
        values = checks.nan_rows(checks.missing_rows(shifted), jnp.sort(shifted, 1))
        return like(predictions, dataclasses.replace(plain, values=values))

    def identity(self, predictions: Quantiles) -> Shifts:
        """Shifts 0."""
        return Shifts(jnp.zeros_like(bare(predictions).values[0]))


@jax.jit
def _shifts(levels: jax.Array, residuals: jax.Array, weights: jax.Array | None) -> jax.Array:
    def one(level: jax.Array, values: jax.Array) -> jax.Array:
        counted = checks.counted(weights, values)
        return weighted_quantiles(values, weights, level, (jnp.min(counted), jnp.max(counted)))

    return jax.vmap(one)(levels, residuals.T)


def _quantiles(predictions: Distribution) -> Quantiles:
    plain = bare(predictions)
    if not isinstance(plain, Quantiles):
        raise TypeError(
            f"predictions: expected a batch of Quantiles, got {checks.described(plain)}"
        )
    return plain
