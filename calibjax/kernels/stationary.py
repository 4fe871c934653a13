"""Kernels that are functions of a distance, and Stein kernels of densities."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, reciprocal
from calibjax._core.pytree import PyTree, parameter, part, record
from calibjax.distances import Distance, Euclidean
from calibjax.distributions.constraints import Constraint, positive
from calibjax.kernels.base import Conditional, Interval, Kernel, LabelKernel, White

_UP_TO_TWO = "values in (0, 2]"
_FAR = 1e9  # beyond, polynomials are negligible against exponentials; its square is finite


def _exponent(name: str, value: object) -> Any:
    return checks.satisfying(name, positive.check(name, value), lambda x: x <= 2, _UP_TO_TWO)


def _scale(length_scale: jax.Array | float, like: ArrayLike | DTypeLike) -> jax.Array:
    """Length scale in the precision of distances, at least as large as division by it requires.

    Narrower kernels are 1 at distance 0 and 0 elsewhere, like the narrowest one. NaN for values
    that are not positive.
    """
    dtype = jnp.result_type(like, length_scale, 1.0)
    xp: Any = np if checks.is_concrete(length_scale) else jnp  # which runs no program
    scale = xp.maximum(xp.asarray(length_scale, dtype), 2 * jnp.finfo(dtype).tiny)
    return xp.where(xp.asarray(length_scale) > 0, scale, xp.nan)


def rate(length_scale: jax.Array | float, like: ArrayLike | DTypeLike) -> jax.Array:
    """1 / ℓ, which is finite."""
    scale = _scale(length_scale, like)
    return reciprocal(scale) if isinstance(scale, jax.Array) else 1 / scale


def _in_own_units(length_scale: jax.Array | float, points: PyTree) -> tuple[jax.Array, jax.Array]:
    """Length scale ℓ as a constant unit, and the number unit / ℓ = 1, which has its derivatives.

    Squares of distances in this unit do not overflow.
    """
    scale = _scale(length_scale, floating_dtype(points))
    unit = lax.stop_gradient(scale)
    return unit, unit * reciprocal(scale)


def _smoothness(nu: Any, name: str = "nu") -> float:
    """Smoothness of one of the two Matérn kernels."""
    if not isinstance(nu, float) or nu not in (1.5, 2.5):
        raise ValueError(f"{name}: expected 1.5 or 2.5, got {nu!r}")
    return nu


class Stationary(Kernel):
    """Non-increasing function exp(g(d / ℓ)) of a distance d and a length scale ℓ.

    Subclasses are records with the fields `length_scale` and `distance` that define g as
    `log_of_ratio`. If g is smooth at zero, they define its derivative with respect to (d / ℓ)²
    there as `_slope`, for second derivatives between equal points.
    """

    length_scale: jax.Array | float
    distance: Distance

    diagonal = 1.0
    _slope: Any = None

    def __call__(self, x: PyTree, y: ArrayLike) -> jax.Array:
        """Value at one pair of points."""
        unit, one = _in_own_units(self.length_scale, (x, y))
        ratio = self.distance.in_units(x, y, unit) * one
        if self._slope is None:
            return jnp.exp(self.log_of_ratio(ratio))
        square = self.distance.squared_in_units(x, y, unit) * jnp.square(one)
        at_zero = jnp.where(ratio == 0, self._slope * square, 0)  # a root has no derivatives
        return jnp.exp(self.log_of_ratio(ratio) + at_zero)

    def log_value(self, distance: jax.Array) -> jax.Array:
        """Logarithm of the kernel at a distance, g(d / ℓ)."""
        return self.log_of_ratio(distance * rate(self.length_scale, distance))

    def log_of_ratio(self, ratio: jax.Array) -> jax.Array:
        """Logarithm of the kernel, g, as a function of d / ℓ."""
        raise NotImplementedError(f"{type(self).__name__} does not define log_of_ratio(ratio)")

    def value_range(self) -> Interval:
        """From 0 to 1."""
        return 0.0, 1.0


@record
class SquaredExponential(Stationary):
    """Squared exponential kernel exp(−d(x, y)² / (2 ℓ²)).

    Positive semi-definite if d embeds isometrically in a Hilbert space.

    Attributes:
        length_scale: ℓ > 0, in units of the distance.
        distance: d.

    >>> print(f"{SquaredExponential(length_scale=1.0)(0.0, 2.0):.4f}")  # exp(−2)
    0.1353
    """

    length_scale: jax.Array | float = parameter(positive, default=1.0)
    distance: Distance = part(checks.distance_values, default_factory=Euclidean)

    def __call__(self, x: PyTree, y: ArrayLike) -> jax.Array:
        """Value at one pair of points."""
        unit, one = _in_own_units(self.length_scale, (x, y))
        square = self.distance.squared_in_units(x, y, unit)
        square = jnp.minimum(
            square, jnp.finfo(square.dtype).max / 8
        )  # infinite squares have no slope
        return jnp.exp(square * (-0.5 * jnp.square(one)))

    def log_of_ratio(self, ratio: jax.Array) -> jax.Array:
        """−d² / (2 ℓ²)."""
        return -0.5 * jnp.square(ratio)


@record
class Exponential(Stationary):
    """Exponential (Laplacian) kernel exp(−d(x, y) / ℓ).

    Positive semi-definite if d or √d embeds isometrically in a Hilbert space, as for Euclidean and
    total variation distances, and Wasserstein distances of independent normal components. Sums over
    all pairs of points on a line take linear time. Derivatives between equal points do not exist
    and are returned as zero.

    Attributes:
        length_scale: ℓ > 0, in units of the distance.
        distance: d.

    References: W21 eq. (D.1) with ν = 1.

    >>> print(f"{Exponential(length_scale=2.0)(0.0, 2.0):.4f}")  # exp(−1)
    0.3679
    """

    length_scale: jax.Array | float = parameter(positive, default=1.0)
    distance: Distance = part(checks.distance_values, default_factory=Euclidean)

    def log_of_ratio(self, ratio: jax.Array) -> jax.Array:
        """−d / ℓ."""
        return -ratio


@record
class Matern(Stationary):
    """Matérn kernel of smoothness ν = 3/2 or 5/2, a function of z = √(2ν) d(x, y) / ℓ.

        ν = 3/2:  (1 + z) exp(−z),        ν = 5/2:  (1 + z + z² / 3) exp(−z).

    Positive semi-definite if d embeds isometrically in a Hilbert space. Derivatives between equal
    points are correct up to third order, where they exist, but not of fourth order.

    Attributes:
        length_scale: ℓ > 0, in units of the distance.
        distance: d.
        nu: ν, 1.5 or 2.5 (static). `Exponential` is the kernel of smoothness 1/2, and
            `SquaredExponential` its limit for large ν.

    Raises:
        ValueError: if ν is another number.

    References: none of the four papers has it; Rasmussen and Williams (2006), eq. (4.17).

    >>> print(f"{Matern(length_scale=3**0.5)(0.0, 2.0):.4f}")  # 3 exp(−2)
    0.4060
    >>> print(f"{Matern(length_scale=5**0.5, nu=2.5)(0.0, 3.0):.4f}")  # 7 exp(−3)
    0.3485
    """

    length_scale: jax.Array | float = parameter(positive, default=1.0)
    distance: Distance = part(checks.distance_values, default_factory=Euclidean)
    nu: float = dataclasses.field(
        default=1.5, kw_only=True, metadata={"static": True, "check": _smoothness}
    )

    @property
    def _slope(self) -> float:
        nu = _smoothness(self.nu)
        return -nu / (2 * (nu - 1))

    def log_of_ratio(self, ratio: jax.Array) -> jax.Array:
        """log(1 + z) − z, or log(1 + z + z² / 3) − z."""
        z = (2 * _smoothness(self.nu)) ** 0.5 * ratio
        near = jnp.minimum(z, _FAR)
        return jnp.log1p(near if self.nu == 1.5 else near * (1 + near / 3)) - z


@record
class PowerExponential(Stationary):
    """Power exponential kernel exp(−(d(x, y) / ℓ)^ν).

    Positive semi-definite for 0 < ν ≤ 2 if d embeds isometrically in a Hilbert space. Derivatives
    between equal points are returned as zero, except for ν = 2.

    Attributes:
        length_scale: ℓ > 0, in units of the distance.
        exponent: ν in (0, 2].
        distance: d.

    References: W21 eq. (D.1).

    >>> print(f"{PowerExponential(length_scale=1.0, exponent=2.0)(0.0, 2.0):.4f}")  # exp(−4)
    0.0183
    """

    length_scale: jax.Array | float = parameter(positive, default=1.0)
    exponent: jax.Array | float = parameter(Constraint(_UP_TO_TWO, _exponent), default=1.0)
    distance: Distance = part(checks.distance_values, default_factory=Euclidean)

    @property
    def _slope(self) -> jax.Array:
        """−1 for ν = 2."""
        return jnp.where(self.exponent == 2, -1.0, 0.0)

    def log_of_ratio(self, ratio: jax.Array) -> jax.Array:
        """−(d / ℓ)^ν."""
        is_zero = ratio == 0  # a power has no finite derivative
        # A NaN exponent stays NaN.
        zero = 0 * self.exponent
        return -jnp.where(is_zero, zero, jnp.where(is_zero, 1, ratio) ** self.exponent)


# Functions of a distance without second derivatives at distance zero.
_ROUGH = Exponential | PowerExponential | White | LabelKernel


def _smooth(kernel: Any, name: str) -> Kernel:
    """Checked kernel with second derivatives."""
    for inner in jax.tree.leaves(kernel, is_leaf=lambda x: isinstance(x, _ROUGH)):
        if isinstance(inner, _ROUGH):
            expected = "a kernel that JAX differentiates twice, such as SquaredExponential"
            raise ValueError(f"{name}: expected {expected}, got {type(inner).__name__}")
    return checks.kernel_values(kernel, name)


@record
class Stein(Conditional):
    """Stein kernel: a target kernel for any continuous density with a method `log_prob`.

    With the scores s_p = ∇ log p of two predictions and a smooth kernel k, the centered kernel is

        ⟨s_p(y), s_q(z)⟩ k + ⟨s_p(y), ∇_z k⟩ + ⟨s_q(z), ∇_y k⟩ + tr ∇_y ∇_z k  at (y, z),

    whose expectations over Y ~ p and over Z ~ q are zero. So it needs neither expectations in
    closed form nor normalising constants. It is sensitive to the slope of the log-density, as in
    tails, rather than to the distribution function.

    For positive targets k(y, z) is replaced by y z k(y, z), and for proportions by y (1 − y) z (1 −
    z) k(y, z). Then the expectations vanish even if the density does not vanish at the ends of its
    support. The attribute `support` of the predictions selects the form; without it the targets are
    real numbers or vectors.

    It has no values without predictions. Use it as target kernel of a `TensorProduct`; sums and
    multiples are supported, products with other target kernels are not.

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

    kernel: Kernel = part(_smooth, default=SquaredExponential(1.0))
