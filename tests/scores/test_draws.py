"""Scores of draws against loops over them, and what fairness means."""

import functools

import numpy as np
import pytest

from calibjax import distributions as D
from calibjax import scores
from tests import oracles

N, M, SIZE = 6, 5, 3
RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(N, M, SIZE)), RNG.normal(size=(N, SIZE))
X[0, 1], X[1, 0] = X[0, 0], Y[1]  # equal draws, and a draw that is the target
PROBS = RNG.dirichlet(np.ones(M), N)
PROBS[3] = [0.5, 0, 0.2, 0, 0.3]
FAIR_CRPS = functools.partial(scores.crps, estimator="fair")
FAIR_ENERGY = functools.partial(scores.energy_score, estimator="fair")


@pytest.mark.parametrize("probs", [None, PROBS])
def test_against_loops(probs):
    weights = [None] * N if probs is None else probs
    for score, x, y, fair in (
        (scores.energy_score, X, Y, False),
        (scores.energy_score, X[..., 0], Y[:, 0], False),
        (scores.energy_score, X[..., :1], Y[:, :1], False),
        (FAIR_ENERGY, X, Y, True),
        (FAIR_CRPS, X[..., 0], Y[:, 0], True),
        (scores.crps, X[..., 0], Y[:, 0], False),
    ):
        expected = [oracles.energy_score(*row, fair) for row in zip(x, y, weights)]
        found = score(D.Ensemble(x, probs), y, reduction="none")
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_numbers_only_for_the_crps():
    with pytest.raises(ValueError, match="vectors have an energy_score"):
        FAIR_CRPS(D.Ensemble(X), Y)
