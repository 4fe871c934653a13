"""Distributions of numpyro and torch become ours: families, shapes of draws, densities."""

import jax
import numpy as np
import pytest

from calibjax import distributions as D
from calibjax import interoperability

N = 4
LOC, ONE = np.linspace(-1, 1, N), np.ones(N)
PROBS = np.random.default_rng(0).dirichlet(np.ones(3), N)
VECTOR, COV = np.zeros((N, 2)), np.array([[2.0, 1.0], [1.0, 2.0]])
# Made by a library `d` from its arrays, which `a` makes of ours; our class.
BOTH = {
    "normal": (lambda d, a: d.Normal(a(LOC), 2.0), D.Normal),
    "laplace": (lambda d, a: d.Laplace(a(LOC), a(ONE)), D.Laplace),
    "multivariate": (lambda d, a: d.MultivariateNormal(a(VECTOR), a(COV)), D.MvNormal),
    "probs": (lambda d, a: d.Categorical(probs=a(PROBS)), D.Categorical),
    "bernoulli": (lambda d, a: d.Bernoulli(probs=a(PROBS[:, 0])), D.Bernoulli),
    "bernoulli logits": (lambda d, a: d.Bernoulli(logits=a(LOC)), D.Bernoulli),
    "logits": (lambda d, a: d.Categorical(logits=a(np.log(PROBS))), D.CategoricalLogits),
    "poisson": (lambda d, a: d.Poisson(a(3 * ONE)), D.Poisson),
    "beta": (lambda d, a: d.Beta(a(0.5 * ONE), 2.0), D.Beta),
    "dirichlet": (lambda d, a: d.Dirichlet(a(1 + PROBS)), D.Dirichlet),
    "diagonal": (lambda d, a: d.Independent(d.Normal(a(VECTOR), 2.0), 1), D.DiagNormal),
    "mixture": (
        lambda d, a: d.MixtureSameFamily(
            d.Categorical(probs=a(PROBS)), d.Normal(a(np.tile(LOC[:, None], 3)), a(1 + PROBS))
        ),
        D.Mixture,
    ),
    "gamma": (lambda d, a: d.Gamma(a(ONE), 2.0), D.Gamma),
    "student": (lambda d, a: d.StudentT(3.0, a(LOC), 1.0), D.StudentT),
    "log-normal": (lambda d, a: d.LogNormal(a(LOC), 2.0), D.LogNormal),
    "uniform": (lambda d, a: d.Uniform(-0.5, a(1 + ONE)), D.Uniform),
}
OF_TORCH = BOTH | {
    "counts": (lambda d, a: d.NegativeBinomial(2.0, logits=a(LOC)), D.NegativeBinomial),
}
OF_NUMPYRO = BOTH | {
    "logistic": (lambda d, a: d.Logistic(LOC, 2.0), D.Logistic),
    "counts": (lambda d, a: d.NegativeBinomial2(ONE, 2.0), D.NegativeBinomial),
    "gamma-poisson": (lambda d, a: d.GammaPoisson(ONE, 2.0), D.NegativeBinomial),
    "successes": (lambda d, a: d.NegativeBinomialProbs(3.0, PROBS[:, 0]), D.NegativeBinomial),
    # Expanded: of no axes, of vectors, as components.
    "expanded": (lambda d, a: d.Normal(0.0, 2.0).expand([N]), D.Normal),
    "expanded diagonal": (
        lambda d, a: d.Normal(0.0, ONE[:2]).expand([N, 2]).to_event(1),
        D.DiagNormal,
    ),
    "expanded mixture": (
        lambda d, a: d.MixtureSameFamily(
            d.Categorical(probs=PROBS), d.Normal(0.0, 1.0).expand([N, 3])
        ),
        D.Mixture,
    ),
}
SCALARS, COUNTS = np.array([0.1, 0.3, 0.5, 0.9]), np.array([0, 1, 1, 0])
VALUES = {
    D.DiagNormal: np.stack([SCALARS, -SCALARS], -1),
    D.MvNormal: np.stack([SCALARS, -SCALARS], -1),
    D.Dirichlet: PROBS[::-1].copy(),
}
OF_COUNTS = D.Categorical, D.CategoricalLogits, D.Bernoulli, D.Poisson, D.NegativeBinomial
VALUES |= dict.fromkeys(OF_COUNTS, COUNTS)
LIBRARIES = {
    "numpyro": (OF_NUMPYRO, interoperability.from_numpyro, 1e-9),
    "torch": (OF_TORCH, interoperability.from_torch, 1e-4),
}


def cases(library):
    """Distributions and arrays of a library by name; built in a test, which has 64-bit types."""
    a = np.asarray
    if library == "torch":
        torch = pytest.importorskip("torch")
        a = lambda x: torch.as_tensor(x, dtype=torch.float32)  # noqa: E731
    d = pytest.importorskip(f"{library}.distributions")
    families, convert, tolerance = LIBRARIES[library]
    theirs = {name: make(d, a) for name, (make, _) in families.items()}
    ours = {name: convert(p) for name, p in theirs.items()}
    return theirs, ours, a, tolerance


@pytest.mark.parametrize("library", LIBRARIES)
def test_classes(library):
    theirs, ours, _, _ = cases(library)
    for name, p in ours.items():
        assert type(p) is LIBRARIES[library][0][name][1], name
        draws = jax.eval_shape(D.sample_targets, jax.random.key(0), p)
        assert draws.shape == (N, *theirs[name].event_shape), name


@pytest.mark.parametrize("library", LIBRARIES)
def test_densities(library):
    theirs, ours, a, tolerance = cases(library)
    targets = {name: VALUES.get(type(p), SCALARS) for name, p in ours.items()}
    density = jax.vmap(lambda p, y: p.log_prob(y))
    found = jax.jit(lambda ours: {name: density(p, targets[name]) for name, p in ours.items()})(
        ours
    )
    for name, values in found.items():
        expected = theirs[name].log_prob(a(targets[name]))
        np.testing.assert_allclose(values, np.asarray(expected), tolerance, err_msg=name)


def test_wrong_distributions_of_numpyro():
    numpyro = pytest.importorskip("numpyro.distributions")
    with pytest.raises(ValueError, match=r"expected batch shape \(n,\).*got \(\)"):
        interoperability.from_numpyro(numpyro.Normal(0.0, 1.0))
    for other in (D.Normal(ONE, ONE), numpyro.Gamma(ONE, 1.0).mask(False)):
        with pytest.raises(TypeError, match="distribution: expected"):
            interoperability.from_numpyro(other)
