"""Under `jit` some arguments may be known while others are traced: every subset must work."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, estimators, hypothesis_tests, kernels, record, risk

# Of draws, for which there is another test.
pytestmark = pytest.mark.filterwarnings("ignore:.*redrawn from the draws:UserWarning")

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
        "Normal, scaled": (kernels.Transformed(2.0, smooth), normal, y),
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
        "Samples": (smooth, distributions.Samples(vectors), y),
        "Monte Carlo": (smooth, distributions.monte_carlo(jax.random.key(1), normal, 3), y),
    }


FAMILIES = (
    *("Normal", "Normal, scaled", "DiagNormal", "MvNormal", "Laplace", "Bernoulli", "Categorical"),
    *("Categorical, matrix", "Poisson", "Poisson, White", "Beta", "Mixture", "Samples"),
    "Monte Carlo",
)


def _arguments(family):
    target, predictions, targets = _families()[family]
    kernel = kernels.TensorProduct(kernels.Exponential(1.0, BetweenMeans()), target)
    return jax.random.key(0), kernel, predictions, targets


def _subsets(arguments):
    """All choices of arguments that are traced, but for none of them."""
    sizes = range(1, len(arguments) + 1)
    places = range(len(arguments))
    return itertools.chain.from_iterable(itertools.combinations(places, size) for size in sizes)


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


def _check_values(family, subsets):
    arguments = _arguments(family)
    expected = _exact(*arguments)
    for traced in subsets:
        function, values = _with_traced(_exact, arguments, traced)
        pvalue, estimate = jax.jit(function)(*values)
        np.testing.assert_allclose(pvalue, expected[0], rtol=1e-12)
        np.testing.assert_allclose(estimate, expected[1], rtol=1e-9, atol=1e-13)


@pytest.mark.slow
def test_values_where_only_the_key_is_traced():
    _check_values("Poisson", [(0,)])


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_values_for_every_subset(family):
    _check_values(family, _subsets(range(4)))


def test_kernels_that_beta_predictions_refuse_are_refused_where_the_data_are_traced():
    _, kernel, *data = _arguments("Beta")
    narrow = kernels.TensorProduct(kernel.prediction, kernels.SquaredExponential(1e-3))
    with pytest.raises(ValueError, match="kernel.target: expected a kernel that polynomials"):
        jax.jit(lambda *data: estimators.skce(narrow, *data))(*data)


CONFIDENCES = np.linspace(0.05, 0.95, 40)
CORRECT = np.arange(40) % 3 > 0


@pytest.mark.slow
def test_kernel_ridge():
    function = risk.TwoStepKernelRidge()

    def diagonal(predictions, targets, penalty):
        return function.diagonal(function.fit(predictions, targets, penalty), predictions[:4])

    arguments = jnp.asarray(CONFIDENCES), jnp.asarray(CORRECT), 1e-3
    expected = diagonal(*arguments)
    for traced in _subsets(arguments):
        partial, values = _with_traced(diagonal, arguments, traced)
        assert jax.eval_shape(partial, *values).shape == (4,)
    partial, values = _with_traced(diagonal, arguments, (1,))
    np.testing.assert_allclose(jax.jit(partial)(*values), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_cross_validation():
    function = risk.KernelRidge()

    def risks(key, grid, predictions, targets):
        return risk.cross_validate(key, function, grid, predictions, targets, num_folds=4).risk

    arguments = (
        jax.random.key(0),
        jnp.array([1e-3, 1e-1]),
        *map(jnp.asarray, (CONFIDENCES, CORRECT)),
    )
    expected = risks(*arguments)
    for traced in _subsets(arguments):
        partial, values = _with_traced(risks, arguments, traced)
        assert jax.eval_shape(partial, *values).shape == (2,)
    for traced in ((0,), (3,)):
        partial, values = _with_traced(risks, arguments, traced)
        np.testing.assert_allclose(jax.jit(partial)(*values), expected, rtol=1e-6)
