"""Estimators of calibration errors."""

from calibjax.estimators.kernel import (
    calibration_kernel,
    calibration_kernel_matrix,
    skce,
    skce_biased,
    skce_block,
)

__all__ = [
    "calibration_kernel",
    "calibration_kernel_matrix",
    "skce",
    "skce_biased",
    "skce_block",
]
