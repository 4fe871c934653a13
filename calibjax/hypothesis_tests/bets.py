"""Bets against forecasts, from what recalibrations and kernels learned from the past."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp, ndtr, ndtri
from jax.scipy.stats import norm

from calibjax._core import checks
from calibjax._core.arithmetic import einsum, floating_dtype, matmul, one_hot, ratio, tensordot
from calibjax._core.pytree import PyTree, record
from calibjax.distances import Distance, Euclidean, TotalVariation
from calibjax.distributions import Bernoulli, Ensemble, Mixture, MvNormal
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare, like
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.kernels import Constant, Exponential, SquaredExponential, TensorProduct, White
from calibjax.kernels.base import Conditional, prediction_kernel, without_draws
from calibjax.kernels.defaults import distance_of_predictions
from calibjax.kernels.expectations import check_expectations
from calibjax.kernels.residuals import VECTORS, NormalScore, is_of_counts, normal_score
from calibjax.recalibration import (
    AffineScaling,
    KernelRecalibration,
    MatrixScaling,
    TemperatureScaling,
)
from calibjax.recalibration.classes import LogitMap, log_probs_of
from calibjax.recalibration.numbers import AffineMap, shrunk

NUM_CELLS = 32  # of equal probability


class Score(NamedTuple):
    """Normal score of a number or a vector, or of an interval of them that cannot be told apart.

    Attributes:
        mean: the score; of an interval its mean under N(0, 1).
        square: the square of the score, or its mean.
        ends: of the interval; None of continuous distributions.
    """

    mean: jax.Array
    square: jax.Array
    ends: tuple[jax.Array, jax.Array] | None = None


class Label(NamedTuple):
    """Predicted log-probabilities of classes, [m], and the observed class."""

    logits: jax.Array
    label: jax.Array


class Forecast(NamedTuple):
    """A prediction and its target, or a batch of them.

    Attributes:
        prediction: as kernels on predictions see it.
        target: as it came.
        view: a `Score` or a `Label`.
        probs: predicted probabilities of classes, or of cells of equal probability, [C].
        outcome: how much of the target is in each of them, with sum one, [C].
    """

    prediction: Any
    target: jax.Array
    view: Any
    probs: jax.Array
    outcome: jax.Array


def forecasts_of(predictions: Distribution, targets: jax.Array) -> Forecast:
    """A checked batch of n forecasts.

    Raises:
        NotImplementedError: if the predictions are neither of classes nor have normal scores.
    """
    plain = bare(predictions)
    if not hasattr(plain, "class_probs"):
        plain = plain.draws if isinstance(plain, MonteCarlo) else plain
        check_expectations(NormalScore(), plain)
    if isinstance(plain, Ensemble) and (plain.weights is not None or plain.values.ndim != 2):
        expected = "ensembles of numbers without weights, which are exchangeable with the target"
        raise NotImplementedError(f"predictions: expected {expected}, got others")
    return _forecasts(without_draws(predictions), plain, targets)


@jax.jit
def _forecasts(predictions: Distribution, plain: Any, targets: jax.Array) -> Forecast:
    if hasattr(plain, "class_probs"):
        logits = log_probs_of(plain)
        probs = jax.nn.softmax(logits, 1)
        outcome = one_hot(targets, probs.shape[1], probs.dtype)
        return Forecast(predictions, targets, Label(logits, targets), probs, outcome)
    score, outcome = jax.vmap(_located)(plain, targets)
    if isinstance(bare(predictions), Ensemble):  # kernels must not see which value is the target
        values = jnp.concatenate([plain.values, targets[:, None]], 1)
        predictions = like(predictions, Ensemble(values))
    return Forecast(predictions, targets, score, jnp.full_like(outcome, 1 / NUM_CELLS), outcome)


def _located(p: Any, y: jax.Array) -> tuple[Score, jax.Array]:
    """Score of a target, and which cells it is in."""
    edges = jnp.arange(NUM_CELLS + 1, dtype=floating_dtype(p)) / NUM_CELLS
    if isinstance(p, Ensemble):
        # Under calibration the rank of the target among the m + 1 values is uniform.
        below, upto = jnp.sum(p.values < y), jnp.sum(p.values <= y)
        levels = jnp.stack([below, upto + 1]).astype(edges.dtype) / (p.values.size + 1)
    elif is_of_counts(p):
        levels = p.cdf(y - jnp.arange(2)[::-1]).astype(edges.dtype)
    else:
        score = normal_score(p, y)
        cell = jnp.clip((ndtr(score) * NUM_CELLS).astype(int), 0, NUM_CELLS - 1)
        outcome = jax.nn.one_hot(cell, 0 if isinstance(p, VECTORS) else NUM_CELLS)
        outcome = jnp.where(jnp.any(jnp.isnan(score)), jnp.nan, outcome.astype(score.dtype))
        return Score(score, jnp.square(score)), outcome
    mass = levels[1] - levels[0]
    is_wide = mass > 0  # and not lost by rounding
    unit = jnp.where(is_wide, mass, 1)
    # Where the levels of far targets are rounded to 0 or 1, the ends are the largest finite scores.
    limits = jnp.finfo(levels.dtype)
    ends = ndtri(jnp.where(mass == 0, jnp.clip(levels, limits.tiny, 1 - limits.epsneg), levels))
    inside = jnp.where(jnp.isinf(ends), 0, ends)
    densities = norm.pdf(ends)
    mean = (densities[0] - densities[1]) / unit
    square = 1 + (inside[0] * densities[0] - inside[1] * densities[1]) / unit
    bound = jnp.max(jnp.abs(inside))
    mean = jnp.where(is_wide, mean, jnp.clip(inside[0], -bound, bound))
    square = jnp.where(is_wide, jnp.maximum(square, 0), jnp.square(mean))
    shares = jnp.diff(jnp.clip(edges, levels[0], levels[1])) / unit
    cell = jnp.clip((levels[0] * NUM_CELLS).astype(int), 0, NUM_CELLS - 1)
    outcome = jnp.where(is_wide, shares, jax.nn.one_hot(cell, NUM_CELLS, dtype=edges.dtype))
    outcome = jnp.where(jnp.isnan(mass), jnp.nan, outcome)
    return Score(mean, square, (ends[0], ends[1])), outcome


def log_ratio(score: Score, shift: jax.Array, scale: jax.Array) -> jax.Array:
    """Logarithm of the probability of a score under N(shift, scale²), over that under N(0, 1)."""
    rest = (score.mean - shift) / scale
    of_point = 0.5 * (score.mean - rest) * (score.mean + rest) - jnp.log(scale)
    if score.ends is None:
        return jnp.sum(of_point)
    low, high = score.ends
    mass = _mass(low, high)
    other = _mass((low - shift) / scale, (high - shift) / scale)
    is_wide = (mass > 0) & (other > 0)
    value = jnp.log(jnp.where(is_wide, other, 1)) - jnp.log(jnp.where(is_wide, mass, 1))
    # Where a mass is lost by rounding, the ratio is that of the densities.
    return jnp.where(is_wide, value, of_point) + 0 * score.mean  # NaN where that is


def _mass(low: jax.Array, high: jax.Array) -> jax.Array:
    """Φ(high) − Φ(low), in the lower tail, where it has its digits."""
    is_upper = low > 0
    return ndtr(jnp.where(is_upper, -low, high)) - ndtr(jnp.where(is_upper, -high, low))


_PRIOR = 20.0  # number of forecasts without fault that a recalibration starts with
_STAKES = np.array([0.1, 0.2, 0.4, 0.8])  # η, over which kernel bets are mixed
_REFITTED_EVERY = 8
Learned = tuple[Any, ...]  # sums over the past, or params and counts


class Past(NamedTuple):
    """The last forecasts, and how much they count, [W]; zero those with targets not yet known."""

    forecasts: Forecast
    weights: jax.Array


class Bet:
    """A strategy that learns from forecasts with known targets, and bets against the next one.

    `start(first, size)` is what is known at the start, with a past of so many forecasts like the
    first; `learn(learned, past, new, forget)` after one more, which is in the past already.
    `log_ratios(learned, past, new)` are the logarithms of e-values for the target of the next
    forecast, [k]: functions of the target, chosen without it, whose exponentials have the
    expectation 1 under the prediction.
    """

    needs_past = True

    def params(self, learned: Learned) -> Any:
        """The recalibration that was learned; None if it is not one of all predictions."""
        return None


@record
class AffineBet(Bet):
    """Shift and scale of the normal scores, by sums."""

    needs_past = False

    def start(self, first: Forecast, size: int) -> Learned:
        """Number, sum and sum of squares of no scores."""
        zeros = jnp.zeros_like(first.view.mean)
        return zeros, zeros, zeros

    def learn(self, learned: Learned, past: Past, new: Forecast, forget: jax.Array) -> Learned:
        """The same with one more score."""
        terms = jnp.ones_like(new.view.mean), new.view.mean, new.view.square
        return tuple(forget * own + term for own, term in zip(learned, terms, strict=True))

    def params(self, learned: Learned) -> AffineMap:
        """Shift and scale."""
        number, first, second = learned
        return shrunk(number, first, second, _PRIOR)

    def log_ratios(self, learned: Learned, past: Past, new: Forecast) -> jax.Array:
        """Likelihood ratio of the score."""
        map_ = self.params(learned)
        return log_ratio(new.view, map_.shift, map_.scale)[None]


@record
class Near(Bet):
    """Base class of bets that look at similar predictions.

    Attributes:
        kernels: on predictions, [P].
        distance: if their length scales are in mean distances of forecasts, of which they are
            functions.
    """

    kernels: tuple[Any, ...]
    distance: Distance | None

    def start(self, first: Forecast, size: int) -> Learned:
        """Sum and number of no distances."""
        zero = jnp.zeros((), floating_dtype(first.view))
        return zero, zero

    def learn(self, learned: Learned, past: Past, new: Forecast, forget: jax.Array) -> Learned:
        """The same with the mean distance of one more prediction."""
        if self.distance is None:
            return learned
        distances = jax.vmap(self.distance, (None, 0))(new.prediction, past.forecasts.prediction)
        others = jnp.sum(past.weights) - 1  # it is in the past itself
        mean = jnp.sum(past.weights * distances) / jnp.where(others > 0, others, 1)
        return learned[0] + mean, learned[1] + jnp.where(others > 0, 1, 0)

    def weights(self, learned: Learned, past: Past, prediction: Distribution) -> jax.Array:
        """How near the forecasts of the past are, times their weights, [P, W]."""
        if self.distance is None:
            near = jax.vmap(prediction_kernel, (None, None, 0))
            values = [near(k, prediction, past.forecasts.prediction) for k in self.kernels]
        else:
            total, number = learned
            unit = total / jnp.where(number > 0, number, 1)
            distances = jax.vmap(self.distance, (None, 0))(prediction, past.forecasts.prediction)
            distances = jnp.where(unit > 0, distances / jnp.where(unit > 0, unit, 1), 0)
            values = [jax.vmap(k, (0, None))(distances, 0.0) for k in self.kernels]
        dtype = past.weights.dtype
        rows = [jnp.broadcast_to(v.astype(dtype), past.weights.shape) for v in values]
        return jnp.stack(rows) * past.weights


@record
class LocalBet(Near):
    """Shift and scale of the normal scores of similar predictions."""

    prior: jax.Array | float

    def log_ratios(self, learned: Learned, past: Past, new: Forecast) -> jax.Array:
        """Likelihood ratio of the score."""
        weights = self.weights(learned, past, new.prediction)[0]
        view = past.forecasts.view
        first, second = (tensordot(weights, x, 1) for x in (view.mean, view.square))
        prior = jnp.asarray(self.prior, weights.dtype)
        map_ = shrunk(jnp.sum(weights), first, second, prior)
        return log_ratio(new.view, map_.shift, map_.scale)[None]


@record
class KernelBet(Near):
    """Kernels on predictions and on classes or cells.

        g_c = Σ_s k_P(p_s, p) Σ_d k_Y(d, c) (o_s(d) − p_s(d)),   e = Σ_c o(c) r_c,
        r_c = exp(η g_c) / Σ_d p(d) exp(η g_d),

    with the outcome o, and g standardised over c, times W / (W + 20) with W = Σ_s k_P(p_s, p): the
    fewer forecasts nearby, the less is bet. It is at most √C, so that no stake is ruinous.

    Attributes:
        matrices: of the target kernels k_Y, [Y, C, C].
    """

    matrices: jax.Array

    def log_ratios(self, learned: Learned, past: Past, new: Forecast) -> jax.Array:
        """Of each kernel on predictions, each target kernel and each stake."""
        probs, outcome = new.probs, new.outcome
        weights = self.weights(learned, past, new.prediction)
        residuals = matmul(weights, past.forecasts.outcome - past.forecasts.probs)
        matrices = jnp.asarray(self.matrices, probs.dtype)
        g = einsum("pd,ydc->pyc", residuals, matrices).reshape(-1, probs.size)
        g = g - jnp.mean(g, 1, keepdims=True)
        size = jnp.max(jnp.abs(g), 1, keepdims=True)
        g = g / jnp.where(size > 0, size, 1)
        spread = jnp.std(g, 1, keepdims=True)
        g = ratio(g, jnp.where(spread > 0, spread, 1))
        total = jnp.repeat(jnp.sum(weights, 1), len(matrices))[:, None]
        g = g * (total / (total + _PRIOR))
        gains = (g[:, None] * jnp.asarray(_STAKES, g.dtype)[:, None]).reshape(-1, probs.size)
        return logsumexp(gains, 1, b=outcome) - logsumexp(gains, 1, b=probs)


@record
class LogitBet(Bet):
    """Slopes and biases of log-probabilities, by Newton's method on the past as it comes.

    With the score s and the information I of each forecast at the θ of its time, the sums A of I
    and b of s + I θ give θ = (A + κ)⁻¹ b, the maximum of the likelihood of the past with a normal
    prior of precision κ, but for the change of θ since then. Slopes and biases have no unit.
    """

    needs_past = False
    method: TemperatureScaling | MatrixScaling

    def _map(self, theta: jax.Array) -> LogitMap:
        if isinstance(self.method, TemperatureScaling):
            return LogitMap(1 + theta[0], jnp.zeros(1, theta.dtype))
        if self.method.structure == "bias":
            return LogitMap(jnp.ones((), theta.dtype), theta)
        slopes, biases = jnp.split(theta, 2)
        return LogitMap(1 + slopes, biases)

    def _log_probs(self, theta: jax.Array, logits: jax.Array) -> jax.Array:
        return jax.nn.log_softmax(self._map(theta)(logits))

    def _theta(self, learned: Learned) -> jax.Array:
        curvature, slope = learned
        damped = curvature + _PRIOR * jnp.eye(slope.size, dtype=slope.dtype)
        return jnp.linalg.solve(damped, slope) if slope.size > 1 else slope / damped[0]

    def start(self, first: Forecast, size: int) -> Learned:
        """Sums without terms."""
        m, dtype = first.view.logits.size, first.view.logits.dtype
        structure = getattr(self.method, "structure", None)
        size = {None: 1, "bias": m}.get(structure, 2 * m)
        return jnp.zeros((size, size), dtype), jnp.zeros(size, dtype)

    def learn(self, learned: Learned, past: Past, new: Forecast, forget: jax.Array) -> Learned:
        """Sums with one more term."""
        theta, (logits, label) = self._theta(learned), new.view
        slopes = jax.jacfwd(self._log_probs)(theta, logits)  # [m, k]
        probs = jnp.exp(self._log_probs(theta, logits))
        information = matmul(slopes.T, probs[:, None] * slopes)
        terms = information, slopes[label] + matmul(information, theta)
        return tuple(forget * own + term for own, term in zip(learned, terms, strict=True))

    def params(self, learned: Learned) -> LogitMap:
        """Slopes and biases."""
        return self._map(self._theta(learned))

    def log_ratios(self, learned: Learned, past: Past, new: Forecast) -> jax.Array:
        """Gain of the new probabilities."""
        logits, label = new.view
        gains = self._log_probs(self._theta(learned), logits) - jax.nn.log_softmax(logits)
        return gains[label][None] + 0 * new.outcome[:1]  # NaN where the label is none


def _of_floats(change: Callable[[jax.Array], jax.Array], params: PyTree) -> PyTree:
    """Params whose floating-point numbers are changed."""
    is_float = lambda x: jnp.issubdtype(x.dtype, jnp.floating)  # noqa: E731
    return jax.tree.map(lambda x: change(x) if is_float(x) else x, params)


@record
class RefittedBet(Bet):
    """Any recalibration, fitted again to the forecasts of the window after every eight.

    The bet is the mixture of the identity, with κ forecasts, and the recalibration, with those of
    the past. Params that are not finite, as those of too few forecasts may be, are not taken.
    """

    method: Any

    def _fit(self, forecasts: Forecast, weights: jax.Array) -> PyTree:
        dtype = weights.dtype
        params = self.method.fit(forecasts.prediction, forecasts.target, weights=weights)
        return _of_floats(lambda x: x.astype(dtype), params)

    def start(self, first: Forecast, size: int) -> Learned:
        """No params yet."""
        batch = jax.tree.map(lambda x: jnp.broadcast_to(x, (size, *x.shape)), first)
        dtype = floating_dtype(first.view)
        params = jax.eval_shape(self._fit, batch, jnp.ones(size, dtype))
        empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), params)
        return empty, jnp.zeros((), bool), jnp.zeros((), jnp.int32)

    def learn(self, learned: Learned, past: Past, new: Forecast, forget: jax.Array) -> Learned:
        """Params of the past, where they are due."""
        params, is_fitted, count = learned
        is_due = (count + 1) % _REFITTED_EVERY == 0
        refitted = lax.cond(is_due, lambda: self._fit(past.forecasts, past.weights), lambda: params)
        leaves = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(refitted)]
        is_right = is_due & jnp.all(jnp.stack(leaves))
        params = jax.tree.map(lambda x, y: jnp.where(is_right, x, y), refitted, params)
        return params, is_fitted | is_right, count + 1

    def params(self, learned: Learned) -> PyTree:
        """Those of the last fit; NaN before the first."""
        params, is_fitted, _ = learned
        return _of_floats(lambda x: jnp.where(is_fitted, x, jnp.nan), params)

    def log_ratios(self, learned: Learned, past: Past, new: Forecast) -> jax.Array:
        """Likelihood ratio of the mixture."""
        params, is_fitted, _ = learned
        batch = jax.tree.map(lambda x: x[None], new.prediction)
        q = self.method.apply(params, batch)
        recalibrated = q if hasattr(q, "log_prob") else Bernoulli(q)
        recalibrated = jax.tree.map(lambda x: x[0], recalibrated)
        gain = recalibrated.log_prob(new.target) - new.prediction.log_prob(new.target)
        number = jnp.sum(past.weights)
        share = ratio(number, number + _PRIOR)
        mixed = jnp.logaddexp(jnp.log1p(-share), jnp.log(share) + gain.astype(share.dtype))
        return jnp.where(is_fitted, mixed, 0)[None]


_LOCAL = 0.2  # length scale of regression, in mean distances: about a quarter of the median
_SCALES = 0.125, 0.5, 2.0  # of kernels on predictions, in mean distances
_SCORE_SCALES = 0.5, 2.0  # of kernels on normal scores
_CLASS_SCALES = 0.3, 1.0  # of kernels on predictions of classes, total variations


def _default_bets(predictions: Distribution) -> dict[str, Any]:
    """The bets of `e_process` for predictions of this family, by name.

    They do not depend on the values of the predictions, which come later: distances of predictions
    are in units of their mean in the past.
    """
    plain = bare(predictions)
    if hasattr(plain, "class_probs"):
        near = *(Exponential(x, TotalVariation()) for x in _CLASS_SCALES), Constant()
        matrices = _matrix(White(), plain)[None]
        return {
            "temperature": LogitBet(TemperatureScaling()),
            "bias": LogitBet(MatrixScaling(structure="bias")),
            "kernels": KernelBet(near, None, matrices),
        }
    bets: dict[str, Any] = {
        "shift and scale": AffineBet(),
        "local shift and scale": _local(KernelRecalibration(prior=10.0), predictions),
    }
    if not isinstance(plain, VECTORS):
        near = *map(SquaredExponential, _SCALES), Constant()
        inner = [NormalScore(SquaredExponential(x)) for x in _SCORE_SCALES]
        matrices = jnp.stack([_matrix(kernel, plain) for kernel in inner])
        bets["kernels"] = KernelBet(near, _distance(predictions), matrices)
    return bets


def bets_by_name(bets: Any, predictions: Distribution) -> dict[str, Bet]:
    """Bets by name, as they are placed.

    Raises:
        TypeError: if one is none.
        NotImplementedError: if one cannot be placed against these predictions.
    """
    if bets is None:
        return _default_bets(predictions)
    bets = bets if isinstance(bets, Mapping) else {type(bets).__name__: bets}
    return {str(name): _as_bet(f"bets['{name}']", bet, predictions) for name, bet in bets.items()}


def _as_bet(place: str, bet: Any, predictions: Distribution) -> Bet:
    plain = bare(predictions)
    is_of_classes = hasattr(plain, "class_probs")
    if isinstance(bet, AffineScaling) and not is_of_classes:
        return AffineBet()
    if isinstance(bet, KernelRecalibration) and not is_of_classes:
        return _local(bet, predictions)
    if isinstance(bet, TemperatureScaling | MatrixScaling) and is_of_classes:
        is_full = getattr(bet, "structure", "") == "full"
        return RefittedBet(bet) if is_full else LogitBet(bet)
    if isinstance(bet, TensorProduct):
        kernel: TensorProduct = checks.kernel_values(bet, place)
        target = kernel.target
        of_numbers = isinstance(target, NormalScore) and not isinstance(plain, VECTORS)
        if not isinstance(target, Conditional) if is_of_classes else of_numbers:
            return KernelBet((kernel.prediction,), None, _matrix(target, plain)[None])
        expected = "a kernels.NormalScore of numbers, or a kernel on labels of classes"
        got = f"{checks.described(target)} for {checks.described(plain)}"
        raise NotImplementedError(f"{place}.target: expected {expected}, got {got}")
    if isinstance(bet, type) or not all(hasattr(bet, name) for name in ("fit", "apply")):
        expected = f"a recalibration of {checks.described(plain)}, or a kernels.TensorProduct"
        raise TypeError(f"{place}: expected {expected}, got {checks.described(bet)}")
    checks.method("predictions", plain, "log_prob")
    return RefittedBet(bet)


def _distance(predictions: Distribution) -> Distance:
    """That of default kernels, where it does not depend on the predictions, which come later."""
    if isinstance(bare(predictions), MvNormal | Mixture):
        return Euclidean()
    return distance_of_predictions(predictions)


def _local(method: KernelRecalibration, predictions: Distribution) -> LocalBet:
    if method.kernel is not None:
        return LocalBet((checks.kernel_values(method.kernel),), None, method.prior)
    return LocalBet((SquaredExponential(_LOCAL),), _distance(predictions), method.prior)


def _matrix(kernel: Any, predictions: Any) -> jax.Array:
    """Matrix of a target kernel, of classes or of normal scores in the middle of the cells."""
    if isinstance(kernel, NormalScore):
        points = ndtri((jnp.arange(NUM_CELLS) + 0.5) / NUM_CELLS)
        kernel = kernel.kernel
    else:
        points = jnp.arange(predictions.class_probs.shape[-1])
    return jax.vmap(jax.vmap(kernel, (None, 0)), (0, None))(points, points)
