"""Statistics of PIT values, and textbook p-values of statistics.

Textbook p-values: distributions that statistics have under calibration for large n.

A statistic that has one carries the function textbook_pvalue(value, predictions, targets,
**options), which `exact_test` calls. Those of users may do so, too.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaincc, ndtr

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.gate import checked, inner
from calibjax._core.pytree import Numbers, PyTree
from calibjax.distributions import Ensemble, Uniform
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare
from calibjax.estimators.pit import pit_values
from calibjax.kernels.expectations import check_expectations
from calibjax.kernels.residuals import NormalScore, is_of_counts, normal_score

_TERMS = np.arange(30)  # of series, which converge from the fifth on


def textbook_pvalue_of(statistic: Any, value: PyTree, predictions: Any, targets: Any) -> PyTree:
    """The textbook p-value of a statistic, or of a partial one, that has one; else None."""
    options: dict[str, Any] = {}
    while isinstance(statistic, functools.partial):
        statistic, options = statistic.func, statistic.keywords | options
    pvalue = getattr(statistic, "textbook_pvalue", None)
    return None if pvalue is None else pvalue(value, predictions, targets, **options)


def with_textbook_pvalue(pvalue: Callable[..., jax.Array]) -> Callable[[Any], Any]:
    """Attaches the textbook p-value to a statistic."""

    def attach(function: Any) -> Any:
        function.textbook_pvalue = pvalue
        return function

    return attach


def two_sided(value: jax.Array, *_: object, **__: object) -> jax.Array:
    """P(|Z| ≥ x) of a standard normal Z."""
    return 2 * ndtr(-value)


def chi_squared(value: jax.Array, degrees: jax.Array | int) -> jax.Array:
    """P(X ≥ x) of a χ²."""
    half = jnp.asarray(degrees, value.dtype) / 2
    return gammaincc(half, value / 2)


def beyond_brownian_motion(value: jax.Array, *_: object, **__: object) -> jax.Array:
    """P(sup |B| ≥ x) of Brownian motion on [0, 1]."""
    k, x = _TERMS, jnp.maximum(value, 0.05)
    odd, signs = 2 * k + 1, (-1.0) ** k
    tail = 4 * jnp.sum(signs * ndtr(-odd * x))
    rest = jnp.sum(signs / odd * jnp.exp(-jnp.square(odd * np.pi / x) / 8))
    return jnp.where(x > 1, tail, 1 - 4 / np.pi * rest).astype(value.dtype)


def beyond_brownian_bridge(value: jax.Array, *_: object, **__: object) -> jax.Array:
    """P(sup |B| ≥ x) of a Brownian bridge on [0, 1], the distribution of Kolmogorov."""
    k, x = _TERMS + 1, jnp.maximum(value, 0.05)
    tail = -2 * jnp.sum((-1.0) ** k * jnp.exp(-2 * jnp.square(k * x)))
    rest = jnp.sum(jnp.exp(-jnp.square((2 * k - 1) * np.pi / x) / 8))
    return jnp.where(x > 1, tail, 1 - np.sqrt(2 * np.pi) / x * rest).astype(value.dtype)


def two_degrees(value: jax.Array, *_: object, **__: object) -> jax.Array:
    """That of a χ² with two degrees of freedom."""
    return jnp.exp(-value / 2)


def has_jumps(predictions: Distribution) -> bool:
    """Whether PIT values are randomised: for counts, and for the ranks among members."""
    plain = bare(predictions)
    return isinstance(plain, Ensemble) or is_of_counts(plain)


def uniform_ranks(
    key: jax.Array, predictions: Distribution, targets: jax.Array
) -> tuple[Uniform, jax.Array]:
    """Randomised PIT values, and what they are drawn from under calibration.

    For ensembles they are uniform if the target and the members are exchangeable.
    """
    values = inner(pit_values)(key, predictions, targets)
    return Uniform(jnp.zeros_like(values), jnp.ones_like(values)), values


def _scores(predictions: Distribution, targets: jax.Array) -> jax.Array:
    """Normal scores of continuous scalar targets, [n]."""
    plain = bare(predictions)
    check_expectations(NormalScore(), plain)
    if has_jumps(plain):
        got = f"{checks.described(plain)}; pit_ks(..., key=key) takes counts and ensembles"
        raise NotImplementedError(f"predictions: expected continuous distributions, got {got}")
    checks.shape("targets", targets, (None,), "[n]: only numbers have a distribution function")
    return jax.vmap(normal_score)(plain, targets).astype(floating_dtype(plain))


@with_textbook_pvalue(beyond_brownian_bridge)
@checked(compiled=True)
def pit_ks(
    predictions: Distribution, targets: Numbers, *, key: jax.Array | None = None
) -> jax.Array:
    """Kolmogorov–Smirnov statistic √n D_n of the PIT values: are they uniform?

        D_n = max_u |#{i: F_i(y_i) ≤ u} / n − u|.

    It detects shifts, has less power against wrong scales, and none against errors that average out
    over the predictions.

    For counts and ensembles F_i(y_i) is the randomised value of `estimators.pit_values`. For
    ensembles this is the rank of the target among the members, as in simulation-based calibration
    of posterior draws. `exact_test` draws the random part itself, and redraws the values from a
    uniform distribution. This is exact if the target is exchangeable with the m members, for every
    m: each of the m + 1 values is equally likely to be the target.

    Textbook p-value: Kolmogorov's limit.

    Args:
        predictions: batch of n distributions of numbers with a method `cdf`, or `Ensemble`.
        targets: [n].
        key: a JAX random key for the ties of counts and the ranks in ensembles; not needed in
            `exact_test`.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: for classes, and for counts and ensembles without a key.

    Cost: a sort of n; n m comparisons for ensembles of m members.

    References: Rosenblatt (1952), Remarks on a multivariate transformation; Kolmogorov (1933);
    Talts et al. (2018), Validating Bayesian inference algorithms with simulation-based calibration.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> predictions = distributions.Uniform(jnp.zeros(4), jnp.ones(4))
    >>> print(hypothesis_tests.pit_ks(predictions, jnp.array([0.25, 0.5, 0.5, 0.5])))
    1.0
    """
    if key is not None and has_jumps(predictions):
        predictions, targets = uniform_ranks(key, predictions, targets)
    scores = _scores(predictions, targets)
    n, u = scores.size, jnp.sort(ndtr(scores))
    after, before, root = jnp.arange(1, n + 1) / n, jnp.arange(n) / n, np.sqrt(n)
    largest = jnp.max(jnp.maximum(after - u, u - before))
    return checks.nan_with((root * largest).astype(u.dtype), scores)


@with_textbook_pvalue(two_degrees)
@checked(compiled=True)
def berkowitz(predictions: Distribution, targets: Numbers) -> jax.Array:
    """Berkowitz's likelihood ratio: do normal scores have the mean 0 and the variance 1?

        LR = n (z̄² + s² − 1 − log s²),   z_i = Φ⁻¹(F_i(y_i)),

    with mean z̄ and variance s² (over n) of the scores. It sees shifts and wrong scales of all
    predictions together. The version for time series, with an autoregressive coefficient, depends
    on the order of the samples and is not computed.

    Textbook p-value: that of a χ² with two degrees of freedom.

    Args:
        predictions: batch of n continuous distributions of numbers with a method `cdf`.
        targets: [n].

    Returns:
        A scalar; infinite if all scores are equal.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: if the distributions are not continuous: classes, counts, ensembles.

    Cost: O(n).

    References: Berkowitz (2001), Testing density forecasts, with applications to risk management.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> predictions = distributions.Normal(jnp.zeros(4), jnp.ones(4))
    >>> value = hypothesis_tests.berkowitz(predictions, jnp.array([0.0, 2.0, 0.0, 2.0]))
    >>> print(value)  # the mean is 1, the variance 1
    4.0
    """
    scores = _scores(predictions, targets)
    mean = jnp.mean(scores)
    excess = jnp.mean(jnp.square(scores - mean)) - 1
    return scores.size * (jnp.square(mean) + excess - jnp.log1p(excess))
