"""Wealth of bets against calibration over time."""

import math
from typing import TYPE_CHECKING

import numpy as np

from calibjax._core import checks
from calibjax.hypothesis_tests.sequential import EProcessResult
from calibjax.plotting import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def e_process_wealth(
    result: EProcessResult,
    *,
    significance_level: float = 0.05,
    xlabel: str = "forecasts",
    ax: "Axes | None" = None,
) -> "Axes":
    """Wealth of all bets together, and of each, after each forecast, on a logarithmic scale.

    Above the horizontal line, at 1 / significance_level, calibration is rejected; under calibration
    the black curve is ever above it with at most this probability. All artists have labels for a
    legend; a new figure has one.

    Args:
        result: result of `hypothesis_tests.e_process`.
        significance_level: in (0, 1).
        xlabel: what is counted on the horizontal axis.
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(n) for n forecasts.

    References: see `hypothesis_tests.e_process`.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, plotting
    >>> predictions = distributions.Normal(jnp.zeros(50), jnp.ones(50))
    >>> targets = 2 * jax.random.normal(jax.random.key(0), (50,))
    >>> ax = plotting.e_process_wealth(hypothesis_tests.e_process(predictions, targets))
    >>> print(ax.get_ylabel())
    wealth
    """
    if not isinstance(result, EProcessResult):
        got = checks.described(result)
        raise TypeError(f"result: expected what e_process returns, got {got}")
    total = figures.shown_vector("result.log_wealth", result.log_wealth, "[n], of e_process")
    bets = {
        name: figures.shown_vector(f"result.log_wealths['{name}']", logs, size=len(total))
        for name, logs in result.log_wealths.items()
    }
    level = float(checks.proportion("significance_level", significance_level))
    unit, steps = math.log(10), np.arange(1, len(total) + 1)
    with figures.figure(ax, (5.0, 3.6), ncols=2) as ax:
        from matplotlib.ticker import MaxNLocator

        for i, (name, logs) in enumerate(bets.items()):
            color, line = figures.CURVE_LOOKS[i % len(figures.CURVE_LOOKS)]
            ax.plot(steps, logs / unit, label=name, color=color, ls=line, lw=1)
        ax.plot(steps, total / unit, color=figures.BLACK, lw=2, label="all bets")
        threshold = -math.log(level) / unit
        ax.axhline(threshold, color=figures.RED, lw=1, label=f"{1 / level:.3g}: level {level:g}")
        lowest = min(-1.5, total.min() / unit - 0.5)  # bets that lost all are of no interest
        highest = max(threshold, *(x.max() / unit for x in (total, *bets.values()))) + 0.5
        ax.set(xlabel=xlabel, ylabel="wealth", ylim=(lowest, highest))
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        ax.yaxis.set_major_formatter(lambda x, _: f"$10^{{{x:g}}}$")
    return ax
