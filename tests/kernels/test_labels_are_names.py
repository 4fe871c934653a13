import jax.numpy as jnp
import pytest

from calibjax import estimators, kernels
from calibjax.distributions import Categorical

PROBS = jnp.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]])
LABELS = jnp.array([0, 2, 1])


@pytest.mark.parametrize("inner", [kernels.White(), kernels.LabelKernel(jnp.eye(3))])
def test_scaled_labels_are_refused(inner):
    kernel = kernels.TensorProduct(kernels.Exponential(), kernels.Transformed(2.0, inner))
    with pytest.raises(ValueError, match="cannot be scaled or mapped, got Transformed"):
        estimators.skce(kernel, Categorical(PROBS), LABELS)
