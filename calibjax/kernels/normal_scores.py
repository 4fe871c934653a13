"""Target kernels on normal scores of the targets."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jax.typing import ArrayLike

from calibjax import _checks, _matrices
from calibjax._arithmetic import floating_dtype, ratio
from calibjax._pytree import record
from calibjax.distributions import DiagNormal, MvNormal, Normal
from calibjax.kernels.base import Conditional, Kernel, ValueRange
from calibjax.kernels.stationary import SquaredExponential

LARGEST_SCORE = 8.2  # in absolute value; the same for all data, so that features cover all scores
VECTORS = DiagNormal | MvNormal


@record
class NormalScore(Conditional):
    """Kernel on normal scores, for every continuous distribution with a method `cdf`.

    Targets are compared by where they lie in their own predicted distribution,

        k((p, y), (q, z)) = kernel(s_p(y), s_q(z)),   s_p(y) = Φ⁻¹(F_p(y)),

    with the standard normal distribution function Φ; of vectors s_p(y) = L⁻¹ (y − μ) for a
    `DiagNormal` or `MvNormal` with mean μ and covariance matrix L Lᵀ. Under calibration all scores
    are standard normal, whatever the predictions, so that expectations are those of the inner
    kernel under this distribution: for exp(−(s − t)² / (2 ℓ²)) they are
    m(s) = ℓ (ℓ² + 1)^(−1/2) exp(−s² / (2 (ℓ² + 1))) and M = ℓ (ℓ² + 2)^(−1/2), and products of
    these for vectors.

    Length scales have no unit: errors of the same size, in standard deviations, count alike for
    wide and for narrow predictions, and shapes that are wrong in all of them add up. It detects
    shapes with ℓ = 1/2, and with ℓ = 8, where it is nearly linear, shifts.

    Scores beyond ±8.2, which have a probability of 2·10⁻¹⁶, count as ±8.2. Where F rounds to 0 or
    1, the score is Φ⁻¹ of the last digit: ±5.2 in float32.

    Attributes:
        kernel: kernel on scores with expectations under normal distributions.

    Cost: one evaluation of F for each target; features (see `exact_skce_test`) where the inner
    kernel has features for scalar normal predictions, and the length scale is not traced.

    References: none of the four papers has it; scores are those of Rosenblatt (1952), Remarks on a
    multivariate transformation, and Dawid (1984), Statistical theory: the prequential approach.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, kernels
    >>> kernel = kernels.NormalScore(kernels.SquaredExponential(1.0))
    >>> narrow = distributions.Normal(jnp.array(0.0), jnp.array(1.0))
    >>> wide = distributions.Normal(jnp.array(5.0), jnp.array(100.0))
    >>> for p, y in ((narrow, 2.0), (wide, 205.0)):  # both two standard deviations above
    ...     print(f"{kernels.centered_kernel(kernel, narrow, 2.0, p, y):.4f}")
    1.0571
    1.0571
    """

    kernel: Kernel = SquaredExponential(1.0)

    @property
    def diagonal(self) -> Any:
        """That of the inner kernel."""
        return self.kernel.diagonal

    def value_range(self) -> ValueRange:
        """Bounds of the inner kernel."""
        return self.kernel.value_range()

    def check_values(self, name: str) -> "NormalScore":
        """Checks the inner kernel."""
        kernel = _checks.kernel_values(self.kernel, f"{name}.kernel")
        return _checks.replaced(self, kernel=kernel)


def normal_score(p: Any, y: ArrayLike) -> jax.Array:
    """Φ⁻¹(F_p(y)), or L⁻¹ (y − loc) of vectors [d], where it is finite."""
    if isinstance(p, Normal | DiagNormal):
        score = ratio(y - p.loc, p.scale)
    elif isinstance(p, MvNormal):
        score = _matrices.solve_lower(_matrices.cholesky(p.cov), jnp.asarray(y) - p.loc)
    else:
        level = p.cdf(y)
        last = jnp.finfo(level.dtype).eps
        score = ndtri(jnp.clip(level, last, 1 - last))
    return jnp.clip(score, -LARGEST_SCORE, LARGEST_SCORE)


def standard_normal(p: Any) -> Normal | DiagNormal:
    """The distribution of the scores."""
    if isinstance(p, VECTORS):
        zeros = jnp.zeros_like(p.loc)
        return DiagNormal(zeros, jnp.ones_like(zeros))
    zero = jnp.zeros((), floating_dtype(p))
    return Normal(zero, jnp.ones_like(zero))
