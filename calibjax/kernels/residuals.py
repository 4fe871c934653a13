"""Target kernels that are inner products of residuals, with mean zero under calibration."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.special import ndtr, ndtri
from jax.typing import ArrayLike

from calibjax import distributions
from calibjax._core import arithmetic, checks
from calibjax._core.arithmetic import einsum, floating_dtype, one_hot, ratio, tensordot
from calibjax._core.pytree import PyTree, parameter, part, record
from calibjax.distributions import Bernoulli, DiagNormal, Ensemble, MvNormal, Normal
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.distributions.composed import bare
from calibjax.distributions.constraints import nonnegative, positive, real
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.kernels.base import Conditional, Interval, Kernel, without_draws
from calibjax.kernels.expectations import diagonal_expectation
from calibjax.kernels.stationary import SquaredExponential

_LARGEST_SCORE = 8.2  # in absolute value, of all precisions
VECTORS = DiagNormal | MvNormal
# A composite rule for atoms of counts.
_LEGENDRE = np.polynomial.legendre.leggauss(7)  # nodes and weights
_WIDTH = 0.5  # of panels
_STARTS = np.arange(-8.0, 8.0, _WIDTH)
_PANELS = _STARTS[:, None] + _WIDTH * (1 + _LEGENDRE[0]) / 2
_DENSITIES = _WIDTH / 2 * _LEGENDRE[1] * np.exp(-0.5 * np.square(_PANELS))
_MASSES = _DENSITIES.sum(1, keepdims=True)
_RULE = *_LEGENDRE, _STARTS, _PANELS, np.log(_MASSES[:, 0]), _DENSITIES / _MASSES


@record
class NormalScore(Conditional):
    """Kernel on normal scores, for continuous distributions and counts with `cdf`, and ensembles.

    Targets are compared by their normal scores under their own prediction,

        k((p, y), (q, z)) = kernel(s_p(y), s_q(z)),   s_p(y) = Φ⁻¹(F_p(y)),

    with the standard normal distribution function Φ. For a `DiagNormal` or `MvNormal` with mean μ
    and covariance matrix L Lᵀ, s_p(y) = L⁻¹ (y − μ). Under calibration all scores are standard
    normal, so expectations are those of the inner kernel under this distribution. For exp(−(s − t)²
    / (2 ℓ²)) they are m(s) = ℓ (ℓ² + 1)^(−1/2) exp(−s² / (2 (ℓ² + 1))) and M = ℓ (ℓ² + 2)^(−1/2);
    for vectors, products of these.

    Length scales have no unit: errors of equal size in standard deviations have equal weight for
    wide and narrow predictions. It detects shapes with ℓ = 1/2, and shifts with ℓ = 8, for which it
    is nearly linear.

    Scores beyond ±8.2, which have a probability of 2·10⁻¹⁶, count as ±8.2. For continuous
    distributions whose F rounds to 0 or 1, the score is Φ⁻¹ of the last digit: ±5.2 in float32. In
    float32 features are accurate for two scores that differ by at most 10.4; for outliers further
    apart the kernel value may be too large.

    *Counts.* Scores between Φ⁻¹(F(y − 1)) and Φ⁻¹(F(y)) belong to the count y. A draw from the
    normal distribution restricted to this interval, ν_y, is standard normal under calibration. The
    kernel is the mean over these draws, ∫∫ k(s, t) dν_y(s) dν_z(t), without randomness. It is
    computed by a composite Gauss–Legendre rule with common panels of length 1/2 and one at either
    end, with 7 nodes each. Its error is below 1e-7 in float64 for squared-exponential kernels with
    ℓ ≥ 1/8, and 1e-3 for ℓ = 1/16. `Poisson` and `NegativeBinomial` have accurate probabilities in
    both tails; for other counts, intervals end at 5.2 in float32.

    *Ensembles* (`Ensemble` of numbers). The score is Φ⁻¹ of the relative rank of the target among
    the m members, Φ⁻¹((r + ½) / m) with r members below and a possible equal one; ties have the
    mean rank. Expectations are means over the members. In `ensemble_skce_test` ranks are those
    among all m + 1 values of the pools, which is exact.

    Attributes:
        kernel: kernel on scores with expectations under normal distributions.

    Cost: one evaluation of F for each target, or m comparisons for ensembles. For counts, two
    evaluations of F, 14² evaluations of the inner kernel for each pair, and 14 features for each
    target. There are features (see `exact_skce_test`) if the inner kernel has features for scalar
    normal predictions, and the length scale is not traced.

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
        """Diagonal of the inner kernel."""
        return self.kernel.diagonal

    def value_range(self) -> Interval:
        """Bounds of the inner kernel."""
        return self.kernel.value_range()

    def expected_norm(self, p: Distribution) -> jax.Array | float:
        """Expected norm of the inner kernel under the distribution of the scores."""
        return diagonal_expectation(self.kernel, standard_normal(p))


def normal_score(p: Any, y: ArrayLike) -> jax.Array:
    """Φ⁻¹(F_p(y)), or L⁻¹ (y − loc) for vectors [d], made finite."""
    if isinstance(p, Normal | DiagNormal):
        score = ratio(y - p.loc, p.scale)
    elif isinstance(p, MvNormal):
        score = arithmetic.solve_lower(arithmetic.cholesky(p.cov), jnp.asarray(y) - p.loc)
    else:
        score = _score_of_level(p.cdf(y))
    return jnp.clip(score, -_LARGEST_SCORE, _LARGEST_SCORE)


def _score_of_level(level: jax.Array) -> jax.Array:
    last = jnp.finfo(level.dtype).eps
    return ndtri(jnp.clip(level, last, 1 - last))


class Scores(NamedTuple):
    """Scores of a target, and their weights.

    Attributes:
        points: scores, [k], or [1, d] for vectors; for panels, which all targets share, [k, j].
        weights: weights of scores or panels, [k].
        shares: shares of the points of a panel in its mass, [k, j].
    """

    points: jax.Array
    weights: jax.Array
    shares: jax.Array | None = None

    def total(self, function: Callable[[jax.Array], PyTree]) -> PyTree:
        """Sum of the values of a function at the points, with their weights."""
        if self.shares is None:
            return _weighted(self.weights, jax.vmap(function)(self.points))
        values = jax.vmap(jax.vmap(function))(self.points)
        return _weighted(self.weights, jax.vmap(_weighted)(self.shares, values))


def _weighted(weights: jax.Array, values: PyTree) -> PyTree:
    return jax.tree.map(lambda x: tensordot(weights, x, 1), values)


def total(parts: tuple[Scores, ...], function: Callable[[jax.Array], PyTree]) -> PyTree:
    """Sum of the values of a function at scores, with their weights."""
    first, *others = (part.total(function) for part in parts)
    return functools.reduce(lambda x, y: jax.tree.map(jnp.add, x, y), others, first)


def scores(p: Any, y: ArrayLike) -> tuple[Scores, ...]:
    """Scores of a target, or within its atom; for ensembles minus the scores of the members.

    Their sum has mean zero under the members; kernels are centered under N(0, 1) anyway.
    """
    if is_of_counts(p):
        return _of_atom(p, y)
    is_ranked = isinstance(p, Ensemble)
    score = score_of_rank(p, y) if is_ranked else normal_score(p, y)
    one = Scores(score[None], jnp.ones(1, score.dtype))
    return (one, Scores(score_of_rank(p, p.values), -p.probs)) if is_ranked else (one,)


def is_of_counts(p: object) -> bool:
    """Whether a distribution has atoms at whole numbers."""
    return bool(getattr(getattr(p, "support", None), "is_integer", False))


def _tails(p: Any, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Probabilities of targets up to y and above y."""
    below = p.cdf(y)
    return below, jnp.maximum(1 - below, jnp.finfo(below.dtype).eps)


def _of_atom(p: Any, y: ArrayLike) -> tuple[Scores, Scores]:
    """Quadrature rules for the normal distribution between Φ⁻¹(F(y − 1)) and Φ⁻¹(F(y)).

    The first covers both ends up to the next panels, the second all panels between them.
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
    half = (end - start) / 2 + limits.eps**2  # positive for intervals of length zero
    points = ((start + end) / 2 + half * nodes).ravel()
    # Relative to the largest density, which may be tiny.
    nearest = jnp.clip(jnp.zeros_like(low), low, high)
    densities = jnp.exp(-0.5 * (points - nearest) * (points + nearest)) * (half * weights).ravel()
    is_inside = (starts >= first) & (starts + _WIDTH <= last)
    inside = jnp.exp(jnp.where(is_inside, masses + 0.5 * jnp.square(nearest), -jnp.inf))
    total = jnp.sum(densities) + jnp.sum(inside)
    return Scores(points, densities / total), Scores(panels, inside / total, shares)


def score_of_rank(p: Ensemble, y: ArrayLike) -> jax.Array:
    """Φ⁻¹(Σ_j w_j (1(z_j < y) + ½ 1(z_j = y))), bounded by the scores of extreme members."""
    order = jnp.argsort(p.values)
    upto = jnp.append(0, jnp.cumsum(p.probs[order]))
    below, through = (jnp.searchsorted(p.values[order], y, side=side) for side in ("left", "right"))
    least = 0.5 * jnp.min(p.probs)
    return _score_of_level(jnp.clip((upto[below] + upto[through]) / 2, least, 1 - least))


def standard_normal(p: Any) -> Normal | DiagNormal:
    """Distribution of the scores of one prediction."""
    if isinstance(p, VECTORS):
        zeros = jnp.zeros_like(p.loc)
        return DiagNormal(zeros, jnp.ones_like(zeros))
    is_number = hasattr(p, "cdf") and not getattr(getattr(p, "support", real), "axes", ())
    is_number = jnp.ndim(p.values) == 1 if isinstance(p, Ensemble) else is_number
    if not is_number or isinstance(p, MonteCarlo) or has_class_probs(p):
        expected = "numbers with a method cdf, ensembles of numbers, DiagNormal or MvNormal"
        got = f"{type(p).__name__} predictions; expected {expected}"
        raise NotImplementedError(f"no normal scores of targets of {got}")
    zero = jnp.zeros((), floating_dtype(p))
    return Normal(zero, jnp.ones_like(zero))


_LEAST = 1e6  # least probability for scores, in units of the smallest normal number
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(8)  # exact for polynomials of degree 15
_Shape = Literal["skewness", "peakedness"]
SHAPES = get_args(_Shape)
_SKEWNESS = 1.3545308064813153, 0.7138394440448623  # a and b of `Shape`, by quadrature
_DRAWS = 128  # draws for the information without classes or quantiles


class Residual(Conditional):
    """Target kernel k((p, y), (q, z)) = ⟨r(p, y), r(q, z)⟩ with E_{Y~p} r(p, Y) = 0.

    Subclasses are records with a method `residual(p, y)`, an array [r] for one prediction and one
    target. A method `expected_norm(p)`, E ‖r(p, Y)‖², is for `estimators.skce_dispersion` and
    composite tests. Expectations vanish, and r is a feature: exact tests evaluate redraws by matrix
    products.
    """

    def residual(self, p: Distribution, y: ArrayLike) -> jax.Array:
        """Residual of one target, [r]."""
        raise NotImplementedError(f"{type(self).__name__} does not define residual(p, y)")


@record
class PearsonResidual(Residual):
    """Kernel of the Pearson residuals of classes.

        k((p, y), (q, z)) = Σ_c r_c(p, y) r_c(q, z),   r(p, y) = (e_y − p) / √(p + offset).

    In `White`, ⟨e_y − p, e_z − q⟩, classes with a small probability hardly matter. Division by
    their standard deviation gives all classes similar weight. So it detects unlikely labels, as
    from label noise or overconfident models of many classes.

    Attributes:
        offset: positive probability that bounds the weights of unlikely classes.

    Cost: O(m) for a pair of samples.

    References: none of the four papers has it; Pearson (1900) for the residuals.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, kernels
    >>> from calibjax.estimators import calibration_kernel
    >>> p = distributions.Categorical(jnp.array([0.9, 0.09, 0.01]))
    >>> for target_kernel in (kernels.White(), kernels.PearsonResidual()):
    ...     kernel = kernels.TensorProduct(kernels.Constant(), target_kernel)
    ...     print([f"{calibration_kernel(kernel, p, y, p, y):.2f}" for y in range(3)])
    ['0.02', '1.64', '1.80']
    ['0.10', '9.18', '49.98']
    """

    offset: jax.Array | float = parameter(positive, default=0.01)

    def residual(self, p: Any, y: ArrayLike) -> jax.Array:
        """(e_y − p) / √(p + offset), [m]."""
        if not has_class_probs(p):
            got = f"{type(p).__name__} predictions; expected classes"
            raise NotImplementedError(f"no Pearson residuals under {got}")
        probs = p.class_probs
        residual = one_hot(jnp.asarray(y), probs.shape[-1], probs.dtype) - probs
        return residual * self.label_scales(probs)

    def label_scales(self, probs: jax.Array) -> jax.Array:
        """Factors of the entries of e_y − p, [..., m]."""
        return 1 / jnp.sqrt(probs + jnp.asarray(self.offset, probs.dtype))

    def expected_norm(self, p: Any) -> jax.Array:
        """E ‖r(p, Y)‖² = Σ_c p_c (1 − p_c) / (p_c + offset)."""
        probs = p.class_probs
        return jnp.sum(probs * (1 - probs) / (probs + jnp.asarray(self.offset, probs.dtype)))


def _with_identity(value: Any, name: str) -> Any:
    """A recalibration with an identity."""
    if not all(callable(getattr(value, method, None)) for method in ("identity", "apply")):
        expected = "a recalibration with methods identity and apply"
        raise TypeError(f"{name}: expected {expected}, got {checks.described(value)}")
    return checks.record_values(value, name)


@record
class Fisher(Residual):
    """Fisher kernel of a recalibration: the product of its scores.

        k((p, y), (q, z)) = s(p, y)ᵀ I⁻¹ s(q, z),   s(p, y) = ∂_θ log (T_θ p)(y)  at  θ = θ₀,

    where T_θ is the recalibration with parameters θ, and θ₀ its identity. With `Constant` as the
    kernel on predictions, n times the biased SKCE is Rao's statistic Sᵀ (n I)⁻¹ S with S = Σ_i
    s(p_i, y_i). Then `exact_skce_test` is an exact score test of θ = θ₀, locally most powerful
    against errors that T_θ corrects. Other kernels on predictions detect errors of this kind that
    vary with the prediction.

    | kernel | predictions | errors |
    | --- | --- | --- |
    | `Fisher(TemperatureScaling())` | classes, densities | over- and underconfidence |
    | `Fisher(PlattScaling())` | `Bernoulli` | intercept and slope of the log-odds |
    | `Fisher(AffineScaling())` | numbers, normal vectors | shift and scale |
    | `NormalScore(Fisher(AffineScaling()))` | the same | shift and scale of normal scores |

    Attributes:
        recalibration: a record with `apply(params, predictions)`, whose result has `log_prob` (or
            consists of confidences), and `identity(predictions)`, the params of the identity.
        only: name of one of several params, such as "slope"; None for all.
        information: I, [k, k]; None by default: estimators and tests use the mean information E s
            sᵀ of their predictions. Without it the kernel is ⟨s, s⟩. It is exact for classes, from
            8 Gauss–Hermite nodes for scalars with quantiles, and otherwise from 128 fixed draws for
            each prediction. For a single score it is a factor, on which tests do not depend.

    Cost: forward derivatives of the recalibration by k params for each prediction.

    References: Rao (1948), Large sample tests of statistical hypotheses; Jaakkola and Haussler
    (1998), Exploiting generative models in discriminative classifiers. None of the four papers.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, kernels, recalibration
    >>> kernel = kernels.Fisher(recalibration.TemperatureScaling())
    >>> kernel = kernels.TensorProduct(kernels.Constant(), kernel)
    >>> logits = 2 * jax.random.normal(jax.random.key(0), (300, 5))
    >>> targets = jax.random.categorical(jax.random.key(1), logits / 1.3)  # overconfident
    >>> predictions = distributions.CategoricalLogits(logits)
    >>> test = hypothesis_tests.exact_skce_test(jax.random.key(2), kernel, predictions, targets)
    >>> print(f"{test.pvalue:.3f}")
    0.001
    """

    recalibration: Any = part(_with_identity)
    only: str | None = dataclasses.field(default=None, metadata={"static": True})
    information: jax.Array | None = None

    def residual(self, p: Any, y: ArrayLike) -> jax.Array:
        """Score of one target, [k], standardised if there is an information."""
        score = self.score(p, y)
        if self.information is None:
            return score
        size = jnp.max(jnp.abs(self.information))
        least = 4 * len(score) * jnp.finfo(score.dtype).eps * jnp.where(size > 0, size, 1)
        information = jnp.asarray(self.information, score.dtype) + least * jnp.eye(len(score))
        root = arithmetic.cholesky(information.astype(score.dtype))
        return arithmetic.solve_lower(root, score)

    def score(self, p: Any, y: ArrayLike) -> jax.Array:
        """∂_θ log (T_θ p)(y) at the identity, [k]."""
        if not hasattr(p, "log_prob"):
            got = f"{type(p).__name__} predictions; expected ones with a log_prob"
            raise NotImplementedError(f"no scores under {got}")
        batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], _with_finite_logs(p))
        params, dtype = self.recalibration.identity(batch), floating_dtype(batch)
        numbers, unflattened = ravel_pytree(jax.tree.map(lambda x: jnp.asarray(x, dtype), params))

        def log_prob(numbers: jax.Array) -> jax.Array:
            applied = self.recalibration.apply(unflattened(numbers), batch)
            applied = applied if hasattr(applied, "log_prob") else Bernoulli(applied)
            return jax.tree.map(lambda leaf: leaf[0], applied).log_prob(y)

        score = jax.jacfwd(log_prob)(numbers)
        if self.only is None:
            return score
        leaves = jax.tree.leaves_with_path(params)
        names = [jax.tree_util.keystr(x, simple=True, separator=".") for x, _ in leaves]
        is_chosen = np.array(names) == checks.choice("only", self.only, tuple(names))
        return score[np.repeat(is_chosen, [jnp.size(x) for _, x in leaves])]

    def expected_norm(self, p: Any) -> jax.Array:
        """E ‖r(p, Y)‖², exact for classes; see `information`."""
        targets, weights = _representatives(p)
        residuals = jax.vmap(lambda y: self.residual(p, y))(targets)
        return jnp.sum(weights[:, None].astype(residuals.dtype) * jnp.square(residuals))


@record
class Shape(Residual):
    """Rank-one kernel for skewness or kurtosis of normal scores.

        k(s, t) = r(s) r(t),   skewness: r(s) = (s³ (1 + s²)^(−1/2) − a s) / b,
                               peakedness: r(s) = 3 P₄(2 Φ(s) − 1),

    with the distribution function Φ of the standard normal distribution and the Legendre polynomial
    P₄(x) = (35 x⁴ − 30 x² + 3) / 8. Both have mean zero and variance one under N(0, 1). The first
    is the score of the skewness of sinh-arcsinh distributions, made uncorrelated with s by a = E s⁴
    (1 + s²)^(−1/2). The second is the fourth component of Neyman's smooth test; it is negative for
    bimodal targets. As inner kernels of `NormalScore`, with `Constant` on predictions, they detect
    a shape that is wrong for *all* predictions.

    Attributes:
        of: "skewness" or "peakedness".

    Cost: O(1) for a pair of scores.

    References: Jones and Pewsey (2009), Sinh-arcsinh distributions; Neyman (1937), "Smooth test"
    for goodness of fit. None of the four papers.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, kernels
    >>> from calibjax.kernels.residuals import Shape
    >>> kernel = kernels.NormalScore(Shape("skewness"))
    >>> kernel = kernels.TensorProduct(kernels.Constant(), kernel)
    >>> predictions = distributions.Normal(jnp.full(100, 4.0), jnp.full(100, 2.0))
    >>> targets = jax.random.gamma(jax.random.key(0), 4.0, (100,))  # the same mean and variance
    >>> test = hypothesis_tests.exact_skce_test(jax.random.key(1), kernel, predictions, targets)
    >>> print(f"{test.pvalue:.3f}")
    0.001
    """

    of: _Shape = dataclasses.field(default="skewness", metadata={"static": True})

    def residual(self, p: Any, y: ArrayLike) -> jax.Array:
        """Value r at the standardised target, [1]."""
        if not isinstance(p, Normal):
            raise NotImplementedError(f"no shape of {type(p).__name__} predictions")
        score = (y - p.loc) / p.scale
        if self.of == "skewness":
            along, size = _SKEWNESS
            square = jnp.square(score)
            return jnp.atleast_1d((score * (square / jnp.sqrt(1 + square)) - along * score) / size)
        square = jnp.square(2 * ndtr(score) - 1)
        return jnp.atleast_1d(3 * (35 * square**2 - 30 * square + 3) / 8)

    def expected_norm(self, p: Any) -> jax.Array:
        """1."""
        return jnp.ones_like(p.loc)


def _with_finite_logs(p: Any) -> Any:
    """Class predictions without zero probabilities, whose logarithms have no slope."""
    if not hasattr(p, "class_probs") or isinstance(p, distributions.CategoricalLogits):
        return p
    info = jnp.finfo(jnp.result_type(p.class_probs))
    least = _LEAST * float(info.tiny)
    if isinstance(p, Bernoulli):
        return Bernoulli(jnp.clip(p.probs, least, 1 - info.eps))
    return distributions.CategoricalLogits(jnp.log(jnp.maximum(p.class_probs, least)))


@jax.jit
def _information(kernel: Fisher, predictions: Distribution) -> jax.Array:
    def of_one(p: Any) -> jax.Array:
        targets, weights = _representatives(p)
        scores = jax.vmap(lambda y: kernel.score(p, y))(targets)
        return einsum("t,tk,tl->kl", weights.astype(scores.dtype), scores, scores)

    return jnp.mean(jax.vmap(of_one)(predictions), 0)


def _representatives(p: Any) -> tuple[jax.Array, jax.Array]:
    """Targets and weights for expectations under a prediction."""
    if hasattr(p, "class_probs"):
        probs = p.class_probs
        return jnp.arange(probs.shape[-1]), probs
    dtype = floating_dtype(p)
    if hasattr(p, "icdf") and not is_of_counts(p):
        levels = ndtr(jnp.asarray(_NODES, dtype))
        return jax.vmap(p.icdf)(levels), jnp.asarray(_WEIGHTS / _WEIGHTS.sum(), dtype)
    draws = jax.vmap(p.sample)(jax.random.split(jax.random.key(0), _DRAWS))
    return draws, jnp.full(_DRAWS, 1 / _DRAWS, dtype)


def informed(kernel: Kernel, predictions: Distribution) -> PyTree:
    """Kernel whose Fisher kernels have the mean information of the predictions."""
    whole = lambda part: isinstance(part, Fisher | NormalScore)  # noqa: E731
    lacks = lambda part: isinstance(part, Fisher) and part.information is None  # noqa: E731

    def of_part(part: Any) -> Any:
        if lacks(part):
            return dataclasses.replace(part, information=_information(part, bare(predictions)))
        inner = jax.tree.leaves(part.kernel, is_leaf=whole) if isinstance(part, NormalScore) else ()
        if any(map(lacks, inner)):
            first = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], bare(predictions))
            standard = jax.tree.map(lambda leaf: leaf[None], standard_normal(first))
            return dataclasses.replace(part, kernel=informed(part.kernel, standard))
        return part

    return jax.tree.map(of_part, kernel, is_leaf=whole)


_NUMBERS: dict[str, Callable[[Any], jax.Array]] = {
    "location": lambda p: p.loc if hasattr(p, "loc") else p.mean(),
    "log scale": lambda p: jnp.log(p.scale) if hasattr(p, "scale") else 0.5 * jnp.log(p.variance()),
}


@functools.partial(jax.jit, static_argnums=0)
def _moments(of: str, predictions: Distribution) -> tuple[jax.Array, jax.Array]:
    """Mean and standard deviation of a number among predictions; zero up to rounding errors."""
    number = jax.vmap(_NUMBERS[of])(predictions)
    center = number[0] + jnp.mean(number - number[0])  # exact if they are equal
    size = jnp.max(jnp.abs(number - center))
    unit = jnp.where(size > 0, size, 1)
    unit = unit * jnp.sqrt(jnp.mean(jnp.square((number - center) / unit)))  # no square overflows
    rounding = 10 * jnp.finfo(number.dtype).eps * jnp.max(jnp.abs(number))
    return center, jnp.where(unit <= rounding, 0, unit)  # NaN stays


@record
class Regressor(Kernel):
    """Kernel on predictions k(p, q) = x(p) x(q) with a standardised number x.

    With the score of a recalibration as target kernel, such as `Fisher(AffineScaling(), "shift")`,
    it detects errors that are linear in x. Examples are low predictions that are too low and high
    ones that are too high, or wide predictions that are too narrow.

    Attributes:
        of: "location" (`loc`, or the mean), or "log scale" (log of `scale`, or of the standard
            deviation), of scalar predictions.
        center: mean of the number.
        unit: standard deviation of the number; zero for equal predictions, for which x is zero.

    `Regressor.among(predictions, of)` takes center and unit from a batch.

    Cost: O(1). Tests take linear time, as with `Nystrom`.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, kernels
    >>> from calibjax.kernels.residuals import Regressor
    >>> predictions = distributions.Normal(jnp.array([0.0, 2.0]), jnp.ones(2))
    >>> kernel = Regressor.among(predictions, "location")
    >>> print(kernels.gram_matrix(kernel, predictions))
    [[ 1. -1.]
     [-1.  1.]]
    """

    of: Literal["location", "log scale"] = dataclasses.field(metadata={"static": True})
    center: jax.Array | float = parameter(real, default=0.0)
    unit: jax.Array | float = parameter(nonnegative, default=1.0)

    @classmethod
    def among(cls, predictions: Distribution, of: Any) -> "Regressor":
        """Kernel with mean and standard deviation of the number among n predictions."""
        return cls(of, *_moments(of, bare(predictions)))

    def number(self, p: Distribution) -> jax.Array:
        """The number x(p)."""
        value = _NUMBERS[self.of](bare(p))
        center, unit = (jnp.asarray(x, value.dtype) for x in (self.center, self.unit))
        return jnp.where(unit == 0, 0, ratio(value - center, jnp.where(unit == 0, 1, unit)))

    def __call__(self, p: Distribution, q: Distribution) -> jax.Array:
        """Product of the numbers of two predictions."""
        return self.number(p) * self.number(q)

    @jax.jit
    def factor(self, predictions: Distribution) -> jax.Array:
        """Features of a batch of predictions, [n, 1]: the numbers."""
        numbers = jax.vmap(self.number)(without_draws(predictions))[:, None]
        return numbers.astype(floating_dtype(predictions))
