"""Figures, drawn with matplotlib, which is imported when one of them is drawn."""

from calibjax.plotting.bands import (
    coverage_curve,
    pit_ecdf,
    pit_histogram,
    reliability_diagram,
)
from calibjax.plotting.decomposition import score_decomposition
from calibjax.plotting.histograms import (
    null_distribution,
    pvalue_ecdf,
)
from calibjax.plotting.local_errors import local_error_map
from calibjax.plotting.maps import group_errors, witness_map
from calibjax.plotting.murphy import murphy_diagram
from calibjax.plotting.over_time import e_process_wealth

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
