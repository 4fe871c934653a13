"""Levels and powers of all tests by simulation: one table of rates, each with its bounds.

What has a table in `experiments/results` is not simulated once more: the exact, aggregated and
asymptotic tests of normals and classes, of clusters and ensembles, and after recalibration.

A row is a function of a key that draws a data set and returns p-values (or 0 for an event, and 1
for none), the least and the largest rate of p-values up to 5 %, and the number of data sets. Rates
may be three standard errors beyond their bounds.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distances, estimators
from calibjax import distributions as D
from calibjax import hypothesis_tests as H
from calibjax import kernels as K
from tests import oracles


@pytest.fixture(autouse=True, scope="module")
def _optimised(_compilation):
    """Simulations run for longer than their programs are compiled."""
    jax.config.update("jax_disable_most_optimizations", False)


LEVEL, ANY = (0.05, 0.05), (0, 1)
W21 = oracles.normal_kernel()
WASSERSTEIN = distances.Wasserstein()
SMOOTH = K.TensorProduct(K.SquaredExponential(0.5, WASSERSTEIN), K.SquaredExponential(1.0))
NEAR = K.TensorProduct(K.Exponential(0.3, WASSERSTEIN), K.SquaredExponential(0.1))


class Row(NamedTuple):
    """What is simulated; bounds are those of each number that it returns."""

    pvalues: Callable[[jax.Array], Any]
    bounds: Any = LEVEL
    number: int = 1000
    batch: int = 50


ROWS: dict[str, Row] = {}


def of(test, data):
    """The p-value of a test of a key and of data of another one."""

    def pvalue(key):
        own, of_data = jax.random.split(key)
        found = test(own, *data(of_data))
        return getattr(found, "pvalue", found)

    return pvalue


def exactly(kernel, num_draws=199, **options):
    return functools.partial(with_kernel, H.exact_skce_test, kernel, num_draws=num_draws, **options)


def with_kernel(test, kernel, key, *data, **options):
    return test(key, kernel, *data, **options)


def normals(n, change=lambda m, e: e):
    """Predictions N(m, 0.1²) with uniform m; scores are a function of m and a normal variable."""

    def data(key):
        of_places, of_scores = jax.random.split(key)
        m = jax.random.uniform(of_places, (n,))
        targets = m + 0.1 * change(m, jax.random.normal(of_scores, (n,)))
        return D.Normal(m, jnp.full(n, 0.1)), targets

    return data


def labels(n, odds=lambda x: x):
    """Labels whose log-odds are a function of the predicted ones."""

    def data(key):
        keys = jax.random.split(key)
        x = 1.5 * jax.random.normal(keys[0], (n,))
        y = jax.random.bernoulli(keys[1], jax.nn.sigmoid(odds(x))).astype(int)
        return D.Bernoulli(jax.nn.sigmoid(x)), y

    return data


def members(n, m, draw=jax.random.normal):
    """Ensembles of a calibrated model, whose law differs between predictions."""

    def data(key):
        keys = jax.random.split(key)
        noise = 0.1 * draw(keys[1], (n, m + 1))
        values = jax.random.uniform(keys[0], (n, 1), noise.dtype) + noise
        return D.Ensemble(values[:, 1:]), values[:, 0]

    return data


def event(happens):
    return jnp.where(happens, 0.0, 1.0)


ROWS["exact, quick"] = Row(of(exactly(W21), normals(4)), LEVEL, 400)
wrong = normals(4, lambda m, e: 1 - 10 * m + e)  # W21's uncalibrated model
ROWS["exact, wrong, quick"] = Row(of(exactly(W21), wrong), (0.965, 1), 400)


# Dependent samples, and comparisons.
def compared(key, n, is_right, sampled):
    """Both calibrated, knowing different things, or wrong in opposite directions.

    Clusters are of four, whose targets have the correlation .5 given what one model knows, or all
    do; weights are exponential, of effectively n / 2 samples.
    """
    keys = jax.random.split(key, 4)
    one, two, noise = jax.random.normal(keys[0], (3, n))
    options = {}
    if sampled == "clusters":
        shared = jnp.repeat(jax.random.normal(keys[1], (n // 4,)), 4)
        noise, options = jnp.sqrt(0.5) * (noise + shared), {"clusters": jnp.arange(n) // 4}
    if sampled == "weights":
        options = {"weights": jax.random.exponential(keys[2], (n,))}
    targets = one + two + noise if is_right else one + noise
    if is_right:
        models = [D.Normal(x, jnp.full(n, 2**0.5)) for x in (one, two)]
    else:
        models = [D.Normal(one + s, jnp.ones(n)) for s in (0.5, -0.5)]
    scores = H.score_difference(*models, targets, **options).pvalue
    return H.skce_difference(SMOOTH, *models, targets, **options).pvalue, scores


for n in (64, 256):
    for sampled in ("plain", "clusters", "weights"):
        for is_right in (True, False):
            run = functools.partial(compared, n=n, is_right=is_right, sampled=sampled)
            label = f"comparison, {n}, {sampled}, {'right' if is_right else 'wrong'}"
            ROWS[label] = Row(run, [(0, 0.05), (0.045, 0.055)])


def biased_and_right(key):
    keys = jax.random.split(key)
    loc = jax.random.normal(keys[0], (256,))
    targets = loc + jax.random.normal(keys[1], (256,))
    models = [D.Normal(loc + s, jnp.ones(256)) for s in (0.5, 0.0)]
    test = H.skce_difference(SMOOTH, *models, targets)
    return [test.pvalue, jnp.where(test.estimate < 0, test.pvalue, 1)]  # of the wrong sign


ROWS["comparison, power"] = Row(biased_and_right, [(0.95, 1), (0, 0.001)], 200)


# Rounding errors of a test of ensembles.
CONSTANT = K.TensorProduct(K.Exponential(1.0, WASSERSTEIN), K.SquaredExponential(1e4))
of_rounding = functools.partial(with_kernel, H.ensemble_skce_test, CONSTANT, num_draws=99)
IN_SINGLE = members(20, 5, lambda key, shape: jax.random.normal(key, shape, jnp.float32))
ROWS["rounding errors"] = Row(of(of_rounding, IN_SINGLE), (0, 0.05), 200)


# Betting: how often the wealth ever reaches 20.
def crosses(data, key, **options):
    return event(H.e_process(*data(key), **options).crossing > 0)


def autoregression(n, horizon, phi=0.9):
    """Forecasts of so many steps, which are right."""

    def data(key):
        first, noise = jax.random.split(key)
        start = jax.random.normal(first) / np.sqrt(1 - phi**2)
        noise = jax.random.normal(noise, (n + horizon,))
        _, y = jax.lax.scan(lambda y, e: (phi * y + e,) * 2, start, noise)
        deviation = np.sqrt((1 - phi ** (2 * horizon)) / (1 - phi**2))
        predictions = D.Normal(phi**horizon * y[:-horizon], jnp.full(n, deviation))
        return predictions, y[horizon:]

    return data


for horizon in (1, 3, 6):
    run = functools.partial(crosses, autoregression(1024, horizon), horizon=horizon)
    ROWS[f"betting, {horizon} steps"] = Row(run, (0, 0.04), 500)


# Regions that are named, and no others.
GRID = np.stack(np.meshgrid(np.linspace(0.05, 0.95, 11), np.linspace(-0.4, 0.4, 9)), -1)
PLACES = GRID.reshape(-1, 2).T
SMALL = K.TensorProduct(K.SquaredExponential(0.05, WASSERSTEIN), K.SquaredExponential(0.1))


def shifted_region(size, key):
    """99 locations, n = 256; a bias where 0.4 < m < 0.5.

    Whether any location is named, one where the model is wrong, and one far from that.
    """
    own, of_data = jax.random.split(key)
    data = normals(256, lambda m, e: e + size * ((m > 0.4) & (m < 0.5)))(of_data)
    at = D.Normal(PLACES[0], np.full(99, 0.1)), PLACES.sum(0)
    test = H.witness_test(own, SMALL, *data, *at, num_draws=199)
    found, distance = test.adjusted_pvalue <= 0.05, np.abs(PLACES[0] - 0.45)
    return [event(jnp.any(found & x)) for x in (distance >= 0, distance < 0.06, distance > 0.3)]


for size, number in ((0.0, 600), (-2.0, 300), (2.0, 300)):
    bounds = [(0.99, 1), (0.99, 1), (0, 0.03)] if size else [LEVEL, ANY, ANY]
    ROWS[f"witness, {size}"] = Row(functools.partial(shifted_region, size), bounds, number, 10)

# Coverage of quantiles: adjusted p-values of levels, intervals and central intervals.
FIVE = np.array([0.05, 0.25, 0.5, 0.75, 0.95])


def of_quantiles(*data, **options):
    found = H.coverage_test(*data, num_draws=199, **options).adjusted_pvalue
    return functools.reduce(jnp.minimum, [jnp.min(p) for p in found.values() if p.size])


def quantiles(key):
    """80 normal forecasts by quantiles."""
    keys = jax.random.split(key)
    loc = jax.random.normal(keys[0], (80,))
    values = loc[:, None] + jax.scipy.stats.norm.ppf(FIVE)
    return D.Quantiles(FIVE, values), loc + jax.random.normal(keys[1], (80,))


def tied(name, n):
    """True quantiles of targets that often equal them, and a function of a key that draws these."""
    random = np.random.default_rng(3)
    if name == "rain":  # amounts of which 60 % are zero
        scale = random.uniform(1, 5, n)
        values = scale[:, None] * stats.gamma.ppf(np.maximum(FIVE - 0.6, 0) / 0.4, 0.8)
        amount = lambda key: scale * jax.random.gamma(key, 0.8, (n,))  # noqa: E731
        is_wet = lambda key: jax.random.uniform(key, (n,)) > 0.6  # noqa: E731
        draw = lambda a, b: jnp.where(is_wet(a), amount(b), 0.0)  # noqa: E731
    else:
        share = 1.5 / (1.5 + random.uniform(1, 6, n))
        values = stats.nbinom.ppf(FIVE, 1.5, share[:, None])
        rate = lambda key: (1 / share - 1) * jax.random.gamma(key, 1.5, (n,))  # noqa: E731
        draw = lambda a, b: 1.0 * jax.random.poisson(a, rate(b))  # noqa: E731
    return values, lambda key: draw(*jax.random.split(key))


def with_ties(name, n, places):
    values, draw = tied(name, n)
    predictions = D.Quantiles(FIVE[places], values[:, places])
    return lambda key: (predictions, draw(key))


ROWS["quantiles"] = Row(of(of_quantiles, quantiles), (0.03, 0.05), 2000)
for name in ("rain", "demand"):
    for n, places in ((100, [0, 1, 2, 3, 4]), (800, [0, 1, 2, 3, 4]), (100, [4]), (800, [0, 4])):
        data = with_ties(name, n, places)  # single levels are discrete, and reject less often
        ROWS[f"{name}, {n}, {places}"] = Row(of(of_quantiles, data), (0.02, 0.05))


# Samples with log-normal weights that have nothing to do with the data, and without weights: tests,
# and bands at 90 %.
def weighted(test, data, has_weights=True):
    def pvalue(key):
        keys = jax.random.split(key, 3)
        own = data(keys[0])
        weights = jnp.exp(jax.random.normal(keys[1], own[-1].shape)) if has_weights else None
        found = test(keys[2], *own, weights=weights)
        return getattr(found, "pvalue", found)

    return pvalue


def in_places(key, predictions, correct, **options):
    features, near = predictions.probs[:, None] ** 2, estimators.Neighbourhood.laplacian(0.3, 1)
    data = near, features, predictions.probs, correct
    test = H.local_calibration_test(key, *data, num_draws=99, **options)
    return jnp.min(test.adjusted_pvalue)


def at_locations(key, *data, **options):
    places = D.Normal(np.array([0.3, 0.6]), np.full(2, 0.1)), np.array([0.4, 0.5])
    test = H.witness_test(key, NEAR, *data, *places, num_draws=99, **options)
    return jnp.min(test.adjusted_pvalue)


def band(curve, *data, **options):
    return event(jnp.any(curve(*data, **options).is_outside))


def uniform(n):
    return lambda key: (jax.random.uniform(key, (n,)),)


curve, histogram = estimators.reliability_curve, estimators.pit_counts
bins = {"binning": estimators.UniformBins(5), "max_bins": 5, "num_draws": 49}
coverage = functools.partial(estimators.coverage_curve, kind="quantile", num_draws=39)
for n in (16, 64):
    for name, run, data, bounds in (
        ("skce", exactly(NEAR, 99), normals(n), LEVEL),
        ("ranks", functools.partial(H.rank_histogram_test, num_draws=99), members(n, 4), LEVEL),
        ("local", in_places, labels(n), LEVEL),
        ("witness", at_locations, normals(n), LEVEL),
        ("curve", functools.partial(band, curve, **bins), labels(n), (0.06, 0.1)),
        ("histogram", functools.partial(band, histogram, num_bins=4), uniform(n), (0.07, 0.1)),
        ("coverage", functools.partial(band, coverage), uniform(n), (0.07, 0.1)),
    ):
        for has_weights in (True, False):
            label = f"{'' if has_weights else 'no '}weights, {name}, {n}"
            is_rough = label == "no weights, histogram, 16"  # with few possible counts
            limits = (0.01, bounds[1]) if is_rough else bounds
            ROWS[label] = Row(weighted(run, data, has_weights), limits)
ROWS["weights, quantiles"] = Row(weighted(of_quantiles, quantiles), (0.03, 0.05))
# Of few redraws: a band that is one rank too narrow shows.
isotonic = functools.partial(band, estimators.isotonic_curve, num_draws=19)
ROWS["isotonic"] = Row(of(isotonic, labels(60)), (0.06, 0.1), 2000)


# Importance weights, as docs/weights.md has them.
def overconfident(p):
    return p - 0.6 * jnp.maximum(p - 0.5, 0)


def biased_sample(n, rate):
    """Probabilities of density s(p) = 1.8 − 1.6 p, by their quantile function; weights 1 / s."""

    def data(key):
        keys = jax.random.split(key)
        p = (1.8 - jnp.sqrt(3.24 - 3.2 * jax.random.uniform(keys[0], (n,)))) / 1.6
        y = jax.random.bernoulli(keys[1], rate(p)).astype(int)
        return D.Bernoulli(p), y, 1 / (1.8 - 1.6 * p)

    return data


def two_regions(key):
    """Rates p ± 0.1 in two regions, calibrated in both together; of one there are 80 %."""
    keys = jax.random.split(key, 3)
    p = jax.random.uniform(keys[0], (256,), minval=0.15, maxval=0.3)
    is_first = jax.random.bernoulli(keys[1], 0.8, (256,))
    y = jax.random.bernoulli(keys[2], p + jnp.where(is_first, 0.1, -0.1)).astype(int)
    return D.Bernoulli(p), y, jnp.where(is_first, 0.5 / 0.8, 0.5 / 0.2)


def importance(key, predictions, targets, weights):
    test = H.exact_skce_test(key, SHARP, predictions, targets, weights=weights, num_draws=199)
    return test.pvalue


def misses_other_population(key):
    """The truth by the midpoint rule; it is only three standard errors large."""
    p = (np.arange(2000) + 0.5) / 2000
    error = 0.6 * np.maximum(p - 0.5, 0)
    truth = 2 * np.mean(error[:, None] * np.exp(-np.abs(p[:, None] - p) / 0.2) * error)
    *data, weights = biased_sample(2000, overconfident)(key)
    return misses(truth, SHARP, *data, weights=weights)


SHARP = K.TensorProduct(K.Exponential(0.2, distances.TotalVariation()), K.White())
ROWS["importance"] = Row(of(importance, biased_sample(64, lambda p: p)), LEVEL, 2000)
# The test sees the regions through their weights.
ROWS["importance, regions"] = Row(of(importance, two_regions), (0.21, 0.21))
ROWS["importance, interval"] = Row(misses_other_population, (0.07, 0.07), 500, 10)


# Intervals: how often they miss.
def misses(truth, *data, **options):
    found = H.skce_confidence_interval(*data, **options)
    return event((found.low > truth) | (truth > found.high))


def shifted(key, n):
    keys = jax.random.split(key)
    predictions = D.Normal(jax.random.normal(keys[0], (n,)), jnp.full(n, 0.5))
    return SMOOTH, predictions, D.sample_targets(keys[1], predictions) + 0.3


def misses_of_shifted(truth, n, has_weights, key):
    keys = jax.random.split(key)
    weights = jnp.exp(jax.random.normal(keys[1], (n,))) if has_weights else None
    return misses(truth, *shifted(keys[0], n), weights=weights)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "has_weights"), [(128, False), (272, True)])
def test_intervals_of_shifted_normals(n, has_weights):
    """The truth is that of many samples; weighted, 272 (E w)² / E w² = 272 / e samples count."""
    truth = estimators.skce_block(*shifted(jax.random.key(1), 100_000), block_size=500)
    check(Row(functools.partial(misses_of_shifted, truth, n, has_weights), (0.04, 0.06)))


def check(row):
    """Rates of p-values up to 5 % are within their bounds."""
    keys = jax.random.split(jax.random.key(1), row.number)
    found = jax.jit(lambda keys: jax.lax.map(row.pvalues, keys, batch_size=row.batch))(keys)
    bounds = np.reshape(row.bounds, (-1, 2))
    for pvalues, (least, most) in zip(jax.tree.leaves(found), bounds, strict=True):
        assert 0 <= pvalues.min() <= pvalues.max() <= 1
        rate = np.mean(np.asarray(pvalues) <= 0.05 + 1e-6)
        errors = [3 * np.sqrt(x * (1 - x) / row.number) for x in (least, most)]
        assert least - errors[0] <= rate <= most + errors[1], rate


@pytest.mark.filterwarnings("ignore:predictions. targets are resampled")
@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.slow] * (not x.endswith("quick"))) for x in ROWS]
)
def test_rates(name):
    check(ROWS[name])
