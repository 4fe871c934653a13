import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from calibjax import distributions as D
from calibjax import scores

NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(60)


@pytest.mark.parametrize("family", ["Poisson", "NegativeBinomial", "Beta"])
def test_counts_and_proportions(family):
    """Sums over the counts, and quadrature between quantiles, by scipy's functions."""
    rng = np.random.default_rng(0)
    rate, k = 10 ** rng.uniform(-3, 3, 16), 10 ** rng.uniform(-1, 4, 16)
    alpha, beta = 10 ** rng.uniform(-0.5, 3, (2, 16))
    predictions, law = {
        "Poisson": (D.Poisson(rate), stats.poisson(rate)),
        "NegativeBinomial": (D.NegativeBinomial(rate, k), stats.nbinom(k, k / (k + rate))),
        "Beta": (D.Beta(alpha, beta), stats.beta(alpha, beta)),
    }[family]
    y = law.ppf(rng.uniform(0, 1, 16))
    if family == "Beta":
        levels = special.ndtr(np.linspace(-9, 9, 37))[:, None]
        ends = np.sort(np.concatenate([law.ppf(levels), [0 * y, y, 0 * y + 1]]), 0)
        width = np.diff(ends, axis=0)[:, None]
        x = ends[:-1, None] + width * (NODES[:, None] + 1) / 2
        weights = width * NODE_WEIGHTS[:, None] / 2
    else:
        x, weights = np.arange(max(y.max(), law.isf(1e-16).max()) + 10)[:, None, None], 1
    expected = np.sum((law.cdf(x) - (x >= y)) ** 2 * weights, (0, 1))
    found = jax.jit(jax.vmap(lambda p, y: p.crps(y)))(predictions, y)
    scale = np.sqrt(predictions.variance()).max()
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * scale)


def test_proportions_close_to_one():
    """Where the mean is rounded to 1; the number is that of quadrature with scipy."""
    for a, b, y in ((1e4, 0.05, 1.0), (0.05, 1e4, 0.0)):
        found = jax.jit(lambda *x: D.Beta(*x[:2]).crps(x[2]))(*map(jnp.float32, (a, b, y)))
        np.testing.assert_allclose(found, 3.16925985e-07, rtol=3e-5)


def test_monte_carlo_has_the_score_of_its_distribution():
    predictions, targets = D.Normal(np.zeros(4), np.ones(4)), np.arange(4.0)
    drawn = D.monte_carlo(jax.random.key(0), predictions, 2)
    assert scores.crps(drawn, targets) == scores.crps(predictions, targets)


def test_a_family_of_your_own():
    class Shifted(D.Normal):
        def crps(self, y):
            return self.loc * y

    predictions = jax.tree_util.register_dataclass(Shifted)(jnp.arange(3.0), jnp.ones(3))
    np.testing.assert_allclose(scores.crps(predictions, jnp.arange(3.0)), 5 / 3)
