"""Estimators of calibration errors."""

from calibjax.estimators.binned import ece, median_variance_bins, uniform_bins
from calibjax.estimators.kernel import (
    calibration_kernel,
    calibration_kernel_matrix,
    skce,
    skce_biased,
    skce_block,
)
from calibjax.estimators.mean_embedding import embedding_difference, ucme

__all__ = [
    "calibration_kernel",
    "calibration_kernel_matrix",
    "ece",
    "embedding_difference",
    "median_variance_bins",
    "skce",
    "skce_biased",
    "skce_block",
    "ucme",
    "uniform_bins",
]
