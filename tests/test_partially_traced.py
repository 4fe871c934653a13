"""Under `jit` some arguments may be known while others are traced: every subset must work."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, estimators, hypothesis_tests, kernels, record

# Of draws, for which there is another test.
pytestmark = pytest.mark.filterwarnings("ignore:.*resampled from the draws.*:UserWarning")

N = 8


@record
class BetweenMeans(distances.Distance):
    """The distance between the means of two predictions, of any family."""

    def __call__(self, p, q):
        return jnp.sum(jnp.abs(_mean(p) - _mean(q)))


def _mean(p):
    return p.class_probs if hasattr(p, "class_probs") else p.mean()


@functools.cache
def _families():
    y, labels = jnp.linspace(0.1, 0.9, N), jnp.arange(N) % 3
    vectors = jnp.stack([y, y**2], 1)
    probs = jnp.stack([y, 1 - y, y], 1) / (1 + y[:, None])
    covariances = jnp.broadcast_to(jnp.eye(2), (N, 2, 2))
    smooth, white, labelled = kernels.SquaredExponential(), kernels.White(), jnp.eye(3)
    normal, normals = distributions.Normal(y, y), distributions.Normal(vectors, vectors)
    return {
        "Normal": (smooth, normal, y),
        "DiagNormal": (smooth, distributions.DiagNormal(vectors, vectors), vectors),
        "MvNormal": (smooth, distributions.MvNormal(vectors, covariances), vectors),
        "Laplace": (kernels.Exponential(), distributions.Laplace(y, y), y),
        "Bernoulli": (white, distributions.Bernoulli(y), labels % 2),
        "Categorical": (white, distributions.Categorical(probs), labels),
        "Categorical, matrix": (
            kernels.LabelKernel(labelled),
            distributions.Categorical(probs),
            labels,
        ),
        "Poisson": (smooth, distributions.Poisson(y), labels),
        "Poisson, White": (white, distributions.Poisson(y), labels),
        "Beta": (smooth, distributions.Beta(y, y), y),
        "Mixture": (smooth, distributions.Mixture(jnp.full((N, 2), 0.5), normals), y),
        "Ensemble": (smooth, distributions.Ensemble(vectors), y),
        "Monte Carlo": (smooth, distributions.monte_carlo(jax.random.key(1), normal, 3), y),
    }


FAMILIES = (
    *("Normal", "Normal, scaled", "DiagNormal", "MvNormal", "Laplace", "Bernoulli", "Categorical"),
    *("Categorical, matrix", "Poisson", "Poisson, White", "Beta", "Mixture", "Ensemble"),
    "Monte Carlo",
)


def _arguments(family):
    target, predictions, targets = _families()[family]
    kernel = kernels.TensorProduct(kernels.Exponential(1.0, BetweenMeans()), target)
    return jax.random.key(0), kernel, predictions, targets


def _with_traced(function, arguments, traced):
    """The function of the traced arguments alone, and these."""

    def partial(*values):
        given = list(arguments)
        for place, value in zip(traced, values, strict=True):
            given[place] = value
        return function(*given)

    return partial, [arguments[place] for place in traced]


def _exact(key, kernel, predictions, targets):
    result = hypothesis_tests.exact_skce_test(key, kernel, predictions, targets, num_draws=9)
    return result.pvalue, result.estimate


@pytest.mark.parametrize("family", FAMILIES)
def test_each_argument_can_be_the_only_traced_one(family):
    arguments = _arguments(family)
    for traced in ((0,), (1,), (2,), (3,)):
        function, values = _with_traced(_exact, arguments, traced)
        assert [leaf.shape for leaf in jax.eval_shape(function, *values)] == [(), ()]


def test_kernels_that_beta_predictions_refuse_make_nan_where_the_data_are_traced():
    _, kernel, *data = _arguments("Beta")
    narrow = kernels.TensorProduct(kernel.prediction, kernels.SquaredExponential(1e-3))
    assert np.isnan(jax.jit(lambda *data: estimators.skce(narrow, *data))(*data))


def test_known_logits_where_something_else_is_traced():
    predictions = distributions.CategoricalLogits(np.array([[0.0, 1.0], [2.0, 0.5], [0.3, 0.1]]))
    kernel = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    value = lambda scale: scale * estimators.skce(kernel, predictions, np.array([0, 1, 1]))  # noqa: E731
    np.testing.assert_allclose(jax.jit(value)(2.0), 2 * value(1.0), rtol=1e-12)
