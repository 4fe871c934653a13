"""Figures, drawn with matplotlib, which is imported when one of them is drawn."""

from calibjax.plotting.curves import bandwidth_curves, reward_curves
from calibjax.plotting.histograms import estimate_histogram
from calibjax.plotting.local_errors import local_error_distribution, local_error_map
from calibjax.plotting.reliability import reliability_diagram
from calibjax.plotting.risk import estimate_comparison, risk_curve
from calibjax.plotting.witness import witness_map

__all__ = [
    "bandwidth_curves",
    "estimate_comparison",
    "estimate_histogram",
    "local_error_distribution",
    "local_error_map",
    "reliability_diagram",
    "reward_curves",
    "risk_curve",
    "witness_map",
]
