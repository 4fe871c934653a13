"""How the kernels of a family are evaluated, and the results of all redraws."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, matmul
from calibjax._core.batches import Result, default_batch_size, jit_long, map_batches, map_shared
from calibjax._core.pytree import PyTree, T
from calibjax.distributions.base import Distribution, check_draws, draw
from calibjax.hypothesis_tests._redraw import family as families
from calibjax.hypothesis_tests.result import CalibrationTestResult, simulated_result
from calibjax.kernels import Constant, Kernel, Nystrom, TensorProduct, nystrom
from calibjax.kernels.base import prediction_kernel, without_draws
from calibjax.kernels.expectations import few_features, prepare_features
from calibjax.kernels.line import Line, distance_of_exponentials, exponentials, line_of
from calibjax.kernels.residuals import Regressor

_FACTORED_FROM = 256  # predictions; for fewer all pairs are as cheap
_LARGEST_RANK = 512  # to look for more would take as long as a test by pairs


def family_of(
    members: Sequence[tuple[Any, Kernel]], predictions: Distribution, targets: ArrayLike
) -> families.Family:
    """Plans one pass for all kernels, (lens, kernel) each, of checked data.

    Kernels with the same lens share their features, if this data set has any; the others are
    evaluated by pairs.
    """
    planned: list[tuple[list[int], families.ThroughLens]] = []
    num_bytes = 0
    for lens, chosen in _distinct([lens for lens, _ in members]):
        seen: Any = (predictions, targets) if lens is None else lens(predictions, targets)
        for places, statistic in _statistics([members[i][1] for i in chosen], *seen):
            num_bytes = max(num_bytes, statistic.num_bytes(*seen))
            planned.append(([chosen[i] for i in places], families.ThroughLens(lens, statistic)))
    merged = _alike(planned, floating_dtype(predictions))
    places = [place for chosen, _ in merged for place in chosen]
    order = tuple(np.argsort(places).tolist())
    return families.Family(tuple(statistic for _, statistic in merged), order, num_bytes)


def _distinct(values: Sequence[Any]) -> list[tuple[Any, list[int]]]:
    """Different values, and where they are."""
    found: list[tuple[Any, list[int]]] = []
    for i, value in enumerate(values):
        places = next((places for other, places in found if _is_same(value, other)), None)
        if places is None:
            found.append((value, places := []))
        places.append(i)
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
) -> list[tuple[list[int], families.Statistic]]:
    """Statistics of kernels without lenses, and which kernels each of them evaluates."""
    products = {i: kernel for i, kernel in enumerate(kernels) if isinstance(kernel, TensorProduct)}
    target_kernels: list[tuple[Kernel, Any, bool]] = []  # with features, and whether these are few
    target_of: dict[int, int] = {}
    for kernel, chosen in _distinct([product.target for product in products.values()]):
        prepared = prepare_features(kernel, predictions, targets)
        if prepared is not None:
            target_of |= {list(products)[i]: len(target_kernels) for i in chosen}
            size = families.num_features(kernel, prepared, predictions, targets)
            target_kernels.append((kernel, prepared, size <= few_features(kernel, predictions)))
    prediction_kernels: list[families.PredictionKernel] = []
    featured: dict[int, tuple[int, int]] = {}
    different = _distinct([products[i].prediction for i in target_of])
    lines: list[Line] = []
    line_at: dict[int, int] = {}
    for distance, same in _distinct([distance_of_exponentials(kernel) for kernel, _ in different]):
        if (line := line_of(distance, predictions)) is not None:
            line_at |= dict.fromkeys(same, len(lines))
            lines.append(line)
    for place, (kernel, chosen) in enumerate(different):
        if (at := line_at.get(place)) is None:
            found_kernel = families.PredictionKernel(kernel, _factor(kernel, predictions))
        else:
            terms = _exponentials(kernel, lines[at].positions.dtype)
            found_kernel = families.PredictionKernel(kernel, None, terms, at)
        for i in (list(target_of)[i] for i in chosen):
            if found_kernel.is_linear or target_kernels[target_of[i]][2]:
                featured[i] = len(prediction_kernels), target_of[i]
        prediction_kernels.append(found_kernel)
    found: list[tuple[list[int], families.Statistic]] = []
    if featured:
        featured_kernels, prepared, _ = zip(*target_kernels, strict=True)
        places = tuple(featured.values())
        of_predictions = tuple(lines), tuple(prediction_kernels)
        by_features = families.ByFeatures(*of_predictions, featured_kernels, prepared, places)
        found.append((list(featured), by_features))
    return found + [([i], families.ByPairs(k)) for i, k in enumerate(kernels) if i not in featured]


_exponentials = jax.jit(exponentials, static_argnums=1)


def _factor(kernel: Kernel, predictions: Distribution) -> jax.Array | None:
    """Features of the matrix of a kernel on predictions, [n, s], if few determine it."""
    if isinstance(kernel, Constant | Nystrom | Regressor):
        return kernel.factor(without_draws(predictions))
    n = checks.leading_size("predictions", predictions)
    if n < _FACTORED_FROM or not checks.is_outermost(kernel, predictions):
        return None
    points = without_draws(predictions)
    tolerance = nystrom.TOLERANCE[floating_dtype(predictions).itemsize]
    root = nystrom.sufficient(kernel, points, tolerance, min(n // 4, _LARGEST_RANK))
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
    planned: Sequence[tuple[list[int], families.ThroughLens]], dtype: DTypeLike
) -> list[tuple[list[int], families.ThroughLens | families.Alike]]:
    """Stacks the statistics that differ in their arrays only."""
    groups: dict[Any, list[int]] = {}
    for i, (_, statistic) in enumerate(planned):
        leaves, structure = jax.tree.flatten(statistic)
        groups.setdefault((structure, *map(jnp.shape, leaves)), []).append(i)
    found: list[tuple[list[int], families.ThroughLens | families.Alike]] = []
    for chosen in groups.values():
        places = [place for i in chosen for place in planned[i][0]]
        members = [planned[i][1] for i in chosen]
        one: Any = members[0]
        if len(members) > 1:
            one = families.Alike(jax.tree.map(lambda *leaves: _stacked(leaves, dtype), *members))
        found.append((places, one))
    return found


def _stacked(leaves: Sequence[Any], dtype: DTypeLike) -> jax.Array:
    """Numbers of Python have no precision of their own; here they get that of the predictions."""
    is_number = all(isinstance(leaf, float) for leaf in leaves)
    return jnp.stack([jnp.asarray(leaf, dtype if is_number else None) for leaf in leaves])


_LARGE = 2**16  # samples, whose targets are drawn for one key after the other


def rank_among_redraws(
    *data: Any,
    adjust: bool = False,
    draws: str = "targets resampled under the null",
    **options: Any,
) -> CalibrationTestResult:
    """The test with a statistic of checked data; arguments are those of `observed_and_redrawn`."""
    observed, null_samples = observed_and_redrawn(*data, **options)
    return simulated_result(observed, null_samples, observed, draws=draws, adjust=adjust)


def observed_and_redrawn(
    key: jax.Array,
    statistic: Callable[[T, Any, Any], Any],
    data: T,
    predictions: PyTree,
    targets: PyTree,
    *,
    num_draws: int,
    batch_size: int | None = None,
    num_bytes: int = 1,
    redraw: Callable[[jax.Array, Any], Any] = draw,
) -> tuple[PyTree, PyTree]:
    """Values of a statistic, and those of redrawn targets, [B, ...], all by one program.

    Args:
        key: the user's random key.
        statistic: (data, predictions, targets) → values, compiled once for equal ones.
        data: what it needs; in a closure it would be compiled as a constant.
        predictions: what targets are redrawn from.
        targets: the observed ones.
        num_draws: the user's.
        batch_size: the user's.
        num_bytes: memory of one redraw.
        redraw: (key, predictions) → targets, the same object in all calls.
    """
    if redraw is draw:
        check_draws(predictions, targets)
    batch_size = batch_size or default_batch_size(num_bytes)
    return _pool(statistic, redraw, batch_size, _split(key, num_draws), data, predictions, targets)


_split = jax.jit(jax.random.split, static_argnums=1)  # one program for all tests


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _pool(
    statistic: Any, redraw: Any, batch_size: int, keys: jax.Array, data: Any, *samples: PyTree
) -> tuple[PyTree, PyTree]:
    predictions, targets = samples

    def evaluate(given: tuple[Any, PyTree], ys: PyTree) -> PyTree:
        return jax.vmap(functools.partial(statistic, *given))(ys)

    def redrawn(given: tuple[Any, PyTree], key: jax.Array) -> PyTree:
        return redraw(key, given[1])

    values = over_pool(keys, redrawn, evaluate, (data, predictions), targets, batch_size)
    # The statistic need not depend on all of the data.
    observed = checks.nan_with(jax.tree.map(lambda x: x[0], values), predictions, targets)
    return observed, jax.tree.map(lambda x: x[1:], values)


def means_of_redraws(
    key: jax.Array,
    members: Sequence[tuple[Any, Kernel]],
    predictions: Distribution,
    targets: jax.Array,
    weights: jax.Array | None,
    *,
    num_draws: int,
    batch_size: int | None,
) -> tuple[families.Parts, jax.Array | int]:
    """Means of h off and on the diagonal for the observed targets, then for redrawn ones.

    The kernels are (lens, kernel) each, and the data are checked. The weights of the samples stay;
    the options are the user's.

    Returns:
        Both means, [B + 1, K] each, and the number of samples, the effective one with weights.
    """
    check_draws(predictions, targets)
    n = families.number_with_pairs(predictions, weights)
    family = family_of(members, predictions, targets)
    size = batch_size or default_batch_size(family.num_bytes)
    data = family, predictions, weights
    return over_pool(_split(key, num_draws), _redrawn, _parts, data, targets, size), n


def _redrawn(data: tuple[families.Family, Distribution, Any], key: jax.Array) -> PyTree:
    return draw(key, data[1])


def _parts(data: tuple[families.Family, Distribution, Any], targets: PyTree) -> families.Parts:
    family, predictions, weights = data
    return family(predictions, targets, weights)


@functools.partial(jit_long, static_argnames=("redraw", "evaluate", "batch_size"))
def over_pool(
    keys: jax.Array,
    redraw: Callable[[Any, jax.Array], T],
    evaluate: Callable[[Any, T], Result],
    data: PyTree,
    targets: T,
    batch_size: int,
) -> Result:
    """Values of a function of batches of targets: of the observed ones first, then of redrawn ones.

    Args:
        keys: a random key for each redraw, [B].
        redraw: (data, key) → targets, [n, ...]; it and `evaluate` are compiled once each.
        evaluate: (data, targets [b, n, ...]) → a pytree of values, [b, ...] each.
        data: what both need; a pytree of arrays.
        targets: the observed ones, [n, ...].
        batch_size: largest b.

    Returns:
        The pytree of values, [B + 1, ...] each.
    """
    # The random bits of one large data set fit in a cache better than those of several.
    is_large = max(leaf.shape[0] for leaf in jax.tree.leaves(targets)) >= _LARGE

    def pool(given: tuple[Any, T], items: tuple[jax.Array, jax.Array]) -> Result:
        data, targets = given
        one = functools.partial(redraw, data)

        def batch(items: tuple[jax.Array, jax.Array]) -> Result:
            keys, is_observed = items
            drawn = jax.lax.map(one, keys) if is_large else jax.vmap(one)(keys)

            def chosen(y: jax.Array, z: jax.Array) -> jax.Array:
                return jnp.where(is_observed.reshape(-1, *[1] * y.ndim), y, z)

            return evaluate(data, jax.tree.map(chosen, targets, drawn))

        return map_batches(items, batch, batch_size)

    # In one program all have the same rounding errors, which are all that is left of a kernel that
    # is much wider than the data: the observed value must then be one of many.
    items = jnp.concatenate([keys[:1], keys]), jnp.arange(keys.size + 1) == 0
    return map_shared(pool, (data, targets), items)
