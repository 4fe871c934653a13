"""Exact test of calibration around every prediction."""

import dataclasses

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import PyTree
from calibjax.distributions import Bernoulli
from calibjax.estimators.local import LocalProblem, local_problem
from calibjax.estimators.neighbourhoods import Neighbourhood
from calibjax.hypothesis_tests._redraw.pool import rank_among_redraws
from calibjax.hypothesis_tests.result import CalibrationTestResult

_BYTES_PER_SAMPLE = 64  # residuals, weighted sums and errors of one sample in one redraw


def local_calibration_test(
    key: jax.Array,
    neighbourhood: Neighbourhood,
    features: PyTree,
    confidences: PyTree,
    correct: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    num_draws: int = 999,
    batch_size: int | None = None,
) -> CalibrationTestResult:
    """Exact test of local calibration at every sample, and at all of them together.

    The statistic of a sample is its LCE, see `estimators.lce`. The correctness of predictions is
    resampled under the null, correct_i ~ Bernoulli(confidence_i), while features, confidences and
    bins stay fixed: under calibration given the features, the redraws have the distribution of the
    data.

    * `pvalue` is the p-value of each sample on its own: P(p_i ≤ α) ≤ α. Of n calibrated samples,
      about n α have p_i ≤ α.
    * `adjusted_pvalue` controls the family-wise error rate: P(any adjusted p_i ≤ α) ≤ α. Its
      minimum is the p-value of the hypothesis that the model is locally calibrated everywhere.

    Both hold for every n, every kernel and every number of redraws. The kernel must not be chosen
    with the same labels.

    Args:
        key: a JAX random key.
        neighbourhood: kernel on features and binning of confidences, see `estimators.lce`.
        features: features of the samples, [n, d], or any pytree with leading axis n.
        confidences: confidences in [0, 1], [n].
        correct: whether the predicted class was observed, 0 or 1, [n].
        weights: w ≥ 0 of the samples, [n], as in `estimators.local_errors`, which all redraws keep.
            At samples of weight 0 nothing is tested: their statistic is 0.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).
        batch_size: number of redraws that are evaluated at once, for which weights are computed
            once; by default as many as fit in about 16 MB.

    Returns:
        The result. `statistic` is the LCE, `estimate` the signed error, both [n] like the p-values;
        [G, n] for G length scales, with an adjustment for all of them.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: the weights of `lce` once per batch, and one multiplication for each redraw and each
    pair within a bin; linear time for a single feature, see `estimators.local_errors`. Memory
    O(B G n) for the statistics under the null.

    References: none of the four papers has it; see `exact_test`, and for the adjustment Westfall
    and Young (1993). Local errors are those of L21 eq. (4).

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import hypothesis_tests
    >>> from calibjax.estimators import Neighbourhood
    >>> features = jnp.repeat(jnp.array([[0.0], [9.0]]), 10, axis=0)
    >>> confidences = jnp.full(20, 0.5)
    >>> correct = jnp.array([0, 1] * 5 + [0] * 10)  # wrong wherever the feature is 9
    >>> test = hypothesis_tests.local_calibration_test(
    ...     jax.random.key(0), Neighbourhood.laplacian(0.1, 5), features, confidences, correct
    ... )
    >>> print(test.adjusted_pvalue[0] > 0.5, test.adjusted_pvalue[-1] < 0.05)
    True True
    """
    problem = local_problem(neighbourhood, features, confidences, correct, weights=weights)
    # If a traced value is NaN, nothing is known about any sample.
    _, confidences = checks.nan_with(problem.confidences, problem.confidences, problem.correct)
    problem = problem._replace(confidences=(confidences, confidences))
    result = rank_among_redraws(
        key,
        _statistic,
        problem,
        Bernoulli(confidences),
        problem.correct,
        num_draws=num_draws,
        batch_size=batch_size,
        num_bytes=_BYTES_PER_SAMPLE * confidences.size,
        adjust=True,
    )
    return dataclasses.replace(result, estimate=problem.errors()[0])


def _statistic(problem: LocalProblem, predictions: Bernoulli, targets: jax.Array) -> jax.Array:
    """LCE of each sample, with the confidences of the problem."""
    del predictions
    errors = jnp.abs(problem._replace(correct=targets).errors()[0])
    return errors if problem.weights is None else jnp.where(problem.weights == 0, 0, errors)
