import jax
import numpy as np
import pytest

from calibjax import distributions, interoperability

numpyro = pytest.importorskip("numpyro.distributions")

N = 4
LOC, ONE = np.linspace(-1, 1, N), np.ones(N)
PROBS = np.random.default_rng(0).dirichlet(np.ones(3), N)
VECTOR, COV = np.zeros((N, 2)), np.array([[2.0, 1.0], [1.0, 2.0]])
# Built within the tests, which run with 64-bit types: numpyro distribution, our class.
CASES = {
    "normal": (lambda: numpyro.Normal(LOC, 2.0), distributions.Normal),
    "laplace": (lambda: numpyro.Laplace(LOC, ONE), distributions.Laplace),
    "logistic": (lambda: numpyro.Logistic(LOC, 2.0), distributions.Logistic),
    "multivariate": (lambda: numpyro.MultivariateNormal(VECTOR, COV), distributions.MvNormal),
    "probs": (lambda: numpyro.Categorical(probs=PROBS), distributions.Categorical),
    "logits": (lambda: numpyro.Categorical(logits=np.log(PROBS)), distributions.Categorical),
    "bernoulli": (lambda: numpyro.Bernoulli(probs=PROBS[:, 0]), distributions.Bernoulli),
    "bernoulli logits": (lambda: numpyro.Bernoulli(logits=LOC), distributions.Bernoulli),
    "poisson": (lambda: numpyro.Poisson(3 * ONE), distributions.Poisson),
    "beta": (lambda: numpyro.Beta(0.5 * ONE, 2.0), distributions.Beta),
    "dirichlet": (lambda: numpyro.Dirichlet(1 + PROBS), distributions.Dirichlet),
    "diagonal": (lambda: numpyro.Normal(VECTOR, 2.0).to_event(1), distributions.DiagNormal),
    "mixture": (
        lambda: numpyro.MixtureSameFamily(
            numpyro.Categorical(probs=PROBS), numpyro.Normal(np.tile(LOC[:, None], 3), 1 + PROBS)
        ),
        distributions.Mixture,
    ),
    "gamma": (lambda: numpyro.Gamma(ONE, 2.0), distributions.Gamma),
    "student": (lambda: numpyro.StudentT(3.0, LOC, 1.0), distributions.StudentT),
    "log-normal": (lambda: numpyro.LogNormal(LOC, 2.0), distributions.LogNormal),
    "uniform": (lambda: numpyro.Uniform(-0.5, 1 + ONE), distributions.Uniform),
    "counts": (lambda: numpyro.NegativeBinomial2(ONE, 2.0), distributions.NegativeBinomial),
    # The same distributions under other names.
    "exponential": (lambda: numpyro.Exponential(ONE * 2), distributions.Gamma),
    "chi-squared": (lambda: numpyro.Chi2(1 + ONE), distributions.Gamma),
    "gamma-poisson": (lambda: numpyro.GammaPoisson(ONE, 2.0), distributions.NegativeBinomial),
    "successes": (
        lambda: numpyro.NegativeBinomialProbs(3.0, PROBS[:, 0]),
        distributions.NegativeBinomial,
    ),
    "geometric": (lambda: numpyro.Geometric(PROBS[:, 0]), distributions.NegativeBinomial),
    "proportion": (lambda: numpyro.BetaProportion(PROBS[:, 0], 4.0), distributions.Beta),
    "cauchy": (lambda: numpyro.Cauchy(LOC, 1.0), distributions.StudentT),
    "low rank": (
        lambda: numpyro.LowRankMultivariateNormal(VECTOR, np.ones((2, 1)), ONE[:2]),
        distributions.MvNormal,
    ),
    # Expanded: of no axes, of vectors, as components.
    "expanded": (lambda: numpyro.Normal(0.0, 2.0).expand([N]), distributions.Normal),
    "expanded diagonal": (
        lambda: numpyro.Normal(0.0, ONE[:2]).expand([N, 2]).to_event(1),
        distributions.DiagNormal,
    ),
    "expanded mixture": (
        lambda: numpyro.MixtureSameFamily(
            numpyro.Categorical(probs=PROBS), numpyro.Normal(0.0, 1.0).expand([N, 3])
        ),
        distributions.Mixture,
    ),
}


SCALARS, COUNTS = np.array([0.1, 0.3, 0.5, 0.9]), np.array([0, 1, 1, 0])
TARGETS = {
    **dict.fromkeys(("probs", "logits", "bernoulli", "bernoulli logits", "poisson"), COUNTS),
    **dict.fromkeys(("counts", "gamma-poisson", "successes", "geometric"), COUNTS),
    **dict.fromkeys(
        ("multivariate", "diagonal", "low rank", "expanded diagonal"),
        np.stack([SCALARS, -SCALARS], -1),
    ),
    "dirichlet": PROBS[::-1],
}


def test_classes_of_numpyro():
    """And the shapes of their draws."""
    for name, (make, record) in CASES.items():
        theirs = make()
        ours = interoperability.from_numpyro(theirs)
        assert type(ours) is record, name
        draws = jax.eval_shape(distributions.sample_targets, jax.random.key(0), ours)
        assert draws.shape == (N, *theirs.event_shape), name


def test_distributions_agree_with_numpyro():
    theirs = {name: make() for name, (make, _) in CASES.items()}
    ours = {name: interoperability.from_numpyro(p) for name, p in theirs.items()}

    @jax.jit
    def densities(ours):
        targets = {name: TARGETS.get(name, SCALARS) for name in ours}
        one = jax.vmap(lambda p, y: p.log_prob(y))
        return [[one(ours[k], y), theirs[k].log_prob(y)] for k, y in targets.items()]

    for name, values in zip(ours, densities(ours), strict=True):
        np.testing.assert_allclose(*values, rtol=1e-9, err_msg=name)


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"expected batch shape \(n,\).*got \(\)"):
        interoperability.from_numpyro(numpyro.Normal(0.0, 1.0))
    for other in (distributions.Normal(ONE, ONE), numpyro.Gamma(ONE, 1.0).mask(False)):
        with pytest.raises(TypeError, match="distribution: expected"):
            interoperability.from_numpyro(other)
