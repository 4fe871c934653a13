import jax
import jax.numpy as jnp
import numpy as np
from scipy import special, stats

from calibjax import distributions as D
from calibjax import scores
from tests import oracles

NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(60)


def _crps_of_each(predictions, targets):
    return jax.vmap(lambda p, y: p.crps(y))(predictions, targets)


def test_counts_and_proportions():
    """Sums over the counts, and quadrature between the quantiles, by scipy's functions."""
    rng = np.random.default_rng(0)
    rate, k = 10 ** rng.uniform(-3, 3, 16), 10 ** rng.uniform(-1, 4, 16)
    alpha, beta = 10 ** rng.uniform(-0.5, 3, (2, 16))
    laws = {
        "poisson": (D.Poisson(rate), [stats.poisson(r) for r in rate]),
        "binomial": (
            D.NegativeBinomial(rate, k),
            [stats.nbinom(b, b / (b + a)) for a, b in zip(rate, k)],
        ),
        "beta": (D.Beta(alpha, beta), [stats.beta(*p) for p in zip(alpha, beta)]),
    }
    for name, (predictions, theirs) in laws.items():
        y = np.array([law.ppf(level) for law, level in zip(theirs, rng.uniform(0, 1, 16))])
        expected = []
        for law, target in zip(theirs, y):
            if name == "beta":
                levels = special.ndtr(np.linspace(-9, 9, 37))
                points = np.unique(np.concatenate([law.ppf(levels), [0, target, 1]]))
                low, width = points[:-1, None], np.diff(points)
                values = (law.cdf(low + width[:, None] * (NODES + 1) / 2) - (low >= target)) ** 2
                expected.append(np.sum(values @ NODE_WEIGHTS * width / 2))
            else:
                x = np.arange(max(target, law.isf(1e-16)) + 10)
                expected.append(np.sum((law.cdf(x) - (x >= target)) ** 2))
        for dtype, tolerance in ((np.float64, 1e-10), (np.float32, 2e-5)):
            p, seen = oracles.as_dtype((predictions, y), dtype)
            values = jax.jit(_crps_of_each)(p, seen)
            scale = np.sqrt(predictions.variance())
            np.testing.assert_allclose(
                values, expected, atol=tolerance * scale.max(), rtol=tolerance
            )
            slopes = jax.jit(jax.grad(lambda p, y: jnp.sum(_crps_of_each(p, y))))(p, seen)
            assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(slopes)), name


def test_proportions_close_to_one():
    """Where the mean is rounded to 1; the number is that of quadrature with scipy."""
    for a, b, y in ((1e4, 0.05, 1.0), (0.05, 1e4, 0.0)):
        found = D.Beta(jnp.float32(a), jnp.float32(b)).crps(jnp.float32(y))
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
