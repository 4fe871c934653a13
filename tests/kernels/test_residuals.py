import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from calibjax import estimators, kernels
from calibjax.distributions import Bernoulli, Categorical, Gamma, Mixture, Normal
from calibjax.kernels import Constant, Fisher, NormalScore, PearsonResidual, TensorProduct
from calibjax.kernels.expectations import centered_kernel, diagonal_expectation
from calibjax.kernels.residuals import SHAPES, Regressor, Shape, informed
from calibjax.recalibration import AffineScaling, HistogramBinning, PlattScaling, TemperatureScaling

RNG = np.random.default_rng(0)
PROBS, LABELS = RNG.dirichlet(np.ones(4), 30), RNG.integers(0, 4, 30)
LOGS, OWN = np.log(PROBS), np.log(PROBS)[np.arange(30), LABELS]


def classes():
    return Categorical(jnp.asarray(PROBS))


def scores(kernel, predictions, targets):
    return np.asarray(jax.jit(jax.vmap(kernel.score))(predictions, targets))


def test_pearson():
    residuals = (np.eye(4)[LABELS] - PROBS) / np.sqrt(PROBS + 0.02)
    kernel = PearsonResidual(0.02)
    found = centered_kernel(kernel, classes()[0], LABELS[0], classes()[1], LABELS[1])
    np.testing.assert_allclose(found, residuals[0] @ residuals[1], rtol=1e-12)
    expected = np.mean([r @ s for i, r in enumerate(residuals) for s in residuals[:i]])
    found = estimators.skce(TensorProduct(Constant(), kernel), classes(), LABELS)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    each = (np.eye(4) - PROBS[0]) / np.sqrt(PROBS[0] + 0.02)
    expected = PROBS[0] @ np.sum(each**2, 1)
    np.testing.assert_allclose(diagonal_expectation(kernel, classes()[0]), expected)
    mixture = Mixture(None, Categorical(jnp.asarray(np.stack([PROBS, PROBS[::-1]], 1))))
    found = estimators.skce(TensorProduct(Constant(), kernel), mixture, LABELS)
    mean = Categorical(jnp.asarray(0.5 * (PROBS + PROBS[::-1])))
    expected = estimators.skce(TensorProduct(Constant(), kernel), mean, LABELS)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


LOC, SCALE, Y = RNG.normal(size=30), RNG.uniform(0.5, 2, 30), RNG.normal(size=30)
Z, P, ODDS = (Y - LOC) / SCALE, PROBS[:, 0], np.log(PROBS[:, 0]) - np.log1p(-PROBS[:, 0])
PREDICTIONS = {
    "classes": (Categorical(PROBS), LABELS),
    "events": (Bernoulli(P), LABELS % 2),
    "numbers": (Normal(LOC, SCALE), Y),
}
OF_EVENT = np.stack([(LABELS % 2 - P) * ODDS, LABELS % 2 - P], 1)
TEMPERATURE, PLATT = Fisher(TemperatureScaling()), Fisher(PlattScaling())
SCORES = [
    ("classes", TEMPERATURE, ((PROBS * LOGS).sum(1) - OWN)[:, None]),
    # Each class against the rest, normalised.
    (
        "classes",
        Fisher(PlattScaling(), "params.intercept"),
        np.eye(4)[LABELS] * (1 - PROBS) - PROBS * (1 - PROBS),
    ),
    ("events", PLATT, OF_EVENT),
    ("events", Fisher(PlattScaling(), "slope"), OF_EVENT[:, :1]),
    ("events", TEMPERATURE, -OF_EVENT[:, :1]),
    ("numbers", Fisher(AffineScaling()), np.stack([Z, Z**2 - 1], 1)),
    ("numbers", TEMPERATURE, 0.5 * (Z**2 - 1)[:, None]),
]


@pytest.mark.parametrize(("name", "kernel", "expected"), SCORES)
def test_scores(name, kernel, expected):
    np.testing.assert_allclose(scores(kernel, *PREDICTIONS[name]), expected, atol=1e-10)


def test_information():
    """The covariance of the scores under the predictions, on average over these."""
    information = np.mean((PROBS * LOGS**2).sum(1) - (PROBS * LOGS).sum(1) ** 2)
    found = informed(TEMPERATURE, PREDICTIONS["classes"][0]).information
    np.testing.assert_allclose(found, [[information]], rtol=1e-10)
    kernel = informed(Fisher(AffineScaling()), PREDICTIONS["numbers"][0])
    np.testing.assert_allclose(kernel.information, [[1, 0], [0, 2]], atol=1e-9)
    first = PREDICTIONS["numbers"][0][0]
    norms = [diagonal_expectation(x, first) for x in (Fisher(AffineScaling()), kernel)]
    np.testing.assert_allclose(norms, [1 + 2, 2], rtol=1e-6)  # the second is standardised


def test_shapes():
    """Of mean zero and variance one; skewness does not see shifts."""

    def log_density(skewness, x):
        """Of sinh-arcsinh distributions, Jones and Pewsey (2009), eq. (2)."""
        s = jnp.sinh(jnp.arcsinh(x) - skewness)
        return 0.5 * jnp.log1p(s**2) - 0.5 * jnp.log1p(x**2) - s**2 / 2

    x, weights = np.polynomial.legendre.leggauss(120)
    x, weights = 9 * x, 9 * weights * np.exp(-40.5 * x**2) / np.sqrt(2 * np.pi)
    standard = Normal(jnp.zeros(()), jnp.ones(()))
    found = {
        kernel.of: jax.jit(jax.vmap(lambda s, k=kernel: k.residual(standard, s)[0]))(x)
        for kernel in map(Shape, SHAPES)
    }
    for values in found.values():
        np.testing.assert_allclose([weights @ values, weights @ values**2], [0, 1], atol=1e-9)
    score = np.asarray(jax.jit(jax.vmap(lambda s: jax.grad(log_density)(0.0, s)))(x))
    score = score - weights @ (score * x) * x
    expected = score / np.sqrt(weights @ score**2)
    np.testing.assert_allclose(found["skewness"], expected, rtol=1e-8, atol=1e-8)
    levels = 2 * scipy.stats.norm.cdf(x) - 1
    expected = 3 * np.polynomial.legendre.legval(levels, [0, 0, 0, 0, 1])
    np.testing.assert_allclose(found["peakedness"], expected, rtol=1e-9, atol=1e-9)
    moved = Shape().residual(Normal(jnp.array(3e7), jnp.array(1e7)), 5e7)
    np.testing.assert_allclose(moved, Shape().residual(standard, 2.0), rtol=1e-12)
    assert diagonal_expectation(NormalScore(Shape()), standard) == 1


def test_certain_predictions_have_finite_scores():
    probs = jnp.asarray([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]], jnp.float32)
    labels = jnp.array([0, 1])

    def total(probs):
        return jnp.sum(jax.vmap(Fisher(TemperatureScaling()).score)(Categorical(probs), labels))

    assert all(np.isfinite(x).all() for x in jax.jit(jax.value_and_grad(total))(probs))
    certain = Bernoulli(jnp.asarray([0.0, 1.0, 1.0], jnp.float32))
    for method in (TemperatureScaling(), PlattScaling()):
        found = scores(Fisher(method), certain, jnp.array([1, 0, 1]))
        assert np.isfinite(found).all()


def test_predictions_without_residuals_are_refused():
    ones = jnp.ones(4)
    for kernel, predictions, targets, error in (
        (PearsonResidual(), Normal(ones, ones), ones, "no Pearson residuals under Normal"),
        (Shape(), classes(), LABELS, "no shape of Categorical predictions"),
        (Fisher(HistogramBinning(2)), classes(), LABELS, "HistogramBinning does not define"),
    ):
        with pytest.raises(NotImplementedError, match=error):
            estimators.skce(TensorProduct(Constant(), kernel), predictions, targets)
    kernel = TensorProduct(Constant(), NormalScore(Fisher(AffineScaling())))
    assert np.isfinite(estimators.skce(kernel, Gamma(ones, ones), ones))


@pytest.mark.parametrize("of", ["location", "log scale"])
@pytest.mark.parametrize("unit", [1.0, 1e-7, 1e7])
def test_against_numpy(of, unit):
    values = LOC if of == "location" else np.log(SCALE)
    x = (values - values.mean()) / values.std()
    predictions = Normal(jnp.asarray(unit * LOC), jnp.asarray(unit * SCALE))
    kernel = Regressor.among(predictions, of)
    np.testing.assert_allclose(kernels.gram_matrix(kernel, predictions), np.outer(x, x), atol=1e-9)
    np.testing.assert_allclose(kernel.factor(predictions)[:, 0], x, rtol=1e-8)


def test_moments_and_equal_predictions():
    gamma = Gamma(jnp.array([1.0, 2.0, 6.0]), jnp.array([2.0, 1.0, 3.0]))
    means = np.array([0.5, 2.0, 2.0])
    x = (means - means.mean()) / means.std()
    found = Regressor.among(gamma, "location").factor(gamma)
    np.testing.assert_allclose(found[:, 0], x, rtol=1e-9)
    equal = Normal(jnp.zeros(4, np.float32), jnp.full(4, 0.1, np.float32))
    found = kernels.gram_matrix(Regressor.among(equal, "log scale"), equal)
    assert (np.asarray(found) == 0).all()
    assert found.dtype == np.float32
