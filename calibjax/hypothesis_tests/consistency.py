"""Consistency resampling."""

from collections.abc import Callable
from typing import Any

import jax
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax.distributions.base import Distribution
from calibjax.distributions.sampling import check_draws, draw
from calibjax.hypothesis_tests._redraw.pool import rank_among_redraws
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.hypothesis_tests.simulation import Bound, bytes_of_tile, checked_statistic


def consistency_test(
    key: jax.Array,
    statistic: Callable[..., Any],
    predictions: Distribution,
    targets: ArrayLike,
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
    predictions, targets = checks.predictions_and_targets(predictions, targets, keep_logs=True)
    check_draws(predictions, targets)
    samples = predictions, targets
    return rank_among_redraws(
        key,
        Bound(_of_samples, (value,)),
        None,
        samples,
        samples,
        num_draws=num_draws,
        batch_size=batch_size,
        num_bytes=bytes_of_tile(checks.leading_size("targets", targets)),
        redraw=_resampled,
        draws="resampled predictions and targets",
    )


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
