"""Scores of predictions, mostly sample means of a function of prediction and target.

Smaller is better, except for `accuracy` and `prediction_rejection_ratio`. A proper score mixes
calibration and sharpness; the estimators and tests of calibration do not.

The calibration errors that are often reported as scores, ECE and MCE, are `estimators.ece` and
`estimators.mce`.
"""

from calibjax.scores.decomposition import brier_decomposition, crps_decomposition
from calibjax.scores.draws import energy_score
from calibjax.scores.murphy import murphy_curve
from calibjax.scores.point import accuracy, mean_squared_error
from calibjax.scores.proper import brier_score, negative_log_likelihood
from calibjax.scores.quantile import interval_score, pinball_loss
from calibjax.scores.ranked_probability import crps, ranked_probability_score
from calibjax.scores.rejection import prediction_rejection_ratio

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
    "prediction_rejection_ratio",
    "ranked_probability_score",
]


def __dir__() -> list[str]:
    return __all__
