"""Scores of predictions: means over the samples of a function of prediction and target.

Smaller is better, but for `accuracy`. A proper score mixes calibration and sharpness; the
estimators and tests of calibration do not.
"""

from calibjax.scores.point import accuracy, mean_squared_error
from calibjax.scores.proper import brier_score, negative_log_likelihood
from calibjax.scores.quantile import pinball_loss
from calibjax.scores.ranked_probability import crps, pointwise_crps

__all__ = [
    "accuracy",
    "brier_score",
    "crps",
    "mean_squared_error",
    "negative_log_likelihood",
    "pinball_loss",
    "pointwise_crps",
]
