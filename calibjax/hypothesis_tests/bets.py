"""Bets against forecasts: what recalibrations and kernels have learned from the past."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, ndtri

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, matmul, ratio, safe_sqrt
from calibjax._core.pytree import PyTree, record
from calibjax.distances import Distance, Euclidean, TotalVariation
from calibjax.distributions import Mixture, MvNormal
from calibjax.distributions.base import has_class_probs
from calibjax.distributions.features import bare
from calibjax.hypothesis_tests.kernel_scales import distance_of_predictions
from calibjax.hypothesis_tests.outcomes import NUM_CELLS, Forecast, Label, log_ratio
from calibjax.kernels import (
    Constant,
    Exponential,
    Kernel,
    NormalScore,
    SquaredExponential,
    TensorProduct,
    White,
)
from calibjax.kernels.base import prediction_kernel
from calibjax.kernels.normal_scores import VECTORS
from calibjax.recalibration import (
    AffineScaling,
    BiasScaling,
    KernelRecalibration,
    TemperatureScaling,
    VectorScaling,
)
from calibjax.recalibration.affine import AffineMap
from calibjax.recalibration.logits import LogitMap

_PRIOR = 20.0
_STAKES = np.array([0.1, 0.2, 0.4, 0.8])  # η, in which the mixture of kernel bets is taken
_LOGIT_MAPS = TemperatureScaling | BiasScaling | VectorScaling
_REFITTED_EVERY = 8


class Past(NamedTuple):
    """The last forecasts whose targets are known, and how much they count, [W]; 0 of no forecast.

    `number` is the sum of the weights of all that were known so far.
    """

    forecasts: Forecast
    weights: jax.Array
    number: jax.Array


class Bet:
    """A strategy that learns from forecasts with known targets, and bets against the next one.

    `log_ratios` are the logarithms of e-values for the target of the next forecast: functions of
    the target, chosen without it, whose exponentials have the expectation 1 under the prediction.
    """

    needs_past = True

    def start(self, first: Forecast) -> PyTree:
        """What is known at the beginning."""
        raise NotImplementedError

    def learn(self, learned: PyTree, past: Past, new: Forecast, forget: jax.Array) -> PyTree:
        """What is known after one more forecast, which is in the past already."""
        raise NotImplementedError

    def log_ratios(self, learned: PyTree, past: Past, new: Forecast) -> jax.Array:
        """Logarithms of e-values, [k]."""
        raise NotImplementedError

    def params(self, learned: PyTree) -> Any:
        """The recalibration that was learned, if it is one of all predictions."""
        del learned


@record
class _Affine(Bet):
    """Shift and scale of the normal scores, by sums."""

    needs_past = False

    def start(self, first: Forecast) -> PyTree:
        zeros = jnp.zeros_like(first.view.mean)
        return zeros, zeros, zeros

    def learn(self, learned: PyTree, past: Past, new: Forecast, forget: jax.Array) -> PyTree:
        del past
        terms = jnp.ones_like(new.view.mean), new.view.mean, new.view.square
        return tuple(forget * own + term for own, term in zip(learned, terms, strict=True))

    def params(self, learned: PyTree) -> AffineMap:
        return _shrunk(*learned, _PRIOR)

    def log_ratios(self, learned: PyTree, past: Past, new: Forecast) -> jax.Array:
        del past
        map_ = self.params(learned)
        return log_ratio(new.view, map_.shift, map_.scale)[None]


def _shrunk(number: jax.Array, first: jax.Array, second: jax.Array, prior: Any) -> AffineMap:
    """Mean and deviation of scores with these sums, and a prior of so many with N(0, 1)."""
    shift = first / (number + prior)
    rest = second - 2 * shift * first + jnp.square(shift) * number
    return AffineMap(shift, safe_sqrt((rest + prior) / (number + prior)))


@record
class _Near:
    """Kernels on predictions, [P]; with length scales in mean distances of forecasts, or not."""

    kernels: tuple[Any, ...]
    distance: Distance | None = None

    def start(self, first: Forecast) -> PyTree:
        zero = jnp.zeros((), floating_dtype(first.view))
        return zero, zero

    def learn(self, learned: PyTree, past: Past, new: Forecast) -> PyTree:
        if self.distance is None:
            return learned
        found = jax.vmap(self.distance, (None, 0))(new.prediction, past.forecasts.prediction)
        weights = past.weights
        total = jnp.sum(weights)
        mean = jnp.sum(weights * found) / jnp.where(total > 0, total, 1)
        return learned[0] + mean, learned[1] + 1

    def weights(self, learned: PyTree, past: Past, prediction: Any) -> jax.Array:
        """How near the forecasts of the past are, times their weights, [P, W]."""
        if self.distance is None:
            values = [
                jax.vmap(lambda q, k=k: prediction_kernel(k, prediction, q))(
                    past.forecasts.prediction
                )
                for k in self.kernels
            ]
        else:
            total, number = learned
            unit = total / jnp.where(number > 0, number, 1)
            found = jax.vmap(self.distance, (None, 0))(prediction, past.forecasts.prediction)
            found = found / jnp.where(unit > 0, unit, 1)
            values = [jax.vmap(k, (0, None))(found, 0.0) for k in self.kernels]
        dtype = past.weights.dtype
        rows = [jnp.broadcast_to(v.astype(dtype), past.weights.shape) for v in values]
        return jnp.stack(rows) * past.weights


@record
class _Local(Bet):
    """Shift and scale of the normal scores of similar predictions."""

    near: _Near
    prior: jax.Array | float

    def start(self, first: Forecast) -> PyTree:
        return self.near.start(first)

    def learn(self, learned: PyTree, past: Past, new: Forecast, forget: jax.Array) -> PyTree:
        del forget
        return self.near.learn(learned, past, new)

    def log_ratios(self, learned: PyTree, past: Past, new: Forecast) -> jax.Array:
        weights = self.near.weights(learned, past, new.prediction)[0]
        view = past.forecasts.view
        first, second = (jnp.tensordot(weights, x, 1) for x in (view.mean, view.square))
        prior = jnp.asarray(self.prior, weights.dtype)
        map_ = _shrunk(jnp.sum(weights), first, second, prior)
        return log_ratio(new.view, map_.shift, map_.scale)[None]


@record
class _Kernels(Bet):
    """Kernels on predictions and on classes or cells.

        g_c = Σ_s k_P(p_s, p) Σ_d k_Y(d, c) (o_s(d) − p_s(d)),   e = Σ_c o(c) r_c,
        r_c = exp(η g_c) / Σ_d p(d) exp(η g_d),

    with the outcome o, and g standardised under p.
    """

    near: _Near
    matrices: jax.Array  # k_Y, [Y, C, C]

    def start(self, first: Forecast) -> PyTree:
        return self.near.start(first)

    def learn(self, learned: PyTree, past: Past, new: Forecast, forget: jax.Array) -> PyTree:
        del forget
        return self.near.learn(learned, past, new)

    def log_ratios(self, learned: PyTree, past: Past, new: Forecast) -> jax.Array:
        probs, outcome = new.probs, new.outcome
        weights = self.near.weights(learned, past, new.prediction)
        residuals = matmul(weights, past.forecasts.outcome - past.forecasts.probs)
        matrices = jnp.asarray(self.matrices, probs.dtype)
        g = jnp.einsum("pd,ydc->pyc", residuals, matrices).reshape(-1, probs.size)
        g = g - matmul(g, probs)[:, None]
        size = jnp.max(jnp.abs(g), 1, keepdims=True)
        g = g / jnp.where(size > 0, size, 1)
        spread = jnp.sqrt(matmul(jnp.square(g), probs))[:, None]
        g = ratio(g, jnp.where(spread > 0, spread, 1))
        gains = (g[:, None] * jnp.asarray(_STAKES, g.dtype)[:, None]).reshape(-1, probs.size)
        return logsumexp(gains, 1, b=outcome) - logsumexp(gains, 1, b=probs)


@record
class _LogOdds(Bet):
    """Slopes and biases of log-probabilities, by Newton's method on the past as it comes.

    With the score s and the information I of each forecast at the θ of its time, the sums A of I and
    b of s + I θ determine θ = (A + κ A / N + κ ε)⁻¹ b: the past without the prior, which counts for
    κ forecasts, has its maximum close to A⁻¹ b.
    """

    needs_past = False
    method: Any

    def _map(self, theta: jax.Array, m: int) -> LogitMap:
        no_biases = jnp.zeros(m, theta.dtype)
        if isinstance(self.method, TemperatureScaling):
            return LogitMap(1 + theta[0], no_biases)
        if isinstance(self.method, BiasScaling):
            return LogitMap(jnp.ones((), theta.dtype), theta)
        return LogitMap(1 + theta[:m], theta[m:])

    def _log_probs(self, theta: jax.Array, logits: jax.Array) -> jax.Array:
        return jax.nn.log_softmax(self._map(theta, logits.size)(logits))

    def start(self, first: Forecast) -> PyTree:
        m, dtype = first.view.logits.size, first.view.logits.dtype
        size = 1 if isinstance(self.method, TemperatureScaling) else m
        size = 2 * m if isinstance(self.method, VectorScaling) else size
        return jnp.zeros((size, size), dtype), jnp.zeros(size, dtype)

    def learn(self, learned: PyTree, past: Past, new: Forecast, forget: jax.Array) -> PyTree:
        del past
        theta, (logits, label) = self._theta(learned), new.view
        slopes = jax.jacfwd(self._log_probs)(theta, logits)  # [m, k]
        probs = jnp.exp(self._log_probs(theta, logits))
        information = matmul(slopes.T, probs[:, None] * slopes)
        score = slopes[label] + matmul(information, theta)
        terms = information, score
        return tuple(forget * own + term for own, term in zip(learned, terms, strict=True))

    def _theta(self, learned: PyTree) -> jax.Array:
        curvature, slope = learned
        damped = curvature + _PRIOR * jnp.eye(slope.size, dtype=slope.dtype)
        return jnp.linalg.solve(damped, slope) if slope.size > 1 else slope / damped[0]

    def params(self, learned: PyTree) -> LogitMap:
        theta = self._theta(learned)
        m = theta.size // (2 if isinstance(self.method, VectorScaling) else 1)
        return self._map(theta, 1 if isinstance(self.method, TemperatureScaling) else m)

    def log_ratios(self, learned: PyTree, past: Past, new: Forecast) -> jax.Array:
        del past
        theta, (logits, label) = self._theta(learned), new.view
        gains = self._log_probs(theta, logits) - jax.nn.log_softmax(logits)
        return gains[label][None] + 0 * new.outcome[:1]  # NaN where the label is none


def default_bets(predictions: Any) -> dict[str, Any]:
    """Bets that are placed if none are handed over, by name, as `e_process` describes them."""
    plain = bare(predictions)
    if has_class_probs(plain):
        scales = (0.3, 1.0)
        near = [Exponential(scale, TotalVariation()) for scale in scales]
        kernels = _Kernels(_Near((*near, Constant())), _identity(plain))
        return {
            "temperature": _LogOdds(TemperatureScaling()),
            "bias": _LogOdds(BiasScaling()),
            "near classes": kernels,
        }
    found: dict[str, Any] = {
        "shift and scale": _Affine(),
        "shift and scale nearby": _local(KernelRecalibration(prior=10.0), predictions),
    }
    if not isinstance(plain, VECTORS):
        kernels = tuple(SquaredExponential(x) for x in (0.125, 0.5, 2.0))
        near = _Near((*kernels, Constant()), _distance(predictions))
        targets = jnp.stack([_on_cells(SquaredExponential(x)) for x in (0.5, 2.0)])
        found["shape"] = _Kernels(near, targets)
    return found


def _identity(predictions: Any) -> jax.Array:
    return jnp.eye(predictions.class_probs.shape[-1])[None]


def _distance(predictions: Any) -> Distance:
    """That of default kernels, where it does not depend on the predictions, which come later."""
    if isinstance(bare(predictions), MvNormal | Mixture):
        return Euclidean()
    return distance_of_predictions(predictions)


def _local(method: KernelRecalibration, predictions: Any) -> _Local:
    if method.kernel is not None:
        return _Local(_Near((checks.kernel_values(method.kernel),)), method.prior)
    return _Local(_Near((SquaredExponential(0.2),), _distance(predictions)), method.prior)


def _on_cells(kernel: Any) -> jax.Array:
    """Kernel matrix of the normal scores at the centres of the cells."""
    points = ndtri((jnp.arange(NUM_CELLS) + 0.5) / NUM_CELLS)
    return jax.vmap(jax.vmap(kernel, (None, 0)), (0, None))(points, points)
