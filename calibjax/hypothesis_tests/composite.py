"""Test of calibration up to a recalibration: with its parameters fitted anew in every redraw."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.batches import map_batches
from calibjax._core.compilation import jit
from calibjax._core.pytree import PyTree, record
from calibjax._core.sharding import follows_data
from calibjax.distributions import Bernoulli, Normal, Samples, WithFeatures
from calibjax.distributions.base import Distribution
from calibjax.distributions.features import bare, like
from calibjax.distributions.sampling import check_draws, draw
from calibjax.hypothesis_tests._redraw.components import skce_components
from calibjax.hypothesis_tests._redraw.family import Family, number_of, number_with_pairs
from calibjax.hypothesis_tests._redraw.features import Parts
from calibjax.hypothesis_tests._redraw.plan import family_of
from calibjax.hypothesis_tests._redraw.pool import over_pool
from calibjax.hypothesis_tests.checked_kernels import checked_family
from calibjax.hypothesis_tests.directions import direction_scores, direction_words
from calibjax.hypothesis_tests.ensembles import checked_ensembles, with_targets
from calibjax.hypothesis_tests.kernel_groups import default_kernels
from calibjax.hypothesis_tests.result import CalibrationTestResult, skce_result
from calibjax.hypothesis_tests.simulation import checked_batch_size
from calibjax.kernels import Kernel, NormalScore, TensorProduct
from calibjax.kernels.base import Conditional
from calibjax.kernels.expectations import (
    FeatureRule,
    centered_kernel,
    check_expectations,
    features,
    prepare_features,
    register_expectations,
)
from calibjax.kernels.expectations.residuals import EVERY_FAMILY
from calibjax.kernels.normal_scores import VECTORS, is_of_counts, normal_score, standard_normal


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
        return scored if scored is not None and _is_of_scores(self.kernel) else tuple(samples)


@record
class _OnBoth:
    """A lens on predictions, and on repaired ones that come together with the targets."""

    lens: Any

    def __call__(self, predictions: Any, repaired: tuple[Any, Any, Any]) -> tuple[Any, Any]:
        """Both as the lens shows them."""
        *samples, _ = repaired
        seen, _ = self.lens(predictions, samples[1])
        return seen, (*self.lens(*samples), None)


def _centered(kernel: _AfterRepair, p: Any, y: Any, q: Any, z: Any) -> jax.Array:
    del p, q
    return centered_kernel(kernel.kernel, *kernel.seen(y), *kernel.seen(z))


def _is_of_scores(kernel: Any) -> bool:
    return isinstance(kernel, NormalScore)


def _unknown(*_: Any) -> Any:
    raise NotImplementedError("no expectations without repaired predictions")


for _distribution in (*EVERY_FAMILY, WithFeatures):
    register_expectations(
        _AfterRepair,
        _distribution,
        single=_unknown,
        double=_unknown,
        centered=_centered,
        features=FeatureRule(
            lambda kernel, _, repaired: prepare_features(kernel.kernel, *kernel.seen(repaired)),
            lambda kernel, prepared, _, repaired: features(
                kernel.kernel, prepared, *kernel.seen(repaired)
            ),
        ),
    )


@follows_data
@checks.key_first
def composite_calibration_test(
    key: jax.Array,
    recalibration: Any,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    kernels: PyTree = None,
    weights: ArrayLike | None = None,
    num_draws: int = 199,
    batch_size: int | None = None,
) -> CalibrationTestResult:
    """Test of whether a recalibration is enough: calibration up to its parameters.

        H₀: T_θ(p) is calibrated for some θ,

    with the recalibration T_θ, such as a temperature. It is fitted to the data, and the aggregated
    statistic of `aggregated_skce_test` is computed for the repaired predictions. Its distribution
    is that for targets which are redrawn from the repaired predictions, to which the recalibration
    **is fitted again in every redraw**: without this the test would compare predictions that were
    fitted to their targets with some that were not. Kernels on predictions look at the original
    predictions, not at the repaired ones, which a map with many parameters makes nearly all equal
    where they are wrong.

    Of *ensembles*, `Samples`, it is redrawn which of the repaired members and the target is the
    target, as in `ensemble_skce_test`; kernels on predictions look at these m + 1 values together.

    It is a parametric bootstrap, whose level is right as n grows, not exact. Measured levels are in
    `docs/recalibration.md`. Maps that are rougher than the true one, as isotonic regression, make
    it conservative. So do redraws to which the recalibration cannot be fitted, such as
    `PlattScaling` to twelve samples, which count as larger: a `UserWarning` says how many there
    are, which compiled code cannot. A p-value of 1 is common, where no group of kernels sees more
    than on average.

    Args:
        key: a JAX random key.
        recalibration: record with `fit(predictions, targets)` and `apply(params, predictions)`,
            pure functions that return predictions from which targets can be drawn.
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        kernels: as in `aggregated_skce_test`, tensor products; None for `default_kernels`.
        weights: w ≥ 0 of the samples, [n], also of the fits.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).
        batch_size: number of redraws that are fitted and evaluated at once; by default about 16 MB.

    Returns:
        The result, as that of `aggregated_skce_test`, of the repaired predictions.

    Raises:
        TypeError: if an argument is of the wrong kind, or the recalibration lacks a method.
        ValueError: if shapes or values are wrong, or the recalibration cannot be fitted, to the
            targets or to half of the redraws.

    Cost: that of `aggregated_skce_test` and B fits, which are mapped over the redraws.

    References: none of the four papers has it; Stute, Manteiga and Quindimil (1993), Bootstrap
    based goodness-of-fit-tests, for refitting.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, recalibration
    >>> keys = jax.random.split(jax.random.key(0), 3)
    >>> wide = distributions.Normal(jnp.linspace(0, 1, 100), jnp.full(100, 0.2))
    >>> narrow = distributions.Normal(wide.loc, wide.scale / 2)
    >>> targets = distributions.sample_targets(keys[0], wide)
    >>> method = recalibration.AffineScaling()
    >>> test = composite_calibration_test(keys[1], method, narrow, targets, num_draws=99)
    >>> print(bool(test.pvalue > 0.05))
    True
    """
    for name in ("fit", "apply"):
        if not callable(getattr(recalibration, name, None)) or isinstance(recalibration, type):
            got = checks.described(recalibration)
            raise TypeError(f"recalibration: expected methods fit and apply, got {got}")
    predictions, targets, weights = checks.weighted_samples(
        predictions, targets, weights, minimum=2
    )
    if isinstance(bare(predictions), Samples):
        predictions = checked_ensembles(predictions, 2, "predictions")
    key, num_draws = checks.random_key(key), checks.number_of_draws("num_draws", num_draws)
    repaired = repaired_by(recalibration, predictions, targets, weights)
    predictions, repaired, drawn = as_tested(predictions, repaired, targets)
    if kernels is None:
        kernels = kernels_under(repaired, default_kernels(predictions))
    members, _ = family = checked_family(kernels, predictions, targets)
    tested = hypothesis_of(recalibration, family, predictions, repaired, targets, weights)
    size = checked_batch_size(batch_size, tested.family.num_bytes)
    parts = _pool(jax.random.split(key, num_draws), tested, drawn, batch_size=size)
    result = tested.result(parts)
    words = direction_words(members, predictions)
    judged = tested.judged(repaired, drawn)
    scores = direction_scores(members, words, predictions, judged, weights)
    components: Any = result.components
    components = dataclasses.replace(components, direction_scores=scores, directions=words)
    return dataclasses.replace(result, components=components)


@record
class Hypothesis:
    """That a recalibration is enough, of checked data.

    Attributes:
        recalibration: whose parameters are fitted.
        family: the statistics of original predictions, and of `judged` ones.
        predictions: the original ones.
        repaired: with the observed targets.
        weights: of the samples, or None.
        structure: tree of the kernels.
        has_scores: whether normal scores are computed before the kernels are.
    """

    recalibration: Any
    family: Family
    predictions: Any
    repaired: Any
    weights: Any
    structure: Any = dataclasses.field(metadata={"static": True})
    has_scores: bool = dataclasses.field(metadata={"static": True})

    @staticmethod
    def redrawn(key: jax.Array, repaired: Any) -> PyTree:
        """Other targets."""
        return draw(key, repaired)

    def redraw(self, key: jax.Array) -> PyTree:
        """Other targets of these predictions."""
        return self.redrawn(key, self.repaired)

    def fitted(self, targets: PyTree) -> Any:
        """Predictions that are repaired with other targets."""
        return repaired_by(self.recalibration, self.predictions, targets, self.weights)

    def judged(self, repaired: Any, targets: PyTree) -> tuple[Any, Any, Any]:
        """Repaired predictions, targets, and the distribution of their normal scores and these."""
        return _judged(repaired, targets) if self.has_scores else (repaired, targets, None)

    def loss(self, score: Callable[..., jax.Array], repaired: Any, targets: PyTree) -> jax.Array:
        """The score of repaired predictions."""
        given = {} if self.weights is None else {"weights": self.weights}
        return score(repaired, targets, **given)

    def parts(self, repaired: Any, targets: PyTree) -> Parts:
        """Means of h off and on the diagonal, of several sets of targets [b, n, ...]."""
        judged: Any = jax.vmap(self.judged)(repaired, targets)
        return self.family(self.predictions, judged, self.weights)

    def result(self, parts: Parts) -> CalibrationTestResult:
        """That of the means for the observed targets, then for redrawn ones."""
        name, weights = type(self.recalibration).__name__, self.weights
        _refuse_without_fits(name, parts[1])
        n = number_of(self.predictions, None)
        pool, components = skce_components(
            *parts,
            num_targets=n if weights is None else number_with_pairs(self.predictions, weights),
            ranked="omnibus",
            family=self.structure,
        )
        draws = "redrawn targets, fitted anew"
        missing = f"{name} could not be fitted to these targets"
        return skce_result(pool, components, parts[0][0], draws=draws, missing=missing)


@record
class _OfEnsembles(Hypothesis):
    """That of ensembles: `repaired` are pools of targets and repaired members.

    What is redrawn are the values of the pools, with the target first, [n, m + 1]; to all of them
    the recalibration is fitted on top of what repaired the members.
    """

    @staticmethod
    def redrawn(key: jax.Array, repaired: Any) -> jax.Array:
        """Pools with another value as the target."""
        values = repaired.values
        rows = jnp.arange(len(values))
        chosen = jax.random.randint(key, rows.shape, 0, values.shape[1])
        return values.at[rows, chosen].set(values[:, 0]).at[:, 0].set(values[rows, chosen])

    def fitted(self, targets: jax.Array) -> Samples:
        """Pools of repaired members and the targets of other pools."""
        own, members = targets[:, 0], Samples(targets[:, 1:])
        return with_targets(repaired_by(self.recalibration, members, own, self.weights), own)

    def judged(self, repaired: Any, targets: jax.Array) -> tuple[Any, Any, Any]:
        """Repaired pools and targets."""
        return repaired, targets[:, 0], None

    def loss(self, score: Callable[..., jax.Array], repaired: Any, targets: jax.Array) -> jax.Array:
        """The score of the members."""
        return super().loss(score, Samples(repaired.values[:, 1:]), targets[:, 0])


@jit
def _judged(repaired: Any, targets: PyTree) -> tuple[Any, Any, Any]:
    scored = jax.vmap(lambda q, y: (standard_normal(q), normal_score(q, y)))(repaired, targets)
    return repaired, targets, scored


def hypothesis_of(
    recalibration: Any,
    checked: tuple[Any, Any],
    predictions: Any,
    repaired: Any,
    targets: PyTree,
    weights: jax.Array | None = None,
) -> Hypothesis:
    """The hypothesis of checked data and kernels, the latter of `checked_family`."""
    check_draws(repaired, targets)
    members, structure = checked
    wrapped: list[Any] = [_after_repair(lens, kernel) for lens, kernel in members]
    has_scores = any(_is_of_scores(kernel.target.kernel) for _, kernel in wrapped) and not (
        isinstance(repaired, Normal | VECTORS | Samples) or is_of_counts(repaired)
    )
    # The plan of the family looks at shapes, at classes, and at length scales.
    judged: Any = _judged(repaired, targets) if has_scores else (repaired, targets, None)
    family = family_of(wrapped, predictions, judged)
    fit_bytes = 64 * sum(leaf.size for leaf in jax.tree.leaves((predictions, targets)))
    family = dataclasses.replace(family, num_bytes=max(family.num_bytes, fit_bytes))
    kind = _OfEnsembles if _are_ensembles(predictions, repaired) else Hypothesis
    return kind(recalibration, family, predictions, repaired, weights, structure, has_scores)


def as_tested(predictions: Any, repaired: Any, targets: PyTree) -> tuple[Any, Any, PyTree]:
    """Original and repaired predictions, and what is redrawn: targets, or pools of ensembles.

    These pools hold the target and the repaired members. Which of them is the target is redrawn.
    """
    if not _are_ensembles(predictions, repaired):
        return predictions, repaired, targets
    pools = with_targets(like(predictions, repaired), targets)
    return pools, bare(pools), bare(pools).values


def _are_ensembles(predictions: Any, repaired: Any) -> bool:
    return isinstance(bare(predictions), Samples) and isinstance(repaired, Samples)


def _refuse_without_fits(name: str, diagonal: jax.Array) -> None:
    """Refuses to go on with fits to less than half of the redraws, the rows after the first."""
    if not checks.is_concrete(diagonal):
        return
    is_missing: Any = np.isnan(np.asarray(diagonal)[1:]).reshape(len(diagonal) - 1, -1).any(1)
    if 2 * is_missing.sum() > len(is_missing):
        raise ValueError(
            f"recalibration: expected fits to redrawn targets, got none of {name} for "
            f"{is_missing.sum()} of {len(is_missing)} redraws; take one with fewer parameters, or "
            "more samples"
        )


def kernels_under(repaired: Any, groups: dict[str, Any]) -> dict[str, Any]:
    """The groups without kernels on targets whose expectations under repaired predictions are none.

    A recalibration may return predictions of another family.
    """

    def has_expectations(kernel: Any) -> bool:
        try:
            check_expectations(kernel.target, repaired)
        except NotImplementedError:
            return False
        return True

    def is_kept(member: Any) -> bool:
        """Lenses show predictions of classes, which have all of them."""
        return isinstance(member, tuple) or has_expectations(member)

    found = {
        group: {name: member for name, member in members.items() if is_kept(member)}
        for group, members in groups.items()
    }
    return {group: members for group, members in found.items() if members}


def repaired_by(recalibration: Any, predictions: Any, targets: Any, weights: Any = None) -> Any:
    """Predictions repaired with their own targets, without features."""
    checks.no_plain_objects("recalibration", recalibration)
    given = {} if weights is None else {"weights": weights}
    params = recalibration.fit(predictions, targets, **given)
    found = recalibration.apply(params, predictions)
    return bare(found if checks.is_distribution(found) else Bernoulli(found))


def _after_repair(lens: Any, kernel: Any) -> tuple[Any, TensorProduct]:
    """A member of the family, for targets that come with repaired predictions."""
    if not isinstance(kernel, TensorProduct):
        raise TypeError(
            "kernels: expected tensor products of a kernel on predictions and a target kernel, got "
            f"{checks.described(kernel)}"
        )
    product = TensorProduct(kernel.prediction, _AfterRepair(kernel.target))
    return None if lens is None else _OnBoth(lens), product


@functools.partial(jit, static_argnames="batch_size", effort="less")
def _pool(keys: jax.Array, tested: Hypothesis, targets: PyTree, *, batch_size: int) -> Parts:
    """Means of h off and on the diagonal for the observed targets, then for redrawn ones."""

    def evaluate(ys: PyTree) -> Parts:
        return tested.parts(jax.vmap(tested.fitted)(ys), ys)

    return over_pool(keys, tested.redraw, evaluate, targets, batch_size)


@functools.partial(jit, static_argnums=0, static_argnames="batch_size", effort="less")
def parts_and_losses(
    score: Callable[..., jax.Array],
    tested: Hypothesis,
    draws: PyTree,
    is_own: jax.Array | bool,
    *,
    batch_size: int,
) -> tuple[Parts, jax.Array]:
    """The means of h where they are wanted, and losses of the predictions that each draw repairs.

    Args:
        score: function (predictions, targets) → loss.
        tested: whose recalibration is fitted.
        draws: targets, [B + 1, n, ...].
        is_own: whether the means are wanted; they are zero otherwise.
        batch_size: number of draws at once.
    """

    def evaluate(ys: PyTree) -> tuple[Parts, jax.Array]:
        repaired = jax.vmap(tested.fitted)(ys)
        shapes = jax.eval_shape(tested.parts, repaired, ys)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        parts = jax.lax.cond(is_own, tested.parts, lambda *_: zeros, repaired, ys)
        return parts, jax.vmap(functools.partial(tested.loss, score))(repaired, ys)

    return map_batches(draws, evaluate, batch_size)
