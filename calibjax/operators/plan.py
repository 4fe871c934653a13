"""Plans for sums of the calibration kernel over pairs of samples, and these sums.

Everything in the library is built from h((p, y), (q, z)) = k_P(p, q) ⟨f(p, y), f(q, z)⟩ with
residual features f of the target kernel. Only `plan_of` inspects values, outside of compiled code:
the line on which predictions lie, the number of frequencies of features, the sufficient rank, equal
kernels. It returns a `Plan` of arrays and static choices, whose method `sums` is traced. For traced
values it chooses by type alone: no line for vectors, no low rank, and no features that depend on a
range. Target kernels without features are evaluated pair by pair.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.typing import DTypeLike

from calibjax._core import checks
from calibjax._core.arithmetic import UNROLLED, floating_dtype, matmul, on_cpu
from calibjax._core.environment import BATCH_BYTES
from calibjax._core.pytree import PyTree, are_same, record
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.kernels import Kernel, TensorProduct, nystrom
from calibjax.kernels.base import combine_on_pairs, prediction_kernel, without_draws
from calibjax.kernels.expectations import (
    batch_features,
    features,
    few_features,
    offsets,
    prepare_features,
    views,
)
from calibjax.kernels.line import distance_of_exponentials, exponentials, line_of
from calibjax.operators.kernel_matrix import LowRank, OnLine, Operator, Tiled
from calibjax.operators.tiles import BLOCK_SIZE, TILE_SIZE, quadratic_forms

_ON_LINE_FROM = 1000  # predictions from which a sum on a line is faster than over pairs
_FACTORED_FROM = 256  # predictions; for fewer, all pairs are as cheap
_LARGEST_RANK = 512  # a search for more would take as long as sums over pairs
_MOST_NUMBERS = 2**26  # features of all samples of a sum over pairs that is evaluated once
_DENSE_LABELS = 64  # classes up to which matrix products are faster than sums by label
_COLUMNS = 192  # of a matrix product from which it takes longer than the matrix

Sums = tuple[jax.Array, jax.Array]  # of h over i ≠ j and over i = j


def sample_pair(kernel: Kernel, x: tuple[Any, Any], y: tuple[Any, Any]) -> jax.Array:
    """Calibration kernel as a function of two samples (prediction, target)."""
    return combine_on_pairs(kernel, "calibration_kernel", lambda h: h(*x, *y))


def operator_of(kernel: Any, predictions: Distribution, *, many: bool) -> Operator:
    """Operator of a kernel on predictions.

    Args:
        kernel: kernel on predictions. A method `operator(predictions)` takes precedence, unless it
            returns None; a method `factor(predictions)` returns F, [n, s], with k(p_i, p_j) = ⟨F_i,
            F_j⟩.
        predictions: batch of n distributions.
        many: whether there are many products, which justify the search for a low rank.
    """
    points = without_draws(predictions)
    operator = kernel.operator(points) if hasattr(kernel, "operator") else None
    if operator is not None:
        return _checked(operator, kernel, checks.leading_size("predictions", predictions))
    if callable(getattr(type(kernel), "factor", None)):
        return LowRank(kernel.factor(points))
    n = checks.leading_size("predictions", predictions)
    if many or not (export.is_symbolic_dim(n) or n < _ON_LINE_FROM):
        distance = distance_of_exponentials(kernel)
        if distance is not None and (line := line_of(distance, predictions)) is not None:
            return OnLine(line.order, line.positions, _terms(kernel, line.positions.dtype))
    is_searched = many and n >= _FACTORED_FROM and checks.is_outermost(kernel, predictions)
    factor = _factor(kernel, predictions) if is_searched else None
    return Tiled(kernel, predictions, prediction_kernel) if factor is None else LowRank(factor)


_terms = jax.jit(exponentials, static_argnums=1)


def _checked(operator: Any, kernel: Any, n: int) -> Operator:
    """Checked operator of a kernel."""
    name = f"{type(kernel).__name__}.operator(predictions)"
    if not isinstance(operator, Operator):
        raise TypeError(f"{name}: expected an Operator or None, got {checks.described(operator)}")
    checks.shape(f"{name}.diagonal", operator.diagonal, (n,), f"[{n}], as the predictions")
    return operator


def _factor(kernel: Kernel, predictions: Distribution) -> jax.Array | None:
    """Features of the matrix of a kernel on predictions, [n, s], if its rank is low."""
    n, points = checks.leading_size("predictions", predictions), without_draws(predictions)
    tolerance = nystrom.TOLERANCE[floating_dtype(predictions).itemsize]
    root = nystrom.sufficient(kernel, points, tolerance, min(n // 4, _LARGEST_RANK))
    if root is None:
        return None
    # Few different ranks, for few compilations.
    factor = root.features[:, : 2 ** (int(root.rank) - 1).bit_length()]
    # Kernels that are not positive semi-definite may have errors off the diagonal.
    error = float(_error(Tiled(kernel, predictions, prediction_kernel), LowRank(factor)))
    return factor if error <= 100 * n * tolerance else None


@jax.jit
def _error(exact: Tiled, low_rank: LowRank) -> jax.Array:
    """Largest error of products with random signs, in units of the largest squared feature."""
    factor = low_rank.factor
    signs = jax.random.rademacher(jax.random.key(0), (len(factor), 8), factor.dtype)
    error = jnp.max(jnp.abs(exact @ signs - low_rank @ signs))
    return error / jnp.max(jnp.abs(factor)) ** 2


@record
class Featured:
    """Kernels on pairs with one target kernel that has features.

    Attributes:
        kernel: target kernel.
        prepared: data for its features.
        operators: matrices of different kernels on predictions.
    """

    kernel: Any
    prepared: Any
    operators: tuple[Any, ...]

    def sums(self, predictions: Any, targets: PyTree, weights: Any) -> list[Sums]:
        """Sums for targets [b, n, ...], [b] each, for each kernel on predictions."""
        number, n = jax.tree.leaves(targets)[0].shape[:2]
        function, args, xs = self._evaluated(predictions, targets)
        values, results = functools.cache(lambda: _times(weights, function(args, xs))), []
        in_blocks = n > BLOCK_SIZE or len(self.operators) == 1
        in_blocks = in_blocks or has_many_labels(self.kernel, predictions)
        for operator in self.operators:
            if in_blocks and isinstance(operator, LowRank):
                sums, on = self.outer_sums(operator, predictions, targets, weights)
                off = jnp.sum(jnp.square(sums), (1, 2)) - on
            else:
                off, on = (form.reshape(-1, number).sum(0) for form in operator.forms(values()))
            results.append((off, on + self._offset(predictions, operator, weights)))
        return results

    def outer_sums(
        self, operator: LowRank, predictions: Any, targets: PyTree, weights: Any
    ) -> Sums:
        """Σ_i w_i F_i ⊗ f(p_i, y_i), [b, s, r], and Σ_i w_i² K_ii ‖f(p_i, y_i)‖², [b].

        Without the offset of the diagonal of h for draws.
        """
        if has_many_labels(self.kernel, predictions):
            return _sums_by_label(self.kernel, operator, predictions, targets, weights)
        number = jax.tree.leaves(targets)[0].shape[0]
        sums, squares = operator.sums_of(*self._evaluated(predictions, targets), weights)
        sums = jnp.moveaxis(sums.reshape(len(sums), -1, number), -1, 0)
        return sums, squares.reshape(-1, number).sum(0)

    def _evaluated(self, predictions: Any, targets: PyTree) -> tuple[Any, Any, Any]:
        """Function and arguments for features [r b, n] of targets [b, n, ...]."""
        ys = jax.tree.map(lambda y: jnp.moveaxis(y, 0, 1), targets)
        return _features_of_samples, (self.kernel, self.prepared), (predictions, ys)

    def _offset(self, predictions: Any, operator: Any, weights: Any) -> jax.Array | float:
        """Offset of the diagonal from the squares of features."""
        seen = views(self.kernel, self.prepared, predictions)
        each = offsets(self.kernel, self.prepared, predictions, seen)
        return 0.0 if each is None else jnp.sum(operator.diagonal * _times(weights, each, 2))

    def row_sums(self, predictions: Any, targets: PyTree, weights: Any) -> jax.Array:
        """Σ_{j≠i} w_j h_ij for targets [n, ...], [n], of the first kernel on predictions."""
        operator, several = self.operators[0], jax.tree.map(lambda y: y[None], targets)
        function, *data = self._evaluated(predictions, several)
        values = function(*data)  # [r, n]
        sent = _times(weights, values)
        return jnp.sum(values * ((operator @ sent.T).T - operator.diagonal * sent), 0)


def _times(weights: Any, values: jax.Array, power: int = 1) -> jax.Array:
    """Values multiplied by weights, or by a power of them."""
    return values if weights is None else values * weights**power


def _features_of_samples(featured: tuple[Any, Any], samples: tuple[Any, Any]) -> jax.Array:
    """Features of several targets [m, b, ...] of m predictions, [r b, m]."""
    predictions, targets = samples
    targets = jax.tree.map(lambda y: jnp.moveaxis(y, 1, 0), targets)
    values = batch_features(*featured, predictions, targets)
    return values.reshape(-1, values.shape[-1])


def has_many_labels(kernel: Kernel, predictions: Distribution) -> bool:
    """Whether features are scaled residuals e_y − p of many classes, few of which change."""
    if not hasattr(kernel, "label_scales") or not has_class_probs(predictions):
        return False
    return jax.eval_shape(lambda p: p.class_probs, predictions).shape[-1] > _DENSE_LABELS


def _sums_by_label(
    kernel: Any, operator: LowRank, predictions: Any, targets: Any, weights: Any
) -> Sums:
    """`Featured.outer_sums` of scaled residuals: Σ_i F_i a_i(y_i) e_{y_i} − Σ_i F_i ∘ a_i ∘ p_i.

    The second sum is common to all redraws; the first one needs one number for each sample instead
    of each class.
    """
    factor = _times(weights, operator.factor.T).T
    norms = jnp.sum(jnp.square(factor), 1)
    probs = predictions.class_probs
    scales = kernel.label_scales(probs)
    expected = scales * probs
    squared, offset = jnp.sum(jnp.square(expected), 1), matmul(expected.T, factor)

    def sums(labels: jax.Array) -> Sums:
        scale, mean = (jnp.take_along_axis(x, labels[:, None], 1)[:, 0] for x in (scales, probs))
        observed = jax.ops.segment_sum(factor * scale[:, None], labels, probs.shape[1])
        square = squared + jnp.square(scale) * (1 - 2 * mean)  # of the residual's norm
        return (observed - offset).T, matmul(square, norms)

    return jax.lax.map(sums, targets)


@record
class View:
    """Kernels with one reduction, and their evaluation.

    Attributes:
        reduction: function (predictions, targets) → both for the kernels, or None.
        predictions: predictions through the reduction, common to all targets.
        featured: kernels whose target kernels have features.
        others: kernels that are evaluated pair by pair.
    """

    reduction: Any
    predictions: Any
    featured: tuple[Featured, ...]
    others: tuple[Kernel, ...]

    def sums(self, predictions: Any, targets: PyTree, weights: Any) -> Sums:
        """Sums for targets [b, n, ...], [b, K] each: featured kernels, then the others."""
        if self.reduction is not None:
            targets = jax.vmap(lambda y: self.reduction(predictions, y)[1])(targets)
        data = self.predictions, targets, weights
        results = [part for each in self.featured for part in each.sums(*data)]
        results += [_sums_by_pairs(kernel, *data) for kernel in self.others]
        off_diagonal, diagonal = (jnp.stack(column, 1) for column in zip(*results, strict=True))
        return off_diagonal, diagonal

    def num_bytes(self, targets: PyTree) -> int:
        """Memory of one redraw: its targets, and the features that are stored at once."""
        n = checks.leading_size("targets", targets)
        sizes = [1]
        for each in self.featured:
            number = num_features(each.kernel, each.prepared, self.predictions, targets)
            in_blocks = all(isinstance(x, LowRank | OnLine) for x in each.operators)
            sizes.append(bytes_of_redraw(n, number, in_blocks=in_blocks))
        if self.others:
            num_components = sum(leaf.size // n for leaf in jax.tree.leaves(targets))
            sizes.append(bytes_of_tile(n) * (num_components if num_components > UNROLLED else 1))
        return max(sizes)


def _sums_by_pairs(kernel: Kernel, predictions: Any, targets: PyTree, weights: Any) -> Sums:
    """Sums for targets [b, n, ...], [b] each; terms without targets are computed once."""
    # Ones of this dtype keep the dtype of h.
    n = checks.leading_size("predictions", predictions)
    each = jnp.ones(n, jnp.int8) if weights is None else weights

    def sums(y: PyTree) -> Sums:
        return quadratic_forms(sample_pair, kernel, (predictions, y), each[:, None])

    return jax.tree.map(lambda x: x[:, 0], jax.vmap(sums)(targets))


@record
class Alike:
    """Stacked views that differ only in their arrays: a loop over them is compiled once."""

    views: View


@record
class Plan:
    """Evaluation plan of some kernels.

    Attributes:
        parts: views, or stacked views, of some of the kernels each.
        order: indices of the kernels in the concatenated results of the parts (static).
        num_bytes: memory of one redraw (static).
        num_by_pairs: number of kernels that are evaluated pair by pair (static).
    """

    parts: tuple[Any, ...]
    order: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    num_bytes: int = dataclasses.field(metadata={"static": True})
    num_by_pairs: int = dataclasses.field(metadata={"static": True})

    def mapped(self, function: Callable[[View], PyTree]) -> PyTree:
        """Values of a function of each view, [b, K] for K kernels, in the order of all kernels."""

        def of_part(part: View | Alike) -> PyTree:
            if not isinstance(part, Alike):
                return function(part)
            values = jax.lax.map(function, part.views)
            return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1), values)

        values = map(of_part, self.parts)
        return jax.tree.map(lambda *x: jnp.concatenate(x, 1)[:, np.array(self.order)], *values)

    def sums(self, predictions: Any, targets: PyTree, weights: Any = None) -> Sums:
        """Sums of h over i ≠ j, and over i = j, for targets [b, n, ...], [b, K] each."""
        return self.mapped(lambda view: view.sums(predictions, targets, weights))


def plan_of(
    members: Sequence[tuple[Any, Kernel]], predictions: Distribution, targets: PyTree
) -> Plan:
    """Plan of kernels, (reduction, kernel) each, for many targets of the same predictions.

    Kernels with one reduction share their features, if there are any.
    """
    planned: list[tuple[list[int], View]] = []
    num_bytes = 0
    for reduction, chosen in _distinct([reduction for reduction, _ in members]):
        reduced: Any = (
            (predictions, targets) if reduction is None else reduction(predictions, targets)
        )
        places, view = view_of(reduction, [members[i][1] for i in chosen], *reduced, many=True)
        num_bytes = max(num_bytes, view.num_bytes(reduced[1]))
        planned.append(([chosen[i] for i in places], view))
    merged = _merged(planned, floating_dtype(predictions))
    order = np.argsort([place for chosen, _ in merged for place in chosen])
    num_by_pairs = sum(len(view.others) for _, view in planned)
    parts = tuple(part for _, part in merged)
    return Plan(parts, tuple(order.tolist()), num_bytes, num_by_pairs)


def view_of(
    reduction: Any,
    kernels: Sequence[Kernel],
    predictions: Distribution,
    targets: PyTree,
    *,
    many: bool,
) -> tuple[list[int], View]:
    """View of the kernels of one reduction, and their indices in the order of the view."""
    products = {i: kernel for i, kernel in enumerate(kernels) if isinstance(kernel, TensorProduct)}
    operators: dict[int, Operator] = {}
    for kernel, same in _distinct([product.prediction for product in products.values()]):
        operator = operator_of(kernel, predictions, many=many)
        operators |= dict.fromkeys((list(products)[i] for i in same), operator)
    featured, places, n = [], [], checks.leading_size("predictions", predictions)
    for target_kernel, same in _distinct([product.target for product in products.values()]):
        chosen = {place: operators[place] for place in (list(products)[i] for i in same)}
        few = few_features(target_kernel, predictions, once=not many)
        if few == 0 and all(isinstance(operator, Tiled) for operator in chosen.values()):
            continue
        if (prepared := prepare_features(target_kernel, predictions, targets)) is None:
            continue
        number = num_features(target_kernel, prepared, predictions, targets)
        is_cheap = number <= few and (many or number * n <= _MOST_NUMBERS)
        by_features = {
            i: operator
            for i, operator in chosen.items()
            if is_cheap or not isinstance(operator, Tiled)
        }
        if by_features:
            featured.append(Featured(target_kernel, prepared, tuple(by_features.values())))
            places += by_features
    others = [i for i in range(len(kernels)) if i not in places]
    view = View(reduction, predictions, tuple(featured), tuple(kernels[i] for i in others))
    return places + others, view


def _distinct(values: Sequence[Any]) -> list[tuple[Any, list[int]]]:
    """Different values, and their indices."""
    distinct: list[tuple[Any, list[int]]] = []
    for i, value in enumerate(values):
        places = next((places for other, places in distinct if are_same(value, other)), None)
        if places is None:
            distinct.append((value, places := []))
        places.append(i)
    return distinct


def _merged(
    planned: Sequence[tuple[list[int], View]], dtype: DTypeLike
) -> list[tuple[list[int], View | Alike]]:
    """Stack the views that differ only in their arrays."""
    groups: dict[Any, list[int]] = {}
    for i, (_, view) in enumerate(planned):
        leaves, structure = jax.tree.flatten(view)
        groups.setdefault((structure, *map(jnp.shape, leaves)), []).append(i)
    found: list[tuple[list[int], View | Alike]] = []
    for chosen in groups.values():
        places = [place for i in chosen for place in planned[i][0]]
        members = [planned[i][1] for i in chosen]
        one: Any = members[0]
        if len(members) > 1:
            one = Alike(jax.tree.map(lambda *leaves: _stacked(leaves, dtype), *members))
        found.append((places, one))
    return found


def _stacked(leaves: Sequence[Any], dtype: DTypeLike) -> jax.Array:
    """Stacked leaves; Python numbers get the precision of the predictions."""
    is_number = all(isinstance(leaf, float) for leaf in leaves)
    arrays = [jnp.asarray(leaf, dtype if is_number else None) for leaf in leaves]
    if arrays[0].ndim == 0 and checks.is_concrete(*arrays):  # without compilation
        return jax.device_put(np.stack(arrays))
    return jnp.stack(arrays)


def num_features(kernel: Kernel, prepared: tuple, *samples: Any) -> int:
    """Number of features of a target kernel."""
    return _features_of_first.eval_shape(kernel, prepared, *samples).size


@jax.jit  # caches shapes
def _features_of_first(kernel: Kernel, prepared: tuple, *samples: Any) -> jax.Array:
    return features(kernel, prepared, *jax.tree.map(lambda leaf: leaf[0], samples))


def bytes_of_redraw(n: int, num_features: int, *, in_blocks: bool) -> int:
    """Memory of one redraw of n targets, and of the features that are stored at once.

    In blocks, the features, and on CPUs the targets of eight or more redraws, should fit in a
    cache. By pairs, many redraws share the values of the kernel on predictions, even if they need
    more memory.
    """
    if in_blocks:
        targets = min(32 * n, BATCH_BYTES // 9) if on_cpu() else n
        return 16 * min(n, BLOCK_SIZE) * num_features + targets
    return min(16 * (n * num_features + n), BATCH_BYTES // -(-_COLUMNS // num_features))


def bytes_of_tile(num_samples: int) -> int:
    """Memory of a statistic that works on tiles of pairs."""
    return 16 * min(num_samples, TILE_SIZE) ** 2


def single_view(kernel: Any, samples: tuple[Any, Any]) -> View | None:
    """View for a single evaluation of one kernel by features; None: pair by pair."""
    if not isinstance(kernel, TensorProduct):
        return None
    _, view = view_of(None, [kernel], *samples, many=False)
    return view if view.featured else None


@jax.jit
def sums_of_view(view: View, targets: PyTree, weights: Any) -> Sums:
    """Sums of h over i ≠ j, and over i = j, of the kernel of a `single_view`."""
    several = jax.tree.map(lambda y: y[None], targets)
    return jax.tree.map(lambda x: x[0, 0], view.sums(None, several, weights))


@jax.jit
def row_sums_of_view(view: View, targets: PyTree, weights: Any) -> jax.Array:
    """Σ_{j≠i} w_j h_ij of each sample, [n]."""
    return view.featured[0].row_sums(view.predictions, targets, weights)
