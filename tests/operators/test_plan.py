"""Plans: which operator is chosen, and operators and kernels of a user's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, estimators, hypothesis_tests, kernels, record
from calibjax.distributions import Bernoulli, Categorical, Normal
from calibjax.hypothesis_tests.redraws import as_means, number_with_pairs
from calibjax.operators.kernel_matrix import LowRank, OnLine, Operator, Tiled
from calibjax.operators.plan import has_many_labels, operator_of, plan_of
from calibjax.operators.tiles import length_of
from tests import oracles

KEY = jax.random.key(0)
TV = distances.TotalVariation()
RNG = np.random.default_rng(0)
PROBS = RNG.uniform(size=300)
VALUES = RNG.normal(size=(3, 300))


@record
class Toeplitz(Operator):
    """K_ij = c_{|i−j|}, by the fast Fourier transform."""

    column: jax.Array

    @property
    def diagonal(self):
        return jnp.full(len(self.column), self.column[0])

    def __matmul__(self, values):
        n = len(self.column)
        around = jnp.concatenate([self.column, self.column[:0:-1]])
        spectrum = jnp.fft.rfft(around)[:, None] * jnp.fft.rfft(values, len(around), axis=0)
        return jnp.fft.irfft(spectrum, len(around), axis=0)[:n]


@record
class Ordered(kernels.Kernel):
    """A kernel on predictions in a row, whose matrix is a Toeplitz matrix."""

    scale: float

    def __call__(self, p, q):
        return jnp.exp(-jnp.square(p.probs - q.probs) / self.scale)

    def operator(self, predictions):
        distance = predictions.probs - predictions.probs[0]
        return Toeplitz(jnp.exp(-jnp.square(distance) / self.scale))


def test_own_operator():
    """In the estimator and in the test, against the same kernel without it."""
    predictions = Bernoulli(np.linspace(0.1, 0.9, 40))
    labels = (RNG.uniform(size=40) < np.asarray(predictions.probs)).astype(int)
    results = []
    for kernel in (Ordered(0.1), kernels.SquaredExponential(0.05**0.5, TV)):
        product = kernels.TensorProduct(kernel, kernels.White())
        test = hypothesis_tests.exact_skce_test(KEY, product, predictions, labels, num_draws=19)
        results.append((estimators.skce(product, predictions, labels), test.pvalue))
    np.testing.assert_allclose(*results, rtol=1e-10)


@pytest.mark.parametrize(
    ("kernel", "predictions", "kind"),
    [
        (kernels.Exponential(0.1, TV), Bernoulli(PROBS), OnLine),
        (kernels.SquaredExponential(0.5, TV), Bernoulli(PROBS), LowRank),
        (kernels.Constant(), Bernoulli(PROBS), LowRank),
        (kernels.Exponential(0.1, TV), Categorical(RNG.dirichlet(np.ones(3), 300)), Tiled),
        (kernels.Exponential(1.0, distances.Wasserstein()), Normal(PROBS, 1 + PROBS), Tiled),
    ],
)
def test_operators_against_the_matrix(kernel, predictions, kind):
    own = operator_of(kernel, predictions, many=True)
    assert isinstance(own, kind)
    matrix = np.asarray(kernels.gram_matrix(kernel, predictions))
    np.testing.assert_allclose(own.diagonal, np.diag(matrix), rtol=1e-12)
    np.testing.assert_allclose(own @ VALUES.T, matrix @ VALUES.T, rtol=0, atol=1e-9)
    off, on = own.forms(jnp.asarray(VALUES))
    expected = np.einsum("ci,ij,cj->c", VALUES, matrix, VALUES)
    np.testing.assert_allclose(on, np.square(VALUES) @ np.diag(matrix), rtol=1e-11)
    np.testing.assert_allclose(off + on, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
    if kind is LowRank:
        sums, on = own.sums_of(lambda args, xs: args * xs.T, 2.0, jnp.asarray(VALUES.T), None)
        found, atol = np.sum(np.square(sums), 0), 1e-8 * abs(expected).max()
        np.testing.assert_allclose(found, 4 * expected, rtol=0, atol=atol)
        np.testing.assert_allclose(on, 4 * np.square(VALUES) @ np.diag(matrix), rtol=1e-8)


def test_traced_predictions_are_planned_by_type_alone():
    def kind(predictions):
        kinds.append(type(operator_of(kernels.SquaredExponential(0.5, TV), predictions, many=True)))
        return jnp.zeros(length_of(predictions))

    kinds = []
    kind(Bernoulli(PROBS))
    jax.jit(kind)(Bernoulli(PROBS))
    assert kinds == [LowRank, Tiled]


@pytest.mark.parametrize("weights", [None, RNG.uniform(0, 2, 64)], ids=["equal", "weights"])
@pytest.mark.parametrize("target", [kernels.PearsonResidual(0.02), kernels.White()])
def test_sums_by_label_against_all_pairs(target, weights):
    """For so many classes that a redraw changes few entries of the residuals."""
    n, random = 64, np.random.default_rng(0)
    probs = random.dirichlet(np.full(80, 0.1), n)
    predictions = Categorical(probs)
    draws = np.array([[random.choice(80, p=p) for p in probs] for _ in range(3)])
    near = kernels.Nystrom(kernels.Exponential(0.5, TV), predictions[:5])
    products = [kernels.TensorProduct(k, target) for k in (near, kernels.Constant())]
    used = None if weights is None else jax.numpy.asarray(weights)
    plan = plan_of([(None, k) for k in products], predictions, draws[0])
    assert has_many_labels(target, predictions)
    n = float(number_with_pairs(predictions, used))
    found = np.array(as_means(n, *plan.sums(predictions, draws, used)))
    w = np.ones(64) if weights is None else weights * n / weights.sum()
    for b, labels in enumerate(draws):
        for k, kernel in enumerate(products):
            h = np.asarray(oracles.calibration_kernel_matrix(kernel, predictions, labels))
            h = h * w[:, None] * w
            diagonal = np.trace(h)
            expected = (h.sum() - diagonal) / (n * (n - 1)), diagonal / n
            np.testing.assert_allclose(found[:, b, k], expected, rtol=1e-10)


def test_forms_on_a_line_in_groups_of_columns(monkeypatch):
    """Of many samples some columns are summed at once; the last group is not full."""
    monkeypatch.setattr("calibjax.operators.kernel_matrix.BLOCK_SIZE", 299)
    operator = operator_of(kernels.Exponential(0.3, TV), Bernoulli(PROBS), many=True)
    assert isinstance(operator, OnLine)
    values = np.random.default_rng(1).normal(size=(19, 300))
    matrix = np.exp(-np.abs(PROBS[:, None] - PROBS) / 0.3)
    off, on = operator.forms(jnp.asarray(values))
    np.testing.assert_allclose(on, np.square(values).sum(1), rtol=1e-12)
    expected = np.einsum("ci,ij,cj->c", values, matrix, values) - on
    np.testing.assert_allclose(off, expected, rtol=1e-9)
