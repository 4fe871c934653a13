"""Kernels, their algebra (sums, products, tensor products), kernels on labels, and matrices."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._core import arithmetic, checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.gate import Seen, checked
from calibjax._core.pytree import PyTree, T, parameter, part, record
from calibjax.distances import Distance
from calibjax.distributions import Ensemble, Mixture
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare
from calibjax.distributions.constraints import positive
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.kernels import expectations

Interval = tuple[jax.Array | float, jax.Array | float]  # a lower and an upper bound


def _product_of_intervals(one: Interval, other: Interval) -> Interval:
    corners = jnp.stack([jnp.asarray(x * y) for x in one for y in other])
    return jnp.min(corners), jnp.max(corners)


def _with_scalar_values(call: Callable[..., Any]) -> Callable[..., Any]:
    """Function of a kernel that refuses values that are not scalars."""

    @functools.wraps(call)
    def checked(self: "Kernel", x: object, y: object) -> jax.Array:
        value = call(self, x, y)
        if shape := jnp.shape(value):
            got = f"a scalar at one pair of points, got shape {shape}"
            raise ValueError(f"kernel {type(self).__name__}: expected {got}")
        return value

    return checked


class Kernel:
    """A positive semi-definite function of two points.

    Subclasses are records that define `__call__(x, y)` for one pair of points. Hyperparameters are
    fields `parameter(constraint)`, which are checked by their constraints. Subclasses may also
    define

    - `check_values(name)`: further checks of the hyperparameters. It raises a `ValueError` if they
      are invalid, and returns the kernel, with NaN for invalid traced ones,
    - `value_range()`: a lower and an upper bound of the values,
    - `squared_diameter()`: a bound of k(x, x) + k(y, y) − 2 k(x, y), if it is better than the one
      from `value_range`,
    - `diagonal`: an attribute, the value k(x, x) if it is equal for all x,
    - `operator(predictions)`: the matrix of a kernel on predictions, a record of
      `operators.kernel_matrix.Operator`, if products with it are faster than all its values; or
      `factor(predictions)`, [n, s], if k(p_i, p_j) = ⟨F_i, F_j⟩ for its rows.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]  # made by `record`

    diagonal: Any = None  # if it were a ClassVar, no property could override it

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__call__" in vars(cls):
            cls.__call__ = _with_scalar_values(cls.__call__)

    def __call__(self, x: PyTree, y: PyTree) -> jax.Array:
        """Value of the kernel at one pair of points, a scalar."""
        raise NotImplementedError(f"kernel {type(self).__name__} does not define __call__(x, y)")

    def value_range(self) -> Interval:
        """Lower and upper bound of the values; the interval need not be the smallest one.

        Sums, products and multiples combine the intervals of their parts.

        >>> from calibjax import kernels
        >>> print((2.0 * kernels.Exponential() + kernels.White()).value_range())
        (0.0, 3.0)
        """
        raise NotImplementedError(f"kernel {type(self).__name__} does not define value_range()")

    def squared_diameter(self) -> jax.Array | float:
        """Bound of k(x, x) + k(y, y) − 2 k(x, y), the squared distance of two features."""
        lower, upper = self.value_range()
        return 2 * (upper - lower)

    def double_expectation(self, p: Distribution, q: Distribution) -> jax.Array:
        """E_{Z~p, Z'~q} k(Z, Z'); see `calibjax.kernels.expectations.double_expectation`."""
        return expectations.double_expectation(self, p, q)

    def __add__(self, other: "Kernel") -> "Kernel":
        return Sum((self, other)) if isinstance(other, Kernel) else NotImplemented

    def __radd__(self, other: object) -> "Kernel":
        # sum([k1, k2]) starts from 0.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, other: Any) -> "Kernel":
        if isinstance(other, Kernel):
            return Product((self, other))
        if isinstance(other, int | float) or getattr(other, "ndim", None) == 0:
            return Scaled(other, self)
        return NotImplemented

    __rmul__ = __mul__


class Conditional(Kernel):
    """Target kernel that depends on the predictions of its targets, such as `Stein`.

    It has no values without predictions. Use it as target kernel of a `TensorProduct`; sums and
    multiples are supported, products with other target kernels are not.
    """

    def __call__(self, x: PyTree, y: PyTree) -> jax.Array:
        """Not defined without predictions."""
        name = type(self).__name__
        raise NotImplementedError(f"{name} has no values outside of TensorProduct(..., {name}())")


def without_draws(predictions: Any) -> PyTree:
    """Predictions for kernels on predictions: without added draws or indices."""
    return checks.unnumbered(bare(predictions, MonteCarlo))


def prediction_kernel(kernel: Kernel, p: Distribution, q: Distribution) -> jax.Array:
    """Value of a kernel on predictions at two predictions."""
    return kernel(without_draws(p), without_draws(q))


def _each(kernels: Any, name: str) -> tuple[Kernel, ...]:
    """Checked kernels of a sum or a product."""
    return tuple(checks.kernel_or_function(kernel, name) for kernel in kernels)


@record
class Sum(Kernel):
    """Sum of kernels, made by `k1 + k2`.

    >>> from calibjax.kernels import SquaredExponential
    >>> print((SquaredExponential(1.0) + SquaredExponential(2.0))(1.0, 1.0))
    2.0
    """

    terms: tuple[Kernel, ...] = part(_each)

    def combination(self) -> list[tuple[Any, Kernel]]:
        """Factors and kernels of the linear combination."""
        return [(None, term) for term in self.terms]

    def __call__(self, x: PyTree, y: PyTree) -> jax.Array:
        """Sum of the values of the terms."""
        first, *others = (kernel(x, y) for kernel in self.terms)
        return sum(others, 0 + first)  # from 0, to turn truth values into numbers

    def value_range(self) -> Interval:
        """Sum of the bounds of the terms."""
        lower, upper = zip(*(term.value_range() for term in self.terms), strict=True)
        return sum(lower), sum(upper)


@record
class Product(Kernel):
    """Product of kernels, made by `k1 * k2`.

    >>> from calibjax.kernels import Exponential, SquaredExponential
    >>> print((SquaredExponential(1.0) * Exponential(1.0))(2.0, 2.0))
    1.0
    """

    factors: tuple[Kernel, ...] = part(_each)

    @property
    def diagonal(self) -> jax.Array | float | None:
        """Product of the diagonals of the factors, if they all have one."""
        values = [kernel.diagonal for kernel in self.factors]
        return None if any(value is None for value in values) else math.prod(values)

    def __call__(self, x: PyTree, y: PyTree) -> jax.Array:
        """Product of the values of the factors."""
        first, *others = (kernel(x, y) for kernel in self.factors)
        return math.prod(others, start=1 * first)  # from 1, for the same reason

    def value_range(self) -> Interval:
        """Bounds of the products of values of the factors."""
        return functools.reduce(_product_of_intervals, (k.value_range() for k in self.factors))


@record
class Scaled(Kernel):
    """Positive multiple of a kernel, made by `factor * kernel`.

    >>> from calibjax.kernels import SquaredExponential
    >>> print((0.5 * SquaredExponential(1.0))(1.0, 1.0))
    0.5
    """

    factor: jax.Array | float = parameter(positive)
    kernel: Kernel = part(checks.kernel_or_function)

    def combination(self) -> list[tuple[Any, Kernel]]:
        """Factors and kernels of the linear combination."""
        return [(self.factor, self.kernel)]

    def __call__(self, x: PyTree, y: PyTree) -> jax.Array:
        """Multiple of the value of the kernel."""
        return self.factor * self.kernel(x, y)

    def value_range(self) -> Interval:
        """Multiple of the bounds of the kernel."""
        lower, upper = self.kernel.value_range()
        return self.factor * lower, self.factor * upper


@record
class Constant(Kernel):
    """Kernel with the same value everywhere.

    As a kernel on predictions it makes tests sensitive to errors that all predictions share.

    >>> print(Constant()(0.0, 5.0))
    1.0
    """

    value: jax.Array | float = parameter(positive, default=1.0)

    @property
    def diagonal(self) -> jax.Array | float:
        """The value."""
        return self.value

    def __call__(self, x: PyTree, y: PyTree) -> jax.Array:
        """The value."""
        del x, y
        return jnp.asarray(self.value)

    @jax.jit
    def factor(self, predictions: Distribution) -> jax.Array:
        """Features of a batch of predictions, [n, 1]: the root of the value."""
        n, dtype = checks.leading_size("predictions", predictions), floating_dtype(predictions)
        return jnp.full((n, 1), self.value**0.5, dtype)

    def value_range(self) -> Interval:
        """The value, twice."""
        return self.value, self.value


@record
class TensorProduct(Kernel):
    """Kernel on pairs, k((p, y), (q, z)) = k_P(p, q) k_Y(y, z).

    Attributes:
        prediction: kernel k_P on predictions.
        target: kernel k_Y on targets.

    References: W21 §3.2 and App. D.

    >>> import jax.numpy as jnp
    >>> from calibjax.distances import Wasserstein
    >>> from calibjax.distributions import Normal
    >>> from calibjax.kernels import Exponential, SquaredExponential
    >>> kernel = TensorProduct(Exponential(1.0, Wasserstein()), SquaredExponential(1.0))
    >>> p = Normal(jnp.array(0.0), jnp.array(1.0))
    >>> print(kernel((p, 0.5), (p, 0.5)))
    1.0
    """

    prediction: Kernel = part(checks.kernel_or_function)
    target: Kernel = part(checks.kernel_or_function)

    def __call__(self, x: tuple[Any, Any], y: tuple[Any, Any]) -> jax.Array:
        """Value at the pairs x = (p, y) and y = (q, z)."""
        if not all(isinstance(point, tuple | list) and len(point) == 2 for point in (x, y)):
            raise TypeError("kernel: expected a kernel on single points, got TensorProduct")
        return prediction_kernel(self.prediction, x[0], y[0]) * self.target(x[1], y[1])

    def calibration_kernel(
        self, p: Distribution, y: ArrayLike, q: Distribution, z: ArrayLike
    ) -> jax.Array:
        """Calibration kernel at two samples; see `calibjax.estimators.calibration_kernel`."""
        value = prediction_kernel(self.prediction, p, q)
        return value * expectations.centered_kernel(self.target, p, y, q, z)

    def expected_diagonal(self, p: Distribution) -> jax.Array:
        """E h((p, Y), (p, Y)) for Y ~ p."""
        value = prediction_kernel(self.prediction, p, p)
        return value * expectations.centered_norm(self.target, p)

    def embedding_difference(
        self, t: Distribution, s: ArrayLike, p: Distribution, y: ArrayLike
    ) -> jax.Array:
        """k((t, s), (p, y)) − E k((t, s), (p, Z)) for Z ~ p at a test location (t, s)."""
        difference = self.target(s, y) - expectations.single_expectation(self.target, p, s)
        return prediction_kernel(self.prediction, t, p) * difference

    def calibration_kernel_bound(self) -> jax.Array | float:
        """Bound of |h|; see `calibjax.hypothesis_tests.distribution_free_skce_test`."""
        spread = expectations.combine(self.target, lambda term: term.squared_diameter())
        return self.prediction.value_range()[1] * spread


def combine_on_pairs(kernel: Kernel, method: str, function: Callable[[Any], Any]) -> PyTree:
    """Σ c function(k.method) over the terms of a kernel on pairs (prediction, target)."""

    def of_term(term: object) -> PyTree:
        if not hasattr(term, method):
            got = f"kernel {type(term).__name__}; expected TensorProduct"
            raise NotImplementedError(f"{method} is not defined for {got}")
        return function(getattr(term, method))

    return expectations.combine(kernel, of_term)


@record
class White(Kernel):
    """White kernel δ_{yz}: one if the two targets are equal, zero otherwise.

    Combined with a kernel k_P on predictions, this is W19's matrix-valued kernel k_P(p, q) I.

    >>> print(White()(1, 1), White()(0, 1))
    1.0 0.0
    """

    diagonal = 1.0

    def __call__(self, y: jax.Array, z: jax.Array) -> jax.Array:
        """Whether all entries of y and z are equal, as a number."""
        return jnp.all(jnp.equal(y, z)) * 1.0

    def label_scales(self, probs: jax.Array) -> jax.Array:
        """Factors of the entries of e_y − p in the features for classes, [..., m]."""
        return jnp.ones_like(probs)

    def value_range(self) -> Interval:
        """From 0 to 1."""
        return 0.0, 1.0


def _semidefinite(value: Any, name: str) -> Any:
    """A matrix [m, m], refused or NaN if it is not symmetric positive semi-definite."""
    matrix = checks.finite(name, checks.floating(name, checks.as_arrays(name, value)))
    checks.shape(name, matrix, matrix.shape[:1] * 2 or (None, None), "[m, m]")
    expected = "a symmetric positive semi-definite matrix"
    return checks.satisfying(name, matrix, _is_semidefinite, expected)


@jax.jit
def _is_semidefinite(matrix: jax.Array) -> jax.Array:
    matrix = lax.stop_gradient(matrix)
    size = jnp.maximum(jnp.max(jnp.abs(matrix)), 1e-30)
    tolerance = len(matrix) * jnp.finfo(matrix.dtype).eps * size
    is_symmetric = jnp.max(jnp.abs(matrix - matrix.T)) <= tolerance
    # No LAPACK: several batched calls in one program may deadlock.
    root = arithmetic.cholesky(matrix + 10 * tolerance * jnp.eye(len(matrix), dtype=matrix.dtype))
    return is_symmetric & jnp.all(jnp.diagonal(root) > 0)


@record
class LabelKernel(Kernel):
    """Kernel on class labels given by its matrix, k(y, z) = A[y, z].

    Combined with a kernel k_P on predictions, this is W19's matrix-valued kernel k_P(p, q) A.

    Attributes:
        matrix: A, symmetric positive semi-definite, [m, m].

    Traced labels outside 0, ..., m − 1 give NaN.

    >>> import jax.numpy as jnp
    >>> print(LabelKernel(jnp.array([[1.0, 0.5], [0.5, 1.0]]))(0, 1))
    0.5
    """

    matrix: jax.Array = part(_semidefinite)

    def __call__(self, y: jax.Array, z: jax.Array) -> jax.Array:
        """Entry of the matrix for labels y and z."""
        matrix = jnp.asarray(self.matrix)
        y, z = (x.astype(int) if x.dtype == bool else x for x in map(jnp.asarray, (y, z)))
        return matrix.at[y, z].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)

    def value_range(self) -> Interval:
        """Smallest and largest entry."""
        return jnp.min(self.matrix), jnp.max(self.matrix)

    def squared_diameter(self) -> jax.Array:
        """Largest A[y, y] + A[z, z] − 2 A[y, z]."""
        diagonal = jnp.diagonal(self.matrix)
        return jnp.max(diagonal[:, None] + diagonal - 2 * self.matrix)


def checked_labels(kernel: object, name: str, points: Any) -> PyTree:
    """Points of a kernel, checked for valid labels if it contains a kernel on labels.

    Traced labels out of range give NaN in `LabelKernel`.
    """
    is_labels = hasattr(points, "dtype") and jnp.issubdtype(points.dtype, jnp.integer)
    whole = lambda x: isinstance(x, LabelKernel | Distance)  # noqa: E731
    for kernel_part in jax.tree.leaves(kernel, is_leaf=whole) if is_labels else ():
        if isinstance(kernel_part, LabelKernel):
            points = checks.labels(name, points, len(kernel_part.matrix))
    return points


def _points(name: str, value: Any, seen: Seen) -> PyTree:
    """Points of a kernel, of the kind of earlier points."""
    value = checked_labels(seen["kernel"], name, checks.points(name, value))
    if name == "ys":  # numbers of components or of draws may differ
        num_axes = 2 if isinstance(value, Mixture | Ensemble) else 1
        checks.same_kind("ys", value, "xs", seen["xs"], num_axes=num_axes)
    return value


def _function(name: str, value: Any, _: Seen) -> Any:
    """Function of two points, possibly a record."""
    checks.function("kernel record", name, value)
    return checks.record_values(value, name)


@checked(kernel=_function, xs=_points, ys=_points)
def gram_matrix(kernel: Callable[[T, T], jax.Array], xs: T, ys: T | None = None) -> jax.Array:
    """Matrix of kernel values K_ij = k(x_i, y_j).

    Args:
        kernel: a kernel, or any function of two points such as a distance.
        xs: n points: an array or any pytree (a batch of distributions) with leading axis n.
        ys: n' points; `xs` by default.

    Returns:
        The matrix, [n, n'].

    Raises:
        TypeError: if the kernel is not a function of two points, or the points are not numbers.
        ValueError: if the points have no common leading axis, are not finite, or have invalid
            parameters, or if `ys` are of another kind.

    Cost: n n' evaluations and n n' memory. Estimators do not store this matrix.

    >>> import jax.numpy as jnp
    >>> from calibjax.kernels import SquaredExponential, gram_matrix
    >>> print(gram_matrix(SquaredExponential(), jnp.array([0.0, 1.0])))
    [[1.         0.60653067]
     [0.60653067 1.        ]]
    """
    ys = xs if ys is None else ys

    def entry(x: T, y: PyTree) -> jax.Array:
        value = checks.real("kernel(x, y)", kernel(x, y))
        checks.shape("kernel(x, y)", value, (), "() (a scalar)")
        return value

    rows = jax.vmap(entry, in_axes=(None, 0))
    return jax.vmap(rows, in_axes=(0, None))(xs, ys)
