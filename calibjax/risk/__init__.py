"""Calibration estimation functions, their risk, and the choice among them by cross-validation."""

from calibjax.risk.base import EstimationFunction
from calibjax.risk.estimation import (
    estimation_risk,
    estimation_risk_standard_error,
    linear_estimation_risk,
)

__all__ = [
    "EstimationFunction",
    "estimation_risk",
    "estimation_risk_standard_error",
    "linear_estimation_risk",
]
