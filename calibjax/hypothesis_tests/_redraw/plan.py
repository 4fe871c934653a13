"""How the kernels of a family are evaluated: by features, or by pairs."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, matmul
from calibjax.distances import Distance
from calibjax.distributions.base import Distribution
from calibjax.hypothesis_tests._redraw.family import (
    Alike,
    ByFeatures,
    ByPairs,
    Family,
    PredictionKernel,
    Statistic,
    ThroughLens,
    num_features,
    number_of,
    number_with_pairs,
)
from calibjax.kernels import Constant, Kernel, Nystrom, TensorProduct, pivoted_cholesky
from calibjax.kernels.base import prediction_kernel, without_draws
from calibjax.kernels.expectations import few_features, prepare_features
from calibjax.kernels.line import (
    Line,
    distance_of_exponentials,
    exponentials,
    is_same_distance,
    line_of,
)
from calibjax.kernels.regressors import Regressor

_FACTORED_FROM = 256  # predictions; for fewer all pairs are as cheap
_LARGEST_RANK = 512  # to look for more would take as long as a test by pairs


class Plan(NamedTuple):
    """How kernels are evaluated for targets that are redrawn.

    Attributes:
        predictions, targets, weights: the data.
        number: the number of samples n, the effective one if they have weights.
        family: evaluates all kernels.
    """

    predictions: Distribution
    targets: jax.Array
    weights: jax.Array | None
    number: jax.Array | int
    family: Family


def planned(
    members: Sequence[tuple[Any, Kernel]],
    predictions: Distribution,
    targets: jax.Array,
    weights: jax.Array | None,
) -> Plan:
    """The plan for kernels, (lens, kernel) each, and checked data."""
    n = number_of(predictions, None)
    n = n if weights is None else number_with_pairs(predictions, weights)
    return Plan(predictions, targets, weights, n, family_of(members, predictions, targets))


def family_of(
    members: Sequence[tuple[Any, Kernel]], predictions: Distribution, targets: ArrayLike
) -> Family:
    """Plans one pass for all kernels, (lens, kernel) each, of checked data.

    Kernels with the same lens share their features, if this data set has any; the others are
    evaluated by pairs.
    """
    planned: list[tuple[list[int], ThroughLens]] = []
    num_bytes = 0
    for lens, chosen in _distinct([lens for lens, _ in members]):
        seen: tuple[Any, Any] = (
            (predictions, targets) if lens is None else lens(predictions, targets)
        )
        for places, statistic in _statistics([members[i][1] for i in chosen], *seen):
            num_bytes = max(num_bytes, statistic.num_bytes(*seen))
            planned.append(([chosen[i] for i in places], ThroughLens(lens, statistic)))
    merged = _alike(planned, floating_dtype(predictions))
    places = [place for chosen, _ in merged for place in chosen]
    order = tuple(np.argsort(places).tolist())
    return Family(tuple(statistic for _, statistic in merged), order, num_bytes)


def _distinct(values: Sequence[Any]) -> list[tuple[Any, list[int]]]:
    """Different values, and where they are."""
    found: list[tuple[Any, list[int]]] = []
    for i, value in enumerate(values):
        for other, places in found:
            if _is_same(value, other):
                places.append(i)
                break
        else:
            found.append((value, [i]))
    return found


def _is_same(one: object, other: object) -> bool:
    """Whether two records are equal; arrays that are traced only if they are the same."""
    if jax.tree.structure(one) != jax.tree.structure(other):
        return False
    return all(
        x is y or (checks.is_concrete(x, y) and x.dtype == y.dtype and np.array_equal(x, y))
        for x, y in zip(*(map(jnp.asarray, jax.tree.leaves(t)) for t in (one, other)), strict=True)
    )


def _statistics(
    kernels: Sequence[Kernel], predictions: Distribution, targets: ArrayLike
) -> list[tuple[list[int], Statistic]]:
    """Statistics of kernels without lenses, and which kernels each of them evaluates."""
    products = {i: kernel for i, kernel in enumerate(kernels) if isinstance(kernel, TensorProduct)}
    target_kernels: list[tuple[Kernel, Any, bool]] = []  # with features, and whether these are few
    target_of: dict[int, int] = {}
    for kernel, chosen in _distinct([product.target for product in products.values()]):
        prepared = prepare_features(kernel, predictions, targets)
        if prepared is not None:
            target_of |= {list(products)[i]: len(target_kernels) for i in chosen}
            size = num_features(kernel, prepared, predictions, targets)
            target_kernels.append((kernel, prepared, size <= few_features(kernel, predictions)))
    prediction_kernels: list[PredictionKernel] = []
    featured: dict[int, tuple[int, int]] = {}
    lines = _Lines(predictions)
    for kernel, chosen in _distinct([products[i].prediction for i in target_of]):
        found_kernel = lines.kernel(kernel) or PredictionKernel(
            kernel, _factor(kernel, predictions)
        )
        for i in (list(target_of)[i] for i in chosen):
            if found_kernel.is_linear or target_kernels[target_of[i]][2]:
                featured[i] = len(prediction_kernels), target_of[i]
        prediction_kernels.append(found_kernel)
    found: list[tuple[list[int], Statistic]] = []
    if featured:
        featured_kernels, prepared, _ = zip(*target_kernels, strict=True)
        places = tuple(featured.values())
        by_features = ByFeatures(
            lines.found, tuple(prediction_kernels), featured_kernels, prepared, places
        )
        found.append((list(featured), by_features))
    return found + [([i], ByPairs(k)) for i, k in enumerate(kernels) if i not in featured]


class _Lines:
    """The lines on which predictions lie, as the distances of kernels see them."""

    def __init__(self, predictions: Distribution) -> None:
        self._predictions = predictions
        self._seen: list[tuple[Distance, int | None]] = []
        self.found: tuple[Line, ...] = ()

    def kernel(self, kernel: Kernel) -> PredictionKernel | None:
        """The kernel, if it is one of exponentials on a line."""
        distance = distance_of_exponentials(kernel)
        place = None if distance is None else self._place(distance)
        if place is None:
            return None
        dtype = self.found[place].positions.dtype
        return PredictionKernel(kernel, None, exponentials(kernel, dtype), place)

    def _place(self, distance: Distance) -> int | None:
        for other, place in self._seen:
            if is_same_distance(distance, other):
                return place
        line = line_of(distance, self._predictions)
        place = None if line is None else len(self.found)
        self._seen.append((distance, place))
        self.found += () if line is None else (line,)
        return place


def _factor(kernel: Kernel, predictions: Distribution) -> jax.Array | None:
    """Features of the matrix of a kernel on predictions, [n, s], if few determine it."""
    if isinstance(kernel, Constant | Nystrom | Regressor):
        return kernel.factor(without_draws(predictions))
    n = checks.leading_size("predictions", predictions)
    if n < _FACTORED_FROM or not checks.is_outermost(kernel, predictions):
        return None
    points = without_draws(predictions)
    tolerance = pivoted_cholesky.TOLERANCE[floating_dtype(predictions).itemsize]
    root = pivoted_cholesky.sufficient(kernel, points, tolerance, min(n // 4, _LARGEST_RANK))
    if root is None:
        return None
    # Few different ranks, so that little is compiled anew.
    rank = 2 ** (int(root.rank) - 1).bit_length()
    factor, error = _factor_and_error(kernel, predictions, root.features, rank)
    # Kernels that are not positive semi-definite may have other errors than on the diagonal.
    return factor if float(error) <= 100 * n * tolerance else None


@functools.partial(jax.jit, static_argnums=3)
def _factor_and_error(
    kernel: Kernel, predictions: Distribution, features: jax.Array, rank: int
) -> tuple[jax.Array, jax.Array]:
    """The first features, and the largest error of products with random signs.

    The error is in units of the largest squared feature.
    """
    factor = features[:, :rank]
    signs = jax.random.rademacher(jax.random.key(0), (len(factor), 8), factor.dtype)
    exact = operators.weighted_sums(prediction_kernel, kernel, predictions, predictions, signs)
    error = jnp.max(jnp.abs(exact - matmul(factor, matmul(factor.T, signs))))
    return factor, error / jnp.max(jnp.abs(factor)) ** 2


def _alike(
    planned: Sequence[tuple[list[int], ThroughLens]], dtype: DTypeLike
) -> list[tuple[list[int], ThroughLens | Alike]]:
    """Stacks the statistics that differ in their arrays only."""
    groups: dict[Any, list[int]] = {}
    for i, (_, statistic) in enumerate(planned):
        leaves, structure = jax.tree.flatten(statistic)
        groups.setdefault((structure, *map(jnp.shape, leaves)), []).append(i)
    found: list[tuple[list[int], ThroughLens | Alike]] = []
    for chosen in groups.values():
        places = [place for i in chosen for place in planned[i][0]]
        members = [planned[i][1] for i in chosen]
        if len(members) == 1:
            found.append((places, members[0]))
        else:
            stacked = jax.tree.map(lambda *leaves: _stacked(leaves, dtype), *members)
            found.append((places, Alike(stacked)))
    return found


def _stacked(leaves: Sequence[Any], dtype: DTypeLike) -> jax.Array:
    """Numbers of Python have no precision of their own; here they get that of the predictions."""
    is_number = all(isinstance(leaf, float) for leaf in leaves)
    return jnp.stack([jnp.asarray(leaf, dtype if is_number else None) for leaf in leaves])
