"""Squared kernel calibration error (SKCE).

With the calibration kernel h of `calibration_kernel`, the SKCE of a model is E h((P, Y), (P', Y'))
for two independent samples; it is zero if and only if the model is calibrated, given a
characteristic kernel. The unnormalized calibration mean embedding (UCME) has values (the witness)
and a mean square at test locations.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import mean_and_error, safe_sqrt
from calibjax._core.gate import checked, inner, together
from calibjax._core.pytree import Numbers, PyTree, record
from calibjax.distributions import Ensemble
from calibjax.distributions.base import DataSet, Distribution
from calibjax.distributions.composed import bare
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.kernels import Kernel, TensorProduct, gram_matrix
from calibjax.kernels.base import checked_labels, combine_on_pairs
from calibjax.kernels.expectations import check_values
from calibjax.kernels.expectations.fourier import over_range
from calibjax.kernels.residuals import informed
from calibjax.operators.plan import (
    operator_of,
    row_sums_of_view,
    sample_pair,
    single_view,
    sums_of_view,
)


def _numbers(samples: DataSet, weights: jax.Array | None) -> tuple[Any, Any]:
    """Numbers of samples and of pairs i ≠ j: sums of the weights, and of products of two."""
    n = checks.leading_size("targets", samples[1])
    if weights is None:
        return n, n * (n - 1.0)
    # A difference of two squares would lose one sample with nearly all the weight.
    return jnp.sum(weights), 2 * operators.block_masses(weights, block_size=n)[0]


def _linear_sums(
    kernel: Kernel, samples: DataSet, weights: jax.Array | None
) -> tuple[jax.Array, jax.Array] | None:
    """Sums of h over i ≠ j and i = j, by features of the target kernel; None without features."""
    view = single_view(kernel, samples)
    return None if view is None else sums_of_view(view, samples[1], weights)


def linear_row_sums(
    kernel: Kernel, samples: DataSet, weights: jax.Array | None
) -> jax.Array | None:
    """Σ_{j≠i} w_j h_ij of each sample, [n], by features; None without features.

    For concrete values only: equal predictions have no derivatives here.
    """
    if not checks.is_concrete(kernel, samples, weights):
        return None
    view = single_view(kernel, samples)
    return None if view is None else row_sums_of_view(view, samples[1], weights)


def calibration_kernel(
    kernel: Kernel, p: Distribution, y: ArrayLike, q: Distribution, z: ArrayLike
) -> jax.Array:
    """Calibration kernel h of one pair of samples.

        h((p, y), (q, z)) = k((p, y), (q, z)) − E_{Z~p} k((p, Z), (q, z))
                            − E_{Z'~q} k((p, y), (q, Z')) + E_{Z~p, Z'~q} k((p, Z), (q, Z')),

    which is k_P(p, q) [k_Y(y, z) − m_p(z) − m_q(y) + M_{p,q}] for a tensor product.

    Args:
        kernel: kernel on pairs (prediction, target): a `TensorProduct`, sums and multiples of
            these, or a class with a method `calibration_kernel(p, y, q, z)`.
        p: one prediction.
        y: one target, paired with p.
        q: one prediction.
        z: one target, paired with q.

    Returns:
        A scalar.

    Raises:
        NotImplementedError: if the expectations have no closed form.

    Cost: one evaluation of both kernels and the expectations. Values are not checked: this is the
    inner function of all estimators.

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


@together("kernel", "predictions", "targets")
def ready(kernel: Any, predictions: Distribution, targets: jax.Array) -> tuple[Any, ...]:
    """Kernel prepared for the predictions, the predictions, and targets (labels for such kernels).

    Raises:
        TypeError: if a kernel on labels gets other targets.
        NotImplementedError: if the expectations have no closed form.
    """
    if kernel is None:  # the default kernel of the predictions
        return kernel, predictions, targets
    refuse_without_expectations(kernel, predictions)
    kernel = with_range(informed(kernel, predictions), predictions, targets)
    return kernel, predictions, _labels_of(kernel, predictions, targets)


def with_range(kernel: Any, predictions: Distribution, targets: jax.Array) -> PyTree:
    """Kernel on pairs whose target kernels have the range of the data, if they need it."""
    is_product = lambda part: isinstance(part, TensorProduct)  # noqa: E731

    def of_part(part: Any) -> Any:
        if not is_product(part):
            return part
        return TensorProduct(part.prediction, over_range(part.target, predictions, targets))

    return jax.tree.map(of_part, kernel, is_leaf=is_product)


def _labels_of(kernel: Kernel, predictions: Distribution, targets: jax.Array) -> jax.Array:
    """Targets, checked to be valid for kernels on labels, as the draws of the predictions."""
    draws: Any = predictions.draws if isinstance(predictions, MonteCarlo) else bare(predictions)
    for part in jax.tree.leaves(kernel, is_leaf=lambda part: isinstance(part, TensorProduct)):
        if isinstance(part, TensorProduct):
            targets = checked_labels(part.target, "targets", targets)
            if isinstance(draws, Ensemble):
                checked_labels(part.target, "predictions.values", draws.values)
    return targets


def refuse_without_expectations(kernel: Kernel, predictions: Distribution) -> None:
    """Refuses target kernels without expectations for their values."""
    for part in jax.tree.leaves(kernel, is_leaf=lambda part: isinstance(part, TensorProduct)):
        if isinstance(part, TensorProduct):
            check_values(part.target, predictions)


@jax.jit
def sample_matrix(kernel: Kernel, samples: DataSet) -> jax.Array:
    """Calibration kernel of all pairs of samples, [n, n]."""
    return inner(gram_matrix)(functools.partial(sample_pair, kernel), samples)


@checked(minimum=2)
def skce(
    kernel: Kernel,
    predictions: Distribution,
    targets: Numbers,
    *,
    weights: Numbers | None = None,
) -> jax.Array:
    """Unbiased estimator of the squared kernel calibration error.

        SKCE_u = 2 / (n (n − 1)) Σ_{i<j} h((p_i, y_i), (p_j, y_j)),

    or Σ_{i<j} w_i w_j h_ij / Σ_{i<j} w_i w_j with weights. Its mean is the SKCE for every n, so for
    calibrated models it is often negative.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n]; None for equal weights.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or fewer than two samples count.
        NotImplementedError: if the expectations have no closed form.

    Cost: n²/2 evaluations of h, O(n + tile²) memory, also for the gradient. If the target kernel
    has features, there are faster exact sums. For n ≥ 1000 it is O(n log n) for
    `kernels.Exponential`, its sums, multiples and constants on a line: for probabilities of two
    classes, normals with a common scale, or one feature. It is O(n) for kernels on predictions of
    low rank (see `kernels.Nystrom`).

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
    samples = predictions, targets
    if (sums := _linear_sums(kernel, samples, weights)) is not None:
        return sums[0] / _numbers(samples, weights)[1]
    return operators.mean_over_pairs(sample_pair, kernel, samples, weights)


@checked
def skce_biased(
    kernel: Kernel,
    predictions: Distribution,
    targets: Numbers,
    *,
    weights: Numbers | None = None,
) -> jax.Array:
    """Biased, non-negative estimator of the squared kernel calibration error.

        SKCE_b = n⁻² Σ_{i,j} h((p_i, y_i), (p_j, y_j)) ≥ 0,

    or Σ_{i,j} w_i w_j h_ij / (Σ_i w_i)² with weights (integers are numbers of copies). For
    calibrated models its mean is E h((P, Y), (P, Y)) / n. Predictions that are too wide make the
    diagonal smaller, not larger; see `skce_dispersion`.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n]; None for equal weights.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: if the expectations have no closed form.

    Cost: `skce`.

    References: W21 §3.2, Lemma 1; W19 eq. (6), SKCE_b.

    >>> import jax.numpy as jnp
    >>> from calibjax import kernels
    >>> from calibjax.distributions import Bernoulli
    >>> kernel = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    >>> print(skce_biased(kernel, Bernoulli(jnp.array([0.5, 0.5])), jnp.array([1, 1])))
    0.5
    """
    samples = predictions, targets
    if (sums := _linear_sums(kernel, samples, weights)) is not None:
        number, _ = _numbers(samples, weights)
        return (sums[0] + sums[1]) / number / number
    return operators.mean_over_pairs(sample_pair, kernel, samples, weights, include_diagonal=True)


@checked(minimum=2)
def skce_block(
    kernel: Kernel,
    predictions: Distribution,
    targets: Numbers,
    *,
    block_size: int,
    weights: Numbers | None = None,
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
        weights: w ≥ 0 of the samples, [n]; None for equal weights.

    Returns:
        A scalar; NaN if no block has two samples of positive weight.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, n < 2, or the block size is out of range.
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
    samples = predictions, targets
    if checks.is_below(n := checks.leading_size("predictions", predictions), block_size):
        raise ValueError(f"block_size: expected at most n = {n}, got {block_size}")
    means = operators.block_means(sample_pair, kernel, samples, weights, block_size=block_size)
    if weights is None:
        return means.mean()
    masses = operators.block_masses(weights, block_size=block_size)
    return jnp.sum(masses * means) / jnp.sum(masses)


@checked
def mmce(
    kernel: Kernel,
    confidences: Numbers,
    correct: Numbers,
    *,
    weights: Numbers | None = None,
) -> jax.Array:
    """Maximum mean calibration error of confidences.

        MMCE = (n⁻² Σ_{i,j} (c_i − r_i) (c_j − r_j) k(r_i, r_j))^½

    for confidences r and c = 1 if the most probable class was observed. Its square is `skce_biased`
    of the `Bernoulli` predictions r with the kernel ½ k ⊗ `White()`, where k is written as a kernel
    on predictions: for k = `Exponential(0.4)`, half of `TensorProduct(Exponential(0.4,
    TotalVariation()), White())`, since |r − r'| is the total variation distance. The gradient at
    zero is set to zero.

    Args:
        kernel: kernel on numbers in [0, 1], such as `kernels.Exponential(0.4)`, the kernel of
            Kumar et al.
        confidences: r, [n], or a batch of n `Bernoulli`s, as from `top_label`.
        correct: c, 0 or 1, [n].
        weights: w ≥ 0 of the samples, [n]; None for equal weights.

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
    each = jnp.ones_like(confidences) if weights is None else weights
    operator = operator_of(kernel, confidences, many=False)
    squared = _sum_of_form(operator, each * (correct - confidences)) / jnp.sum(each) / jnp.sum(each)
    return safe_sqrt(jnp.maximum(squared, 0))


@jax.jit
def _sum_of_form(operator: Any, values: jax.Array) -> jax.Array:
    off_diagonal, diagonal = operator.forms(values[None])
    return (off_diagonal + diagonal)[0]


@record
class DispersionEstimate:
    """Dispersion error: excess of the spread of the targets over the predicted spread.

    Attributes:
        value: the excess, with mean zero for calibrated models; positive if the targets scatter
            more than predicted, negative if they scatter less.
        standard_error: standard error of the value.
    """

    value: jax.Array
    standard_error: jax.Array


@checked(minimum=2, compiled=True)
def skce_dispersion(
    kernel: Kernel,
    predictions: Distribution,
    targets: Numbers,
    *,
    weights: Numbers | None = None,
) -> DispersionEstimate:
    """Dispersion error: excess of the spread of the targets over the predicted spread.

        S = n⁻¹ Σ_i [h((p_i, y_i), (p_i, y_i)) − E_{Y~p_i} h((p_i, Y), (p_i, Y))],

    where the expectation is k_P(p, p) [E_{Z~p} k_Y(Z, Z) − M_{p,p}] for a tensor product. The first
    term is k_P(p, p) times the squared distance of k_Y(y, ·) from the mean embedding of p.

    Its mean is zero for calibrated models, positive for predictions that are too narrow
    (overconfident) and negative for predictions that are too wide (underconfident). Errors of the
    means increase it. It complements the unbiased SKCE, which leaves out the diagonal. For an exact
    test see `hypothesis_tests.exact_skce_test(..., statistic="dispersion")`.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n]; None for equal weights.

    Returns:
        The value with its standard error sd / √n over the samples. With weights, the weighted mean
        and √(n / (n − 1) Σ_i w_i² (x_i − x̄)²) / Σ_i w_i with n = (Σ_i w_i)² / Σ_i w_i². This is
        valid even if weights and values are correlated.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or fewer than two samples count.
        NotImplementedError: if the expectations have no closed form.

    Cost: O(n) evaluations of h and M, O(n) memory.

    References: none of the four papers has it. A kernel score minus its entropy: Gneiting and
    Raftery (2007), Strictly proper scoring rules, §5; as a test for probabilities Spiegelhalter
    (1986).

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import kernels
    >>> from calibjax.distributions import Normal
    >>> kernel = kernels.TensorProduct(kernels.Exponential(), kernels.SquaredExponential())
    >>> predictions = Normal(jnp.zeros(100), jnp.ones(100))
    >>> targets = 0.5 * jax.random.normal(jax.random.key(0), 100)
    >>> too_wide = skce_dispersion(kernel, predictions, targets)
    >>> print(f"{too_wide.value:.3f} ± {too_wide.standard_error:.3f}")
    -0.186 ± 0.009
    """

    def excess(p: Distribution, y: jax.Array) -> jax.Array:
        expected = combine_on_pairs(kernel, "expected_diagonal", lambda mean: mean(p))
        return sample_pair(kernel, (p, y), (p, y)) - expected

    return DispersionEstimate(*mean_and_error(jax.vmap(excess)(predictions, targets), weights))


def location_pair(kernel: Kernel, location: tuple[Any, Any], sample: tuple[Any, Any]) -> jax.Array:
    """Difference k((t, s), (p, y)) − E_{Z~p} k((t, s), (p, Z)) at one location (W21 App. C.2)."""
    return combine_on_pairs(kernel, "embedding_difference", lambda f: f(*location, *sample))


@together("kernel", "predictions", "targets", "at_predictions", "at_targets")
def _located(kernel: Any, *data: Any) -> tuple[Any, ...]:
    """Kernel that also has the range of the locations, which are of the kind of the samples."""
    predictions, targets, at_predictions, at_targets = data
    if at_predictions is not None and at_targets is not None:
        checks.same_kind("at_predictions", at_predictions, "predictions", predictions)
        checks.same_kind("at_targets", at_targets, "targets", targets)
        kernel = with_range(kernel, predictions, jnp.concatenate([targets, at_targets]))
    return kernel, *data


def mean_difference(
    kernel: Kernel, locations: DataSet, samples: DataSet, weights: jax.Array | None = None
) -> jax.Array:
    """Mean of the embedding differences over all samples, at each location, [J]."""
    size = checks.leading_size("samples", samples)
    # Ones of this dtype keep the dtype of the kernel.
    each = jnp.ones(size, jnp.int8) if weights is None else weights
    sums = operators.weighted_sums(location_pair, kernel, locations, samples, each[:, None])[:, 0]
    return sums / (size if weights is None else jnp.sum(weights))


@checked(compiled=True)
def ucme(
    kernel: Kernel,
    predictions: Distribution,
    targets: Numbers,
    at_predictions: Distribution,
    at_targets: Numbers,
    *,
    weights: Numbers | None = None,
) -> jax.Array:
    """Squared unnormalized calibration mean embedding at J test locations.

        UCME² = J⁻¹ Σ_j (n⁻¹ Σ_i Z_ij)²,
        Z_ij = k(T_j, (p_i, y_i)) − E_{Z~p_i} k(T_j, (p_i, Z)),   T_j = (t_j, s_j).

    with Σ_i w_i Z_ij / Σ_i w_i for weights. For calibrated models its mean is E Z_ij² / n, so it is
    biased upwards. The test locations must not be chosen with the data, unless a test redraws the
    targets.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        at_predictions: t, batch of J distributions of the same family.
        at_targets: s, [J] or [J, d].
        weights: w ≥ 0 of the samples, [n]; integers are numbers of copies. None for equal weights.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: if the expectations have no closed form.

    Cost: n J evaluations of the kernel and the expectation, O(n + J + tile²) memory.

    References: W21 App. C.2, Definition C.1; Chwialkowski et al. (2015) for two samples.

    >>> import jax.numpy as jnp
    >>> from calibjax import estimators, kernels
    >>> from calibjax.distributions import Bernoulli
    >>> kernel = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    >>> predictions = Bernoulli(jnp.array([0.5, 0.5]))
    >>> at = Bernoulli(jnp.array([0.5])), jnp.array([1])
    >>> print(estimators.ucme(kernel, predictions, jnp.array([1, 1]), *at))  # 0.5²
    0.25
    """
    locations, samples = (at_predictions, at_targets), (predictions, targets)
    return jnp.mean(jnp.square(mean_difference(kernel, locations, samples, weights)))


@checked(compiled=True)
def witness(
    kernel: Kernel,
    predictions: Distribution,
    targets: Numbers,
    at_predictions: Distribution,
    at_targets: Numbers,
    *,
    weights: Numbers | None = None,
) -> jax.Array:
    """Witness of miscalibration: excess of targets over predictions near given locations.

        W(p, z) = n⁻¹ Σ_i {k((p, z), (p_i, y_i)) − E_{Z~p_i} k((p, z), (p_i, Z))},

    which is n⁻¹ Σ_i k_P(p_i, p) [k_Y(y_i, z) − m_{p_i}(z)] for a tensor product, or a weighted
    mean. It is positive if predictions like p have more targets near z than predicted, and negative
    if they have fewer. Its expectation is zero everywhere for a calibrated model, and its squared
    norm in the Hilbert space of k is the biased SKCE. `hypothesis_tests.witness_test` tests the
    values.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        at_predictions: p, batch of J distributions of the same family.
        at_targets: z, [J] or [J, d].
        weights: w ≥ 0 of the samples, [n]; None for equal weights.

    Returns:
        The values, [J].

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: if the expectations have no closed form.

    Cost: n J evaluations of the kernel and the expectation, O(n + J + tile²) memory.

    References: Jitkrittum, Szabó, Chwialkowski and Gretton (2016) for two samples; W21 App. C.2 for
    its mean square.

    >>> import jax.numpy as jnp
    >>> from calibjax import estimators, kernels
    >>> from calibjax.distributions import Bernoulli
    >>> kernel = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    >>> predictions, at = Bernoulli(jnp.array([0.5, 0.5])), Bernoulli(jnp.array([0.5, 0.5]))
    >>> print(estimators.witness(kernel, predictions, jnp.array([1, 1]), at, jnp.array([0, 1])))
    [-0.5  0.5]
    """
    locations, samples = (at_predictions, at_targets), (predictions, targets)
    return mean_difference(kernel, locations, samples, weights)
