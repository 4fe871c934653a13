"""Scores of predictions, mostly sample means of a function of prediction and target.

Smaller is better, except for `accuracy` and `decomposition.prediction_rejection_ratio`. A proper
score mixes calibration and sharpness; estimators and tests of calibration do not. For ECE and MCE,
see `estimators.ece` and `estimators.mce`.
"""

from calibjax.scores.decomposition import brier_decomposition, crps_decomposition, murphy_curve
from calibjax.scores.proper import (
    accuracy,
    brier_score,
    crps,
    energy_score,
    interval_score,
    mean_squared_error,
    negative_log_likelihood,
    pinball_loss,
    ranked_probability_score,
)

__all__ = [
    "accuracy",
    "brier_decomposition",
    "brier_score",
    "crps",
    "crps_decomposition",
    "energy_score",
    "interval_score",
    "mean_squared_error",
    "murphy_curve",
    "negative_log_likelihood",
    "pinball_loss",
    "ranked_probability_score",
]


def __dir__() -> list[str]:
    return __all__
