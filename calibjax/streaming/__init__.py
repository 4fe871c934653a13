"""The same numbers from batches as from all data at once, for data that do not fit into memory."""

from calibjax.streaming.base import Accumulator, State, Sum
from calibjax.streaming.skce import SKCE, ExactSKCETest, SKCEEstimate

__all__ = ["SKCE", "Accumulator", "ExactSKCETest", "SKCEEstimate", "State", "Sum"]
