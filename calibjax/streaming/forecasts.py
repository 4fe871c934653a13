"""Evidence against calibration, and alarms, from forecasts that come one after the other."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import record
from calibjax.distributions import sample_targets
from calibjax.distributions.base import Distribution
from calibjax.hypothesis_tests.betting import Betting, Wealth, mean_of_logs
from calibjax.hypothesis_tests.outcomes import Forecast, checked_forecasts
from calibjax.hypothesis_tests.sequential import (
    WINDOW,
    EProcessResult,
    after_all,
    betting_against,
    described_bets,
    params_of,
    result_of,
    started,
)
from calibjax.streaming.base import checked_state


@record
class EDetection:
    """What a detector says after some forecasts.

    Attributes:
        log_statistic: logarithm of the mean Shiryaev-Roberts statistic of all bets.
        log_statistics: that of each bet, by name.
        alarm: number of forecasts after which the statistic first reached the run length; 0 if it
            has not.
        params: as in `hypothesis_tests.EProcessResult`.
    """

    log_statistic: jax.Array
    log_statistics: dict[str, jax.Array]
    alarm: jax.Array
    params: dict[str, Any]

    def __repr__(self) -> str:
        """A sentence, and a line for each bet."""
        name = type(self).__name__
        if not checks.is_concrete(self.log_statistic) or jnp.ndim(self.log_statistic):
            return f"{name}(log_statistic={self.log_statistic})"
        found = int(self.alarm)
        when = f"alarm after {found} forecasts" if found else "no alarm"
        first = f"{name}({when}, log statistic {float(self.log_statistic):.2f})"
        return "\n".join([first, *described_bets(self.log_statistics, self.params)])


class _Watch:
    """Base class of what watches forecasts in their order, and so has no `merge`."""

    bets: Any
    example_predictions: Distribution

    forget: jax.Array | float
    horizon: int
    window: int
    _is_detector = False

    def _log_threshold(self) -> jax.Array:
        """The logarithm of the wealth, or of the statistic, at which there is an alarm."""
        raise NotImplementedError

    def _started(self) -> tuple[Betting, Forecast, Wealth]:
        """The bets, an example of a forecast, and the state before any."""
        predictions = jax.tree.map(lambda x: x[:1], checks.batch(self.example_predictions))
        targets = sample_targets(jax.random.key(0), predictions)
        example = checked_forecasts(predictions, targets)
        betting = betting_against(
            self.bets,
            example.prediction,
            horizon=self.horizon,
            forget=self.forget,
            window=self.window,
            log_threshold=self._log_threshold(),
        )
        betting = dataclasses.replace(betting, is_detector=self._is_detector)
        return betting, example, started(betting, example)

    def init(self) -> Wealth:
        """The state before any forecasts.

        Raises:
            TypeError: if an attribute is of the wrong kind.
            ValueError: if it has a wrong value.
            NotImplementedError: if a bet cannot be placed against such predictions.
        """
        return self._started()[2]

    def update(
        self,
        state: Wealth,
        predictions: Distribution,
        targets: ArrayLike,
        *,
        times: ArrayLike | None = None,
    ) -> Wealth:
        """The state after some more forecasts.

        Args:
            state: state of this accumulator.
            predictions: batch of n ≥ 1 distributions in the order of time, of the family of
                `example_predictions`.
            targets: [n] or [n, d].
            times: of these forecasts, [n], as in `e_process`; that they are not before those of
                earlier calls is up to the caller.

        Returns:
            The new state.

        Raises:
            TypeError: if an argument is of the wrong kind.
            ValueError: if shapes or values are wrong, or times are out of order.
        """
        betting, example, start = self._started()
        state = checked_state("state", state, start)
        forecasts = checked_forecasts(predictions, targets, times)
        found, expected = forecasts.prediction, example.prediction
        checks.same_kind("predictions", found, "example_predictions", expected)
        forecasts = jax.tree.map(lambda x, y: x.astype(y.dtype), forecasts, example)
        return after_all(betting, state, forecasts)[0]

    def _totals(self, state: object) -> tuple[Betting, Wealth, dict[str, jax.Array]]:
        betting, _, start = self._started()
        state = checked_state("state", state, start)
        return betting, state, {name: betting.total(x) for name, x in state.logs.items()}


@record
class EProcess(_Watch):
    """Wealth of bets against calibration, from forecasts that come one after the other.

    It is `hypothesis_tests.e_process`, whose wealth after the last forecast it returns, with states
    of constant size. Unlike the states of other accumulators they are not sums, and cannot be
    merged, since forecasts have an order. There are no weights, as wealth is a product over all
    forecasts. The mean of the wealths of several streams is evidence against the
    hypothesis that all are calibrated, given the past of all, at times that are the same for all.

    Attributes:
        bets: as in `e_process`.
        example_predictions: a batch of the family of the predictions to come, with the same shapes;
            its values do not matter.
        forget: as in `e_process`.
        level: likewise.
        horizon: likewise.
        window: W, number of forecasts that kernels and regressions remember. Others learn from all
            of the past. A fault that takes more forecasts than these to be seen, since it is small
            or in a small region, is not found.

    The state holds the last W + h − 1 forecasts, what each bet has learned, and the wealths.

    Cost: O(W) for each forecast, 0.1 ms by default; O(W) memory.

    References: see `e_process`.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, streaming
    >>> wide = distributions.Normal(jnp.zeros(100), jnp.full(100, 1.5))
    >>> accumulator = streaming.EProcess(None, wide)
    >>> state = accumulator.init()
    >>> for key in jax.random.split(jax.random.key(0), 3):
    ...     state = accumulator.update(state, wide, jax.random.normal(key, (100,)))
    >>> print(accumulator.result(state).pvalue < 0.001)
    True
    """

    bets: Any
    example_predictions: Distribution
    forget: jax.Array | float = 1.0
    level: jax.Array | float = 0.05
    horizon: int = dataclasses.field(default=1, metadata={"static": True})
    window: int = dataclasses.field(default=WINDOW, metadata={"static": True})

    def _log_threshold(self) -> jax.Array:
        return -jnp.log(checks.proportion("level", self.level))

    def result(self, state: Wealth) -> EProcessResult:
        """The wealth after the forecasts so far.

        Raises:
            TypeError: if the state is not one.
            ValueError: if it is that of other bets or predictions.
        """
        return result_of(*self._totals(state))


@record
class EDetector(_Watch):
    """Alarm when forecasts that were calibrated no longer are, at a known rate of false alarms.

    The wealth of `EProcess` is lost by bets as long as nothing is wrong, and has to be earned again
    when something is. Here bets start anew before every forecast, all of which count together: the
    Shiryaev-Roberts statistic

        R_t = e_t (R_{t−1} + 1),   R_0 = 0,

    is compared with the run length c. As long as forecasts are calibrated, R_t − t has the mean 0,
    so that the expected number of forecasts until an alarm is at least c. With horizon h it is
    ½ (Σ_j R_j − h), summed over the h processes in turn: a bound that holds whatever becomes of the
    h − 1 bets that are open. Its mean is then at most t, not t, and alarms come a little later than
    those of an exact statistic, not more often.

    Attributes:
        bets: as in `hypothesis_tests.e_process`.
        example_predictions: as in `EProcess`.
        forget: as in `e_process`; 0.98 by default, so that bets learn from about 50 forecasts.
        run_length: c > 0, expected number of forecasts until a false alarm, at least.
        horizon: as in `e_process`.
        window: as in `EProcess`.

    After a shift by half a standard deviation that comes after 1000 good forecasts, the median
    delay is 60 forecasts (normal predictions, c = 5000, 200 streams).

    After an alarm, begin anew with `init()`.

    Cost: that of `EProcess`.

    References: Shin, Ramdas and Rinaldo (2024), E-detectors: a nonparametric framework for
    sequential change detection; Shiryaev (1963), Roberts (1966).

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, streaming
    >>> predictions = distributions.Normal(jnp.zeros(300), jnp.ones(300))
    >>> targets = jax.random.normal(jax.random.key(0), (300,))
    >>> targets = targets.at[200:].add(1.0)  # after 200 good forecasts
    >>> detector = streaming.EDetector(None, predictions)
    >>> state = detector.update(detector.init(), predictions, targets)
    >>> print(200 < detector.result(state).alarm < 230)
    True
    """

    bets: Any
    example_predictions: Distribution
    forget: jax.Array | float = 0.98
    run_length: jax.Array | float = 5000.0
    horizon: int = dataclasses.field(default=1, metadata={"static": True})
    window: int = dataclasses.field(default=WINDOW, metadata={"static": True})

    _is_detector = True

    def _log_threshold(self) -> jax.Array:
        return jnp.log(checks.positive_scalar("run_length", self.run_length))

    def result(self, state: Wealth) -> EDetection:
        """The statistic after the forecasts so far.

        Raises:
            TypeError: if the state is not one.
            ValueError: if it is that of other bets or predictions.
        """
        betting, state, logs = self._totals(state)
        params = params_of(betting, state)
        found = mean_of_logs(logs)
        alarm = checks.missing_unless(~jnp.isnan(found), state.crossing)
        return EDetection(found, logs, alarm, params)
