"""Target kernels on normal scores of the targets."""

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jax.typing import ArrayLike

from calibjax._core import checks, matrices
from calibjax._core.arithmetic import einsum, floating_dtype, largest_score, ratio, tensordot
from calibjax._core.pytree import part, record
from calibjax.distributions import DiagNormal, Ensemble, MvNormal, Normal
from calibjax.kernels.base import Conditional, Interval, Kernel
from calibjax.kernels.stationary import SquaredExponential

_LARGEST_SCORE = largest_score(np.float64)  # in absolute value, of all precisions
VECTORS = DiagNormal | MvNormal
# A composite rule for atoms of counts.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(7)
_WIDTH = 0.5  # of panels
_STARTS = np.arange(-8.0, 8.0, _WIDTH)
_PANELS = _STARTS[:, None] + _WIDTH * (1 + _NODES) / 2
_DENSITIES = _WIDTH / 2 * _WEIGHTS * np.exp(-0.5 * np.square(_PANELS))
_MASSES = _DENSITIES.sum(1, keepdims=True)
_RULE = _NODES, _WEIGHTS, _STARTS, _PANELS, np.log(_MASSES[:, 0]), _DENSITIES / _MASSES


@record
class NormalScore(Conditional):
    """Kernel on normal scores, for continuous distributions and counts with `cdf`, and ensembles.

    Targets are compared by where they lie in their own predicted distribution,

        k((p, y), (q, z)) = kernel(s_p(y), s_q(z)),   s_p(y) = Φ⁻¹(F_p(y)),

    with the standard normal distribution function Φ; of vectors s_p(y) = L⁻¹ (y − μ) for a
    `DiagNormal` or `MvNormal` with mean μ and covariance matrix L Lᵀ. Under calibration all scores
    are standard normal, whatever the predictions, so that expectations are those of the inner
    kernel under this distribution: for exp(−(s − t)² / (2 ℓ²)) they are
    m(s) = ℓ (ℓ² + 1)^(−1/2) exp(−s² / (2 (ℓ² + 1))) and M = ℓ (ℓ² + 2)^(−1/2), and products of
    these for vectors.

    Length scales have no unit: errors of the same size, in standard deviations, count equally for
    wide and for narrow predictions, and shapes that are wrong in all of them add up. It detects
    shapes with ℓ = 1/2, and with ℓ = 8, where it is nearly linear, shifts.

    Scores beyond ±8.2, which have a probability of 2·10⁻¹⁶, count as ±8.2. For continuous
    distributions whose F rounds to 0 or 1, the score is Φ⁻¹ of the last digit: ±5.2 in float32. In
    this precision features are accurate for two scores that differ by at most 10.4; some outliers
    on opposite sides that are further apart are as similar as if they were closer.

    *Counts.* All scores between Φ⁻¹(F(y − 1)) and Φ⁻¹(F(y)) belong to the count y. One that is
    drawn from the normal distribution restricted to this interval, ν_y, is standard normal under
    calibration. Instead of drawing it, which would need a key and add noise, the kernel is the mean
    over all of them, ∫∫ k(s, t) dν_y(s) dν_z(t), by a composite Gauss-Legendre rule: panels of
    length 1/2 with 7 nodes each, which are the same for all counts, and one with as many at either
    end. Its error is below 1e-7 in float64 for squared-exponential kernels with ℓ ≥ 1/8, and 1e-3
    for ℓ = 1/16. `Poisson` and `NegativeBinomial` predictions have accurate probabilities in both
    tails; for others, whose F rounds to 1, intervals end at 5.2 in float32.

    *Ensembles* (`Ensemble` of numbers). The score is that of the rank of the target among the m
    members, Φ⁻¹((r + ½) / m) with r members below and a possible equal one; ties have the mean
    rank. Expectations are means over the members. In `ensemble_skce_test`, whose predictions are
    the pools of m + 1 values, ranks are those among all of them, which is exact.

    Attributes:
        kernel: kernel on scores with expectations under normal distributions.

    Cost: one evaluation of F for each target, m comparisons for ensembles; for counts two of F, 14²
    evaluations of the inner kernel for each pair, and 14 features for each target; features (see
    `exact_skce_test`) where the inner kernel has features for scalar normal predictions, and the
    length scale is not traced.

    References: none of the four papers has it; scores are those of Rosenblatt (1952), Remarks on a
    multivariate transformation, and Dawid (1984), Statistical theory: the prequential approach.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, estimators, kernels
    >>> kernel = kernels.NormalScore(kernels.SquaredExponential(1.0))
    >>> kernel = kernels.TensorProduct(kernels.Constant(), kernel)
    >>> narrow = distributions.Normal(jnp.array(0.0), jnp.array(1.0))
    >>> wide = distributions.Normal(jnp.array(5.0), jnp.array(100.0))
    >>> for p, y in ((narrow, 2.0), (wide, 205.0)):  # both two standard deviations above
    ...     print(f"{estimators.calibration_kernel(kernel, narrow, 2.0, p, y):.4f}")
    1.0571
    1.0571
    """

    kernel: Kernel = part(checks.kernel_values, default=SquaredExponential(1.0))

    @property
    def diagonal(self) -> jax.Array | float | None:
        """That of the inner kernel."""
        return self.kernel.diagonal

    def value_range(self) -> Interval:
        """Bounds of the inner kernel."""
        return self.kernel.value_range()


def normal_score(p: Any, y: ArrayLike) -> jax.Array:
    """Φ⁻¹(F_p(y)), or L⁻¹ (y − loc) of vectors [d], where it is finite."""
    if isinstance(p, Normal | DiagNormal):
        score = ratio(y - p.loc, p.scale)
    elif isinstance(p, MvNormal):
        score = matrices.solve_lower(matrices.cholesky(p.cov), jnp.asarray(y) - p.loc)
    else:
        score = _score_of_level(p.cdf(y))
    return jnp.clip(score, -_LARGEST_SCORE, _LARGEST_SCORE)


def _score_of_level(level: jax.Array) -> jax.Array:
    last = jnp.finfo(level.dtype).eps
    return ndtri(jnp.clip(level, last, 1 - last))


class Scores(NamedTuple):
    """Scores that a target stands for, and their weights.

    Attributes:
        points: [k], or [1, d] of vectors; of panels, which are the same for all targets, [k, j].
        weights: [k].
        shares: of the points of a panel in its mass, [k, j].
    """

    points: jax.Array
    weights: jax.Array
    shares: jax.Array | None = None

    def mapped(self, function: Callable[[jax.Array], jax.Array]) -> jax.Array:
        """Values of a function at the points, or its means over the panels, [k, ...]."""
        if self.shares is None:
            return jax.vmap(function)(self.points)
        return einsum("kj,kj...->k...", self.shares, jax.vmap(jax.vmap(function))(self.points))


def total(parts: tuple[Scores, ...], function: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """Sum of the values of a function at scores, with their weights."""
    values = (tensordot(part.weights, part.mapped(function), 1) for part in parts)
    return functools.reduce(operator.add, values)


def scores(p: Any, y: ArrayLike) -> tuple[Scores, ...]:
    """The score of a target, or those within its atom; of ensembles minus those of the members.

    Their sum has the mean zero under the members; kernels are centered under N(0, 1) anyway.
    """
    if isinstance(p, Ensemble):
        score = score_of_rank(p, y)
        members = Scores(score_of_rank(p, p.values), -p.probs)
        return Scores(score[None], jnp.ones(1, score.dtype)), members
    if is_of_counts(p):
        return _of_atom(p, y)
    score = normal_score(p, y)
    return (Scores(score[None], jnp.ones(1, score.dtype)),)


def is_of_counts(p: object) -> bool:
    """Whether a distribution has atoms at whole numbers."""
    return bool(getattr(getattr(p, "support", None), "is_integer", False))


def _tails(p: Any, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Probabilities of targets up to y and of those above."""
    below = p.cdf(y)
    return below, jnp.maximum(1 - below, jnp.finfo(below.dtype).eps)


def _of_atom(p: Any, y: ArrayLike) -> tuple[Scores, Scores]:
    """Quadrature rules for the normal distribution between Φ⁻¹(F(y − 1)) and Φ⁻¹(F(y)).

    The first is for the two ends up to the next panels, the second for all panels between them.
    """
    counts = jnp.asarray(y) - jnp.arange(2)[::-1]
    below, above = p._tails(counts) if hasattr(p, "_tails") else _tails(p, counts)
    limits = jnp.finfo(below.dtype)
    lower, upper = ndtri(jnp.maximum(jnp.stack([below, above]), limits.tiny))
    ends = jnp.where(below < above, lower, -upper)
    low, high = jnp.clip(ends, -_LARGEST_SCORE, _LARGEST_SCORE)
    first = jnp.minimum(jnp.ceil(low / _WIDTH) * _WIDTH, high)
    last = jnp.maximum(jnp.floor(high / _WIDTH) * _WIDTH, first)
    nodes, weights, starts, panels, masses, shares = (jnp.asarray(x, low.dtype) for x in _RULE)
    start, end = jnp.stack([low, last])[:, None], jnp.stack([first, high])[:, None]
    half = (end - start) / 2 + limits.eps**2  # of intervals of length zero: anything
    points = ((start + end) / 2 + half * nodes).ravel()
    # Relative to the largest density, which may be tiny.
    nearest = jnp.clip(jnp.zeros_like(low), low, high)
    densities = jnp.exp(-0.5 * (points - nearest) * (points + nearest)) * (half * weights).ravel()
    is_inside = (starts >= first) & (starts + _WIDTH <= last)
    inside = jnp.exp(jnp.where(is_inside, masses + 0.5 * jnp.square(nearest), -jnp.inf))
    total = jnp.sum(densities) + jnp.sum(inside)
    return Scores(points, densities / total), Scores(panels, inside / total, shares)


def score_of_rank(p: Ensemble, y: ArrayLike) -> jax.Array:
    """Φ⁻¹(Σ_j w_j (1(z_j < y) + ½ 1(z_j = y))), not beyond that of an extreme member."""
    order = jnp.argsort(p.values)
    upto = jnp.append(0, jnp.cumsum(p.probs[order]))
    below, through = (jnp.searchsorted(p.values[order], y, side=side) for side in ("left", "right"))
    least = 0.5 * jnp.min(p.probs)
    return _score_of_level(jnp.clip((upto[below] + upto[through]) / 2, least, 1 - least))


def standard_normal(p: Any) -> Normal | DiagNormal:
    """The distribution of the scores."""
    if isinstance(p, VECTORS):
        zeros = jnp.zeros_like(p.loc)
        return DiagNormal(zeros, jnp.ones_like(zeros))
    zero = jnp.zeros((), floating_dtype(p))
    return Normal(zero, jnp.ones_like(zero))
