"""Calibration estimation functions, their risk, and the choice among them by cross-validation."""

from calibjax.risk.base import EstimationFunction
from calibjax.risk.binning import BinResiduals, binning_function
from calibjax.risk.cross_validation import cross_validate
from calibjax.risk.estimation import (
    estimation_risk,
    estimation_risk_standard_error,
    linear_estimation_risk,
)
from calibjax.risk.grids import (
    bandwidth_grid,
    bin_number_grid,
    kernel_ridge_grid,
    two_step_kernel_ridge_grid,
)
from calibjax.risk.kernel_density import KernelDensities, kernel_density_function
from calibjax.risk.kernel_ridge import (
    KernelRidge,
    TwoStepKernelRidge,
    kernel_ridge_function,
    two_step_kernel_ridge_function,
)
from calibjax.risk.pipeline import SquaredCalibrationError, squared_calibration_error
from calibjax.risk.result import CrossValidation, RiskDifference, risk_difference
from calibjax.risk.temperature import Temperature, temperature_function

__all__ = [
    "BinResiduals",
    "CrossValidation",
    "EstimationFunction",
    "KernelDensities",
    "KernelRidge",
    "RiskDifference",
    "SquaredCalibrationError",
    "Temperature",
    "TwoStepKernelRidge",
    "bandwidth_grid",
    "bin_number_grid",
    "binning_function",
    "cross_validate",
    "estimation_risk",
    "estimation_risk_standard_error",
    "kernel_density_function",
    "kernel_ridge_function",
    "kernel_ridge_grid",
    "linear_estimation_risk",
    "risk_difference",
    "squared_calibration_error",
    "temperature_function",
    "two_step_kernel_ridge_function",
    "two_step_kernel_ridge_grid",
]
