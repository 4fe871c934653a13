"""From samples to decisions: measures of all models, pairs, and what is within chance.

Two models are compared by d, the difference of their errors on the same samples, with the standard
error s of the mean of the differences of their influences (`measures`). A pair is decided at level
0.05 if d is far from zero by two rules, and of the same sign:

- as it is: z = d / s;
- less what chance gives: z = (d − difference of the means with redrawn labels) / s. The sharper of
  two models, or the one in more bins, has the larger error by chance. The SKCE is unbiased, so that
  both rules are one.

The p-value is the larger of the two. A simulation shows how often equal models are called
different (`simulation`).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from experiments.chance.measures import MEASURES, measure

ALPHA = 0.05
QUANTILE = 1.959964  # of the standard normal distribution, two-sided at this level
IS_UNBIASED = np.array([name == "SKCE" for name in MEASURES])


class Compared(NamedTuple):
    """What is known about M models from one set of samples; [4, M] each, but `variances`.

    Attributes:
        estimates: the measures.
        low, mean, high: 2.5 % quantile, mean, and 97.5 % quantile with redrawn labels: what a
            calibrated model of the same predictions has.
        pvalues: exact ones of calibration, (1 + #{T_b ≥ T}) / (B + 1).
        variances: of the difference of two models, [4, M, M]; of one model on the diagonal.
    """

    estimates: np.ndarray
    low: np.ndarray
    mean: np.ndarray
    high: np.ndarray
    pvalues: np.ndarray
    variances: np.ndarray


def compare(
    rng: np.random.Generator, probs: Sequence[np.ndarray], labels: np.ndarray, redraws: int
) -> Compared:
    """All measures of M models, predictions [n, m] each, on the same samples, labels [n]."""
    found = [measure(rng, p, labels, redraws) for p in probs]
    values = np.stack([one.values for one in found], 1)  # [4, M, 1 + B]
    influences = np.stack([one.influences for one in found], 1)
    observed, drawn = values[..., :1], values[..., 1:]
    low, high = np.quantile(drawn, (ALPHA / 2, 1 - ALPHA / 2), axis=-1)
    count = np.sum(drawn >= observed - 1e-12 * np.abs(observed), -1)
    covariances = np.stack([np.cov(x).reshape(len(x), len(x)) for x in influences]) / len(labels)
    own = np.diagonal(covariances, axis1=1, axis2=2)
    variances = own[:, :, None] + own[:, None] - 2 * covariances
    variances += own[:, :, None] * np.eye(len(found))
    pvalues = (1 + count) / values.shape[-1]
    return Compared(observed[..., 0], low, drawn.mean(-1), high, pvalues, variances)


class Pairs(NamedTuple):
    """All pairs of M models, [4, P] each.

    Attributes:
        difference: d, first model minus second.
        error: its standard error s.
        pvalue: the larger one of both rules.
    """

    difference: np.ndarray
    error: np.ndarray
    pvalue: np.ndarray


def pairs_of(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the first and second model of all pairs."""
    return np.triu_indices(number, 1)


def differences(found: Compared) -> Pairs:
    """All pairs; models that predict the same have the difference 0 and the p-value 1."""
    first, second = pairs_of(found.estimates.shape[1])
    by_chance = np.where(IS_UNBIASED[:, None], 0, found.mean)
    d, chance = (x[:, first] - x[:, second] for x in (found.estimates, by_chance))
    error = np.sqrt(np.maximum(found.variances[:, first, second], 0))
    z = np.stack([d, d - chance])
    z = np.divide(z, error, out=np.zeros_like(z), where=error > 0)
    smaller = np.where(z[0] * z[1] > 0, np.abs(z).min(0), 0)
    return Pairs(d, error, 2 * ndtr(-smaller))
