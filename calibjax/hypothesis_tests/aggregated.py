"""Exact test with a family of kernels, and the direction of the error that it finds.

In which direction predictions are wrong: signs of scores, and what they mean in words.

The SKCE is a sum of squares and has no sign. Where a target kernel is the product of one number
r(p, y) with itself, such as a score, the sum of x(p_i) r(p_i, y_i) says in which direction the
predictions are off; x is the number of a `Regressor`, and otherwise one.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.gate import checked
from calibjax._core.pytree import Numbers, PyTree
from calibjax.distributions import Ensemble
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare
from calibjax.hypothesis_tests.components import OF_CLASSES, OF_NUMBERS, skce_components
from calibjax.hypothesis_tests.ensembles import checked_ensembles, with_targets
from calibjax.hypothesis_tests.exact import checked_family
from calibjax.hypothesis_tests.redraws import means_of_redraws
from calibjax.hypothesis_tests.result import CalibrationTestResult, skce_result
from calibjax.kernels import Constant, Fisher, Kernel, NormalScore, TensorProduct, White
from calibjax.kernels.base import Scaled, Sum
from calibjax.kernels.defaults import default_kernels
from calibjax.kernels.residuals import Regressor, Residual, Shape, scores, standard_normal, total
from calibjax.lenses import OneVersusRest
from calibjax.recalibration import AffineScaling, TemperatureScaling

_SURE = 2.0  # standard errors, beyond which errors that may cancel count as having one sign
_PLACES = {"location": ("large", "small"), "log scale": ("wide", "narrow")}
_SCORES = {  # words for positive and for negative sums
    "shift": ("too small", "too large"),
    "scale": ("too narrow", "too wide"),
    "skewness": ("not skewed enough to the right", "too skewed to the right"),
    "peakedness": ("not peaked enough", "too peaked"),
}


def direction_words(
    members: Sequence[tuple[Any, Kernel]], predictions: Distribution
) -> tuple[tuple[str, str, str, str], ...]:
    """`SKCEComponents.directions` of kernels, the first two empty for those without a direction."""
    probs = getattr(predictions, "class_probs", None)
    of_dispersion = OF_NUMBERS if probs is None else OF_CLASSES
    is_binary = probs is not None and probs.shape[1] == 2
    return tuple(_words(lens, kernel, is_binary) + of_dispersion for lens, kernel in members)


def _words(lens: Any, kernel: Kernel, is_binary: bool) -> tuple[str, str]:
    """What positive and negative direction scores mean."""
    if not isinstance(kernel, TensorProduct):
        return "", ""
    name = _score(kernel.target)
    if name in _SCORES:
        more, less = _SCORES[name]
        ends = [more, less]
        if isinstance(kernel.prediction, Regressor):
            high, low = _PLACES[kernel.prediction.of]
            both = (more, less), (less, more)
            ends = [f"{x} where they are {high}, {y} where they are {low}" for x, y in both]
        return f"predictions {ends[0]}: {name}", f"predictions {ends[1]}: {name}"
    if name == "temperature":
        return f"{OF_CLASSES[0]}: temperature", f"{OF_CLASSES[1]}: temperature"
    if isinstance(kernel.target, White) and isinstance(lens, OneVersusRest):
        label = f"class {int(lens.label)}" if checks.is_concrete(lens.label) else "this class"
        return f"{label} too improbable", f"{label} too probable"
    if isinstance(kernel.target, White) and lens is None and is_binary:
        return "probabilities too small", "probabilities too large"
    return "", ""


def _score(kernel: Kernel) -> str:
    """Name of the single score that a target kernel is the square of, or empty."""
    inner = kernel.kernel if isinstance(kernel, NormalScore) else kernel
    if isinstance(inner, Shape):
        return inner.of
    if isinstance(inner, Fisher) and isinstance(inner.recalibration, TemperatureScaling):
        return "temperature"
    if isinstance(inner, Fisher) and isinstance(inner.recalibration, AffineScaling):
        return inner.only or ""
    return ""


def are_squares(members: Sequence[tuple[Any, Kernel]]) -> tuple[bool, ...]:
    """`SKCEComponents.squares` of kernels: those with residuals of normal scores as targets.

    The mean D of the squares of these residuals has heavy tails, fourth powers of scores and more,
    and would drown what their sum says. It sees no error that other kernels on normal scores do not
    see.
    """

    def is_of_scores(target: Any) -> bool:
        inner = _terms(target.kernel) if isinstance(target, NormalScore) else [None]
        return all(isinstance(term, Residual) for term in inner)

    def is_square(term: Any) -> bool:
        return _is_of_rank_one(term) and all(map(is_of_scores, _terms(term.target)))

    return tuple(all(map(is_square, _terms(kernel))) for _, kernel in members)


def _terms(kernel: Any) -> list[Any]:
    """The kernels that a sum of multiples consists of."""
    if not isinstance(kernel, Sum | Scaled):
        return [kernel]
    return [term for _, part in kernel.combination() for term in _terms(part)]


def direction_scores(
    members: Sequence[tuple[Any, Any]], words: Sequence[Sequence[str]], *data: Any
) -> jax.Array:
    """Σ_i x_i r_i / √(Σ_i x_i² r_i²) of the kernels with a direction, and zero of the others, [K].

    With weights it is that of w_i x_i r_i.

    Zero as well where kernels on predictions see errors that may cancel, and the sum is less than
    two standard errors from zero.

    Args:
        members: lenses and kernels.
        words: of `direction_words`.
        data: predictions that kernels on predictions look at; predictions that are judged, the same
            or repaired ones, targets, and None, or their normal scores if these take long: the
            distribution of the scores, and the scores; weights, [n], or None.
    """
    alike: dict[Any, list[Any]] = {}  # one program for all that differ in their arrays
    for place, ((lens, kernel), (told, *_)) in enumerate(zip(members, words, strict=True)):
        if told:
            regressor = kernel.prediction if isinstance(kernel.prediction, Regressor) else None
            member = place, lens, regressor, kernel.target
            leaves, structure = jax.tree.flatten(member)
            alike.setdefault((structure, *map(jnp.shape, leaves)), []).append(member)
    may_cancel = np.array([not _is_of_rank_one(kernel) for _, kernel in members])
    groups = tuple(map(tuple, alike.values()))
    return _scores(groups, may_cancel, *data)


def _is_of_rank_one(kernel: Any) -> bool:
    if not isinstance(kernel, TensorProduct):
        return False
    return all(isinstance(term, Constant | Regressor) for term in _terms(kernel.prediction))


@jax.jit
def _scores(
    groups: tuple[Any, ...], may_cancel: Any, predictions: Any, judged: Any, weights: Any
) -> jax.Array:
    """Scores, [K], of groups of members that are alike, and zeros."""

    def score(member: tuple[Any, Any, Any, Any]) -> jax.Array:
        _, lens, regressor, target = member
        viewed, by_score = (judged[:2], judged[2]) if lens is None else (lens(*judged[:2]), None)
        viewed = by_score if isinstance(target, NormalScore) and by_score is not None else viewed
        numbers = jax.vmap(lambda p, y: _number(target, p, y))(*viewed)
        if regressor is not None:
            of = predictions if lens is None else lens(predictions, judged[1])[0]
            numbers *= jax.vmap(lambda p: regressor.number(bare(p)))(of)
        numbers = numbers if weights is None else jnp.where(weights > 0, weights * numbers, 0)
        size = jnp.max(jnp.abs(numbers))
        numbers = numbers / jnp.where(size > 0, size, 1)  # whose squares do not vanish
        error = jnp.sqrt(jnp.sum(jnp.square(numbers)))
        return jnp.sum(numbers) / jnp.where(error > 0, error, 1)

    scores = jnp.zeros(len(may_cancel), floating_dtype(predictions))
    for group in groups:
        stack = jax.tree.map(lambda *x: jnp.stack([*map(jnp.asarray, x)]), *group)
        scores = scores.at[stack[0]].set(jax.vmap(score)(stack).astype(scores.dtype))
    return jnp.where(may_cancel & (jnp.abs(scores) < _SURE), 0, scores)


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
    batch_size: int | None = None,
) -> CalibrationTestResult:
    """Exact test of calibration with a family of kernels, for errors of any scale.

    A single kernel misses errors that are much smaller or larger than its length scales. This test
    takes the largest of the omnibus statistics T_k of `exact_skce_test` in each of G groups of
    kernels, and combines the groups by a soft maximum,

        T = √(2 log (G⁻¹ Σ_g exp(max(M_g, 0)² / 2))) + min(max_g M_g, 0),
        M_g = z(max_{k in g} T_k),

    where z standardises over the pool of the observed and the resampled data sets, as it does in
    the components of `SKCEComponents`, of which T_k is the largest, and ranks T in this pool. That
    is exact for every n, every B and every family, without a second level of redraws. The first
    term of T is zero where no group is above its mean; these data sets are ranked by their largest
    M_g. Of a `Constant` or `Regressor` on predictions with a residual of normal scores, such as
    `NormalScore(Fisher(AffineScaling(), "shift"))`, whose SKCE is the square of one sum, T_k is the
    component of the biased SKCE, since the mean of the squares has heavy tails; `exact_skce_test`
    does so with `statistic="biased"`. Groups are kernels that see the same kind of errors: many
    similar kernels count as one group, and evidence in several groups adds up. A single group gives
    the largest T_k. The adjusted p-value of a kernel is the rank, among the T of the redraws, of
    √(max(M² − 2 log G, 0)) + min(M, 0), where M is the M_g that its T_k alone would give: under
    calibration the probability that any of them is ≤ α is at most α.

    For `Ensemble` the redraws are those of `ensemble_skce_test`: which of the members and the
    target is the target. For all others targets are resampled under the null, as in `exact_test`,
    whose assumption about independence applies.

    Args:
        key: a JAX random key.
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        kernels: the family, by default `default_kernels(predictions)`: a list, dictionary or nested
            containers of kernels on pairs (prediction, target), or of pairs (lens, kernel) with a
            lens such as `estimators.top_label`. Containers within the outermost one are groups.
            They must not be chosen with the targets.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).
        batch_size: number of redraws that are evaluated at once; by default as many as fit in
            about 16 MB.

    Returns:
        The result. `statistic` is T, `adjusted_pvalue` contains those of the kernels, in the same
        containers, `group_pvalues` those of the groups, `estimate` the unbiased SKCE of each
        kernel, [K]. `components` has a last axis K; `components.largest_kernel` and
        `components.largest_group` are the names of the kernel with the largest z and of its
        group, `components.of_kernel(name)` its components, and `components.direction_of(name)`
        says in words in which direction the predictions are off.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, there is no kernel, or fewer than two samples
            count.
        NotImplementedError: if the expectations have no closed form.

    Cost: that of one `exact_skce_test` for each kernel on predictions if the target kernels have
    features (see there), and little for those that are smooth on the scale of the predictions,
    whose matrices have a low rank; otherwise that of one for each kernel. All share the redraws.
    Values that are traced have no features.

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
    draws = {"num_draws": num_draws, "batch_size": batch_size}
    parts, number = means_of_redraws(key, members, predictions, targets, weights, **draws)
    options = {"ranked": "omnibus", "family": structure, "squares": are_squares(members)}
    pool, components = skce_components(*parts, num_targets=number, **options)
    words = direction_words(members, predictions)
    judged = predictions, targets, None
    scores = direction_scores(members, words, predictions, judged, weights)
    components = dataclasses.replace(components, direction_scores=scores, directions=words)
    return skce_result(pool, components, parts[0][0], draws="targets resampled under the null")
