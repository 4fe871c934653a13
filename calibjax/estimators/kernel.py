"""Squared kernel calibration error (SKCE).

With the calibration kernel h of `calibration_kernel`, the SKCE of a model is
E h((P, Y), (P', Y')) for two independent samples; it is zero if and only if the model is
calibrated, given a characteristic kernel.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import safe_sqrt
from calibjax.distributions import Ensemble
from calibjax.distributions.base import DataSet, Distribution
from calibjax.distributions.draws import MonteCarlo
from calibjax.distributions.features import bare
from calibjax.estimators.linear_sums import linear_sums, sums_on_line
from calibjax.kernels import Kernel, TensorProduct, gram_matrix
from calibjax.kernels.base import combine_on_pairs
from calibjax.kernels.expectations import check_expectations
from calibjax.kernels.labels import checked_labels
from calibjax.kernels.line import line_of_many
from calibjax.kernels.residuals import informed


def calibration_kernel(
    kernel: Kernel, p: Distribution, y: ArrayLike, q: Distribution, z: ArrayLike
) -> jax.Array:
    """Calibration kernel h of one pair of samples.

        h((p, y), (q, z)) = k((p, y), (q, z)) − E_{Z~p} k((p, Z), (q, z))
                            − E_{Z'~q} k((p, y), (q, Z')) + E_{Z~p, Z'~q} k((p, Z), (q, Z')),

    which is k_P(p, q) [k_Y(y, z) − m_p(z) − m_q(y) + M_{p,q}] for a tensor product.

    Args:
        kernel: kernel on pairs (prediction, target): a `TensorProduct`, sums and multiples of
            these, or another class with a method `calibration_kernel(p, y, q, z)`.
        p: one prediction.
        y: one target, paired with p.
        q: one prediction.
        z: one target, paired with q.

    Returns:
        A scalar.

    Raises:
        NotImplementedError: if the expectations have no closed form.

    Cost: one evaluation of both kernels and the expectations. This is the inner function of all
    estimators, so it checks no values; `skce` and the others do.

    References: W21 §3.2, eq. (5); W19 eq. (5) for classes.

    >>> import jax.numpy as jnp
    >>> from calibjax import kernels
    >>> from calibjax.distributions import Categorical
    >>> kernel = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    >>> p = Categorical(jnp.array([0.25, 0.75]))
    >>> print(calibration_kernel(kernel, p, 1, p, 1))  # ‖e_1 − p‖²
    0.125
    """
    return combine_on_pairs(kernel, "calibration_kernel", lambda h: h(p, y, q, z))


def sample_pair(kernel: Kernel, x: DataSet, y: DataSet) -> jax.Array:
    """The calibration kernel as a function of two samples (prediction, target)."""
    return calibration_kernel(kernel, *x, *y)


def checked_samples(
    kernel: Kernel, predictions: Distribution, targets: ArrayLike, *, minimum: int = 1
) -> tuple[Kernel, tuple[Any, Any]]:
    """Checks kernel and data; returns the kernel and the samples (predictions, targets)."""
    return weighted_samples(kernel, predictions, targets, None, minimum=minimum)[:2]


def weighted_samples(
    kernel: Kernel, predictions: Distribution, targets: ArrayLike, weights: Any, *, minimum: int = 1
) -> tuple[Kernel, tuple[Any, jax.Array], jax.Array | None]:
    """Checks kernel, data and weights; returns kernel, samples (predictions, targets), weights."""
    kernel = checks.kernel_values(kernel)
    predictions, targets, weights = checks.weighted_samples(
        predictions, targets, weights, minimum=minimum
    )
    refuse_without_expectations(kernel, predictions)
    kernel = informed(kernel, predictions)
    return kernel, (predictions, _labels_of(kernel, predictions, targets)), weights


def _labels_of(kernel: Kernel, predictions: Distribution, targets: jax.Array) -> jax.Array:
    """Targets which kernels on labels have, as they have the draws of the predictions."""
    draws: Any = predictions.draws if isinstance(predictions, MonteCarlo) else bare(predictions)
    for part in jax.tree.leaves(kernel, is_leaf=lambda part: isinstance(part, TensorProduct)):
        if isinstance(part, TensorProduct):
            targets = checked_labels(part.target, "targets", targets)
            if isinstance(draws, Ensemble):
                checked_labels(part.target, "predictions.values", draws.values)
    return targets


def refuse_without_expectations(kernel: Kernel, predictions: Distribution) -> None:
    """Refuses target kernels whose values the expectations do not support."""
    for part in jax.tree.leaves(kernel, is_leaf=lambda part: isinstance(part, TensorProduct)):
        if isinstance(part, TensorProduct):
            check_expectations(part.target, predictions)


@jax.jit
def sample_matrix(kernel: Kernel, samples: DataSet) -> jax.Array:
    """The calibration kernel of all pairs of samples, [n, n]."""
    return gram_matrix(functools.partial(sample_pair, kernel), samples)


def skce(
    kernel: Kernel,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Unbiased estimator of the squared kernel calibration error.

        SKCE_u = 2 / (n (n − 1)) Σ_{i<j} h((p_i, y_i), (p_j, y_j)),

    and Σ_{i<j} w_i w_j h_ij / Σ_{i<j} w_i w_j with weights. Its mean is the SKCE for every n, so on
    calibrated data it is often negative.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or fewer than two samples count.
        NotImplementedError: if the expectations have no closed form.

    Cost: n²/2 evaluations of h, O(n + tile²) memory, also for the gradient. If the target kernel
    has features, O(n log n) from n = 1000 on for `kernels.Exponential`, its sums, multiples and
    constants, on predictions that lie on a line (probabilities of two classes, normals with a
    common scale, one feature): without an approximation. O(n) for a kernel on predictions of low
    rank, see `kernels.Nystrom`.

    References: W21 §3.2, Lemma 2 (B = n); W19 eq. (6), SKCE_uq.

    >>> import jax.numpy as jnp
    >>> from calibjax import distances, kernels
    >>> from calibjax.distributions import Normal
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    ... )
    >>> predictions = Normal(loc=jnp.array([0.0, 1.0, 2.0]), scale=jnp.array([0.5, 0.5, 0.5]))
    >>> print(f"{skce(kernel, predictions, jnp.array([0.9, 2.1, 2.8])):.4f}")
    0.0224
    """
    kernel, samples, weights = weighted_samples(kernel, predictions, targets, weights, minimum=2)
    if (sums := linear_sums(kernel, samples, weights)) is not None:
        return sums.off_diagonal / sums.num_pairs
    return operators.mean_over_pairs(sample_pair, kernel, samples, weights)


def skce_biased(
    kernel: Kernel,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Biased, non-negative estimator of the squared kernel calibration error.

        SKCE_b = n⁻² Σ_{i,j} h((p_i, y_i), (p_j, y_j)) ≥ 0,

    and Σ_{i,j} w_i w_j h_ij / (Σ_i w_i)² with weights, for which integers are numbers of copies.
    On calibrated data its mean is E h((P, Y), (P, Y)) / n. Targets that scatter less than predicted
    make the diagonal smaller, so that predictions that are too wide do not show up as large values;
    see `skce_dispersion`.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: if the expectations have no closed form.

    Cost: that of `skce`.

    References: W21 §3.2, Lemma 1; W19 eq. (6), SKCE_b.

    >>> import jax.numpy as jnp
    >>> from calibjax import kernels
    >>> from calibjax.distributions import Bernoulli
    >>> kernel = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    >>> print(skce_biased(kernel, Bernoulli(jnp.array([0.5, 0.5])), jnp.array([1, 1])))
    0.5
    """
    kernel, samples, weights = weighted_samples(kernel, predictions, targets, weights)
    if (sums := linear_sums(kernel, samples, weights)) is not None:
        return (sums.off_diagonal + sums.diagonal) / sums.number / sums.number
    return operators.mean_over_pairs(sample_pair, kernel, samples, weights, include_diagonal=True)


def skce_block(
    kernel: Kernel,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    block_size: int,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Unbiased block estimator of the squared kernel calibration error.

    The mean of the unbiased estimators over ⌊n/B⌋ blocks of B consecutive samples; an incomplete
    last block is dropped. B = 2 is W19's linear estimator, B = n is `skce`. With weights it is
    Σ w_i w_j h_ij / Σ w_i w_j over the pairs within the blocks.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        block_size: B, 2 ≤ B ≤ n.
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, n < 2, the block size is out of range, or no
            block has two samples that count.
        NotImplementedError: if the expectations have no closed form.

    Cost: n B / 2 evaluations of h, O(n + tile²) memory.

    References: W21 §3.2, Lemma 2; W19 eq. (6), SKCE_ul.

    >>> import jax.numpy as jnp
    >>> from calibjax import kernels
    >>> from calibjax.distributions import Bernoulli
    >>> kernel = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    >>> predictions = Bernoulli(jnp.array([0.5, 0.5, 0.5, 0.5, 0.5]))
    >>> print(skce_block(kernel, predictions, jnp.array([1, 1, 1, 1, 0]), block_size=2))
    0.5
    """
    kernel, samples, weights = weighted_samples(kernel, predictions, targets, weights, minimum=2)
    num_samples = checks.leading_size("predictions", samples[0])
    block_size = checks.size_in_range("block_size", block_size, 2, num_samples)
    means = operators.block_means(sample_pair, kernel, samples, weights, block_size=block_size)
    if weights is None:
        return means.mean()
    masses = operators.block_masses(weights, block_size=block_size)
    if checks.is_concrete(masses) and not jnp.any(masses):
        raise ValueError(
            f"weights: expected two positive weights in at least one block of {block_size} samples"
        )
    return jnp.sum(masses * means) / jnp.sum(masses)


def mmce(
    kernel: Kernel,
    confidences: ArrayLike,
    correct: ArrayLike,
    *,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Maximum mean calibration error of confidences.

        MMCE = (n⁻² Σ_{i,j} (c_i − r_i) (c_j − r_j) k(r_i, r_j))^½

    for confidences r and c = 1 if the most probable class was observed. Its square is `skce_biased`
    of the `Bernoulli` predictions r with the kernel ½ k ⊗ `White()`, where k is written as a kernel
    on predictions: for k = `Exponential(0.4)`, half of
    `TensorProduct(Exponential(0.4, TotalVariation()), White())`, since |r − r'| is the total
    variation distance. The gradient of the root at zero is set to zero.

    Args:
        kernel: kernel on numbers in [0, 1], such as `kernels.Exponential(0.4)`, the kernel of
            Kumar et al.
        confidences: r, [n], or a batch of n `Bernoulli`s, as `top_label` returns them.
        correct: c, 0 or 1, [n].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: n²/2 evaluations of k, O(n + tile²) memory; O(n log n) from n = 1000 on for
    `kernels.Exponential`, its sums, multiples and constants. The same for the gradient.

    References: Kumar, Sarawagi and Jain (2018), Trainable calibration measures for neural networks
    from kernel mean embeddings; W19 Ex. I.1, which this follows.

    >>> import jax.numpy as jnp
    >>> from calibjax import kernels
    >>> print(mmce(kernels.Exponential(0.4), jnp.array([0.5, 0.5]), jnp.array([1, 1])))
    0.5
    """
    kernel = checks.kernel_values(kernel)
    checks.same_rows(confidences=confidences, correct=correct, weights=weights)
    confidences, correct = checks.confidences_and_correct(confidences, correct)
    weights = checks.sample_weights(weights, confidences)
    residuals = correct - confidences
    line = line_of_many(kernel, confidences, len(confidences))
    if line is None:
        samples = confidences, residuals
        squared = operators.mean_over_pairs(
            _mmce_pair, kernel, samples, weights, include_diagonal=True
        )
    else:
        sums = sums_on_line(kernel, residuals[None], weights, line)
        squared = (sums.off_diagonal + sums.diagonal) / sums.number / sums.number
    return safe_sqrt(jnp.maximum(squared, 0))


def _mmce_pair(kernel: Kernel, x: tuple[Any, Any], y: tuple[Any, Any]) -> jax.Array:
    return kernel(x[0], y[0]) * x[1] * y[1]
