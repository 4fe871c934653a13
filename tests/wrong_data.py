"""Data that every entry refuses, with the error that says why."""

import jax.numpy as jnp

from calibjax import distributions

N = 6
LOC, SCALE, Y = jnp.linspace(0, 1, N), jnp.full(N, 0.5), jnp.linspace(0, 1, N)
PROBS, LABELS = jnp.full((N, 3), 1 / 3), jnp.array([0, 1, 2, 0, 1, 2])
Normal, DiagNormal = distributions.Normal, distributions.DiagNormal
Categorical, Bernoulli = distributions.Categorical, distributions.Bernoulli
NAN, INF = jnp.nan, jnp.inf
LOCATIONS = Normal(LOC[:2], SCALE[:2]), jnp.array([0.1, 0.7])

WRONG = {
    "NaN in loc": (
        Normal(LOC.at[2].set(NAN), SCALE),
        Y,
        ValueError,
        r"predictions.loc: expected finite values, got predictions.loc\[2\] = nan",
    ),
    "negative scale": (
        Normal(LOC, SCALE.at[1].set(-1)),
        Y,
        ValueError,
        "predictions.scale: expected positive",
    ),
    "NaN target": (
        Normal(LOC, SCALE),
        Y.at[5].set(NAN),
        ValueError,
        r"targets: expected finite values, got targets\[5\] = nan",
    ),
    "fewer targets": (
        Normal(LOC, SCALE),
        Y[1:],
        ValueError,
        "targets: expected one target for each of the 6 predictions, got 5",
    ),
    "vector targets": (
        Normal(LOC, SCALE),
        Y[:, None],
        ValueError,
        r"targets: expected shape \[n\]",
    ),
    "complex targets": (
        Normal(LOC, SCALE),
        Y * 1j,
        TypeError,
        "targets: expected real numbers, got complex",
    ),
    "no distribution": (LOC, Y, TypeError, "predictions: expected a batch of distributions"),
    "empty": (
        Normal(LOC[:0], SCALE[:0]),
        Y[:0],
        ValueError,
        r"predictions: expected at least \d samples?, got 0",
    ),
    "diagonal without dimension": (
        DiagNormal(LOC, SCALE),
        Y,
        ValueError,
        r"predictions.loc: expected shape \[n, d\]",
    ),
    "logits": (
        Categorical(jnp.zeros((N, 3))),
        LABELS,
        ValueError,
        r"predictions.probs.sum\(-1\): expected rows that sum to one \(not logits\)",
    ),
    "label m": (
        Categorical(PROBS),
        LABELS.at[3].set(3),
        ValueError,
        r"targets: expected labels in 0, ..., 2, got targets\[3\] = 3",
    ),
    "floating labels": (
        Categorical(PROBS),
        LABELS * 0.5,
        ValueError,
        r"targets: expected integer class labels, got targets\[1\] = 0.5",
    ),
    "one class": (Categorical(jnp.ones((N, 1))), LABELS * 0, ValueError, "m >= 2"),
    "binary label 2": (Bernoulli(LOC), LABELS, ValueError, "targets: expected labels in 0, ..., 1"),
}
