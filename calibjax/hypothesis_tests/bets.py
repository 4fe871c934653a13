"""Bets against forecasts: what recalibrations and kernels have learned from the past."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp

from calibjax._core.arithmetic import einsum, floating_dtype, matmul, ratio, tensordot
from calibjax._core.pytree import PyTree, record
from calibjax.distances import Distance
from calibjax.distributions import Bernoulli
from calibjax.distributions.base import Distribution
from calibjax.hypothesis_tests.outcomes import Forecast, log_ratio
from calibjax.kernels.base import prediction_kernel
from calibjax.recalibration import MatrixScaling, TemperatureScaling
from calibjax.recalibration.affine import AffineMap, shrunk
from calibjax.recalibration.logits import LogitMap

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

    `log_ratios` are the logarithms of e-values for the target of the next forecast: functions of
    the target, chosen without it, whose exponentials have the expectation 1 under the prediction.
    """

    needs_past = True

    def start(self, first: Forecast, size: int) -> Learned:
        """What is known at the start, with a past of `size` forecasts."""
        raise NotImplementedError

    def learn(self, learned: Learned, past: Past, new: Forecast, forget: jax.Array) -> Learned:
        """What is known after one more forecast, which is in the past already."""
        raise NotImplementedError

    def log_ratios(self, learned: Learned, past: Past, new: Forecast) -> jax.Array:
        """Logarithms of e-values, [k]."""
        raise NotImplementedError

    def params(self, learned: Learned) -> Any:
        """The recalibration that was learned, if it is one of all predictions."""
        del learned


@record
class AffineBet(Bet):
    """Shift and scale of the normal scores, by sums."""

    needs_past = False

    def start(self, first: Forecast, size: int) -> Learned:
        """Number, sum and sum of squares of no scores."""
        del size
        zeros = jnp.zeros_like(first.view.mean)
        return zeros, zeros, zeros

    def learn(self, learned: Learned, past: Past, new: Forecast, forget: jax.Array) -> Learned:
        """The same with one more score."""
        del past
        terms = jnp.ones_like(new.view.mean), new.view.mean, new.view.square
        return tuple(forget * own + term for own, term in zip(learned, terms, strict=True))

    def params(self, learned: Learned) -> AffineMap:
        """Shift and scale."""
        number, first, second = learned
        return shrunk(number, first, second, _PRIOR)

    def log_ratios(self, learned: Learned, past: Past, new: Forecast) -> jax.Array:
        """Likelihood ratio of the score."""
        del past
        map_ = self.params(learned)
        return log_ratio(new.view, map_.shift, map_.scale)[None]


@record
class Near:
    """Kernels on predictions, [P]; with length scales in mean distances of forecasts, or not."""

    kernels: tuple[Any, ...]
    distance: Distance | None = None

    def start(self, first: Forecast) -> Learned:
        """Sum and number of no distances."""
        zero = jnp.zeros((), floating_dtype(first.view))
        return zero, zero

    def learn(self, learned: Learned, past: Past, new: Forecast) -> Learned:
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


class _NearBet(Bet):
    """Base class of bets that look at similar predictions."""

    near: Near

    def start(self, first: Forecast, size: int) -> Learned:
        """Distances of no predictions."""
        del size
        return self.near.start(first)

    def learn(self, learned: Learned, past: Past, new: Forecast, forget: jax.Array) -> Learned:
        """Distances of one more prediction."""
        del forget
        return self.near.learn(learned, past, new)


@record
class LocalBet(_NearBet):
    """Shift and scale of the normal scores of similar predictions."""

    near: Near
    prior: jax.Array | float

    def log_ratios(self, learned: Learned, past: Past, new: Forecast) -> jax.Array:
        """Likelihood ratio of the score."""
        weights = self.near.weights(learned, past, new.prediction)[0]
        view = past.forecasts.view
        first, second = (tensordot(weights, x, 1) for x in (view.mean, view.square))
        prior = jnp.asarray(self.prior, weights.dtype)
        map_ = shrunk(jnp.sum(weights), first, second, prior)
        return log_ratio(new.view, map_.shift, map_.scale)[None]


@record
class KernelBet(_NearBet):
    """Kernels on predictions and on classes or cells.

        g_c = Σ_s k_P(p_s, p) Σ_d k_Y(d, c) (o_s(d) − p_s(d)),   e = Σ_c o(c) r_c,
        r_c = exp(η g_c) / Σ_d p(d) exp(η g_d),

    with the outcome o, and g standardised over c, times W / (W + 20) with W = Σ_s k_P(p_s, p): the
    fewer forecasts nearby, the less is bet. It is at most √C, so that no stake is ruinous.

    Attributes:
        near: the kernels k_P.
        matrices: of the target kernels k_Y, [Y, C, C].
    """

    near: Near
    matrices: jax.Array

    def log_ratios(self, learned: Learned, past: Past, new: Forecast) -> jax.Array:
        """Of each kernel on predictions, each target kernel and each stake."""
        probs, outcome = new.probs, new.outcome
        weights = self.near.weights(learned, past, new.prediction)
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
        del size
        m, dtype = first.view.logits.size, first.view.logits.dtype
        size = 1
        if isinstance(self.method, MatrixScaling):
            size = m if self.method.structure == "bias" else 2 * m
        return jnp.zeros((size, size), dtype), jnp.zeros(size, dtype)

    def learn(self, learned: Learned, past: Past, new: Forecast, forget: jax.Array) -> Learned:
        """Sums with one more term."""
        del past
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
        del past
        logits, label = new.view
        gains = self._log_probs(self._theta(learned), logits) - jax.nn.log_softmax(logits)
        return gains[label][None] + 0 * new.outcome[:1]  # NaN where the label is none


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
        return jax.tree.map(
            lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, params
        )

    def start(self, first: Forecast, size: int) -> Learned:
        """No params yet."""
        batch = jax.tree.map(lambda x: jnp.broadcast_to(x, (size, *x.shape)), first)
        dtype = floating_dtype(first.view)
        params = jax.eval_shape(self._fit, batch, jnp.ones(size, dtype))
        empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), params)
        return empty, jnp.zeros((), bool), jnp.zeros((), jnp.int32)

    def learn(self, learned: Learned, past: Past, new: Forecast, forget: jax.Array) -> Learned:
        """Params of the past, where they are due."""
        del new, forget
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
        is_float = lambda x: jnp.issubdtype(x.dtype, jnp.floating)  # noqa: E731
        return jax.tree.map(
            lambda x: jnp.where(is_fitted, x, jnp.nan) if is_float(x) else x, params
        )

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
