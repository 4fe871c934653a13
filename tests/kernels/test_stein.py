import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from calibjax import distributions as D
from calibjax import estimators, hypothesis_tests, kernels, record
from calibjax.distances import Euclidean
from calibjax.distributions.continuous import GeneralizedNormal
from calibjax.kernels import Exponential, SquaredExponential, Stein, TensorProduct
from calibjax.kernels.expectations import centered_kernel

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
BUMPS = D.Normal(np.array([-1.0, 1.0]), np.array([0.5, 1.0]))
# Two members of each family, and the ends of the support.
FAMILIES = {
    "normal": (D.Normal(0.0, 1.0), D.Normal(0.5, 2.0), (-12, 12)),
    "Laplace": (D.Laplace(0.0, 1.0), D.Laplace(0.5, 2.0), (-30, 30)),
    "Student": (D.StudentT(3.0, 0.0, 1.0), D.StudentT(2.0, 0.5, 2.0), (-3000, 3000)),
    "decreasing gamma": (D.Gamma(0.7, 1.0), D.Gamma(2.0, 2.0), (0, 40)),
    "gamma": (D.Gamma(3.0, 1.0), D.Gamma(2.0, 2.0), (0, 50)),
    "log-normal": (D.LogNormal(0.0, 0.6), D.LogNormal(0.3, 0.5), (0, 60)),
    "beta": (D.Beta(0.8, 0.7), D.Beta(1.5, 2.0), (0, 1)),
    "generalised normal": (
        GeneralizedNormal(0.0, 1.0, 3.0),
        GeneralizedNormal(0.0, 2.0, 3.0),
        (-8, 8),
    ),
    "mixture": (
        D.Mixture(np.array([0.3, 0.7]), BUMPS),
        D.Mixture(np.array([0.5, 0.5]), BUMPS),
        (-9, 9),
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_expectations_vanish(family):
    """E h(Y, z) by quadrature, in units of E |h(Y, z)|."""
    p, q, (low, high) = jax.tree.map(jnp.asarray, FAMILIES[family])
    kernel = Stein(SquaredExponential(1.3))

    @jax.jit
    def product(y):
        return jnp.exp(p.log_prob(y)) * centered_kernel(kernel, p, y, q, jnp.asarray(0.7))

    points = [x for x in (-1.0, 0.0, 0.01, 0.5, 1.0, 5.0) if low < x < high]
    options = {"points": points, "limit": 200, "epsabs": 1e-10}
    value = quad(lambda y: float(product(y)), low, high, **options)[0]
    size = quad(lambda y: abs(float(product(y))), low, high, **options)[0]
    assert size > 0.01
    assert abs(value) < 1e-6 * size


def test_vectors_against_derivatives_on_paper():
    cov = np.array([[2.0, 0.5], [0.5, 1.0]])
    y, z = RNG.normal(size=(2, 2))
    p, q = D.MvNormal(jnp.zeros(2), jnp.eye(2)), D.MvNormal(jnp.ones(2), jnp.asarray(cov))
    k, d = np.exp(-0.5 * np.sum((y - z) ** 2)), y - z
    score_y, score_z = -y, -np.linalg.solve(cov, z - 1)
    expected = k * (score_y @ score_z + score_y @ d - score_z @ d + 2 - d @ d)
    found = jax.jit(centered_kernel)(Stein(), p, jnp.asarray(y), q, jnp.asarray(z))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@record
class Flow:
    """A user's density without a base class: sinh of a normal variable, plus a shift."""

    shift: jax.Array

    def sample(self, key):
        return jnp.sinh(jax.random.normal(key, jnp.shape(self.shift))) + self.shift

    def log_prob(self, y):
        x = y - self.shift
        return -0.5 * jnp.arcsinh(x) ** 2 - 0.5 * jnp.log(1 + x**2) - 0.5 * jnp.log(2 * jnp.pi)


@record
class HalfLine(Flow):
    """With a support that is not of this package."""

    support = (0.0, np.inf)


def test_density_of_a_user():
    predictions = Flow(jnp.asarray(RNG.normal(size=40)))
    targets = D.sample_targets(KEY, predictions)
    kernel = TensorProduct(Exponential(1.0, Euclidean()), Stein() + 0.5 * Stein())

    def test(targets):
        return hypothesis_tests.exact_skce_test(
            KEY, kernel, predictions, targets, num_draws=99
        ).pvalue

    assert test(targets) > 0.05
    assert test(targets + 1.0) == 0.01
    slope = jax.grad(lambda shift: estimators.skce(kernel, Flow(shift), targets))(predictions.shift)
    assert np.isfinite(slope).all()


def test_what_has_no_slope_is_refused():
    ones, y = jnp.ones(4), jnp.asarray(RNG.uniform(0.1, 0.9, 4))

    def skce(predictions, kernel=Stein(), targets=y):  # noqa: B008
        return estimators.skce(TensorProduct(Exponential(), kernel), predictions, targets)

    drawn = D.monte_carlo(KEY, D.Normal(ones, ones), 3)
    for predictions in (D.Uniform(0 * ones, ones), D.Ensemble(jnp.eye(4)), drawn, HalfLine(ones)):
        with pytest.raises(NotImplementedError, match="no Stein kernel for"):
            skce(predictions)
    for rough in (2 * Exponential(), Exponential() + SquaredExponential(), kernels.White()):
        with pytest.raises(ValueError, match="expected a kernel that JAX differentiates"):
            skce(D.Normal(ones, ones), Stein(rough))
