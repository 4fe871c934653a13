"""Test of calibration up to a recalibration, fitted anew to every resampled data set."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.arithmetic import matmul
from calibjax._core.environment import default_batch_size, map_batches
from calibjax._core.gate import checked, inner
from calibjax._core.pytree import Numbers, PyTree, record
from calibjax.distributions import Bernoulli, Ensemble, Normal
from calibjax.distributions.base import Distribution, check_draws, draw
from calibjax.distributions.composed import bare, like
from calibjax.hypothesis_tests.aggregated import are_squares, direction_scores, direction_words
from calibjax.hypothesis_tests.components import skce_components
from calibjax.hypothesis_tests.ensembles import checked_ensembles, with_targets
from calibjax.hypothesis_tests.exact import checked_family
from calibjax.hypothesis_tests.redraws import as_means, number_of, number_with_pairs, over_pool
from calibjax.hypothesis_tests.result import CalibrationTestResult, skce_result
from calibjax.kernels import Kernel, NormalScore, TensorProduct, default_kernels
from calibjax.kernels.base import Conditional, prediction_kernel
from calibjax.kernels.expectations import (
    Features,
    centered_kernel,
    centered_norm,
    check_expectations,
    features,
    prepare_features,
    register_expectations,
)
from calibjax.kernels.residuals import VECTORS, is_of_counts, normal_score, standard_normal
from calibjax.operators.kernel_matrix import Tiled
from calibjax.operators.plan import Alike, Plan, View, plan_of

PartsOfFits = tuple[jax.Array, jax.Array, jax.Array]  # what `Hypothesis.parts` returns
_ZERO = 1e-3  # n SKCE_b of all redraws in units of its mean, which one number has in 2.5 % of them


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


@record
class Hypothesis:
    """That a recalibration is enough, of checked data.

    Attributes:
        recalibration: whose parameters are fitted.
        plan: how the kernels are evaluated for original predictions, and `judged` ones.
        predictions: the original ones.
        repaired: with the observed targets.
        weights: of the samples, or None.
        structure: tree of the kernels.
        squares: `SKCEComponents.squares` of them.
        has_scores: whether normal scores are computed before the kernels are.
    """

    recalibration: Any
    plan: Plan
    predictions: Any
    repaired: Any
    weights: Any
    structure: Any = dataclasses.field(metadata={"static": True})
    squares: tuple[bool, ...] = dataclasses.field(metadata={"static": True})
    has_scores: bool = dataclasses.field(metadata={"static": True})

    @staticmethod
    def redrawn(key: jax.Array, repaired: Distribution) -> PyTree:
        """Other targets."""
        return draw(key, repaired)

    def fitted(self, targets: PyTree) -> Any:
        """Predictions that are repaired with other targets."""
        return repaired_by(self.recalibration, self.predictions, targets, self.weights)

    def judged(self, repaired: Distribution, targets: PyTree) -> tuple[Any, Any, Any]:
        """Repaired predictions, targets, and the distribution of their normal scores and these."""
        return _judged(repaired, targets) if self.has_scores else (repaired, targets, None)

    def loss(
        self, score: Callable[..., jax.Array], repaired: Distribution, targets: PyTree
    ) -> jax.Array:
        """The score of repaired predictions."""
        options = {} if self.weights is None else {"weights": self.weights}
        return score(repaired, targets, **options)

    def parts(self, repaired: Distribution, targets: PyTree) -> PartsOfFits:
        """Means of h off and on the diagonal, of several sets of targets [b, n, ...].

        The third is what the repaired predictions expect of the second.
        """
        judged: Any = jax.vmap(self.judged)(repaired, targets)
        n = number_of(self.predictions, self.weights)
        means = as_means(n, *self.plan.sums(self.predictions, judged, self.weights))
        return *means, _expected_diagonal(self.plan, self.predictions, repaired, self.weights) / n

    def result(self, parts: PartsOfFits) -> CalibrationTestResult:
        """That of the means for the observed targets, then for resampled ones."""
        name, weights, fits = type(self.recalibration).__name__, self.weights, parts[1][1:]
        if checks.is_concrete(fits):
            is_missing = np.isnan(fits).reshape(len(fits), -1).any(1)
            if 2 * is_missing.sum() > len(fits):
                got = f"none of {name} for {is_missing.sum()} of {len(fits)}; take more samples"
                raise ValueError(f"recalibration: expected fits to resampled targets, got {got}")
        n = number_with_pairs(self.predictions, weights)
        unbiased, diagonal, dispersion = _comparable(parts, n)
        pool, components = skce_components(
            unbiased,
            diagonal,
            dispersion=dispersion,
            num_targets=n,
            ranked="omnibus",
            family=self.structure,
            squares=self.squares,
        )
        draws = "targets resampled under the null, refitted"
        missing = f"{name} could not be fitted to these targets"
        return skce_result(pool, components, parts[0][0], draws=draws, missing=missing)


@jax.jit
def _comparable(parts: PartsOfFits, n: jax.Array | int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Means of h off and on the diagonal, and the dispersion, which differ in the targets only.

    The dispersion is the mean on the diagonal. Of classes and ensembles it follows closely from the
    fit, and varies between the fits to redraws more than the targets of one fit make it. So it is
    measured from what its own fit expects, to which that of the observed targets is added.

    Means of kernels that every fit makes zero are the same in all redraws, such as the score of the
    parameter that is fitted. What is left of them depends on the fitted parameters only, says
    nothing about calibration, and costs power: the statistic of the redraws would be the largest of
    more kernels than can be loud for the data.
    """
    unbiased, diagonal, expected = parts
    total = diagonal + (n - 1) * unbiased
    largest = [jnp.max(x, 0, initial=0, where=jnp.isfinite(x)) for x in (total, diagonal)]
    is_zero = largest[0] <= _ZERO * largest[1]
    means = unbiased, diagonal, diagonal + (expected[0] - expected)
    unbiased, diagonal, dispersion = (jnp.where(is_zero, mean[0], mean) for mean in means)
    return unbiased, diagonal, dispersion


def _expected_diagonal(plan: Plan, predictions: Any, repaired: Any, weights: Any) -> jax.Array:
    """Σ_i w_i² E h_i of samples with themselves under repaired predictions [b, n], [b, K]."""
    shares = jnp.ones(()) if weights is None else jnp.square(weights)

    def of_view(view: View) -> jax.Array:
        q = repaired
        if view.lens is not None:
            labels = jnp.zeros(jax.tree.leaves(repaired)[0].shape[:2], int)  # of any class
            seen = jax.vmap(lambda y: view.lens(predictions, y)[1])
            q, *_ = seen((repaired, labels, None))
        columns = []
        for each in view.featured:
            norms = expected_norms(each.kernel, q)
            columns += [matmul(norms, shares * own.diagonal) for own in each.operators]
        for kernel in view.others:
            own: Any = Tiled(kernel.prediction, view.predictions, prediction_kernel)
            columns.append(matmul(expected_norms(kernel.target, q), shares * own.diagonal))
        return jnp.stack(columns, 1)

    parts = [
        part.mapped(of_view) if isinstance(part, Alike) else of_view(part) for part in plan.parts
    ]
    return jnp.concatenate(parts, 1)[:, np.array(plan.order)]


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

    def fitted(self, targets: jax.Array) -> Ensemble:
        """Pools of repaired members and the targets of other pools."""
        observed, members = targets[:, 0], Ensemble(targets[:, 1:])
        return with_targets(
            repaired_by(self.recalibration, members, observed, self.weights), observed
        )

    def judged(self, repaired: Any, targets: jax.Array) -> tuple[Any, Any, Any]:
        """Repaired pools and targets."""
        return repaired, targets[:, 0], None

    def loss(self, score: Callable[..., jax.Array], repaired: Any, targets: jax.Array) -> jax.Array:
        """The score of the members."""
        return super().loss(score, Ensemble(repaired.values[:, 1:]), targets[:, 0])


@jax.jit
def _judged(repaired: Distribution, targets: PyTree) -> tuple[Any, Any, Any]:
    scored = jax.vmap(lambda q, y: (standard_normal(q), normal_score(q, y)))(repaired, targets)
    return repaired, targets, scored


def hypothesis_of(
    recalibration: Any,
    checked: tuple[Any, Any],
    predictions: Distribution,
    repaired: Distribution,
    targets: PyTree,
    weights: jax.Array | None = None,
) -> Hypothesis:
    """The hypothesis of checked data and kernels, the latter of `checked_family`."""
    check_draws(repaired, targets)
    members, structure = checked
    wrapped: list[Any] = [after_repair(lens, kernel) for lens, kernel in members]
    has_scores = any(is_of_scores(kernel.target.kernel) for _, kernel in wrapped) and not (
        isinstance(repaired, Normal | VECTORS | Ensemble) or is_of_counts(repaired)
    )
    # The plan looks at shapes, at classes, and at length scales.
    judged: Any = _judged(repaired, targets) if has_scores else (repaired, targets, None)
    plan = plan_of(wrapped, predictions, judged)
    fit_bytes = 64 * sum(leaf.size for leaf in jax.tree.leaves((predictions, targets)))
    plan = dataclasses.replace(plan, num_bytes=max(plan.num_bytes, fit_bytes))
    kind = _OfEnsembles if _are_ensembles(predictions, repaired) else Hypothesis
    data = predictions, repaired, weights
    return kind(recalibration, plan, *data, structure, are_squares(members), has_scores)


def as_tested(
    predictions: Distribution, repaired: Distribution, targets: PyTree
) -> tuple[Any, Any, PyTree]:
    """Original and repaired predictions, and what is redrawn: targets, or pools of ensembles.

    These pools hold the target and the repaired members. Which of them is the target is redrawn.
    """
    if not _are_ensembles(predictions, repaired):
        return predictions, repaired, targets
    pools = with_targets(like(predictions, repaired), targets)
    return pools, bare(pools), bare(pools).values


def _are_ensembles(predictions: Distribution, repaired: Distribution) -> bool:
    return isinstance(bare(predictions), Ensemble) and isinstance(repaired, Ensemble)


def repaired_by(
    recalibration: Any, predictions: Distribution, targets: Any, weights: Any = None
) -> Any:
    """Predictions repaired with their own targets, without features."""
    options = {} if weights is None else {"weights": weights}
    params = recalibration.fit(predictions, targets, **options)
    repaired = recalibration.apply(params, predictions)
    return bare(repaired if checks.is_distribution(repaired) else Bernoulli(repaired))


def kernels_under(repaired: Distribution, groups: dict[str, Any]) -> dict[str, Any]:
    """The groups without kernels on targets whose expectations under repaired predictions are none.

    A recalibration may return predictions of another family.
    """

    def is_kept(member: Any) -> bool:
        """Lenses show predictions of classes, which have all of them."""
        try:
            if not isinstance(member, tuple):
                check_expectations(member.target, repaired)
        except NotImplementedError:
            return False
        return True

    kept = {k: {n: x for n, x in members.items() if is_kept(x)} for k, members in groups.items()}
    return {group: members for group, members in kept.items() if members}


@functools.partial(jax.jit, static_argnums=0, static_argnames="batch_size")
def parts_and_losses(
    score: Callable[..., jax.Array],
    tested: Hypothesis,
    draws: PyTree,
    is_own: jax.Array | bool,
    *,
    batch_size: int,
) -> tuple[PartsOfFits, jax.Array]:
    """The means of h where they are wanted, and losses of the predictions that each draw repairs.

    Args:
        score: function (predictions, targets) → loss.
        tested: whose recalibration is fitted.
        draws: targets, [B + 1, n, ...].
        is_own: whether the means are wanted; they are zero otherwise.
        batch_size: number of draws at once.
    """

    def evaluate(ys: PyTree) -> tuple[PartsOfFits, jax.Array]:
        repaired = jax.vmap(tested.fitted)(ys)
        shapes = jax.eval_shape(tested.parts, repaired, ys)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        parts = jax.lax.cond(is_own, tested.parts, lambda *_: zeros, repaired, ys)
        return parts, jax.vmap(functools.partial(tested.loss, score))(repaired, ys)

    return map_batches(draws, evaluate, batch_size)


@checked(minimum=2)
def composite_calibration_test(
    key: jax.Array,
    recalibration: Any,
    predictions: Distribution,
    targets: Numbers,
    *,
    kernels: PyTree = None,
    weights: Numbers | None = None,
    num_draws: int = 999,
    batch_size: int | None = None,
) -> CalibrationTestResult:
    """Test of whether a recalibration is enough: calibration up to its parameters.

        H₀: T_θ(p) is calibrated for some θ,

    with the recalibration T_θ, such as a temperature. It is fitted to the data, and the aggregated
    statistic of `aggregated_skce_test` is computed for the repaired predictions. Its distribution
    is that for targets resampled under the null, from the repaired predictions, to which the
    recalibration
    **is fitted again in every redraw**: without this the test would compare predictions that were
    fitted to their targets with some that were not. Kernels on predictions look at the original
    predictions, not at the repaired ones, which a map with many parameters makes nearly all equal
    where they are wrong.

    For *ensembles*, `Ensemble`, a redraw picks which of the repaired members and the target is the
    target, as in `ensemble_skce_test`; kernels on predictions look at these m + 1 values together.

    It is a parametric bootstrap, whose level is right as n grows, not exact. Measured levels are in
    `docs/recalibration.md`. Maps that are rougher than the true one, as isotonic regression, make
    it conservative. So do redraws to which the recalibration cannot be fitted, such as
    `PlattScaling` to twelve samples, which count as larger: a `UserWarning` says how many there
    are, which compiled code cannot. Kernels whose SKCE is zero after every fit, for
    example the score of a temperature that is fitted, do not contribute.

    The mean D of h on the diagonal (`SKCEComponents.dispersion`) follows closely from the repaired
    predictions q if these are of classes or ensembles, and q varies between the redraws. So D* of a
    redraw is measured from what its own fit q* expects of it, and what the fit to the observed
    targets expects is added,

        D* + E_q D − E_q* D,   E_q D = n⁻¹ Σ_i E_{Y~q_i} h_i(Y),

    with h_i(Y) of sample i with target Y and itself. A target kernel of which E k(Z, Z) is not
    known, as of `skce_dispersion`, keeps D*.

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
        ValueError: if shapes or values are wrong, or the recalibration cannot be fitted.

    Cost: that of `aggregated_skce_test`, of B fits, which are mapped over the redraws, and of
    E_q* k(Z, Z′) in each, O(n m²) of m members.

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
    if isinstance(bare(predictions), Ensemble):
        predictions = checked_ensembles(predictions)
    repaired = repaired_by(recalibration, predictions, targets, weights)
    predictions, repaired, drawn = as_tested(predictions, repaired, targets)
    if kernels is None:
        kernels = kernels_under(repaired, inner(default_kernels)(predictions))
    members, _ = family = checked_family(kernels, predictions, targets)
    tested = hypothesis_of(recalibration, family, predictions, repaired, targets, weights)
    size = batch_size or default_batch_size(tested.plan.num_bytes)
    keys = jax.random.split(key, num_draws)
    parts = over_pool(keys, _redrawn, _refitted, tested, drawn, size)
    result = tested.result(parts)
    words = direction_words(members, predictions)
    judged = tested.judged(repaired, drawn)
    scores = direction_scores(members, words, predictions, judged, weights)
    components: Any = result.components
    components = dataclasses.replace(components, direction_scores=scores, directions=words)
    return dataclasses.replace(result, components=components)


def _redrawn(tested: Hypothesis, key: jax.Array) -> PyTree:
    return tested.redrawn(key, tested.repaired)


def _refitted(tested: Hypothesis, targets: PyTree) -> PartsOfFits:
    return tested.parts(jax.vmap(tested.fitted)(targets), targets)
