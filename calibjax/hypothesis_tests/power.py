"""How often exact tests detect an error of a known size, and how many samples they need for it."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from calibjax._core import checks
from calibjax._core.pytree import record
from calibjax.distributions.base import Distribution
from calibjax.hypothesis_tests.simulated_power import Study, checked_study, power_of

_FEWEST = 8  # samples that `sample_size` looks at
_FIRST = 256  # the largest with which it begins
_REFINED = 2  # sizes that it looks at between two of which one is twice the other
_BAND = 1.96  # standard errors


@record
class PowerCurve:
    """Power of a test by the number of samples.

    Attributes:
        sizes: numbers of samples n, [k].
        power: how often the test rejects, [k].
        standard_error: Monte Carlo standard error of the power, [k].
        significance: the level α of the test.
    """

    sizes: np.ndarray
    power: np.ndarray
    standard_error: np.ndarray
    significance: float = dataclasses.field(default=0.05, metadata={"static": True})

    def __str__(self) -> str:
        """A line for each size."""
        rows = zip(self.sizes, self.power, self.standard_error, strict=True)
        return "\n".join(f"{n:>8} samples: power {p:.3f} ± {error:.3f}" for n, p, error in rows)


@record
class SampleSize:
    """How many samples a test needs.

    Attributes:
        num_samples: n, infinite if no size up to the limit is enough.
        low, high: limits of a 95 % interval for n, from the Monte Carlo errors of the power.
        power: the power that is asked for.
        curve: the sizes that were looked at.
        num_predictions: how many predictions were given.
    """

    num_samples: float
    low: float
    high: float
    power: float
    curve: PowerCurve
    num_predictions: int = dataclasses.field(metadata={"static": True})

    def __str__(self) -> str:
        """The answer in a sentence, with what limits it."""
        largest, smallest = int(self.curve.sizes[-1]), int(self.curve.sizes[0])
        if math.isinf(self.num_samples):
            reached = f"{self.curve.power[-1]:.2f} ± {self.curve.standard_error[-1]:.2f}"
            return (
                f"More than {largest} samples, the limit, are needed for a power of "
                f"{self.power:.2g}: with these it is {reached}."
            )
        high = f"{self.high:.0f}" if math.isfinite(self.high) else f"more than {largest}"
        most = " at most" if self.num_samples <= smallest else ""
        found = f"{self.num_samples:.0f} samples{most} are needed for a power of {self.power:.2g}"
        found += f" (95 % interval {self.low:.0f} to {high})."
        if self.num_samples > self.num_predictions:
            found += (
                f" That is more than the {self.num_predictions} predictions that were given: each "
                "stands for several, as if the others were like them."
            )
        return found


@checks.key_first
def power_curve(
    key: jax.Array,
    test: Callable[..., Any],
    predictions: Distribution,
    alternative: Any,
    sizes: Sequence[int],
    *,
    weights: ArrayLike | None = None,
    num_data_sets: int = 1000,
    num_draws: int = 199,
    significance: float = 0.05,
) -> PowerCurve:
    """How often an exact test rejects predictions that are wrong in a known way, by sample size.

    For each size n the given predictions are resampled: 20 sets of n predictions are drawn from
    them with replacement, with keys that depend on `key` and n only. Given its predictions a set
    has one null distribution, so that B redraws from them serve the R / 20 data sets whose targets
    are drawn from the alternative: 20 B + R statistics instead of the R B of as many tests, whose
    p-values they are. The standard error is the larger of that between the sets, and of

        √(π (1 − π) / R + d² / 20),   d = (π(α + s) − π(α − s)) / 2,   s² = α (1 − α) / (B + 2),

    where π(α) is the share of p-values up to α: the second term is that of the critical value,
    which is estimated from B redraws.

    Args:
        key: a JAX random key.
        test: `aggregated_skce_test`, `functools.partial(exact_skce_test, kernel=kernel)` or
            `functools.partial(exact_test, statistic=statistic)`; also with `kernels` of the first
            and with `statistic` of the second.
        predictions: batch of N ≥ 2 distributions, such as those of a pilot study.
        alternative: the distributions of the targets, if predictions are as wrong as that: a batch
            of N distributions, or what makes it of the predictions: a function of them, a pair
            (recalibration, params) such as (recalibration.TemperatureScaling(), 1.1), or a
            dictionary of parameters that replace those of the predictions.
        sizes: numbers of samples n ≥ 2, [k].
        weights: w ≥ 0 of the predictions, [N], such as survey weights: the samples of the study
            have them, too, and the test is the weighted one. (For a study without weights in the
            population that they stand for, resample the predictions by them, and pass none.)
        num_data_sets: R, which is rounded up to a multiple of 20, for each size.
        num_draws: B, the number of redraws of the test. With 999 the power is slightly larger than
            with 199.
        significance: α; a test rejects if its p-value is at most that.

    Returns:
        The power at each size, with standard errors.

    Raises:
        TypeError: if an argument is of the wrong kind, or is traced.
        ValueError: if shapes or values are wrong, B is too small for any test to reject, or a
            statistic is NaN.
        NotImplementedError: if expectations have no closed form.

    Cost: for each size, that of (20 B + R) / B tests.

    References: none of the four papers has it; the second term is the delta method for a quantile,
    as for the power of any Monte Carlo test.

    >>> import functools, jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, recalibration
    >>> predictions = distributions.Bernoulli(jnp.linspace(0.02, 0.98, 50))
    >>> statistic = hypothesis_tests.spiegelhalter
    >>> test = functools.partial(hypothesis_tests.exact_test, statistic=statistic)
    >>> overconfident = recalibration.TemperatureScaling(), 1.5
    >>> print(hypothesis_tests.power_curve(
    ...     jax.random.key(0), test, predictions, overconfident, [100]
    ... ))
         100 samples: power 0.459 ± 0.019
    """
    study = checked_study(
        test, predictions, alternative, num_data_sets, num_draws, significance, weights
    )
    key = checks.random_key(key)
    if not isinstance(sizes, Sequence | np.ndarray) or isinstance(sizes, str):
        raise TypeError(f"sizes: expected a sequence of integers, got {checks.described(sizes)}")
    sizes = [study.size(f"sizes[{i}]", n, 2) for i, n in enumerate(sizes)]
    if not sizes:
        raise ValueError("sizes: expected at least one number of samples, got none")
    return _curve(study, {n: power_of(key, study, n) for n in sizes})


@checks.key_first
def sample_size(
    key: jax.Array,
    test: Callable[..., Any],
    predictions: Distribution,
    alternative: Any,
    *,
    weights: ArrayLike | None = None,
    power: float = 0.8,
    max_size: int | None = None,
    num_data_sets: int = 1000,
    num_draws: int = 199,
    significance: float = 0.05,
    on_size: Callable[[int, float, float], None] | None = None,
) -> SampleSize:
    """How many samples an exact test needs to detect that predictions are wrong in a known way.

    The power is computed as by `power_curve`, first for min(N, 256) samples, then for half or twice
    as many until it is surely reached by the largest, and surely not by the smallest; then twice
    where the curve so far says that it is reached. The curve is the isotonic regression of these,
    its normal quantile linear in √n in between. The interval is where the curves through
    power ± 1.96 standard errors reach it.

    Args:
        key: a JAX random key.
        test: as in `power_curve`.
        predictions: batch of N ≥ 2 distributions.
        alternative: as in `power_curve`.
        weights: as in `power_curve`; n counts rows, not effective ones.
        power: in (0, 1), larger than the significance.
        max_size: largest n ≥ 8 to look at; 10 N by default.
        num_data_sets: R for each size.
        num_draws: B, the number of redraws of the test.
        significance: α.
        on_size: called after each size with n, its power and the standard error.

    Returns:
        The number of samples with its interval; it prints as a sentence, which says so if
        `max_size` is not enough, or if n > N.

    Raises:
        TypeError: as `power_curve`.
        ValueError: as `power_curve`, and if the power is not in (α, 1).
        NotImplementedError: as `power_curve`.

    Cost: that of `power_curve` for about five sizes, if N is of the order of n.

    References: none of the four papers has it.

    >>> import functools, jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, recalibration
    >>> predictions = distributions.Bernoulli(jnp.linspace(0.02, 0.98, 50))
    >>> statistic = hypothesis_tests.spiegelhalter
    >>> test = functools.partial(hypothesis_tests.exact_test, statistic=statistic)
    >>> overconfident = recalibration.TemperatureScaling(), 1.5
    >>> print(hypothesis_tests.sample_size(
    ...     jax.random.key(0), test, predictions, overconfident, max_size=100
    ... ))
    More than 100 samples, the limit, are needed for a power of 0.8: with these it is 0.46 ± 0.02.
    """
    study = checked_study(
        test, predictions, alternative, num_data_sets, num_draws, significance, weights
    )
    key, power = checks.random_key(key), float(checks.proportion("power", power))
    if not significance < power < 1:
        raise ValueError(f"power: expected a number in ({significance}, 1), got {power}")
    number = checks.leading_size("predictions", study.predictions)
    limit = 10 * number if max_size is None else max_size
    limit = study.size("max_size", limit, _FEWEST)
    if on_size is not None:
        checks.function("function", "on_size", on_size, "n", "power", "standard_error")
    found: dict[int, tuple[float, float]] = {}

    def look_at(n: int) -> None:
        found[n] = power_of(key, study, n)
        if on_size is not None:
            on_size(n, *found[n])

    look_at(min(max(number, _FEWEST), limit, _FIRST))
    while _crossing(found, power, -_BAND) > max(found) < limit:
        look_at(min(2 * max(found), limit))
    while _crossing(found, power, _BAND) <= min(found) > _FEWEST:
        look_at(max(min(found) // 2, _FEWEST))
    for _ in range(_REFINED):
        n = _crossing(found, power, 0)
        if n in found or n == math.inf:
            break
        look_at(int(n))
    n, low, high = (_crossing(found, power, errors) for errors in (0, _BAND, -_BAND))
    return SampleSize(n, low, high, power, _curve(study, found), number)


def _curve(study: Study, found: dict[int, tuple[float, float]]) -> PowerCurve:
    sizes = sorted(found)
    power, error = np.array([found[n] for n in sizes]).T
    return PowerCurve(np.array(sizes), power, error, study.significance)


def _crossing(found: dict[int, tuple[float, float]], power: float, errors: float) -> float:
    """Size at which the curve, moved up by standard errors, reaches a power; infinity if none."""
    sizes = np.array(sorted(found))
    values, error = np.array([found[n] for n in sizes]).T
    fit = isotonic_regression(values, weights=1 / error**2).x + errors * error
    if errors > 0:  # a bound from above holds for smaller sizes, too, one from below for larger
        fit = np.minimum.accumulate(fit[::-1])[::-1]
    fit = np.clip(np.maximum.accumulate(fit), 1e-9, 1 - 1e-9)
    above = np.flatnonzero(fit >= power)
    if not above.size:
        return math.inf
    last = above[0]
    if not last:
        return float(sizes[0])
    z, roots = ndtri(fit[last - 1 : last + 1]), np.sqrt(sizes[last - 1 : last + 1])
    return math.ceil(np.interp(ndtri(power), z, roots) ** 2)
