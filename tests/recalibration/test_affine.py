import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize
from scipy.stats import norm

from calibjax import distributions as D
from calibjax import kernels
from calibjax.distributions.composed import Recalibrated
from calibjax.distributions.continuous import GeneralizedNormal
from calibjax.recalibration import AffineScaling
from calibjax.recalibration.numbers import AffineMap
from calibjax.scores import negative_log_likelihood

RNG = np.random.default_rng(0)
LOC, SCALE, Y = RNG.normal(size=20), RNG.uniform(0.5, 2, 20), RNG.normal(size=20)
PREDICTIONS = D.Normal(jnp.asarray(LOC), jnp.asarray(SCALE))
WEIGHTS = np.arange(20) % 3


def _best(log_density, weights=None):
    """Shift and scale with the largest likelihood, by Nelder and Mead."""
    used = np.ones(20) if weights is None else weights

    def loss(theta):
        shift, scale = theta[0], np.exp(theta[1])
        return -np.sum(used * log_density(LOC + shift * SCALE, scale * SCALE))

    found = minimize(
        loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12}
    )
    return [found.x[0], np.exp(found.x[1])]


@pytest.mark.parametrize("unit", [1.0, 1e-7, 1e7])
def test_most_likely_map(unit):
    best = _best(lambda loc, scale: norm.logpdf(Y, loc, scale))
    predictions = jax.tree.map(lambda x: unit * x, PREDICTIONS)
    params = AffineScaling().fit(predictions, jnp.asarray(unit * Y))
    np.testing.assert_allclose([params.shift, params.scale], best, rtol=1e-4)
    found = AffineScaling().apply(params, D.with_features(predictions, jnp.asarray(LOC)))
    np.testing.assert_allclose(found.loc, predictions.loc + params.shift * predictions.scale)
    np.testing.assert_allclose(found.scale, params.scale * predictions.scale)
    same = AffineScaling().apply(AffineScaling().identity(predictions), predictions)
    np.testing.assert_array_equal(same.loc, predictions.loc)


FAMILIES = {
    "Laplace": (D.Laplace, lambda loc, scale: stats.laplace.logpdf(Y, loc, scale)),
    "StudentT": (
        lambda loc, scale: D.StudentT(jnp.full_like(loc, 3.0), loc, scale),
        lambda loc, scale: stats.t.logpdf(Y, 3, loc, scale),
    ),
    "GeneralizedNormal": (
        lambda loc, scale: GeneralizedNormal(loc, scale, jnp.full_like(loc, 1.5)),
        lambda loc, scale: stats.gennorm.logpdf(Y, 1.5, loc, scale),
    ),
}


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("family", FAMILIES)
def test_other_families(family, weights):
    make, log_density = FAMILIES[family]
    predictions = make(jnp.asarray(LOC), jnp.asarray(SCALE))
    params = AffineScaling().fit(predictions, jnp.asarray(Y), weights)
    # Of Laplace distributions medians need not be unique, but they are halfway.
    np.testing.assert_allclose(params.scale, _best(log_density, weights)[1], rtol=1e-3)
    best, found = (
        -negative_log_likelihood(
            AffineScaling().apply(x, predictions), jnp.asarray(Y), weights=weights
        )
        for x in (AffineMap(*map(jnp.asarray, _best(log_density, weights))), params)
    )
    assert found >= best - 1e-5
    if weights is not None:
        index = np.repeat(np.arange(20), weights)
        copies = AffineScaling().fit(
            make(jnp.asarray(LOC[index]), jnp.asarray(SCALE[index])), jnp.asarray(Y[index])
        )
        np.testing.assert_allclose(params.scale, copies.scale, rtol=1e-4)
        np.testing.assert_allclose(params.shift, copies.shift, rtol=1e-3, atol=1e-4)


def test_smallest_interval():
    predictions = D.Uniform(jnp.asarray(LOC - SCALE), jnp.asarray(LOC + SCALE))
    params = AffineScaling().fit(predictions, jnp.asarray(Y))
    found = AffineScaling().apply(params, predictions)
    inside = (Y - np.asarray(found.low)) / np.asarray(found.high - found.low)
    np.testing.assert_allclose([inside.min(), inside.max()], [0, 1], atol=1e-5)


def test_normal_scores_of_other_distributions():
    concentration = jnp.asarray(1 + SCALE)
    predictions, targets = D.Gamma(concentration, jnp.ones(20)), np.exp(Y)
    z = norm.ppf(stats.gamma.cdf(targets, 1 + SCALE))
    params = AffineScaling().fit(predictions, jnp.asarray(targets))
    np.testing.assert_allclose([params.shift, params.scale], [z.mean(), z.std()], rtol=1e-4)
    found = AffineScaling().apply(params, predictions)
    assert isinstance(found, Recalibrated)
    levels = jax.vmap(lambda p, y: p.cdf(y))(found, jnp.asarray(targets))
    np.testing.assert_allclose(levels, norm.cdf((z - z.mean()) / z.std()), rtol=1e-3)
    again = AffineScaling().fit(found, jnp.asarray(targets))
    np.testing.assert_allclose([again.shift, again.scale], [0, 1], atol=1e-3)


def test_coordinates_of_vectors():
    loc, targets = RNG.normal(size=(30, 2)), RNG.normal(size=(30, 2))
    scale = RNG.uniform(0.5, 2, (30, 2))
    z = (targets - loc) / scale
    for predictions in (
        D.DiagNormal(jnp.asarray(loc), jnp.asarray(scale)),
        D.MvNormal(jnp.asarray(loc), jnp.asarray(scale[:, :, None] ** 2 * np.eye(2))),
    ):
        params = AffineScaling().fit(predictions, jnp.asarray(targets))
        np.testing.assert_allclose(params.shift, z.mean(0), rtol=1e-4)
        np.testing.assert_allclose(params.scale, z.std(0), rtol=1e-4)
        found = AffineScaling().apply(params, predictions)
        np.testing.assert_allclose(found.loc, loc + z.mean(0) * scale, rtol=1e-4, atol=1e-5)
        variances = jax.vmap(lambda p: p.variance())(found)
        variances = variances if variances.ndim == 2 else jnp.diagonal(variances, 0, 1, 2)
        np.testing.assert_allclose(variances, (z.std(0) * scale) ** 2, rtol=1e-4)


def test_any_root_of_the_covariance_matrix():
    root = np.array([[1.0, 0.0], [2.0, 0.5]])
    predictions = D.MvNormal(jnp.zeros((3, 2)), jnp.asarray(np.stack([root @ root.T] * 3)))
    params = AffineMap(jnp.array([1.0, -1.0]), jnp.array([2.0, 3.0]))
    found = AffineScaling().apply(params, predictions)
    np.testing.assert_allclose(found.loc[0], root @ [1, -1], rtol=1e-5)
    np.testing.assert_allclose(found.cov[0], root @ np.diag([4, 9]) @ root.T, rtol=1e-5)


def test_members_of_ensembles():
    n, m = 20000, 5
    rng = np.random.default_rng(1)
    size = rng.uniform(0.5, 2, (n, 1))
    draws = size * rng.normal(size=(n, m + 1))  # the last one is the target
    ensembles = D.Ensemble(jnp.asarray(draws[:, :m]))
    params = AffineScaling().fit(ensembles, jnp.asarray(2 * draws[:, m] + 0.5 * size[:, 0]))
    # (y − μ)² has the mean (4 + 1/m) σ², which becomes (1 + 1/m) b² σ².
    np.testing.assert_allclose(params.scale, np.sqrt(3.5), atol=0.06)
    average = draws[:, :m].std(1, ddof=1).mean()
    np.testing.assert_allclose(params.shift, 0.5 * size.mean() / average, atol=0.06)
    found = AffineScaling().apply(params, ensembles).values
    means = draws[:, :m].mean(1, keepdims=True)
    spread = draws[:, :m].std(1, ddof=1, keepdims=True)
    expected = means + params.shift * spread + params.scale * (draws[:, :m] - means)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    vectors = D.Ensemble(jnp.asarray(np.stack([draws[:, :m]] * 2, 2)))
    targets = 2 * draws[:, m] + 0.5 * size[:, 0]
    same = AffineScaling().fit(vectors, jnp.asarray(np.stack([targets] * 2, 1)))
    np.testing.assert_allclose(same.scale, [params.scale] * 2, rtol=1e-4)


@pytest.mark.parametrize("m", [2, 11])
@pytest.mark.parametrize("law", [stats.norm, stats.expon, stats.lognorm(0.5)])
def test_members_of_every_law(law, m):
    """Those of skewed laws have standard deviations that depend on their means."""
    draws = law.rvs(size=(40000, m + 1), random_state=np.random.default_rng(2))
    members = 1.3 * draws[:, :m] - 0.3 * draws[:, :m].mean(1, keepdims=True)
    members += 0.4 * draws[:, :m].std(1, ddof=1, keepdims=True)
    found = AffineScaling().fit(D.Ensemble(jnp.asarray(members)), jnp.asarray(draws[:, m]))
    error = 6 * draws.std() / draws[:, :m].std(1, ddof=1).mean() / 200
    np.testing.assert_allclose(found.shift, -0.4 / 1.3, atol=error)
    np.testing.assert_allclose(found.scale, 1 / 1.3, atol=error)


def test_scores_of_other_families():
    p, z = D.Gamma(jnp.asarray(2.0), jnp.asarray(1.0)), norm.ppf(stats.gamma.cdf(1.5, 2))
    score = kernels.Fisher(AffineScaling()).score(p, jnp.asarray(1.5))
    np.testing.assert_allclose(score, [z, z**2 - 1], rtol=1e-3, atol=1e-4)


def test_maps_that_do_not_exist_or_do_not_fit():
    same = D.Normal(jnp.zeros(3), jnp.ones(3)), jnp.ones(3)
    with pytest.raises(ValueError, match="targets: expected normal scores, or members, that dif"):
        AffineScaling().fit(*same)
    assert np.isnan(jax.jit(AffineScaling().fit)(*same).scale)
    vectors = D.DiagNormal(jnp.zeros((3, 2)), jnp.ones((3, 2)))
    with pytest.raises(ValueError, match="params: expected"):  # which would be that of both
        AffineScaling().apply(AffineMap(jnp.array(0.0), jnp.array(1.0)), vectors)
