"""Means of the calibration kernel for many sets of targets of the same predictions.

What tests with redraws share besides: statistics of users, batches, and a warning of members.
"""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import UNROLLED, floating_dtype, matmul, on_cpu
from calibjax._core.batches import BATCH_BYTES, default_batch_size
from calibjax._core.pytree import Numbers, PyTree, record
from calibjax.distributions import Ensemble
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.distributions.composed import bare
from calibjax.estimators.kernel import sample_pair
from calibjax.kernels import Kernel, NormalScore, TensorProduct
from calibjax.kernels.base import Conditional, prediction_kernel
from calibjax.kernels.expectations import (
    Features,
    batch_features,
    centered_kernel,
    centered_norm,
    features,
    prepare_features,
    register_expectations,
)
from calibjax.kernels.line import Exponentials, Line
from calibjax.operators.reductions import BLOCK_SIZE
from calibjax.operators.tiles import TILE_SIZE


@record
class _AfterRepair(Conditional):
    """A target kernel under repaired predictions, which come together with the targets.

    And with their normal scores if they have such that take long: every kernel on these sees the
    same ones, which it would compute again in a program that is much longer.
    """

    kernel: Kernel

    def seen(self, repaired: tuple[Any, Any, Any]) -> tuple[Any, Any]:
        """What the kernel is evaluated at."""
        *samples, scored = repaired
        return scored if scored is not None and is_of_scores(self.kernel) else tuple(samples)


@record
class _OnBoth:
    """A lens on predictions, and on repaired ones that come together with the targets."""

    lens: Callable[..., Any]

    def __call__(self, predictions: Any, repaired: tuple[Any, Any, Any]) -> tuple[Any, Any]:
        """Both as the lens shows them."""
        *samples, _ = repaired
        viewed, _ = self.lens(predictions, samples[1])
        return viewed, (*self.lens(*samples), None)


def _centered(kernel: _AfterRepair, p: object, y: tuple, q: object, z: tuple) -> jax.Array:
    del p, q
    return centered_kernel(kernel.kernel, *kernel.seen(y), *kernel.seen(z))


def is_of_scores(kernel: object) -> bool:
    """Whether a target kernel looks at normal scores."""
    return isinstance(kernel, NormalScore)


def _unknown(*_: object) -> NoReturn:
    raise NotImplementedError("no expectations without repaired predictions")


register_expectations(
    _AfterRepair,
    object,
    mean=_unknown,
    inner=_unknown,
    centered=_centered,
    features=Features(
        lambda kernel, prepared, _, repaired: features(
            kernel.kernel, prepared, *kernel.seen(repaired)
        ),
        lambda kernel, _, repaired: prepare_features(kernel.kernel, *kernel.seen(repaired)),
    ),
)


def after_repair(lens: Callable[..., Any] | None, kernel: object) -> tuple[Any, TensorProduct]:
    """A member of the family, for targets that come with repaired predictions."""
    if not isinstance(kernel, TensorProduct):
        raise TypeError(f"kernels: expected tensor products, got {checks.described(kernel)}")
    product = TensorProduct(kernel.prediction, _AfterRepair(kernel.target))
    return None if lens is None else _OnBoth(lens), product


def expected_norms(kernel: Any, repaired: Any) -> jax.Array:
    """E h of a target of repaired predictions [b, n] and itself, for a target kernel, [b, n].

    Zero where it is the same for all predictions, as of normal scores, and where it is not known:
    a user's kernel need not have the expectation of k(Z, Z).
    """
    zeros = jnp.zeros(jax.tree.leaves(repaired)[0].shape[:2])
    if is_of_scores(kernel.kernel):
        return zeros
    norm = functools.partial(centered_norm, kernel.kernel)
    try:
        return jax.vmap(jax.vmap(norm))(repaired)
    except NotImplementedError:
        return zeros


_DENSE_LABELS = 64  # classes, up to which matrix products are faster than sums by label
_COLUMNS = 192  # of a matrix product that takes longer than the matrix

Parts = tuple[jax.Array, jax.Array]  # means of h off and on the diagonal


def bytes_of_redraw(n: int, num_features: int, *, in_blocks: bool) -> int:
    """Memory of one redraw of n targets: these, and as many features as are held at once.

    In blocks the features should fit in a cache, and on CPUs the targets of eight redraws, or of
    more if they fit. By pairs enough redraws share the values of the kernel on predictions, even if
    they need more memory.
    """
    if in_blocks:
        targets = min(32 * n, BATCH_BYTES // 9) if on_cpu() else n
        return 16 * min(n, BLOCK_SIZE) * num_features + targets
    return min(16 * (n * num_features + n), BATCH_BYTES // -(-_COLUMNS // num_features))


def sums_of_redraws(
    featured: tuple[Kernel, Any], factors: Sequence[jax.Array], predictions: Any, targets: Any
) -> list[tuple[jax.Array, jax.Array]]:
    """Sums of products of features, from which `means_of_sums` has the means of h.

    Args:
        featured: a target kernel, and what its features f need.
        factors: features φ of kernels on predictions, [n, s] each.
        predictions: batch of n distributions.
        targets: several data sets of them, [b, n, ...].

    Returns:
        For each factor Σ_i φ(p_i) ⊗ f(p_i, y_i), [b, s, r], and Σ_i ‖φ(p_i)‖² ‖f(p_i, y_i)‖², [b].
    """
    norms = jnp.stack([jnp.sum(jnp.square(factor), 1) for factor in factors], 1)
    if has_many_labels(featured[0], predictions):
        return _sums_by_label(featured[0], factors, norms, predictions, targets)
    ys = jax.tree.map(lambda y: jnp.moveaxis(y, 0, 1), targets)
    sums, squares = operators.feature_sums(
        _redrawn_features, featured, (predictions, ys), jnp.concatenate(factors, 1), norms
    )
    size = jax.tree.leaves(targets)[0].shape[0]
    ends = np.cumsum([factor.shape[1] for factor in factors])[:-1]
    return [
        (jnp.moveaxis(own.reshape(len(own), -1, size), -1, 0), square.reshape(-1, size).sum(0))
        for own, square in zip(jnp.split(sums, ends), squares, strict=True)
    ]


def has_many_labels(kernel: Kernel, predictions: Distribution) -> bool:
    """Whether features are scaled residuals e_y − p of many classes, of which few change."""
    if not hasattr(kernel, "label_scales") or not has_class_probs(predictions):
        return False
    return jax.eval_shape(lambda p: p.class_probs, predictions).shape[-1] > _DENSE_LABELS


def _sums_by_label(
    kernel: Any, factors: Sequence[jax.Array], norms: jax.Array, predictions: Any, targets: Any
) -> list[tuple[jax.Array, jax.Array]]:
    """`sums_of_redraws` of scaled residuals, Σ_i φ_i a_i(y_i) e_{y_i} − Σ_i φ_i ∘ a_i ∘ p_i.

    The second sum is the same for all redraws; the first one takes a number for each sample, not
    one for each class.
    """
    probs = predictions.class_probs
    num_classes = probs.shape[1]
    scales = kernel.label_scales(probs)
    expected = scales * probs
    squared = jnp.sum(jnp.square(expected), 1)
    joined = jnp.concatenate(factors, 1)
    offset = matmul(expected.T, joined)

    def sums(labels: jax.Array) -> tuple[jax.Array, jax.Array]:
        scale, mean = (jnp.take_along_axis(x, labels[:, None], 1)[:, 0] for x in (scales, probs))
        observed = jax.ops.segment_sum(joined * scale[:, None], labels, num_classes)
        square = squared + jnp.square(scale) * (1 - 2 * mean)  # of the residual's norm
        return (observed - offset).T, matmul(square, norms)

    totals, diagonals = jax.lax.map(sums, targets)
    ends = np.cumsum([factor.shape[1] for factor in factors])[:-1]
    return list(zip(jnp.split(totals, ends, 1), diagonals.T, strict=True))


def means_on_line(
    line: Line, terms: dict[int, Any], n: Any, featured: tuple[Kernel, Any], *data: Any
) -> dict[int, Parts]:
    """Means of h over the pairs of n samples and over the diagonal, [b] each, of each kernel.

    Args:
        line: on which the predictions lie.
        terms: `Exponentials` of their distance, by kernel.
        n: number of samples.
        featured: a target kernel, and what its features need.
        data: n predictions, several data sets of targets [b, n, ...], and weights [n] or None.
    """
    if not terms:
        return {}
    predictions, targets, weights = data
    ys = jax.tree.map(lambda y: jnp.moveaxis(y, 0, 1), targets)
    data = jax.tree.map(lambda leaf: leaf[line.order], (predictions, ys, weights))
    rates = jnp.concatenate([own.rates for own in terms.values()])
    polynomials = tuple(q for own in terms.values() for q in own.polynomials)
    of_line = _redrawn_features, featured, data[:2], data[2], line.positions, rates
    upper, squares = operators.line_sums(*of_line, polynomials=polynomials)
    size = jax.tree.leaves(targets)[0].shape[0]
    upper = upper.reshape(rates.size, -1, size).sum(1)
    squares = squares.reshape(-1, size).sum(0)
    ends = np.cumsum([own.rates.size for own in terms.values()])[:-1]
    return {
        p: as_means(n, 2 * matmul(own.factors, forms), jnp.sum(own.factors) * squares)
        for (p, own), forms in zip(terms.items(), jnp.split(upper, ends), strict=True)
    }


def means_of_sums(n: jax.Array | int, sums: jax.Array, diagonal: jax.Array) -> Parts:
    """Means of h over the pairs of n samples and over the diagonal, [b] each."""
    return as_means(n, jnp.sum(jnp.square(sums), (-2, -1)) - diagonal, diagonal)


def _redrawn_features(featured: tuple[Kernel, Any], samples: tuple[Any, Any]) -> jax.Array:
    """Features of several targets of m predictions, [r b, m]."""
    predictions, targets = samples
    targets = jax.tree.map(lambda y: jnp.moveaxis(y, 1, 0), targets)
    values = batch_features(*featured, predictions, targets)
    return values.reshape(-1, values.shape[-1])


def as_means(n: jax.Array | int, off_diagonal: jax.Array, diagonal: jax.Array) -> Parts:
    """Means of h from its sums off and on the diagonal, over n samples."""
    return off_diagonal / n / (n - 1), diagonal / n  # n² may overflow


def num_features(kernel: Kernel, prepared: tuple, *samples: Any) -> int:
    """Number of features of a target kernel."""
    return _features_of_first.eval_shape(kernel, prepared, *samples).size


@jax.jit  # whose shapes are kept
def _features_of_first(kernel: Kernel, prepared: tuple, *samples: Any) -> jax.Array:
    return features(kernel, prepared, *jax.tree.map(lambda leaf: leaf[0], samples))


def number_of(predictions: Distribution, weights: jax.Array | None) -> jax.Array | int:
    """Number of samples n, the effective one if they have weights."""
    length = checks.leading_size("predictions", predictions)
    return length if weights is None else jnp.sum(weights)


def number_with_pairs(predictions: Distribution, weights: jax.Array | None) -> jax.Array | int:
    """`number_of` samples, refused where one has all the weight up to rounding: without pairs."""
    number, dtype = number_of(predictions, weights), floating_dtype(predictions)
    if checks.is_concrete(number) and float(number) - 1 <= 8 * float(jnp.finfo(dtype).eps):
        raise ValueError(f"weights: expected pairs that count, got one sample, rounded to {dtype}")
    return number


@record
class PredictionKernel:
    """A kernel on predictions, and features of its matrix if few determine it.

    Attributes:
        kernel: k_P.
        factor: F with k_P(p_i, p_j) = Σ_s F_is F_js up to rounding, [n, s], or None.
        terms: of a kernel of exponentials on a line, or None.
        line: place of that line.
    """

    kernel: Kernel
    factor: jax.Array | None = None
    terms: Exponentials | None = None
    line: int | None = dataclasses.field(default=None, metadata={"static": True})

    @property
    def is_linear(self) -> bool:
        """Whether sums over pairs take linear time."""
        return self.factor is not None or self.line is not None

    def diagonal(self, predictions: Distribution) -> jax.Array:
        """k_P(p_i, p_i), [n]."""
        if self.factor is not None:
            return jnp.sum(jnp.square(self.factor), 1)
        return jax.vmap(lambda p: prediction_kernel(self.kernel, p, p))(predictions)


@record
class ByFeatures:
    """Means of k_P(p_i, p_j) ⟨f_i, f_j⟩ off and on the diagonal, by matrix products of features.

    Several tensor products k_P k_Y share the features f of their target kernels k_Y.

    Attributes:
        lines: on which predictions lie.
        prediction_kernels: different k_P.
        target_kernels: different k_Y.
        prepared: what the features of these need.
        products: places of both factors of each of the K products.
    """

    lines: tuple[Line, ...]
    prediction_kernels: tuple[PredictionKernel, ...]
    target_kernels: tuple[Kernel, ...]
    prepared: tuple[Any, ...]
    products: tuple[tuple[int, int], ...] = dataclasses.field(metadata={"static": True})

    def __call__(self, predictions: Distribution, targets: jax.Array, weights: Any) -> Parts:
        """Means for targets [b, n, ...], [b, K] each."""
        n = number_of(predictions, weights)
        found: dict[tuple[int, int], Parts] = {}
        for t, featured in enumerate(self._featured()):
            data = featured, predictions, targets, weights
            chosen = {p: self.prediction_kernels[p] for p, its in self.products if its == t}
            parts = _factored(n, chosen, *data) | _by_pairs(n, chosen, *data)
            for place, line in enumerate(self.lines):
                terms = {p: own.terms for p, own in chosen.items() if own.line == place}
                parts |= means_on_line(line, terms, n, *data)
            found |= {(p, t): part for p, part in parts.items()}
        columns = zip(*(found[product] for product in self.products), strict=True)
        off_diagonal, diagonal = (jnp.stack(column, 1) for column in columns)
        return off_diagonal, diagonal

    def expected_diagonal(self, predictions: Any, repaired: Any, weights: Any) -> jax.Array:
        """Σ_i w_i E h_i of samples with themselves, [b, K]."""
        norms = [expected_norms(kernel, repaired) for kernel in self.target_kernels]
        diagonals = [weights * kernel.diagonal(predictions) for kernel in self.prediction_kernels]
        return jnp.stack([matmul(norms[t], diagonals[p]) for p, t in self.products], 1)

    def _featured(self) -> list[tuple[Kernel, Any]]:
        return list(zip(self.target_kernels, self.prepared, strict=True))

    def num_bytes(self, predictions: Distribution, targets: ArrayLike) -> int:
        """Memory of one redraw: its targets, and the features of as many as are held at once."""
        n = checks.leading_size("targets", targets)
        in_blocks = all(kernel.is_linear for kernel in self.prediction_kernels)
        numbers = max(num_features(*each, predictions, targets) for each in self._featured())
        return bytes_of_redraw(n, numbers, in_blocks=in_blocks)


def _factored(
    n: Any, chosen: Mapping[int, PredictionKernel], featured: tuple[Kernel, Any], *data: Any
) -> dict[int, Parts]:
    """Means for the kernels on predictions that have a factor, in linear time."""
    predictions, targets, weights = data
    factors = {p: own.factor for p, own in chosen.items() if own.factor is not None}
    if not factors:
        return {}
    if weights is not None:
        factors = {p: factor * weights[:, None] for p, factor in factors.items()}
    sums = sums_of_redraws(featured, [*factors.values()], predictions, targets)
    return {p: means_of_sums(n, *own) for p, own in zip(factors, sums, strict=True)}


def _by_pairs(
    n: Any, chosen: Mapping[int, PredictionKernel], featured: tuple[Kernel, Any], *data: Any
) -> dict[int, Parts]:
    """Means for the kernels that have neither factor nor line, by products over all pairs."""
    predictions, targets, weights = data
    others = {p: own.kernel for p, own in chosen.items() if not own.is_linear}
    if not others:
        return {}
    values = batch_features(*featured, predictions, targets)
    values = values if weights is None else values * weights
    _, size, length = values.shape
    rows = predictions, values.reshape(-1, length).T
    found = {}
    for p, kernel in others.items():
        forms = operators.split_quadratic_forms(prediction_kernel, kernel, *rows)
        found[p] = as_means(n, *(form.reshape(-1, size).sum(0) for form in forms))
    return found


@record
class ByPairs:
    """The same means by pairs; terms that depend on predictions only are computed once."""

    kernel: Kernel

    def __call__(self, predictions: Distribution, targets: jax.Array, weights: Any) -> Parts:
        """Means for targets [b, n, ...], [b, 1] each."""
        n = number_of(predictions, weights)

        def means(y: jax.Array) -> Parts:
            samples = predictions, y
            length = checks.leading_size("predictions", predictions)
            # Ones of this type leave that of h.
            each = jnp.ones(length, jnp.int8) if weights is None else weights
            data = self.kernel, samples, each[:, None]
            return as_means(n, *operators.split_quadratic_forms(sample_pair, *data))

        return jax.vmap(means)(targets)

    def expected_diagonal(self, predictions: Any, repaired: Any, weights: Any) -> jax.Array:
        """As that of `ByFeatures`."""
        kernel: Any = self.kernel
        diagonal = PredictionKernel(kernel.prediction).diagonal(predictions)
        return matmul(expected_norms(kernel.target, repaired), weights * diagonal)[:, None]

    def num_bytes(self, predictions: Distribution, targets: ArrayLike) -> int:
        """Memory of one redraw: a tile, or one per component of the targets if these are many."""
        n = checks.leading_size("targets", targets)
        num_components = sum(leaf.size // n for leaf in jax.tree.leaves(targets))
        wide = num_components if num_components > UNROLLED else 1
        return wide * bytes_of_tile(n)


Statistic = ByFeatures | ByPairs


@record
class ThroughLens:
    """A statistic of the data as a lens shows them, or of the data themselves."""

    lens: Any
    statistic: Statistic

    def __call__(self, predictions: Distribution, targets: jax.Array, weights: Any) -> Parts:
        """Means for targets [b, n, ...], [b, K] each."""
        return self.statistic(*self._seen(predictions, targets), weights)

    def expected_diagonal(self, predictions: Any, repaired: Any, weights: Any) -> jax.Array:
        """See `Family.expected_diagonal`."""
        pair = predictions, repaired
        if self.lens is not None:
            labels = jnp.zeros(jax.tree.leaves(repaired)[0].shape[:2], int)  # of any class
            p, (q, *_) = self._seen(predictions, (repaired, labels, None))
            pair = p, q
        shares = jnp.ones(()) if weights is None else jnp.square(weights)
        return self.statistic.expected_diagonal(*pair, shares / number_of(predictions, weights))

    def _seen(self, predictions: Distribution, targets: Any) -> tuple[Any, Any]:
        if self.lens is None:
            return predictions, targets
        first = jax.tree.map(lambda y: y[0], targets)
        viewed, _ = self.lens(predictions, first)  # the same for all targets
        return viewed, jax.vmap(lambda y: self.lens(predictions, y)[1])(targets)


@record
class Alike:
    """Statistics that differ in their arrays only, stacked: a loop over them is compiled once."""

    members: ThroughLens

    def __call__(self, *data: Any) -> Parts:
        """Means for targets [b, n, ...], [b, K] each, one statistic after the other."""
        return self._of_all(lambda member: member(*data))

    def expected_diagonal(self, *data: Any) -> jax.Array:
        """See `Family.expected_diagonal`."""
        return self._of_all(lambda member: member.expected_diagonal(*data))

    def _of_all(self, values: Callable[[ThroughLens], Any]) -> Any:
        means = jax.lax.map(values, self.members)
        return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1), means)


@record
class Family:
    """How the kernels of a family are evaluated, all on the same redraws.

    Attributes:
        statistics: evaluate some of the kernels each.
        order: places of the kernels in what the statistics return one after the other.
        num_bytes: memory of one redraw.
    """

    statistics: tuple[ThroughLens | Alike, ...]
    order: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    num_bytes: int = dataclasses.field(metadata={"static": True})

    def __call__(
        self, predictions: Distribution, targets: jax.Array, weights: jax.Array | None = None
    ) -> Parts:
        """Means for targets [b, n, ...], with the weights of all, [b, K] each."""
        parts = [each(predictions, targets, weights) for each in self.statistics]
        order = np.array(self.order)
        return jax.tree.map(lambda *x: jnp.concatenate(x, 1)[:, order], *parts)

    def expected_diagonal(self, *data: Any) -> jax.Array:
        """Means of h on the diagonal that repaired predictions [b, n] expect, [b, K].

        Of kernels of `after_repair`, predictions, repaired ones, and weights or None.
        """
        diagonals = [each.expected_diagonal(*data) for each in self.statistics]
        return jnp.concatenate(diagonals, 1)[:, np.array(self.order)]


def bytes_of_tile(num_samples: int) -> int:
    """Memory of a statistic that works on tiles of pairs."""
    return 16 * min(num_samples, TILE_SIZE) ** 2


def warn_of_members(predictions: Distribution) -> None:
    """Warns where targets would be resampled from the members of ensembles."""
    if isinstance(bare(predictions), Ensemble):
        words = "predictions: targets are resampled from the draws; ensemble_skce_test is exact"
        warnings.warn(f"{words} for every number of members", UserWarning, stacklevel=4)


def multinomial_counts(keys: jax.Array, num_samples: int) -> jax.Array:
    """Number of copies of each of n samples in a resample with replacement per key, [n, keys]."""

    def count(key: jax.Array) -> jax.Array:
        draws = jax.random.randint(key, (num_samples,), 0, num_samples)
        return jnp.zeros(num_samples, jnp.int32).at[draws].add(1)

    return jax.vmap(count, out_axes=1)(keys)


def checked_batch_size(batch_size: int | None, num_bytes: int) -> int:
    """The number of draws that are evaluated at once, by default by the memory of one."""
    return batch_size or default_batch_size(num_bytes)


@dataclasses.dataclass(frozen=True)
class Bound:
    """A function with its first arguments, equal to another one if they are."""

    function: Callable[..., Any]
    first: tuple[Any, ...]

    def __call__(self, *others: Any) -> Any:
        """The value."""
        return self.function(*self.first, *others)


def checked_statistic(statistic: Callable[..., Any]) -> Callable[..., Any]:
    """The statistic as (weights or None, predictions, targets) → floating-point values."""
    return Bound(_values, (statistic,))


def _values(statistic: Callable[..., Any], weights: Any, *samples: Any) -> PyTree:
    def number(leaf: Numbers) -> jax.Array:
        leaf = jnp.asarray(checks.real("statistic", leaf))
        return leaf.astype(jnp.result_type(leaf, jnp.float32))  # counts are numbers, too

    options = {} if weights is None else {"weights": weights}
    values = jax.tree.map(number, statistic(*samples, **options))
    if not any(map(jnp.size, jax.tree.leaves(values))):
        raise ValueError("statistic: expected a function that returns numbers, got none")
    return values
