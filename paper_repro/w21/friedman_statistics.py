"""The statistics of W21 App. A.3, evaluated for many predictions of the same targets.

All SKCE statistics of a data set come from one matrix of the calibration kernel h, whose pairs are
evaluated once. All bootstrap tests on one data set share their resamples, which is valid for each
of them; the p-values of consecutive iterations then do not jitter against each other.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax import scores
from calibjax.distances import MixtureWasserstein, Wasserstein
from calibjax.distributions import Mixture, Normal
from calibjax.estimators import calibration_kernel
from calibjax.hypothesis_tests import exact_test
from calibjax.hypothesis_tests.asymptotic import centered_diagonal, multinomial_counts
from calibjax.hypothesis_tests.components import simulated_pvalue
from calibjax.kernels import (
    Exponential,
    SquaredExponential,
    TensorProduct,
    gram_matrix,
)
from calibjax.kernels.expectations import centered_kernel

SCORES: dict[str, Callable[[Any, Any], jax.Array]] = {
    "NLL": scores.negative_log_likelihood,
    "MSE": scores.mean_squared_error,
    "pinball": scores.pinball_loss,
}
CALIBRATION = ("SKCE (unbiased)", "SKCE (biased)", "p-value")
STATISTICS = (*SCORES, *CALIBRATION)

PairFunction = Callable[[Any, Any], jax.Array]


def kernel_of(predictions: Any) -> TensorProduct:
    """exp(−W₂) exp(−(y − y')² / 2) for normal predictions, with MW₂ for their mixtures."""
    is_mixture = isinstance(predictions, Mixture)
    distance = MixtureWasserstein() if is_mixture else Wasserstein()
    return TensorProduct(Exponential(1.0, distance), SquaredExponential(1.0))


def network_predictions(means: jax.Array, sigmas: jax.Array) -> Normal:
    """Predictions of single networks from means [..., n] and standard deviations [...]."""
    return Normal(means, jnp.broadcast_to(sigmas[..., None], means.shape))


def ensemble_predictions(means: jax.Array, sigmas: jax.Array) -> Mixture:
    """Mixtures with equal weights from means [..., networks, n] and deviations [..., networks]."""
    components = network_predictions(means, sigmas)
    return Mixture(None, jax.tree.map(lambda leaf: jnp.swapaxes(leaf, -1, -2), components))


def symmetric_matrix(function: PairFunction, points: Any) -> jax.Array:
    """function(x_i, x_j) of n points, evaluated for i ≥ j only, [n, n]."""
    n = jax.tree.leaves(points)[0].shape[0]
    rows, columns = jnp.tril_indices(n)
    x, y = (jax.tree.map(lambda leaf, i=i: leaf[i], points) for i in (rows, columns))
    values = jax.vmap(function)(x, y)
    lower = jnp.zeros((n, n), values.dtype).at[rows, columns].set(values)
    return lower + jnp.tril(lower, -1).T


def calibration_matrix(
    calibration: Callable[..., jax.Array], predictions: Any, targets: jax.Array
) -> jax.Array:
    """Matrix of calibration(kernel, p, y, q, z) with the kernel of the predictions, [n, n]."""
    pair = functools.partial(calibration, kernel_of(predictions))
    return symmetric_matrix(lambda x, y: pair(*x, *y), (predictions, targets))


def estimates(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Unbiased and biased estimate of the SKCE from the matrix of h."""
    n, biased = matrix.shape[0], matrix.mean()
    return (n * biased - jnp.diagonal(matrix).mean()) / (n - 1), biased


def resample(key: jax.Array, num_samples: int, num_resamples: int) -> jax.Array:
    """Counts of the resamples of `asymptotic_skce_test` with the same key, [n, resamples]."""
    return multinomial_counts(jax.random.split(key, num_resamples), num_samples)


def bootstrap_pvalue(matrix: jax.Array, counts: jax.Array) -> jax.Array:
    """p-value of `asymptotic_skce_test` from the matrix of h and counts of resamples [n, B]."""
    n, rows = matrix.shape[0], matrix.mean(0)
    deviations = counts.astype(matrix.dtype) - 1
    forms = jnp.sum(deviations * (matrix @ deviations), 0)
    centered = centered_diagonal(jnp.diagonal(matrix), rows)
    null_samples = (forms - centered @ deviations - centered.sum()) / n
    return simulated_pvalue(n * estimates(matrix)[0], null_samples)


def statistics(counts: jax.Array, predictions: Any, targets: jax.Array) -> dict[str, jax.Array]:
    """All statistics of one batch of n predictions."""
    matrix = calibration_matrix(calibration_kernel, predictions, targets)
    values = *estimates(matrix), bootstrap_pvalue(matrix, counts)
    return {
        **{name: score(predictions, targets) for name, score in SCORES.items()},
        **dict(zip(CALIBRATION, values, strict=True)),
    }


@jax.jit
def evaluate(counts: jax.Array, predictions: Any, targets: jax.Array) -> dict[str, jax.Array]:
    """All statistics of many batches of n predictions of the same targets.

    Args:
        counts: how often each sample occurs in each resample, [n, B].
        predictions: `Normal`s or `Mixture`s, [b, n, ...].
        targets: [n].

    Returns:
        Statistics by name, [b].
    """
    return lax.map(lambda batch: statistics(counts, batch, targets), predictions)


def skipping_calibration_kernel(
    kernel: TensorProduct, p: Mixture, y: jax.Array, q: Mixture, z: jax.Array
) -> jax.Array:
    """Calibration kernel h of mixtures without the pairs (i ≥ 2, 1) of their components.

    The published statistics of the ensemble were computed with it, by an error of the package
    CalibrationErrors.jl; it shows here what that changes. The weights must be equal.
    """
    num_components = p.components.loc.shape[0]
    first = jax.tree.map(lambda leaf: leaf[0], q.components)
    rest = jax.tree.map(lambda leaf: leaf[1:], p.components)
    skipped = jax.vmap(lambda part: centered_kernel(kernel.target, part, y, first, z))(rest)
    all_pairs = centered_kernel(kernel.target, p, y, q, z)
    return kernel.prediction(p, q) * (all_pairs - skipped.sum() / num_components**2)


@jax.jit
def evaluate_skipping(predictions: Mixture, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Unbiased and biased SKCE of many batches with `skipping_calibration_kernel`, [b] each."""

    def skipping_estimates(batch: Mixture) -> tuple[jax.Array, jax.Array]:
        return estimates(calibration_matrix(skipping_calibration_kernel, batch, targets))

    return lax.map(skipping_estimates, predictions)


@functools.partial(jax.jit, static_argnames="num_redraws")
def exact_pvalues(
    key: jax.Array, predictions: Any, targets: jax.Array, *, num_redraws: int
) -> jax.Array:
    """p-values of `exact_skce_test` with the biased SKCE, of many batches of n predictions, [b].

    The predictions are compared with each other once and not in all redraws, which matters for
    mixtures.
    """

    def pvalue(batch: Any) -> jax.Array:
        kernel = kernel_of(batch)
        similarities = symmetric_matrix(kernel.prediction, batch)

        def bracket(x: Any, y: Any) -> jax.Array:
            return centered_kernel(kernel.target, *x, *y)

        def biased_skce(predictions: Any, targets: jax.Array) -> jax.Array:
            return jnp.mean(similarities * gram_matrix(bracket, (predictions, targets)))

        return exact_test(key, biased_skce, batch, targets, num_draws=num_redraws).pvalue

    return lax.map(pvalue, predictions)
