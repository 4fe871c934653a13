import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest
from scipy import integrate, optimize, stats

from calibjax import distances, distributions, kernels
from calibjax.distances.elementary import SquaredEuclidean
from calibjax.kernels.base import prediction_kernel

RNG = np.random.default_rng(0)
DISCREPANCY = distances.MaximumMeanDiscrepancy(kernels.SquaredExponential(0.8))
PAIRS = {
    "euclidean": (distances.Euclidean(), (RNG.normal(size=3), RNG.normal(size=3))),
    "squared euclidean": (SquaredEuclidean(), (RNG.normal(size=3), RNG.normal(size=3))),
    "manhattan": (distances.Manhattan(), (RNG.normal(size=3), RNG.normal(size=3))),
    "mean": (distances.Manhattan(mean=True), (RNG.normal(size=3), RNG.normal(size=3))),
    "total variation": (
        distances.TotalVariation(),
        tuple(distributions.Categorical(RNG.dirichlet(np.ones(4))) for _ in range(2)),
    ),
    "wasserstein": (
        distances.Wasserstein(),
        tuple(distributions.DiagNormal(RNG.normal(size=3), RNG.uniform(1, 2, 3)) for _ in range(2)),
    ),
    "wasserstein of samples": (
        distances.Wasserstein(),
        tuple(distributions.Ensemble(RNG.normal(size=5)) for _ in range(2)),
    ),
    "wasserstein of laplace": (
        distances.Wasserstein(),
        tuple(distributions.Laplace(RNG.normal(), RNG.uniform(1, 2)) for _ in range(2)),
    ),
    "discrepancy": (DISCREPANCY, (distributions.Normal(0.3, 1.2), distributions.Normal(-0.4, 0.7))),
}


@pytest.mark.parametrize("name", PAIRS)
def test_metric_with_gradients_of_zero_where_it_is_zero(name):
    distance, (p, q) = PAIRS[name]
    p, q = (jax.tree.map(jnp.asarray, x) for x in (p, q))
    assert distance(p, q) > 0
    np.testing.assert_allclose(distance(p, q), distance(q, p), rtol=1e-15)
    np.testing.assert_allclose(distance.squared(p, q), distance(p, q) ** 2, rtol=1e-14)
    assert distance(p, p) == 0
    for function in (distance, distance.squared):
        left, right = jax.grad(function, argnums=(0, 1))(p, p)
        for leaf in jax.tree.leaves((left, right)):
            np.testing.assert_array_equal(leaf, 0)


@pytest.mark.parametrize(
    ("family", "reference"),
    [(distributions.Normal, stats.norm), (distributions.Laplace, stats.laplace)],
)
def test_wasserstein_is_the_distance_of_the_quantile_functions(family, reference):
    p, q = reference(0.3, 1.2), reference(-0.4, 0.7)
    squared, _ = integrate.quad(lambda u: (p.ppf(u) - q.ppf(u)) ** 2, 0, 1, epsabs=1e-10)
    ours = distances.Wasserstein()(
        family(jnp.array(0.3), jnp.array(1.2)), family(jnp.array(-0.4), jnp.array(0.7))
    )
    np.testing.assert_allclose(ours**2, squared, rtol=1e-7)


@pytest.mark.parametrize("size", [1, 7, 32, 33, 150])
def test_number_of_components_does_not_matter(size):
    """Few components are written out, many are summed by the compiler."""
    x, y = RNG.normal(size=(2, size))
    np.testing.assert_allclose(distances.Euclidean()(x, y), np.linalg.norm(x - y), rtol=1e-13)
    np.testing.assert_allclose(
        distances.TotalVariation()(x, y), np.abs(x - y).sum() / 2, rtol=1e-13
    )
    np.testing.assert_allclose(distances.Manhattan()(x, y), np.abs(x - y).sum(), rtol=1e-13)
    mean = distances.Manhattan(mean=True)
    np.testing.assert_allclose(mean(x, y), np.abs(x - y).mean(), rtol=1e-13)
    parts = (x[:2], x[2:]), (y[:2], y[2:])
    np.testing.assert_allclose(mean(*parts), np.abs(x - y).mean(), rtol=1e-13)


def test_unknown_families_are_named():
    p = distributions.Bernoulli(jnp.array(0.5))
    q = distributions.Normal(jnp.array(0.0), jnp.array(1.0))
    mixture = distributions.Mixture(None, distributions.Normal(jnp.zeros(2), jnp.ones(2)))
    for distance, pair in (
        (distances.Wasserstein(), (p, q)),
        (distances.Wasserstein(), (mixture, mixture)),
        (distances.TotalVariation(), (q, q)),
    ):
        one, two = (type(x).__name__ for x in pair)
        with pytest.raises(NotImplementedError, match=f"{one} and {two}"):
            distance(*pair)


def test_a_family_of_a_user():
    doubled = type("Doubled", (distributions.Normal,), {})
    distances.Wasserstein.register(doubled, lambda p, q: (2 * (p.loc - q.loc)) ** 2)
    points = (doubled(jnp.array(x), jnp.array(1.0)) for x in (1.0, 4.0))
    np.testing.assert_allclose(distances.Wasserstein()(*points), 6)


def test_wasserstein_of_samples_is_the_cheapest_assignment():
    one, two = np.random.default_rng(3).normal(size=(2, 6))
    p, q = (distributions.Ensemble(jnp.asarray(x)) for x in (one, two))
    costs = np.square(one[:, None] - two)
    best = costs[optimize.linear_sum_assignment(costs)].mean()
    np.testing.assert_allclose(distances.Wasserstein().squared(p, q), best, rtol=1e-12)
    for other in (
        distributions.Ensemble(q.values[:5]),
        distributions.Ensemble(q.values, jnp.full(6, 1 / 6)),
    ):
        with pytest.raises(NotImplementedError, match="equally many, equally likely numbers"):
            distances.Wasserstein()(p, other)


def test_it_is_the_distance_of_the_mean_embeddings():
    """‖μ_p − μ_q‖² = ∫ |φ_p(ω) − φ_q(ω)|² dN(ω; 0, 1/ℓ²), by Gauss–Hermite quadrature."""
    rng = np.random.default_rng(0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    frequencies, weights = nodes / 0.8, weights / weights.sum()
    loc, scale = rng.normal(size=(2, 2)), rng.uniform(0.1, 1, (2, 2))
    factors = np.exp(
        1j * frequencies * loc[..., None] - 0.5 * (frequencies * scale[..., None]) ** 2
    )
    expected = weights @ np.abs(factors.mean(1)[0] - factors.mean(1)[1]) ** 2
    batch = distributions.Mixture(None, distributions.Normal(jnp.asarray(loc), jnp.asarray(scale)))
    p, q = (jax.tree.map(lambda x, i=i: x[i], batch) for i in range(2))
    np.testing.assert_allclose(DISCREPANCY.squared(p, q), expected, rtol=1e-10)
    np.testing.assert_allclose(DISCREPANCY(p, q), np.sqrt(expected), rtol=1e-10)


def test_between_samples_it_is_that_of_the_empirical_distributions():
    samples = distributions.Ensemble(jax.random.normal(jax.random.key(0), (40, 3)))
    kernel = kernels.Exponential(0.3, DISCREPANCY)
    matrix = jax.jit(kernels.gram_matrix)(kernel, samples)
    assert np.linalg.eigvalsh(matrix)[0] > 0
    # Estimators number the samples, which kernels on predictions do not see.
    numbered = distributions.Ensemble(samples.values, index=jnp.arange(40))
    p, q = (jax.tree.map(lambda leaf, i=i: leaf[i], numbered) for i in range(2))
    np.testing.assert_allclose(prediction_kernel(kernel, p, q), matrix[0, 1], rtol=1e-12)
