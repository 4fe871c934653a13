"""Exact tests: targets redrawn from the predictions.

If the model is calibrated then, given the predictions, the targets are independent draws
y_i ~ p_i. Data sets with redrawn targets therefore have the distribution of the observed one, and
the rank of the observed statistic among the redrawn ones is uniform, for every number of samples
and every statistic.
"""

import functools
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

    The targets are redrawn from the predictions, which stay fixed, and

        p = (1 + #{b : T_b ≥ T}) / (B + 1),

    which under calibration satisfies P(p ≤ α) ≤ α for every n, every B and every statistic. This
    assumes that, given all predictions, the targets are independent draws from them: not so for
    clusters, overlapping forecast horizons, or data that the model was fitted to.

    The test sees what its statistic sees. Choose one that is large for every error that matters:
    `estimators.skce_biased`, for one, is small for predictions that are too wide, so that they
    are rejected less often than calibrated ones. A statistic whose mean is known, such as
    `estimators.skce_spread`, is made two-sided by its absolute value, and several statistics make
    up for one another's blind spots with `adjust` (the omnibus statistic of `exact_skce_test` does
    so for the SKCE).

    The statistic may depend on hyperparameters that are chosen from the predictions. If they are
    chosen with the targets, choose them within the statistic, so that this happens anew in every
    redraw.

    Several statistics share the redraws: each has its own p-value, and the smallest of them is
    too small too often. `adjust` adds p-values that allow for it, from the largest standardised
    statistic of each redraw: the probability under calibration that any of them is ≤ α is ≤ α.

    Args:
        key: a JAX random key.
        statistic: (predictions, targets) → scalar, array or a pytree of arrays, traceable by JAX;
            large values speak against calibration. For example
            `functools.partial(estimators.skce_biased, kernel)`.
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        num_samples: B, number of redraws; the smallest possible p-value is 1 / (B + 1).
        batch_size: number of redraws that are evaluated at once. Memory is `batch_size` times
            that of one statistic. By default about 16 MB, assuming that the statistic works on
            tiles of pairs.
        adjust: whether to return `adjusted_pvalue` beside `pvalue`.

    Returns:
        The result; `estimate` is the statistic itself. With several statistics, all its
        attributes are such arrays or pytrees.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or an observed statistic is NaN.

    Cost: B evaluations of the statistic, which is traced in every call and compiled once for all
    calls in which it is the same function of arrays of the same shapes.

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
    """The exact test of checked arguments, by (data, predictions, targets) → values.

    What a statistic reads from the data, instead of from outside, is not compiled in as a constant.
    """
    # The statistic need not depend on all of the data.
    observed = _checks.nan_with(statistic(data, predictions, targets), predictions, targets)
    numbers_each = sum(map(jnp.size, jax.tree.leaves(observed)))
    _checks.number_of_draws("num_samples", num_samples, numbers_each=numbers_each)

    def redraw(key: jax.Array, data: PyTree, predictions: Distribution) -> PyTree:
        each = jax.vmap(functools.partial(statistic, data), (None, 0))
        return _redrawn(key, each, predictions, num_samples, batch_size)

    null_samples = compiled_once(redraw, key, data, predictions)
    return simulated_result(
        observed, null_samples, observed, draws="redrawn targets", adjust=adjust
    )


def _redrawn(
    key: jax.Array,
    statistic: Callable[[Any, Any], Any],
    predictions: Distribution,
    num_samples: int,
    batch_size: int,
) -> PyTree:
    """Values of a statistic of batches of targets, (predictions, [b, n, ...]) → [b, ...]."""

    def batch(keys: jax.Array) -> PyTree:
        return statistic(predictions, jax.vmap(draw, (0, None))(keys, predictions))

    return in_batches(key, batch, num_samples, batch_size)


@record
class _ByFeatures:
    """Means of h off and on the diagonal, by matrix products of features."""

    kernel: TensorProduct
    prepared: Any

    def __call__(self, predictions: Distribution, targets: ArrayLike) -> Parts:
        """Sums of k_P(p_i, p_j) ⟨f_i, f_j⟩ for targets [b, n, ...], [b] each."""
        one = functools.partial(features, self.kernel.target, self.prepared)
        values = jax.vmap(jax.vmap(one), in_axes=(None, 0), out_axes=1)(predictions, targets)
        n, size, _ = values.shape
        weights = values.reshape(n, -1)
        forms = pairwise.split_quadratic_forms(
            prediction_kernel, self.kernel.prediction, predictions, weights
        )
        return _as_means(n, *(form.reshape(size, -1).sum(-1) for form in forms))

    def num_bytes(self, predictions: Distribution, targets: ArrayLike) -> int:
        """What one redraw holds: its features, [n, r]."""
        first = jax.tree.map(lambda leaf: leaf[0], (predictions, targets))
        one = jax.eval_shape(functools.partial(features, self.kernel.target, self.prepared), *first)
        return 16 * _checks.leading_size("targets", targets) * one.size


@record
class _ByPairs:
    """The same by pairs; what depends on predictions only, once."""

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
        """What one redraw holds: a tile, per component if they are many."""
        n = _checks.leading_size("targets", targets)
        num_components = sum(leaf.size // n for leaf in jax.tree.leaves(targets))
        wide = num_components if num_components > UNROLLED else 1
        return wide * bytes_of_tile(n)


def _statistic(
    kernel: Kernel, predictions: Distribution, targets: ArrayLike
) -> _ByFeatures | _ByPairs:
    """By features where there are some for this data set."""
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
    """Means of h off and on the diagonal: of the observed targets, then of the redrawn ones."""
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

    `exact_test` with what one pass over the pairs gives: the mean SKCE_u of h off the diagonal,
    the mean D on it, and the biased SKCE_b = (D + (n − 1) SKCE_u) / n. The test holds its level
    for every n, which no asymptotic test does, if the targets are independent given all
    predictions (see `exact_test`). What the statistics see:

    - "omnibus", the default, sees all that follows: the largest of the three standardised
      components of `SKCEComponents`. One p-value, no adjustment needed.
    - "biased", SKCE_b: means that are off, and predictions that are too narrow. It is **blind to
      predictions that are too wide** (underconfident): these make D smaller than in the redraws,
      and are rejected less often than calibrated ones. Where means are off for most predictions
      in the same way it has a little more power than the omnibus statistic.
    - "unbiased", SKCE_u: means that are off in the same way for similar predictions; little else.
    - "spread", D on both sides: predictions too narrow or too wide, also where they do not
      resemble one another, as the tests of a kernel score do.

    The result has all components with p-values of their own, whatever is ranked, and says when
    printed which of them speaks loudest.

    Args:
        key: a JAX random key.
        kernel: kernel on pairs (prediction, target), not chosen with the targets.
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        num_samples: B, number of redraws; the smallest possible p-value is 1 / (B + 1).
        statistic: what is ranked: "omnibus", "biased", "unbiased" or "spread".
        batch_size: number of redraws that are evaluated at once, the bound on the memory. By
            default they hold about 16 MB.

    Returns:
        The result; `statistic` is what was ranked (of "spread": its score), `estimate` the
        unbiased SKCE, `components` an `SKCEComponents`.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes, values or options are wrong, or n < 2.
        NotImplementedError: if the expectations have no closed form.

    Cost: B n² / 2 evaluations of the target kernel and its expectations; k_P and M are evaluated
    once per batch. Where the target kernel has r features (class predictions: r = m; if their
    values are concrete, scalar normal predictions of a range of up to some 40 length scales:
    r ≈ 30, and Poisson predictions of counts r < 128), B n² r / 2 multiplications in matrix
    products instead, which are faster.
    Memory O(batch_size (n r + tile²)).

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
    key = _checks.random_key(key)
    num_samples = _checks.number_of_draws("num_samples", num_samples)
    statistic = _checks.choice("statistic", statistic, STATISTICS)
    kernel, (predictions, targets) = checked_samples(kernel, predictions, targets, minimum=2)
    check_draws(predictions, targets)
    one_pass = _statistic(kernel, predictions, targets)
    if batch_size is None:
        batch_size = default_batch_size(one_pass.num_bytes(predictions, targets))
    batch_size = _checks.size_in_range("batch_size", batch_size, 1)
    unbiased, diagonal = _pool(key, one_pass, predictions, targets, num_samples, batch_size)
    n = _checks.leading_size("targets", targets)
    pool, components = skce_components(unbiased, diagonal, num_targets=n, ranked=statistic)
    return skce_result(pool, components, unbiased[0], draws="redrawn targets")
