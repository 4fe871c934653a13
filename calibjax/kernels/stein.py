"""Target kernels whose expectations vanish for every density."""

import jax

from calibjax._core import checks
from calibjax._core.pytree import record
from calibjax.kernels.base import Conditional, Kernel
from calibjax.kernels.labels import LabelKernel, White
from calibjax.kernels.stationary import Exponential, PowerExponential, SquaredExponential

# Functions of a distance that have no derivatives of second order where it is zero.
_ROUGH = Exponential | PowerExponential | White | LabelKernel


@record
class Stein(Conditional):
    """Stein kernel, a target kernel for any continuous density with a method `log_prob`.

    With the scores s_p = ∇ log p of two predictions and a smooth kernel k, the centered kernel is

        ⟨s_p(y), s_q(z)⟩ k + ⟨s_p(y), ∇_z k⟩ + ⟨s_q(z), ∇_y k⟩ + tr ∇_y ∇_z k  at (y, z),

    whose expectations over Y ~ p and over Z ~ q are zero: no expectations in closed form are
    needed, nor the normalising constants of the densities. It detects what changes the slope of the
    log-density, such as the shape of tails, rather than the distribution function.

    For positive targets k(y, z) is replaced by y z k(y, z), for proportions by
    y (1 − y) z (1 − z) k(y, z), so that the expectations vanish even if the density does not at the
    ends of its support. The attribute `support` of the predictions says which; without it the
    targets are real numbers or vectors.

    It has no values without predictions, so that it is used as target kernel of a `TensorProduct`
    and cannot be multiplied with other target kernels (sums and multiples are fine).

    Attributes:
        kernel: a kernel on targets that JAX differentiates twice, such as `SquaredExponential`.

    Cost: first and mixed second derivatives of k for each pair; O(d²) for vectors.

    References: none of the four papers has it. Chwialkowski, Strathmann and Gretton (2016), A
    kernel test of goodness of fit; Liu, Lee and Jordan (2016), A kernelized Stein discrepancy.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Euclidean()), kernels.Stein()
    ... )
    >>> df, loc, scale = jnp.full(64, 3.0), jnp.zeros(64), jnp.ones(64)
    >>> predictions = distributions.StudentT(df, loc, scale)
    >>> targets = 2 * distributions.sample_targets(jax.random.key(0), predictions)
    >>> test = hypothesis_tests.exact_skce_test(jax.random.key(1), kernel, predictions, targets)
    >>> print(f"{test.pvalue:.3f}")
    0.002
    """

    kernel: Kernel = SquaredExponential(1.0)

    def check_values(self, name: str) -> "Stein":
        """Refuses kernels that are not differentiable, and checks the others."""
        place = f"{name}.kernel"
        kernel = checks.kernel_values(self.kernel, place)
        for part in jax.tree.leaves(kernel, is_leaf=lambda part: isinstance(part, _ROUGH)):
            if isinstance(part, _ROUGH):
                raise ValueError(
                    f"{place}: expected a kernel that JAX differentiates twice, such as "
                    f"SquaredExponential, got {type(part).__name__}"
                )
        return checks.replaced(self, kernel=kernel)
