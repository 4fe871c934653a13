"""Tests with the calibration mean embedding at test locations."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaincc

from calibjax._core import checks
from calibjax._core.arithmetic import matmul
from calibjax._core.gate import checked
from calibjax._core.pytree import Numbers
from calibjax.distributions.base import DataSet, Distribution, draw
from calibjax.estimators.mean_embedding import location_pair
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.kernels import Kernel


@checked(minimum=2)
def cme_test(
    key: jax.Array | None,
    kernel: Kernel,
    predictions: Distribution,
    targets: Numbers,
    *,
    at_predictions: Distribution | None = None,
    at_targets: Numbers | None = None,
    num_locations: int = 10,
) -> CalibrationTestResult:
    """Asymptotic test of calibration with the mean embedding at J test locations (CME test).

        Q = n Z̄ᵀ S⁻¹ Z̄,   Z_ij = k(T_j, (p_i, y_i)) − E_{Z~p_i} k(T_j, (p_i, Z)),

    with the mean Z̄ and covariance matrix S (divisor n − 1) of the rows of Z; p = P(χ²_J ≥ Q).

    Hotelling's statistic is far from its limit unless n is much larger than J: with ten locations
    in W21's models, 87 % of calibrated data sets are rejected at level 5 % with n = 16, 36 % with
    n = 64, 11 % with n = 256 and 6 % with n = 1024; with classes, whose Z are nearly discrete, it
    needs even more samples. `exact_test` with the same statistic holds its level for every n, see
    the example. It takes no weights, of which few large ones would leave even fewer samples: rank
    `estimators.ucme` with weights by `exact_test`.

    Args:
        key: a JAX random key; None if the test locations are given.
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n > J distributions.
        targets: [n] or [n, d].
        at_predictions: batch of J distributions of the same family, not chosen with the targets. By
            default J of the predictions, chosen at random, with targets that are drawn from them.
        at_targets: [J] or [J, d], together with `at_predictions`.
        num_locations: J, if they are drawn.

    Returns:
        The result; `statistic` is Q, `estimate` the squared UCME at the test locations.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, only a part of the test locations, or neither
            these nor a key are given, n ≤ J, or the covariance is singular up to rounding, as with
            equal test locations (then the result under `jit` is NaN).
        NotImplementedError: if the expectations have no closed form.

    Cost: n J evaluations of the kernel and the expectation, n J² operations, n J numbers.

    References: W21 App. C.2; Chwialkowski et al. (2015). Neither refuses n ≤ J.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    ... )
    >>> predictions = distributions.Normal(jnp.linspace(0.0, 1.0, 64), jnp.full(64, 0.1))
    >>> def statistic(predictions, targets):
    ...     return hypothesis_tests.cme_test(
    ...         jax.random.key(0), kernel, predictions, targets, num_locations=2
    ...     ).statistic
    >>> exact = hypothesis_tests.exact_test(
    ...     jax.random.key(1), statistic, predictions, predictions.loc + 0.05
    ... )
    >>> print(f"{exact.pvalue:.3f}")
    0.001
    """
    if (at_predictions is None) != (at_targets is None):
        raise ValueError("at_predictions, at_targets: expected both or none, got one of them")
    samples: Any = predictions, targets
    locations: Any = at_predictions, at_targets
    if at_predictions is None:
        rows_key, targets_key = jax.random.split(checks.random_key(cast(jax.Array, key)))
        n = checks.leading_size("predictions", predictions)
        rows = jax.random.permutation(rows_key, n)[:num_locations]
        drawn = jax.tree.map(lambda leaf: leaf[rows], predictions)
        locations = drawn, draw(targets_key, drawn)
    n, num_locations = (checks.leading_size("targets", y) for _, y in (samples, locations))
    if n <= num_locations:
        raise ValueError(
            f"predictions: expected more than the {num_locations} test locations, got {n}"
        )
    statistic, estimate = _hotelling(kernel, samples, locations)
    if checks.is_concrete(statistic) and np.isnan(statistic):
        raise ValueError(
            "at_predictions, at_targets: expected locations with a covariance that is not "
            f"singular up to rounding in {statistic.dtype}; take fewer than {num_locations}, or "
            "float64"
        )
    tail = gammaincc(jnp.asarray(num_locations / 2, statistic.dtype), statistic / 2)
    pvalue = jnp.maximum(tail, jnp.finfo(statistic.dtype).tiny)  # never zero
    return CalibrationTestResult(statistic, pvalue, estimate)


@jax.jit
def _hotelling(kernel: Kernel, samples: DataSet, locations: DataSet) -> tuple[jax.Array, jax.Array]:
    """Statistic Q, and the squared UCME; Q is NaN if the covariance is singular."""
    row = jax.vmap(location_pair, in_axes=(None, 0, None))
    z = jax.vmap(row, in_axes=(None, None, 0))(kernel, locations, samples)
    n, num_locations = z.shape
    mean = z.mean(0)
    spread = z.std(0)
    # Rounding errors do not count as spread: columns of equal predictions and targets are constant.
    rounding = 100 * jnp.finfo(z.dtype).eps
    is_constant = spread <= rounding * jnp.max(jnp.abs(z), 0)
    # Scaling the columns, which differ between near and far locations, improves the conditioning.
    spread = jnp.where(is_constant, 1, spread)
    scaled = (z - mean) / spread
    triangle = jnp.linalg.qr(scaled / jnp.sqrt(n - 1), mode="r")
    pivots = jnp.abs(jnp.diag(triangle))
    singular = (jnp.min(pivots) <= rounding * num_locations) | jnp.any(is_constant)
    root = solve_triangular(triangle.T, mean / spread, lower=True)
    return jnp.where(singular, jnp.nan, n * matmul(root, root)), jnp.mean(jnp.square(mean))
