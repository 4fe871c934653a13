"""Evidence against calibration from sequential forecasts."""

import dataclasses
from typing import Any

import jax

from calibjax._core import checks
from calibjax._core.pytree import Numbers, record
from calibjax.distributions import sample_targets
from calibjax.distributions.base import Distribution
from calibjax.hypothesis_tests import sequential
from calibjax.streaming.sums import accumulating


@record
class EProcess:
    """sequential.Wealth of bets against calibration, from sequential forecasts.

    It is `hypothesis_tests.e_process` with states of constant size, and returns the wealth after
    the last forecast. States are not sums and cannot be merged, because forecasts have an order.
    There are no weights, because wealth is a product over forecasts. The mean wealth of several
    streams at each time is an e-process, too. Its hypothesis is that each target is a draw from its
    forecast, given all that was known when that forecast was made, including the other streams.

    Attributes:
        example_predictions: batch of the family and the shapes of the predictions to come; its
            values are not used.
        bets: as in `e_process`.
        forget: as in `e_process`.
        significance_level: as in `e_process`.
        horizon: as in `e_process`.
        window: W, number of forecasts that kernels, `KernelRecalibration` and refitted
            recalibrations use. They cannot detect errors that need more than W forecasts. Other
            bets use the whole past.

    The state holds the last W + h − 1 forecasts, the state of each bet, and the wealths.

    Cost: O(W) for each forecast, 0.1 ms by default; O(W) memory.

    References: see `e_process`.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, streaming
    >>> wide = distributions.Normal(jnp.zeros(100), jnp.full(100, 1.5))
    >>> accumulator = streaming.EProcess(wide)
    >>> state = accumulator.init()
    >>> for key in jax.random.split(jax.random.key(0), 3):
    ...     state = accumulator.update(state, wide, jax.random.normal(key, (100,)))
    >>> print(accumulator.result(state).pvalue < 0.001)
    True
    """

    example_predictions: Distribution
    bets: Any = None
    forget: jax.Array | float = 1.0
    significance_level: jax.Array | float = 0.05
    horizon: int = dataclasses.field(default=1, metadata={"static": True})
    window: int = dataclasses.field(default=sequential.WINDOW, metadata={"static": True})

    def _started(self) -> tuple[sequential.Betting, sequential.Forecast, sequential.Wealth]:
        """Bets, an example of a forecast, and the state before any."""
        predictions = jax.tree.map(lambda x: x[:1], self.example_predictions)
        example = sequential.forecasts_of(
            predictions, sample_targets(jax.random.key(0), predictions)
        )
        options = self.horizon, self.window, self.forget, self.significance_level
        betting = sequential.betting_against(self.bets, example.prediction, *options)
        return betting, example, betting.start(example)

    @accumulating()
    def init(self) -> sequential.Wealth:
        """State before any forecasts.

        Raises:
            TypeError: if an attribute is of the wrong kind.
            ValueError: if it has a wrong value.
            NotImplementedError: if a bet does not support such predictions.
        """
        return self._started()[2]

    @accumulating()
    def update(
        self,
        state: sequential.Wealth,
        predictions: Distribution,
        targets: Numbers,
        *,
        times: Numbers | None = None,
    ) -> sequential.Wealth:
        """State after a batch of forecasts.

        Args:
            state: state of this accumulator.
            predictions: batch of n ≥ 1 distributions in the order of time, of the family of
                `example_predictions`.
            targets: [n] or [n, d].
            times: times of these forecasts, [n], as in `e_process`. They are not compared with
                earlier calls.

        Returns:
            The new state.

        Raises:
            TypeError: if an argument is of the wrong kind.
            ValueError: if shapes or values are wrong, or times are out of order.
        """
        betting, example, _ = self._started()
        forecasts = sequential.forecasts_of(predictions, targets)
        kinds = forecasts.prediction, "example_predictions", example.prediction
        checks.same_kind("predictions", *kinds)
        forecasts = jax.tree.map(lambda x, y: x.astype(y.dtype), forecasts, example)
        return betting.after(state, forecasts)[0]

    @accumulating()
    def result(self, state: sequential.Wealth) -> sequential.EProcessResult:
        """sequential.Wealth after the forecasts so far.

        Raises:
            TypeError: if the state is of the wrong kind.
            ValueError: if the state belongs to other bets or predictions.
        """
        betting = self._started()[0]
        logs = {name: betting.total(x) for name, x in state.logs.items()}
        return sequential.result_of(betting, state, logs)
