"""Bets against forecasts: what recalibrations and kernels have learned from the past."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp, ndtri

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, matmul, ratio, safe_sqrt
from calibjax._core.pytree import PyTree, record
from calibjax.distances import Distance, Euclidean, TotalVariation
from calibjax.distributions import Bernoulli, Mixture, MvNormal
from calibjax.distributions.base import Distribution, has_class_probs
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
from calibjax.kernels.base import Conditional, prediction_kernel
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
    """The last forecasts, and how much they count, [W]; zero those with targets not yet known."""

    forecasts: Forecast
    weights: jax.Array


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


@record
class _Refitted(Bet):
    """Any recalibration, fitted again to the forecasts of the window after every eight.

    The bet is the mixture of the identity, with κ forecasts, and the recalibration, with those of
    the past. Params that are not finite, as those of too few forecasts may be, are not taken.
    """

    method: Any

    def _fit(self, forecasts: Forecast, weights: jax.Array) -> PyTree:
        dtype = weights.dtype
        params = self.method.fit(forecasts.prediction, forecasts.target, weights=weights)
        return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, params)

    def start(self, first: Forecast) -> PyTree:
        batch = jax.tree.map(lambda x: jnp.stack([x] * 2), first)
        dtype = floating_dtype(first.view)
        params = jax.eval_shape(self._fit, batch, jnp.ones(2, dtype))
        empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), params)
        return empty, jnp.zeros((), bool), jnp.zeros((), jnp.int32)

    def learn(self, learned: PyTree, past: Past, new: Forecast, forget: jax.Array) -> PyTree:
        del new, forget
        params, is_fitted, count = learned
        is_due = (count + 1) % _REFITTED_EVERY == 0
        found = lax.cond(
            is_due, lambda: self._fit(past.forecasts, past.weights), lambda: params
        )
        leaves = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(found)]
        is_right = is_due & jnp.all(jnp.stack(leaves))
        params = jax.tree.map(lambda x, y: jnp.where(is_right, x, y), found, params)
        return params, is_fitted | is_right, count + 1

    def params(self, learned: PyTree) -> PyTree:
        return learned[0]

    def log_ratios(self, learned: PyTree, past: Past, new: Forecast) -> jax.Array:
        params, is_fitted, _ = learned
        batch = jax.tree.map(lambda x: x[None], new.prediction)
        found = self.method.apply(params, batch)
        found = found if hasattr(found, "log_prob") else Bernoulli(found)
        found = jax.tree.map(lambda x: x[0], found)
        gain = found.log_prob(new.target) - new.prediction.log_prob(new.target)
        number = jnp.sum(past.weights)
        share = ratio(number, number + _PRIOR)
        mixed = jnp.logaddexp(jnp.log1p(-share), jnp.log(share) + gain.astype(share.dtype))
        return jnp.where(is_fitted, mixed, 0)[None]


_LOCAL = 0.2  # length scale of regression, in mean distances: about a quarter of the median
_SCALES = 0.125, 0.5, 2.0  # of kernels on predictions, in mean distances
_SCORE_SCALES = 0.5, 2.0  # of kernels on normal scores
_CLASS_SCALES = 0.3, 1.0  # of kernels on predictions of classes, total variations


def default_bets(predictions: Distribution) -> dict[str, Any]:
    """The bets that `e_process` places by default, by name; other bets may be added to them.

    | predictions | bet | what it learns |
    | --- | --- | --- |
    | numbers | `shift and scale` | those of the normal scores of all predictions |
    | | `local shift and scale` | those of similar predictions, by kernel regression |
    | | `kernels` | how often cells of normal scores occur, for similar predictions |
    | vectors | | the first two, of each coordinate of L⁻¹ (y − μ) |
    | classes | `temperature` | factor of all log-probabilities |
    | | `bias` | a summand of each log-probability |
    | | `kernels` | how often classes occur, for similar predictions |

    Numbers are continuous, counts, or those of ensembles, of which the rank among the members is
    looked at. They depend on the family of the predictions, and not on their values, which come
    later: distances of predictions are in units of their mean in the past.

    Args:
        predictions: batch of distributions, of which there may be one.

    Returns:
        Dictionary of bets.

    Raises:
        TypeError: if `predictions` is not a batch of distributions.
        ValueError: if shapes or values are wrong.

    Cost: none.

    References: see `e_process`.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions
    >>> print(*default_bets(distributions.Normal(jnp.zeros(1), jnp.ones(1))), sep=", ")
    shift and scale, local shift and scale, kernels
    """
    predictions = checks.batch(predictions)
    plain = bare(predictions)
    if has_class_probs(plain):
        near = *(Exponential(x, TotalVariation()) for x in _CLASS_SCALES), Constant()
        matrices = _matrix(White(), plain)[None]
        own: dict[str, Any] = {
            "temperature": _LogOdds(TemperatureScaling()),
            "bias": _LogOdds(BiasScaling()),
            "kernels": _Kernels(_Near(near), matrices),
        }
        return own
    found: dict[str, Any] = {
        "shift and scale": _Affine(),
        "local shift and scale": _local(KernelRecalibration(prior=10.0), predictions),
    }
    if not isinstance(plain, VECTORS):
        near = *map(SquaredExponential, _SCALES), Constant()
        inner = [NormalScore(SquaredExponential(x)) for x in _SCORE_SCALES]
        matrices = jnp.stack([_matrix(kernel, plain) for kernel in inner])
        found["kernels"] = _Kernels(_Near(near, _distance(predictions)), matrices)
    return found


def checked_bets(bets: Any, predictions: Any) -> dict[str, Bet]:
    """Bets by name, as they are placed.

    Raises:
        TypeError: if one is none.
        ValueError: if there are none.
        NotImplementedError: if one cannot be placed against these predictions.
    """
    if bets is None:
        return default_bets(predictions)
    if not isinstance(bets, Mapping):
        bets = {type(bets).__name__: bets}
    if not bets:
        raise ValueError("bets: expected at least one bet, got none")
    return {str(name): _as_bet(f"bets['{name}']", bet, predictions) for name, bet in bets.items()}


def _as_bet(place: str, bet: Any, predictions: Any) -> Bet:
    plain = bare(predictions)
    is_of_classes = has_class_probs(plain)
    if isinstance(bet, Bet):
        is_wrong = is_of_classes == isinstance(bet, _Affine | _Local)
        if not is_wrong or isinstance(bet, _Kernels | _Refitted):
            return bet
    elif isinstance(bet, AffineScaling) and not is_of_classes:
        return _Affine()
    elif isinstance(bet, KernelRecalibration) and not is_of_classes:
        return _local(bet, predictions)
    elif isinstance(bet, _LOGIT_MAPS) and is_of_classes:
        return _LogOdds(bet)
    elif isinstance(bet, TensorProduct):
        kernel: Any = checks.kernel_values(bet, place)
        target = kernel.target
        is_right = isinstance(target, Conditional) != is_of_classes and not isinstance(plain, VECTORS)
        if is_right and (is_of_classes or isinstance(target, NormalScore)):
            return _Kernels(_Near((kernel.prediction,)), _matrix(target, plain)[None])
        raise NotImplementedError(
            f"{place}.target: expected a kernels.NormalScore for predictions of numbers, or a kernel "
            f"on labels for those of classes, got {checks.described(target)} for "
            f"{checks.described(plain)}"
        )
    elif all(callable(getattr(bet, name, None)) for name in ("fit", "apply")):
        checks.method("predictions", plain, "log_prob")
        return _Refitted(bet)
    raise TypeError(
        f"{place}: expected a recalibration of {checks.described(plain)}, such as "
        "recalibration.AffineScaling() of numbers or TemperatureScaling() of classes, or a "
        f"kernels.TensorProduct, got {checks.described(bet)}"
    )


def _distance(predictions: Any) -> Distance:
    """That of default kernels, where it does not depend on the predictions, which come later."""
    if isinstance(bare(predictions), MvNormal | Mixture):
        return Euclidean()
    return distance_of_predictions(predictions)


def _local(method: KernelRecalibration, predictions: Any) -> _Local:
    if method.kernel is not None:
        near = _Near((checks.kernel_values(method.kernel),))
    else:
        near = _Near((SquaredExponential(_LOCAL),), _distance(predictions))
    return _Local(near, method.prior)


def _matrix(kernel: Any, predictions: Any) -> jax.Array:
    """Matrix of a target kernel, of classes or of normal scores in the middle of the cells."""
    if isinstance(kernel, NormalScore):
        points = ndtri((jnp.arange(NUM_CELLS) + 0.5) / NUM_CELLS)
        kernel = kernel.kernel
    else:
        points = jnp.arange(predictions.class_probs.shape[-1])
    return jax.vmap(jax.vmap(kernel, (None, 0)), (0, None))(points, points)
