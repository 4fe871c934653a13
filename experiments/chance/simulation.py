"""How often are two models that are truly equal called different?

- swapped: each image gets the predictions of two networks in random order, drawn with replacement
  from real ones, so that both models have the same law and all their errors are equal;
- calibrated: both models are calibrated, so that all errors are zero, and one of them is sharper:
  labels are drawn from p = softmax(u + v), and the coarse model predicts the mean of p over v.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from experiments.chance.comparisons import ALPHA, MEASURES, compare, differences
from experiments.harness import cells

NUM_CLASSES = 10
NUM_SHIFTS = 8  # of which v is one
SPREAD = 2.0  # standard deviation of u and of v
NUM_RESAMPLES = 200

Data = tuple[jax.Array, jax.Array]  # predictions [2, n, m], labels [n]


def swapped(key: jax.Array, networks: Data, n: int) -> Data:
    """Two models of the same law from real predictions [2, N, m] and labels [N]."""
    probs, labels = networks
    first, second = jax.random.split(key)
    chosen = jax.random.randint(first, (n,), 0, len(labels))
    is_swapped = jax.random.bernoulli(second, shape=(n, 1))
    one, other = probs[:, chosen]
    pair = jnp.stack([jnp.where(is_swapped, other, one), jnp.where(is_swapped, one, other)])
    return pair, labels[chosen]


def calibrated(key: jax.Array, networks: Data, n: int) -> Data:
    """A sharp and a coarse calibrated model."""
    del networks
    keys = jax.random.split(key, 4)
    shifts = SPREAD * jax.random.normal(keys[0], (NUM_SHIFTS, NUM_CLASSES))
    u = SPREAD * jax.random.normal(keys[1], (n, NUM_CLASSES))
    all_probs = jax.nn.softmax(u[:, None] + shifts)
    chosen = jax.random.randint(keys[2], (n,), 0, NUM_SHIFTS)
    sharp = all_probs[jnp.arange(n), chosen]
    labels = jax.random.categorical(keys[3], jnp.log(sharp))
    return jnp.stack([sharp, jnp.mean(all_probs, 1)]), labels


SCENARIOS = {"swapped": swapped, "calibrated": calibrated}


def rejections(name: str, n: int, networks: Data, number: int) -> dict[str, Any]:
    """Numbers of data sets in which the models are called different, for each measure.

    Args:
        name: name of the scenario.
        n: size of a data set.
        networks: real predictions [2, N, m] and labels [N].
        number: number of data sets.
    """

    @functools.partial(jax.jit)
    def found(keys: jax.Array, networks: Data) -> Any:
        def one(key: jax.Array) -> Any:
            own, other = jax.random.split(key)
            return compare(other, *SCENARIOS[name](own, networks, n), NUM_RESAMPLES)

        return lax.map(one, keys)

    keys = jax.random.split(cells.key_of(f"chance/simulation/{name}/{n}"), number)
    compared = jax.tree.map(np.asarray, found(keys, networks))
    counts = {}
    for kind, alone in (("decided", False), ("numbers alone", True)):
        pvalues = differences(compared, numbers_alone=alone)[2][..., 0]
        counts[kind] = np.sum(pvalues <= ALPHA, 0).tolist()
    return counts


def level_rows(counts: dict[tuple[str, int], dict[str, Any]], number: int) -> list[dict[str, Any]]:
    """A row for each scenario, n and measure, from `rejections`."""
    return [
        {
            "both models": name,
            "n": n,
            "measure": measure,
            "data sets": number,
            "decided": found["decided"][i] / number,
            "numbers alone": found["numbers alone"][i] / number,
            "s.e. at 0.05": math.sqrt(ALPHA * (1 - ALPHA) / number),
        }
        for (name, n), found in counts.items()
        for i, measure in enumerate(MEASURES)
    ]
