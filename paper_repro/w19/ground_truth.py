"""Analytic calibration errors and distances of the generative models of W19 App. J.2.

Predictions are g(X) ~ Dir(α). With probability π ("share") a label is drawn from Cat(β), otherwise
from Cat(g(X)). The model is calibrated if and only if π = 0.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import betainc, gammaln, xlog1py, xlogy


def _log_beta(a: jax.Array, b: jax.Array) -> jax.Array:
    # betaln of JAX has relative errors of up to 6e-7 around b = 10, also in double precision.
    return gammaln(a) + (gammaln(b) - gammaln(a + b))


def expected_calibration_error(
    concentration: jax.Array, beta: jax.Array, share: jax.Array
) -> jax.Array:
    """Expected calibration error with respect to the total variation distance.

    With α_0 = Σ α_i and the regularized incomplete beta function I it is

        π E TV(β, g(X)) = π Σ_i E (β_i − g_i(X))⁺
                        = π Σ_i [(β_i − α_i / α_0) I(β_i; α_i, α_0 − α_i)
                                 + β_i^{α_i} (1 − β_i)^{α_0 − α_i} / (α_0 B(α_i, α_0 − α_i))],

    as g_i(X) ~ Beta(α_i, α_0 − α_i). This is the paper's formula before it is written as a
    difference of two functions I, which would lose all digits for many classes.

    Args:
        concentration: α > 0, [m].
        beta: β on the probability simplex, zeros and ones included, [m].
        share: π in [0, 1].

    Returns:
        A scalar. For α = (a, …, a) and β = e_1 it is π (m − 1) / m, which tends to π for m → ∞;
        for uniform β it tends to π e^{−a} a^{a−1} / Γ(a).

    References: W19 App. J.2.1.

    >>> import jax.numpy as jnp
    >>> print(expected_calibration_error(jnp.ones(4), jnp.array([1.0, 0.0, 0.0, 0.0]), 0.5))
    0.375
    """
    total = jnp.sum(concentration)
    others = total - concentration
    log_power = xlogy(concentration, beta) + xlog1py(others, -beta)
    density = jnp.exp(log_power - _log_beta(concentration, others)) / total
    excess = beta - concentration / total
    return share * jnp.sum(excess * betainc(concentration, others, beta) + density)


def mean_total_variation(concentration: jax.Array) -> jax.Array:
    """Mean total variation distance of two independent predictions.

    By the duplication formula, W19's expression in terms of B(α_i, α_i) is

        E TV(X, X') = 1 / α_0 Σ_i B(α_0, ½) / (B(α_i, ½) B(α_0 − α_i, ½)),

    the factors of which do not underflow: their logarithms are of the order of log α_0 instead of
    α_0.

    Args:
        concentration: α > 0 of the distribution Dir(α) of both, [m].

    Returns:
        A scalar.

    References: W19 App. J.2.2.

    >>> import jax.numpy as jnp
    >>> print(f"{mean_total_variation(jnp.ones(2)):.4f}")  # E |U − U'|, both uniform
    0.3333
    """
    total = jnp.sum(concentration)
    others = total - concentration
    logs = _log_beta(total, 0.5) - _log_beta(concentration, 0.5) - _log_beta(others, 0.5)
    return jnp.sum(jnp.exp(logs)) / total
