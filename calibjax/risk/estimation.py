"""The risk of a calibration estimation function: how far it is from the best one."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import matmul
from calibjax._core.gate import Seen, checked
from calibjax._core.pytree import Numbers, PyTree, record
from calibjax.distributions.base import Distribution
from calibjax.operators import tiles
from calibjax.risk.base import POINTS, residuals

Values = jax.Array | Callable[[Any, Any], jax.Array]


@record
class RiskEstimate:
    """Estimate of the risk of a calibration estimation function.

    Attributes:
        value: the estimate.
        standard_error: of the estimate, given this function. NaN if there are two samples or one
            block, from which it cannot be estimated.
    """

    value: jax.Array
    standard_error: jax.Array


def _values(name: str, value: Any, seen: Seen) -> Any:
    """An array of numbers, or a function of two batches."""
    if not callable(value):
        return checks.finite(name, checks.as_arrays(name, value))
    checks.function("function of two batches", name, value, "p", "q")
    return value


@checked(minimum=2, values=_values, **POINTS)
def estimation_risk(
    values: Values, predictions: Distribution, targets: Numbers, *, block_size: int | None = None
) -> RiskEstimate:
    """Unbiased estimate of the risk of a calibration estimation function h.

        1/(n(n − 1)) Σ_{i≠j} (⟨p_i − e_{y_i}, p_j − e_{y_j}⟩ − h(p_i, p_j))².

    Its expectation is `E(h − h*)²` plus a constant that no estimator changes, the noise of the
    labels: only differences between estimators are meaningful. It is smallest for
    `h*(p, q) = ⟨p − E[e_Y | p], q − E[e_Y | q]⟩`, and the squared calibration error is the mean of
    `h*(P, P)`. h must not have been fitted to these samples: the risk of an overfitted function
    would be too small.

    With a block size B it is the mean over ⌊n/B⌋ blocks of B consecutive samples, in linear time;
    an incomplete last block is dropped. All block sizes have the same expectation. The variance
    falls as B grows: take the largest B whose n B values are affordable. Samples in an order that
    means something, such as by class, have to be shuffled before.

    The standard error is the jackknife's,

        √( (n − 1)/n Σ_i (R_{−i} − mean)² ),   R_{−i} = the risk without sample i,

    for symmetric h, which estimates √(4 ζ_1 / n) with ζ_1 the variance of the mean loss given one
    sample; for blocks it is the standard deviation of their risks divided by √⌊n/B⌋. It is
    conditional on this h, without the variability of h with its training data. Do not use the
    standard errors of two functions on the same samples to judge their difference, whose standard
    error is much smaller.

    As everywhere, both classes of `Bernoulli`s count: products of residuals and h are two times,
    the risk four times as large as for the same numbers given as confidences, an array [n] with
    targets 0 and 1. G24's tables of top-label calibration use the latter. For class-wise risks, use
    the lens `estimators.class_wise` and `vmap`.

    Args:
        values: h(p_i, p_j), [n, n]; or a function of two batches (p, q) → [n, n'] such as
            `functools.partial(function.evaluate, params)`, which is called with one point and all
            points, under `vmap` over a tile of points, or with a block twice, under `vmap` over
            blocks. Blocks need a function. Its diagonal does not matter.
        predictions: batch of n ≥ 2 class predictions, or confidences in [0, 1], [n].
        targets: labels 0, ..., m − 1, or 0 and 1, [n].
        block_size: B, 2 ≤ B ≤ n; None for all pairs.

    Returns:
        The estimate and its standard error; NaN under `jit` for labels out of range.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, n < 2, or the block size is out of range.

    Cost: O(n² m) time in matrix products and n² values of h, O(n · tile) memory besides `values`.
    With blocks, O(n B m) time, n B values, O(n m + B² + tile²) memory.

    References: G24 eq. (20), and §3.2.1 below it: "an estimator with linear complexity can be
    constructed as well by excluding certain index combinations"; Arvesen (1969) for the jackknife
    of U-statistics.

    >>> import jax.numpy as jnp
    >>> confidences, correct = jnp.array([0.5, 0.5, 0.8]), jnp.array([1, 0, 1])
    >>> risk = estimation_risk(jnp.zeros((3, 3)), confidences, correct)
    >>> print(f"{risk.value:.4f}, standard error {risk.standard_error:.4f}")
    0.0275, standard error 0.0350
    >>> def zero(p, q):
    ...     return jnp.zeros((p.size, q.size))
    >>> print(estimation_risk(zero, confidences, correct, block_size=2).value)
    0.0625
    """
    errors, n = residuals(predictions, targets), len(targets)
    if block_size is not None:
        if not callable(values) or block_size > n:
            got = f"block_size={block_size} for {n} samples, and {checks.described(values)}"
            raise ValueError(f"values: expected a function, and a block size up to n, got {got}")
        risks = _of_blocks(errors, values, predictions, block_size)
        deviation = jnp.std(risks, ddof=1) if risks.size > 1 else jnp.full_like(risks[0], jnp.nan)
        return RiskEstimate(jnp.mean(risks), deviation / math.sqrt(risks.size))
    if callable(values):
        losses = losses_of_values(errors, values, predictions)
    else:
        checks.shape("values", values, (n, n), f"[n, n] = {(n, n)}")
        losses = _losses(errors, lambda _, row: row, None, values)
    squares = jnp.sum(jnp.square(losses - jnp.mean(losses)))
    # Without sample i the risk is (n R − 2 losses_i) / (n − 2).
    error = jnp.sqrt(4 * (n - 1) / n * squares) / (n - 2 or math.nan)
    return RiskEstimate(jnp.mean(losses), error)


def _of_blocks(
    errors: jax.Array, values: Any, predictions: Distribution, block_size: int
) -> jax.Array:
    """The risks of blocks of consecutive samples."""
    num_blocks = len(errors) // block_size
    blocks = jax.tree.map(
        lambda leaf: leaf[: num_blocks * block_size].reshape(
            num_blocks, block_size, *leaf.shape[1:]
        ),
        (errors, predictions),
    )

    def risk(_: None, block: tuple[jax.Array, Any]) -> jax.Array:
        errors, batch = block
        products = returned("values", values(batch, batch), (block_size, block_size))
        losses = jnp.square(matmul(errors, errors.T) - products)
        others = jnp.where(jnp.eye(block_size, dtype=bool), 0, losses)
        return jnp.sum(others) / (block_size * (block_size - 1))

    tile_size = max(1, (tiles.TILE_SIZE // block_size) ** 2)
    return operators.map_rows(risk, None, blocks, tile_size=tile_size)


def returned(name: str, values: Any, shape: tuple[int, int]) -> jax.Array:
    """Values of a user's function for two batches, if there is one for each pair."""
    checks.shape(name, values, shape, f"[n, n'] = {shape} of its values for two batches")
    return checks.real(name, values)


def losses_of_values(
    errors: jax.Array, values: Callable, predictions: Distribution, name: str = "values"
) -> jax.Array:
    """Mean loss over the pairs of each sample, [n]; h is a function of two batches."""
    n = len(errors)

    def row(batch: Distribution, point: Distribution) -> jax.Array:
        one = jax.tree.map(lambda x: x[None], point)
        return returned(name, values(one, batch), (1, n))[0]

    return _losses(errors, row, predictions, predictions)


def losses_of_factors(errors: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
    """Mean loss over the pairs of each sample, [n], where h(p_i, p_j) = Σ_k left_ik right_jk.

    With u_i = (errors_i, left_i) and v_j = (errors_j, −right_j), the sums Σ_j (u_i · v_j)² are
    quadratic forms u_iᵀ (Σ_j v_j v_jᵀ) u_i, in O(n (m + r)²) time if that is faster.
    """
    n = len(errors)
    checks.shape("function.factors", left, (n, None), f"[n, r] with n = {n}")
    checks.shape("function.factors", right, left.shape, "[n, r], as the left one")
    size = errors.shape[1] + left.shape[1]
    if 4 * size > n:
        return _losses(errors, lambda right, row: matmul(right, row), right, left)
    u, v = jnp.concatenate([errors, left], 1), jnp.concatenate([errors, -right], 1)
    sums = jnp.sum(matmul(u, matmul(v.T, v)) * u, 1) - jnp.square(jnp.sum(u * v, 1))
    return jnp.maximum(sums, 0) / (n - 1)  # rounding


def _losses(errors: jax.Array, row: Callable, args: PyTree, points: PyTree) -> jax.Array:
    """Mean loss over the pairs of each sample, [n]; row(args, point) returns its values of h."""
    n = len(errors)

    def mean_loss(args: PyTree, point: PyTree) -> jax.Array:
        (errors, args), (error, index, point) = args, point
        losses = jnp.square(matmul(errors, error) - row(args, point))
        return jnp.sum(jnp.where(jnp.arange(n) == index, 0, losses)) / (n - 1)

    return operators.map_rows(mean_loss, (errors, args), (errors, jnp.arange(n), points))
