"""Exact tests: targets redrawn from the predictions.

If the model is calibrated then, given the predictions, the targets are independent draws
y_i ~ p_i. Data sets with redrawn targets therefore have the distribution of the observed one, and
the rank of the observed statistic among the redrawn ones is uniform, for every number of samples
and every statistic.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax import _checks, pairwise
from calibjax._arithmetic import UNROLLED
from calibjax._batches import default_batch_size, in_batches
from calibjax._compilation import compiled_once
from calibjax._pytree import PyTree, record
from calibjax.distributions.base import Distribution
from calibjax.distributions.features import bare
from calibjax.distributions.samples import Samples
from calibjax.distributions.sampling import check_draws, draw
from calibjax.estimators.kernel import checked_samples, sample_pair
from calibjax.hypothesis_tests.components import STATISTICS, skce_components
from calibjax.hypothesis_tests.result import CalibrationTestResult, simulated_result, skce_result
from calibjax.hypothesis_tests.simulation import bytes_of_tile, checked_statistic
from calibjax.kernels import Kernel, TensorProduct
from calibjax.kernels.base import prediction_kernel
from calibjax.kernels.expectations import features, prepare_features

Parts = tuple[jax.Array, jax.Array]  # means of h off and on the diagonal


def exact_test(
    key: jax.Array,
    statistic: Callable[[Any, Any], Any],
    predictions: Distribution,
    targets: ArrayLike,
    *,
    num_samples: int = 1000,
    batch_size: int | None = None,
    adjust: bool = False,
) -> CalibrationTestResult:
    """Exact test of calibration with any statistic, or several at once.

    The targets are redrawn from the predictions, which stay fixed, and the p-value

        p = (1 + #{b : T_b ≥ T}) / (B + 1)

    satisfies P(p ≤ α) ≤ α under calibration for every n, every B and every statistic. This assumes
    that, given all predictions, the targets are independent draws from them, which does not hold
    for clusters (see `cluster_skce_test`), overlapping forecast horizons, or data that the model
    was fitted to.

    The statistic determines which errors the test detects. Choose one that is large for every error
    that matters: `estimators.skce_biased`, for example, is small for predictions that are too wide,
    so that they are rejected less often than calibrated ones. A statistic with known mean, such as
    `estimators.skce_spread`, becomes two-sided by taking its absolute value, and with `adjust`
    several statistics compensate for each other's blind spots (as the omnibus statistic of
    `exact_skce_test` does for the SKCE).

    The statistic may depend on hyperparameters that are chosen from the predictions. If they are
    chosen with the targets, choose them within the statistic, so that the choice is repeated in
    every redraw.

    Several statistics share the redraws. Each has its own p-value, but their minimum is not a valid
    p-value. `adjust` adds p-values that account for multiple testing, from the largest standardised
    statistic of each redraw: under calibration the probability that any of them is ≤ α is ≤ α.

    Args:
        key: a JAX random key.
        statistic: (predictions, targets) → scalar, array or a pytree of arrays, traceable by JAX;
            large values speak against calibration. For example
            `functools.partial(estimators.skce_biased, kernel)`.
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        num_samples: B, number of redraws; the smallest possible p-value is 1 / (B + 1).
        batch_size: number of redraws that are evaluated at once. Memory is `batch_size` times
            that of one statistic; by default about 16 MB, assuming that the statistic works on
            tiles of pairs.
        adjust: whether to return `adjusted_pvalue` in addition to `pvalue`.

    Returns:
        The result; `estimate` is the statistic itself. With several statistics, all attributes are
        such arrays or pytrees.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or an observed statistic is NaN.

    Cost: B evaluations of the statistic, which is traced in every call but compiled only once for
    the same function and shapes.

    References: none of the four papers has it; the general Monte Carlo test is due to Barnard
    (1963), the p-value to Davison and Hinkley (1997), eq. (4.11), the adjustment to Westfall and
    Young (1993).

    >>> import functools, jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> def worst_z_score(predictions, targets):
    ...     return jnp.max(jnp.abs(targets - predictions.loc) / predictions.scale)
    >>> predictions = distributions.Normal(jnp.zeros(3), jnp.ones(3))
    >>> test = hypothesis_tests.exact_test(
    ...     jax.random.key(0), worst_z_score, predictions, jnp.array([0.1, -0.5, 4.5])
    ... )
    >>> print(f"{test.pvalue:.3f}")
    0.001
    """
    key = _checks.random_key(key)
    value = checked_statistic(statistic)
    adjust = _checks.truth_value("adjust", adjust)
    num_samples = _checks.number_of_draws("num_samples", num_samples)
    predictions, targets = _checks.predictions_and_targets(predictions, targets)
    check_draws(predictions, targets)
    if batch_size is None:
        batch_size = default_batch_size(bytes_of_tile(_checks.leading_size("targets", targets)))
    batch_size = _checks.size_in_range("batch_size", batch_size, 1)

    return rank_among_redraws(
        key,
        lambda _, predictions, targets: value(predictions, targets),
        (),
        predictions,
        targets,
        num_samples=num_samples,
        batch_size=batch_size,
        adjust=adjust,
    )


def rank_among_redraws(
    key: jax.Array,
    statistic: Callable[[Any, Any, Any], Any],
    data: PyTree,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    num_samples: int,
    batch_size: int,
    adjust: bool,
) -> CalibrationTestResult:
    """The exact test of checked arguments with a statistic (data, predictions, targets) → values.

    Passing `data` explicitly, not through a closure, keeps it from being compiled as a constant.
    """
    observed, null_samples = observed_and_redrawn(
        key, statistic, data, predictions, targets, num_samples=num_samples, batch_size=batch_size
    )
    return simulated_result(
        observed, null_samples, observed, draws="redrawn targets", adjust=adjust
    )


def observed_and_redrawn(
    key: jax.Array,
    statistic: Callable[[Any, Any, Any], Any],
    data: PyTree,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    num_samples: int,
    batch_size: int,
) -> tuple[PyTree, PyTree]:
    """Values of a statistic as in `rank_among_redraws`, and those of redrawn targets, [B, ...]."""
    # The statistic need not depend on all of the data.
    observed = _checks.nan_with(statistic(data, predictions, targets), predictions, targets)
    numbers_each = sum(map(jnp.size, jax.tree.leaves(observed)))
    _checks.number_of_draws("num_samples", num_samples, numbers_each=numbers_each)

    def redraw(key: jax.Array, data: PyTree, predictions: Distribution) -> PyTree:
        each = jax.vmap(functools.partial(statistic, data), (None, 0))
        return _redrawn(key, each, predictions, num_samples, batch_size)

    return observed, compiled_once(redraw, key, data, predictions)


def _redrawn(
    key: jax.Array,
    statistic: Callable[[Any, Any], Any],
    predictions: Distribution,
    num_samples: int,
    batch_size: int,
) -> PyTree:
    """Redrawn values of a statistic of batches, (predictions, [b, n, ...]) → [b, ...]."""

    def batch(keys: jax.Array) -> PyTree:
        return statistic(predictions, jax.vmap(draw, (0, None))(keys, predictions))

    return in_batches(key, batch, num_samples, batch_size)


@record
class _ByFeatures:
    """Means of h off and on the diagonal, by matrix products of features."""

    kernel: TensorProduct
    prepared: Any

    def __call__(self, predictions: Distribution, targets: ArrayLike) -> Parts:
        """Means of k_P(p_i, p_j) ⟨f_i, f_j⟩ for targets [b, n, ...], [b] each."""
        one = functools.partial(features, self.kernel.target, self.prepared)
        values = jax.vmap(jax.vmap(one), in_axes=(None, 0), out_axes=1)(predictions, targets)
        n, size, _ = values.shape
        weights = values.reshape(n, -1)
        forms = pairwise.split_quadratic_forms(
            prediction_kernel, self.kernel.prediction, predictions, weights
        )
        return _as_means(n, *(form.reshape(size, -1).sum(-1) for form in forms))

    def num_bytes(self, predictions: Distribution, targets: ArrayLike) -> int:
        """Memory of one redraw: its features, [n, r]."""
        first = jax.tree.map(lambda leaf: leaf[0], (predictions, targets))
        one = jax.eval_shape(functools.partial(features, self.kernel.target, self.prepared), *first)
        return 16 * _checks.leading_size("targets", targets) * one.size


@record
class _ByPairs:
    """The same means by pairs; terms that depend on predictions only are computed once."""

    kernel: Kernel

    def __call__(self, predictions: Distribution, targets: ArrayLike) -> Parts:
        """Means for targets [b, n, ...], [b] each."""
        n = jax.tree.leaves(targets)[0].shape[1]

        def means(y: ArrayLike) -> Parts:
            samples = predictions, y
            first = jax.tree.map(lambda leaf: leaf[0], samples)
            dtype = jax.eval_shape(sample_pair, self.kernel, first, first).dtype
            ones = jnp.ones((n, 1), dtype)
            parts = pairwise.split_quadratic_forms(sample_pair, self.kernel, samples, ones)
            return _as_means(n, *(part[0] for part in parts))

        return jax.vmap(means)(targets)

    def num_bytes(self, predictions: Distribution, targets: ArrayLike) -> int:
        """Memory of one redraw: a tile, or one per component of the targets if these are many."""
        n = _checks.leading_size("targets", targets)
        num_components = sum(leaf.size // n for leaf in jax.tree.leaves(targets))
        wide = num_components if num_components > UNROLLED else 1
        return wide * bytes_of_tile(n)


def _statistic(
    kernel: Kernel, predictions: Distribution, targets: ArrayLike
) -> _ByFeatures | _ByPairs:
    """Uses features if this data set has any, otherwise pairs."""
    if isinstance(kernel, TensorProduct):
        prepared = prepare_features(kernel.target, predictions, targets)
        if prepared is not None:
            return _ByFeatures(kernel, prepared)
    return _ByPairs(kernel)


def _as_means(n: int, off_diagonal: jax.Array, diagonal: jax.Array) -> Parts:
    return off_diagonal / (n * (n - 1)), diagonal / n


@functools.partial(jax.jit, static_argnums=(4, 5))
def _pool(
    key: jax.Array,
    statistic: _ByFeatures | _ByPairs,
    predictions: Distribution,
    targets: ArrayLike,
    num_samples: int,
    batch_size: int,
) -> Parts:
    """Means of h off and on the diagonal for the observed targets, then for the redrawn ones."""
    observed = statistic(predictions, jax.tree.map(lambda y: y[None], targets))
    redrawn = _redrawn(key, statistic, predictions, num_samples, batch_size)
    return jax.tree.map(lambda *values: jnp.concatenate(values), observed, redrawn)


def exact_skce_test(
    key: jax.Array,
    kernel: Kernel,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    num_samples: int = 1000,
    statistic: str = "omnibus",
    batch_size: int | None = None,
) -> CalibrationTestResult:
    """Exact test of calibration with the squared kernel calibration error.

    This is `exact_test` with statistics that one pass over the pairs gives: the mean SKCE_u of h
    off the diagonal, the mean D on it, and the biased SKCE_b = (D + (n − 1) SKCE_u) / n. Unlike
    asymptotic tests, it holds its level for every n, if the targets are independent given all
    predictions (see `exact_test`). The statistics detect different errors:

    - "omnibus", the default: all errors below. It is the largest of the three standardised
      components of `SKCEComponents`, with a single p-value that needs no adjustment.
    - "biased", SKCE_b: wrong means, and predictions that are too narrow. It is **blind to
      predictions that are too wide** (underconfident): these make D smaller than in the redraws,
      and are rejected less often than calibrated ones. If the means of most predictions are wrong
      in the same way, it has slightly more power than the omnibus statistic.
    - "unbiased", SKCE_u: means that are wrong in the same way for similar predictions; little else.
    - "spread", D, two-sided: predictions that are too narrow or too wide, even if no two of them
      are similar, as in tests of a kernel score.

    The result contains all components with their own p-values, whichever statistic is ranked; when
    printed it marks the one with the largest score.

    Args:
        key: a JAX random key.
        kernel: kernel on pairs (prediction, target), not chosen with the targets.
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        num_samples: B, number of redraws; the smallest possible p-value is 1 / (B + 1).
        statistic: the statistic to rank: "omnibus", "biased", "unbiased" or "spread".
        batch_size: number of redraws that are evaluated at once, which bounds the memory; by
            default as many as fit in about 16 MB.

    Returns:
        The result; `statistic` is the ranked statistic (for "spread" the absolute score),
        `estimate` the unbiased SKCE, `components` an `SKCEComponents`.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes, values or options are wrong, or n < 2.
        NotImplementedError: if the expectations have no closed form.

    Cost: B n² / 2 evaluations of the target kernel and its expectations; k_P and M are evaluated
    once per batch. If the target kernel has r features, B n² r / 2 multiplications in matrix
    products instead, which are faster. It has features for class predictions (r = m) and, if the
    values are concrete, for scalar normal predictions with a range of up to about 40 length scales
    (r ≈ 30) and Poisson predictions of small counts (r < 128). Memory O(batch_size (n r + tile²)).

    References: see `exact_test`; W21 Lemma 1 and 2 for the statistics, `SKCEComponents` for their
    combination, which none of the papers has.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    ... )
    >>> predictions = distributions.Normal(jnp.zeros(64), jnp.ones(64))
    >>> targets = 0.5 * jax.random.normal(jax.random.key(0), (64,))  # half the predicted spread
    >>> test = hypothesis_tests.exact_skce_test(jax.random.key(1), kernel, predictions, targets)
    >>> print(test)
    CalibrationTestResult(pvalue=0.000999 ± 0.001, statistic=6.09, estimate=0.0623, 1000 redrawn ...
      biased    distance from calibration                      p = 0.002    score +4.5
      unbiased  off in the same way for similar predictions    p = 0.002    score +4.6
      spread    targets scatter less than predicted: too wide  p = 0.001    score -6.1  <- loudest
    """
    kernel, (predictions, targets) = checked_samples(kernel, predictions, targets, minimum=2)
    if isinstance(bare(predictions), Samples):
        warnings.warn(
            "predictions: targets are redrawn from the draws, which rejects calibrated ensembles "
            "of few members; ensemble_skce_test is exact for every number of members",
            UserWarning,
            stacklevel=2,
        )
    return ranked_skce(
        key,
        kernel,
        predictions,
        targets,
        num_samples=num_samples,
        statistic=statistic,
        batch_size=batch_size,
    )


def ranked_skce(
    key: jax.Array,
    kernel: Kernel,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    num_samples: int,
    statistic: str,
    batch_size: int | None,
) -> CalibrationTestResult:
    """`exact_skce_test` of a checked kernel and checked data."""
    key = _checks.random_key(key)
    num_samples = _checks.number_of_draws("num_samples", num_samples)
    statistic = _checks.choice("statistic", statistic, STATISTICS)
    check_draws(predictions, targets)
    one_pass = _statistic(kernel, predictions, targets)
    if batch_size is None:
        batch_size = default_batch_size(one_pass.num_bytes(predictions, targets))
    batch_size = _checks.size_in_range("batch_size", batch_size, 1)
    unbiased, diagonal = _pool(key, one_pass, predictions, targets, num_samples, batch_size)
    n = _checks.leading_size("targets", targets)
    pool, components = skce_components(unbiased, diagonal, num_targets=n, ranked=statistic)
    return skce_result(pool, components, unbiased[0], draws="redrawn targets")
