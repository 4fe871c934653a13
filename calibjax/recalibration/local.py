"""Recalibration within neighbourhoods (LoRe) and within groups."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.arithmetic import ratio
from calibjax._core.gate import Seen, checked, group_ids, passed, sample_weights, usual
from calibjax._core.pytree import Numbers, PyTree, T, part, record
from calibjax.estimators.local import Neighbourhood, checked_neighbourhood
from calibjax.kernels.line import smoothed_means
from calibjax.recalibration.base import Recalibrator, Weights, warn_about_kept


def _with_one_scale(neighbourhood: Any, name: str) -> Neighbourhood:
    """A checked neighbourhood with one length scale."""
    neighbourhood = checked_neighbourhood(neighbourhood)
    scale = getattr(neighbourhood.kernel, "length_scale", 0.0)
    checks.shape(f"{name}.kernel.length_scale", scale, (), "() (a scalar)")
    return neighbourhood


@record
class LocalAccuracies:
    """What `LocalRecalibration` learns: the calibration samples themselves.

    Attributes:
        neighbourhood: kernel on features and binning of confidences.
        features: features of the samples, [n, d] or a pytree with leading axis n.
        confidences: their confidences, [n].
        correct: whether the predicted class was observed, 0 or 1, [n].
        weights: of the samples, [n], or None.
    """

    neighbourhood: Neighbourhood
    features: Any
    confidences: jax.Array
    correct: jax.Array
    weights: Weights = None

    def check_values(self, name: str) -> "LocalAccuracies":
        """Checks the samples, which someone may have made or changed."""
        data: dict[str, Any] = dict(vars(self))
        data["neighbourhood"] = _with_one_scale(self.neighbourhood, f"{name}.neighbourhood")
        return LocalAccuracies(*passed(**data))

    @checked
    def counts(self, confidences: Numbers) -> jax.Array:
        """Number of calibration samples in the bins of other confidences, [n'] for [n'].

        Those with weight 0 do not count.
        """
        weights = self.weights
        points, bins = self.neighbourhood.groups(self.confidences, confidences, weights)
        counts = jnp.ones_like(bins) if weights is None else (weights > 0).astype(bins.dtype)
        return jax.ops.segment_sum(counts, bins, bins.size + points.size)[points]


@record
class LocalRecalibration(Recalibrator):
    """Local recalibration (LoRe): kernel-weighted accuracy of the samples in the same bin.

        confidence'(x) = Σ_i k(φ(x), φ_i) correct_i / Σ_i k(φ(x), φ_i),

    sums over the calibration samples whose confidence is in the same bin as that of x; with weights
    k(φ(x), φ_i) is multiplied by w_i. A wide kernel gives `HistogramBinning`, a narrow one the
    correctness of the nearest sample, 0 or 1.

    The bins are determined by the calibration samples, also for new confidences. Confidences in
    bins without calibration samples are kept, with a `UserWarning`, which compiled code cannot
    give: check `params.counts(confidences)`.

    `fit(confidences, correct, features)` returns `LocalAccuracies`,
    `apply(params, confidences, features)` confidences [n]. The confidences are an array [n] or a
    batch of n `Bernoulli`s, `correct` is 0 or 1, [n], and features are [n, d], or any pytree with
    leading axis n. `apply` can be differentiated, also with respect to the kernel, which is part of
    the params.

    Attributes:
        neighbourhood: kernel on features, with one length scale, and binning of confidences;
            `Neighbourhood.laplacian(0.2, 15)` in L21 for t-SNE features.

    Raises:
        TypeError: by the methods if an argument is of the wrong kind.
        ValueError: by the methods if shapes or values are wrong.

    Cost: in `apply` one distance and one exponential for each pair of a point and a calibration
    sample in the same bin, O(n + n' + tile²) memory. `fit` only stores the samples.

    References: L21 eq. (6), App. A.

    >>> import jax.numpy as jnp
    >>> from calibjax.estimators import Neighbourhood
    >>> method = LocalRecalibration(Neighbourhood.laplacian(0.1, 5))
    >>> features = jnp.array([[0.0], [0.0], [9.0]])
    >>> params = method.fit(jnp.array([0.7, 0.7, 0.7]), jnp.array([1, 0, 1]), features)
    >>> print(method.apply(params, jnp.array([0.75, 0.75]), jnp.array([[0.0], [9.0]])))
    [0.5 1. ]
    """

    neighbourhood: Neighbourhood = part(_with_one_scale)

    @checked
    def fit(
        self,
        confidences: Numbers,
        correct: Numbers,
        features: PyTree,
        weights: Numbers | None = None,
    ) -> LocalAccuracies:
        """The calibration samples."""
        self.neighbourhood.groups(confidences, None, weights)  # refuses invalid binnings
        one = jax.tree.map(lambda leaf: leaf[0], features)
        jax.eval_shape(self.neighbourhood.kernel, one, one)  # refuses kernels on other points
        # Traced numbers that are not probabilities belong to no bin.
        correct = jnp.where(jnp.any(jnp.isnan(confidences)), jnp.nan, correct)
        return LocalAccuracies(self.neighbourhood, features, confidences, correct, weights)

    @checked
    def apply(self, params: LocalAccuracies, confidences: Numbers, features: PyTree) -> jax.Array:
        """Local accuracies at other points, [n]."""
        checks.same_kind("features", features, "the calibration features", params.features)
        near, values, weights = params.neighbourhood, params.correct[:, None], params.weights
        points, samples = near.groups(params.confidences, confidences, weights)
        if weights is not None:
            samples = jnp.where(weights == 0, -1, samples)  # in no group
            values = jnp.concatenate([weights[:, None] * values, weights[:, None]], 1)
        means, totals = smoothed_means(
            near.kernel, features, params.features, values, (points, samples)
        )
        checks.finite("kernel(x, x')", totals)  # NaN if it is negative
        is_kept = totals[0] == 0
        if weights is not None:
            means = ratio(means[..., :1], means[..., 1:])
        warn_about_kept("LocalRecalibration", is_kept)
        accuracies = jnp.clip(means[0, :, 0], 0, 1).astype(confidences.dtype)  # rounding
        return jnp.where(is_kept | jnp.isnan(confidences), confidences, accuracies)


@record
class GroupWise(Recalibrator):
    """The same recalibration for each group of samples, learned from that group alone.

    `fit` and `apply` take the arguments of the recalibrator, followed by the groups: with the ages
    of people as groups, `fit(confidences, correct, ages)` and `apply(params, confidences, ages)`.

    Small groups have noisy params, or none at all: some methods need both correct and wrong
    predictions and raise an error otherwise. Merge such groups with others.

    `fit(*arguments, groups, weights=None)` returns a dictionary of the params of each group,
    `apply(params, *arguments, groups)` what the recalibrator's `apply` returns, in the order of
    the samples. With weights, which the recalibrator's `fit` has to take, groups in which all of
    them are zero are left out. The groups are integers ≥ 0, with or without gaps, [n]. Under `jit`
    they have to be known at compile time; other arguments may be traced.

    Attributes:
        recalibrator: anything with methods `fit` and `apply` whose arguments, apart from params,
            are arrays or pytrees of arrays with leading axis n.

    Raises:
        TypeError: by the methods if the recalibrator has no such methods, or the groups are not
            integers, or traced; by `fit` if there are weights that the recalibrator does not take.
        ValueError: by the methods if shapes or values are wrong; by `fit` if the recalibrator's
            `fit` fails for a group, with the name of the group; by `apply` if `fit` has not seen a
            group.

    Cost: that of the recalibrator for each group. Its methods are compiled for each group size.

    References: L21 §5.

    >>> import jax.numpy as jnp
    >>> from calibjax.recalibration import HistogramBinning
    >>> method = GroupWise(HistogramBinning(1))
    >>> confidences = jnp.array([0.6, 0.7, 0.8, 0.9])
    >>> params = method.fit(confidences, jnp.array([0, 1, 1, 1]), jnp.array([3, 7, 3, 7]))
    >>> print(method.apply(params, jnp.array([0.5, 0.5, 0.5]), jnp.array([7, 3, 7])))
    [1.  0.5 1. ]
    """

    recalibrator: Any = part(lambda value, name: usual("recalibration")(name, value, Seen({})))

    @checked(weights=lambda name, value, seen: value)  # whose samples are not known yet
    def fit(self, *arguments: Any, weights: Numbers | None = None) -> dict[int, Any]:
        """Params of each group."""
        samples, members = _grouped(self.recalibrator.fit, arguments, weights)
        weights = sample_weights(weights, samples, as_copies=True)
        if weights is not None and checks.is_concrete(weights):
            is_used = np.asarray(weights) > 0
            members = {g: rows for g, rows in members.items() if is_used[rows].any()}
        params = {}
        for group, rows in members.items():
            options = {} if weights is None else {"weights": weights[rows]}
            try:
                params[group] = self.recalibrator.fit(*_taken(samples, rows), **options)
            except ValueError as error:
                raise ValueError(f"groups: in group {group}, {error}") from error
        return params

    @checked
    def apply(self, params: dict[int, Any], *arguments: Any) -> PyTree:
        """Predictions of each group, corrected with the params of the group."""
        if not isinstance(params, dict):
            raise TypeError(f"params: expected those of fit, got {checks.described(params)}")
        apply = self.recalibrator.apply
        samples, members = _grouped(functools.partial(apply, params), arguments)
        unknown = sorted(members.keys() - params.keys())
        if unknown:
            raise ValueError(
                f"groups: expected groups that fit has seen, {list(params)}, got {unknown}"
            )
        parts = [apply(params[group], *_taken(samples, rows)) for group, rows in members.items()]
        positions = np.argsort(np.concatenate([*members.values()]))
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[positions], *parts)


def _grouped(
    method: Callable[..., Any], arguments: tuple[Any, ...], weights: Any = None
) -> tuple[tuple[Any, ...], dict[int, np.ndarray]]:
    """The arguments before the groups, and the positions of the samples of each group."""
    *others, groups = arguments
    named = inspect.signature(method).bind(*others).arguments
    if "weights" in named:
        raise TypeError("groups: expected it as the last argument, before weights=..., got others")
    checks.same_rows(**named, groups=groups, weights=weights)
    samples = tuple(checks.as_arrays(f"arguments[{i}]", x) for i, x in enumerate(others))
    n = checks.leading_size("arguments", samples)
    if not checks.is_concrete(groups):
        raise TypeError(f"groups: expected integers that are known when compiling, got {groups}")
    with jax.ensure_compile_time_eval():  # known groups stay known under `jit`
        groups = np.asarray(group_ids("groups", groups, n))
    return samples, {int(g): np.flatnonzero(groups == g) for g in np.unique(groups)}


def _taken(arguments: T, indices: np.ndarray) -> T:
    """Some of the samples."""
    return jax.tree.map(lambda leaf: leaf[indices], arguments)
