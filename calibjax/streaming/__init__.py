"""The same numbers from batches as from all data at once, for data that do not fit into memory.

An accumulator is a record with pure functions, as the optimisers of optax are:

    state = accumulator.init()
    for predictions, targets in batches:
        state = accumulator.update(state, predictions, targets)
    result = accumulator.result(state)

States are pytrees of fixed shapes. They are carried by `lax.scan`, saved in checkpoints, and merged
by `accumulator.merge(a, b)`, or by `lax.psum`, since all their leaves are sums over the samples.
Those of `EProcess`, which watches forecasts in the order of time, are not sums, and cannot be
merged.
"""

from calibjax.streaming.forecasts import EProcess
from calibjax.streaming.skce import SKCE, ExactSKCETest
from calibjax.streaming.sums import CalibrationBins, MeanScore

__all__ = ["SKCE", "CalibrationBins", "EProcess", "ExactSKCETest", "MeanScore"]


def __dir__() -> list[str]:
    return __all__
