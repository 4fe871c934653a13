import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, estimators, kernels
from calibjax.distributions import Bernoulli, Categorical

PROBS = jnp.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]])
LABELS = jnp.array([0, 2, 1])


@pytest.mark.parametrize(
    "distance",
    [
        distances.Euclidean(),
        distances.SquaredEuclidean(),
        distances.Manhattan(),
        distances.MeanAbsoluteDifference(),
    ],
)
def test_distances_between_labels_are_refused(distance):
    target = kernels.Exponential(1.0, distance)
    for predictions in (Categorical(PROBS), Bernoulli(PROBS[:, 0])):
        kernel = kernels.TensorProduct(kernels.Exponential(), kernels.White() + 2.0 * target)
        with pytest.raises(ValueError, match=r"kernel.target: .* takes the labels 0, ..., \d for"):
            estimators.skce(kernel, predictions, LABELS % predictions.class_probs.shape[1])
    matrix = kernels.gram_matrix(target, jnp.arange(3.0))
    kernel = kernels.TensorProduct(kernels.Exponential(), kernels.LabelKernel(matrix))
    assert np.isfinite(estimators.skce(kernel, Categorical(PROBS), LABELS))


@pytest.mark.parametrize("inner", [kernels.White(), kernels.LabelKernel(jnp.eye(3))])
def test_scaled_labels_are_refused(inner):
    kernel = kernels.TensorProduct(kernels.Exponential(), kernels.Linear(2.0, inner))
    with pytest.raises(ValueError, match="cannot be scaled or mapped, got Linear"):
        estimators.skce(kernel, Categorical(PROBS), LABELS)
