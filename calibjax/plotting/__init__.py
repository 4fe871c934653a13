"""Figures, drawn with matplotlib, which is imported when one of them is drawn."""

from calibjax.plotting.histograms import estimate_histogram
from calibjax.plotting.reliability import ReliabilityCurve, reliability_curve, reliability_diagram

__all__ = ["ReliabilityCurve", "estimate_histogram", "reliability_curve", "reliability_diagram"]
