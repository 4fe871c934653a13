"""Bias and spread of predicted numbers as smooth functions of the prediction."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.pytree import parameter, record
from calibjax.distances import Euclidean
from calibjax.distributions import DiagNormal, Ensemble, MvNormal, Normal
from calibjax.distributions.base import Distribution
from calibjax.distributions.constraints import positive
from calibjax.distributions.features import bare, like
from calibjax.kernels import Kernel, SquaredExponential
from calibjax.kernels.bandwidth import median_of_distances
from calibjax.kernels.base import prediction_kernel
from calibjax.recalibration.affine import (
    AffineMap,
    moved,
    normal_scores,
    of_a_family,
    residuals,
    shrunk,
    with_scores,
)
from calibjax.recalibration.base import Recalibrator

_NORMAL = Normal | DiagNormal | MvNormal  # whose residuals are normal scores


@record
class LocalScores:
    """What `KernelRecalibration` learns: the samples themselves.

    Attributes:
        kernel: on predictions.
        predictions: batch of n distributions.
        scores: their residuals or normal scores z, [n] or [n, d].
        weights: of the samples, [n].
    """

    kernel: Kernel
    predictions: Distribution
    scores: jax.Array
    weights: jax.Array


@record
class KernelRecalibration(Recalibrator):
    """Kernel recalibration: bias and spread as smooth functions of the prediction.

        a(p) = S₁ / (W + κ),   b(p)² = (Σ_i w_i (z_i − a(p))² + κ) / (W + κ),
        w_i = k(p, p_i),   W = Σ_i w_i,   S₁ = Σ_i w_i z_i,

    kernel regression of the residuals z_i of similar predictions, shrunk to no correction as if
    there were κ more of them with mean 0 and variance 1. z are the normal scores Φ⁻¹(F(y)), of
    vectors L⁻¹ (y − μ), which have the mean a(p) and the standard deviation b(p) after the
    correction: `Normal`, `DiagNormal` and `MvNormal` predictions are shifted and scaled, others are
    `Recalibrated`. Weights of the samples are factors of the w_i, numbers of copies beside κ: their
    scale matters. The default length scale counts all predictions alike.

    `fit` stores the samples, as `LocalScores`; `apply(params, predictions)` the predictions.

    Attributes:
        kernel: k on predictions; None for a squared exponential with a quarter of the median
            Euclidean distance of their parameters as length scale.
        prior: κ, a number of samples, positive.

    Raises:
        TypeError: by the methods if the predictions are neither continuous numbers with `cdf`,
            `icdf` and `log_prob`, nor normal vectors.
        ValueError: by the methods if shapes or values are wrong.

    Cost: the kernel of every pair of a prediction and a sample in `apply`, O(n + n' + tile²)
    memory; that of the median heuristic in `fit`.

    References: Nadaraya (1964), On estimating regression. None of the four papers has it.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> loc = jnp.repeat(jnp.array([0.0, 9.0]), 50)
    >>> targets = loc + jnp.repeat(jnp.array([1.0, -1.0]), 50)
    >>> method = KernelRecalibration(SquaredExponential(1.0))
    >>> params = method.fit(Normal(loc, jnp.ones(100)), targets)
    >>> corrected = method.apply(params, Normal(jnp.array([0.0, 9.0]), jnp.ones(2)))
    >>> print([f"{loc:.2f}" for loc in corrected.loc])
    ['0.91', '8.09']
    """

    kernel: Kernel | None = None
    prior: jax.Array | float = parameter(positive, default=5.0)

    def fit(
        self, predictions: Distribution, targets: ArrayLike, weights: ArrayLike | None = None
    ) -> LocalScores:
        """The samples with their residuals."""
        predictions, targets, weights = checks.weighted_samples(
            predictions, targets, weights, as_copies=True
        )
        plain = _checked(predictions)
        scores = _scores(plain, targets)
        weights = jnp.ones(len(scores), scores.dtype) if weights is None else weights
        return LocalScores(self._kernel(predictions), predictions, scores, weights)

    def apply(self, params: LocalScores, predictions: Distribution) -> Distribution:
        """All predictions, shifted and scaled as similar samples suggest."""
        predictions = checks.batch(predictions)
        plain = _checked(predictions)
        checks.fitted("params", params, LocalScores)
        checks.same_kind("predictions", predictions, "those of fit", params.predictions)
        prior = checks.positive_number("prior", self.prior, params.scores.dtype)
        correct = moved if isinstance(plain, _NORMAL) else with_scores
        return like(predictions, correct(_local(params, predictions, prior), plain))

    def identity(self, predictions: Distribution) -> LocalScores:
        """Samples that do not count."""
        predictions = checks.batch(predictions)
        plain = _checked(predictions)
        shape = jax.eval_shape(jax.vmap(lambda p: p.mean()), plain).shape
        zeros = jnp.zeros(shape, floating_dtype(predictions))
        return LocalScores(
            self._kernel(predictions), predictions, zeros, jnp.zeros_like(zeros, shape=shape[:1])
        )

    def _kernel(self, predictions: Distribution) -> Kernel:
        if self.kernel is not None:
            return checks.kernel_values(self.kernel)
        median, *_ = median_of_distances(Euclidean(), bare(predictions))
        # NaN if all predictions are the same, for which any length scale will do.
        return SquaredExponential(jnp.where(jnp.isnan(median), 1, median) / 4)


def _checked(predictions: Distribution) -> Any:
    plain = of_a_family(predictions)
    if isinstance(plain, Ensemble):
        raise TypeError("predictions: expected distributions with scores, got ensembles")
    return plain


@jax.jit
def _scores(predictions: Distribution, targets: jax.Array) -> jax.Array:
    find = residuals if isinstance(predictions, _NORMAL) else normal_scores
    return find(predictions, targets)


@jax.jit
def _local(params: LocalScores, predictions: Distribution, prior: jax.Array) -> AffineMap:
    """Shift and scale of each prediction, [n] or [n, d]."""
    z = params.scores.reshape(len(params.scores), -1)
    columns = jnp.concatenate([jnp.ones_like(z[:, :1]), z, jnp.square(z)], 1)
    sums = operators.weighted_sums(
        prediction_kernel,
        params.kernel,
        bare(predictions),
        bare(params.predictions),
        columns * params.weights[:, None],
    )
    total, first, second = jnp.split(sums, [1, 1 + z.shape[1]], 1)
    shape = (len(sums), *params.scores.shape[1:])
    return jax.tree.map(lambda x: x.reshape(shape), shrunk(total, first, second, prior))
