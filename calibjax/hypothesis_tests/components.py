"""Three components of the squared kernel calibration error, and one test that combines them.

Write n SKCE_b = D + (n − 1) SKCE_u, where D is the mean of the diagonal h((p_i, y_i), (p_i, y_i)).
SKCE_u, the mean off the diagonal, is large if similar predictions share the same error: in their
means or, to a lesser extent, in anything else that the target kernel detects. D is a kernel score
with a known mean under calibration. It exceeds this mean if the targets scatter more than
predicted, and is **below** it if they scatter less. A small D makes SKCE_b smaller than its
redraws, so the biased SKCE alone is blind to predictions that are too wide. Therefore D is tested
two-sided.

The p-value of a component is the rank of the observed value in a pool with its B draws. These are
exchangeable under calibration, so the rank is uniform, even after a transformation that is
symmetric in all B + 1 values.
"""

import dataclasses
import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Literal, TypeVar, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import PyTree, record

Array = TypeVar("Array", np.ndarray, jax.Array)


def tolerance(statistic: ArrayLike, null_samples: Array, xp: ModuleType = jnp) -> Array:
    """Largest difference that counts as a tie, for rounding errors of equal data sets."""
    size = xp.where(xp.isfinite(null_samples), xp.abs(null_samples), 0)
    sizes = xp.where(xp.isfinite(statistic), xp.abs(statistic), 0)
    # The median, because a few large draws do not affect the rounding errors of the others.
    return 100 * xp.finfo(null_samples.dtype).eps * xp.maximum(xp.median(size, 0), sizes)


def _module_of(*values: object) -> ModuleType:
    """NumPy for concrete values, which needs no compilation; JAX for traced values."""
    return np if checks.is_concrete(*values) else jnp


def as_arrays(tree: PyTree) -> PyTree:
    """JAX arrays; NumPy arrays are transferred together."""
    return jax.device_put(tree) if checks.is_concrete(tree) else tree


def simulated_pvalue(statistic: Any, null_samples: Any) -> Any:
    """Monte Carlo p-value (1 + #{T_b ≥ T}) / (B + 1).

    Differences within rounding errors count as ties. If the statistic is NaN, so is the p-value;
    null samples that are NaN count against rejection.

    Args:
        statistic: T, of any shape.
        null_samples: T_b, [B, ...].

    Returns:
        The p-values, in [1 / (B + 1), 1], of the shape of T.
    """
    xp: Any = _module_of(statistic, null_samples)
    null_samples, statistic = xp.asarray(null_samples), xp.asarray(statistic)
    count = xp.sum(~(null_samples < statistic - tolerance(statistic, null_samples, xp)), 0)
    pvalue = (1 + count).astype(null_samples.dtype) / (null_samples.shape[0] + 1)
    return xp.where(xp.isnan(statistic), xp.nan, pvalue).astype(null_samples.dtype)


def standardised(pool: Array, values: Array | None = None) -> Array:
    """Deviations from the mean of a pool, in units of its standard deviation.

    Args:
        pool: observed value and draws, [B + 1, ...].
        values: values to standardise instead of those of the pool.

    Returns:
        The scores, of the same shape. Mean and standard deviation are taken over finite values;
        infinite values and NaN stay. Values that differ only by rounding errors have the score
        zero.
    """
    xp: Any = _module_of(pool, values)
    moments = _moments(pool, xp.isfinite(pool), xp)
    return _scores(pool if values is None else values, *moments, xp)


def _moments(pool: Array, where: Array, xp: ModuleType) -> tuple[Any, Any]:
    """Mean and standard deviation, zero if values differ only by rounding errors."""
    number = xp.maximum(xp.sum(where, 0), 1).astype(pool.dtype)
    mean = xp.sum(xp.where(where, pool, 0), 0) / number
    spread = xp.sqrt(xp.sum(xp.square(xp.where(where, pool - mean, 0)), 0) / number)
    return mean, xp.where(spread > _rounding(pool, where, xp), spread, 0)


def _rounding(pool: Array, where: Array, xp: ModuleType) -> Array:
    size = xp.max(xp.abs(pool), 0, initial=0, where=where)
    return 100 * xp.finfo(pool.dtype).eps * size


def _scores(pool: Array, mean: Array, spread: Array, xp: ModuleType) -> Array:
    is_finite = xp.isfinite(pool)
    deviations = xp.where(is_finite & (spread != 0), pool, mean) - mean
    return xp.where(is_finite, deviations / xp.where(spread == 0, 1, spread), pool)


def _typical(pool: Array, xp: ModuleType) -> tuple[Any, Any]:
    """Mean and standard deviation of a pool without its largest value.

    They are symmetric in all values, and do not grow with an observed value far above all draws. If
    only the largest value differs from the others, it is included.
    """
    is_finite = xp.isfinite(pool)
    largest = xp.argmax(xp.where(is_finite, pool, -xp.inf), 0)
    is_other = is_finite & (xp.arange(pool.shape[0])[:, None] != largest)
    mean, spread = _moments(pool, is_finite, xp)
    other_mean, other_spread = _moments(pool, is_other, xp)
    differ = other_spread > 0
    return xp.where(differ, other_mean, mean), xp.where(differ, other_spread, spread)


def tied(pool: Array, rounding: Array) -> Array:
    """Pool in which values within rounding of the observed value are set equal to it.

    Use it before transforming values that are ranked: differences, roots and standard scores have
    larger rounding errors than the sums.

    Args:
        pool: observed value and draws, [B + 1, ...].
        rounding: size of the rounding errors, [...].
    """
    return _module_of(pool).where(abs(pool - pool[0]) <= rounding, pool[0], pool)


def _joined(statistic: PyTree, null_samples: PyTree, xp: ModuleType) -> Any:
    """Observed value and draws of all statistics, [B + 1, K].

    All B + 1 values are exchangeable under calibration.
    """
    pools = [
        xp.concatenate([xp.asarray(t, d.dtype)[None], d]).reshape(d.shape[0] + 1, -1)
        for t, d in zip(*map(jax.tree.leaves, (statistic, null_samples)), strict=True)
    ]
    return xp.concatenate([x.astype(xp.result_type(*pools)) for x in pools], 1)


def _split(values: Any, statistic: PyTree, xp: Any) -> PyTree:
    """Values [K] in the tree and the shapes of the statistics."""
    leaves, structure = jax.tree.flatten(statistic)
    parts = xp.split(values, np.cumsum(list(map(jnp.size, leaves)))[:-1])
    parts = [part.reshape(jnp.shape(leaf)) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, parts)


def largest_scores(statistic: PyTree, null_samples: PyTree) -> np.ndarray:
    """Largest standardised statistic of the observed data set, then of the redraws, [B + 1].

    The rank of entry b is the smallest of the `adjusted_pvalues` of data set b. Takes concrete
    arrays, for NumPy.
    """
    statistic, null_samples = jax.tree.map(np.asarray, (statistic, null_samples))
    pool = _joined(statistic, null_samples, np)
    return _scores(pool, *_typical(pool, np), np).max(1)


def adjusted_pvalues(statistic: PyTree, null_samples: PyTree) -> PyTree:
    """p-values of several statistics, adjusted for multiple testing by the max-T procedure.

    Each statistic is standardised over the pool of the observed and the drawn values, without its
    largest value. Its adjusted p-value is its rank among the largest standardised statistics of the
    draws. Under calibration the probability that any of them is ≤ α is at most α, for every number
    of draws and every dependence.

    Args:
        statistic: array, or pytree of arrays.
        null_samples: draws, [B, ...] each, in the same pytree.

    Returns:
        p-values in the same pytree.

    References: Westfall and Young (1993), single-step max T.
    """
    xp: Any = _module_of(statistic, null_samples)
    pool = _joined(statistic, null_samples, xp)
    scores = _scores(pool, *_typical(pool, xp), xp)
    pvalues = simulated_pvalue(scores[0], scores[1:].max(1, keepdims=True))
    pvalues = xp.where(xp.any(xp.isnan(pool[0])), xp.nan, pvalues)  # the largest is unknown
    return _split(pvalues, statistic, xp)


def critical_values(
    statistic: PyTree, null_samples: PyTree, *, level: float, adjust: bool
) -> PyTree:
    """Largest statistics whose p-values exceed the level, in the same pytree.

    Takes concrete arrays, for NumPy, which is faster than compiling.

    Args:
        statistic: array, or pytree of arrays.
        null_samples: draws, [B, ...] each, in the same pytree.
        level: in (0, 1); the result is infinite if B is too small to reject at this level.
        adjust: whether to use `adjusted_pvalues` instead of `simulated_pvalue`.
    """
    statistic, null_samples = jax.tree.map(np.asarray, (statistic, null_samples))
    pool = _joined(statistic, null_samples, np)
    mean, spread = _typical(pool, np) if adjust else (np.zeros((), pool.dtype), pool.dtype.type(1))
    scores = _scores(pool, mean, spread, np)[1:]
    draws = scores.max(1, keepdims=True) if adjust else scores
    rank = math.floor(level * len(pool) + 1e-9)
    last = np.sort(draws, 0)[-rank] if rank else np.inf  # NaN counts against rejection
    last = np.where(np.isnan(last), np.inf, last + tolerance(last, draws, np))
    rounding = _rounding(pool, np.isfinite(pool), np)
    limit = mean + np.where(spread == 0, rounding, np.where(spread == 0, 1, spread) * last)
    return _split(limit, statistic, np)


Statistic = Literal["omnibus", "biased", "unbiased", "dispersion"]
STATISTICS = get_args(Statistic)
_TIED = 1e-4  # relative difference that a change of units may cause
_ALONE = "kernels in no group"
ALIKE = "similar predictions share the same error"
OF_CLASSES = "overconfident", "underconfident"  # of a positive, and of a negative score
OF_NUMBERS = "predictions too narrow", "predictions too wide"
_SHOWN = 3  # printed groups, or kernels of one group
_PAIRS, _DIAGONAL = 1000, 32  # rounding errors, in units of the last place of D / n and of D


@record
class Component:
    """One component of a test, with its own exact p-value.

    Attributes:
        statistic: value of the component.
        z: standardised cube root of the value (signed), with mean and standard deviation over the
            observed value and the draws.
        pvalue: p-value of the component alone, in (0, 1].
        null_samples: draws of the value under calibration, [num_draws].
    """

    statistic: jax.Array
    z: jax.Array
    pvalue: jax.Array
    null_samples: jax.Array


@record
class SKCEComponents:
    """The components of an exact SKCE test.

    Their p-values are not adjusted for multiple testing; `CalibrationTestResult.pvalue` accounts
    for it.

    Attributes:
        biased: SKCE_b, wrong means and predictions that are too narrow; p-value for
            large values.
        unbiased: SKCE_u, errors that similar predictions share, above all of the mean; hardly
            predictions that are only too wide or too narrow; p-value for large values.
        dispersion: D, the mean of h on the diagonal; two-sided p-value. z is positive if the
            targets scatter more than predicted (predictions too narrow, overconfident), and
            negative if they scatter less (too wide, underconfident). `composite_calibration_test`
            measures each draw from its expectation under its own fit.
        num_targets: n.
        ranked: statistic that the test ranks, one of `STATISTICS`.
        family: tree of kernels of `aggregated_skce_test`. All other attributes of the components
            then have a last axis [K] in the order of `kernel_names`.
        squares: for a family, whether only the biased SKCE of the kernel is ranked, [K]. This holds
            for residuals of normal scores with a `Constant` or `Regressor`, whose biased SKCE is
            the square of a sum.
        direction_scores: for a family, signed errors of the targets in standard errors; zero for
            kernels without a direction, [K].
        directions: for a family, descriptions of positive and negative direction scores, and of
            positive and negative z of the dispersion, [K].
    """

    biased: Component
    unbiased: Component
    dispersion: Component
    num_targets: jax.Array | int
    ranked: str = dataclasses.field(metadata={"static": True})
    family: Any = dataclasses.field(default=None, metadata={"static": True})
    squares: tuple[bool, ...] = dataclasses.field(default=(), metadata={"static": True})
    direction_scores: jax.Array | None = None
    directions: tuple[Any, ...] = dataclasses.field(default=(), metadata={"static": True})

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """Keys or indices of the kernels of a family."""
        names = (jax.tree_util.keystr(x, simple=True, separator=", ") for x in self._paths())
        return tuple(name or "kernel" for name in names)

    def _paths(self) -> list[Any]:
        """Paths of the kernels in the tree."""
        if self.family is None:
            raise ValueError("family: expected the components of several kernels, got those of one")
        numbered = jax.tree.unflatten(self.family, range(self.family.num_leaves))
        return [path for path, _ in jax.tree_util.tree_leaves_with_path(numbered)]

    @property
    def groups(self) -> dict[str, tuple[int, ...]]:
        """Indices of the kernels of each group.

        Each container in the outermost container is a group. The other kernels form the group
        "kernels in no group".
        """
        groups: dict[str, list[int]] = {}
        for place, path in enumerate(self._paths()):
            name = jax.tree_util.keystr(path[:1], simple=True)
            groups.setdefault(name if len(path) > 1 else _ALONE, []).append(place)
        return {name: tuple(places) for name, places in groups.items()}

    @property
    def largest_kernel(self) -> str:
        """Name of the kernel with the largest z; the first in a tie."""
        return self.kernel_names[self._largest_of(range(len(self.kernel_names)))]

    @property
    def largest_direction(self) -> str:
        """Name of the kernel with a direction whose biased SKCE has the largest z, or ""."""
        scores = np.where(np.asarray(self.direction_scores) != 0, self.biased.z, -np.inf)
        return self.kernel_names[int(np.argmax(scores))] if np.any(self.direction_scores) else ""

    def direction_of(self, kernel: str) -> str:
        """Description of the error that one kernel of a family detects.

        Examples: "overconfident: temperature", "class 3 too probable", "predictions too small:
            shift", "predictions too wide". It describes the component with the largest z; the
            adjusted p-value of the kernel gives the confidence. For `largest_direction` it
            describes the sum of the scores.
        """
        place = self.kernel_names.index(checks.choice("kernel", kernel, self.kernel_names))
        positive, negative, *of_dispersion = self.directions[place]
        one, score = self.of_kernel(kernel), float(np.asarray(self.direction_scores)[place])
        if one.largest == "dispersion" and kernel != self.largest_direction:
            return of_dispersion[float(one.dispersion.z) < 0]
        return (positive if score > 0 else negative) if score else ALIKE

    def _largest_of(self, places: Sequence[int]) -> int:
        """Index of the largest z; the first in a tie."""
        scores = np.max(list(self._largest_z().values()), 0)[np.array(places)]
        return int(places[int(np.argmax(scores >= (1 - _TIED) * np.max(scores)))])

    def _largest_z(self) -> dict[str, Any]:
        """The z of each component, in absolute value for the dispersion."""
        others = np.asarray(self.unbiased.z), np.abs(np.asarray(self.dispersion.z))
        if self.squares:
            others = (np.where(self.squares, -np.inf, score) for score in others)
        return dict(zip(STATISTICS[1:], (np.asarray(self.biased.z), *others), strict=True))

    def of_kernel(self, name: str) -> "SKCEComponents":
        """The components of one kernel of a family."""
        place = self.kernel_names.index(checks.choice("name", name, self.kernel_names))
        parts = self.biased, self.unbiased, self.dispersion
        biased, unbiased, dispersion = jax.tree.map(lambda leaf: leaf[..., place], parts)
        options = self.num_targets, self.ranked, None, self.squares[place : place + 1]
        return SKCEComponents(biased, unbiased, dispersion, *options)

    @property
    def largest(self) -> str:
        """Name of the component with the largest z (in absolute value for the dispersion)."""
        scores = {name: float(np.max(score)) for name, score in self._largest_z().items()}
        return max(scores, key=scores.__getitem__)

    def described(self, adjusted: Sequence[Any] = ()) -> str:
        """Description of concrete components, or of the largest groups, one line each.

        Groups have the adjusted p-values of their largest kernels.
        """
        if self.family is not None:
            return self._largest_groups(adjusted)
        is_wider = float(self.dispersion.z) > 0
        ends = ("more", OF_CLASSES[0]) if is_wider else ("less", OF_CLASSES[1])
        words = {
            "biased": "wrong means, or too narrow",
            "unbiased": "errors shared by similar predictions",
            "dispersion": "targets scatter {}: {}".format(*ends),
        }
        width = max(map(len, words.values()))
        lines = []
        for name, text in words.items():
            part = getattr(self, name)
            mark = " <- largest" if name == self.largest else ""
            numbers = f"unadjusted p = {float(part.pvalue):<7.2g} z = {float(part.z):+.1f}"
            lines.append(f"  {name:10}  {text:{width}}  {numbers}{mark}")
        return "\n".join(lines)

    def _largest_groups(self, adjusted: Sequence[Any]) -> str:
        """One line for each of the three groups, or kernels of one group, with the largest z.

        Each line names the direction of the largest kernel, if it is known.
        """
        names, scores = self.kernel_names, np.max(list(self._largest_z().values()), 0)
        largest = [self._largest_of(places) for places in self.groups.values()]
        chosen = largest if len(largest) > 1 else range(len(names))
        lines = []
        for i in sorted(chosen, key=lambda place: -scores[place])[:_SHOWN]:
            one = self.of_kernel(names[i])
            words = self.direction_of(names[i]) if self.directions else one.largest
            z = float(getattr(one, one.largest).z)
            numbers = f"adjusted p = {float(adjusted[i]):.2g}, z = {z:+.1f}"
            lines.append(f"  {names[i]}: {words}, {numbers}")
        return "\n".join(lines)


def skce_components(
    unbiased: jax.Array,
    diagonal: jax.Array,
    *,
    num_targets: jax.Array | int,
    ranked: str,
    dispersion: jax.Array | None = None,
    family: Any = None,
    squares: tuple[bool, ...] = (),
) -> tuple[jax.Array, SKCEComponents]:
    """Components of a pool, and the statistic to rank.

        C₁ = z(∛(n SKCE_b)),   C₂ = z(∛(D̄ + (n − 1) SKCE_u)),   C₃ = |z(∛D)|,

    where z standardises over the pool and D̄ is the mean of D over it. The cube roots make the
    distributions similarly symmetric, so no component dominates. The omnibus statistic is the
    largest of the three. It is symmetric in the observed value and the draws, so its rank is exact.

    Args:
        unbiased: SKCE_u, observed value first, [B + 1] or [B + 1, 1], or [B + 1, K] for several
            kernels.
        diagonal: D, of the same shape.
        num_targets: n.
        ranked: one of `STATISTICS`.
        dispersion: replaces D in C₃ if the expectation of D varies over the pool; of the same
            shape.
        family: tree of several kernels.
        squares: see `SKCEComponents`; the omnibus statistic of these kernels is C₁.

    Returns:
        The pool of the statistic, of the same shape, and the components.
    """
    xp: Any = _module_of(unbiased, diagonal, dispersion, num_targets)
    unbiased, diagonal, dispersion = jax.tree.map(xp.asarray, (unbiased, diagonal, dispersion))
    n = xp.asarray(num_targets, diagonal.dtype)
    if family is None:
        unbiased, diagonal = unbiased.reshape(-1), diagonal.reshape(-1)
    # Equal data sets tie in any order of their samples, although sums off the diagonal cancel.
    size = xp.max(xp.abs(diagonal), 0, where=xp.isfinite(diagonal), initial=0)
    digit = xp.finfo(diagonal.dtype).eps * size
    unbiased, diagonal = tied(unbiased, _PAIRS * digit / n), tied(diagonal, _DIAGONAL * digit)
    off_diagonal = (n - 1) * unbiased
    typical = _moments(diagonal, xp.isfinite(diagonal), xp)[0]
    both = standardised(xp.cbrt(off_diagonal + diagonal))
    mean_only = standardised(xp.cbrt(off_diagonal + typical))
    dispersion = diagonal if dispersion is None else tied(dispersion, _DIAGONAL * digit)
    scatter = standardised(xp.cbrt(dispersion))
    biased = (off_diagonal + diagonal) / n
    omnibus = xp.maximum(xp.maximum(both, mean_only), xp.abs(scatter))
    statistics = {
        "omnibus": xp.where(np.array(squares), both, omnibus) if any(squares) else omnibus,
        "biased": biased,
        "unbiased": unbiased,
        "dispersion": xp.abs(scatter),
    }

    def component(values: Any, z: Any, ranks: Any) -> Component:
        parts = values[0], z[0], simulated_pvalue(ranks[0], ranks[1:]), values[1:]
        return Component(*parts)

    values = (biased, both, biased), (unbiased, mean_only, unbiased)
    values = *values, (dispersion, scatter, xp.abs(scatter))
    components = [component(*each) for each in values]
    ranks, (first, second, third) = as_arrays((statistics[ranked], components))
    return ranks, SKCEComponents(first, second, third, num_targets, ranked, family, squares)
