"""Statistics of the textbooks for `exact_test`: of the normal scores of continuous targets."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax.distributions import Ensemble
from calibjax.distributions.base import Distribution
from calibjax.distributions.features import bare
from calibjax.hypothesis_tests.textbook import (
    beyond_brownian_bridge,
    two_degrees,
    with_textbook_pvalue,
)
from calibjax.kernels.expectations import check_expectations
from calibjax.kernels.normal_scores import NormalScore, is_of_counts, normal_score


def _checked_scores(predictions: Distribution, targets: ArrayLike) -> jax.Array:
    """Normal scores of continuous scalar targets, [n]."""
    predictions, targets = checks.predictions_and_targets(predictions, targets)
    plain = bare(predictions)
    check_expectations(NormalScore(), plain)
    if isinstance(plain, Ensemble) or is_of_counts(plain):
        raise NotImplementedError(
            f"predictions: expected continuous distributions, got {checks.described(plain)}; "
            "aggregated_skce_test has kernels on normal scores of counts and ensembles"
        )
    checks.shape("targets", targets, (None,), "[n]: only numbers have a distribution function")
    return _scores(bare(predictions), targets)


@jax.jit
def _scores(predictions: Distribution, targets: jax.Array) -> jax.Array:
    return jax.vmap(normal_score)(predictions, targets).astype(floating_dtype(predictions))


@with_textbook_pvalue(beyond_brownian_bridge)
def pit_ks(predictions: Distribution, targets: ArrayLike) -> jax.Array:
    """Kolmogorov–Smirnov statistic √n D_n of the PIT values: are they uniform?

        D_n = max_u |#{i: F_i(y_i) ≤ u} / n − u|.

    It sees shifts, less of wrong scales, and nothing that averages out over the predictions.

    Textbook p-value: Kolmogorov's limit.

    Args:
        predictions: batch of n continuous distributions of numbers with a method `cdf`.
        targets: [n].

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: if the distributions are not continuous: classes, counts, ensembles.

    Cost: a sort of n.

    References: Rosenblatt (1952), Remarks on a multivariate transformation; Kolmogorov (1933).

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> predictions = distributions.Uniform(jnp.zeros(4), jnp.ones(4))
    >>> print(hypothesis_tests.pit_ks(predictions, jnp.array([0.25, 0.5, 0.5, 0.5])))
    1.0
    """
    return _kolmogorov_smirnov(_checked_scores(predictions, targets))


@jax.jit
def _kolmogorov_smirnov(scores: jax.Array) -> jax.Array:
    n, u = scores.size, jnp.sort(ndtr(scores))
    after, before, root = jnp.arange(1, n + 1) / n, jnp.arange(n) / n, np.sqrt(n)
    largest = jnp.max(jnp.maximum(after - u, u - before))
    return checks.nan_with((root * largest).astype(u.dtype), scores)


@with_textbook_pvalue(two_degrees)
def berkowitz(predictions: Distribution, targets: ArrayLike) -> jax.Array:
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
    return _likelihood_ratio(_checked_scores(predictions, targets))


@jax.jit
def _likelihood_ratio(scores: jax.Array) -> jax.Array:
    mean = jnp.mean(scores)
    excess = jnp.mean(jnp.square(scores - mean)) - 1
    return scores.size * (jnp.square(mean) + excess - jnp.log1p(excess))
