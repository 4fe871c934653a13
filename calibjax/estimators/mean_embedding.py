"""Unnormalized calibration mean embedding (UCME)."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax import _checks, pairwise
from calibjax.distributions.base import Distribution
from calibjax.estimators.kernel import checked_samples
from calibjax.kernels import Kernel
from calibjax.kernels.base import combine_on_pairs


def embedding_difference(
    kernel: Kernel, t: Any, s: Any, p: Distribution, y: ArrayLike
) -> jax.Array:
    """Difference k((t, s), (p, y)) − E_{Z~p} k((t, s), (p, Z)) at one test location.

    Args:
        kernel: kernel on pairs (prediction, target): a `TensorProduct`, sums and multiples of
            these, or another class with a method `embedding_difference(t, s, p, y)`.
        t: prediction of the test location.
        s: target of the test location.
        p: one prediction.
        y: one target, paired with p.

    Returns:
        A scalar.

    Raises:
        NotImplementedError: if the expectation has no closed form.

    Cost: one evaluation of both kernels and the expectation. It checks no values; `ucme` does.

    References: W21 App. C.2.

    >>> import jax.numpy as jnp
    >>> from calibjax import estimators, kernels
    >>> from calibjax.distributions import Categorical
    >>> kernel = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    >>> p = Categorical(jnp.array([0.25, 0.75]))
    >>> print(estimators.embedding_difference(kernel, p, 1, p, 1))
    0.25
    """
    return combine_on_pairs(kernel, "embedding_difference", lambda f: f(t, s, p, y))


def location_pair(kernel: Kernel, location: tuple[Any, Any], sample: tuple[Any, Any]) -> jax.Array:
    """The embedding difference as a function of a test location and a sample."""
    return embedding_difference(kernel, *location, *sample)


def checked_locations(
    kernel: Kernel,
    predictions: Distribution,
    targets: ArrayLike,
    test_predictions: Distribution,
    test_targets: ArrayLike,
) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Checks kernel, data and test locations; returns samples and locations as JAX arrays."""
    kernel, samples = checked_samples(kernel, predictions, targets)
    locations = _checks.predictions_and_targets(test_predictions, test_targets, prefix="test_")
    for i, name in enumerate(("predictions", "targets")):
        _checks.same_kind(f"test_{name}", locations[i], name, samples[i])
    return samples, locations


def ucme(
    kernel: Kernel,
    predictions: Distribution,
    targets: ArrayLike,
    test_predictions: Distribution,
    test_targets: ArrayLike,
) -> jax.Array:
    """Squared unnormalized calibration mean embedding at J test locations.

        UCME² = J⁻¹ Σ_j (n⁻¹ Σ_i Z_ij)²,
        Z_ij = k(T_j, (p_i, y_i)) − E_{Z~p_i} k(T_j, (p_i, Z)),   T_j = (t_j, s_j).

    On calibrated data its mean is that of Z_ij² divided by n, so it is biased upwards. The test
    locations must not be chosen with the data, unless a test redraws the targets.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        test_predictions: t, batch of J distributions of the same family.
        test_targets: s, [J] or [J, d].

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
    >>> test = Bernoulli(jnp.array([0.5])), jnp.array([1])
    >>> print(estimators.ucme(kernel, predictions, jnp.array([1, 1]), *test))  # 0.5²
    0.25
    """
    samples, locations = checked_locations(
        kernel, predictions, targets, test_predictions, test_targets
    )
    dtype = jax.eval_shape(
        location_pair, kernel, *jax.tree.map(lambda leaf: leaf[0], (locations, samples))
    ).dtype
    n = _checks.leading_size("targets", samples[1])
    ones = jnp.ones((n, 1), dtype)
    means = pairwise.weighted_sums(location_pair, kernel, locations, samples, ones)[:, 0] / n
    return jnp.mean(jnp.square(means))
