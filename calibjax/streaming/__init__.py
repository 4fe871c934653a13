"""Estimates and tests from batches, for data that do not fit into memory.

Results equal those from all data at once. An accumulator is a record with pure functions, like an
optimiser of optax:

    state = accumulator.init()
    for predictions, targets in batches:
        state = accumulator.update(state, predictions, targets)
    result = accumulator.result(state)

States are pytrees of fixed shapes. They can be carried by `lax.scan`, saved in checkpoints, and
merged by `accumulator.merge(a, b)` or `lax.psum`, because all their leaves are sums over the
samples. States of `EProcess`, which depends on the order of the forecasts, are not sums and cannot
be merged.
"""

from calibjax.streaming.forecasts import EProcess
from calibjax.streaming.skce import SKCE, ExactSKCETest
from calibjax.streaming.sums import CalibrationBins, MeanScore

__all__ = ["SKCE", "CalibrationBins", "EProcess", "ExactSKCETest", "MeanScore"]


def __dir__() -> list[str]:
    return __all__
