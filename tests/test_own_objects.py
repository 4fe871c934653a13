"""Functions and objects of a user: what they compute, and what cannot be used."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import (
    distances,
    distributions,
    estimators,
    hypothesis_tests,
    kernels,
    recalibration,
    record,
)
from calibjax.distributions import Bernoulli, Categorical, constraints, parameter
from calibjax.kernels import Exponential, SquaredExponential, TensorProduct, White
from calibjax.kernels.stationary import PowerExponential

KEY = jax.random.key(0)
PROBS, LABELS = jnp.full((6, 3), 1 / 3), jnp.array([0, 1, 2, 0, 1, 2])
DATA = Categorical(PROBS), LABELS
BINS = estimators.UniformBins(2)
OF_FUNCTIONS = {
    "statistic": lambda f: hypothesis_tests.exact_test(KEY, f, *DATA),
    "distance": lambda f: estimators.ece(*DATA, binning=BINS, distance=f),
    "binning": lambda f: estimators.ece(*DATA, binning=f),
    "kernel": lambda f: kernels.gram_matrix(f, PROBS),
    "loss": lambda f: recalibration.TemperatureScaling(f).fit(*DATA),
}


@pytest.mark.parametrize("name", OF_FUNCTIONS)
def test_errors_of_own_functions_arrive_as_they_are(name):
    def function(x, y=None):
        raise TypeError("missing 1 required positional argument")

    with pytest.raises(TypeError, match="^missing 1 required positional argument") as raised:
        OF_FUNCTIONS[name](function)
    assert [entry.name for entry in raised.traceback][-1] == "function"


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
@pytest.mark.parametrize(
    "predictions",
    [
        DATA[0],
        distributions.CategoricalLogits(jnp.log(PROBS)),
        Bernoulli(PROBS[:, 0]),
        distributions.Mixture(None, Categorical(jnp.stack([PROBS, PROBS], 1))),
        distributions.monte_carlo(KEY, DATA[0], 2),
    ],
    ids=["categorical", "logits", "Bernoulli", "mixture", "draws"],
)
def test_distances_between_labels_are_refused(predictions, wrap):
    for target in (
        SquaredExponential(),
        2.0 * Exponential(1.0, distances.Manhattan()) + White(),
        White() * PowerExponential(),
        Exponential(1.0, distances.Manhattan(mean=True)),
    ):
        kernel = TensorProduct(Exponential(), target)
        with pytest.raises(ValueError, match=r"kernel.target: expected .* LabelKernel\(gram_"):
            wrap(functools.partial(estimators.skce, kernel))(predictions, LABELS % 2)


@record
class RationalQuadratic(kernels.Kernel):
    alpha: jax.Array | float = parameter(constraints.positive, default=1.0)

    def __call__(self, x, y):
        return (1 + (x - y) ** 2 / 2 / self.alpha) ** -self.alpha


def test_constraints_of_a_kernel():
    matrix = lambda alpha: kernels.gram_matrix(RationalQuadratic(alpha), jnp.arange(3.0))  # noqa: E731
    with pytest.raises(
        ValueError, match="kernel.alpha: expected positive finite values .*, got .*-1"
    ):
        matrix(-1.0)
    assert np.isnan(jax.jit(matrix)(-1.0)).all()
    np.testing.assert_allclose(jax.jit(matrix)(2.0)[0, 2], (1 + 4 / 4) ** -2)


def test_distances_that_redefine_one_method_of_another():
    @record
    class Halved(distances.Wasserstein):
        def squared(self, p, q):
            return 0.25 * super().squared(p, q)

    p, q = distributions.Normal(0.0, 1.0), distributions.Normal(3.0, 1.0)
    assert float(Halved()(p, q)) == pytest.approx(1.5)
    assert float(Exponential(1.0, Halved())(p, q)) == pytest.approx(np.exp(-1.5))
    assert float(SquaredExponential(1.0, Halved())(p, q)) == pytest.approx(np.exp(-1.125))


@record
class WeightedSum(kernels.Kernel):
    """A kernel on vectors with a vector of weights."""

    weights: jax.Array = parameter(constraints.simplex)

    def __call__(self, x, y):
        return jnp.sum(self.weights * x * y)


def test_vectors_in_a_kernel():
    matrix = kernels.gram_matrix(WeightedSum(jnp.array([0.25, 0.75])), jnp.array([[1.0, 2.0]]))
    np.testing.assert_allclose(matrix, [[3.25]])
    with pytest.raises(ValueError, match=r"kernel.weights.sum\(-1\): expected rows that sum"):
        kernels.gram_matrix(WeightedSum(jnp.array([0.25, 0.5])), jnp.array([[1.0, 2.0]]))
