"""The wealth of bets against forecasts, one forecast after the other."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from calibjax._core.arithmetic import floating_dtype
from calibjax._core.pytree import record
from calibjax.hypothesis_tests.bets import Bet, Past
from calibjax.hypothesis_tests.outcomes import Forecast

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

    bets: dict[str, Bet]
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
        h = self.horizon
        mean = logsumexp(logs) - math.log(logs.size)
        if h == 1:
            return mean
        # Of each of the h processes one bet is open, and leaves at least 1 − λ of what it got.
        return mean + math.log(1 - _LAMBDA)


def mean_of_logs(totals: Mapping[str, jax.Array]) -> jax.Array:
    """Logarithm of the mean of wealths, [...]."""
    stacked = jnp.stack([*totals.values()])
    return logsumexp(stacked, 0) - math.log(len(totals))
