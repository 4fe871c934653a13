"""The risk of a calibration estimation function: how far it is from the best one."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax import pairwise
from calibjax._core import checks
from calibjax._core.arithmetic import matmul
from calibjax._core.pytree import PyTree
from calibjax.distributions.base import Distribution
from calibjax.pairwise import tiles
from calibjax.risk.samples import checked, residuals
from calibjax.scores.base import weighted_mean

Values = jax.Array | Callable[[Any, Any], jax.Array]


def estimation_risk(
    values: Values,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Unbiased estimate of the risk of a calibration estimation function h.

        1/(n(n − 1)) Σ_{i≠j} (⟨p_i − e_{y_i}, p_j − e_{y_j}⟩ − h(p_i, p_j))²,

    with weights the mean with w_i w_j / Σ_{i≠j} w_i w_j. Its expectation is `E(h − h*)²` plus a
    constant that no estimator changes, the noise of the labels: only differences between estimators
    are meaningful. It is smallest for `h*(p, q) = ⟨p − E[e_Y | p], q − E[e_Y | q]⟩`, and the
    squared calibration error is the mean of `h*(P, P)`. h must not have been fitted to these
    samples: the risk of an overfitted function would be too small.

    As everywhere, both classes of `Bernoulli`s count: products of residuals and h are two times,
    the risk four times as large as for the same numbers given as confidences, an array [n] with
    targets 0 and 1. G24's tables of top-label calibration use the latter. For class-wise risks, use
    the lens `estimators.class_wise` and `vmap`.

    Args:
        values: h(p_i, p_j), [n, n]; or a function of two batches (p, q) → [n, n'] such as
            `functools.partial(function.evaluate, params)`, which is called with one point and all
            points, under `vmap` over a tile of points. Its diagonal does not matter.
        predictions: batch of n ≥ 2 class predictions, or confidences in [0, 1], [n].
        targets: labels 0, ..., m − 1, or 0 and 1, [n].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        A scalar; NaN under `jit` for labels out of range.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or fewer than two samples count.

    Cost: O(n² m) time in matrix products and n² values of h, O(n · tile) memory besides `values`.

    References: G24 eq. (20).

    >>> import jax.numpy as jnp
    >>> confidences, correct = jnp.array([0.5, 0.5, 0.8]), jnp.array([1, 0, 1])
    >>> print(f"{estimation_risk(jnp.zeros((3, 3)), confidences, correct):.4f}")
    0.0275
    """
    losses, weights = _mean_losses(values, predictions, targets, weights, 2)
    return weighted_mean(losses, weights)


def estimation_risk_block(
    values: Callable[[Any, Any], jax.Array],
    predictions: Distribution,
    targets: ArrayLike,
    *,
    block_size: int,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Unbiased estimate of the risk of a calibration estimation function in linear time.

    The mean of `estimation_risk` over ⌊n/B⌋ blocks of B consecutive samples; an incomplete last
    block is dropped. With B = 2 each sample is in one pair,

        1/⌊n/2⌋ Σ_i (⟨p_{2i−1} − e_{y_{2i−1}}, p_{2i} − e_{y_{2i}}⟩ − h(p_{2i−1}, p_{2i}))²,

    and B = n is `estimation_risk`. All have the same expectation. The variance falls as B grows:
    take the largest B whose n B values are affordable. Samples in an order that means something,
    such as by class, have to be shuffled before. With weights it is the mean over all pairs within
    blocks with w_i w_j / Σ w_i w_j.

    Args:
        values: h, a function of two batches (p, q) → [B, B], as in `estimation_risk`. It is called
            with a block twice, under `vmap` over blocks. Its diagonal does not matter.
        predictions: batch of n ≥ 2 class predictions, or confidences in [0, 1], [n].
        targets: labels 0, ..., m − 1, or 0 and 1, [n].
        block_size: B, 2 ≤ B ≤ n.
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        A scalar; NaN for labels out of range under `jit`, or if no block has two positive weights.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, n < 2, or the block size is out of range.

    Cost: O(n B m) time in matrix products and n B values of h, O(n m + B² + tile²) memory.

    References: G24 §3.2.1, below eq. (20): "an estimator with linear complexity can be constructed
        as well by excluding certain index combinations".

    >>> import jax.numpy as jnp
    >>> confidences, correct = jnp.array([0.5, 0.5, 0.8]), jnp.array([1, 0, 1])
    >>> def zero(p, q):
    ...     return jnp.zeros((p.size, q.size))
    >>> print(estimation_risk_block(zero, confidences, correct, block_size=2))
    0.0625
    """
    predictions, targets, weights = checked(predictions, targets, weights, minimum=2)
    checks.function("function of two batches", "values", values, "p", "q")
    block_size = checks.size_in_range("block_size", block_size, 2, len(targets))
    num_blocks = len(targets) // block_size
    blocks = jax.tree.map(
        lambda leaf: leaf[: num_blocks * block_size].reshape(
            num_blocks, block_size, *leaf.shape[1:]
        ),
        (residuals(predictions, targets), predictions, weights),
    )

    def risk(_: None, block: tuple[jax.Array, Any, jax.Array | None]) -> PyTree:
        errors, batch, weights = block
        found = returned("values", values(batch, batch), (block_size, block_size))
        losses = jnp.square(matmul(errors, errors.T) - found)
        others = jnp.where(jnp.eye(block_size, dtype=bool), 0, losses)
        if weights is None:
            return jnp.sum(others) / (block_size * (block_size - 1))
        total = jnp.sum(weights)
        return matmul(weights, matmul(others, weights)), jnp.sum(weights * (total - weights))

    tile_size = max(1, (tiles.TILE_SIZE // block_size) ** 2)
    risks = pairwise.map_rows(risk, None, blocks, tile_size=tile_size)
    return jnp.mean(risks) if weights is None else jnp.sum(risks[0]) / jnp.sum(risks[1])


def estimation_risk_standard_error(
    values: Values,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Jackknife standard error of the risk of one estimation function.

        √( (n − 1)/n Σ_i (R_{−i} − mean)² ),   R_{−i} = the risk without sample i,

    which estimates √(4 ζ_1 / n) with ζ_1 the variance of the mean loss given one sample. It is
    conditional on this h, without the variability of h with its training data. Do not use the
    standard errors of two functions on the same samples to judge their difference, whose standard
    error is much smaller: see `risk_difference`.

    With weights it is the linear approximation of what leaving out a sample changes, with
    n = (Σ_i w_i)² / Σ_i w_i² in the factors that make it the jackknife where they are equal.

    Arguments, errors, cost and memory are those of `estimation_risk`; n ≥ 3, and h is symmetric.

    Returns:
        A scalar; NaN for weights with n ≤ 2.

    References: G24 §3.2.1; Arvesen (1969) for the jackknife of U-statistics.

    >>> import jax.numpy as jnp
    >>> confidences, correct = jnp.array([0.5, 0.5, 0.8]), jnp.array([1, 0, 1])
    >>> print(f"{estimation_risk_standard_error(jnp.zeros((3, 3)), confidences, correct):.4f}")
    0.0350
    """
    losses, weights = _mean_losses(values, predictions, targets, weights, 3)
    return jnp.sqrt(jackknife_variances(losses, jnp.ones((1, losses.size), bool), weights)[0])


def returned(name: str, values: Any, shape: tuple[int, int]) -> jax.Array:
    """Values of a user's function for two batches, if there is one for each pair."""
    found = getattr(values, "shape", type(values).__name__)
    if found != shape:
        raise ValueError(
            f"{name}: expected a function that returns [n, n'] = {shape} for two batches of these "
            f"sizes, got {found}"
        )
    if not jnp.issubdtype(jnp.result_type(values), jnp.floating):
        raise TypeError(
            f"{name}: expected a function whose values are floating-point numbers, got "
            f"{jnp.result_type(values)}"
        )
    return values


def _mean_losses(
    values: Values, predictions: Distribution, targets: ArrayLike, weights: Any, minimum: int
) -> tuple[jax.Array, jax.Array | None]:
    """Mean loss over the pairs of each sample with the others, [n], and weights; checks all."""
    predictions, targets, weights = checked(predictions, targets, weights, minimum=minimum)
    errors, n = residuals(predictions, targets), len(targets)
    if callable(values):
        checks.function("function of two batches", "values", values, "p", "q")
        return losses_of_values(errors, values, predictions, weights), weights
    values = checks.as_arrays("values", values)
    checks.an_array("values", values, "[n, n], or a function of two batches")
    checks.shape("values", values, (n, n), f"[n, n] = {(n, n)}")
    values = checks.finite("values", values)
    return _losses(errors, lambda _, row: row, None, values, weights), weights


def losses_of_values(
    errors: jax.Array,
    values: Callable,
    predictions: Distribution,
    weights: jax.Array | None = None,
    name: str = "values",
) -> jax.Array:
    """Mean loss over the pairs of each sample, [n]; h is a function of two batches.

    With weights, whose sum n is that of their squares, it is Σ_{j≠i} w_j loss_ij / (n − 1), whose
    weighted mean is the risk.
    """
    n = len(errors)

    def row(batch: Distribution, point: Distribution) -> jax.Array:
        one = jax.tree.map(lambda x: x[None], point)
        return returned(name, values(one, batch), (1, n))[0]

    return _losses(errors, row, predictions, predictions, weights)


def losses_of_factors(
    errors: jax.Array, left: jax.Array, right: jax.Array, weights: jax.Array | None = None
) -> jax.Array:
    """Mean loss over the pairs of each sample, [n], where h(p_i, p_j) = Σ_k left_ik right_jk.

    With u_i = (errors_i, left_i) and v_j = (errors_j, −right_j), the sums Σ_j (u_i · v_j)² are
    quadratic forms u_iᵀ (Σ_j v_j v_jᵀ) u_i, in O(n (m + r)²) time if that is faster. With weights
    the sums are those of `losses_of_values`.
    """
    n = len(errors)
    for side, values in (("left", left), ("right", right)):
        if jnp.shape(values) != (n, *jnp.shape(left)[1:]) or jnp.ndim(values) != 2:
            raise ValueError(
                f"function.factors: expected two arrays [n, r] with n = {n}, got the {side} one "
                f"with shape {jnp.shape(values)}"
            )
    size = errors.shape[1] + left.shape[1]
    if 4 * size > n:
        return _losses(errors, lambda right, row: matmul(right, row), right, left, weights)
    u, v = jnp.concatenate([errors, left], 1), jnp.concatenate([errors, -right], 1)
    own = jnp.square(jnp.sum(u * v, 1))
    if weights is None:
        return _mean_of_others(jnp.sum(matmul(u, matmul(v.T, v)) * u, 1) - own, n)
    products = matmul(v.T, weights[:, None] * v)
    sums = jnp.sum(matmul(u, products) * u, 1) - weights * own
    return _mean_of_others(sums, jnp.sum(weights))


def _mean_of_others(sums: jax.Array, n: jax.Array | int) -> jax.Array:
    return jnp.maximum(sums, 0) / (n - 1)  # rounding


def _losses(
    errors: jax.Array, row: Callable, args: PyTree, points: PyTree, weights: jax.Array | None
) -> jax.Array:
    """Mean loss over the pairs of each sample, [n]; row(args, point) returns its values of h."""
    n = len(errors)

    def mean_loss(args: PyTree, point: PyTree) -> jax.Array:
        (errors, args, weights), (error, index, point) = args, point
        losses = jnp.square(matmul(errors, error) - row(args, point))
        losses = losses if weights is None else weights * losses
        return jnp.sum(jnp.where(jnp.arange(n) == index, 0, losses)) / (n - 1)

    means = pairwise.map_rows(mean_loss, (errors, args, weights), (errors, jnp.arange(n), points))
    return means if weights is None else means * ((n - 1) / (jnp.sum(weights) - 1))


def jackknife_variances(
    losses: jax.Array, members: jax.Array, weights: jax.Array | None = None
) -> jax.Array:
    """Variances of U-statistics of groups of samples, [F].

    Args:
        losses: mean over the pairs of each sample with the others of its group, [n].
        members: which samples are in each group, [F, n].
        weights: of the samples, whose sum n in each group is that of their squares, [n].

    Without sample i the statistic is (n U − 2 r_i) / (n − 2). With weights it changes by about
    2 w_i (r_i − U (n − w_i) / (n − 1)) / n.
    """
    if weights is None:
        n = jnp.sum(members, 1, dtype=losses.dtype)
        means = jnp.sum(jnp.where(members, losses, 0), 1) / n
        changes = losses - means[:, None]
    else:
        n = jnp.sum(jnp.where(members, weights, 0), 1)
        means = jnp.sum(jnp.where(members, weights * losses, 0), 1) / n
        factors = means / (n - 1)
        changes = weights * (losses - factors[:, None] * (n[:, None] - weights))
        n = jnp.where(n > 2, n, jnp.nan)
    squares = jnp.sum(jnp.where(members, jnp.square(changes), 0), 1)
    return 4 * (n - 1) / n * squares / jnp.square(n - 2)
