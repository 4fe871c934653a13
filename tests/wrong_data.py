"""Data that every entry refuses, with the error that says why."""

import jax
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
    "infinite loc": (
        Normal(LOC.at[2].set(INF), SCALE),
        Y,
        ValueError,
        "predictions.loc: expected finite",
    ),
    "zero scale": (
        Normal(LOC, SCALE.at[1].set(0)),
        Y,
        ValueError,
        r"predictions.scale: expected positive finite values, got predictions.scale\[1\] = 0.0",
    ),
    "negative scale": (
        Normal(LOC, SCALE.at[1].set(-1)),
        Y,
        ValueError,
        "predictions.scale: expected positive",
    ),
    "NaN scale": (
        Normal(LOC, SCALE.at[1].set(NAN)),
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
    "fewer scales": (
        Normal(LOC, SCALE[1:]),
        Y,
        ValueError,
        "predictions: expected leading axes of one length",
    ),
    "one distribution": (
        Normal(LOC[0], SCALE[0]),
        Y,
        ValueError,
        "predictions.loc: expected a batch",
    ),
    "loc of a vector": (
        Normal(LOC[:, None], SCALE[:, None]),
        Y,
        ValueError,
        r"predictions.loc: expected shape \[n\], got \(6, 1\)",
    ),
    "vector targets": (
        Normal(LOC, SCALE),
        Y[:, None],
        ValueError,
        r"targets: expected shape \[n\]",
    ),
    "truth values as loc": (
        Normal(LOC > 0, SCALE),
        Y,
        TypeError,
        "predictions.loc: expected numbers .of float32 or float64., got bool",
    ),
    "truth values as targets": (
        Normal(LOC, SCALE),
        Y > 0,
        TypeError,
        "targets: expected numbers .of float32 or float64., got bool",
    ),
    "complex targets": (
        Normal(LOC, SCALE),
        Y * 1j,
        TypeError,
        "targets: expected real numbers, got complex",
    ),
    "list with a gap": (
        Normal([0.0, None] * 3, SCALE),
        Y,
        TypeError,
        "predictions.loc: expected numbers, got list with entries of type NoneType",
    ),
    "ragged list of targets": (
        Normal(LOC, SCALE),
        [[0.0]] * (N - 1) + [[0.0, 1.0]],
        TypeError,
        "targets: expected an array of numbers, got list",
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
    "diagonal with other scales": (
        DiagNormal(jnp.ones((N, 2)), jnp.ones((N, 3))),
        jnp.ones((N, 2)),
        ValueError,
        r"predictions.scale: expected shape \[n, d\], as loc",
    ),
    "diagonal with other targets": (
        DiagNormal(jnp.ones((N, 2)), jnp.ones((N, 2))),
        jnp.ones((N, 3)),
        ValueError,
        r"targets: expected shape \[n, d\]",
    ),
    "zero dimensions": (
        DiagNormal(jnp.ones((N, 0)), jnp.ones((N, 0))),
        jnp.ones((N, 0)),
        ValueError,
        "with d >= 1",
    ),
    "logits": (
        Categorical(jnp.zeros((N, 3))),
        LABELS,
        ValueError,
        r"predictions.probs.sum\(-1\): expected rows that sum to one \(not logits\)",
    ),
    "negative probability": (
        Categorical(PROBS.at[0].set(jnp.array([-0.5, 1, 0.5]))),
        LABELS,
        ValueError,
        r"predictions.probs: expected probabilities in \[0, 1\]",
    ),
    "NaN probability": (
        Categorical(PROBS.at[0, 0].set(NAN)),
        LABELS,
        ValueError,
        "predictions.probs: expected probabilities",
    ),
    "label -1": (
        Categorical(PROBS),
        LABELS.at[3].set(-1),
        ValueError,
        r"targets: expected labels in 0, ..., 2, got targets\[3\] = -1",
    ),
    "label m": (
        Categorical(PROBS),
        LABELS.at[3].set(3),
        ValueError,
        r"targets: expected labels in 0, ..., 2, got targets\[3\] = 3",
    ),
    "complex labels": (
        Categorical(PROBS),
        LABELS * 1j,
        TypeError,
        "targets: expected real numbers, got complex",
    ),
    "floating labels": (
        Categorical(PROBS),
        LABELS * 0.5,
        ValueError,
        r"targets: expected integer class labels, got targets\[1\] = 0.5",
    ),
    "one class": (Categorical(jnp.ones((N, 1))), LABELS * 0, ValueError, "m >= 2"),
    "one-hot targets": (
        Categorical(PROBS),
        jax.nn.one_hot(LABELS, 3, dtype=int),
        ValueError,
        r"targets: expected shape \[n\]",
    ),
    "probability above one": (
        Bernoulli(LOC * 2),
        LABELS % 2,
        ValueError,
        r"predictions.probs: expected probabilities in \[0, 1\]",
    ),
    "binary label 2": (Bernoulli(LOC), LABELS, ValueError, "targets: expected labels in 0, ..., 1"),
    "two columns for Bernoulli": (
        Bernoulli(PROBS),
        LABELS % 2,
        ValueError,
        r"predictions.probs: expected shape \[n\]",
    ),
}
CLASS_CASES = [name for name in WRONG if isinstance(WRONG[name][0], Categorical | Bernoulli)]
