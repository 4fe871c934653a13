"""Under `jit` some arguments may be known while others are traced: every subset must work."""

import jax
import numpy as np
import pytest

from calibjax import distributions, estimators, hypothesis_tests, kernels
from tests.registry.families import FAMILIES

# Of draws, for which there is another test.
pytestmark = pytest.mark.filterwarnings("ignore:.*resampled from the draws.*:UserWarning")


def _exact(key, kernel, predictions, targets):
    result = hypothesis_tests.exact_skce_test(key, kernel, predictions, targets, num_draws=9)
    return result.pvalue, result.estimate


@pytest.mark.parametrize("name", [*FAMILIES, "Monte Carlo"])
def test_each_argument_can_be_the_only_traced_one(name):
    family = FAMILIES["Normal" if name == "Monte Carlo" else name]
    predictions = family.make(*(one.value for one in family.parameters.values()))
    if name == "Monte Carlo":
        predictions = distributions.monte_carlo(jax.random.key(1), predictions, 3)
    arguments = [jax.random.key(0), family.kernel, predictions, family.targets.value]
    for place in range(4):

        def function(value, place=place):
            return _exact(*arguments[:place], value, *arguments[place + 1 :])

        found = jax.eval_shape(function, arguments[place])
        assert [leaf.shape for leaf in found] == [(), ()]


def test_kernels_that_beta_predictions_refuse_make_nan_where_the_data_are_traced():
    family = FAMILIES["Beta"]
    data = family.make(*(one.value for one in family.parameters.values())), family.targets.value
    narrow = kernels.TensorProduct(family.prediction_kernel, kernels.SquaredExponential(1e-3))
    assert np.isnan(jax.jit(lambda *data: estimators.skce(narrow, *data))(*data))


def test_known_logits_where_something_else_is_traced():
    predictions = distributions.CategoricalLogits(np.array([[0.0, 1.0], [2.0, 0.5], [0.3, 0.1]]))
    kernel = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    value = lambda scale: scale * estimators.skce(kernel, predictions, np.array([0, 1, 1]))  # noqa: E731
    np.testing.assert_allclose(jax.jit(value)(2.0), 2 * value(1.0), rtol=1e-12)
