"""Exact test with a family of kernels, also after a recalibration, and directions of errors.

The SKCE is a sum of squares and has no sign. If a target kernel is r(p, y) r(q, z) with a scalar r,
such as a score, the sign of Σ_i x(p_i) r(p_i, y_i) gives the direction of the error. x is the
number of a `Regressor`, and otherwise one.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, matmul
from calibjax._core.environment import default_batch_size, jit_quick, map_batches
from calibjax._core.gate import checked, inner
from calibjax._core.pytree import Numbers, PyTree, record
from calibjax.distributions import Bernoulli, Ensemble
from calibjax.distributions.base import Distribution, check_draws, draw
from calibjax.distributions.composed import bare, like
from calibjax.hypothesis_tests import redraws
from calibjax.hypothesis_tests.components import (
    OF_CLASSES,
    OF_NUMBERS,
    SKCEComponents,
    skce_components,
)
from calibjax.hypothesis_tests.ensembles import checked_ensembles, with_targets
from calibjax.hypothesis_tests.exact import checked_family
from calibjax.hypothesis_tests.result import CalibrationTestResult, skce_result
from calibjax.kernels import Constant, Fisher, Kernel, NormalScore, TensorProduct, White
from calibjax.kernels.base import Conditional, Scaled, Sum, prediction_kernel
from calibjax.kernels.defaults import default_kernels
from calibjax.kernels.expectations import (
    Features,
    centered_kernel,
    centered_norm,
    check_expectations,
    features,
    prepare_features,
    register_expectations,
)
from calibjax.kernels.residuals import Regressor, Residual, Shape, scores, standard_normal, total
from calibjax.operators.kernel_matrix import Tiled
from calibjax.operators.plan import Plan, plan_of
from calibjax.recalibration import AffineScaling, TemperatureScaling
from calibjax.reductions import OneVersusRest

_SURE = 2.0  # standard errors from which errors that may cancel count as having one sign
_FEW = 12  # directions whose scores are one program
_PLACES = {"location": ("large", "small"), "log scale": ("wide", "narrow")}
_SCORES = {  # words for positive and for negative sums
    "shift": ("too small", "too large"),
    "scale": ("too narrow", "too wide"),
    "skewness": ("not skewed enough to the right", "too skewed to the right"),
    "peakedness": ("not peaked enough", "too peaked"),
}


def with_directions(
    components: SKCEComponents, members: Sequence[tuple[Any, Any]], predictions: Any, *data: Any
) -> SKCEComponents:
    """Components of a family with descriptions and scores of their directions.

    Args:
        components: of the family.
        members: reductions and kernels.
        predictions: arguments of kernels on predictions.
        data: assessed predictions (the same or recalibrated) and targets; weights, [n], or None.
    """
    probs = getattr(predictions, "class_probs", None)
    of_dispersion = OF_NUMBERS if probs is None else OF_CLASSES
    is_binary = probs is not None and probs.shape[1] == 2
    words = tuple(_words(*member, is_binary) + of_dispersion for member in members)
    named = [member if name else None for member, (name, *_) in zip(members, words, strict=True)]
    # One program for few; for many, one for all that differ only in their arrays.
    blocks = [named] if sum(x is not None for x in named) <= _FEW else [[x] for x in named]
    scores = jnp.concatenate([_direction_scores(x, predictions, *data) for x in blocks])
    return dataclasses.replace(components, direction_scores=scores, directions=words)


def _words(reduction: Any, kernel: Kernel, is_binary: bool) -> tuple[str, ...]:
    """Descriptions of positive and negative direction scores."""
    if not isinstance(kernel, TensorProduct):
        return "", ""
    inner: Any = kernel.target.kernel if isinstance(kernel.target, NormalScore) else kernel.target
    name = inner.of if isinstance(inner, Shape) else ""
    if isinstance(inner, Fisher):
        is_tempered = isinstance(inner.recalibration, TemperatureScaling)
        is_affine = isinstance(inner.recalibration, AffineScaling)
        name = inner.only if is_affine else "temperature" * is_tempered
    if name == "temperature":
        return tuple(f"{end}: {name}" for end in OF_CLASSES)
    if name in _SCORES:
        ends = _SCORES[name]
        if isinstance(kernel.prediction, Regressor):
            high, low = _PLACES[kernel.prediction.of]
            both = ends, ends[::-1]
            ends = (f"{x} where they are {high}, {y} where they are {low}" for x, y in both)
        return tuple(f"predictions {end}: {name}" for end in ends)
    if isinstance(kernel.target, White) and isinstance(reduction, OneVersusRest):
        is_known = checks.is_concrete(reduction.label)
        label = f"class {int(reduction.label)}" if is_known else "this class"
        return f"{label} too improbable", f"{label} too probable"
    if isinstance(kernel.target, White) and reduction is None and is_binary:
        return "probabilities too small", "probabilities too large"
    return "", ""


def are_squares(members: Sequence[tuple[Any, Kernel]]) -> tuple[bool, ...]:
    """`SKCEComponents.squares` of kernels: those with residuals of normal scores as targets.

    The mean D of the squares of these residuals has heavy tails (fourth powers of scores and more)
    and would mask their sum. Other kernels on normal scores detect the errors that D detects.
    """

    def is_residual(target: Any) -> bool:
        inner = _terms(target.kernel) if isinstance(target, NormalScore) else [None]
        return all(isinstance(term, Residual) for term in inner)

    def is_square(term: Any) -> bool:
        return _is_of_rank_one(term) and all(map(is_residual, _terms(term.target)))

    return tuple(all(map(is_square, _terms(kernel))) for _, kernel in members)


def _terms(kernel: Any) -> list[Any]:
    """Kernels in a sum of multiples of kernels."""
    if not isinstance(kernel, Sum | Scaled):
        return [kernel]
    return [term for _, part in kernel.combination() for term in _terms(part)]


def _is_of_rank_one(kernel: Any) -> bool:
    if not isinstance(kernel, TensorProduct):
        return False
    return all(isinstance(term, Constant | Regressor) for term in _terms(kernel.prediction))


@jit_quick
def _direction_scores(
    members: Sequence[tuple[Any, Any] | None], predictions: Any, judged: Any, weights: Any
) -> jax.Array:
    """Scores of kernels, zero without a direction, [K]."""
    zero, data = jnp.zeros((), floating_dtype(predictions)), (predictions, judged, weights)
    scores = (zero if member is None else _direction_score(*member, *data) for member in members)
    return jnp.stack([score.astype(zero.dtype) for score in scores])


def _direction_score(
    reduction: Any, kernel: Any, predictions: Any, judged: Any, weights: Any
) -> jax.Array:
    """Σ_i x_i r_i / √(Σ_i x_i² r_i²), with w_i x_i r_i for weights.

    Zero if it is small and its terms may cancel.
    """
    viewed = judged if reduction is None else reduction(*judged)
    numbers = jax.vmap(lambda p, y: _number(kernel.target, p, y))(*viewed)
    if isinstance(kernel.prediction, Regressor):
        of = predictions if reduction is None else reduction(predictions, judged[1])[0]
        numbers *= jax.vmap(lambda p: kernel.prediction.number(bare(p)))(of)
    numbers = numbers if weights is None else jnp.where(weights > 0, weights * numbers, 0)
    size = jnp.max(jnp.abs(numbers))
    numbers = numbers / jnp.where(size > 0, size, 1)  # so that squares do not underflow
    error = jnp.sqrt(jnp.sum(jnp.square(numbers)))
    score = jnp.sum(numbers) / jnp.where(error > 0, error, 1)
    return score if _is_of_rank_one(kernel) else jnp.where(jnp.abs(score) < _SURE, 0, score)


def _number(target: Any, p: Any, y: Any) -> jax.Array:
    """Number r(p, y)."""
    p = bare(p)
    if isinstance(target, White):
        return y - p.class_probs[1]
    if isinstance(target, NormalScore):
        inner: Any = target.kernel
        return total(scores(p, y), lambda s: inner.residual(standard_normal(p), s)[0])
    return target.residual(p, y)[0]


@checked(minimum=2)
def aggregated_skce_test(
    key: jax.Array,
    predictions: Distribution,
    targets: Numbers,
    *,
    weights: Numbers | None = None,
    kernels: PyTree | None = None,
    num_draws: int = 999,
) -> CalibrationTestResult:
    """Exact test of calibration with a family of kernels, for errors of any scale.

    A single kernel misses errors on scales much smaller or larger than its length scales. This test
    takes the largest omnibus statistic T_k of `exact_skce_test` in each of G groups of kernels, and
    combines the groups by a soft maximum,

        T = √(2 log (G⁻¹ Σ_g exp(max(M_g, 0)² / 2))) + min(max_g M_g, 0),
        M_g = z(max_{k in g} T_k),

    where z standardises over the pool of the observed and the resampled data sets, as in
    `SKCEComponents`. The rank of T in this pool is exact for every n, every B and every family,
    without a second level of redraws. The first term of T is zero if no group is above its mean;
    these data sets are ranked by their largest M_g.

    A group holds kernels that detect the same kind of error: many similar kernels count as one
    group, and evidence in several groups adds up. A single group gives the largest T_k.

    A `Constant` or `Regressor` on predictions with a residual of normal scores, such as
    `NormalScore(Fisher(AffineScaling(), "shift"))`, has an SKCE that is the square of one sum. Its
    T_k is the component of the biased SKCE, as with `statistic="biased"`, because the mean of the
    squares has heavy tails.

    The adjusted p-value of a kernel is the rank, among the T of the redraws, of √(max(M² − 2 log G,
    0)) + min(M, 0), where M is the M_g of its T_k alone. Under calibration the probability that any
    of them is ≤ α is at most α.

    For `Ensemble`, a redraw picks which of the members and the target is the target, as in
    `ensemble_skce_test`. For all other predictions, targets are resampled under the null as in
    `exact_test`, whose assumption about independence applies.

    Args:
        key: a JAX random key.
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        kernels: the family, by default `default_kernels(predictions)`: a list, dictionary or nested
            container of kernels on pairs (prediction, target), or of pairs (reduction, kernel) with
            a reduction such as `estimators.top_label`. Containers within the outermost one are
            groups. They must not be chosen with the targets.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).

    Returns:
        The result. `statistic` is T, `estimate` the unbiased SKCE of each kernel, [K].
        `adjusted_pvalue` contains the p-values of the kernels, in the containers of `kernels`; the
        smallest one of a group is that of the group. `components` has a last axis K;
        `components.largest_kernel` names the kernel with the largest z,
        `components.of_kernel(name)` are its components, and `components.direction_of(name)`
        describes the error.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, there is no kernel, or fewer than two samples
            count.
        NotImplementedError: if the expectations have no closed form.

    Cost: one `exact_skce_test` for each kernel, with common redraws. If the target kernels have
    features (see there), one for each kernel on predictions, and less for kernels that are smooth
    on the scale of the predictions. Traced values have no features.

    References: none of the four papers has it. Schrab, Kim, Albert, Laurent, Guedj and Gretton
    (2023), MMD aggregated two-sample test, combine p-values of kernels instead of statistics, which
    needs a second level of redraws.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> predictions = distributions.Normal(jnp.linspace(0, 1, 100), jnp.full(100, 0.1))
    >>> error = 0.1 * jnp.sin(8 * jnp.pi * predictions.loc)  # changes its sign
    >>> targets = distributions.sample_targets(jax.random.key(0), predictions) + error
    >>> test = hypothesis_tests.aggregated_skce_test(jax.random.key(1), predictions, targets)
    >>> print(test)
    CalibrationTestResult(pvalue=0.001 ± 0.001, statistic=4.42, estimate=float32[19], 999 targe...
      normal scores 2, predictions 1/8 median: similar predictions share the same error, adj...
      normal scores 8, predictions 1/8 median: similar predictions share the same error, adj...
      directions, scale: predictions too narrow: scale, adjusted p = 0.041, z = +3.2
    """
    if isinstance(bare(predictions), Ensemble):
        predictions = with_targets(checked_ensembles(predictions), targets)
    kernels = default_kernels(predictions) if kernels is None else kernels
    members, structure = checked_family(kernels, predictions, targets)
    data = members, predictions, targets, weights
    parts, number = redraws.means_of_redraws(key, *data, num_draws=num_draws)
    options = {"ranked": "omnibus", "family": structure, "squares": are_squares(members)}
    pool, components = skce_components(*parts, num_targets=number, **options)
    data = predictions, (predictions, targets), weights
    components = with_directions(components, members, *data)
    return skce_result(pool, components, parts[0][0])


PartsOfFits = tuple[jax.Array, jax.Array, jax.Array]  # returned by `Hypothesis.parts`
_ZERO = 1e-3  # n SKCE_b over its mean; one number is as small in 2.5 % of the redraws


@record
class _AfterRepair(Conditional):
    """Target kernel under recalibrated predictions, which come together with the targets."""

    kernel: Kernel


@record
class _OnBoth:
    """Reduction on predictions, and on recalibrated predictions that come with the targets."""

    reduction: Callable[..., Any]

    def __call__(self, predictions: Any, repaired: tuple[Any, Any]) -> tuple[Any, Any]:
        """Both through the reduction."""
        viewed, _ = self.reduction(predictions, repaired[1])
        return viewed, self.reduction(*repaired)


def _centered(kernel: _AfterRepair, p: object, y: tuple, q: object, z: tuple) -> jax.Array:
    del p, q
    return centered_kernel(kernel.kernel, *y, *z)


def _unknown(*_: object) -> NoReturn:
    raise NotImplementedError("no expectations without recalibrated predictions")


register_expectations(
    _AfterRepair,
    object,
    mean=_unknown,
    inner=_unknown,
    centered=_centered,
    features=Features(
        lambda kernel, ready, _, q: features(kernel.kernel, ready, *q),
        lambda kernel, _, q: prepare_features(kernel.kernel, *q),
    ),
)


def after_repair(reduction: Callable[..., Any] | None, kernel: object) -> tuple[Any, TensorProduct]:
    """Member of the family for targets that come with recalibrated predictions."""
    if not isinstance(kernel, TensorProduct):
        raise TypeError(f"kernels: expected tensor products, got {checks.described(kernel)}")
    product = TensorProduct(kernel.prediction, _AfterRepair(kernel.target))
    return None if reduction is None else _OnBoth(reduction), product


def expected_norms(kernel: Any, repaired: Any) -> jax.Array:
    """E h of a target of recalibrated predictions [b, n] and itself, for a target kernel, [b, n].

    Zero if it is equal for all predictions, as for normal scores, or unknown: a user's kernel need
    not have the expectation of k(Z, Z).
    """
    zeros = jnp.zeros(jax.tree.leaves(repaired)[0].shape[:2])
    if isinstance(kernel.kernel, NormalScore):
        return zeros
    norm = functools.partial(centered_norm, kernel.kernel)
    try:
        return jax.vmap(jax.vmap(norm))(repaired)
    except NotImplementedError:
        return zeros


@record
class Hypothesis:
    """Null hypothesis that a recalibration is enough, for checked data.

    Attributes:
        recalibration: the fitted recalibration.
        plan: evaluation of the kernels for original and `judged` predictions.
        predictions: original predictions.
        repaired: predictions recalibrated with the observed targets.
        weights: of the samples, or None.
        structure: tree of the kernels.
        squares: `SKCEComponents.squares` of the kernels.
    """

    recalibration: Any
    plan: Plan
    predictions: Any
    repaired: Any
    weights: Any
    structure: Any = dataclasses.field(metadata={"static": True})
    squares: tuple[bool, ...] = dataclasses.field(metadata={"static": True})

    @staticmethod
    def redrawn(key: jax.Array, repaired: Distribution) -> PyTree:
        """Resampled targets."""
        return draw(key, repaired)

    def fitted(self, targets: PyTree) -> Any:
        """Predictions that are recalibrated with other targets."""
        return repaired_by(self.recalibration, self.predictions, targets, self.weights)

    def judged(self, repaired: Distribution, targets: PyTree) -> tuple[Any, Any]:
        """Recalibrated predictions and targets."""
        return repaired, targets

    def loss(
        self, score: Callable[..., jax.Array], repaired: Distribution, targets: PyTree
    ) -> jax.Array:
        """Score of recalibrated predictions."""
        options = {} if self.weights is None else {"weights": self.weights}
        return score(repaired, targets, **options)

    def parts(self, repaired: Distribution, targets: PyTree) -> PartsOfFits:
        """Means of h off and on the diagonal, for several sets of targets [b, n, ...].

        The third part is the expectation of the second under the recalibrated predictions.
        """
        judged: Any = jax.vmap(self.judged)(repaired, targets)
        n = redraws.number_of(self.predictions, self.weights)
        means = redraws.as_means(n, *self.plan.sums(self.predictions, judged, self.weights))
        return *means, _expected_diagonal(self.plan, self.predictions, repaired, self.weights) / n

    def result(self, parts: PartsOfFits) -> CalibrationTestResult:
        """Result from the means for the observed targets, then for resampled ones."""
        name, weights, fits = type(self.recalibration).__name__, self.weights, parts[1][1:]
        if checks.is_concrete(fits):
            is_missing = np.isnan(fits).reshape(len(fits), -1).any(1)
            if 2 * is_missing.sum() > len(fits):
                got = f"none of {name} for {is_missing.sum()} of {len(fits)}; take more samples"
                raise ValueError(f"recalibration: expected fits to resampled targets, got {got}")
        n = redraws.number_with_pairs(self.predictions, weights)
        *means, dispersion = _comparable(parts, n)
        options = {"ranked": "omnibus", "family": self.structure, "squares": self.squares}
        options |= {"dispersion": dispersion, "num_targets": n}
        pool, components = skce_components(*means, **options)
        draws = "targets resampled under the null, refitted"
        missing = f"{name} could not be fitted to these targets"
        return skce_result(pool, components, parts[0][0], draws=draws, missing=missing)


@jax.jit
def _comparable(parts: PartsOfFits, n: jax.Array | int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Means of h off and on the diagonal, and the dispersion, comparable between fits.

    The dispersion is the mean on the diagonal. For classes and ensembles the fit nearly determines
    it, and it varies more between fits than between targets of one fit. So it is measured from its
    expectation under its own fit, and the expectation under the observed fit is added.

    Kernels that every fit makes zero, such as the score of the fitted parameter, are set to one
    value. Their remainders depend on the fitted parameters only, carry no information on
    calibration, and cost power.
    """
    unbiased, diagonal, expected = parts
    total = diagonal + (n - 1) * unbiased
    largest = [jnp.max(x, 0, initial=0, where=jnp.isfinite(x)) for x in (total, diagonal)]
    is_zero = largest[0] <= _ZERO * largest[1]
    means = unbiased, diagonal, diagonal + (expected[0] - expected)
    unbiased, diagonal, dispersion = (jnp.where(is_zero, mean[0], mean) for mean in means)
    return unbiased, diagonal, dispersion


def _expected_diagonal(plan: Plan, predictions: Any, repaired: Any, weights: Any) -> jax.Array:
    """Σ_i w_i² E h_ii under recalibrated predictions [b, n], [b, K]."""
    shares = jnp.ones(()) if weights is None else jnp.square(weights)

    def of_view(view: Any) -> jax.Array:
        q = repaired
        if view.reduction is not None:
            labels = jnp.zeros(jax.tree.leaves(repaired)[0].shape[:2], int)  # of any class
            reduced = jax.vmap(lambda y: view.reduction(predictions, y)[1])
            q, _ = reduced((repaired, labels))
        columns = []
        for each in view.featured:
            norms = expected_norms(each.kernel, q)
            columns += [matmul(norms, shares * operator.diagonal) for operator in each.operators]
        for kernel in view.others:
            operator: Any = Tiled(kernel.prediction, view.predictions, prediction_kernel)
            columns.append(matmul(expected_norms(kernel.target, q), shares * operator.diagonal))
        return jnp.stack(columns, 1)

    return plan.mapped(of_view)


@record
class _OfEnsembles(Hypothesis):
    """Hypothesis for ensembles: `repaired` are pools of targets and recalibrated members.

    A redraw reorders the values of the pools, the target first, [n, m + 1]. The recalibration is
    fitted to them on top of the recalibration of the members.
    """

    @staticmethod
    def redrawn(key: jax.Array, repaired: Any) -> jax.Array:
        """Pools with a randomly chosen value as the target."""
        values = repaired.values
        rows = jnp.arange(len(values))
        chosen = jax.random.randint(key, rows.shape, 0, values.shape[1])
        return values.at[rows, chosen].set(values[:, 0]).at[:, 0].set(values[rows, chosen])

    def fitted(self, targets: jax.Array) -> Ensemble:
        """Pools of recalibrated members and the targets of other pools."""
        observed, members = targets[:, 0], Ensemble(targets[:, 1:])
        members = repaired_by(self.recalibration, members, observed, self.weights)
        return with_targets(members, observed)

    def judged(self, repaired: Any, targets: jax.Array) -> tuple[Any, Any]:
        """Recalibrated pools and targets."""
        return repaired, targets[:, 0]

    def loss(self, score: Callable[..., jax.Array], repaired: Any, targets: jax.Array) -> jax.Array:
        """Score of the members."""
        return super().loss(score, Ensemble(repaired.values[:, 1:]), targets[:, 0])


def hypothesis_of(
    recalibration: Any,
    checked: tuple[Any, Any],
    predictions: Distribution,
    repaired: Distribution,
    targets: PyTree,
    weights: jax.Array | None = None,
) -> Hypothesis:
    """Hypothesis for checked data and the kernels of `checked_family`."""
    check_draws(repaired, targets)
    members, structure = checked
    wrapped: list[Any] = [after_repair(reduction, kernel) for reduction, kernel in members]
    # The plan uses shapes, classes and length scales only.
    plan = plan_of(wrapped, predictions, (repaired, targets))
    fit_bytes = 64 * sum(leaf.size for leaf in jax.tree.leaves((predictions, targets)))
    plan = dataclasses.replace(plan, num_bytes=max(plan.num_bytes, fit_bytes))
    kind = _OfEnsembles if _are_ensembles(predictions, repaired) else Hypothesis
    data = predictions, repaired, weights
    return kind(recalibration, plan, *data, structure, are_squares(members))


def as_tested(
    predictions: Distribution, repaired: Distribution, targets: PyTree
) -> tuple[Any, Any, PyTree]:
    """Original and recalibrated predictions, and the values to redraw: targets, or pools.

    The pools of ensembles hold the target and the recalibrated members.
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
    """Predictions recalibrated with their own targets, without features."""
    options = {} if weights is None else {"weights": weights}
    params = recalibration.fit(predictions, targets, **options)
    repaired = recalibration.apply(params, predictions)
    return bare(repaired if checks.is_distribution(repaired) else Bernoulli(repaired))


def kernels_under(repaired: Distribution, groups: dict[str, Any]) -> dict[str, Any]:
    """Groups without target kernels that lack expectations under recalibrated predictions.

    A recalibration may return predictions of another family.
    """

    def is_kept(member: Any) -> bool:
        """Reductions return class predictions, which have all expectations."""
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
    """Means of h, where wanted, and losses of the predictions recalibrated with each draw.

    Args:
        score: function (predictions, targets) → loss.
        tested: hypothesis with the recalibration.
        draws: targets, [B + 1, n, ...].
        is_own: whether to compute the means; they are zero otherwise.
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
) -> CalibrationTestResult:
    """Test of calibration up to the parameters of a recalibration.

        H₀: T_θ(p) is calibrated for some θ,

    with the recalibration T_θ, such as a temperature. It is fitted to the data, and the statistic
    of `aggregated_skce_test` is computed for the recalibrated predictions. Redraws resample targets
    from the recalibrated predictions and **fit the recalibration again**: otherwise the test would
    compare predictions that were fitted to their targets with predictions that were not. Kernels on
    predictions are evaluated at the original predictions, because a flexible map may make wrong
    predictions nearly equal.

    For an `Ensemble`, a redraw picks which of the recalibrated members and the target is the
    target, as in `ensemble_skce_test`; kernels on predictions are evaluated at all m + 1 values.

    It is a parametric bootstrap: its level is correct as n grows, but not exact. The guide on
    recalibration has measured levels. Maps that are rougher than the true one, such as isotonic
    regression, make it conservative. So do redraws to which the recalibration cannot be fitted,
    which count as larger; a `UserWarning` gives their number, except in compiled code. Kernels
    whose SKCE is zero after every fit, for example the score of a fitted temperature, do not
    contribute.

    For classes and ensembles, the recalibrated predictions q nearly determine the mean D of h on
    the diagonal (`SKCEComponents.dispersion`), and q varies between the redraws. So D* of a redraw
    is replaced by

        D* + E_q D − E_q* D,   E_q D = n⁻¹ Σ_i E_{Y~q_i} h_i(Y),

    where h_i(Y) is h of sample i with target Y and itself, and q* is the fit to the redraw. Target
    kernels with unknown E k(Z, Z) keep D*.

    Args:
        key: a JAX random key.
        recalibration: record with pure methods `fit(predictions, targets)` and `apply(params,
            predictions)`; the latter returns predictions from which targets can be drawn.
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        kernels: as in `aggregated_skce_test`, tensor products; None for `default_kernels`.
        weights: w ≥ 0 of the samples, [n], also for the fits.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).

    Returns:
        The result for the recalibrated predictions, as in `aggregated_skce_test`.

    Raises:
        TypeError: if an argument is of the wrong kind, or the recalibration lacks a method.
        ValueError: if shapes or values are wrong, or the recalibration cannot be fitted.

    Cost: `aggregated_skce_test`, B fits, and B evaluations of E_q* k(Z, Z′), each O(n m²) for m
    members.

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
    keys, size = jax.random.split(key, num_draws), default_batch_size(tested.plan.num_bytes)
    parts = redraws.over_pool(keys, _redrawn, _refitted, tested, drawn, size)
    result = tested.result(parts)
    components: Any = result.components
    data = predictions, tested.judged(repaired, drawn), weights
    return dataclasses.replace(result, components=with_directions(components, members, *data))


def _redrawn(tested: Hypothesis, key: jax.Array) -> PyTree:
    return tested.redrawn(key, tested.repaired)


def _refitted(tested: Hypothesis, targets: PyTree) -> PartsOfFits:
    return tested.parts(jax.vmap(tested.fitted)(targets), targets)
