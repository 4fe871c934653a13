import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import special, stats

from calibjax import distributions as D
from calibjax import scores
from tests import oracles

N = 30
RNG = np.random.default_rng(3)
LOC, SCALE, WEIGHTS = (
    RNG.normal(size=(N, 3)),
    10 ** RNG.uniform(-2, 1, (N, 3)),
    RNG.dirichlet(np.ones(3), N),
)
# Far and near targets, and one on a mean.
TARGETS = np.append(LOC[1:, 0] + RNG.normal(size=N - 1) * 3, LOC[0, 0])[::-1]
FAMILIES = {
    "normal": D.Normal(LOC[:, 0], SCALE[:, 0]),
    "Laplace": D.Laplace(LOC[:, 0], SCALE[:, 0]),
    "mixture": D.Mixture(WEIGHTS, D.Normal(LOC, SCALE)),
    "ensemble": D.Mixture(None, D.Normal(LOC, SCALE)),
}


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


DRAWS = {
    "draws": D.Ensemble(LOC),
    "weighted draws": D.Ensemble(LOC, WEIGHTS),
    "a draw without weight": D.Ensemble(LOC, np.tile([0.3, 0, 0.7], (N, 1))),
    "equal draws": D.Ensemble(np.round(LOC)),
    "integers": D.Ensemble(np.round(LOC).astype(int)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_against_the_double_sum(name):
    """E|Z − y| − ½ E|Z − Z'| by loops over the draws."""
    p = DRAWS[name]
    y = np.round(TARGETS).astype(int) if name == "integers" else TARGETS
    weights = np.full((N, 3), 1 / 3) if p.weights is None else p.weights
    expected = [
        sum(w[j] * abs(x[j] - t) for j in range(3))
        - sum(w[j] * w[k] * abs(x[j] - x[k]) for j in range(3) for k in range(3)) / 2
        for x, w, t in zip(p.values, weights, y)
    ]
    values = jax.jit(jax.vmap(lambda p, y: p.crps(y)))(jax.tree.map(jnp.asarray, p), y)
    np.testing.assert_allclose(values, expected, rtol=1e-10, atol=1e-15)


def test_monte_carlo_has_the_score_of_its_distribution():
    predictions = oracles.as_dtype(FAMILIES["normal"], np.float64)
    drawn = D.monte_carlo(jax.random.key(0), predictions, 2)
    score = jax.jit(scores.crps)
    assert score(drawn, TARGETS) == score(predictions, TARGETS)


@pytest.mark.parametrize("name", [*FAMILIES, "draws", "weighted draws"])
def test_gradient(name):
    """Also where the target is a mean, as for the first sample."""
    data = oracles.as_dtype(((FAMILIES | DRAWS)[name], TARGETS), np.float64)
    if name in DRAWS:  # there the score has a kink where the target is a draw
        data = data[0], data[1].at[-1].add(0.01)
    total = jax.jit(lambda p, y: jnp.sum(_crps_of_each(p, y)))
    check_grads(total, data, order=1, modes=["rev"], eps=1e-5, rtol=1e-4)


def test_a_family_of_your_own():
    class Shifted(D.Normal):
        def crps(self, y):
            return self.loc * y

    predictions = jax.tree_util.register_dataclass(Shifted)(jnp.arange(3.0), jnp.ones(3))
    np.testing.assert_allclose(scores.crps(predictions, jnp.arange(3.0)), 5 / 3)
