"""Predictions and kernels of the question whether one model is right given another one."""

from typing import Any

from calibjax.distances import Features
from calibjax.distributions import with_features
from calibjax.distributions.base import Distribution
from calibjax.distributions.features import bare
from calibjax.kernels import SquaredExponential, TensorProduct
from calibjax.kernels.base import without_draws
from calibjax.kernels.default_scales import distance_of_predictions, typical_distance


def kernel_given(kernel: Any, given: Distribution) -> TensorProduct:
    """The kernel k_P k_Q k_Y, where k_Q looks at the predictions of the other model."""
    distance = distance_of_predictions(given)
    nearness = SquaredExponential(typical_distance(distance, given), Features(distance))
    return TensorProduct(kernel.prediction * nearness, kernel.target)


def predictions_given(predictions: Distribution, given: Distribution) -> Any:
    """Predictions with those of the other model as features."""
    return with_features(predictions, without_draws(bare(given)))
