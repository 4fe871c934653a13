"""Exact test of where in the space of predictions and targets a model is wrong."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import PyTree
from calibjax.distributions.base import Distribution
from calibjax.distributions.sampling import check_draws
from calibjax.estimators.mean_embedding import checked_locations, mean_difference
from calibjax.hypothesis_tests._redraw.pool import observed_and_redrawn
from calibjax.hypothesis_tests.result import CalibrationTestResult, simulated_result
from calibjax.hypothesis_tests.simulation import bytes_of_tile, warn_of_members
from calibjax.kernels import Kernel, default_kernel


def witness_test(
    key: jax.Array,
    kernel: Kernel | None,
    predictions: Distribution,
    targets: ArrayLike,
    at_predictions: Distribution,
    at_targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    num_draws: int = 999,
    batch_size: int | None = None,
) -> CalibrationTestResult:
    """Exact test of where a model is wrong: the witness at many locations at once.

    The values W_j of `estimators.witness` at the locations (p_j, z_j) are compared with those of
    targets resampled under the null, as in `exact_test`. `pvalue` tests each location on its own:
    at about 5 % of the locations of a calibrated model p ≤ 0.05. `adjusted_pvalue` accounts for the
    number of locations, by the largest standardised |W| of each redraw: the probability that any of
    them is ≤ α is at most α, for every n, every B and every set of locations. So the region of all
    locations with an adjusted p-value ≤ 0.05 may be read as "here the model is wrong", and its
    minimum is the p-value of the hypothesis that the model is calibrated.

    Args:
        key: a JAX random key.
        kernel: kernel on pairs (prediction, target), not chosen with the targets; None for
            `kernels.default_kernel(predictions)`.
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        at_predictions: p, batch of J distributions of the same family, not chosen with the targets.
        at_targets: z, [J] or [J, d].
        weights: w ≥ 0 of the samples, [n], which all redraws keep; None for samples that count
            alike.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).
        batch_size: number of redraws that are evaluated at once; by default as many as fit in
            about 16 MB.

    Returns:
        The result. `estimate` is the signed witness W, [J]: positive where targets are more
        frequent than predicted. `statistic` is |W|, whose root mean square `null_size` under
        calibration is the standard error of W; the p-values have the same shape.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: if the expectations have no closed form.

    Cost: B n J evaluations of the target kernel, and n J of the rest per batch. Memory O(B J).

    References: none of the four papers has it; see `exact_test`, and for the adjustment Westfall
    and Young (1993).

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(0.3, distances.Wasserstein()), kernels.SquaredExponential(0.3)
    ... )
    >>> predictions = distributions.Normal(jnp.repeat(jnp.array([0.0, 5.0]), 40), jnp.ones(80))
    >>> targets = distributions.sample_targets(jax.random.key(0), predictions)
    >>> targets = targets.at[40:].add(1.5)  # the predictions with mean 5 are too small
    >>> at = distributions.Normal(jnp.array([0.0, 5.0, 5.0]), jnp.ones(3))
    >>> test = hypothesis_tests.witness_test(
    ...     jax.random.key(1), kernel, predictions, targets, at, jnp.array([1.0, 4.0, 6.5])
    ... )
    >>> print(test.adjusted_pvalue < 0.05, jnp.sign(test.estimate[1:]))
    [False  True  True] [-1.  1.]
    """
    kernel = default_kernel(predictions) if kernel is None else kernel
    kernel, samples, locations, weights = checked_locations(
        kernel, predictions, targets, at_predictions, at_targets, weights
    )
    check_draws(*samples)
    warn_of_members(samples[0])
    observed, redrawn = observed_and_redrawn(
        key,
        _signed,
        (checks.kernel_values(kernel), locations, weights),
        *samples,
        num_draws=num_draws,
        batch_size=batch_size,
        num_bytes=bytes_of_tile(checks.leading_size("targets", samples[1])),
    )
    observed = checks.nan_with(observed, locations, weights)
    return simulated_result(
        jnp.abs(observed),
        jnp.abs(redrawn),
        observed,
        draws="targets resampled under the null",
        adjust=True,
        entries="locations",
    )


def _signed(
    data: tuple[Kernel, PyTree, Any], predictions: Distribution, targets: jax.Array
) -> jax.Array:
    kernel, locations, weights = data
    return mean_difference(kernel, locations, (predictions, targets), weights)
