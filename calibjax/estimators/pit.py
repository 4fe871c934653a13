"""Probability integral transforms (PIT): counts in bins, coverage of quantiles and intervals.

If the model is calibrated then, given the predictions, the PIT values are independent and uniform
on (0, 1). The bands are computed from independent uniform numbers.
"""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, safe_sqrt
from calibjax._core.environment import default_batch_size, map_batches
from calibjax._core.gate import checked, confidence_array
from calibjax._core.pytree import Numbers, record
from calibjax.distributions import Ensemble, Quantiles
from calibjax.distributions.base import Distribution, Wrapper, has_class_probs
from calibjax.distributions.composed import bare
from calibjax.estimators.curves import WithBand, ranks_of_band, simultaneous_band


@checked
def pit_values(key: jax.Array, predictions: Distribution, targets: Numbers) -> jax.Array:
    """Probability integral transform (PIT) of each target.

        u_i = F_i(y_i⁻) + V_i (F_i(y_i) − F_i(y_i⁻)),    V_i uniform on (0, 1],

    with the predicted distribution function F_i and its limit F_i(y⁻) from the left. If the model
    is calibrated then, given the predictions, the u_i are independent and uniform on (0, 1). It is
    F_i(y_i) if F_i is continuous, and randomised where F_i jumps:

    - Counts and other integers: F(y⁻) = F(y − 1). The support of the family determines them, or the
      dtype of the targets for a class of your own without `check_targets`.
    - `Quantiles`: uniform within the interval that contains the target. Targets that equal a
      quantile are divided among the adjacent intervals, within P(Y < q) ≤ level ≤ P(Y ≤ q), like a
      draw under calibration. These values also depend on the other samples, and are only
      approximately uniform (see `hypothesis_tests.coverage_test`).
    - `Ensemble`: the rank of the target among the members, (#{z < y} + V (#{z = y} + 1)) / (m + 1)
      for the m members z that are not missing; m may differ between predictions. It is uniform for
      every m if the target is exchangeable with the members, as in simulation-based calibration of
      posterior draws. `exact_test` with the statistic `pit_ks` tests this; most other exact tests
      redraw the target from the members.

    Other distributions with jumps, such as a probability of exactly zero rain, are not recognised.
    Classes are refused: they have no order.

    Args:
        key: a JAX random key; only randomised values depend on it.
        predictions: batch of n distributions of numbers with a method `cdf`, or of `Quantiles`, or
            of `Ensemble` without weights except a mask of missing members.
        targets: [n].

    Returns:
        [n], in [0, 1].

    Raises:
        TypeError: if an argument is of the wrong kind, in particular if predictions are class
            predictions, or have no `cdf`.
        ValueError: if shapes or values are wrong, or an `Ensemble` has weights.

    Cost: n evaluations of the distribution function; O(n k + n log n) for k quantiles.

    References: Dawid (1984), The prequential approach; Gneiting, Balabdaoui and Raftery (2007),
    Probabilistic forecasts, calibration and sharpness, §3.1; Czado, Gneiting and Held (2009),
    Predictive model assessment for count data, for the randomisation; Hamill (2001), Interpretation
    of rank histograms.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, estimators
    >>> predictions = distributions.Normal(jnp.zeros(3), jnp.array([1.0, 2.0, 4.0]))
    >>> u = estimators.pit_values(jax.random.key(0), predictions, jnp.array([0.0, 2.0, -4.0]))
    >>> print(u.round(2))
    [0.5  0.84 0.16]
    """
    p = bare(predictions, Wrapper)
    if has_class_probs(p):
        raise TypeError("predictions: expected distributions of numbers; classes have no order")
    if isinstance(p, Ensemble):
        p = checks.replaced(p, weights=checks.equal_weights("predictions", p.weights))
    elif not isinstance(p, Quantiles):
        checks.method("predictions", p, "cdf")
    checks.shape("targets", targets, (None,), "[n]: only scalars have a distribution function")
    return randomised(key, p, targets)


@jax.jit
def randomised(
    key: jax.Array, predictions: Any, targets: jax.Array, weights: jax.Array | None = None
) -> jax.Array:
    """PIT values of numbers, [n]; weights are for `randomised_intervals`."""
    if isinstance(predictions, Quantiles):
        index = randomised_intervals(key, predictions, targets, weights)
        lower, upper = _ends(predictions, index, index)
    else:
        lower, upper = jax.vmap(_jump)(predictions, targets)
    share = 1 - jax.random.uniform(key, lower.shape, lower.dtype)  # in (0, 1]
    # If both are equal, rounding must not change the value; NaN stays NaN.
    values = jnp.where(lower < upper, lower + share * (upper - lower), upper)
    return checks.nan_rows(checks.missing_rows((predictions, targets)), jnp.clip(values, 0, 1))


def _jump(p: Any, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Distribution function to the left of y and at y."""
    if isinstance(p, Ensemble):
        is_there = jnp.ones(p.values.size, bool) if p.weights is None else p.weights != 0
        m, dtype = jnp.sum(is_there), floating_dtype(p)
        below, equal = jnp.sum(is_there & (p.values < y)), jnp.sum(is_there & (p.values == y))
        return (below / (m + 1)).astype(dtype), ((below + equal + 1) / (m + 1)).astype(dtype)
    at = p.cdf(y)
    return (p.cdf(y - 1) if jnp.issubdtype(jnp.result_type(y), jnp.integer) else at), at


@jax.jit
def randomised_intervals(
    key: jax.Array, p: Quantiles, y: jax.Array, weights: jax.Array | None = None
) -> jax.Array:
    """Intervals of levels of the PIT values of targets, 0, ..., k, [n].

    A target without ties is in `Quantiles.interval`. A target that equals the quantiles j to l is
    in one of the intervals j to l + 1. Forecasts do not give their probabilities, but imply P(Y <
    q) ≤ level ≤ P(Y ≤ q). First the number N of targets up to each level is drawn, starting with
    the level with the fewest ties. Given the previous levels, it has mean m and variance v, and

        N = m + w (c − m) + √(1 − w²) √v Z,    w = exp(−(Σ_g t_g² + (t²/n)²) / 4v),

    clipped to c − t/2 to c + t/2 for t ties, with t_g ties at the g-th value and Z normal. Without
    ties N is the observed number, and with many ties it is a draw under calibration. The constant 4
    was chosen by simulation. Then the targets up to each level are drawn.

    Args:
        key: a JAX random key.
        p: batch of n forecasts.
        y: targets, [n].
        weights: w ≥ 0 of the samples, [n]; numbers are sums of weights.
    """
    # Independent of other random numbers.
    (n, k), (first, second) = p.values.shape, jax.random.split(jax.random.fold_in(key, 2**31))
    is_tied = p.values == y[:, None]
    each = (jnp.ones_like(p.levels[:, 0]) if weights is None else weights)[:, None]
    tied, total = each * is_tied, jnp.sum(each)
    least, ties = jnp.sum(each * (y[:, None] < p.values), 0), jnp.sum(tied, 0)
    # Counts and rounded numbers tie at several values, with levels elsewhere in their jumps.
    order = jnp.argsort(y)
    group = jnp.cumsum(jnp.diff(y[order], prepend=y[order][:1]) != 0)
    sizes = jax.ops.segment_sum(tied[order], group, n)
    doubt = jnp.sum(sizes**2, 0) + (ties**2 / total) ** 2
    levels = jnp.pad(jnp.sum(each * p.levels, 0) / total, 1, constant_values=(0, 1))
    places, size = jnp.arange(k + 2), jnp.sum(each**2) / total
    ends = jnp.pad(jnp.stack([least, least + ties]), ((0, 0), (1, 0)))

    def following(state: Any, item: Any) -> tuple[Any, None]:
        (numbers, is_known), (j, z) = state, item
        a = jnp.max(jnp.where(is_known & (places < j), places, 0))
        b = jnp.min(jnp.where(is_known & (places > j), places, k + 1))
        share = (levels[j] - levels[a]) / (levels[b] - levels[a])
        mean = numbers[a] + share * (numbers[b] - numbers[a])
        variance = size * (1 - share) * (mean - numbers[a])
        lower, upper = jnp.clip(ends[:, j], numbers[a], numbers[b])
        w = jnp.exp(-doubt[j - 1] / jnp.maximum(4 * variance, jnp.finfo(total.dtype).tiny))
        number = mean + w * ((lower + upper) / 2 - mean) + jnp.sqrt((1 - w**2) * variance) * z
        return (numbers.at[j].set(jnp.clip(number, lower, upper)), is_known.at[j].set(True)), None

    start = jnp.zeros(k + 2, total.dtype).at[-1].set(total), (places == 0) | (places > k)
    items = jnp.argsort(ties) + 1, jax.random.normal(first, (k,), total.dtype)
    numbers = jax.lax.scan(following, start, items)[0][0][1:-1]
    low, high = p.interval(y[:, None]), jnp.sum(p.values <= y[:, None], 1)
    lower, upper = _ends(p, low, high)
    order = jnp.argsort(lower + jax.random.uniform(second, (n,), lower.dtype) * (upper - lower))
    upto = jnp.cumsum(tied[order], 0) - tied[order] / 2
    is_below = jnp.zeros((n, k), bool).at[order].set(upto <= numbers - least)
    return high - jnp.sum(is_below & is_tied, 1)


def _ends(p: Quantiles, first: jax.Array, last: jax.Array) -> list[jax.Array]:
    """Levels below and above consecutive intervals, [n] each."""
    levels = jnp.pad(p.levels, ((0, 0), (1, 1))).at[:, -1].set(1)
    return [jnp.take_along_axis(levels, i[:, None], 1)[:, 0] for i in (first, last + 1)]


LEVELS = tuple(np.arange(1, 20) / 20)
_OF_BAND = "num_draws", "confidence_level"  # static options
_BYTES_PER_NUMBER = 32  # random bits, a uniform number and its cell in one redraw


@record
class PITHistogram(WithBand):
    """Numbers of PIT values in bins of equal width, and a band for all of them.

    Attributes:
        edges: edges of the bins, from 0 to 1; a bin contains its upper edge, [K + 1].
        counts: number of values in each bin, integers, [K]; with weights the sum of weights, scaled
            to a total of the effective number (Σ_i w_i)² / Σ_i w_i².
        simultaneous_lower: lower end of the band of all bins at once, [K].
        simultaneous_upper: upper end of the band of all bins at once, [K].
        confidence_level: lower bound of the coverage of the band under calibration; a Python
            number.
    """

    edges: jax.Array
    counts: jax.Array
    simultaneous_lower: jax.Array
    simultaneous_upper: jax.Array
    confidence_level: float = dataclasses.field(metadata={"static": True})
    _observed = "counts"


@record
class CoverageCurve(WithBand):
    """Share of targets in predicted sets, as a function of the probability of the sets.

    Attributes:
        levels: predicted probabilities of the sets, increasing, [L].
        coverage: shares of the targets in the sets, [L].
        simultaneous_lower: lower end of the band of all levels at once, [L].
        simultaneous_upper: upper end of the band of all levels at once, [L].
        confidence_level: lower bound of the coverage of the band under calibration; a Python
            number.
        kind: "quantile" for sets of all numbers up to a quantile, "interval" for central intervals.
    """

    levels: jax.Array
    coverage: jax.Array
    simultaneous_lower: jax.Array
    simultaneous_upper: jax.Array
    confidence_level: float = dataclasses.field(metadata={"static": True})
    kind: str = dataclasses.field(metadata={"static": True})
    _observed = "coverage"

    def mean_absolute_calibration_error(self) -> jax.Array:
        """Mean over the levels of |coverage − level|, a scalar."""
        return jnp.mean(jnp.abs(self.coverage - self.levels), -1)

    def root_mean_squared_calibration_error(self) -> jax.Array:
        """Root of the mean over the levels of (coverage − level)², a scalar."""
        return safe_sqrt(jnp.mean(jnp.square(self.coverage - self.levels), -1))

    def miscalibration_area(self) -> jax.Array:
        """Area between the diagonal and the curve from (0, 0) over its points to (1, 1), a scalar.

        The three errors are those of Chung et al. (2021), Uncertainty Toolbox, with 100 equally
        spaced levels from 0 to 1, both included in the means.
        """
        pad = [(0, 0)] * (self.levels.ndim - 1) + [(1, 1)]
        widths = jnp.diff(jnp.pad(self.levels, pad).at[..., -1].set(1))
        difference = jnp.pad(self.coverage - self.levels, pad)
        a, b = difference[..., :-1], difference[..., 1:]
        sums = jnp.abs(a) + jnp.abs(b)
        crossing = (a * a + b * b) / jnp.where(sums > 0, sums, 1)  # two triangles
        return jnp.sum(widths * jnp.where(a * b < 0, crossing, sums), -1) / 2


@checked(compiled=True, static=("num_bins", *_OF_BAND), values=confidence_array)
def pit_counts(
    key: jax.Array,
    values: Numbers,
    *,
    weights: Numbers | None = None,
    num_bins: int = 10,
    num_draws: int = 999,
    confidence_level: float = 0.9,
) -> PITHistogram:
    """Numbers of PIT values in bins of equal width, with a band for all bins at once.

    The band comes from B redraws of n independent uniform numbers. With S_k the count of bin k,

        |S_k − n/K| / √(n (1 − 1/K) / K) ≤ c in every bin,

    where c is the ⌈(B + 1) γ⌉-th smallest of the B maxima of the left-hand side over the bins of
    each redraw. Under calibration all counts are in the band with probability at least γ, for every
    n, every B and every K. Redraws keep the weights, and n is then the effective number of values.

    High counts at both ends mean that predictions are too narrow; high counts in the middle, too
    wide; a slope, biased. Equal counts do not imply calibration, because errors may cancel over the
    samples. `plotting.pit_histogram` draws them.

    Args:
        key: a JAX random key.
        values: result of `pit_values`, or other numbers that should be uniform on (0, 1), [n].
        weights: w ≥ 0 of the values, [n]; None for equal weights.
        num_bins: K.
        num_draws: B, number of redraws, at least 2 / (1 − confidence_level) − 1.
        confidence_level: γ in (0, 1).

    Returns:
        The histogram with its band.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or there are too few redraws for the level.

    Cost: B n draws, O(B K + n) memory.

    References: see `pit_values`; for the band see `reliability_curve`.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import estimators
    >>> histogram = estimators.pit_counts(
    ...     jax.random.key(0), jnp.linspace(0.05, 0.55, 100), num_bins=2
    ... )
    >>> print(histogram.counts, histogram.is_outside)
    [90 10] [ True  True]
    """
    edges = jnp.asarray(np.linspace(0, 1, num_bins + 1), values.dtype)
    _, rank = ranks_of_band(confidence_level, num_draws)
    band = _counted(key, values, weights, edges[1:], num_draws=num_draws, rank=rank)
    return PITHistogram(edges, *band, confidence_level)


def checked_levels(name: str, value: Any, _: object) -> jax.Array:
    """Levels in (0, 1), [L]."""
    value = checks.floating(name, checks.as_arrays(name, value))
    checks.shape(name, value, (None,), "[L]")
    return checks.proportions(name, value)


@checked(compiled=True, static=("kind", *_OF_BAND), values=confidence_array, levels=checked_levels)
def coverage_curve(
    key: jax.Array,
    values: Numbers,
    *,
    kind: Literal["interval", "quantile"] = "interval",
    weights: Numbers | None = None,
    levels: Numbers | None = None,
    num_draws: int = 999,
    confidence_level: float = 0.9,
) -> CoverageCurve:
    """Share of targets in predicted intervals, or up to predicted quantiles, with a band.

        "interval": coverage(γ) = #{i: |2 u_i − 1| ≤ γ} / n,
        "quantile": coverage(τ) = #{i: u_i ≤ τ} / n,

    with the PIT values u_i, or with sums of weights. The first is the coverage of the central
    interval between the predicted quantiles of the levels (1 − γ)/2 and (1 + γ)/2. Intervals are
    too narrow below the diagonal and too wide above it. If targets equal quantiles, u_i is random
    and the coverage is about γ under calibration, although closed intervals contain more targets.
    The second is the empirical distribution function of the PIT values: u_i ≤ τ if y_i is at most
    the predicted τ-quantile.

    The band is computed as in `pit_counts`: under calibration all shares are in it with probability
    at least `confidence_level`.

    Args:
        key: a JAX random key.
        values: result of `pit_values`, or other numbers that should be uniform, such as p-values,
            [n].
        kind: "interval" or "quantile".
        weights: w ≥ 0 of the values, [n], which the redraws keep; None for equal weights.
        levels: γ or τ in (0, 1), [L]; 0.05, 0.1, ..., 0.95 by default. For `Quantiles` use only
            their levels, or differences of two of them.
        num_draws: B, number of redraws, at least 2 / (1 − confidence_level) − 1.
        confidence_level: of the band, in (0, 1).

    Returns:
        The curve, with increasing levels. Its methods summarise it in one number.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or there are too few redraws for the level.

    Cost: B n draws, O(B L + n) memory.

    References: Gneiting, Balabdaoui and Raftery (2007), §3.1; W21 Fig. 5 for quantiles. For the
    idea of a simultaneous band of uniform numbers see Säilynoja, Bürkner and Vehtari (2022),
    Graphical test for discrete uniformity. `hypothesis_tests.coverage_test` is the test for
    `Quantiles`.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import estimators
    >>> pit = jnp.linspace(0.3, 0.7, 100)
    >>> curve = estimators.coverage_curve(jax.random.key(0), pit, levels=jnp.array([0.2, 0.5]))
    >>> print(curve.coverage, curve.is_outside)
    [0.5 1. ] [ True  True]
    >>> print(f"{curve.mean_absolute_calibration_error():.2f}")
    0.40
    """
    ordered = jnp.sort(jnp.asarray(LEVELS if levels is None else levels, values.dtype))
    inside = jnp.abs(2 * values - 1) if kind == "interval" else values
    options = {"num_draws": num_draws, "rank": ranks_of_band(confidence_level, num_draws)[1]}
    counts, *band = _counted(key, inside, weights, ordered, **options, is_cumulative=True)
    coverage = jnp.where(jnp.isnan(band[0]), jnp.nan, counts)
    size = values.size if weights is None else jnp.sum(weights)
    shares: Any = (x.astype(values.dtype) / size for x in (coverage, *band))
    ordered = jnp.where(jnp.any(jnp.isnan(ordered)), jnp.nan, ordered)  # sorting puts NaN last
    return CoverageCurve(ordered, *shares, confidence_level=confidence_level, kind=kind)


def _counted(
    key: jax.Array,
    values: jax.Array,
    weights: jax.Array | None,
    edges: jax.Array,
    *,
    num_draws: int,
    rank: int,
    is_cumulative: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Numbers (or sums of weights) of values between the edges, or up to each, [L], and their band.

    Missing if a value or an edge is NaN.
    """
    each = jnp.ones(values.size, jnp.int32) if weights is None else weights

    def count(values: jax.Array) -> jax.Array:
        cells = jnp.searchsorted(edges, values)  # the number of edges below each value
        counts = jax.ops.segment_sum(each, cells, edges.size)
        return jnp.cumsum(counts) if is_cumulative else counts

    def redraw(key: jax.Array) -> jax.Array:
        return count(1 - jax.random.uniform(key, values.shape, values.dtype))

    batch_size = default_batch_size(_BYTES_PER_NUMBER * values.size)
    redraws = map_batches(jax.random.split(key, num_draws), jax.vmap(redraw), batch_size)
    probs = edges if is_cumulative else jnp.diff(edges, prepend=0)
    # Weights are scaled so that this is also the sum of their squares.
    size = jnp.asarray(values.size, values.dtype) if weights is None else jnp.sum(weights)
    deviation = jnp.sqrt(size * probs * (1 - probs))
    lower, upper = simultaneous_band(redraws, rank, size, size * probs, deviation)
    lower, upper = checks.nan_with((lower, upper), values, edges, size)
    return checks.nan_rows(jnp.isnan(lower), count(values)), lower, upper
