"""E-processes: evidence against calibration that stays valid after every forecast.

Recalibrations and kernels that are fitted to past forecasts bet against the next one.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp, ndtr, ndtri
from jax.scipy.stats import norm

from calibjax._core import checks
from calibjax._core.arithmetic import einsum, floating_dtype, matmul, one_hot, ratio, tensordot
from calibjax._core.gate import Seen, argument, checked
from calibjax._core.pytree import Numbers, PyTree, record, varying_as
from calibjax.distances import Distance, Euclidean, TotalVariation
from calibjax.distributions import Bernoulli, Ensemble, Mixture, MvNormal
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare, like
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.estimators.pit import _jump
from calibjax.hypothesis_tests.result import positive
from calibjax.hypothesis_tests.statistics import has_jumps
from calibjax.kernels import Constant, Exponential, SquaredExponential, TensorProduct, White
from calibjax.kernels.base import Conditional, prediction_kernel, without_draws
from calibjax.kernels.defaults import distance_of_predictions
from calibjax.kernels.expectations import check_expectations
from calibjax.kernels.residuals import VECTORS, NormalScore, normal_score
from calibjax.recalibration import (
    AffineScaling,
    KernelRecalibration,
    MatrixScaling,
    TemperatureScaling,
)
from calibjax.recalibration.classes import LogitMap, log_probs_of
from calibjax.recalibration.numbers import AffineMap, shrunk

NUM_CELLS = 32  # cells of equal probability


class Score(NamedTuple):
    """Normal score of a number or a vector, or of an interval of scores.

    For an interval: mean of the score and of its square under N(0, 1), and the ends.
    """

    mean: jax.Array
    square: jax.Array
    ends: tuple[jax.Array, jax.Array] | None = None


class Forecast(NamedTuple):
    """Forecast, or batch: prediction for kernels, target, and `Score` or logits of classes.

    Also predicted probabilities of classes or of cells of equal probability, [C], and the share of
    the target in each of them, [C] with sum one.
    """

    prediction: Any
    target: jax.Array
    view: Any
    probs: jax.Array
    outcome: jax.Array


def forecasts_of(predictions: Distribution, targets: jax.Array) -> Forecast:
    """Checked batch of n forecasts of classes or of values with normal scores."""
    plain = bare(predictions)
    if not hasattr(plain, "class_probs"):
        plain = plain.draws if isinstance(plain, MonteCarlo) else plain
        check_expectations(NormalScore(), plain)
    if isinstance(plain, Ensemble) and (plain.weights is not None or plain.values.ndim != 2):
        expected = "ensembles of scalars without weights, exchangeable with the target"
        raise NotImplementedError(f"predictions: expected {expected}, got others")
    return _forecasts(without_draws(predictions), plain, targets)


@jax.jit
def _forecasts(predictions: Distribution, plain: Any, targets: jax.Array) -> Forecast:
    if hasattr(plain, "class_probs"):
        logits = log_probs_of(plain)
        probs = jax.nn.softmax(logits, 1)
        outcome = one_hot(targets, probs.shape[1], probs.dtype)
        return Forecast(predictions, targets, logits, probs, outcome)
    score, outcome = jax.vmap(_located)(plain, targets)
    if isinstance(plain, Ensemble):  # kernels must not depend on which value is the target
        values = jnp.concatenate([plain.values, targets[:, None]], 1)
        predictions = like(predictions, Ensemble(values))
    return Forecast(predictions, targets, score, jnp.full_like(outcome, 1 / NUM_CELLS), outcome)


def _located(p: Any, y: jax.Array) -> tuple[Score, jax.Array]:
    """Score of a target, and its share in each cell."""
    dtype = floating_dtype(p)
    if not has_jumps(p):
        score = normal_score(p, y)
        outcome = jnp.zeros(0, score.dtype) if isinstance(p, VECTORS) else _cell(score)
        return Score(score, jnp.square(score)), outcome
    # Under calibration the rank of the target among the m + 1 values of an ensemble is uniform.
    levels = jnp.stack(_jump(p, y)).astype(dtype)
    mass = levels[1] - levels[0]
    is_wide = mass > 0  # and not lost by rounding
    unit = jnp.where(is_wide, mass, 1)
    # If levels of extreme targets are rounded to 0 or 1, the ends are the largest finite scores.
    limits = jnp.finfo(dtype)
    ends = ndtri(jnp.where(mass == 0, jnp.clip(levels, limits.tiny, 1 - limits.epsneg), levels))
    inside, densities = jnp.where(jnp.isinf(ends), 0, ends), norm.pdf(ends)
    mean = jnp.where(is_wide, (densities[0] - densities[1]) / unit, inside[0])
    square = 1 + (inside[0] * densities[0] - inside[1] * densities[1]) / unit
    square = jnp.where(is_wide, jnp.maximum(square, 0), jnp.square(mean))
    edges = jnp.arange(NUM_CELLS + 1, dtype=dtype) / NUM_CELLS
    shares = jnp.diff(jnp.clip(edges, levels[0], levels[1])) / unit
    outcome = jnp.where(is_wide, shares, _cell(mean))
    return Score(mean, square, (ends[0], ends[1])), outcome


def _cell(score: jax.Array) -> jax.Array:
    """Indicator of the cell of a score, [C]; NaN for NaN."""
    cell = jnp.clip((ndtr(score) * NUM_CELLS).astype(int), 0, NUM_CELLS - 1)
    return checks.nan_unless(~jnp.isnan(score), jax.nn.one_hot(cell, NUM_CELLS, dtype=score.dtype))


def log_ratio(score: Score, shift: jax.Array, scale: jax.Array) -> jax.Array:
    """Log-likelihood ratio of a score, N(shift, scale²) over N(0, 1)."""
    rest = (score.mean - shift) / scale
    of_point = 0.5 * (score.mean - rest) * (score.mean + rest) - jnp.log(scale)
    if score.ends is None:
        return jnp.sum(of_point)
    low, high = score.ends
    mass = _mass(low, high)
    other = _mass((low - shift) / scale, (high - shift) / scale)
    is_wide = (mass > 0) & (other > 0)
    value = jnp.log(jnp.where(is_wide, other, 1)) - jnp.log(jnp.where(is_wide, mass, 1))
    # If a mass underflows, use the ratio of the densities.
    return jnp.where(is_wide, value, of_point) + 0 * score.mean  # propagates NaN


def _mass(low: jax.Array, high: jax.Array) -> jax.Array:
    """Φ(high) − Φ(low), computed in the lower tail for accuracy."""
    is_upper = low > 0
    return ndtr(jnp.where(is_upper, -low, high)) - ndtr(jnp.where(is_upper, -high, low))


_PRIOR = 20.0  # prior number of calibrated forecasts of a recalibration
_STAKES = np.array([0.1, 0.2, 0.4, 0.8])  # stakes η of kernel bets
_REFITTED_EVERY = 8
Learned = tuple[Any, ...]  # sums over the past, or params and counts


class Past(NamedTuple):
    """The last forecasts and their weights, [W]; zero for targets that are not known yet."""

    forecasts: Forecast
    weights: jax.Array


class Bet:
    """Strategy that learns from forecasts with known targets, and bets against the next one.

    `start(past, new)` returns the state before the first forecast; the past holds placeholders of
    its structure. `learn(learned, past, new, forget)` returns the state after one more forecast,
    which the past already contains. `log_ratios(learned, past, new)` are the logarithms of e-values
    for the target of the next forecast, [k]. Their exponentials have expectation 1 under the
    prediction.
    """

    def params(self, learned: Learned) -> Any:
        """Fitted recalibration parameters; None for bets that are local in prediction space."""
        return None


@record
class AffineBet(Bet):
    """Bet on shift and scale of the normal scores, by running sums."""

    def start(self, past: Past, new: Forecast) -> Learned:
        """Zeros for number, sum and sum of squares of the scores."""
        zeros = jnp.zeros_like(new.view.mean)
        return zeros, zeros, zeros

    def learn(self, learned: Learned, past: Past, new: Forecast, forget: jax.Array) -> Learned:
        """Sums with one more score."""
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
    """Base class of bets on similar predictions.

    The kernels on predictions, [P], are functions of a distance, if any, in units of the mean
    distance of forecasts.
    """

    kernels: tuple[Any, ...]
    distance: Distance | None

    def start(self, past: Past, new: Forecast) -> Learned:
        """Zeros for sum and number of distances."""
        zero = jnp.zeros((), past.weights.dtype)
        return zero, zero

    def learn(self, learned: Learned, past: Past, new: Forecast, forget: jax.Array) -> Learned:
        """Sums with the mean distance of one more prediction."""
        if self.distance is None:
            return learned
        distances = jax.vmap(self.distance, (None, 0))(new.prediction, past.forecasts.prediction)
        others = jnp.sum(past.weights) - 1  # the past contains the new forecast
        mean = jnp.sum(past.weights * distances) / jnp.where(others > 0, others, 1)
        return learned[0] + mean, learned[1] + jnp.where(others > 0, 1, 0)

    def weights(self, learned: Learned, past: Past, prediction: Distribution) -> jax.Array:
        """Kernel values of the past forecasts times their weights, [P, W]."""
        total, number = learned
        unit = total / jnp.where(number > 0, number, 1)

        def near(other: Distribution) -> jax.Array:
            if self.distance is None:
                values = [prediction_kernel(k, prediction, other) for k in self.kernels]
            else:
                distance = ratio(self.distance(prediction, other), jnp.where(unit > 0, unit, 1))
                values = [k(jnp.where(unit > 0, distance, 0), 0.0) for k in self.kernels]
            return jnp.stack(values).astype(past.weights.dtype)

        return jax.vmap(near, out_axes=1)(past.forecasts.prediction) * past.weights


@record
class LocalBet(Near):
    """Bet on shift and scale of the normal scores of similar predictions."""

    prior: jax.Array | float

    def log_ratios(self, learned: Learned, past: Past, new: Forecast) -> jax.Array:
        """Likelihood ratio of the score."""
        weights = self.weights(learned, past, new.prediction)[0]
        view = past.forecasts.view
        first, second = (tensordot(weights, x, 1) for x in (view.mean, view.square))
        map_ = shrunk(jnp.sum(weights), first, second, jnp.asarray(self.prior, weights.dtype))
        return log_ratio(new.view, map_.shift, map_.scale)[None]


@record
class KernelBet(Near):
    """Bet of kernels on predictions and on classes or cells.

        g_c = Σ_s k_P(p_s, p) Σ_d k_Y(d, c) (o_s(d) − p_s(d)),   e = Σ_c o(c) r_c,
        r_c = exp(η g_c) / Σ_d p(d) exp(η g_d),

    with the outcome o, and g standardised over c and multiplied by W / (W + 20), W = Σ_s k_P(p_s,
    p). So bets are small with few similar forecasts. |g| is at most √C, so no stake is ruinous.
    """

    matrices: jax.Array  # of the target kernels k_Y, [Y, C, C]

    def log_ratios(self, learned: Learned, past: Past, new: Forecast) -> jax.Array:
        """Log-ratios of each kernel on predictions, each target kernel and each stake."""
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
    """Bet on the slope or the biases of log-probabilities, by online Newton steps.

    Each forecast has a score s and an information I at the θ of its time. The sums A of I and b of
    s + I θ give θ = (A + κ)⁻¹ b. Up to later changes of θ, this maximises the likelihood of the
    past with a normal prior of precision κ.
    """

    method: TemperatureScaling | MatrixScaling

    def _map(self, theta: jax.Array) -> LogitMap:
        if isinstance(self.method, TemperatureScaling):
            return LogitMap(1 + theta[0], jnp.zeros(1, theta.dtype))
        return LogitMap(jnp.ones((), theta.dtype), theta)

    def _log_probs(self, theta: jax.Array, logits: jax.Array) -> jax.Array:
        return jax.nn.log_softmax(self._map(theta)(logits))

    def _theta(self, learned: Learned) -> jax.Array:
        curvature, slope = learned
        damped = curvature + _PRIOR * jnp.eye(slope.size, dtype=slope.dtype)
        return jnp.linalg.solve(damped, slope) if slope.size > 1 else slope / damped[0]

    def start(self, past: Past, new: Forecast) -> Learned:
        """Sums without terms."""
        size = 1 if isinstance(self.method, TemperatureScaling) else new.view.size
        zeros = jnp.zeros(size, new.view.dtype)
        return jnp.zeros((size, size), zeros.dtype), zeros

    def learn(self, learned: Learned, past: Past, new: Forecast, forget: jax.Array) -> Learned:
        """Sums with one more term."""
        theta = self._theta(learned)
        slopes = jax.jacfwd(self._log_probs)(theta, new.view)  # [m, k]
        probs = jnp.exp(self._log_probs(theta, new.view))
        information = matmul(slopes.T, probs[:, None] * slopes)
        terms = information, slopes[new.target] + matmul(information, theta)
        return tuple(forget * own + term for own, term in zip(learned, terms, strict=True))

    def params(self, learned: Learned) -> LogitMap:
        """Slope and biases."""
        return self._map(self._theta(learned))

    def log_ratios(self, learned: Learned, past: Past, new: Forecast) -> jax.Array:
        """Log-likelihood ratio of the recalibrated probabilities."""
        gains = self._log_probs(self._theta(learned), new.view) - jax.nn.log_softmax(new.view)
        return gains[new.target][None] + 0 * new.outcome[:1]  # NaN for a missing label


def _are_finite(params: PyTree) -> jax.Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(params)]))


@record
class RefittedBet(Bet):
    """Bet on any recalibration, fitted again to the window after every eighth forecast.

    The bet is a mixture of the identity, with weight κ, and the recalibration, with the number of
    past forecasts as weight. Params are NaN before the first fit; later fits that are not finite
    are discarded.
    """

    method: Any

    def _fit(self, forecasts: Forecast, weights: jax.Array) -> PyTree:
        return self.method.fit(forecasts.prediction, forecasts.target, weights=weights)

    def start(self, past: Past, new: Forecast) -> Learned:
        """No params yet."""
        params = jax.eval_shape(self._fit, *past)
        nan = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan).astype(x.dtype), params)
        return nan, jnp.zeros((), jnp.int32)

    def learn(self, learned: Learned, past: Past, new: Forecast, forget: jax.Array) -> Learned:
        """Params of the past, fitted again when due."""
        params, count = learned
        is_due = (count + 1) % _REFITTED_EVERY == 0
        refitted = lax.cond(is_due, lambda: self._fit(*past), lambda: params)
        is_right = _are_finite(refitted)
        return jax.tree.map(lambda x, y: jnp.where(is_right, x, y), refitted, params), count + 1

    def params(self, learned: Learned) -> PyTree:
        """Params of the last fit."""
        return learned[0]

    def log_ratios(self, learned: Learned, past: Past, new: Forecast) -> jax.Array:
        """Likelihood ratio of the mixture."""
        params, _ = learned
        q = self.method.apply(params, jax.tree.map(lambda x: x[None], new.prediction))
        q = jax.tree.map(lambda x: x[0], q if hasattr(q, "log_prob") else Bernoulli(q))
        gain = q.log_prob(new.target) - new.prediction.log_prob(new.target)
        number = jnp.sum(past.weights)
        share = ratio(number, number + _PRIOR)
        mixed = jnp.logaddexp(jnp.log1p(-share), jnp.log(share) + gain.astype(share.dtype))
        return jnp.where(_are_finite(params), mixed, 0)[None]


_LOCAL = 0.2  # length scale of regression, in mean distances: about a quarter of the median
_SCALES = 0.125, 0.5, 2.0  # of kernels on predictions, in mean distances
_SCORE_SCALES = 0.5, 2.0  # of kernels on normal scores
_CLASS_SCALES = 0.3, 1.0  # of kernels on predictions of classes, total variations


def _default_bets(predictions: Distribution) -> dict[str, Any]:
    """Bets of `e_process` for predictions of this family, by name.

    They do not depend on the values of the predictions: distances are in units of their past mean.
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


def _as_bet(place: str, bet: Any, predictions: Distribution) -> Bet:
    plain = bare(predictions)
    is_of_classes = hasattr(plain, "class_probs")
    if isinstance(bet, AffineScaling) and not is_of_classes:
        return AffineBet()
    if isinstance(bet, KernelRecalibration) and not is_of_classes:
        return _local(bet, predictions)
    is_light = getattr(bet, "structure", "bias") == "bias"
    if isinstance(bet, TemperatureScaling | MatrixScaling) and is_of_classes and is_light:
        return LogitBet(bet)
    if isinstance(bet, TensorProduct):
        kernel: TensorProduct = checks.kernel_values(bet, place)
        target = kernel.target
        of_numbers = isinstance(target, NormalScore) and not isinstance(plain, VECTORS)
        if not isinstance(target, Conditional) if is_of_classes else of_numbers:
            return KernelBet((kernel.prediction,), None, _matrix(target, plain)[None])
        expected = "a kernels.NormalScore for numbers, or a kernel on labels for classes"
        got = f"{checks.described(target)} for {checks.described(plain)}"
        raise NotImplementedError(f"{place}.target: expected {expected}, got {got}")
    if isinstance(bet, type) or not all(hasattr(bet, name) for name in ("fit", "apply")):
        expected = f"a recalibration of {checks.described(plain)}, or a kernels.TensorProduct"
        raise TypeError(f"{place}: expected {expected}, got {checks.described(bet)}")
    checks.method("predictions", plain, "log_prob")
    return RefittedBet(bet)


def _distance(predictions: Distribution) -> Distance:
    """Distance of the default kernels, as far as it does not depend on the predictions."""
    if isinstance(bare(predictions), MvNormal | Mixture):
        return Euclidean()
    return distance_of_predictions(predictions)


def _local(method: KernelRecalibration, predictions: Distribution) -> LocalBet:
    if method.kernel is not None:
        return LocalBet((checks.kernel_values(method.kernel),), None, method.prior)
    return LocalBet((SquaredExponential(_LOCAL),), _distance(predictions), method.prior)


def _matrix(kernel: Any, predictions: Any) -> jax.Array:
    """Matrix of a target kernel on classes, or on normal scores in the middle of the cells."""
    if isinstance(kernel, NormalScore):
        points = ndtri((jnp.arange(NUM_CELLS) + 0.5) / NUM_CELLS)
        kernel = kernel.kernel
    else:
        points = jnp.arange(predictions.class_probs.shape[-1])
    return jax.vmap(jax.vmap(kernel, (None, 0)), (0, None))(points, points)


_LAMBDA = 0.5  # share of the wealth that is bet if bets overlap


@record
class Wealth:
    """State after some forecasts, of a size that does not depend on their number.

    It holds the number of forecasts, the last ones in a ring, the state of each bet, and its log
    wealth by name, [h, k] for horizon h. It also holds the largest log total so far, and the number
    of forecasts after which the total first reached the threshold (0: not yet).
    """

    number: jax.Array
    forecasts: Forecast
    learned: dict[str, Any]
    logs: dict[str, jax.Array]
    largest: jax.Array
    crossing: jax.Array


@record
class Betting:
    """Bets by name, and the options of their wealth.

    After every forecast, sums of the past are multiplied by `forget`. `log_threshold` is the log
    total of a crossing. h forecasts are made before the first target is known, and `window`
    forecasts with known targets are kept.
    """

    bets: dict[str, Any]
    forget: jax.Array
    log_threshold: jax.Array
    horizon: int = dataclasses.field(default=1, metadata={"static": True})
    window: int = dataclasses.field(default=1, metadata={"static": True})

    @jax.jit
    def start(self, forecasts: Forecast) -> Wealth:
        """State before any forecast; the ring holds placeholders with weight zero."""
        first = jax.tree.map(lambda x: x[0], forecasts)
        size = self.window + self.horizon - 1
        ring = jax.tree.map(lambda x: jnp.broadcast_to(x, (size, *x.shape)), first)
        dtype = floating_dtype(first.view)
        past = Past(ring, jnp.zeros(size, dtype))
        learned = {name: bet.start(past, first) for name, bet in self.bets.items()}
        logs = {}
        for name, bet in self.bets.items():
            ratios = jax.eval_shape(bet.log_ratios, learned[name], past, first)
            logs[name] = jnp.zeros((self.horizon, *ratios.shape), dtype)
        none = jnp.zeros((), jnp.int32)
        return Wealth(none, ring, learned, logs, jnp.full((), -jnp.inf, dtype), none)

    def step(self, state: Wealth, new: Forecast) -> tuple[Wealth, dict[str, jax.Array]]:
        """State after one more forecast, and the log total of each bet."""
        h, t = self.horizon, state.number
        size = self.window + h - 1
        places = jnp.arange(size)
        age = (t - 1 - places) % size + 1  # of the forecasts in the ring, starting at one
        is_known = (age >= h) & (age <= t)
        dtype = state.largest.dtype
        weights = jnp.where(is_known, self.forget.astype(dtype) ** (age - h), 0)
        past = Past(state.forecasts, weights)
        is_first = t < h  # no target is known yet
        last = jax.tree.map(lambda x: x[(t - h) % size], state.forecasts)
        learned, logs = {}, {}
        for name, bet in self.bets.items():
            before = state.learned[name]
            updated = bet.learn(before, past, last, self.forget.astype(dtype))
            learned[name] = jax.tree.map(lambda x, y: jnp.where(is_first, x, y), before, updated)
            gain = bet.log_ratios(learned[name], past, new)
            if h > 1:
                gain = jnp.logaddexp(math.log(1 - _LAMBDA), math.log(_LAMBDA) + gain)
            logs[name] = state.logs[name].at[t % h].add(gain)
        ring = jax.tree.map(lambda x, y: x.at[t % size].set(y), state.forecasts, new)
        totals = {name: self.total(x) for name, x in logs.items()}
        total = mean_of_logs(totals)
        is_crossing = (state.crossing == 0) & (total >= self.log_threshold)
        crossing = jnp.where(is_crossing, t + 1, state.crossing)
        largest = jnp.maximum(state.largest, total)
        return Wealth(t + 1, ring, learned, logs, largest, crossing), totals

    @jax.jit
    def after(self, state: Wealth, forecasts: Forecast) -> tuple[Wealth, dict[str, jax.Array]]:
        """State after a batch of forecasts, and the log totals of each bet after each of them."""
        return lax.scan(self.step, varying_as(state, (self, state, forecasts)), forecasts)

    def total(self, logs: jax.Array) -> jax.Array:
        """Logarithm of the mean wealth of a bet, from [h, k] to a number."""
        # If h > 1, each of the h processes has an open bet, which leaves at least 1 − λ of its
        # wealth.
        kept = 0.0 if self.horizon == 1 else math.log(1 - _LAMBDA)
        return logsumexp(logs) - math.log(logs.size) + kept


def mean_of_logs(totals: Mapping[str, jax.Array]) -> jax.Array:
    """Logarithm of the mean of wealths, [...]."""
    return logsumexp(jnp.stack([*totals.values()]), 0) - math.log(len(totals))


WINDOW = 512  # forecasts that kernels use


@record
class EProcessResult:
    """Wealth of bets against the calibration of forecasts.

    Attributes:
        log_wealth: natural logarithm of the mean wealth of all bets after each forecast, [n]; for
            `streaming.EProcess` after the last one.
        log_wealths: log wealth of each bet, by name.
        pvalue: anytime-valid p-value, one over the largest wealth so far, at most 1. Under
            calibration the probability that it is ever ≤ α is at most α.
        crossing: number of forecasts after which the wealth first reached 1 / α; 0 if it has not.
        params: fitted parameters of global recalibrations, by name: an `AffineMap`, a `LogitMap`,
            or the result of `fit`.
    """

    log_wealth: jax.Array
    log_wealths: dict[str, jax.Array]
    pvalue: jax.Array
    crossing: jax.Array
    params: dict[str, Any]

    @property
    def earned_most(self) -> str:
        """Name of the bet with the largest wealth, which indicates the kind of error."""
        return max(self.log_wealths, key=lambda name: _last(self.log_wealths[name]))

    def __repr__(self) -> str:
        """Summary, and a line for each bet."""
        name = type(self).__name__
        if not checks.is_concrete(self.log_wealth, self.pvalue) or jnp.ndim(self.pvalue):
            return f"{name}(log_wealth={self.log_wealth})"
        numbers = f"pvalue={float(self.pvalue):.3g}, log wealth {_last(self.log_wealth):.2f}"
        number = int(self.crossing)
        when = f", first rejected after {number} forecasts" if number else ""
        lines, width = [f"{name}({numbers}{when})"], max(map(len, self.log_wealths))
        wealths = {bet: _last(logs) for bet, logs in self.log_wealths.items()}
        for bet in sorted(wealths, key=wealths.__getitem__, reverse=True):
            words = _words(self.params.get(bet))
            lines.append(f"  {bet:{width}}  {wealths[bet]:+8.2f}  {words}".rstrip())
        return "\n".join(lines)


def _last(values: jax.Array) -> float:
    return float(np.ravel(values)[-1])


def _words(params: object) -> str:
    """Description of the error that a recalibration corrects."""
    if isinstance(params, AffineMap) and jnp.ndim(params.shift) == 0:
        shift, side = float(params.shift), "above" if params.shift > 0 else "below"
        return (
            f"targets {abs(shift):.2f} standard deviations {side} the predictions, and scattered "
            f"{float(params.scale):.2f} times as much"
        )
    if not isinstance(params, LogitMap) or jnp.ndim(params.slopes):
        return ""
    label = int(jnp.argmax(jnp.abs(params.biases)))
    if (bias := float(params.biases[label])) == 0:
        slope = float(params.slopes)
        return f"too {'sure' if slope < 1 else 'unsure'}: log-probabilities times {slope:.2f}"
    kind = "often" if bias > 0 else "rarely"
    return f"class {label} comes more {kind} than predicted: odds times {math.exp(bias):.2f}"


@argument("forget")
def _forget(name: str, value: Any, seen: Seen) -> Any:
    value = checks.positive_scalar(name, value)
    return checks.satisfying(name, value, lambda x: x <= 1, "a number in (0, 1]")


def betting_against(
    bets: Any, predictions: Any, horizon: int, window: int, forget: Any, significance_level: Any
) -> Betting:
    """User-supplied or default bets against predictions; refuses unsupported ones."""
    dtype = floating_dtype(predictions)
    threshold = jnp.asarray(-jnp.log(significance_level), dtype)
    if bets is None:
        by_name = _default_bets(predictions)
    else:
        named = bets if isinstance(bets, Mapping) else {type(bets).__name__: bets}
        by_name = {str(x): _as_bet(f"bets['{x}']", bet, predictions) for x, bet in named.items()}
    return Betting(by_name, jnp.asarray(forget, dtype), threshold, horizon, window)


def result_of(betting: Betting, state: Wealth, logs: dict[str, jax.Array]) -> EProcessResult:
    """Result of a state with the log wealth of each bet."""
    pvalue = positive(jnp.exp(-jnp.maximum(state.largest, 0)))
    crossing = checks.missing_unless(~jnp.isnan(pvalue), state.crossing)
    learned = {name: bet.params(state.learned[name]) for name, bet in betting.bets.items()}
    params = {name: x for name, x in learned.items() if x is not None}  # global recalibrations
    return EProcessResult(mean_of_logs(logs), logs, pvalue, crossing, params)


@checked
def e_process(
    predictions: Distribution,
    targets: Numbers,
    *,
    bets: Any = None,
    times: Numbers | None = None,
    horizon: int = 1,
    forget: float = 1.0,
    significance_level: float = 0.05,
) -> EProcessResult:
    """Sequential test of calibration that may be evaluated and stopped after every forecast.

    A bet is a recalibration q_t of the prediction p_t, or a kernel, fitted to earlier forecasts.
    Its wealth is 1 at the beginning and is multiplied at each forecast by

        e_t = q_t(y_t) / p_t(y_t),   E[e_t | past of p_t] = 1,

    under the null hypothesis that y_t ~ p_t given the past, all information available to p_t. Then
    the probability that the mean wealth of all bets is ever ≥ 1/α is at most α (Ville), for every
    stopping rule. The log wealth of a bet is the gain in log-likelihood from its recalibration, so
    the largest wealth indicates the kind of error.

    *Bets.* The defaults depend on the family of the predictions:

    | predictions | bet | learns |
    | --- | --- | --- |
    | numbers | `shift and scale` | shift and scale of all normal scores |
    | | `local shift and scale` | the same for similar predictions, by kernel regression |
    | | `kernels` | frequencies of cells of normal scores, for similar predictions |
    | vectors | | the first two bets, for each coordinate of L⁻¹ (y − μ) |
    | classes | `temperature` | factor of all log-probabilities |
    | | `bias` | offset of each log-probability |
    | | `kernels` | frequencies of classes, for similar predictions |

    Numbers are continuous, counts, or ensembles, for which the rank among the members is used.
    Other bets are a dictionary of recalibrations and kernels:

    - `recalibration.AffineScaling` for numbers and vectors: shift and scale of the normal scores,
      with a prior of 20 calibrated forecasts, by running sums;
    - `recalibration.KernelRecalibration` for numbers and vectors, fitted for each prediction;
    - `TemperatureScaling` and `MatrixScaling(structure="bias")` for classes: slope or biases of
      log-probabilities with a normal prior of precision 20, by online Newton steps;
    - `kernels.TensorProduct(k_P, k_Y)` with a kernel on labels, or `kernels.NormalScore` for
      numbers. Let c be a class, or one of 32 cells of equal probability, and o(c) = 1 for the class
      or the cell of y_t. Then e_t = Σ_c o(c) r_c with

          r_c = exp(η g_c) / Σ_d p(d) exp(η g_d),   g_c ∝ Σ_s k_P(p_s, p_t) [k_Y(y_s, c) − E k_Y],

      standardised over c, times W / (W + 20) with W = Σ_s k_P(p_s, p_t), for η of 0.1, 0.2, 0.4
      and 0.8;
    - any other recalibration with `fit(predictions, targets, weights=…)` and `apply(params,
      predictions)`, fitted again after every eighth forecast, and mixed with p_t.

    The bets of the first and third item, `AffineScaling`, `TemperatureScaling` and `MatrixScaling`,
    learn from all earlier forecasts; the others use only the last 512. For counts the normal score
    is an interval, and for ensembles the interval of the rank among the members and the target.
    There e_t is the mean over the interval, so nothing is drawn.

    *Horizon.* Forecasts h steps ahead overlap: when p_t is made, only targets up to t − h are
    known. Bets learn from these. h processes bet in turn, each with half of its wealth, and half of
    their mean wealth counts, because bets are open at any time. A horizon that is too small
    invalidates the test.

    *Forgetting.* With `forget` f < 1, forecasts of k steps ago have weight f^k, which detects late
    errors sooner. Lost wealth stays lost.

    Args:
        predictions: batch of n ≥ 1 distributions, in the order of the targets in time.
        targets: [n] or [n, d].
        bets: dictionary of bets by name, or a single bet; None for the default bets.
        times: times of the forecasts, numbers or NumPy's datetimes, [n], in nondecreasing order.
        horizon: h ≥ 1; when a prediction is made, the h − 1 targets before its own are not known.
        forget: f in (0, 1].
        significance_level: α in (0, 1), for `crossing`.

    Returns:
        The wealth after each forecast.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or times are out of order.
        NotImplementedError: if the predictions are none of classes, numbers with `cdf`, normal
            vectors and ensembles of numbers.

    Cost: O(n W) kernel values, O(n + W) memory with W = min(n, 512); 0.1 ms for each forecast.

    References: none of the four papers has it; Ville (1939); Shafer (2021), Testing by betting;
    Arnold, Henzi and Ziegel (2023), Sequentially valid tests for forecast calibration (horizons,
    and bets on beta densities of the probability integral transform).

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> loc, noise = jax.random.normal(jax.random.key(0), (2, 200))
    >>> predictions = distributions.Normal(loc, jnp.ones(200))
    >>> result = hypothesis_tests.e_process(predictions, loc + 0.4 + noise)
    >>> print(result.earned_most, result.pvalue < 0.001)
    shift and scale True
    """
    forecasts = forecasts_of(predictions, targets)
    window = min(WINDOW, len(forecasts.outcome))
    options = horizon, window, forget, significance_level
    betting = betting_against(bets, forecasts.prediction, *options)
    state, logs = betting.after(betting.start(forecasts), forecasts)
    return result_of(betting, state, logs)
