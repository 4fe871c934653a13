"""Figures, drawn with matplotlib, which is imported when one of them is drawn."""

from calibjax.plotting.histograms import estimate_histogram

__all__ = ["estimate_histogram"]
