"""Proper scores, minimised in expectation by the true distribution, and point errors."""

import functools
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
from jax import export, lax
from jax.tree_util import Partial

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, one_hot
from calibjax._core.gate import checked
from calibjax._core.pytree import Numbers
from calibjax.distances import Euclidean
from calibjax.distributions import Ensemble, Quantiles
from calibjax.distributions.base import ClassPredictions, Distribution, has_class_probs
from calibjax.distributions.composed import bare
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.estimators.pit import LEVELS, checked_levels

Reduction: TypeAlias = Literal["mean", "none"]
Estimator: TypeAlias = Literal["nrg", "fair"]
_BLOCK = 128  # predictions by draws


@checked(needs=("log_prob",), compiled=True, static=("reduction",))
def negative_log_likelihood(
    predictions: Distribution,
    targets: Numbers,
    *,
    weights: Numbers | None = None,
    reduction: Reduction = "mean",
) -> jax.Array:
    """Mean negative log-likelihood (logarithmic score), in nats.

        NLL = −n⁻¹ Σ_i log p_i(y_i),   with weights −Σ_i w_i log p_i(y_i) / Σ_i w_i

    with densities, or probabilities if outcomes are discrete. It is infinite if a target has
    probability zero.

    Args:
        predictions: batch of n distributions with `log_prob`.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n]; None for equal weights.
        reduction: "mean" over the samples, or "none" for the scores of all samples, without
            weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind, or the predictions have no `log_prob`.
        ValueError: if shapes or values are wrong.

    Cost: n evaluations of the log-density.

    References: W21 App. A.3; Gneiting and Raftery (2007), Strictly proper scoring rules, §4.1.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Bernoulli
    >>> nll = negative_log_likelihood(Bernoulli(jnp.array([0.5, 0.25])), jnp.array([1, 0]))
    >>> print(f"{nll:.4f}")  # (log 2 + log 4/3) / 2
    0.4904
    """
    samples = predictions, targets
    return mean_over_samples(lambda p, y: -p.log_prob(y), samples, weights, reduction)


@checked(compiled=True, static=("scale_by_half", "reduction"))
def brier_score(
    predictions: ClassPredictions,
    targets: Numbers,
    *,
    scale_by_half: Literal[True, False, "auto"] = "auto",
    weights: Numbers | None = None,
    reduction: Reduction = "mean",
) -> jax.Array:
    """Mean squared Euclidean distance between class probabilities and one-hot labels (Brier score).

        Brier = n⁻¹ Σ_i Σ_c (p_ic − 1(y_i = c))², in [0, 2],

    or the weighted mean. For two classes it is halved by default, to the mean of (p − y)², the
    `sklearn.metrics.brier_score_loss` of a `Bernoulli`.

    Args:
        predictions: batch of n class predictions.
        targets: labels 0, ..., m − 1, [n].
        scale_by_half: whether to halve the sum; "auto" for two classes only, as in scikit-learn.
        weights: w ≥ 0 of the samples, [n]; None for equal weights.
        reduction: "mean" over the samples, or "none" for the scores of all samples, without
            weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(n m).

    References: Brier (1950), Verification of forecasts expressed in terms of probability.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> predictions = Categorical(jnp.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]))
    >>> print(brier_score(predictions, jnp.array([0, 2])))
    0.25
    """
    probs = predictions.class_probs
    values = jnp.sum(jnp.square(probs - one_hot(targets, probs.shape[1], probs.dtype)), 1)
    is_halved = probs.shape[1] == 2 if scale_by_half == "auto" else scale_by_half
    return weighted_mean(0.5 * values if is_halved else values, weights, reduction)


@checked(needs=("mean",), compiled=True, static=("reduction",))
def mean_squared_error(
    predictions: Distribution,
    targets: Numbers,
    *,
    weights: Numbers | None = None,
    reduction: Reduction = "mean",
) -> jax.Array:
    """Mean squared error of the predicted means, over samples and components of the targets.

        MSE = n⁻¹ Σ_i (E_{Z~p_i} Z − y_i)²,

    averaged over the components of vectors, as in scikit-learn; with weights the weighted mean.

    Args:
        predictions: batch of n distributions of numbers or vectors with `mean`.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n]; None for equal weights.
        reduction: "mean" over the samples, or "none" for the scores of all samples, without
            weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind, the predictions have no `mean`, or they
            predict classes, whose squared error is `brier_score`.
        ValueError: if shapes or values are wrong.

    Cost: O(n d) and the means.

    References: W21 App. A.3.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> predictions = Normal(loc=jnp.array([0.0, 1.0]), scale=jnp.array([1.0, 1.0]))
    >>> print(mean_squared_error(predictions, jnp.array([1.0, 1.0])))
    0.5
    """
    if has_class_probs(bare(predictions)):
        raise TypeError("predictions: expected numbers or vectors; classes have a brier_score")

    def squared_error(p: Any, y: jax.Array) -> jax.Array:
        return jnp.mean(jnp.square(p.mean() - y))

    return mean_over_samples(squared_error, (predictions, targets), weights, reduction)


@checked(compiled=True, static=("reduction",))
def accuracy(
    predictions: ClassPredictions,
    targets: Numbers,
    *,
    weights: Numbers | None = None,
    reduction: Reduction = "mean",
) -> jax.Array:
    """Proportion of samples whose most probable class was observed.

        accuracy = n⁻¹ Σ_i 1(y_i = argmax_c p_ic),   with weights the weighted mean.

    In a tie the first class is chosen. Derivatives are zero.

    Args:
        predictions: batch of n class predictions.
        targets: labels 0, ..., m − 1, [n].
        weights: w ≥ 0 of the samples, [n]; None for equal weights.
        reduction: "mean" over the samples, or "none" for the scores of all samples, without
            weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(n m).

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> predictions = Categorical(jnp.array([[0.75, 0.25], [0.25, 0.75]]))
    >>> print(accuracy(predictions, jnp.array([0, 0])))
    0.5
    """
    probs = predictions.class_probs
    is_correct = (jnp.argmax(probs, 1) == targets).astype(probs.dtype)
    values = jnp.where(jnp.any(jnp.isnan(probs), 1), jnp.nan, is_correct)
    return weighted_mean(values, weights, reduction)


@checked(compiled=True, static=("reduction",), levels=checked_levels)
def pinball_loss(
    predictions: Distribution,
    targets: Numbers,
    *,
    levels: Numbers | None = None,
    weights: Numbers | None = None,
    reduction: Reduction = "mean",
) -> jax.Array:
    """Mean pinball loss (quantile loss) of the predicted quantiles.

        n⁻¹ Σ_i L⁻¹ Σ_τ [(1 − τ) (q_i(τ) − y_i)₊ + τ (y_i − q_i(τ))₊]

    with the quantiles q_i(τ) at the levels τ_1, ..., τ_L; with weights the weighted mean. With many
    equally spaced levels it approaches half the `crps`. Labels of `Categorical`s are the numbers 0,
    ..., m − 1.

    Args:
        predictions: batch of n distributions of numbers with `icdf`, or of `Quantiles`.
        targets: [n].
        levels: τ in (0, 1), [L]; 0.05, 0.1, ..., 0.95 by default, and for `Quantiles` their own.
        weights: w ≥ 0 of the samples, [n]; None for equal weights.
        reduction: "mean" over the samples, or "none" for the scores of all samples, without
            weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind, or the predictions have no `icdf`.
        ValueError: if shapes or values are wrong, or levels are given for `Quantiles`.

    Cost: n L quantiles.

    References: W21 App. A.3; Koenker and Bassett (1978), Regression quantiles.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> predictions = Normal(loc=jnp.array([0.0, 0.0]), scale=jnp.array([1.0, 1.0]))
    >>> print(pinball_loss(predictions, jnp.array([1.0, -3.0]), levels=[0.5]))
    1.0
    """
    samples = predictions, targets
    if isinstance(bare(predictions), Quantiles):
        if levels is not None:
            raise ValueError("levels: expected None for Quantiles, which have levels of their own")
        return mean_over_samples(_pinball_loss, samples, weights, reduction)
    checks.method("predictions", predictions, "icdf")
    places = jnp.asarray(LEVELS if levels is None else levels, floating_dtype(predictions))

    def loss(p: Any, y: jax.Array) -> jax.Array:
        return _pinball_loss(Quantiles(places, jax.vmap(p.icdf)(places)), y)

    return mean_over_samples(loss, samples, weights, reduction)


def _pinball_loss(p: Quantiles, y: jax.Array) -> jax.Array:
    excess = y - p.values
    return jnp.mean(jnp.where(excess > 0, p.levels * excess, (p.levels - 1) * excess))


@checked(needs=("icdf",))
def interval_score(
    predictions: Distribution,
    targets: Numbers,
    *,
    confidence_level: float = 0.9,
    weights: Numbers | None = None,
    reduction: Reduction = "mean",
) -> jax.Array:
    """Mean interval score (Winkler score) of the predicted central intervals.

        n⁻¹ Σ_i [u_i − l_i + 2 α⁻¹ (l_i − y_i)₊ + 2 α⁻¹ (y_i − u_i)₊]

    with the quantiles l_i and u_i at the levels α / 2 and 1 − α / 2, α = 1 − confidence_level; in
    units of the targets. With weights it is the weighted mean. For `Quantiles` with these two
    levels, it is 4 / α times the `pinball_loss`.

    Args:
        predictions: batch of n distributions of numbers with `icdf`, or of `Quantiles`.
        targets: [n].
        confidence_level: probability of the interval, in (0, 1).
        weights: w ≥ 0 of the samples, [n]; None for equal weights.
        reduction: "mean" over the samples, or "none" for the scores of all samples, without
            weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind, or the predictions have no `icdf`.
        ValueError: if shapes or values are wrong.

    Cost: 2 n quantiles.

    References: Winkler (1972), A decision-theoretic approach to interval estimation; Gneiting and
    Raftery (2007), Strictly proper scoring rules, eq. (43).

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Uniform
    >>> predictions = Uniform(low=jnp.zeros(2), high=jnp.full(2, 4.0))
    >>> print(interval_score(predictions, jnp.array([2.0, 4.0]), confidence_level=0.5))
    4.0
    """
    # Avoids the rounding of 1 − 0.999.
    tail = jnp.asarray((1 - confidence_level) / 2, floating_dtype(predictions))
    score, samples = Partial(_interval_score, tail), (predictions, targets)
    return jax.jit(mean_over_samples, static_argnums=3)(score, samples, weights, reduction)


def _interval_score(tail: jax.Array, p: Any, y: jax.Array) -> jax.Array:
    low, high = p.icdf(tail), p.icdf(1 - tail)
    return high - low + (jnp.maximum(low - y, 0) + jnp.maximum(y - high, 0)) / tail


@checked(compiled=True, static=("estimator", "reduction"))
def energy_score(
    predictions: Distribution,
    targets: Numbers,
    *,
    estimator: Estimator = "nrg",
    weights: Numbers | None = None,
    reduction: Reduction = "mean",
) -> jax.Array:
    """Mean energy score of draws: the CRPS of vectors.

        ES = n⁻¹ Σ_i [E‖Z_i − y_i‖ − ½ E‖Z_i − Z_i'‖]

    with independent Z_i, Z_i' from the empirical distribution of the draws of prediction i; in
    units of the targets. With weights it is the weighted mean. For numbers it is `crps`. The
    package scoringrules has the variogram score, which is more sensitive to the dependence of
    components.

    This score assesses the empirical distribution of the m members, and favours ensembles whose
    members scatter less than the targets. The fair estimator is smallest, in expectation, for
    members with the distribution of the target, for every m:

        n⁻¹ Σ_i [m⁻¹ Σ_j ‖z_ij − y_i‖ − ½ (m (m − 1))⁻¹ Σ_{j≠k} ‖z_ij − z_ik‖].

    With `monte_carlo` it estimates the energy score of predictions of any family. The fair estimate
    may be negative. For members with probabilities q_j, means are weighted by q and m (m − 1)
    becomes 1 − Σ_j q_j².

    Args:
        predictions: batch of n `Ensemble`s, or distributions with draws from `monte_carlo`.
        targets: [n] or [n, d].
        estimator: "nrg" for the empirical distribution of the draws, or "fair" for the distribution
            from which they were drawn (names as in scoringrules).
        weights: w ≥ 0 of the samples, [n]; None for equal weights.
        reduction: "mean" over the samples, or "none" for the scores of all samples, without
            weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind, or the predictions have no draws.
        ValueError: if shapes or values are wrong.

    Cost: O(n m² d) for m draws, O(n m d) memory.

    References: Gneiting and Raftery (2007), Strictly proper scoring rules, eq. (22), with the
    opposite sign; Ferro (2014), Fair scores for ensemble forecasts, §3.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Ensemble
    >>> draws = Ensemble(jnp.array([[[0.0, 0.0], [6.0, 8.0]]]))
    >>> print(energy_score(draws, jnp.array([[3.0, 4.0]])))
    2.5
    """
    score = functools.partial(_kernel_score, Euclidean(), estimator == "fair")
    return mean_over_samples(score, (_drawn(predictions), targets), weights, reduction)


def _drawn(predictions: Distribution) -> Ensemble:
    """Draws of the predictions."""
    draws: Any = predictions.draws if isinstance(predictions, MonteCarlo) else bare(predictions)
    if not isinstance(draws, Ensemble):
        got = f"{checks.described(draws)}; distributions.monte_carlo draws from them"
        raise TypeError(f"predictions: expected draws, distributions.Ensemble, got {got}")
    return draws


def _kernel_score(
    distance: Euclidean | None, is_fair: bool, p: Ensemble, y: jax.Array
) -> jax.Array:
    """E d(Z, y) − ½ E d(Z, Z'), the latter over different draws if fair."""
    to_target, between = p.mean_distances(y, distance)
    share = 1 - jnp.sum(jnp.square(p.probs)) if is_fair else 1
    return to_target - 0.5 * between / share


@checked(compiled=True, static=("estimator", "reduction"))
def crps(
    predictions: Distribution,
    targets: Numbers,
    *,
    estimator: Estimator = "nrg",
    weights: Numbers | None = None,
    reduction: Reduction = "mean",
) -> jax.Array:
    """Mean continuous ranked probability score.

        CRPS = n⁻¹ Σ_i ∫ (F_i(x) − 1(x ≥ y_i))² dx = n⁻¹ Σ_i [E|Z_i − y_i| − ½ E|Z_i − Z_i'|]

    with the cdf F_i of p_i and independent Z_i, Z_i' ~ p_i; in units of the targets. With weights
    it is the weighted mean.

    Args:
        predictions: batch of n distributions of numbers whose score has a closed form:
            `Normal`, `Laplace`, `Logistic`, `StudentT`, `LogNormal`, `Gamma`, `Uniform`, `Beta`,
            `Poisson`, `NegativeBinomial`, `Ensemble`, `Mixture`s of normal distributions, and every
            class with a method `crps(y)`.
        targets: [n].
        estimator: for ensembles, as in scoringrules: "nrg" for the empirical distribution of the
            members, or "fair" for the distribution from which they were drawn (see `energy_score`).
            "fair" also takes draws from any family by `monte_carlo`.
        weights: w ≥ 0 of the samples, [n]; None for equal weights.
        reduction: "mean" over the samples, or "none" for the scores of all samples, without
            weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: if the family has no closed form.

    Cost: O(n); O(n m²) for ensembles of up to 200 members, O(n m log m) for more; O(n k²) for
    mixtures of k components.

    References: Gneiting and Raftery (2007), Strictly proper scoring rules, §4.2, with the opposite
    sign; Gneiting et al. (2005), Calibrated probabilistic forecasting using ensemble model output
    statistics, eq. (5) (normal); Grimit et al. (2006), The continuous ranked probability score for
    circular variables, eq. (5) (mixtures); Ferro (2014), Fair scores for ensemble forecasts, §3.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> predictions = Normal(loc=jnp.array([0.0, 0.0]), scale=jnp.array([1.0, 1.0]))
    >>> print(f"{crps(predictions, jnp.array([0.0, 1.0])):.4f}")
    0.4181
    """
    if estimator == "fair":
        checks.shape("targets", targets, (None,), "[n]; vectors have an energy_score")
        score = functools.partial(_kernel_score, None, True)
        return mean_over_samples(score, (_drawn(predictions), targets), weights, reduction)
    if not hasattr(predictions, "crps"):
        kind = type(predictions).__name__
        raise NotImplementedError(f"crps has no closed form for {kind}; define its crps(y)")
    return mean_over_samples(lambda p, y: p.crps(y), (predictions, targets), weights, reduction)


@checked(compiled=True, static=("reduction",))
def ranked_probability_score(
    predictions: ClassPredictions,
    targets: Numbers,
    *,
    weights: Numbers | None = None,
    reduction: Reduction = "mean",
) -> jax.Array:
    """Mean ranked probability score of ordered classes.

        RPS = n⁻¹ Σ_i Σ_{c < m − 1} (P_ic − 1(y_i ≤ c))²,   P_ic = p_i0 + ... + p_ic, in [0, m − 1],

    which is the `crps` of the labels as numbers, and the `brier_score` for two classes. With
    weights it is the weighted mean. Unlike in some papers, it is not divided by m − 1.

    Args:
        predictions: batch of n class predictions.
        targets: labels 0, ..., m − 1 in their order, [n].
        weights: w ≥ 0 of the samples, [n]; None for equal weights.
        reduction: "mean" over the samples, or "none" for the scores of all samples, without
            weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(n m).

    References: Epstein (1969), A scoring system for probability forecasts of ranked categories;
    Murphy (1971), A note on the ranked probability score.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> predictions = Categorical(jnp.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]))
    >>> print(ranked_probability_score(predictions, jnp.array([0, 0])))
    0.375
    """
    below = jnp.cumsum(predictions.class_probs[:, :-1], 1)
    is_upto = targets[:, None] <= jnp.arange(below.shape[1])
    return weighted_mean(jnp.sum(jnp.square(below - is_upto), 1), weights, reduction)


def mean_over_samples(
    score: Callable[[Any, Any], jax.Array],
    samples: tuple[Any, Any],
    weights: jax.Array | None,
    reduction: Reduction,
) -> jax.Array:
    """(Weighted) mean over all samples of a score of one sample, or all values."""
    values = _values(score, samples)
    if values.ndim != 1:
        got = f"shape {values.shape[1:]} from {checks.described(samples[0])}"
        raise ValueError(f"predictions: expected a scalar score of each, got {got}")
    if weights is not None and reduction == "mean":
        # Samples of weight 0 may have an infinite score and a NaN derivative.
        is_left_out = (weights == 0) & ~jnp.isfinite(values)
        counted = checks.counted(weights, samples, ~is_left_out)
        values = jnp.where(is_left_out, 0, _values(score, counted))
    # Quantiles of counts and labels are never NaN.
    values = jnp.where(checks.missing_rows(samples), jnp.nan, values)
    return weighted_mean(values, weights, reduction)


def _values(score: Callable[[Any, Any], jax.Array], samples: tuple[Any, Any]) -> jax.Array:
    """Scores of all samples; of draws in blocks that fit in the processor's cache."""
    n = checks.leading_size("predictions", samples[0])
    if isinstance(samples[0], Ensemble) and not export.is_symbolic_dim(n):
        return lax.map(lambda sample: score(*sample), samples, batch_size=_BLOCK)
    return jax.vmap(score)(*samples)


def per_sample(
    score: Callable[..., jax.Array], predictions: Distribution, targets: Any
) -> jax.Array:
    """Values of a score (predictions, targets) → mean at each sample alone, [n]."""
    score = score if isinstance(score, Partial) else Partial(score)
    return _per_sample(score, predictions, targets)


@jax.jit
def _per_sample(score: Partial, predictions: Any, targets: Any) -> jax.Array:
    def one(*sample: object) -> jax.Array:
        value = checks.real("score", score(*jax.tree.map(lambda x: x[None], sample)))
        if jnp.shape(value) != ():
            raise ValueError(f"score: expected a function that returns a scalar, got {value}")
        return value

    return jax.vmap(one)(predictions, targets)


def weighted_mean(
    values: jax.Array, weights: jax.Array | None, reduction: Reduction = "mean"
) -> jax.Array:
    """Mean over the samples, the last axis; or their values, without reduction."""
    if reduction == "none":
        return values
    if weights is None:
        return jnp.mean(values, -1)
    return jnp.sum(values * weights, -1) / jnp.sum(weights)
