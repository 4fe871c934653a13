"""Figures, drawn with matplotlib, which is imported at the first figure."""

from calibjax.plotting.diagrams import (
    coverage_curve,
    e_process_wealth,
    murphy_diagram,
    null_distribution,
    pit_ecdf,
    pit_histogram,
    pvalue_ecdf,
    reliability_diagram,
    score_decomposition,
)
from calibjax.plotting.maps import group_errors, local_error_map, witness_map

__all__ = [
    "coverage_curve",
    "e_process_wealth",
    "group_errors",
    "local_error_map",
    "murphy_diagram",
    "null_distribution",
    "pit_ecdf",
    "pit_histogram",
    "pvalue_ecdf",
    "reliability_diagram",
    "score_decomposition",
    "witness_map",
]


def __dir__() -> list[str]:
    return __all__
