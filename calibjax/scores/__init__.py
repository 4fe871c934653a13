"""Scores of predictions, mostly sample means of a function of prediction and target.

Smaller is better, except for `accuracy` and `prediction_rejection_ratio`. A proper score mixes
calibration and sharpness; the estimators and tests of calibration do not.

The calibration errors that are often reported as scores, ECE and MCE, are `estimators.ece` and
`estimators.mce`.
"""

from calibjax.scores.decomposition import (
    ScoreDecomposition,
    brier_decomposition,
    crps_decomposition,
)
from calibjax.scores.draws import energy_score, fair_crps, fair_energy_score
from calibjax.scores.murphy import MurphyCurve, murphy_curve
from calibjax.scores.point import accuracy, mean_squared_error
from calibjax.scores.proper import brier_score, negative_log_likelihood
from calibjax.scores.quantile import pinball_loss
from calibjax.scores.ranked_probability import crps
from calibjax.scores.rejection import prediction_rejection_ratio
from calibjax.scores.sharpness import interval_widths

__all__ = [
    "MurphyCurve",
    "ScoreDecomposition",
    "accuracy",
    "brier_decomposition",
    "brier_score",
    "crps",
    "crps_decomposition",
    "energy_score",
    "fair_crps",
    "fair_energy_score",
    "interval_widths",
    "mean_squared_error",
    "murphy_curve",
    "negative_log_likelihood",
    "pinball_loss",
    "prediction_rejection_ratio",
]


def __dir__() -> list[str]:
    return __all__
