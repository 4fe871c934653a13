"""Calibrated predictions of every kind, and targets: functions of a generator of NumPy and n."""

import numpy as np
import scipy.stats

from calibjax import distributions

LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])


def binary(random, n):
    probs = random.uniform(0.02, 0.98, size=n)
    return distributions.Bernoulli(probs), (random.uniform(size=n) < probs).astype(int)


def classes(random, n, number=10):
    logits = 2 * random.normal(size=(n, number))
    labels = np.argmax(logits + random.gumbel(size=(n, number)), 1)
    return distributions.CategoricalLogits(logits), labels


def normals(random, n):
    loc, scale = random.normal(size=n), random.uniform(0.5, 2, n)
    return distributions.Normal(loc, scale), loc + scale * random.normal(size=n)


def counts(random, n):
    rates = random.uniform(1, 6, n)
    return distributions.Poisson(rates), random.poisson(rates)


def vectors(random, n):
    loc = random.normal(size=(n, 2))
    return distributions.DiagNormal(loc, np.ones((n, 2))), loc + random.normal(size=(n, 2))


def ensembles(random, n):
    values = random.normal(size=(n, 1)) + random.gamma(2, size=(n, 11))
    return distributions.Ensemble(values[:, 1:]), values[:, 0]


def quantiles(random, n, levels=LEVELS):
    loc = random.normal(size=(n, 1))
    values = loc + scipy.stats.norm.ppf(levels)
    return distributions.Quantiles(levels, values), loc[:, 0] + random.normal(size=n)


def one_sided(random, n):
    return quantiles(random, n, np.array([0.9, 0.95, 0.99]))


def quantiles_of_counts(random, n):
    rates = random.uniform(1, 8, (n, 1))
    values = scipy.stats.poisson.ppf(LEVELS, rates)
    return distributions.Quantiles(LEVELS, values), random.poisson(rates[:, 0]).astype(float)


def rain(random, n):
    """60 % zeros, and gamma amounts of different sizes otherwise."""
    scale = random.uniform(0.5, 3, (n, 1))
    values = scale * scipy.stats.gamma.ppf(np.maximum(LEVELS - 0.6, 0) / 0.4, 2)
    amounts = scale[:, 0] * random.gamma(2, size=n)
    return distributions.Quantiles(LEVELS, values), amounts * (random.uniform(size=n) > 0.6)


def rounded(random, n):
    """Values that were written with one decimal, of quantiles and of targets."""
    predictions, targets = quantiles(random, n)
    return distributions.Quantiles(LEVELS, predictions.values.round(1)), targets.round(1)
