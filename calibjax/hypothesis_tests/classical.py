"""Textbook statistics of probabilities, regression of outcomes, and consistency resampling."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.fitting import centered, has_maximum, log_odds, most_likely
from calibjax._core.gate import checked
from calibjax._core.pytree import Numbers, record
from calibjax.binnings import EqualMassBins, bins_of
from calibjax.distributions import Bernoulli
from calibjax.distributions.base import ClassPredictions, Distribution, check_draws, draw
from calibjax.distributions.composed import bare
from calibjax.hypothesis_tests.intervals import ConfidenceInterval, asymptotic_interval
from calibjax.hypothesis_tests.pit_statistics import (
    beyond_brownian_motion,
    chi_squared,
    two_degrees,
    two_sided,
    with_textbook_pvalue,
)
from calibjax.hypothesis_tests.redraws import Bound, checked_statistic, rank_among_redraws
from calibjax.hypothesis_tests.result import CalibrationTestResult, _shown
from calibjax.operators.plan import bytes_of_tile


def _standardised(sums: jax.Array, variance: jax.Array) -> jax.Array:
    """|sums| / √variance, zero for 0 / 0."""
    is_possible = variance > 0
    scale = jnp.sqrt(jnp.where(is_possible, variance, 1))
    value = jnp.where(is_possible, jnp.abs(sums) / scale, jnp.where(sums == 0, 0, jnp.inf))
    return checks.nan_with(value, sums, variance)


@with_textbook_pvalue(two_sided)
@checked(compiled=True)
def spiegelhalter(predictions: ClassPredictions, targets: Numbers) -> jax.Array:
    """Spiegelhalter's statistic |z|: is the Brier score what it should be?

        z = Σ_i (b_i − E b_i) / (Σ_i Var b_i)^½,   b_i = Σ_c (p_ic − 1(y_i = c))²,

    with moments under calibration given the predictions, E b = 1 − Σ_c p_c² and
    Var b = 4 Σ_c p_c (p_c − Σ_k p_k²)²; of two classes
    z = Σ_i (y_i − p_i)(1 − 2 p_i) / (Σ_i (1 − 2 p_i)² p_i (1 − p_i))^½. It is large for
    overconfident and for underconfident predictions, and for nothing else.

    Textbook p-value: that of |N(0, 1)|.

    Args:
        predictions: batch of n class predictions.
        targets: labels 0, ..., m − 1, [n].

    Returns:
        A scalar, zero if nothing is uncertain.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(n m).

    References: Spiegelhalter (1986), Probabilistic prediction in patient management and clinical
    trials.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> predictions = distributions.Bernoulli(jnp.tile(jnp.array([0.1, 0.9]), 50))
    >>> targets = jnp.arange(100) % 4 // 2  # half of each: overconfident
    >>> print(f"{hypothesis_tests.spiegelhalter(predictions, targets):.2f}")
    13.33
    """
    probs = predictions.class_probs
    squares = jnp.sum(jnp.square(probs), 1)
    chosen = jnp.take_along_axis(probs, targets[:, None], 1, mode="fill", fill_value=jnp.nan)
    variances = jnp.sum(probs * jnp.square(probs - squares[:, None]), 1)
    return _standardised(jnp.sum(squares - chosen[:, 0]), jnp.sum(variances))


def _of_groups(
    value: jax.Array, predictions: Distribution, _: object, num_bins: int = 10
) -> jax.Array:
    bins = bins_of(EqualMassBins(num_bins), bare(predictions))
    is_used = jnp.zeros(bins.size, bool).at[bins].set(True)
    return chi_squared(value, jnp.sum(is_used))


@with_textbook_pvalue(_of_groups)
@checked(compiled=True, static=("num_bins",))
def hosmer_lemeshow(predictions: Bernoulli, targets: Numbers, *, num_bins: int = 10) -> jax.Array:
    """Statistic of Hosmer and Lemeshow: frequencies in groups of similar predictions.

        X² = Σ_g (O_g − E_g)² / (n_g p̄_g (1 − p̄_g)),

    with the number O_g of labels 1 in group g, the sum E_g = n_g p̄_g of the predictions, and
    groups of equal size along the predictions (deciles of risk; equal predictions share one). It
    sees errors that have one sign within a group.

    Textbook p-value: that of a χ² with as many degrees of freedom as there are groups, for a model
    that was fitted to other data; the G − 2 of the textbooks are for the data it was fitted to.

    Args:
        predictions: batch of n ≥ num_bins `Bernoulli`s; of several classes those of a lens.
        targets: 0 or 1, [n].
        num_bins: G.

    Returns:
        A scalar; infinite if what is predicted to be impossible happened to a whole group.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or there are fewer predictions than groups.

    Cost: a sort of n.

    References: Hosmer and Lemeshow (1980), Goodness of fit tests for the multiple logistic
    regression model.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> predictions = distributions.Bernoulli(jnp.repeat(jnp.array([0.25, 0.75]), 12))
    >>> targets = jnp.arange(24) % 2  # six of each twelve: 3²/2.25 + 3²/2.25
    >>> print(hypothesis_tests.hosmer_lemeshow(predictions, targets, num_bins=2))
    8.0
    """
    binary = bare(predictions)
    bins, probs = bins_of(EqualMassBins(num_bins), binary), binary.probs
    columns = jnp.stack([jnp.ones_like(probs), probs, targets - probs], 1)
    sizes, expected, excess = jax.ops.segment_sum(columns, bins, probs.size).T
    means = expected / jnp.where(sizes > 0, sizes, 1)
    variances = sizes * means * jnp.maximum(1 - means, 0)
    total = jnp.sum(jnp.square(_standardised(excess, variances)))
    return checks.nan_with(total, probs, targets)


@with_textbook_pvalue(two_degrees)
@checked(compiled=True)
def cox(predictions: Bernoulli, targets: Numbers) -> jax.Array:
    """Cox's statistic: are slope and intercept of the log-odds one and zero?

    Rao's score statistic of the logistic regression of the labels on the log-odds x_i of the
    predictions, log-odds of the label = a x + b, at a = 1 and b = 0:

        X² = Uᵀ I⁻¹ U,   U = Σ_i (y_i − p_i) (1, x_i),   I = Σ_i p_i (1 − p_i) (1, x_i)(1, x_i)ᵀ.

    It is locally the most powerful against such errors, needs no fit, and exists if classes are
    separated, too. `calibration_slope_intercept` estimates a and b.

    Textbook p-value: that of a χ² with two degrees of freedom.

    Args:
        predictions: batch of n `Bernoulli`s; of several classes those of a lens.
        targets: 0 or 1, [n].

    Returns:
        A scalar. Where all predictions are equal, the slope does not count.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(n).

    References: Cox (1958), Two further applications of a model for binary regression; Rao (1948)
    for the statistic.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> predictions = distributions.Bernoulli(jnp.full(100, 0.2))
    >>> print(f"{hypothesis_tests.cox(predictions, jnp.arange(100) % 2):.2f}")  # 30² / 16
    56.25
    """
    probs = bare(predictions).probs
    x = log_odds(probs)
    residuals, variances = targets - probs, probs * (1 - probs)
    slopes, total, center = centered(variances, x)
    # Rounding makes deviations of equal numbers.
    size = jnp.max(jnp.abs(x))
    differ = slopes > total * jnp.square(10 * jnp.finfo(x.dtype).eps * size)
    of_slope = _standardised(jnp.sum(residuals * (x - center)), jnp.where(differ, slopes, 1))
    of_mean = _standardised(jnp.sum(residuals), total)
    return jnp.square(of_mean) + jnp.where(differ, jnp.square(of_slope), 0 * of_slope)


@record
class SlopeIntercept:
    """Calibration slope and intercept, and calibration in the large, with standard errors.

    Attributes:
        slope: interval for a: below one if predictions are overconfident, above one if they are
            underconfident.
        intercept: interval for b, the log-odds of label 1 where one half is predicted.
        in_the_large: interval for b if a = 1: above zero if probabilities are too small on average,
            below zero if they are too large.

    It prints as a line for each.
    """

    slope: ConfidenceInterval
    intercept: ConfidenceInterval
    in_the_large: ConfidenceInterval

    def __repr__(self) -> str:
        """Estimates, standard errors and limits; arrays are shown by their shapes."""
        lines = [f"{type(self).__name__}("]
        for field in dataclasses.fields(self):
            x = getattr(self, field.name)
            numbers = [_shown(v) for v in (x.estimate, x.standard_error, x.low, x.high)]
            lines.append("  {:12}  {} ± {}, {} to {}".format(field.name, *numbers))
        return "\n".join([*lines, ")"])


@checked
def calibration_slope_intercept(
    predictions: Bernoulli, targets: Numbers, *, confidence_level: float = 0.95
) -> SlopeIntercept:
    """Calibration slope and intercept: logistic regression of the labels on the log-odds.

        log-odds of label 1 = a log(p / (1 − p)) + b,

    by maximum likelihood, with Wald intervals: estimate ± z s, where s² are the diagonal entries of
    the inverse information. Calibration in the large is b for a fixed a = 1.
    `recalibration.PlattScaling` applies the map.

    Args:
        predictions: batch of n `Bernoulli`s; probabilities of 0 and 1 count as ε and 1 − ε, with ε
            the precision of their dtype.
        targets: 0 or 1, [n].
        confidence_level: in (0, 1).

    Returns:
        The intervals.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or a threshold separates the labels, so that the
            likelihood has no maximum; traced arrays give NaN then.

    Cost: O(n) for each of about 8 iterations of Newton's method.

    References: Cox (1958); Steyerberg (2019), Clinical prediction models, §15.3.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> logits = 4 * jax.random.normal(jax.random.key(0), (1000,))
    >>> targets = jax.random.bernoulli(jax.random.key(1), jax.nn.sigmoid(logits / 2))
    >>> predictions = distributions.Bernoulli(jax.nn.sigmoid(logits))  # twice the log-odds
    >>> print(hypothesis_tests.calibration_slope_intercept(predictions, targets))
    SlopeIntercept(
          slope         0.517 ± 0.0333, 0.451 to 0.582
      intercept     0.082 ± 0.0815, -0.0776 to 0.242
      in_the_large  0.0915 ± 0.103, -0.11 to 0.293
    )
    """
    line = _slope_intercept(bare(predictions).probs, targets, confidence_level)
    if checks.is_concrete(line) and np.isnan(line.slope.estimate):
        expected = "labels that no threshold of the predictions separates, for a largest likelihood"
        raise ValueError(f"targets: expected {expected}, got others; cox needs none")
    return line


@jax.jit
def _slope_intercept(probs: jax.Array, targets: jax.Array, level: ArrayLike) -> SlopeIntercept:
    x = log_odds(probs)
    exists = has_maximum(x, targets == 1) & ~jnp.any(jnp.isnan(x))
    line = most_likely(exists, x, targets.astype(x.dtype))
    fitted = jax.nn.sigmoid(line.slope * x + line.intercept)
    slopes, total, center = centered(fitted * (1 - fitted), x)
    shift, of_shift = _in_the_large(x, targets)
    estimates = *line, shift
    errors = 1 / slopes, 1 / total + jnp.square(center) / slopes, 1 / of_shift
    both = zip(estimates, map(jnp.sqrt, errors), strict=True)
    intervals = (asymptotic_interval(jnp.where(exists, b, jnp.nan), s, level) for b, s in both)
    return SlopeIntercept(*intervals)


def _in_the_large(x: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The most likely b of log-odds x + b, and the information about it."""

    def step(x: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        probs, complements = jax.nn.sigmoid(x + b), jax.nn.sigmoid(-x - b)
        information = jnp.sum(probs * complements)
        return jnp.sum(jnp.where(targets == 1, complements, -probs)) / information, information

    def damped(_: int, b: jax.Array) -> jax.Array:
        change = step(lax.stop_gradient(x), b)[0]
        return b + jnp.sign(change) * jnp.log1p(jnp.abs(change))  # as in `most_likely`

    b = lax.fori_loop(0, 50, damped, jnp.zeros((), x.dtype))
    b += step(x, b)[0]
    return b, step(x, b)[1]


@with_textbook_pvalue(beyond_brownian_motion)
@checked(compiled=True)
def cumulative_difference(predictions: Bernoulli, targets: Numbers) -> jax.Array:
    """Largest cumulative difference of labels and predictions: an ECE without bins (ECCE-MAD).

        max_k |Σ_{j≤k} (y_(j) − p_(j))| / (Σ_i p_i (1 − p_i))^½,

    with the samples in the order of their predictions; equal predictions are added together. It
    sees errors that have one sign over a range of predictions, of any width.

    Textbook p-value: that of the largest |B(t)| of Brownian motion, 0 ≤ t ≤ 1.

    Args:
        predictions: batch of n `Bernoulli`s; of several classes those of a lens.
        targets: 0 or 1, [n].

    Returns:
        A scalar, zero if nothing is uncertain.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: a sort of n.

    References: Arrieta-Ibarra, Gujral, Tannen, Tygert and Xu (2022), Metrics of calibration for
    probabilistic predictions.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> predictions = distributions.Bernoulli(jnp.array([0.5, 0.5, 0.8, 0.8]))
    >>> targets = jnp.array([1, 1, 1, 0])  # 1, then 1 − 0.6, over √0.82
    >>> print(f"{hypothesis_tests.cumulative_difference(predictions, targets):.3f}")
    1.104
    """
    probs = bare(predictions).probs
    order = jnp.argsort(probs)
    ordered = probs[order]
    residuals, variances = targets - probs, probs * (1 - probs)
    sums = jnp.cumsum(residuals[order])
    is_last = jnp.append(ordered[1:] > ordered[:-1], True)
    largest = jnp.max(jnp.where(is_last, jnp.abs(sums), 0))
    value = _standardised(largest, jnp.sum(variances))
    return checks.nan_with(value, probs, targets)


@checked
def consistency_test(
    key: jax.Array,
    statistic: Callable[..., Any],
    predictions: Distribution,
    targets: Numbers,
    *,
    num_draws: int = 999,
    batch_size: int | None = None,
) -> CalibrationTestResult:
    """Test of calibration by consistency resampling, with any statistic. It rejects too often.

    In every resample, n predictions are drawn with replacement from the given ones, and a target
    from each of them; p = (1 + #{T_b ≥ T}) / (B + 1).

    Resampled predictions repeat, while the observed ones mostly differ, so that the statistic has a
    different distribution. If repetitions lower the statistic, such as the expected calibration
    error with more bins than the samples can fill, calibrated models are rejected too often: W19's
    model M1 (250 predictions of ten classes, ten bins per class) in 9999 of 10 000 data sets at
    level 1 %. `exact_test` keeps the predictions and holds its level; this test is included for
    comparisons with the literature. As in `exact_test`, the statistic determines which errors are
    detected.

    Args:
        key: a JAX random key.
        statistic: (predictions, targets) → scalar, array or pytree of arrays, traceable by
            JAX; large values speak against calibration.
        predictions: batch of n distributions. Quantities computed from single predictions (such as
            their bins) may be stored in an additional leaf of the batch.
        targets: [n] or [n, d].
        num_draws: B, number of resamples; the smallest possible p-value is 1 / (B + 1).
        batch_size: number of resamples that are evaluated at once. Memory is `batch_size` times
            that of one statistic; by default about 16 MB, assuming that the statistic works on
            tiles of pairs.

    Returns:
        The result; `estimate` is the statistic itself. If the statistic is a pytree, all attributes
        are such pytrees.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or a statistic is NaN.

    Cost: B evaluations of the statistic. It is compiled once for each function object and shape of
    the data, as by `jax.jit`: what it reads from outside must not change between two calls.

    References: Bröcker and Smith (2007); W19 §7.2 and Fig. 2 (C) for its over-rejection.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> def bias(predictions, targets):
    ...     return jnp.abs(jnp.mean(targets - predictions.probs))
    >>> predictions = distributions.Bernoulli(jnp.linspace(0.2, 0.4, 50))
    >>> test = hypothesis_tests.consistency_test(
    ...     jax.random.key(0), bias, predictions, jnp.arange(50) % 2
    ... )
    >>> print(bool(test.pvalue < 0.01))
    True
    """
    value = checked_statistic(statistic)
    check_draws(predictions, targets)
    samples, n = (predictions, targets), checks.leading_size("targets", targets)
    options = {"num_draws": num_draws, "batch_size": batch_size, "num_bytes": bytes_of_tile(n)}
    options |= {"redraw": _resampled, "draws": "resampled predictions and targets"}
    statistics = Bound(_of_samples, (value,)), None
    return rank_among_redraws(key, *statistics, samples, samples, **options)


def _of_samples(value: Callable[..., Any], data: None, given: Any, samples: Any) -> Any:
    """The statistic of resampled data."""
    del data, given
    return value(None, *samples)


def _resampled(key: jax.Array, samples: tuple[Any, ...]) -> tuple[Any, ...]:
    """Some of the predictions, with replacement, and targets that are drawn from them."""
    index_key, target_key = jax.random.split(key)
    n = checks.leading_size("targets", samples[1])
    index = jax.random.randint(index_key, (n,), 0, n)
    chosen, _ = jax.tree.map(lambda leaf: leaf[index], samples)
    return chosen, draw(target_key, chosen)
