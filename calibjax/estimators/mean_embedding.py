"""Unnormalized calibration mean embedding: its values (the witness), and their mean square."""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax import operators
from calibjax._core import checks
from calibjax._core.gate import checked, together
from calibjax._core.pytree import Numbers, PyTree
from calibjax.distributions.base import DataSet, Distribution
from calibjax.kernels import Kernel
from calibjax.kernels.base import combine_on_pairs


def location_pair(kernel: Kernel, location: tuple[Any, Any], sample: tuple[Any, Any]) -> jax.Array:
    """Difference k((t, s), (p, y)) − E_{Z~p} k((t, s), (p, Z)) at one location (W21 App. C.2)."""
    return combine_on_pairs(kernel, "embedding_difference", lambda f: f(*location, *sample))


@together("predictions", "targets", "at_predictions", "at_targets")
def _of_one_kind(
    predictions: Distribution, targets: PyTree, at_predictions: Distribution, at_targets: PyTree
) -> tuple[Any, ...]:
    """Locations, which have to be like the samples."""
    if at_predictions is not None:
        checks.same_kind("at_predictions", at_predictions, "predictions", predictions)
        checks.same_kind("at_targets", at_targets, "targets", targets)
    return predictions, targets, at_predictions, at_targets


def mean_difference(
    kernel: Kernel, locations: DataSet, samples: DataSet, weights: jax.Array | None = None
) -> jax.Array:
    """Mean of the embedding differences over all samples, at each location, [J]."""
    size = checks.leading_size("samples", samples)
    # Ones of this type leave that of the kernel.
    each = jnp.ones(size, jnp.int8) if weights is None else weights
    sums = operators.weighted_sums(location_pair, kernel, locations, samples, each[:, None])[:, 0]
    return sums / (size if weights is None else jnp.sum(weights))


@checked
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

    and Σ_i w_i Z_ij / Σ_i w_i with weights. On calibrated data its mean is that of Z_ij² divided by
    n, so it is biased upwards. The test locations must not be chosen with the data, unless a test
    redraws the targets.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        at_predictions: t, batch of J distributions of the same family.
        at_targets: s, [J] or [J, d].
        weights: w ≥ 0 of the samples, [n]; integers are numbers of copies. None for samples that
            count equally.

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


@checked
def witness(
    kernel: Kernel,
    predictions: Distribution,
    targets: Numbers,
    at_predictions: Distribution,
    at_targets: Numbers,
    *,
    weights: Numbers | None = None,
) -> jax.Array:
    """Witness of miscalibration: where targets are more frequent than predicted, and where less.

        W(p, z) = n⁻¹ Σ_i {k((p, z), (p_i, y_i)) − E_{Z~p_i} k((p, z), (p_i, Z))},

    which is n⁻¹ Σ_i k_P(p_i, p) [k_Y(y_i, z) − m_{p_i}(z)] for a tensor product, and a weighted
    mean with weights: positive where predictions like p have more targets near z than they say,
    negative where they have fewer. Its expectation is zero everywhere for a calibrated model, and
    its squared norm in the Hilbert space of k is the biased SKCE. `hypothesis_tests.witness_test`
    says which values are more than chance.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        at_predictions: p, batch of J distributions of the same family.
        at_targets: z, [J] or [J, d].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        The values, [J].

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: if the expectations have no closed form.

    Cost: n J evaluations of the kernel and the expectation, O(n + J + tile²) memory.

    References: Jitkrittum, Szabó, Chwialkowski and Gretton (2016) for two samples; W21 App. C.2
    takes its mean square.

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
