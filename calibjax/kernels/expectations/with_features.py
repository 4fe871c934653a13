"""Expectations under predictions with features, which target kernels do not see."""

import math

from calibjax.distributions.features import WithFeatures
from calibjax.kernels.base import Kernel
from calibjax.kernels.expectations import (
    batch_features,
    centered_kernel,
    check_expectations,
    diagonal_expectation,
    double_expectation,
    features,
    prepare_features,
    register_expectations,
    single_expectation,
)

register_expectations(
    Kernel,
    WithFeatures,
    single=lambda kernel, p, z: single_expectation(kernel, p.distribution, z),
    double=lambda kernel, p, q: double_expectation(kernel, p.distribution, q.distribution),
    centered=lambda kernel, p, y, q, z: centered_kernel(
        kernel, p.distribution, y, q.distribution, z
    ),
    features=(
        lambda kernel, predictions, targets: prepare_features(
            kernel, predictions.distribution, targets
        ),
        lambda kernel, prepared, p, y: features(kernel, prepared, p.distribution, y),
        math.inf,
        lambda kernel, prepared, predictions, targets: batch_features(
            kernel, prepared, predictions.distribution, targets
        ),
    ),
    diagonal=lambda kernel, p: diagonal_expectation(kernel, p.distribution),
    check=lambda kernel, predictions: check_expectations(kernel, predictions.distribution),
)
