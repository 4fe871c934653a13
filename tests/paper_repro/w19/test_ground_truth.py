import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

from paper_repro.w19 import ground_truth as w19_ground_truth

CLASSES = (2, 10, 100, 1000)
CONCENTRATIONS = (0.1, 1.0)


def expected_error(concentration, beta, share=1.0):
    concentration, beta = jnp.asarray(concentration), jnp.asarray(beta)
    return float(w19_ground_truth.expected_calibration_error(concentration, beta, share))


def quadrature(concentration, beta):
    """Σ ∫_0^{β_i} P(g_i ≤ x) dx = Σ E (β_i − g_i)⁺, in log x, where the integrand is smooth."""
    total = 0.0
    for a, b in zip(concentration, beta, strict=True):
        if b > 0:
            cdf = stats.beta(a, concentration.sum() - a).cdf
            integrand = lambda t, cdf=cdf: cdf(np.exp(t)) * np.exp(t)  # noqa: E731
            total += integrate.quad(integrand, np.log(b) - 40, np.log(b), limit=500)[0]
    return total


@pytest.mark.parametrize("m", [2, 3, 10])
def test_expected_error_is_the_integral(m):
    rng = np.random.default_rng(m)
    concentration, beta = rng.uniform(0.05, 3, m), rng.dirichlet(np.full(m, 0.5))
    if m == 3:
        beta = np.append(beta[1:] / beta[1:].sum(), 0)
    assert expected_error(concentration, beta) == pytest.approx(
        quadrature(concentration, beta), rel=1e-7
    )
    assert expected_error(concentration, beta, 0.25) == pytest.approx(
        expected_error(concentration, beta) / 4, rel=1e-12
    )


@pytest.mark.parametrize(
    "alpha",
    [np.full(m, a) for m in CLASSES for a in CONCENTRATIONS] + [np.array([1.0, 2.0, 0.3, 0.7])],
    ids=lambda alpha: f"{alpha.size}-{alpha[0]}",
)
def test_mean_distance_is_the_published_formula(alpha):
    """W19 App. J.2.2: 2 B(α_0, α_0) / α_0 · Σ 1 / (B(α_i, α_i) B(α_0 − α_i, α_0 − α_i))."""
    total = alpha.sum()
    logs = special.betaln(total, total) - special.betaln(alpha, alpha)
    logs -= special.betaln(total - alpha, total - alpha)
    published = 2 / total * np.exp(logs).sum()
    found = float(w19_ground_truth.mean_total_variation(jnp.asarray(alpha)))
    assert found == pytest.approx(published, rel=1e-9)
