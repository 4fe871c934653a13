import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distributions
from calibjax._core import checks
from calibjax.distributions import MvNormal
from tests import oracles


def test_logits_far_apart():
    far = distributions.CategoricalLogits(np.float32([0, 2000]))
    log_prob, slopes = jax.jit(jax.value_and_grad(lambda p: p.log_prob(0)))(far)
    assert log_prob == -2000
    assert slopes.logits.tolist() == [1, -1]


def test_classes_of_probability_zero_are_never_drawn():
    """A uniform variable of exactly 0, or sums that fall short of 1, must not lead there."""
    p = distributions.Categorical(jnp.array([0.0, 1.0 - 1e-7, 0.0], jnp.float32))
    assert int(p.icdf(jnp.float32(0.0))) == 1
    assert int(p.icdf(jnp.float32(1.0))) == 1


def test_labels_out_of_range_have_no_log_probability():
    for p in (
        distributions.Categorical(jnp.array([0.2, 0.8])),
        distributions.Bernoulli(jnp.array(0.8)),
    ):
        assert [bool(jnp.isnan(p.log_prob(y))) for y in (-1, 0, 1, 2)] == [True, False, False, True]


@pytest.mark.parametrize(
    "p",
    [
        distributions.Poisson(3.0),
        distributions.NegativeBinomial(3.0, 2.0),
        distributions.Mixture(None, distributions.Poisson(np.array([1.0, 3.0]))),
        distributions.Categorical(np.array([0.2, 0.8])),
        distributions.Bernoulli(0.3),
        distributions.Ensemble(np.array([1.0, 2.0])),
        distributions.Ensemble(np.array([1, 2])),
    ],
    ids=lambda p: type(p).__name__,
)
def test_quantiles_at_levels_that_are_missing_are_missing(p):
    """NaN, or the smallest integer, which stands for it."""
    found = jax.jit(lambda p, level: p.icdf(level))(jax.tree.map(jnp.asarray, p), np.nan)
    missing = np.nan if found.dtype.kind == "f" else np.iinfo(found.dtype).min
    np.testing.assert_array_equal(found, missing)


def test_quantiles_of_discrete_components_are_the_smallest_values_reached():
    probs = np.array([[0.0, 0.5, 0.3, 0.2], [0.1, 0.0, 0.0, 0.9]])
    p = distributions.Mixture(
        jnp.array([0.25, 0.75]), distributions.Categorical(jnp.asarray(probs))
    )
    mixed = np.array([0.25, 0.75]) @ probs
    np.testing.assert_allclose(p.class_probs, mixed, rtol=1e-14)
    for level in (0.01, 0.07, 0.08, 0.2, 0.201, 0.25, 0.3, 0.99):
        assert p.icdf(level) == np.argmax(mixed.cumsum() >= level)


def test_draws_follow_the_mixture():
    weights, loc, scale = np.array([[0.5, 0.0, 0.2, 0.3], [-3, 50, 0.5, 4], [0.7, 1, 2, 0.1]])
    p = distributions.Mixture(weights, distributions.Normal(loc, scale))
    batch = jax.tree.map(lambda x: jnp.broadcast_to(x, (20_000, *x.shape)), p)
    draws = distributions.sample_targets(jax.random.key(0), batch)
    cdf = lambda y: stats.norm(loc, scale).cdf(np.asarray(y)[:, None]) @ weights  # noqa: E731
    assert stats.kstest(draws, cdf).pvalue > 1e-3


def test_derivatives_of_the_log_density_by_a_weight_of_zero():
    """f_k / f minus one, since the weights are divided by their sum; one-sided differences."""
    parts = distributions.Normal(jnp.arange(3.0), jnp.ones(3))
    weights, y = jnp.array([0.0, 0.5, 0.5]), 0.3

    def log_density(weights):
        return distributions.Mixture(weights, parts).log_prob(y)

    densities = np.exp(-0.5 * (y - np.arange(3)) ** 2)
    expected = densities / densities[1:].mean() - 1
    np.testing.assert_allclose(jax.grad(log_density)(weights), expected, rtol=1e-12)
    h = 1e-6
    change = (log_density(weights.at[0].set(h)) - log_density(weights)) / h
    np.testing.assert_allclose(change, expected[0], rtol=1e-5)
    parts = distributions.Normal(jnp.array([1e3, 0, 1]), jnp.ones(3))
    far = distributions.Mixture(weights, parts).log_prob(1e3)
    np.testing.assert_allclose(far, np.log(0.5) - 0.5 * 999**2 - 0.5 * np.log(2 * np.pi))


def test_temperatures_of_large_logits():
    """Divided as they are, they would lose three digits."""
    p = distributions.CategoricalLogits(jnp.array([1000.25, 999.5], jnp.float32))
    temperatures = np.float32([0.3, 0.37, 0.71])
    found = jax.jit(jax.vmap(lambda t: p.tempered(t).log_prob(jnp.array(1))))(temperatures)
    np.testing.assert_allclose(found, -np.logaddexp(0, 0.75 / temperatures), rtol=1e-6)


RNG = np.random.default_rng(0)
COV = oracles.covariances(1, 2)


@pytest.mark.parametrize("d", [1, 12])
def test_normal_vectors_agree_with_scipy(d):
    loc, y = RNG.normal(size=(2, 30, d))
    cov = oracles.covariances(30, d)
    ours = MvNormal(jnp.asarray(loc), jnp.asarray(cov))
    expected = [stats.multivariate_normal(*p).logpdf(z) for *p, z in zip(loc, cov, y)]
    log_prob = jax.jit(MvNormal.log_prob)
    np.testing.assert_allclose(log_prob(ours, y), expected, rtol=1e-9)
    np.testing.assert_allclose(ours.variance(), [np.diag(s) for s in cov])
    np.testing.assert_array_equal(ours.mean(), loc)


def test_draws_of_vectors_follow_the_distribution():
    dtype = jnp.float32
    n = 20_000
    p = MvNormal(
        jnp.tile(jnp.array([1.0, -2.0], dtype), (n, 1)),
        jnp.tile(jnp.asarray(COV[0], dtype), (n, 1, 1)),
    )
    draws = distributions.sample_targets(jax.random.key(0), p)
    assert draws.dtype == dtype
    whitened = np.linalg.solve(np.linalg.cholesky(COV[0]), (np.asarray(draws) - [1, -2]).T)
    assert stats.kstest(whitened.ravel(), stats.norm.cdf).pvalue > 1e-3
    np.testing.assert_allclose(np.cov(whitened), np.eye(2), atol=4 * np.sqrt(2 / n))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_units_and_rounding_are_not_refused(dtype):
    root = (
        np.random.default_rng(1).normal(size=(50, 4, 4)) * 10.0 ** np.array([-9, -2, 3, 9])[:, None]
    )
    covariances = (root @ root.swapaxes(1, 2)).astype(dtype)
    covariances[:, 0] *= 1 + np.finfo(dtype).eps  # a little asymmetric
    checks.positive_definite("cov", covariances[None])
    assert np.all(np.isfinite(MvNormal(jnp.zeros(4, dtype), covariances).log_prob(root[:, 0])))


def test_definiteness_depends_on_the_precision():
    """A correlation that float64 holds and float32 does not tell from one."""
    correlation = np.array([[1, 1 - 1e-8], [1 - 1e-8, 1]])
    checks.positive_definite("cov", correlation)
    with pytest.raises(ValueError, match=r"correlations: .* in float32 \(see jax_ena"):
        checks.positive_definite("cov", correlation.astype(np.float32))
