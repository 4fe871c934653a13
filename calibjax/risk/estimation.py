"""The risk of a calibration estimation function: how far it is from the best one."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import matmul
from calibjax._core.pytree import PyTree
from calibjax.distributions.base import Distribution
from calibjax.operators import tiles
from calibjax.risk.samples import checked, residuals

Values = jax.Array | Callable[[Any, Any], jax.Array]


def estimation_risk(
    values: Values,
    predictions: Distribution,
    targets: ArrayLike,
) -> jax.Array:
    """Unbiased estimate of the risk of a calibration estimation function h.

        1/(n(n − 1)) Σ_{i≠j} (⟨p_i − e_{y_i}, p_j − e_{y_j}⟩ − h(p_i, p_j))².

    Its expectation is `E(h − h*)²` plus a constant that no estimator changes, the noise of the
    labels: only differences between estimators are meaningful. It is smallest for
    `h*(p, q) = ⟨p − E[e_Y | p], q − E[e_Y | q]⟩`, and the squared calibration error is the mean of
    `h*(P, P)`. h must not have been fitted to these samples: the risk of an overfitted function
    would be too small.

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

    Returns:
        A scalar; NaN under `jit` for labels out of range.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or n < 2.

    Cost: O(n² m) time in matrix products and n² values of h, O(n · tile) memory besides `values`.

    References: G24 eq. (20).

    >>> import jax.numpy as jnp
    >>> confidences, correct = jnp.array([0.5, 0.5, 0.8]), jnp.array([1, 0, 1])
    >>> print(f"{estimation_risk(jnp.zeros((3, 3)), confidences, correct):.4f}")
    0.0275
    """
    return jnp.mean(_mean_losses(values, predictions, targets, 2))


def estimation_risk_block(
    values: Callable[[Any, Any], jax.Array],
    predictions: Distribution,
    targets: ArrayLike,
    *,
    block_size: int,
) -> jax.Array:
    """Unbiased estimate of the risk of a calibration estimation function in linear time.

    The mean of `estimation_risk` over ⌊n/B⌋ blocks of B consecutive samples; an incomplete last
    block is dropped. With B = 2 each sample is in one pair,

        1/⌊n/2⌋ Σ_i (⟨p_{2i−1} − e_{y_{2i−1}}, p_{2i} − e_{y_{2i}}⟩ − h(p_{2i−1}, p_{2i}))²,

    and B = n is `estimation_risk`. All have the same expectation. The variance falls as B grows:
    take the largest B whose n B values are affordable. Samples in an order that means something,
    such as by class, have to be shuffled before.

    Args:
        values: h, a function of two batches (p, q) → [B, B], as in `estimation_risk`. It is called
            with a block twice, under `vmap` over blocks. Its diagonal does not matter.
        predictions: batch of n ≥ 2 class predictions, or confidences in [0, 1], [n].
        targets: labels 0, ..., m − 1, or 0 and 1, [n].
        block_size: B, 2 ≤ B ≤ n.

    Returns:
        A scalar; NaN for labels out of range under `jit`.

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
    predictions, targets = checked(predictions, targets, minimum=2)
    checks.function("function of two batches", "values", values, "p", "q")
    block_size = checks.size_in_range("block_size", block_size, 2, len(targets))
    num_blocks = len(targets) // block_size
    blocks = jax.tree.map(
        lambda leaf: leaf[: num_blocks * block_size].reshape(
            num_blocks, block_size, *leaf.shape[1:]
        ),
        (residuals(predictions, targets), predictions),
    )

    def risk(_: None, block: tuple[jax.Array, Any]) -> jax.Array:
        errors, batch = block
        found = returned("values", values(batch, batch), (block_size, block_size))
        losses = jnp.square(matmul(errors, errors.T) - found)
        others = jnp.where(jnp.eye(block_size, dtype=bool), 0, losses)
        return jnp.sum(others) / (block_size * (block_size - 1))

    tile_size = max(1, (tiles.TILE_SIZE // block_size) ** 2)
    return jnp.mean(operators.map_rows(risk, None, blocks, tile_size=tile_size))


def estimation_risk_standard_error(
    values: Values,
    predictions: Distribution,
    targets: ArrayLike,
) -> jax.Array:
    """Jackknife standard error of the risk of one estimation function.

        √( (n − 1)/n Σ_i (R_{−i} − mean)² ),   R_{−i} = the risk without sample i,

    which estimates √(4 ζ_1 / n) with ζ_1 the variance of the mean loss given one sample. It is
    conditional on this h, without the variability of h with its training data. Do not use the
    standard errors of two functions on the same samples to judge their difference, whose standard
    error is much smaller.

    Arguments, errors, cost and memory are those of `estimation_risk`; n ≥ 3, and h is symmetric.

    Returns:
        A scalar.

    References: G24 §3.2.1; Arvesen (1969) for the jackknife of U-statistics.

    >>> import jax.numpy as jnp
    >>> confidences, correct = jnp.array([0.5, 0.5, 0.8]), jnp.array([1, 0, 1])
    >>> print(f"{estimation_risk_standard_error(jnp.zeros((3, 3)), confidences, correct):.4f}")
    0.0350
    """
    losses = _mean_losses(values, predictions, targets, 3)
    n = losses.size
    squares = jnp.sum(jnp.square(losses - jnp.mean(losses)))
    # Without sample i the risk is (n R − 2 losses_i) / (n − 2).
    return jnp.sqrt(4 * (n - 1) / n * squares) / (n - 2)


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
    values: Values, predictions: Distribution, targets: ArrayLike, minimum: int
) -> jax.Array:
    """Mean loss over the pairs of each sample with the others, [n]; checks all arguments."""
    predictions, targets = checked(predictions, targets, minimum=minimum)
    errors, n = residuals(predictions, targets), len(targets)
    if callable(values):
        checks.function("function of two batches", "values", values, "p", "q")
        return losses_of_values(errors, values, predictions)
    values = checks.as_arrays("values", values)
    checks.an_array("values", values, "[n, n], or a function of two batches")
    checks.shape("values", values, (n, n), f"[n, n] = {(n, n)}")
    values = checks.finite("values", values)
    return _losses(errors, lambda _, row: row, None, values)


def losses_of_values(
    errors: jax.Array,
    values: Callable,
    predictions: Distribution,
    name: str = "values",
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
    for side, values in (("left", left), ("right", right)):
        if jnp.shape(values) != (n, *jnp.shape(left)[1:]) or jnp.ndim(values) != 2:
            raise ValueError(
                f"function.factors: expected two arrays [n, r] with n = {n}, got the {side} one "
                f"with shape {jnp.shape(values)}"
            )
    size = errors.shape[1] + left.shape[1]
    if 4 * size > n:
        return _losses(errors, lambda right, row: matmul(right, row), right, left)
    u, v = jnp.concatenate([errors, left], 1), jnp.concatenate([errors, -right], 1)
    own = jnp.square(jnp.sum(u * v, 1))
    sums = jnp.sum(matmul(u, matmul(v.T, v)) * u, 1) - own
    return jnp.maximum(sums, 0) / (n - 1)  # rounding


def _losses(errors: jax.Array, row: Callable, args: PyTree, points: PyTree) -> jax.Array:
    """Mean loss over the pairs of each sample, [n]; row(args, point) returns its values of h."""
    n = len(errors)

    def mean_loss(args: PyTree, point: PyTree) -> jax.Array:
        (errors, args), (error, index, point) = args, point
        losses = jnp.square(matmul(errors, error) - row(args, point))
        return jnp.sum(jnp.where(jnp.arange(n) == index, 0, losses)) / (n - 1)

    return operators.map_rows(mean_loss, (errors, args), (errors, jnp.arange(n), points))
