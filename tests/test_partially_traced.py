"""Under `jit` some arguments may be known while others are traced: every subset must work."""

import jax
import numpy as np
import pytest

from calibjax import distributions, estimators, kernels
from tests.registry.families import FAMILIES


def test_kernels_that_beta_predictions_refuse_where_the_data_are_traced():
    family = FAMILIES["Beta"]
    data = family.make(*(one.value for one in family.parameters.values())), family.targets.value
    narrow = kernels.TensorProduct(family.prediction_kernel, kernels.SquaredExponential(1e-3))
    with pytest.raises(ValueError, match="expected a length scale >= 0.04 for Beta predictions"):
        jax.jit(lambda *data: estimators.skce(narrow, *data))(*data)


def test_known_logits_where_something_else_is_traced():
    predictions = distributions.CategoricalLogits(np.array([[0.0, 1.0], [2.0, 0.5], [0.3, 0.1]]))
    kernel = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    value = lambda scale: scale * estimators.skce(kernel, predictions, np.array([0, 1, 1]))  # noqa: E731
    np.testing.assert_allclose(jax.jit(value)(2.0), 2 * value(1.0), rtol=1e-12)
