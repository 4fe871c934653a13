"""Local recalibration (LoRe): the accuracy of nearby calibration samples."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import ratio
from calibjax._core.pytree import PyTree, record
from calibjax.estimators.neighbourhoods import Neighbourhood, checked_neighbourhood
from calibjax.kernels.smoothing import smoothed_means
from calibjax.recalibration.base import Recalibrator, warn_about_kept


@record
class LocalAccuracies:
    """What `LocalRecalibration` learns: the calibration samples themselves.

    Attributes:
        neighbourhood: kernel on features and binning of confidences.
        features: features of the samples, [n, d] or a pytree with leading axis n.
        confidences: their confidences, [n].
        correct: whether the predicted class was observed, 0 or 1, [n].
        weights: of the samples, [n], or None.
    """

    neighbourhood: Neighbourhood
    features: Any
    confidences: jax.Array
    correct: jax.Array
    weights: jax.Array | None = None

    def counts(self, confidences: ArrayLike) -> jax.Array:
        """Number of calibration samples in the bins of other confidences, [n'] for [n'].

        Those with weight 0 do not count.
        """
        confidences, params = checks.confidence_array(confidences), _checked(self)
        weights = params.weights
        points, bins = params.neighbourhood.groups(params.confidences, confidences, weights)
        counts = jnp.ones_like(bins) if weights is None else (weights > 0).astype(bins.dtype)
        return jax.ops.segment_sum(counts, bins, bins.size + points.size)[points]


def _checked(params: LocalAccuracies) -> LocalAccuracies:
    """Params with checked samples."""
    checks.fitted("params", params, LocalAccuracies)
    neighbourhood = _one_neighbourhood(params.neighbourhood)
    names = "params.confidences", "params.correct"
    data = params.confidences, params.correct
    confidences, correct = checks.confidences_and_correct(*data, names=names)
    features = checks.features("params.features", params.features, confidences.size)
    weights = checks.sample_weights(params.weights, confidences, name="params.weights")
    return LocalAccuracies(neighbourhood, features, confidences, correct, weights)


def _one_neighbourhood(neighbourhood: Neighbourhood) -> Neighbourhood:
    """A checked neighbourhood with one length scale."""
    neighbourhood = checked_neighbourhood(neighbourhood)
    scales = getattr(neighbourhood.kernel, "length_scale", 0.0)
    checks.shape("kernel.length_scale", scales, (), "() (a scalar)")
    return neighbourhood


@record
class LocalRecalibration(Recalibrator):
    """Local recalibration (LoRe): kernel-weighted accuracy of the samples in the same bin.

        confidence'(x) = Σ_i k(φ(x), φ_i) correct_i / Σ_i k(φ(x), φ_i),

    sums over the calibration samples whose confidence is in the same bin as that of x; with weights
    k(φ(x), φ_i) is multiplied by w_i. A wide kernel gives `HistogramBinning`, a narrow one the
    correctness of the nearest sample, 0 or 1.

    The bins are determined by the calibration samples, also for new confidences. Confidences in
    bins without calibration samples are kept, with a `UserWarning`, which compiled code cannot
    give: check `params.counts(confidences)`.

    `fit(confidences, correct, features)` returns `LocalAccuracies`,
    `apply(params, confidences, features)` confidences [n]. The confidences are an array [n] or a
    batch of n `Bernoulli`s, `correct` is 0 or 1, [n], and features are [n, d], or any pytree with
    leading axis n. `apply` can be differentiated, also with respect to the kernel, which is part of
    the params.

    Attributes:
        neighbourhood: kernel on features, with one length scale, and binning of confidences;
            `Neighbourhood.laplacian(0.2, 15)` in L21 for t-SNE features.

    Raises:
        TypeError: by the methods if an argument is of the wrong kind.
        ValueError: by the methods if shapes or values are wrong.

    Cost: in `apply` one distance and one exponential for each pair of a point and a calibration
    sample in the same bin, O(n + n' + tile²) memory. `fit` only stores the samples.

    References: L21 eq. (6), App. A.

    >>> import jax.numpy as jnp
    >>> from calibjax.estimators import Neighbourhood
    >>> method = LocalRecalibration(Neighbourhood.laplacian(0.1, 5))
    >>> features = jnp.array([[0.0], [0.0], [9.0]])
    >>> params = method.fit(jnp.array([0.7, 0.7, 0.7]), jnp.array([1, 0, 1]), features)
    >>> print(method.apply(params, jnp.array([0.75, 0.75]), jnp.array([[0.0], [9.0]])))
    [0.5 1. ]
    """

    neighbourhood: Neighbourhood

    def fit(
        self,
        confidences: ArrayLike,
        correct: ArrayLike,
        features: PyTree,
        weights: ArrayLike | None = None,
    ) -> LocalAccuracies:
        """The calibration samples."""
        neighbourhood = _one_neighbourhood(self.neighbourhood)
        rows = {"confidences": confidences, "correct": correct, "features": features}
        checks.same_rows(**rows, weights=weights)
        confidences, correct, weights = checks.weighted_confidences(confidences, correct, weights)
        features = checks.features("features", features, confidences.size)
        neighbourhood.groups(confidences, None, weights)  # refuses invalid binnings
        one = jax.tree.map(lambda leaf: leaf[0], features)
        jax.eval_shape(neighbourhood.kernel, one, one)  # refuses kernels on other points
        # Traced numbers that are not probabilities belong to no bin.
        correct = jnp.where(jnp.any(jnp.isnan(confidences)), jnp.nan, correct)
        return LocalAccuracies(neighbourhood, features, confidences, correct, weights)

    def apply(self, params: LocalAccuracies, confidences: ArrayLike, features: PyTree) -> jax.Array:
        """Local accuracies at other points, [n]."""
        params = _checked(params)
        checks.same_rows(confidences=confidences, features=features)
        confidences = checks.confidence_array(confidences)
        features = checks.features("features", features, confidences.size)
        checks.same_kind("features", features, "the calibration features", params.features)
        near, values, weights = params.neighbourhood, params.correct[:, None], params.weights
        points, samples = near.groups(params.confidences, confidences, weights)
        if weights is not None:
            samples = jnp.where(weights == 0, -1, samples)  # in no group
            values = jnp.concatenate([weights[:, None] * values, weights[:, None]], 1)
        means, totals = smoothed_means(
            near.kernel, features, params.features, values, (points, samples)
        )
        checks.smoothing_weights(totals)
        is_kept = totals[0] == 0
        if weights is not None:
            means = ratio(means[..., :1], means[..., 1:])
        if checks.is_concrete(is_kept):
            warn_about_kept("LocalRecalibration", np.asarray(is_kept))
        accuracies = jnp.clip(means[0, :, 0], 0, 1).astype(confidences.dtype)  # rounding
        return jnp.where(is_kept | jnp.isnan(confidences), confidences, accuracies)
