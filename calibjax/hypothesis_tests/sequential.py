"""E-processes: evidence against calibration that may be looked at after every forecast."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.gate import Seen, argument, checked
from calibjax._core.pytree import Numbers, record
from calibjax.distributions.base import Distribution
from calibjax.hypothesis_tests.bets import Forecast, Past, bets_by_name, forecasts_of
from calibjax.recalibration.classes import LogitMap
from calibjax.recalibration.numbers import AffineMap

_LAMBDA = 0.5  # part of the wealth that is bet where bets overlap


@record
class Wealth:
    """What is known after some forecasts, of a size that does not depend on their number.

    Attributes:
        number: of forecasts.
        forecasts: the last ones, in a ring.
        learned: what each bet has learned, by name.
        logs: logarithms of the wealth of each bet, by name, [h, k] for horizon h.
        largest: the largest logarithm of the total so far.
        crossing: the number of forecasts after which the total first reached the threshold; 0 if it
            has not.
    """

    number: jax.Array
    forecasts: Forecast
    learned: dict[str, Any]
    logs: dict[str, jax.Array]
    largest: jax.Array
    crossing: jax.Array


@record
class Betting:
    """Bets, by name, and how their wealth is counted.

    Attributes:
        bets: by name.
        forget: factor by which what was learned counts less after every forecast.
        log_threshold: logarithm of the total that is a crossing.
        horizon: h, the number of forecasts that are made before the first target is known.
        window: the number of forecasts with known targets that are kept.
    """

    bets: dict[str, Any]
    forget: jax.Array
    log_threshold: jax.Array
    horizon: int = dataclasses.field(default=1, metadata={"static": True})
    window: int = dataclasses.field(default=1, metadata={"static": True})

    def start(self, first: Forecast) -> Wealth:
        """The state before any forecast, with that one in the ring, where it does not count."""
        size = self.window + self.horizon - 1
        ring = jax.tree.map(lambda x: jnp.broadcast_to(x, (size, *x.shape)), first)
        learned = {name: bet.start(first, size) for name, bet in self.bets.items()}
        dtype = floating_dtype(first.view)
        past = Past(ring, jnp.zeros(size, dtype))
        logs = {}
        for name, bet in self.bets.items():
            ratios = jax.eval_shape(bet.log_ratios, learned[name], past, first)
            logs[name] = jnp.zeros((self.horizon, *ratios.shape), dtype)
        none = jnp.zeros((), jnp.int32)
        return Wealth(none, ring, learned, logs, jnp.full((), -jnp.inf, dtype), none)

    def step(self, state: Wealth, new: Forecast) -> tuple[Wealth, dict[str, jax.Array]]:
        """The state after one more forecast, and the logarithms of each bet's total."""
        h, t = self.horizon, state.number
        size = self.window + h - 1
        places = jnp.arange(size)
        age = (t - 1 - places) % size + 1  # of the forecasts in the ring, from one on
        is_known = (age >= h) & (age <= t)
        dtype = state.largest.dtype
        weights = jnp.where(is_known, self.forget.astype(dtype) ** (age - h), 0)
        past = Past(state.forecasts, weights)
        is_first = t < h  # nothing is known yet
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
        after = Wealth(t + 1, ring, learned, logs, largest, crossing)
        return after, totals

    def total(self, logs: jax.Array) -> jax.Array:
        """Logarithm of the mean of a bet's wealth: from [h, k] to a number."""
        # If h > 1, each of the h processes has an open bet, which leaves at least 1 − λ of it.
        kept = 0.0 if self.horizon == 1 else math.log(1 - _LAMBDA)
        return logsumexp(logs) - math.log(logs.size) + kept


def mean_of_logs(totals: Mapping[str, jax.Array]) -> jax.Array:
    """Logarithm of the mean of wealths, [...]."""
    stacked = jnp.stack([*totals.values()])
    return logsumexp(stacked, 0) - math.log(len(totals))


WINDOW = 512  # forecasts that kernels remember


@record
class EProcessResult:
    """Wealth of bets against the calibration of forecasts.

    Attributes:
        log_wealth: natural logarithm of the mean wealth of all bets, after each forecast, [n]; of
            `streaming.EProcess` after the last one.
        log_wealths: that of each bet, by name.
        pvalue: anytime-valid: one over the largest wealth so far, at most 1. Under calibration the
            probability that it is ever ≤ α is at most α.
        crossing: number of forecasts after which the wealth first reached 1 / α; 0 if it has
            not.
        params: what bets on one recalibration of all predictions have learned, by name: an
            `AffineMap`, a `LogitMap`, or what `fit` returns.
    """

    log_wealth: jax.Array
    log_wealths: dict[str, jax.Array]
    pvalue: jax.Array
    crossing: jax.Array
    params: dict[str, Any]

    @property
    def earned_most(self) -> str:
        """Name of the bet that has earned most, which names the fault."""
        return max(self.log_wealths, key=lambda name: float(_last(self.log_wealths[name])))

    def __repr__(self) -> str:
        """A sentence, and a line for each bet."""
        if not checks.is_concrete(self.log_wealth, self.pvalue) or jnp.ndim(self.pvalue):
            return f"{type(self).__name__}(log_wealth={self.log_wealth})"
        number = int(self.crossing)
        when = f", first rejected after {number} forecasts" if number else ""
        first = f"{type(self).__name__}(pvalue={float(self.pvalue):.3g}, log wealth "
        lines = [f"{first}{float(_last(self.log_wealth)):.2f}{when})"]
        width = max(map(len, self.log_wealths))
        for name, logs in sorted(self.log_wealths.items(), key=lambda bet: -float(_last(bet[1]))):
            words = _words(self.params.get(name))
            lines.append(f"  {name:{width}}  {float(_last(logs)):+8.2f}  {words}".rstrip())
        return "\n".join(lines)


def _last(values: jax.Array) -> np.floating:
    return np.asarray(values).reshape(-1)[-1]


def _words(params: object) -> str:
    """What a recalibration says of the predictions."""
    if isinstance(params, AffineMap) and jnp.ndim(params.shift) == 0:
        shift, scale = float(params.shift), float(params.scale)
        side = "above" if shift > 0 else "below"
        return (
            f"targets {abs(shift):.2f} standard deviations {side} the predictions, and scattered "
            f"{scale:.2f} times as much"
        )
    if isinstance(params, LogitMap) and jnp.ndim(params.slopes) == 0:
        if not np.any(np.asarray(params.biases)):
            slope = float(params.slopes)
            kind = "too sure" if slope < 1 else "too unsure"
            return f"{kind}: log-probabilities times {slope:.2f}"
        label = int(jnp.argmax(jnp.abs(params.biases)))
        bias = float(params.biases[label])
        kind = "often" if bias > 0 else "rarely"
        return f"class {label} comes more {kind} than predicted: odds times {math.exp(bias):.2f}"
    return ""


@argument("forget")
def _forget(name: str, value: Any, seen: Seen) -> Any:
    value = checks.positive_scalar(name, value)
    return checks.satisfying(name, value, lambda x: x <= 1, "a number in (0, 1]")


def betting_against(
    bets: Any, predictions: Any, horizon: int, window: int, forget: Any, significance_level: Any
) -> Betting:
    """Bets against predictions of this family."""
    by_name = bets_by_name(bets, predictions)
    window = window if any(bet.needs_past for bet in by_name.values()) else 1
    dtype = floating_dtype(predictions)
    threshold = jnp.asarray(-jnp.log(significance_level), dtype)
    return Betting(by_name, jnp.asarray(forget, dtype), threshold, horizon, window)


@jax.jit
def started(betting: Betting, forecasts: Forecast) -> Wealth:
    """The state before the first of some forecasts."""
    return betting.start(jax.tree.map(lambda x: x[0], forecasts))


@jax.jit
def after_all(
    betting: Betting, state: Wealth, forecasts: Forecast
) -> tuple[Wealth, dict[str, jax.Array]]:
    """The state after a batch of forecasts, and each bet's logarithms after each of them, [n]."""
    return jax.lax.scan(betting.step, state, forecasts)


def result_of(betting: Betting, state: Wealth, logs: dict[str, jax.Array]) -> EProcessResult:
    """The result of a state, with these logarithms of the wealth of each bet."""
    pvalue = jnp.exp(-jnp.maximum(state.largest, 0))
    pvalue = jnp.maximum(pvalue, jnp.finfo(pvalue.dtype).tiny)  # never zero
    crossing = checks.missing_unless(~jnp.isnan(pvalue), state.crossing)
    learned = {name: bet.params(state.learned[name]) for name, bet in betting.bets.items()}
    params = {name: x for name, x in learned.items() if x is not None}  # that can be written down
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
    """Test of calibration over time, which may be looked at, and stopped, after every forecast.

    Forecasts come one after the other, and are bet against. A bet is a recalibration q_t of the
    prediction p_t, or a kernel, that has learned from earlier forecasts; it multiplies its wealth,
    which is 1 at the beginning, by

        e_t = q_t(y_t) / p_t(y_t),   E[e_t | what was known when p_t was made] = 1,

    under the null hypothesis that y_t ~ p_t given all that was known then. The mean of the wealths
    of all bets is then ever ≥ 1/α with a probability of at most α (Ville): look at it as often as
    you like, and stop when you like. The logarithm of a wealth is what the recalibration would have
    earned in likelihood, so that the bet that earns most names the fault.

    *Bets.* By default, those of the family of the predictions:

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
    looked at. Other bets are a dictionary of recalibrations and kernels:

    - `recalibration.AffineScaling` of numbers and vectors: shift and scale of the normal scores,
      with a prior of 20 forecasts without fault, by running sums;
    - `recalibration.KernelRecalibration` of numbers and vectors, for each prediction;
    - `TemperatureScaling` of classes, and `MatrixScaling` whose structure is "bias" or "diagonal":
      slopes and biases of log-probabilities with a normal prior of precision 20, by Newton's method
      as forecasts come;
    - `kernels.TensorProduct(k_P, k_Y)` with a kernel on labels, or `kernels.NormalScore` on
      numbers: with the classes, or 32 cells of equal probability, c, e_t = Σ_c o(c) r_c with the
      outcome o (1 for the class or the cell of y_t) and

          r_c = exp(η g_c) / Σ_d p(d) exp(η g_d),   g_c ∝ Σ_s k_P(p_s, p_t) [k_Y(y_s, c) − E k_Y],

      standardised over c, times W / (W + 20) with W = Σ_s k_P(p_s, p_t), for η of 0.1, 0.2, 0.4
      and 0.8;
    - whatever else has `fit(predictions, targets, weights=…)` and `apply(params, predictions)`,
      fitted again after every eighth forecast, and mixed with p_t.

    All but running sums remember the last 512 forecasts only. Of counts, of which the normal score
    is an interval, and of ensembles, of which it is that of the rank among the members and the
    target, e_t is the mean over the interval, so that nothing is drawn.

    *Horizon.* Forecasts that are made h steps ahead overlap: when p_t is made, targets up to t − h
    are known. Bets learn from these, only half of each wealth is bet, by h processes in turn, and
    half of their mean wealth counts, since at any time bets are open. Calibrated forecasts of three
    steps that are taken for ones of one step are rejected in 75 % of the cases (first-order
    autoregression with coefficient 0.9, 1024 forecasts, 500 streams).

    *Forgetting.* With `forget` f < 1, what was learned k forecasts ago counts f^k, which finds
    faults that come late sooner. What has been lost until then stays lost.

    Args:
        predictions: batch of n ≥ 1 distributions, in the order of the targets in time.
        targets: [n] or [n, d].
        bets: dictionary of bets by name, or a single one; None for those of the first table.
        times: of the forecasts, numbers or NumPy's datetimes, [n], which are checked to be in
            order; equal ones may be.
        horizon: h ≥ 1: when a prediction is made, the h − 1 targets before its own are not known.
        forget: f in (0, 1].
        significance_level: α in (0, 1), for `crossing`.

    Returns:
        The wealth after each forecast.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or times are out of order.
        NotImplementedError: if the predictions are neither of classes, nor numbers with `cdf`, nor
            normal vectors, nor ensembles of numbers.

    Cost: O(n W) kernel values, O(n + W) memory with W = min(n, 512); 0.1 ms for each forecast.

    References: none of the four papers has it; Ville (1939); Shafer (2021), Testing by betting;
    Arnold, Henzi and Ziegel (2023), Sequentially valid tests for forecast calibration, which has
    horizons, and beta densities of the probability integral transform as bets.

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
    state, logs = after_all(betting, started(betting, forecasts), forecasts)
    return result_of(betting, state, logs)
