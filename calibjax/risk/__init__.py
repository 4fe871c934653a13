"""Calibration estimation functions, their risk, and the choice among them by cross-validation."""

from calibjax.risk.base import EstimationFunction
from calibjax.risk.cross_validation import cross_validate
from calibjax.risk.estimation import (
    estimation_risk,
    estimation_risk_standard_error,
    linear_estimation_risk,
)
from calibjax.risk.pipeline import SquaredCalibrationError, squared_calibration_error
from calibjax.risk.result import CrossValidation, RiskDifference, risk_difference

__all__ = [
    "CrossValidation",
    "EstimationFunction",
    "RiskDifference",
    "SquaredCalibrationError",
    "cross_validate",
    "estimation_risk",
    "estimation_risk_standard_error",
    "linear_estimation_risk",
    "risk_difference",
    "squared_calibration_error",
]
