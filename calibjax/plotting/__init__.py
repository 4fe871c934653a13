"""Figures, drawn with matplotlib, which is imported when one of them is drawn."""

from calibjax.plotting.bands import (
    interval_coverage_curve,
    pit_ecdf,
    pit_histogram,
    reliability_diagram,
)
from calibjax.plotting.decomposition import score_decomposition
from calibjax.plotting.histograms import (
    null_distribution,
    pvalue_ecdf,
)
from calibjax.plotting.isotonic import isotonic_diagram, murphy_diagram
from calibjax.plotting.local_errors import local_error_map
from calibjax.plotting.maps import group_errors, witness_map
from calibjax.plotting.over_time import wealth

__all__ = [
    "group_errors",
    "interval_coverage_curve",
    "isotonic_diagram",
    "local_error_map",
    "murphy_diagram",
    "null_distribution",
    "pit_ecdf",
    "pit_histogram",
    "pvalue_ecdf",
    "reliability_diagram",
    "score_decomposition",
    "wealth",
    "witness_map",
]


def __dir__() -> list[str]:
    return __all__
