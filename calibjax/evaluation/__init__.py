"""Everything about a model in one call, `calibjax.evaluate`, or about several, `compare`.

It uses all other subpackages, and no other uses it.
"""

from calibjax.evaluation.assembly import evaluate
from calibjax.evaluation.comparing import compare
from calibjax.evaluation.errors import expected_calibration_errors, residual_spread
from calibjax.evaluation.record import Advice, Entry, Evaluation, Section
from calibjax.evaluation.selection import Repairs, select_recalibration

__all__ = [
    "Advice",
    "Entry",
    "Evaluation",
    "Repairs",
    "Section",
    "compare",
    "evaluate",
    "expected_calibration_errors",
    "residual_spread",
    "select_recalibration",
]


def __dir__() -> list[str]:
    return __all__
