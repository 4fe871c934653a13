"""Features of any family with a characteristic function, against quadrature and against pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distributions as d
from calibjax import estimators, kernels, record
from calibjax.operators.plan import plan_of
from tests import oracles

RNG = np.random.default_rng(0)
ELL = 0.7
CONSTANT = kernels.TensorProduct(kernels.Constant(), kernels.SquaredExponential(ELL))
# Two predictions and targets each, and the same distributions of SciPy.
FAMILIES = {
    "normal": (d.Normal, ([0.0, 1.0], [1.0, 0.5]), lambda m, s: stats.norm(m, s)),
    "narrow": (d.Normal, ([0.0, 0.1], [1e-3, 1e-2]), lambda m, s: stats.norm(m, s)),
    "laplace": (d.Laplace, ([0.0, 1.0], [1.0, 0.5]), lambda m, s: stats.laplace(m, s)),
    "uniform": (d.Uniform, ([0.0, 1.0], [1.0, 3.5]), lambda a, b: stats.uniform(a, b - a)),
    "gamma": (d.Gamma, ([2.0, 5.0], [1.0, 3.0]), lambda a, r: stats.gamma(a, scale=1 / r)),
    "poisson": (d.Poisson, ([2.0, 5.0],), stats.poisson),
    "negative binomial": (
        d.NegativeBinomial,
        ([2.0, 5.0], [1.5, 3.0]),
        lambda m, k: stats.nbinom(k, k / (m + k)),
    ),
}


def _nodes(law):
    """Nodes and weights of a rule for expectations, cut where the density has a kink."""
    if hasattr(law.dist, "pmf"):
        z = np.arange(400)
        return z, law.pmf(z)
    inner = np.linspace(law.ppf(1e-4), law.isf(1e-4), 41)
    ends = np.unique([law.ppf(1e-19), *inner, law.median(), law.isf(1e-19)])
    x, w = np.polynomial.legendre.leggauss(40)
    half, middle = np.diff(ends) / 2, (ends[1:] + ends[:-1]) / 2
    z = (middle[:, None] + half[:, None] * x).ravel()
    return z, (half[:, None] * w).ravel() * law.pdf(z)


def _expected(laws, y):
    """H of two samples, with all expectations by quadrature."""

    def value(a, b):
        return np.exp(-np.square(np.subtract.outer(a, b)) / (2 * ELL**2))

    (x, v), (z, w) = map(_nodes, laws)
    return value(*y) - v @ value(x, y[1]) - w @ value(z, y[0]) + v @ value(x, z) @ w


@pytest.mark.parametrize("name", FAMILIES)
def test_against_quadrature(name):
    kind, parameters, law = FAMILIES[name]
    targets = np.array([3, 1]) if kind in (d.Poisson, d.NegativeBinomial) else np.array([0.3, 1.4])
    expected = _expected([law(*x) for x in zip(*parameters, strict=True)], targets)
    data = CONSTANT, kind(*map(np.array, parameters)), targets
    np.testing.assert_allclose(estimators.skce(*data), expected, rtol=0, atol=2e-13)
    by_pairs = estimators.skce_block(*data, block_size=2)
    np.testing.assert_allclose(by_pairs, expected, rtol=0, atol=2e-13)


@pytest.mark.parametrize("name", FAMILIES)
def test_witness_against_quadrature(name):
    """Also far beyond all targets, where a series for a shorter range would repeat the kernel."""
    kind, parameters, law = FAMILIES[name]
    predictions, targets = kind(*map(np.array, parameters)), np.array([1, 3])
    at = np.array([2, 40])
    expected = np.zeros(2)
    for y, x in zip(targets, zip(*parameters, strict=True), strict=True):
        z, weights = _nodes(law(*x))
        values = np.exp(-np.square(np.subtract.outer(at, [y, *z])) / (2 * ELL**2))
        expected += values @ np.append(1, -weights) / 2
    found = estimators.witness(CONSTANT, predictions, targets, predictions, at)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


N, M = 30, 7
LOC = RNG.normal(size=N)
TARGETS = LOC + RNG.normal(size=N)
WEIGHTS = RNG.uniform(0, 2, N)
VALUES = LOC[:, None] + RNG.normal(size=(N, M))
PRESENT = (RNG.uniform(size=(N, M)) < 0.8) | (np.arange(M) < 2)
DRAWS = {
    "ensemble": d.Ensemble(VALUES),
    "members missing": d.Ensemble(np.where(PRESENT, VALUES, np.nan), PRESENT),
    "weights": d.Ensemble(VALUES, RNG.dirichlet(np.ones(M), N)),
    "far from zero": d.Ensemble(VALUES + 1e6),
    "monte carlo": d.Laplace(LOC, np.ones(N)),
    "mixture": d.Mixture(
        RNG.dirichlet(np.ones(2), N), d.Normal(VALUES[:, :2], np.exp(VALUES[:, 2:4]))
    ),
}


def _predictions(name):
    one = DRAWS[name]
    return d.monte_carlo(jax.random.key(0), one, M) if name == "monte carlo" else one


@pytest.mark.parametrize("name", DRAWS)
def test_sums_against_pairs(name):
    """Also on the diagonal, where the pairs of a draw with itself are left out."""
    data = CONSTANT, _predictions(name), TARGETS + 1e6 * (name == "far from zero")
    h = np.asarray(oracles.calibration_kernel_matrix(*data))
    masses = np.outer(WEIGHTS, WEIGHTS)
    found = estimators.skce_biased(*data, weights=WEIGHTS)
    np.testing.assert_allclose(found, np.average(h, weights=masses), rtol=0, atol=1e-12)
    np.fill_diagonal(masses, 0)
    found = estimators.skce(*data, weights=WEIGHTS)
    np.testing.assert_allclose(found, np.average(h, weights=masses), rtol=0, atol=1e-12)


def test_diagonal_of_draws_by_hand():
    predictions = _predictions("monte carlo")
    z = np.asarray(predictions.draws.values)
    k = lambda x, y: np.exp(-np.square(x - y) / (2 * ELL**2))  # noqa: E731
    pairs = (k(z[:, :, None], z[:, None]).sum((1, 2)) - M) / (M * (M - 1))
    expected = 1 - 2 * k(TARGETS[:, None], z).mean(1) + pairs
    h = oracles.calibration_kernel_matrix(CONSTANT, predictions, TARGETS)
    np.testing.assert_allclose(np.diagonal(h), expected, rtol=1e-9)


def test_the_place_does_not_matter():
    """Nor for rounding: of multiples of 1/64, of which single precision has those around 4096."""
    values, targets = (np.float32(np.round(64 * x) / 64) for x in (VALUES, TARGETS))
    places = np.float32([0, 4096])
    found = [estimators.skce(CONSTANT, d.Ensemble(values + x), targets + x) for x in places]
    np.testing.assert_allclose(*found, rtol=2e-6)


def test_what_is_evaluated_by_pairs():
    """Equal ensembles, whose pairs of a draw with itself are left out, and draws of heavy tails."""
    rows, key = np.array([0, 0, 1, 2]), jax.random.key(0)
    student = d.monte_carlo(key, d.StudentT(np.full(N, 2.0), LOC, np.ones(N)), M)
    for predictions in (d.Ensemble(VALUES[rows], index=rows), student):
        plan = plan_of([(None, CONSTANT)], predictions, jnp.asarray(TARGETS[: len(predictions)]))
        assert not plan.parts[0].featured
    rough = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    plan = plan_of([(None, rough)], d.Categorical(np.full((N, 3), 1 / 3)), np.arange(N) % 3)
    assert plan.parts[0].featured  # although the kernel on predictions has no features


class _Tripled(kernels.SquaredExponential):
    def __call__(self, x, y):
        return 3 * super().__call__(x, y)


def test_subclasses_with_other_values_keep_them():
    rng = np.random.default_rng(0)
    p, y = d.Ensemble(jnp.asarray(rng.normal(size=(6, 4)))), jnp.asarray(rng.normal(size=6))
    values = [
        estimators.skce_block(kernels.TensorProduct(kernels.Constant(1.0), k), p, y, block_size=2)
        for k in (kernels.SquaredExponential(1.0), record(_Tripled)(1.0))
    ]
    np.testing.assert_allclose(values[1], 3 * values[0], rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nothing_is_found_where_no_kernel_reaches(dtype):
    """Sums of frequencies have rounding errors there, which would be all that a test sees."""
    predictions = d.Ensemble(np.asarray(VALUES, dtype))
    at = predictions[:2], np.array([50, -80], dtype)
    found = estimators.witness(CONSTANT, predictions, TARGETS.astype(dtype), *at)
    np.testing.assert_array_equal(found, 0)
