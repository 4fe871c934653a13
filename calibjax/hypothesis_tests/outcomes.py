"""Forecasts as bets see them: where an outcome lies in its own predicted distribution."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jax.scipy.stats import norm
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, one_hot
from calibjax.distributions import Ensemble
from calibjax.distributions.base import Distribution
from calibjax.distributions.draws import MonteCarlo
from calibjax.distributions.features import bare, like
from calibjax.kernels.base import without_draws
from calibjax.kernels.expectations import check_expectations
from calibjax.kernels.normal_scores import VECTORS, NormalScore, is_of_counts, normal_score
from calibjax.recalibration.logits import log_probs_of

NUM_CELLS = 32  # of equal probability


class Score(NamedTuple):
    """Normal score of a number or a vector, or of an interval of them that cannot be told apart.

    Attributes:
        mean: the score; of an interval its mean under N(0, 1).
        square: the square of the score, or its mean.
        ends: of the interval; None of continuous distributions.
    """

    mean: jax.Array
    square: jax.Array
    ends: tuple[jax.Array, jax.Array] | None = None


class Label(NamedTuple):
    """Predicted log-probabilities of classes, [m], and the observed class."""

    logits: jax.Array
    label: jax.Array


class Forecast(NamedTuple):
    """A prediction and its target, or a batch of them.

    Attributes:
        prediction: as kernels on predictions see it.
        target: as it came.
        view: a `Score` or a `Label`.
        probs: predicted probabilities of classes, or of cells of equal probability, [C].
        outcome: how much of the target is in each of them, with sum one, [C].
    """

    prediction: Any
    target: jax.Array
    view: Any
    probs: jax.Array
    outcome: jax.Array


def checked_forecasts(
    predictions: Distribution, targets: ArrayLike, times: ArrayLike | None = None
) -> Forecast:
    """A batch of n forecasts, whose times, if there are any, must be in order.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: if the predictions are neither of classes nor have normal scores.
    """
    checks.same_rows(predictions=predictions, targets=targets, times=times)
    predictions, targets = checks.predictions_and_targets(predictions, targets, keep_logs=True)
    checks.in_time_order(times, checks.leading_size("targets", targets))
    plain = bare(predictions)
    if not hasattr(plain, "class_probs"):
        if isinstance(plain, MonteCarlo):
            plain = plain.draws
        check_expectations(NormalScore(), plain)
    if isinstance(plain, Ensemble) and (plain.weights is not None or plain.values.ndim != 2):
        raise NotImplementedError(
            "predictions: expected ensembles of numbers without weights, since only such members "
            f"are exchangeable with the target, got {checks.described(plain)}"
        )
    return _forecasts(without_draws(predictions), plain, targets)


@jax.jit
def _forecasts(predictions: Distribution, plain: Any, targets: jax.Array) -> Forecast:
    if hasattr(plain, "class_probs"):
        logits = log_probs_of(plain)
        probs = jax.nn.softmax(logits, 1)
        outcome = one_hot(targets, probs.shape[1], probs.dtype)
        return Forecast(predictions, targets, Label(logits, targets), probs, outcome)
    score, outcome = jax.vmap(_located)(plain, targets)
    if isinstance(bare(predictions), Ensemble):  # kernels must not see which value is the target
        values = jnp.concatenate([plain.values, targets[:, None]], 1)
        predictions = like(predictions, Ensemble(values))
    return Forecast(predictions, targets, score, jnp.full_like(outcome, 1 / NUM_CELLS), outcome)


def _located(p: Any, y: jax.Array) -> tuple[Score, jax.Array]:
    """Score of a target, and which cells it is in."""
    edges = jnp.arange(NUM_CELLS + 1, dtype=floating_dtype(p)) / NUM_CELLS
    if isinstance(p, Ensemble):
        # Under calibration the rank of the target among the m + 1 values is uniform.
        below, upto = jnp.sum(p.values < y), jnp.sum(p.values <= y)
        levels = jnp.stack([below, upto + 1]).astype(edges.dtype) / (p.values.size + 1)
    elif is_of_counts(p):
        levels = p.cdf(y - jnp.arange(2)[::-1]).astype(edges.dtype)
    else:
        score = normal_score(p, y)
        cell = jnp.clip((ndtr(score) * NUM_CELLS).astype(int), 0, NUM_CELLS - 1)
        outcome = jax.nn.one_hot(cell, 0 if isinstance(p, VECTORS) else NUM_CELLS)
        outcome = jnp.where(jnp.any(jnp.isnan(score)), jnp.nan, outcome.astype(score.dtype))
        return Score(score, jnp.square(score)), outcome
    mass = levels[1] - levels[0]
    is_wide = mass > 0  # and not lost by rounding
    unit = jnp.where(is_wide, mass, 1)
    # Where the levels of far targets are rounded to 0 or 1, the ends are the largest finite scores.
    limits = jnp.finfo(levels.dtype)
    ends = ndtri(jnp.where(mass == 0, jnp.clip(levels, limits.tiny, 1 - limits.epsneg), levels))
    inside = jnp.where(jnp.isinf(ends), 0, ends)
    densities = norm.pdf(ends)
    mean = (densities[0] - densities[1]) / unit
    square = 1 + (inside[0] * densities[0] - inside[1] * densities[1]) / unit
    bound = jnp.max(jnp.abs(inside))
    mean = jnp.where(is_wide, mean, jnp.clip(inside[0], -bound, bound))
    square = jnp.where(is_wide, jnp.maximum(square, 0), jnp.square(mean))
    shares = jnp.diff(jnp.clip(edges, levels[0], levels[1])) / unit
    cell = jnp.clip((levels[0] * NUM_CELLS).astype(int), 0, NUM_CELLS - 1)
    outcome = jnp.where(is_wide, shares, jax.nn.one_hot(cell, NUM_CELLS, dtype=edges.dtype))
    outcome = jnp.where(jnp.isnan(mass), jnp.nan, outcome)
    return Score(mean, square, (ends[0], ends[1])), outcome


def log_ratio(score: Score, shift: jax.Array, scale: jax.Array) -> jax.Array:
    """Logarithm of the probability of a score under N(shift, scale²), over that under N(0, 1)."""
    rest = (score.mean - shift) / scale
    of_point = 0.5 * (score.mean - rest) * (score.mean + rest) - jnp.log(scale)
    if score.ends is None:
        return jnp.sum(of_point)
    low, high = score.ends
    mass = _mass(low, high)
    other = _mass((low - shift) / scale, (high - shift) / scale)
    is_wide = (mass > 0) & (other > 0)
    value = jnp.log(jnp.where(is_wide, other, 1)) - jnp.log(jnp.where(is_wide, mass, 1))
    # Where a mass is lost by rounding, the ratio is that of the densities.
    return jnp.where(is_wide, value, of_point) + 0 * score.mean  # NaN where that is


def _mass(low: jax.Array, high: jax.Array) -> jax.Array:
    """Φ(high) − Φ(low), in the lower tail, where it has its digits."""
    is_upper = low > 0
    return ndtr(jnp.where(is_upper, -low, high)) - ndtr(jnp.where(is_upper, -high, low))
