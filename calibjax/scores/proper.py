"""Proper scores, whose expectation is smallest for the true distribution, and point errors."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, one_hot
from calibjax.distances import Euclidean
from calibjax.distributions import Ensemble, Quantiles
from calibjax.distributions.base import ClassPredictions, Distribution
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.estimators.pit import checked_levels
from calibjax.scores.base import mean_over_classes, mean_over_samples, weighted_samples


def negative_log_likelihood(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """Mean negative log-likelihood (logarithmic score), in nats.

        NLL = −n⁻¹ Σ_i log p_i(y_i),   with weights −Σ_i w_i log p_i(y_i) / Σ_i w_i

    with densities, or probabilities if outcomes are discrete. It is infinite if a target has
    probability zero.

    Args:
        predictions: batch of n distributions with `log_prob`.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        reduction: "mean" over the samples, or "none" for the score of each, without weights.

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
    samples, weights = weighted_samples(predictions, targets, weights, "log_prob")
    return mean_over_samples(_surprise, samples, weights, reduction, "log_prob")


def _surprise(p: Any, y: jax.Array) -> jax.Array:
    return -p.log_prob(y)


def brier_score(
    predictions: ClassPredictions,
    targets: ArrayLike,
    *,
    scale_by_half: bool | str = "auto",
    weights: ArrayLike | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """Mean squared Euclidean distance between class probabilities and one-hot labels (Brier score).

        Brier = n⁻¹ Σ_i Σ_c (p_ic − 1(y_i = c))², in [0, 2],

    with weights the weighted mean. For two classes it is halved by default, so that it is the mean
    of (p − y)², the `sklearn.metrics.brier_score_loss` of a `Bernoulli`.

    Args:
        predictions: batch of n class predictions.
        targets: labels 0, ..., m − 1, [n].
        scale_by_half: whether half of the sum counts; "auto" for two classes only, as in
            scikit-learn.
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        reduction: "mean" over the samples, or "none" for the score of each, without weights.

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
    if not isinstance(scale_by_half, bool):
        checks.choice("scale_by_half", scale_by_half, ("auto",))
    return mean_over_classes(_BRIER[scale_by_half], predictions, targets, weights, reduction)


def _brier(probs: jax.Array, labels: jax.Array) -> jax.Array:
    return jnp.sum(jnp.square(probs - one_hot(labels, probs.shape[1], probs.dtype)), 1)


def _half_brier(probs: jax.Array, labels: jax.Array) -> jax.Array:
    return 0.5 * _brier(probs, labels)


def _usual_brier(probs: jax.Array, labels: jax.Array) -> jax.Array:
    return (_half_brier if probs.shape[1] == 2 else _brier)(probs, labels)


_BRIER = {"auto": _usual_brier, True: _half_brier, False: _brier}


def mean_squared_error(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """Mean squared error of the predicted means, over samples and components of the targets.

        MSE = n⁻¹ Σ_i (E_{Z~p_i} Z − y_i)²,

    averaged over the components of vectors, as in scikit-learn; with weights the weighted mean.

    Args:
        predictions: batch of n distributions of numbers or vectors with `mean`.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        reduction: "mean" over the samples, or "none" for the score of each, without weights.

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
    samples, weights = weighted_samples(predictions, targets, weights, "mean")
    if hasattr(samples[0], "class_probs"):
        raise TypeError(
            "predictions: expected distributions of numbers or vectors, got class predictions, "
            f"{type(samples[0]).__name__}; their squared error is scores.brier_score"
        )
    return mean_over_samples(_squared_error, samples, weights, reduction)


def _squared_error(p: Any, y: jax.Array) -> jax.Array:
    return jnp.mean(jnp.square(p.mean() - y))


def accuracy(
    predictions: ClassPredictions,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """Proportion of samples whose most probable class was observed.

        accuracy = n⁻¹ Σ_i 1(y_i = argmax_c p_ic),   with weights the weighted mean.

    Ties are resolved in favour of the first class. Derivatives are zero.

    Args:
        predictions: batch of n class predictions.
        targets: labels 0, ..., m − 1, [n].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        reduction: "mean" over the samples, or "none" for the score of each, without weights.

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
    return mean_over_classes(_is_correct, predictions, targets, weights, reduction)


def _is_correct(probs: jax.Array, labels: jax.Array) -> jax.Array:
    return (jnp.argmax(probs, 1) == labels).astype(probs.dtype)


def pinball_loss(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    levels: Sequence[float] | jax.Array | None = None,
    weights: ArrayLike | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """Mean pinball loss (quantile loss) of the predicted quantiles.

        n⁻¹ Σ_i L⁻¹ Σ_τ (1 − τ) (q_i(τ) − y_i)₊ + τ (y_i − q_i(τ))₊

    with the quantiles q_i(τ) at the levels τ_1, ..., τ_L; with weights the weighted mean. With many
    equally spaced levels it approaches half the `crps`. Labels of `Categorical`s count as the
    numbers 0, ..., m − 1.

    Args:
        predictions: batch of n distributions of numbers with `icdf`, or of `Quantiles`.
        targets: [n].
        levels: τ in (0, 1), [L]; 0.05, 0.1, ..., 0.95 by default, and for `Quantiles` their own.
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        reduction: "mean" over the samples, or "none" for the score of each, without weights.

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
    if isinstance(predictions, Quantiles):
        if levels is not None:
            raise ValueError("levels: expected None for Quantiles, which have levels of their own")
        samples, weights = weighted_samples(predictions, targets, weights)
        return mean_over_samples(_loss_of_quantiles, samples, weights, reduction)
    samples, weights = _with_quantiles(predictions, targets, weights)
    levels = checked_levels(levels).astype(floating_dtype(samples[0]))
    loss = jax.tree_util.Partial(_loss_at, levels)  # compiled once for all levels
    return mean_over_samples(loss, samples, weights, reduction)


def interval_score(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    confidence_level: float = 0.9,
    weights: ArrayLike | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """Mean interval score (Winkler score) of the predicted central intervals.

        n⁻¹ Σ_i u_i − l_i + 2 α⁻¹ (l_i − y_i)₊ + 2 α⁻¹ (y_i − u_i)₊

    with the quantiles l_i and u_i at the levels α / 2 and 1 − α / 2, α = 1 − confidence_level; in
    units of the targets. With weights it is the weighted mean. Of forecasts of these two
    quantiles, a `Quantiles`, take 4 / α times the `pinball_loss`.

    Args:
        predictions: batch of n distributions of numbers with `icdf`.
        targets: [n].
        confidence_level: probability of the interval, in (0, 1).
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        reduction: "mean" over the samples, or "none" for the score of each, without weights.

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
    samples, weights = _with_quantiles(predictions, targets, weights)
    tail = (1 - checks.proportion("confidence_level", confidence_level)) / 2
    score = jax.tree_util.Partial(_interval_score, jnp.asarray(tail, floating_dtype(samples[0])))
    return mean_over_samples(score, samples, weights, reduction)


def _interval_score(tail: jax.Array, p: Any, y: jax.Array) -> jax.Array:
    low, high = p.icdf(tail), p.icdf(1 - tail)
    return high - low + (jnp.maximum(low - y, 0) + jnp.maximum(y - high, 0)) / tail


def _with_quantiles(
    predictions: Distribution, targets: ArrayLike, weights: ArrayLike | None
) -> tuple[tuple[Any, Any], jax.Array | None]:
    samples, weights = weighted_samples(predictions, targets, weights, "icdf")
    checks.shape("targets", samples[1], (None,), "[n]: only numbers have quantiles")
    return samples, weights


def _loss_at(levels: jax.Array, p: Any, y: jax.Array) -> jax.Array:
    return _loss_of_quantiles(Quantiles(levels, jax.vmap(p.icdf)(levels)), y)


def _loss_of_quantiles(p: Quantiles, y: jax.Array) -> jax.Array:
    excess = y - p.values
    return jnp.mean(jnp.where(excess > 0, p.levels * excess, (p.levels - 1) * excess))


def energy_score(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    estimator: str = "nrg",
    weights: ArrayLike | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """Mean energy score of draws: the CRPS of vectors.

        ES = n⁻¹ Σ_i E‖Z_i − y_i‖ − ½ E‖Z_i − Z_i'‖

    with independent Z_i, Z_i' from the empirical distribution of the draws of prediction i; in
    units of the targets. With weights it is the weighted mean. Of numbers it is `crps`. The package
    scoringrules has the variogram score, which reacts more to wrong dependence of components, and
    scores of some thresholds.

    This score asks for the empirical distribution of the m members, and prefers ensembles whose
    members scatter less than the targets. The fair estimator is smallest, in expectation, for
    members with the distribution of the target, whatever m:

        n⁻¹ Σ_i m⁻¹ Σ_j ‖z_ij − y_i‖ − ½ (m (m − 1))⁻¹ Σ_{j≠k} ‖z_ij − z_ik‖.

    With `monte_carlo` it estimates the energy score of predictions of any family. It may be
    negative. For members with probabilities q_j, m (m − 1) becomes 1 − Σ_j q_j², and the means
    those with q.

    Args:
        predictions: batch of n `Ensemble`, or distributions with draws, `monte_carlo`.
        targets: [n] or [n, d].
        estimator: "nrg" for the empirical distribution of the draws, or "fair" for the distribution
            from which they were drawn; the names are those of scoringrules.
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        reduction: "mean" over the samples, or "none" for the score of each, without weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind, or the predictions are not given by draws.
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
    score = _SCORES[checks.choice("estimator", estimator, ESTIMATORS)]
    samples, weights = drawn(predictions, targets, weights)
    return mean_over_samples(score, samples, weights, reduction)


def drawn(
    predictions: Distribution, targets: ArrayLike, weights: ArrayLike | None
) -> tuple[tuple[Ensemble, jax.Array], jax.Array | None]:
    """Draws, with targets, and their weights."""
    (checked, y), weights = weighted_samples(predictions, targets, weights)
    draws: Any = checked.draws if isinstance(checked, MonteCarlo) else checked
    if not isinstance(draws, Ensemble):
        raise TypeError(
            "predictions: expected draws, distributions.Ensemble, got "
            f"{checks.described(checked)}; distributions.monte_carlo draws from them"
        )
    return (draws, y), weights


def _kernel_score(
    distance: Euclidean | None, is_fair: bool, p: Ensemble, y: jax.Array
) -> jax.Array:
    """E d(Z, y) − ½ E d(Z, Z'), the latter of different draws if it is fair."""
    to_target, between = p.mean_distances(y, distance)
    share = 1 - jnp.sum(jnp.square(p.probs)) if is_fair else 1
    return to_target - 0.5 * between / share


ESTIMATORS = "nrg", "fair"
_SCORES = {x: functools.partial(_kernel_score, Euclidean(), x == "fair") for x in ESTIMATORS}
fair_score_of_numbers = functools.partial(_kernel_score, None, True)


def crps(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    estimator: str = "nrg",
    weights: ArrayLike | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """Mean continuous ranked probability score.

        CRPS = n⁻¹ Σ_i ∫ (F_i(x) − 1(x ≥ y_i))² dx = n⁻¹ Σ_i E|Z_i − y_i| − ½ E|Z_i − Z_i'|

    with the cdf F_i of p_i and independent Z_i, Z_i' ~ p_i; in units of the targets. With weights
    it is the weighted mean.

    Args:
        predictions: batch of n distributions of numbers whose score has a closed form:
            `Normal`, `Laplace`, `Logistic`, `StudentT`, `LogNormal`, `Gamma`, `Uniform`, `Beta`,
            `Poisson`, `NegativeBinomial`, `Ensemble`, `Mixture`s of normal distributions, and every
            class with a method `crps(y)`.
        targets: [n].
        estimator: for ensembles, as in scoringrules: "nrg" for the empirical distribution of the
            members, or "fair" for the distribution from which they were drawn, see `energy_score`;
            the latter also takes draws from any family, `monte_carlo`.
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        reduction: "mean" over the samples, or "none" for the score of each, without weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: if the family has no closed form.

    Cost: O(n); O(n m²) for up to 200 samples, O(n m log m) for more, O(n k²) for k components.

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
    if checks.choice("estimator", estimator, ESTIMATORS) == "fair":
        samples, weights = drawn(predictions, targets, weights)
        checks.shape("targets", samples[1], (None,), "[n]; vectors have an energy_score")
        return mean_over_samples(fair_score_of_numbers, samples, weights, reduction)
    samples, weights = weighted_samples(predictions, targets, weights, "sample")
    return mean_over_samples(_crps, samples, weights, reduction, "crps")


def _crps(p: Any, y: jax.Array) -> jax.Array:
    """CRPS of one prediction and one target."""
    if not hasattr(p, "crps"):
        raise NotImplementedError(
            f"crps has no closed form for {type(p).__name__} predictions; define the method "
            "crps(y) of the class"
        )
    return p.crps(y)


def ranked_probability_score(
    predictions: ClassPredictions,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """Mean ranked probability score of ordered classes.

        RPS = n⁻¹ Σ_i Σ_{c < m − 1} (P_ic − 1(y_i ≤ c))²,   P_ic = p_i0 + ... + p_ic, in [0, m − 1],

    which is the `crps` of the labels as numbers, and the `brier_score` for two classes. With
    weights it is the weighted mean. It is not divided by m − 1, as some authors do.

    Args:
        predictions: batch of n class predictions.
        targets: labels 0, ..., m − 1 in their order, [n].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        reduction: "mean" over the samples, or "none" for the score of each, without weights.

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
    return mean_over_classes(_ranked_score, predictions, targets, weights, reduction)


def _ranked_score(probs: jax.Array, labels: jax.Array) -> jax.Array:
    below = jnp.cumsum(probs[:, :-1], 1)
    return jnp.sum(jnp.square(below - (labels[:, None] <= jnp.arange(below.shape[1]))), 1)
