"""Evidence against calibration from forecasts that come one after the other."""

import dataclasses
from typing import Any

import jax

from calibjax._core import checks
from calibjax._core.pytree import Numbers, record
from calibjax.distributions import sample_targets
from calibjax.distributions.base import Distribution
from calibjax.hypothesis_tests.sequential import (
    WINDOW,
    Betting,
    EProcessResult,
    Forecast,
    Wealth,
    betting_against,
    forecasts_of,
    result_of,
)
from calibjax.streaming.base import accumulating


@record
class EProcess:
    """Wealth of bets against calibration, from forecasts that come one after the other.

    It is `hypothesis_tests.e_process`, whose wealth after the last forecast it returns, with states
    of constant size. Unlike the states of other accumulators they are not sums, and cannot be
    merged, since forecasts have an order. There are no weights, as wealth is a product over all
    forecasts. The mean of the wealths of several streams is evidence against the
    hypothesis that all are calibrated, given the past of all, at times that are the same for all.

    Attributes:
        example_predictions: a batch of the family of the predictions to come, with the same shapes;
            its values do not matter.
        bets: as in `e_process`.
        forget: as in `e_process`.
        significance_level: likewise.
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
    window: int = dataclasses.field(default=WINDOW, metadata={"static": True})

    def _started(self) -> tuple[Betting, Forecast, Wealth]:
        """The bets, an example of a forecast, and the state before any."""
        predictions = jax.tree.map(lambda x: x[:1], self.example_predictions)
        example = forecasts_of(predictions, sample_targets(jax.random.key(0), predictions))
        options = self.horizon, self.window, self.forget, self.significance_level
        betting = betting_against(self.bets, example.prediction, *options)
        return betting, example, betting.start(example)

    @accumulating()
    def init(self) -> Wealth:
        """The state before any forecasts.

        Raises:
            TypeError: if an attribute is of the wrong kind.
            ValueError: if it has a wrong value.
            NotImplementedError: if a bet cannot be placed against such predictions.
        """
        return self._started()[2]

    @accumulating()
    def update(
        self,
        state: Wealth,
        predictions: Distribution,
        targets: Numbers,
        *,
        times: Numbers | None = None,
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
        betting, example, _ = self._started()
        forecasts = forecasts_of(predictions, targets)
        kinds = forecasts.prediction, "example_predictions", example.prediction
        checks.same_kind("predictions", *kinds)
        forecasts = jax.tree.map(lambda x, y: x.astype(y.dtype), forecasts, example)
        return betting.after(state, forecasts)[0]

    @accumulating()
    def result(self, state: Wealth) -> EProcessResult:
        """The wealth after the forecasts so far.

        Raises:
            TypeError: if the state is not one.
            ValueError: if it is that of other bets or predictions.
        """
        betting = self._started()[0]
        logs = {name: betting.total(x) for name, x in state.logs.items()}
        return result_of(betting, state, logs)
