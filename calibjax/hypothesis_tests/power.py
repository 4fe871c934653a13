"""How often the exact test detects an error, by the number of samples."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax.hypothesis_tests.exact import exact_skce_test
from calibjax.kernels import Kernel


@checks.key_first
def power_curve(
    key: jax.Array,
    kernel: Kernel | None,
    simulate: Callable[[jax.Array, int], tuple[Any, Any]],
    sizes: Sequence[int],
    *,
    num_data_sets: int = 200,
    num_draws: int = 999,
    significance_level: float = 0.05,
    statistic: str = "omnibus",
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """How often `exact_skce_test` rejects simulated data sets, by their number of samples.

    Args:
        key: a JAX random key. The power at a size depends on the key and this size only.
        kernel: kernel on pairs (prediction, target), such as `kernels.default_kernel` of the
            predictions of a pilot study; None for that of each data set.
        simulate: function (key, n) → predictions and targets of a data set of n samples,
            traceable by JAX. The targets are drawn from a law other than the predictions, namely
            the smallest error that matters.
        sizes: numbers of samples n ≥ 2, [k].
        num_data_sets: R, for each size.
        num_draws: number of redraws of each test.
        significance_level: α. A test rejects if its p-value is at most α.
        statistic: as in `exact_skce_test`.

    Returns:
        The sizes, the power at each of them, and its Monte Carlo standard error, [k] each.
        A power is NaN if a p-value is.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if a value is wrong, or there are too few draws for any test to reject.
        NotImplementedError: if the expectations have no closed form.

    Cost: R tests for each size, and a compilation.

    References: none of the four papers has it.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(kernels.Constant(), kernels.SquaredExponential(1.0))
    >>> def simulate(key, n):
    ...     predictions = distributions.Normal(jnp.zeros(n), jnp.ones(n))
    ...     return predictions, 0.5 + jax.random.normal(key, (n,))
    >>> sizes, power, error = hypothesis_tests.power_curve(
    ...     jax.random.key(0), kernel, simulate, [10, 40], num_data_sets=100, num_draws=99
    ... )
    >>> print(power[1] - power[0] > 3 * error.max())
    True
    """
    key = checks.random_key(key)
    kernel = None if kernel is None else checks.kernel_values(kernel)
    checks.function("function (key, n) -> predictions, targets", "simulate", simulate, "key", "n")
    if not isinstance(sizes, Sequence | np.ndarray) or isinstance(sizes, str) or not len(sizes):
        raise TypeError(f"sizes: expected a sequence of integers, got {checks.described(sizes)}")
    sizes = [checks.number_of_draws(f"sizes[{i}]", n, 2) for i, n in enumerate(sizes)]
    number = checks.number_of_draws("num_data_sets", num_data_sets)
    num_draws = checks.number_of_draws("num_draws", num_draws)
    level = checks.proportion("significance_level", significance_level)
    level = level + 1e-6  # p-values are rounded
    if checks.is_concrete(level) and level * (num_draws + 1) < 1:
        raise ValueError(
            f"num_draws: expected more: {num_draws} never reject at the level {significance_level}"
        )

    def rejects(n: int, key: jax.Array) -> jax.Array:
        data_key, test_key = jax.random.split(key)
        test = exact_skce_test(
            test_key, kernel, *simulate(data_key, n), num_draws=num_draws, statistic=statistic
        )
        return jnp.where(jnp.isnan(test.pvalue), jnp.nan, test.pvalue <= level)

    shares = []
    for n in sizes:
        keys = jax.random.split(jax.random.fold_in(key, n), number)
        shares.append(jnp.mean(jax.lax.map(functools.partial(rejects, n), keys)))
    power = jnp.stack(shares)
    inside = (number * power + 1) / (number + 2)  # never 0 or 1
    return jnp.asarray(sizes), power, jnp.sqrt(inside * (1 - inside) / number)
