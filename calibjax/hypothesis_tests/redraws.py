"""Means of the calibration kernel over redrawn targets, for one kernel or many in one pass."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax import _checks, pairwise
from calibjax._arithmetic import UNROLLED, floating_dtype, matmul
from calibjax._batches import default_batch_size, in_batches, map_batches
from calibjax._pytree import PyTree, record
from calibjax._sharding import WHOLE, devices
from calibjax.distributions.base import Distribution
from calibjax.distributions.sampling import draw
from calibjax.estimators.kernel import sample_pair
from calibjax.hypothesis_tests.featured import (
    Parts,
    as_means,
    bytes_of_redraw,
    means_of_sums,
    sums_of_redraws,
)
from calibjax.hypothesis_tests.simulation import bytes_of_tile
from calibjax.kernels import Kernel, LowRank, TensorProduct, low_rank
from calibjax.kernels.base import prediction_kernel, without_draws
from calibjax.kernels.expectations import batch_features, features, few_features, prepare_features

_SMALL = 8 * pairwise.TILE_SIZE**2  # bytes of data that every device may hold: a tile
_FACTORED_FROM = 256  # predictions; for fewer all pairs are as cheap


def redrawn(
    key: jax.Array,
    statistic: Callable[[Any, Any], Any],
    predictions: Distribution,
    num_samples: int,
    batch_size: int,
) -> PyTree:
    """Redrawn values of a statistic of batches, (predictions, [b, n, ...]) → [b, ...]."""

    def batch(keys: jax.Array) -> PyTree:
        return statistic(predictions, jax.vmap(draw, (0, None))(keys, predictions))

    return in_batches(key, batch, num_samples, batch_size)


@record
class _PredictionKernel:
    """A kernel on predictions, and features of its matrix if few determine it.

    Attributes:
        kernel: k_P.
        factor: F with k_P(p_i, p_j) = Σ_s F_is F_js up to rounding, [n, s], or None.
    """

    kernel: Kernel
    factor: jax.Array | None


@record
class _ByFeatures:
    """Means of k_P(p_i, p_j) ⟨f_i, f_j⟩ off and on the diagonal, by matrix products of features.

    Several tensor products k_P k_Y share the features f of their target kernels k_Y.

    Attributes:
        prediction_kernels: different k_P.
        target_kernels: different k_Y.
        prepared: what the features of these need.
        products: places of both factors of each of the K products.
    """

    prediction_kernels: tuple[_PredictionKernel, ...]
    target_kernels: tuple[Kernel, ...]
    prepared: tuple[Any, ...]
    products: tuple[tuple[int, int], ...] = dataclasses.field(metadata={"static": True})

    def __call__(self, predictions: Distribution, targets: ArrayLike) -> Parts:
        """Means for targets [b, n, ...], [b, K] each."""
        found: dict[tuple[int, int], Parts] = {}
        for t, featured in enumerate(self._featured()):
            chosen = [p for p, its in self.products if its == t]
            factored = [p for p in chosen if self.prediction_kernels[p].factor is not None]
            found |= self._factored(t, factored, featured, predictions, targets)
            others = [p for p in chosen if p not in factored]
            found |= self._by_pairs(t, others, featured, predictions, targets)
        columns = zip(*(found[product] for product in self.products), strict=True)
        off_diagonal, diagonal = (jnp.stack(column, 1) for column in columns)
        return off_diagonal, diagonal

    def _factored(
        self,
        t: int,
        chosen: Sequence[int],
        featured: tuple[Kernel, Any],
        predictions: Distribution,
        targets: ArrayLike,
    ) -> dict[tuple[int, int], Parts]:
        """Means for kernels on predictions with a factor, in linear time."""
        if not chosen:
            return {}
        factors = [self.prediction_kernels[p].factor for p in chosen]
        factors = [factor for factor in factors if factor is not None]  # all of them
        sums = sums_of_redraws(featured, factors, predictions, targets)
        n = _checks.leading_size("predictions", predictions)
        return {(p, t): means_of_sums(n, *own) for p, own in zip(chosen, sums, strict=True)}

    def _by_pairs(
        self,
        t: int,
        chosen: Sequence[int],
        featured: tuple[Kernel, Any],
        predictions: Distribution,
        targets: ArrayLike,
    ) -> dict[tuple[int, int], Parts]:
        """Means for other kernels on predictions, by matrix products over all pairs."""
        if not chosen:
            return {}
        values = batch_features(*featured, predictions, targets)
        _, size, n = values.shape
        found = {}
        for p in chosen:
            forms = pairwise.split_quadratic_forms(
                prediction_kernel,
                self.prediction_kernels[p].kernel,
                predictions,
                values.reshape(-1, n).T,
            )
            found[p, t] = as_means(n, *(form.reshape(-1, size).sum(0) for form in forms))
        return found

    def _featured(self) -> list[tuple[Kernel, Any]]:
        return list(zip(self.target_kernels, self.prepared, strict=True))

    def num_bytes(self, predictions: Distribution, targets: ArrayLike) -> int:
        """Memory of one redraw: its targets, and the features of as many as are held at once."""
        numbers = max(_num_features(*each, predictions, targets) for each in self._featured())
        n = _checks.leading_size("targets", targets)
        in_blocks = all(kernel.factor is not None for kernel in self.prediction_kernels)
        return bytes_of_redraw(n, numbers, in_blocks=in_blocks)


@record
class _ByPairs:
    """The same means by pairs; terms that depend on predictions only are computed once."""

    kernel: Kernel

    def __call__(self, predictions: Distribution, targets: ArrayLike) -> Parts:
        """Means for targets [b, n, ...], [b, 1] each."""
        n = jax.tree.leaves(targets)[0].shape[1]

        def means(y: ArrayLike) -> Parts:
            samples = predictions, y
            first = jax.tree.map(lambda leaf: leaf[0], samples)
            dtype = jax.eval_shape(sample_pair, self.kernel, first, first).dtype
            ones = jnp.ones((n, 1), dtype)
            return as_means(
                n, *pairwise.split_quadratic_forms(sample_pair, self.kernel, samples, ones)
            )

        return jax.vmap(means)(targets)

    def num_bytes(self, predictions: Distribution, targets: ArrayLike) -> int:
        """Memory of one redraw: a tile, or one per component of the targets if these are many."""
        n = _checks.leading_size("targets", targets)
        num_components = sum(leaf.size // n for leaf in jax.tree.leaves(targets))
        wide = num_components if num_components > UNROLLED else 1
        return wide * bytes_of_tile(n)


Statistic = _ByFeatures | _ByPairs


def _joined(parts: Sequence[Parts]) -> Parts:
    """Parts of several kernels as one."""
    off_diagonal, diagonal = zip(*parts, strict=True)
    return jnp.concatenate(off_diagonal, 1), jnp.concatenate(diagonal, 1)


@record
class _ThroughLens:
    """A statistic of the data as a lens shows them, or of the data themselves."""

    lens: Any
    statistic: Statistic

    def __call__(self, predictions: Distribution, targets: ArrayLike) -> Parts:
        """Means for targets [b, n, ...], [b, K] each."""
        if self.lens is None:
            return self.statistic(predictions, targets)
        first = jax.tree.map(lambda y: y[0], targets)
        seen, _ = self.lens(predictions, first)  # the same for all targets
        labels = jax.vmap(lambda y: self.lens(predictions, y)[1])(targets)
        return self.statistic(seen, labels)


@record
class _Alike:
    """Statistics that differ in their arrays only, stacked: a loop over them is compiled once."""

    members: _ThroughLens

    def __call__(self, predictions: Distribution, targets: ArrayLike) -> Parts:
        """Means for targets [b, n, ...], [b, K] each, one statistic after the other."""
        found = jax.lax.map(lambda member: member(predictions, targets), self.members)
        return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1), found)


@record
class Family:
    """How the kernels of a family are evaluated, all on the same redraws.

    Attributes:
        statistics: evaluate some of the kernels each.
        order: places of the kernels in what the statistics return one after the other.
        num_bytes: memory of one redraw.
    """

    statistics: tuple[_ThroughLens | _Alike, ...]
    order: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    num_bytes: int = dataclasses.field(metadata={"static": True})

    def __call__(self, predictions: Distribution, targets: ArrayLike) -> Parts:
        """Means for targets [b, n, ...], [b, K] each."""
        found = _joined([statistic(predictions, targets) for statistic in self.statistics])
        return jax.tree.map(lambda x: x[:, np.array(self.order)], found)


def family_of(
    members: Sequence[tuple[Any, Kernel]], predictions: Distribution, targets: ArrayLike
) -> Family:
    """Plans one pass for all kernels, (lens, kernel) each, of checked data.

    Kernels with the same lens share their features, if this data set has any; the others are
    evaluated by pairs.
    """
    planned: list[tuple[list[int], _ThroughLens]] = []
    num_bytes = 0
    for lens, chosen in _distinct([lens for lens, _ in members]):
        seen: tuple[Any, Any] = (
            (predictions, targets) if lens is None else lens(predictions, targets)
        )
        for places, statistic in _statistics([members[i][1] for i in chosen], *seen):
            num_bytes = max(num_bytes, statistic.num_bytes(*seen))
            planned.append(([chosen[i] for i in places], _ThroughLens(lens, statistic)))
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


def _is_same(one: PyTree, other: PyTree) -> bool:
    """Whether two records are equal; arrays that are traced only if they are the same."""
    if jax.tree.structure(one) != jax.tree.structure(other):
        return False
    return all(
        x is y or (_checks.is_concrete(x, y) and x.dtype == y.dtype and np.array_equal(x, y))
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
            size = _num_features(kernel, prepared, predictions, targets)
            target_kernels.append((kernel, prepared, size <= few_features(kernel, predictions)))
    prediction_kernels: list[_PredictionKernel] = []
    featured: dict[int, tuple[int, int]] = {}
    for kernel, chosen in _distinct([products[i].prediction for i in target_of]):
        factor = _factor(kernel, predictions)
        for i in (list(target_of)[i] for i in chosen):
            if factor is not None or target_kernels[target_of[i]][2]:
                featured[i] = len(prediction_kernels), target_of[i]
        prediction_kernels.append(_PredictionKernel(kernel, factor))
    found: list[tuple[list[int], Statistic]] = []
    if featured:
        featured_kernels, prepared, _ = zip(*target_kernels, strict=True)
        by_features = _ByFeatures(
            tuple(prediction_kernels), featured_kernels, prepared, tuple(featured.values())
        )
        found.append((list(featured), by_features))
    return found + [([i], _ByPairs(k)) for i, k in enumerate(kernels) if i not in featured]


def _num_features(
    kernel: Kernel, prepared: Any, predictions: Distribution, targets: ArrayLike
) -> int:
    first = jax.tree.map(lambda leaf: leaf[0], (predictions, targets))
    return jax.eval_shape(functools.partial(features, kernel, prepared), *first).size


def _factor(kernel: Kernel, predictions: Distribution) -> jax.Array | None:
    """Features of the matrix of a kernel on predictions, [n, s], if few determine it."""
    if isinstance(kernel, LowRank):
        return kernel.factor(predictions)
    n = _checks.leading_size("predictions", predictions)
    if n < _FACTORED_FROM or not _checks.is_concrete(kernel, predictions):
        return None
    seen = without_draws(predictions)
    with jax.ensure_compile_time_eval():  # they may be known while a random key is traced
        tolerance = low_rank.TOLERANCE[floating_dtype(predictions).itemsize]
        rank = low_rank.numerical_rank(kernel, seen, tolerance, n // 4)
        if rank is None:
            return None
        rank = 2 ** (rank - 1).bit_length()  # few different ones, so that little is compiled anew
        factor = low_rank.pivoted_cholesky(kernel, seen, tolerance, size=rank).features
        # Kernels that are not positive semi-definite may have other errors than on the diagonal.
        signs = jax.random.rademacher(jax.random.key(0), (n, 8), factor.dtype)
        exact = pairwise.weighted_sums(prediction_kernel, kernel, predictions, predictions, signs)
        error = jnp.max(jnp.abs(exact - matmul(factor, matmul(factor.T, signs))))
        return factor if error <= 100 * n * tolerance * jnp.max(jnp.abs(factor)) ** 2 else None


def _alike(
    planned: Sequence[tuple[list[int], _ThroughLens]], dtype: Any
) -> list[tuple[list[int], _ThroughLens | _Alike]]:
    """Stacks the statistics that differ in their arrays only."""
    groups: dict[Any, list[int]] = {}
    for i, (_, statistic) in enumerate(planned):
        leaves, structure = jax.tree.flatten(statistic)
        groups.setdefault((structure, *map(jnp.shape, leaves)), []).append(i)
    found: list[tuple[list[int], _ThroughLens | _Alike]] = []
    for chosen in groups.values():
        places = [place for i in chosen for place in planned[i][0]]
        members = [planned[i][1] for i in chosen]
        if len(members) == 1:
            found.append((places, members[0]))
        else:
            stacked = jax.tree.map(lambda *leaves: _stacked(leaves, dtype), *members)
            found.append((places, _Alike(stacked)))
    return found


def _stacked(leaves: Sequence[Any], dtype: Any) -> jax.Array:
    """Numbers of Python have no precision of their own; here they get that of the predictions."""
    is_number = all(isinstance(leaf, float) for leaf in leaves)
    return jnp.stack([jnp.asarray(leaf, dtype if is_number else None) for leaf in leaves])


def checked_batch_size(batch_size: int | None, family: Family) -> int:
    """The number of redraws that are evaluated at once."""
    if batch_size is None:
        batch_size = default_batch_size(family.num_bytes)
    return _checks.size_in_range("batch_size", batch_size, 1)


@functools.partial(jax.jit, static_argnums=(4, 5))
def evaluate_pool(
    key: jax.Array,
    family: Family,
    predictions: Distribution,
    targets: ArrayLike,
    num_samples: int,
    batch_size: int,
) -> Parts:
    """Means of h off and on the diagonal for the observed targets, then for redrawn ones.

    Returns:
        Both means, [B + 1, K] each.
    """
    keys, split = jax.random.split(key, num_samples), devices()
    data = family, predictions, targets

    def pool(data: tuple[Family, Any, Any], keys: jax.Array) -> Parts:
        family, predictions, targets = data
        evaluate = functools.partial(family, predictions)
        return over_pool(keys, lambda key: draw(key, predictions), evaluate, targets, batch_size)

    if split is None or sum(leaf.nbytes for leaf in jax.tree.leaves(data)) > _SMALL:
        return pool(data, keys)
    # Little data are cheaper to copy than to hand round: each device evaluates some redraws.
    number = -(-num_samples // split.number)
    places = jnp.minimum(jnp.arange(number * split.number), num_samples - 1)
    parts = split.run(pool, (WHOLE, split.rows), split.rows)(data, keys[places])

    def joined(part: jax.Array) -> jax.Array:
        of_devices = part.reshape(split.number, number + 1, -1)
        redraws = of_devices[:, 1:].reshape(-1, part.shape[1])[:num_samples]
        return jnp.concatenate([part[:1], redraws])

    return jax.tree.map(joined, parts)


def over_pool(
    keys: jax.Array,
    redraw: Callable[[jax.Array], Any],
    evaluate: Callable[[Any], Any],
    targets: PyTree,
    batch_size: int,
) -> PyTree:
    """Values of a function of batches of targets: of the observed ones first, then of redrawn ones.

    Args:
        keys: a random key for each redraw, [B].
        redraw: key → targets, [n, ...].
        evaluate: targets [b, n, ...] → a pytree of values, [b, ...] each.
        targets: the observed ones, [n, ...].
        batch_size: largest b.

    Returns:
        The pytree of values, [B + 1, ...] each.
    """

    def batch(items: tuple[jax.Array, jax.Array]) -> PyTree:
        keys, is_observed = items
        drawn = jax.vmap(redraw)(keys)

        def chosen(y: jax.Array, z: jax.Array) -> jax.Array:
            return jnp.where(is_observed.reshape(-1, *[1] * y.ndim), y, z)

        return evaluate(jax.tree.map(chosen, targets, drawn))

    # In one program all have the same rounding errors, which are all that is left of a kernel that
    # is much wider than the data: the observed value is then one of many, as it has to be.
    items = jnp.concatenate([keys[:1], keys]), jnp.arange(keys.size + 1) == 0
    return map_batches(items, batch, batch_size)
