"""Evidence against calibration, and alarms, from forecasts that come one after the other."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import record
from calibjax._core.sharding import follows_data
from calibjax.distributions import sample_targets
from calibjax.distributions.base import Distribution
from calibjax.hypothesis_tests.betting import Betting, Wealth, mean_of_logs
from calibjax.hypothesis_tests.e_process import (
    WINDOW,
    EProcessResult,
    after_all,
    betting_against,
    described_bets,
    params_of,
    result_of,
    started,
)
from calibjax.hypothesis_tests.outcomes import Forecast, checked_forecasts
from calibjax.streaming.base import Accumulator, checked_state


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


class _Watch(Accumulator):
    """Base class of what watches forecasts in their order."""

    bets: Any
    example_predictions: Any

    def _betting(self, predictions: Any) -> Betting:
        raise NotImplementedError

    def _started(self) -> tuple[Betting, Forecast, Wealth]:
        """The bets, an example of a forecast, and the state before any."""
        predictions = jax.tree.map(lambda x: x[:1], checks.batch(self.example_predictions))
        targets = sample_targets(jax.random.key(0), predictions)
        example = checked_forecasts(predictions, targets)
        betting = self._betting(example.prediction)
        return betting, example, started(betting, example)

    def init(self) -> Wealth:
        """The state before any forecasts.

        Raises:
            TypeError: if an attribute is of the wrong kind.
            ValueError: if it has a wrong value.
            NotImplementedError: if a bet cannot be placed against such predictions.
        """
        return self._started()[2]

    @follows_data
    def update(
        self,
        state: Wealth,
        predictions: Distribution,
        targets: ArrayLike,
        *,
        weights: ArrayLike | None = None,
    ) -> Wealth:
        """The state after some more forecasts.

        Args:
            state: state of this accumulator.
            predictions: batch of n ≥ 1 distributions in the order of time, of the family of
                `example_predictions`.
            targets: [n] or [n, d].
            weights: None: every forecast counts.

        Returns:
            The new state.

        Raises:
            TypeError: if an argument is of the wrong kind.
            ValueError: if shapes or values are wrong, or there are weights.
        """
        if weights is not None:
            raise ValueError(
                "weights: expected None, since wealth is a product over all forecasts, got "
                f"{checks.described(weights)}"
            )
        betting, example, start = self._started()
        state = checked_state("state", state, start)
        forecasts = checked_forecasts(predictions, targets)
        found, expected = forecasts.prediction, example.prediction
        checks.same_kind("predictions", found, "example_predictions", expected)
        forecasts = jax.tree.map(lambda x, y: x.astype(y.dtype), forecasts, example)
        return after_all(betting, state, forecasts)[0]

    def merge(self, a: Any, b: Any) -> Any:
        """Not defined: forecasts have an order.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            f"{type(self).__name__}: states cannot be merged, since forecasts have an order; the "
            "mean of the wealths of several streams is valid evidence against all of them"
        )

    def _totals(self, state: Any) -> tuple[Betting, Wealth, dict[str, jax.Array]]:
        betting, _, start = self._started()
        state = checked_state("state", state, start)
        return betting, state, {name: betting.total(x) for name, x in state.logs.items()}


@record
class EProcess(_Watch):
    bets: Any
    example_predictions: Any
    forget: Any = 1.0
    level: Any = 0.05
    horizon: int = dataclasses.field(default=1, metadata={"static": True})
    window: int = dataclasses.field(default=WINDOW, metadata={"static": True})

    def _betting(self, predictions: Any) -> Betting:
        return betting_against(
            self.bets,
            predictions,
            horizon=self.horizon,
            forget=self.forget,
            window=self.window,
            log_threshold=-jnp.log(checks.proportion("level", self.level)),
        )

    def result(self, state: Wealth) -> EProcessResult:
        """The wealth after the forecasts so far."""
        return result_of(*self._totals(state))


@record
class EDetector(_Watch):
    bets: Any
    example_predictions: Any
    forget: Any = 0.98
    run_length: Any = 5000.0
    horizon: int = dataclasses.field(default=1, metadata={"static": True})
    window: int = dataclasses.field(default=WINDOW, metadata={"static": True})

    def _betting(self, predictions: Any) -> Betting:
        betting = betting_against(
            self.bets,
            predictions,
            horizon=self.horizon,
            forget=self.forget,
            window=self.window,
            log_threshold=jnp.log(checks.positive_scalar("run_length", self.run_length)),
        )
        return dataclasses.replace(betting, is_detector=True)

    def result(self, state: Wealth) -> EDetection:
        """The statistic after the forecasts so far."""
        betting, state, logs = self._totals(state)
        params = params_of(betting, state)
        return EDetection(mean_of_logs(logs), logs, state.crossing, params)
