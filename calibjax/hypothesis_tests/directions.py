"""In which direction predictions are wrong: signs of scores, and what they mean in words.

The SKCE is a sum of squares and has no sign. Where a target kernel is the product of one number
r(p, y) with itself, such as a score, the sum of x(p_i) r(p_i, y_i) says in which direction the
predictions are off; x is the number of a `Regressor`, and otherwise one.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax.distributions.base import Distribution
from calibjax.distributions.features import bare
from calibjax.hypothesis_tests._redraw.components import OF_CLASSES, OF_NUMBERS
from calibjax.kernels import (
    Constant,
    Fisher,
    Kernel,
    NormalScore,
    TensorProduct,
    White,
)
from calibjax.kernels.base import Scaled, Sum
from calibjax.kernels.normal_scores import scores, standard_normal, total
from calibjax.kernels.regressors import Regressor
from calibjax.kernels.residuals import Residual, Shape
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
    members: Sequence[tuple[Any, Any]],
    words: Sequence[Sequence[str]],
    predictions: Distribution,
    judged: tuple[Any, Any, Any],
    weights: jax.Array | None,
) -> jax.Array:
    """Σ_i x_i r_i / √(Σ_i x_i² r_i²) of the kernels with a direction, and zero of the others, [K].

    With weights it is that of w_i x_i r_i.

    Zero as well where kernels on predictions see errors that may cancel, and the sum is less than
    two standard errors from zero.

    Args:
        members: lenses and kernels.
        words: of `direction_words`.
        predictions: that kernels on predictions look at.
        judged: predictions that are judged, the same or repaired ones, targets, and None, or their
            normal scores if these take long: the distribution of the scores, and the scores.
        weights: [n], or None.
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
    return _scores(groups, may_cancel, predictions, judged, weights)


def _is_of_rank_one(kernel: Any) -> bool:
    if not isinstance(kernel, TensorProduct):
        return False
    return all(isinstance(term, Constant | Regressor) for term in _terms(kernel.prediction))


@jax.jit
def _scores(
    groups: tuple[Any, ...],
    may_cancel: jax.Array,
    predictions: Distribution,
    judged: Any,
    weights: Any,
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
