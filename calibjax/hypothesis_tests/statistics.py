"""Statistics for `exact_test` with their textbook p-values, and regression of outcomes.

Textbook p-values use the distribution of a statistic under calibration for large n. `exact_test`
calls the attribute textbook_pvalue(value, predictions, targets, **options) of a statistic;
users' own statistics may have one, too.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtr
from jax.scipy.stats import chi2
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.fitting import centered, has_maximum, log_odds, most_likely, newton_minimum
from calibjax._core.gate import checked, inner
from calibjax._core.pytree import Numbers, PyTree, record
from calibjax.binnings import EqualMassBins, bins_of
from calibjax.distributions import Bernoulli, Ensemble, Uniform
from calibjax.distributions.base import ClassPredictions, Distribution
from calibjax.distributions.composed import bare
from calibjax.estimators.pit import pit_values
from calibjax.hypothesis_tests.result import ConfidenceInterval, _shown, asymptotic_interval
from calibjax.kernels.expectations import check_expectations
from calibjax.kernels.residuals import NormalScore, is_of_counts, normal_score

_TERMS = np.arange(200)  # of series; few matter unless the p-value is nearly one


def textbook_pvalue_of(statistic: Any, value: PyTree, predictions: Any, targets: Any) -> PyTree:
    """Textbook p-value of a statistic or a partial function of it; None if it has none."""
    options: dict[str, Any] = {}
    while isinstance(statistic, functools.partial):
        statistic, options = statistic.func, statistic.keywords | options
    pvalue = getattr(statistic, "textbook_pvalue", None)
    return None if pvalue is None else pvalue(value, predictions, targets, **options)


def with_textbook_pvalue(pvalue: Callable[..., jax.Array]) -> Callable[[Any], Any]:
    """Attaches the textbook p-value to a statistic."""

    def attach(function: Any) -> Any:
        function.textbook_pvalue = pvalue
        return function

    return attach


def two_sided(value: jax.Array, *_: object, **__: object) -> jax.Array:
    """P(|Z| ≥ x) of a standard normal Z."""
    return 2 * ndtr(-value)


def beyond_brownian_motion(value: jax.Array, *_: object, **__: object) -> jax.Array:
    """P(sup |B| ≥ x) of Brownian motion on [0, 1]."""
    x = jnp.maximum(value, 0.05)  # below, it is one
    terms = (-1.0) ** _TERMS * ndtr(-(2 * _TERMS + 1) * x)
    return jnp.minimum(4 * jnp.sum(terms), 1).astype(value.dtype)


def beyond_brownian_bridge(value: jax.Array, *_: object, **__: object) -> jax.Array:
    """P(sup |B| ≥ x) of a Brownian bridge on [0, 1] (Kolmogorov's distribution)."""
    x = jnp.maximum(value, 0.05)
    terms = (-1.0) ** _TERMS * jnp.exp(-2 * jnp.square((_TERMS + 1) * x))
    return jnp.minimum(2 * jnp.sum(terms), 1).astype(value.dtype)


def two_degrees(value: jax.Array, *_: object, **__: object) -> jax.Array:
    """P(X ≥ x) for χ² with two degrees of freedom."""
    return jnp.exp(-value / 2)


def has_jumps(predictions: Distribution) -> bool:
    """Whether PIT values are randomised, as for counts and ensembles."""
    plain = bare(predictions)
    return isinstance(plain, Ensemble) or is_of_counts(plain)


def uniform_ranks(
    key: jax.Array, predictions: Distribution, targets: jax.Array
) -> tuple[Uniform, jax.Array]:
    """Randomised PIT values, and their distribution under calibration.

    For ensembles they are uniform if the target and the members are exchangeable.
    """
    values = inner(pit_values)(key, predictions, targets)
    return Uniform(jnp.zeros_like(values), jnp.ones_like(values)), values


def _scores(predictions: Distribution, targets: jax.Array) -> jax.Array:
    """Normal scores of continuous scalar targets, [n]."""
    plain = bare(predictions)
    check_expectations(NormalScore(), plain)
    if has_jumps(plain):
        got = f"{checks.described(plain)}; pit_ks(..., key=key) takes counts and ensembles"
        raise NotImplementedError(f"predictions: expected continuous distributions, got {got}")
    checks.shape("targets", targets, (None,), "[n]: only scalars have a distribution function")
    return jax.vmap(normal_score)(plain, targets).astype(floating_dtype(plain))


@with_textbook_pvalue(beyond_brownian_bridge)
@checked(compiled=True)
def pit_ks(
    predictions: Distribution, targets: Numbers, *, key: jax.Array | None = None
) -> jax.Array:
    """Kolmogorov–Smirnov statistic √n D_n for the uniformity of PIT values.

        D_n = max_u |#{i: F_i(y_i) ≤ u} / n − u|.

    It detects shifts, and has less power against wrong scales. It has no power against errors that
    average out over the predictions.

    For counts and ensembles F_i(y_i) is the randomised value of `estimators.pit_values`. For
    ensembles this is the rank of the target among the members, as in simulation-based calibration
    of posterior draws. `exact_test` draws the random part itself, and redraws the values from a
    uniform distribution. For ensembles this is exact for every m if the target is exchangeable with
    the m members.

    Textbook p-value: Kolmogorov's limit.

    Args:
        predictions: batch of n distributions of numbers with a method `cdf`, or `Ensemble`.
        targets: [n].
        key: a JAX random key for the ties of counts and the ranks in ensembles; not needed in
            `exact_test`.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: for classes, and for counts and ensembles without a key.

    Cost: a sort of n; n m comparisons for ensembles of m members.

    References: Rosenblatt (1952), Remarks on a multivariate transformation; Kolmogorov (1933);
    Talts et al. (2018), Validating Bayesian inference algorithms with simulation-based calibration.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> predictions = distributions.Uniform(jnp.zeros(4), jnp.ones(4))
    >>> print(hypothesis_tests.pit_ks(predictions, jnp.array([0.25, 0.5, 0.5, 0.5])))
    1.0
    """
    if key is not None and has_jumps(predictions):
        predictions, targets = uniform_ranks(key, predictions, targets)
    scores = _scores(predictions, targets)
    n, u = scores.size, jnp.sort(ndtr(scores))
    after, before, root = jnp.arange(1, n + 1) / n, jnp.arange(n) / n, np.sqrt(n)
    largest = jnp.max(jnp.maximum(after - u, u - before))
    return checks.nan_with((root * largest).astype(u.dtype), scores)


@with_textbook_pvalue(two_degrees)
@checked(compiled=True)
def berkowitz(predictions: Distribution, targets: Numbers) -> jax.Array:
    """Berkowitz's likelihood ratio for normal scores with mean 0 and variance 1.

        LR = n (z̄² + s² − 1 − log s²),   z_i = Φ⁻¹(F_i(y_i)),

    with mean z̄ and variance s² (over n) of the scores. It detects shifts and wrong scales that all
    predictions share. The version for time series, with an autoregressive coefficient, depends on
    the order of the samples and is not provided.

    Textbook p-value: χ² with two degrees of freedom.

    Args:
        predictions: batch of n continuous distributions of numbers with a method `cdf`.
        targets: [n].

    Returns:
        A scalar; infinite if all scores are equal.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: if the distributions are not continuous: classes, counts, ensembles.

    Cost: O(n).

    References: Berkowitz (2001), Testing density forecasts, with applications to risk management.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> predictions = distributions.Normal(jnp.zeros(4), jnp.ones(4))
    >>> value = hypothesis_tests.berkowitz(predictions, jnp.array([0.0, 2.0, 0.0, 2.0]))
    >>> print(value)  # the mean is 1, the variance 1
    4.0
    """
    scores = _scores(predictions, targets)
    mean = jnp.mean(scores)
    excess = jnp.mean(jnp.square(scores - mean)) - 1
    return scores.size * (jnp.square(mean) + excess - jnp.log1p(excess))


def _standardised(sums: jax.Array, variance: jax.Array) -> jax.Array:
    """|sums| / √variance, zero for 0 / 0."""
    is_possible = variance > 0
    scale = jnp.sqrt(jnp.where(is_possible, variance, 1))
    value = jnp.where(is_possible, jnp.abs(sums) / scale, jnp.where(sums == 0, 0, jnp.inf))
    return checks.nan_with(value, sums, variance)


@with_textbook_pvalue(two_sided)
@checked(compiled=True)
def spiegelhalter(predictions: ClassPredictions, targets: Numbers) -> jax.Array:
    """Spiegelhalter's statistic |z|: the standardised Brier score.

        z = Σ_i (b_i − E b_i) / (Σ_i Var b_i)^½,   b_i = Σ_c (p_ic − 1(y_i = c))²,

    with moments under calibration given the predictions, E b = 1 − Σ_c p_c² and Var b = 4 Σ_c p_c
    (p_c − Σ_k p_k²)²; for two classes z = Σ_i (y_i − p_i)(1 − 2 p_i) / (Σ_i (1 − 2 p_i)² p_i (1 −
    p_i))^½. It detects over- and underconfidence, and is blind to errors of predictions near one
    half.

    Textbook p-value: |N(0, 1)|.

    Args:
        predictions: batch of n class predictions.
        targets: labels 0, ..., m − 1, [n].

    Returns:
        A scalar, zero if nothing is uncertain.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(n m).

    References: Spiegelhalter (1986), Probabilistic prediction in patient management and clinical
    trials.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> predictions = distributions.Bernoulli(jnp.tile(jnp.array([0.1, 0.9]), 50))
    >>> targets = jnp.arange(100) % 4 // 2  # half of each: overconfident
    >>> print(f"{hypothesis_tests.spiegelhalter(predictions, targets):.2f}")
    13.33
    """
    probs = predictions.class_probs
    squares = jnp.sum(jnp.square(probs), 1)
    chosen = jnp.take_along_axis(probs, targets[:, None], 1, mode="fill", fill_value=jnp.nan)
    variances = jnp.sum(probs * jnp.square(probs - squares[:, None]), 1)
    return _standardised(jnp.sum(squares - chosen[:, 0]), jnp.sum(variances))


def _of_groups(
    value: jax.Array, predictions: Distribution, _: object, num_bins: int = 10
) -> jax.Array:
    bins = bins_of(EqualMassBins(num_bins), bare(predictions))
    is_used = jnp.zeros(bins.size, bool).at[bins].set(True)
    return chi2.sf(value, jnp.sum(is_used))


@with_textbook_pvalue(_of_groups)
@checked(compiled=True, static=("num_bins",))
def hosmer_lemeshow(predictions: Bernoulli, targets: Numbers, *, num_bins: int = 10) -> jax.Array:
    """Hosmer–Lemeshow statistic: frequencies in groups of similar predictions.

        X² = Σ_g (O_g − E_g)² / (n_g p̄_g (1 − p̄_g)),

    with the number O_g of labels 1 in group g, the sum E_g = n_g p̄_g of the predictions, and
    groups of equal size along the predictions (deciles of risk; equal predictions share one). It
    detects errors that have one sign within a group.

    Textbook p-value: χ² with one degree of freedom for each group. (The G − 2 of textbooks are for
    the data that the model was fitted to.)

    Args:
        predictions: batch of n ≥ num_bins `Bernoulli`s; use a reduction for several classes.
        targets: 0 or 1, [n].
        num_bins: G.

    Returns:
        A scalar; infinite if a label occurs to which all predictions of a group give probability
        zero.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or there are fewer predictions than groups.

    Cost: a sort of n.

    References: Hosmer and Lemeshow (1980), Goodness of fit tests for the multiple logistic
    regression model.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> predictions = distributions.Bernoulli(jnp.repeat(jnp.array([0.25, 0.75]), 12))
    >>> targets = jnp.arange(24) % 2  # six of each twelve: 3²/2.25 + 3²/2.25
    >>> print(hypothesis_tests.hosmer_lemeshow(predictions, targets, num_bins=2))
    8.0
    """
    binary = bare(predictions)
    bins, probs = bins_of(EqualMassBins(num_bins), binary), binary.probs
    columns = jnp.stack([jnp.ones_like(probs), probs, targets - probs], 1)
    sizes, expected, excess = jax.ops.segment_sum(columns, bins, probs.size).T
    means = expected / jnp.where(sizes > 0, sizes, 1)
    variances = sizes * means * jnp.maximum(1 - means, 0)
    total = jnp.sum(jnp.square(_standardised(excess, variances)))
    return checks.nan_with(total, probs, targets)


@with_textbook_pvalue(two_degrees)
@checked(compiled=True)
def cox(predictions: Bernoulli, targets: Numbers) -> jax.Array:
    """Cox's statistic for slope one and intercept zero of the log-odds.

    Rao's score statistic of the logistic regression of the labels on the log-odds x_i of the
    predictions, log-odds of the label = a x + b, at a = 1 and b = 0:

        X² = Uᵀ I⁻¹ U,   U = Σ_i (y_i − p_i) (1, x_i),   I = Σ_i p_i (1 − p_i) (1, x_i)(1, x_i)ᵀ.

    It is locally most powerful against such errors, needs no fit, and exists even if the labels are
    separated. `calibration_slope_intercept` estimates a and b.

    Textbook p-value: χ² with two degrees of freedom.

    Args:
        predictions: batch of n `Bernoulli`s; use a reduction for several classes.
        targets: 0 or 1, [n].

    Returns:
        A scalar. If all predictions are equal, the slope is not tested.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(n).

    References: Cox (1958), Two further applications of a model for binary regression; Rao (1948)
    for the statistic.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> predictions = distributions.Bernoulli(jnp.full(100, 0.2))
    >>> print(f"{hypothesis_tests.cox(predictions, jnp.arange(100) % 2):.2f}")  # 30² / 16
    56.25
    """
    probs = bare(predictions).probs
    x = log_odds(probs)
    residuals, variances = targets - probs, probs * (1 - probs)
    slopes, total, center = centered(variances, x)
    # Rounding leaves deviations between equal numbers.
    size = jnp.max(jnp.abs(x))
    differ = slopes > total * jnp.square(10 * jnp.finfo(x.dtype).eps * size)
    of_slope = _standardised(jnp.sum(residuals * (x - center)), jnp.where(differ, slopes, 1))
    of_mean = _standardised(jnp.sum(residuals), total)
    return jnp.square(of_mean) + jnp.where(differ, jnp.square(of_slope), 0 * of_slope)


@with_textbook_pvalue(beyond_brownian_motion)
@checked(compiled=True)
def cumulative_difference(predictions: Bernoulli, targets: Numbers) -> jax.Array:
    """Largest cumulative difference of labels and predictions: an ECE without bins (ECCE-MAD).

        max_k |Σ_{j≤k} (y_(j) − p_(j))| / (Σ_i p_i (1 − p_i))^½,

    with the samples in the order of their predictions; equal predictions are added together. It
    detects errors that have one sign over a range of predictions.

    Textbook p-value: the largest |B(t)| of Brownian motion, 0 ≤ t ≤ 1.

    Args:
        predictions: batch of n `Bernoulli`s; use a reduction for several classes.
        targets: 0 or 1, [n].

    Returns:
        A scalar, zero if nothing is uncertain.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: a sort of n.

    References: Arrieta-Ibarra, Gujral, Tannen, Tygert and Xu (2022), Metrics of calibration for
    probabilistic predictions.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> predictions = distributions.Bernoulli(jnp.array([0.5, 0.5, 0.8, 0.8]))
    >>> targets = jnp.array([1, 1, 1, 0])  # 1, then 1 − 0.6, over √0.82
    >>> print(f"{hypothesis_tests.cumulative_difference(predictions, targets):.3f}")
    1.104
    """
    probs = bare(predictions).probs
    order = jnp.argsort(probs)
    ordered = probs[order]
    residuals, variances = targets - probs, probs * (1 - probs)
    sums = jnp.cumsum(residuals[order])
    is_last = jnp.append(ordered[1:] > ordered[:-1], True)
    largest = jnp.max(jnp.where(is_last, jnp.abs(sums), 0))
    value = _standardised(largest, jnp.sum(variances))
    return checks.nan_with(value, probs, targets)


@record
class SlopeIntercept:
    """Calibration slope and intercept, and calibration in the large, with standard errors.

    Attributes:
        slope: interval for a: below one if predictions are overconfident, above one if they are
            underconfident.
        intercept: interval for b, the log-odds of label 1 for predictions of one half.
        in_the_large: interval for b if a = 1: above zero if probabilities are too small on average,
            below zero if they are too large.

    Its string has one line for each.
    """

    slope: ConfidenceInterval
    intercept: ConfidenceInterval
    in_the_large: ConfidenceInterval

    def __repr__(self) -> str:
        """Estimates, standard errors and limits; arrays are shown by their shapes."""
        lines = [f"{type(self).__name__}("]
        for name in ("slope", "intercept", "in_the_large"):
            x = getattr(self, name)
            numbers = [_shown(v) for v in (x.estimate, x.standard_error, x.low, x.high)]
            lines.append("  {:12}  {} ± {}, {} to {}".format(name, *numbers))
        return "\n".join([*lines, ")"])


@checked
def calibration_slope_intercept(
    predictions: Bernoulli, targets: Numbers, *, confidence_level: float = 0.95
) -> SlopeIntercept:
    """Calibration slope and intercept: logistic regression of the labels on the log-odds.

        log-odds of label 1 = a log(p / (1 − p)) + b,

    by maximum likelihood, with Wald intervals estimate ± z s; s² is a diagonal entry of the inverse
    information. Calibration in the large is b for a fixed a = 1. `recalibration.PlattScaling`
    applies the map.

    Args:
        predictions: batch of n `Bernoulli`s; probabilities of 0 and 1 count as ε and 1 − ε, with ε
            the precision of their dtype.
        targets: 0 or 1, [n].
        confidence_level: in (0, 1).

    Returns:
        The intervals.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or a threshold separates the labels, so that the
            likelihood has no maximum; traced arrays give NaN then.

    Cost: O(n) for each of about 8 iterations of Newton's method.

    References: Cox (1958); Steyerberg (2019), Clinical prediction models, §15.3.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> logits = 4 * jax.random.normal(jax.random.key(0), (1000,))
    >>> targets = jax.random.bernoulli(jax.random.key(1), jax.nn.sigmoid(logits / 2))
    >>> predictions = distributions.Bernoulli(jax.nn.sigmoid(logits))  # twice the log-odds
    >>> print(hypothesis_tests.calibration_slope_intercept(predictions, targets))
    SlopeIntercept(
          slope         0.517 ± 0.0333, 0.451 to 0.582
      intercept     0.082 ± 0.0815, -0.0776 to 0.242
      in_the_large  0.0915 ± 0.103, -0.11 to 0.293
    )
    """
    line = _slope_intercept(bare(predictions).probs, targets, confidence_level)
    if checks.is_concrete(line) and np.isnan(line.slope.estimate):
        expected = "labels that no threshold of the predictions separates"
        raise ValueError(f"targets: expected {expected}, got others; cox needs none")
    return line


@jax.jit
def _slope_intercept(probs: jax.Array, targets: jax.Array, level: ArrayLike) -> SlopeIntercept:
    x = log_odds(probs)
    exists = has_maximum(x, targets == 1) & ~jnp.any(jnp.isnan(x))
    targets = targets.astype(x.dtype)
    line = most_likely(exists, x, targets)
    fitted = jax.nn.sigmoid(line.slope * x + line.intercept)
    slopes, total, center = centered(fitted * (1 - fitted), x)
    shift, of_shift = _in_the_large(exists, x, targets)
    estimates = *line, shift
    errors = 1 / slopes, 1 / total + jnp.square(center) / slopes, 1 / of_shift
    both = zip(estimates, map(jnp.sqrt, errors), strict=True)
    intervals = (asymptotic_interval(jnp.where(exists, b, jnp.nan), s, level) for b, s in both)
    return SlopeIntercept(*intervals)


def _in_the_large(
    exists: jax.Array, x: jax.Array, targets: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Maximum-likelihood b of log-odds x + b, and its information."""

    def loss(b: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.mean(jax.nn.softplus(x + b) - targets * (x + b))

    fixed = lax.stop_gradient(x)
    b = newton_minimum(lambda b: loss(b[0], fixed), jnp.zeros(1, x.dtype), exists)[0]
    # One more step converges, and its derivatives are those of the implicit function theorem.
    b -= jax.grad(loss)(b, x) / lax.stop_gradient(jax.hessian(loss)(b, x))
    return b, x.size * jax.hessian(loss)(b, x)
