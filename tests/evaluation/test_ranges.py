"""Ranges and sentences of calibrated models, over many data sets."""

import collections

import jax
import numpy as np
import pytest

import calibjax
from calibjax import distributions

NUM_SETS = 400
N = 60
TOGETHER = ("Frequencies", "Groups")  # sections whose entries are all of one kind


def _classes(random):
    probs = random.dirichlet(np.ones(3), N)
    labels = (random.uniform(size=(N, 1)) > np.cumsum(probs, 1)).sum(1)
    return distributions.Categorical(probs), np.minimum(labels, 2)


def _normals(random):
    loc, scale = random.normal(size=N), random.uniform(0.5, 2, N)
    return distributions.Normal(loc, scale), loc + scale * random.normal(size=N)


def _quantiles(random):
    loc = random.normal(size=N)
    values = loc[:, None] + np.array([-1.6448536, -0.6744898, 0, 0.6744898, 1.6448536])
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    return distributions.Quantiles(levels, values), loc + random.normal(size=N)


def _ensembles(random):
    values = random.normal(size=(N, 1)) + random.gamma(2, size=(N, 10))
    return distributions.Ensemble(values[:, 1:]), values[:, 0]


def _held(evaluation):
    """Whether all ranges of each kind hold."""
    held = collections.defaultdict(lambda: True)
    for section in evaluation.sections:
        for entry in section.entries:
            if entry.by_chance is not None:
                kind = "" if section.title in TOGETHER else entry.name.split()[0]
                low, high = entry.by_chance
                held[f"{section.title}: {kind}"] &= low <= entry.value <= high
    return dict(held)


@pytest.mark.slow
@pytest.mark.parametrize("task", [_classes, _normals, _quantiles, _ensembles])
def test_ranges_and_sentences_of_calibrated_models(task):
    """Of 400 data sets: the standard error of 95 % is 1.1 %."""
    random = np.random.default_rng(0)
    held, blamed = [], 0
    for seed in range(NUM_SETS):
        evaluation = calibjax.evaluate(jax.random.key(seed), *task(random), groups=np.arange(N) % 3)
        held.append(_held(evaluation))
        blamed += not evaluation.sentences[0].startswith("No miscalibration was found")
    rates = {kind: np.mean([one[kind] for one in held]) for kind in held[0]}
    print(task.__name__, rates, blamed / NUM_SETS)
    assert min(rates.values()) >= 0.93, rates
    # Ranges of values that take few values, such as frequencies, hold more often.
    assert max(rates.values()) <= 0.99, rates
    assert blamed <= 0.05 * NUM_SETS + 3 * np.sqrt(NUM_SETS * 0.05 * 0.95)
