"""The result of a test."""

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import _checks
from calibjax._pytree import record


@record
class CalibrationTestResult:
    """Result of a test of the null hypothesis that the predictions are calibrated.

    Attributes:
        statistic: value of the test statistic; large values speak against calibration.
        pvalue: probability of such a value or a larger one under calibration, in (0, 1].
        estimate: estimate of the calibration error that belongs to the test.
        null_samples: draws of the statistic under calibration, [num_samples]; None if the test
            does not draw any.
    """

    statistic: jax.Array
    pvalue: jax.Array
    estimate: jax.Array
    null_samples: jax.Array | None = None


def simulated_pvalue(statistic: jax.Array, null_samples: jax.Array) -> jax.Array:
    """Monte Carlo p-value (1 + #{T_b ≥ T}) / (B + 1).

    Differences within rounding error count as ties, since equal data sets may give statistics
    that differ in the last digits. A statistic that is not a number gives no p-value, and null
    samples that are not count against rejection.

    Args:
        statistic: T.
        null_samples: T_b, [B].

    Returns:
        The p-value, in [1 / (B + 1), 1].
    """
    scale = jnp.maximum(jnp.abs(statistic), jnp.nanmax(jnp.abs(null_samples)))
    tolerance = 100 * jnp.finfo(null_samples.dtype).eps * scale
    count = jnp.sum(~(null_samples < statistic - tolerance))
    pvalue = (1 + count) / jnp.asarray(null_samples.shape[0] + 1, null_samples.dtype)
    return jnp.where(jnp.isnan(statistic), jnp.nan, pvalue)


def refuse_undefined(statistic: jax.Array) -> None:
    """Raises a ValueError if the statistic is a concrete NaN."""
    if _checks.is_concrete(statistic) and np.any(np.isnan(statistic)):
        raise ValueError(f"statistic: expected a number, got {statistic}")
