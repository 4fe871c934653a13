"""How often are two models that are truly equal called different?

- swapped: each image gets the predictions of two networks in random order, drawn with replacement
  from real ones, so that both models have the same law and all their errors are equal;
- calibrated: both models are calibrated, so that all errors are zero, and one of them is sharper:
  labels are drawn from p = softmax(u + v), and the coarse model predicts the mean of p over v.
"""

import math
from typing import Any

import numpy as np
from scipy.special import softmax

from experiments.chance.comparisons import ALPHA, compare, differences
from experiments.chance.measures import MEASURES, redrawn

NUM_CLASSES = 10
NUM_SHIFTS = 8  # of which v is one
SPREAD = 2.0  # standard deviation of u and of v
NUM_REDRAWS = 99
Pair = tuple[np.ndarray, np.ndarray]  # predictions [2, n, m], labels [n]


def swapped(rng: np.random.Generator, networks: Pair, n: int) -> Pair:
    """Two models of the same law from real predictions [2, N, m] and labels [N]."""
    probs, labels = networks
    chosen = rng.integers(len(labels), size=n)
    first = rng.integers(2, size=n)
    return np.stack([probs[first, chosen], probs[1 - first, chosen]]), labels[chosen]


def calibrated(rng: np.random.Generator, networks: Pair, n: int) -> Pair:
    """A sharp and a coarse calibrated model."""
    del networks
    shifts = SPREAD * rng.normal(size=(NUM_SHIFTS, NUM_CLASSES))
    u = SPREAD * rng.normal(size=(n, 1, NUM_CLASSES))
    probs = softmax(u + shifts, -1)
    sharp = probs[np.arange(n), rng.integers(NUM_SHIFTS, size=n)]
    return np.stack([sharp, probs.mean(1)]), redrawn(rng, sharp, 1)[0]


SCENARIOS = {"swapped": swapped, "calibrated": calibrated}


def rejections(
    rng: np.random.Generator, name: str, n: int, networks: Pair, number: int
) -> list[int]:
    """Numbers of data sets of n samples with models that are called different, by measure."""
    counts = np.zeros(len(MEASURES), int)
    for _ in range(number):
        probs, labels = SCENARIOS[name](rng, networks, n)
        found = compare(rng, list(probs), labels, NUM_REDRAWS)
        counts += differences(found).pvalue[:, 0] <= ALPHA
    return counts.tolist()


def level_rows(counts: dict[tuple[str, int], list[int]], number: int) -> list[dict[str, Any]]:
    """A row for each scenario and n, from `rejections`."""
    error = math.sqrt(ALPHA * (1 - ALPHA) / number)
    return [
        {"both models": name, "n": n, "data sets": number}
        | {measure: k / number for measure, k in zip(MEASURES, found, strict=True)}
        | {"s.e. at 0.05": error}
        for (name, n), found in counts.items()
    ]
