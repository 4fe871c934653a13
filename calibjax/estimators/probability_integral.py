"""Probability integral transforms (PIT): the place of each target in its predicted distribution."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax.distributions import Ensemble, Quantiles
from calibjax.distributions.base import Distribution
from calibjax.distributions.draws import undrawn
from calibjax.distributions.features import bare


def pit_values(key: jax.Array, predictions: Distribution, targets: ArrayLike) -> jax.Array:
    """Probability integral transform (PIT) of each target: its place in the predicted distribution.

        u_i = F_i(y_i⁻) + V_i (F_i(y_i) − F_i(y_i⁻)),    V_i uniform on (0, 1],

    with the predicted distribution function F_i and its limit F_i(y⁻) from the left. If the model
    is calibrated then, given the predictions, the u_i are independent and uniform on (0, 1).
    Without jumps of F_i the value is F_i(y_i), whatever the key; where F_i jumps, it is randomised:

    - Counts and other integers: F(y⁻) = F(y − 1). They are known by the support of the family, and
      for a class of your own without `check_targets` by the dtype of the targets.
    - `Quantiles`: within the interval that contains the target, of whose inside they say nothing.
      Targets that equal a quantile are divided among the intervals that meet there such that the
      numbers of values up to each level are those of a draw under calibration, as far as
      P(Y < q) ≤ level ≤ P(Y ≤ q) lets them. These values also depend on the other samples, and are
      uniform up to what the forecasts leave open, see `hypothesis_tests.coverage_test`.
    - `Ensemble`: the rank of the target among the members,
      (#{z < y} + V (#{z = y} + 1)) / (m + 1) for the m members z that are not missing, whose
      number may differ between predictions. It is uniform for every m if the target is exchangeable
      with the members, as in an ideal ensemble and for posterior draws (simulation-based
      calibration). `exact_test` with the statistic `pit_ks` tests this; most other exact tests
      redraw the target from the members.

    Other distributions with jumps, such as a probability of exactly zero rain, are not recognised.
    Classes are refused: they have no order.

    Args:
        key: a JAX random key; only randomised values depend on it.
        predictions: batch of n distributions of numbers with a method `cdf`, or of `Quantiles`, or
            of `Ensemble` without weights, apart from a mask of missing members.
        targets: [n].

    Returns:
        [n], in [0, 1].

    Raises:
        TypeError: if an argument is of the wrong kind, in particular if predictions are of classes,
            or have no `cdf`.
        ValueError: if shapes or values are wrong, or `Ensemble` have weights.

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
    key = checks.random_key(key)
    predictions, targets = checks.predictions_and_targets(predictions, targets)
    inner = bare(undrawn(predictions))
    if hasattr(inner, "class_probs"):
        raise TypeError(
            f"predictions: expected distributions of numbers, got {checks.described(inner)}; "
            "classes have no order, see estimators.reliability_curve"
        )
    if not isinstance(inner, Quantiles | Ensemble):
        checks.method("predictions", inner, "cdf")
    if isinstance(inner, Ensemble):
        inner = checks.replaced(inner, weights=checks.equal_weights("predictions", inner.weights))
    checks.shape("targets", targets, (None,), "[n]: only numbers have a distribution function")
    return randomised(key, inner, targets)


@jax.jit
def randomised(
    key: jax.Array, predictions: Any, targets: jax.Array, weights: jax.Array | None = None
) -> jax.Array:
    """PIT values of numbers, [n]; the weights are those of `randomised_intervals`."""
    if isinstance(predictions, Quantiles):
        index = randomised_intervals(key, predictions, targets, weights)
        lower, upper = _ends(predictions, index, index)
    else:
        lower, upper = jax.vmap(_jump)(predictions, targets)
    share = 1 - jax.random.uniform(key, lower.shape, lower.dtype)  # in (0, 1]
    # Where both are equal, rounding must not move the value; NaN stays NaN.
    values = jnp.where(lower < upper, lower + share * (upper - lower), upper)
    return checks.nan_rows(checks.missing_rows((predictions, targets)), jnp.clip(values, 0, 1))


def _jump(p: Any, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Values of the distribution function to the left of y and at y."""
    if isinstance(p, Ensemble):
        is_there = jnp.ones(p.values.size, bool) if p.weights is None else p.weights != 0
        m, dtype = jnp.sum(is_there), floating_dtype(p)
        below, equal = jnp.sum(is_there & (p.values < y)), jnp.sum(is_there & (p.values == y))
        return (below / (m + 1)).astype(dtype), ((below + equal + 1) / (m + 1)).astype(dtype)
    at = p.cdf(y)
    return (p.cdf(y - 1) if jnp.issubdtype(jnp.result_type(y), jnp.integer) else at), at


def randomised_intervals(
    key: jax.Array, p: Quantiles, y: jax.Array, weights: jax.Array | None = None
) -> jax.Array:
    """Intervals of levels that the PIT values of targets are in, 0, ..., k, [n].

    A target without ties is in `Quantiles.interval`. One that equals the quantiles j to l is in one
    of the intervals j to l + 1, and the forecasts do not say how probable these are: they imply
    P(Y < q) ≤ level ≤ P(Y ≤ q). First the number N of targets up to each level is drawn, from the
    level with the fewest ties on. Given the levels before, it has mean m and variance v, and

        N = m + w (c − m) + √(1 − w²) √v Z,    w = exp(−(Σ_g t_g² + (t²/n)²) / 4v),

    cut to what the t ties allow, from c − t/2 to c + t/2, with t_g ties at the g-th value and Z
    normal. Without ties N is what was observed, and with many it is a draw under calibration. The
    constant 4 was chosen by simulation. Which of the targets these are is drawn from the levels.

    Args:
        key: a JAX random key.
        p: batch of n forecasts.
        y: targets, [n].
        weights: w ≥ 0 of the samples, [n], whose sums the numbers are.
    """
    # Random numbers that are used nowhere else.
    (n, k), (first, second) = p.values.shape, jax.random.split(jax.random.fold_in(key, 2**31))
    is_tied = p.values == y[:, None]
    each = (jnp.ones_like(p.levels[:, 0]) if weights is None else weights)[:, None]
    tied, total = each * is_tied, jnp.sum(each)
    least, ties = jnp.sum(each * (y[:, None] < p.values), 0), jnp.sum(tied, 0)
    # Counts and rounded numbers tie at several values, whose levels lie elsewhere in their jumps.
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
    """Levels below and above intervals that follow one another, [n] each."""
    levels = jnp.pad(p.levels, ((0, 0), (1, 1))).at[:, -1].set(1)
    return [jnp.take_along_axis(levels, i[:, None], 1)[:, 0] for i in (first, last + 1)]
