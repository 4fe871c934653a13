"""Levels and powers of all tests by simulation: one table of rates, each with its bounds.

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
from calibjax.evaluation.comparing import kernel_given, predictions_given
from calibjax.recalibration import (
    AffineScaling,
    IsotonicRegression,
    TemperatureScaling,
    recalibration_gain,
)
from calibjax.recalibration.numbers import AffineMap
from tests import oracles

LEVEL = 0.05, 0.05
ANY = 0, 1
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


def classes(n, truth=lambda p: p):
    """Ten classes; their probabilities are proportional to a function of the predicted ones."""

    def data(key):
        keys = jax.random.split(key)
        p = jax.random.dirichlet(keys[0], jnp.full(10, 0.5), (n,))
        logits = jnp.log(jnp.maximum(truth(p), 1e-30))
        return D.Categorical(p), jax.random.categorical(keys[1], logits)

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


CHANGES = {
    "shift": lambda m, e: e + 0.3,
    "back": lambda m, e: e - 0.3,
    "wide": lambda m, e: 1.4 * e,
    "narrow": lambda m, e: 0.7 * e,
    "local": lambda m, e: e + 2 * ((m > 0.4) & (m < 0.5)),
    "oscillating": lambda m, e: e + 0.8 * jnp.sin(8 * jnp.pi * m),
    "w21": lambda m, e: 1 - 10 * m + e,
}


# The exact test, with W21's kernel and with W19's of the median distance.
def parts(test):
    """P-values of the test and of its components."""
    own = test.components
    return test.pvalue, own.biased.pvalue, own.unbiased.pvalue, own.dispersion.pvalue


def of_classes(key, predictions, targets):
    scale = K.median_heuristic(distances.TotalVariation(), predictions)
    test = exactly(oracles.categorical_kernel(scale))
    return parts(test(key, predictions, targets))


def of_normals(*args):
    return parts(exactly(W21)(*args))


ROWS["exact, quick"] = Row(of(exactly(W21), normals(4)), LEVEL, 400)
ROWS["exact, w21, quick"] = Row(of(exactly(W21), normals(4, CHANGES["w21"])), (0.965, 1), 400)
ROWS["exact, normals"] = Row(of(of_normals, normals(64)), [LEVEL] * 4, 2000)
ROWS["exact, classes"] = Row(of(of_classes, classes(100)), [LEVEL] * 4, 2000)


# The aggregated test, methods.md 9.13: n = 64.
def aggregated(key, *data):
    return H.aggregated_skce_test(key, *data, num_draws=199)


def two_humps(key):
    signs, of_data = jax.random.split(key)
    sign = jnp.where(jax.random.bernoulli(signs, shape=(64,)), 0.9, -0.9)
    return normals(64, lambda m, e: sign + jnp.sqrt(0.19) * e)(of_data)


for n, number in ((16, 2000), (64, 2000), (256, 500)):
    ROWS[f"aggregated, {n}"] = Row(of(aggregated, normals(n)), LEVEL, number, 1)
POWERS = {"shift": 0.46, "wide": 0.92, "narrow": 0.84, "local": 0.55, "oscillating": 0.48}
for name, least in POWERS.items():
    data = normals(64, CHANGES[name])
    ROWS[f"aggregated, {name}"] = Row(of(aggregated, data), (least, 1), 500, 1)
ROWS["aggregated, two humps"] = Row(of(aggregated, two_humps), (0.7, 1), 500, 1)

# Asymptotic tests: as their docstrings say, not all hold their level.
for n, size, bounds in ((200, 2, LEVEL), (4, 2, (0.1, 0.13)), (256, 16, (0.02, 0.03))):
    options = {"null": "blocks", "block_size": size}
    in_blocks = functools.partial(with_kernel, H.asymptotic_skce_test, W21, **options)
    ROWS[f"blocks of {size}, {n}"] = Row(of(in_blocks, normals(n)), bounds)
for number in (2, 4):
    options = {"null": "spectrum", "block_size": 256 // number}
    spectrum = functools.partial(with_kernel, H.asymptotic_skce_test, W21, **options)
    ROWS[f"spectrum of {number} blocks"] = Row(of(spectrum, normals(256)), LEVEL, 1000, 1)


def mean_embedding(key, predictions, targets):
    """Asymptotically, and redrawn: the first is for many samples only."""
    of_places, own = jax.random.split(key)
    at = dict(zip(("at_predictions", "at_targets"), normals(3)(of_places), strict=True))
    test = lambda p, y: H.cme_test(None, W21, p, y, **at)  # noqa: E731
    statistic = lambda p, y: test(p, y).statistic  # noqa: E731
    redrawn = H.exact_test(own, statistic, predictions, targets, num_draws=99)
    return test(predictions, targets).pvalue, redrawn.pvalue


def in_bins(key, *data):
    """W19 Fig. 2: consistency resampling with more bins than the data can fill, and redraws."""
    bins = estimators.UniformBins(10)
    statistic = functools.partial(estimators.ece, binning=bins, notion="canonical")
    tests = H.consistency_test, H.exact_test
    return [test(key, statistic, *data, num_draws=99).pvalue for test in tests]


def without_redraws(key, *data):
    return mean_embedding(key, *data)[0]


bootstrap = functools.partial(with_kernel, H.asymptotic_skce_test, W21, num_draws=199)
ROWS["bootstrap"] = Row(of(bootstrap, normals(256)), (0.04, 0.06), 1000, 10)
ROWS["mean embedding, many"] = Row(of(without_redraws, normals(4096)), LEVEL, 500, 10)
ROWS["mean embedding"] = Row(of(mean_embedding, normals(16)), [(0.1, 1), LEVEL], 500)
ROWS["consistency"] = Row(of(in_bins, classes(50)), [(0.15, 1), LEVEL], 400, 20)


# Dependent samples, and comparisons.
def clustered(correlation, shift):
    """20 clusters of 5."""
    ids = jnp.repeat(jnp.arange(20), 5)

    def data(key):
        keys = jax.random.split(key, 3)
        common = jax.random.normal(keys[0], (20,))[ids]
        own = jax.random.normal(keys[1], (100,))
        errors = jnp.sqrt(correlation) * common + jnp.sqrt(1 - correlation) * own
        return *normals(100, lambda m, e: errors + shift)(keys[2]), ids

    return data


OF_CLUSTERS = K.TensorProduct(K.Exponential(1.0, WASSERSTEIN), K.SquaredExponential(0.2))
by_cluster = functools.partial(with_kernel, H.cluster_skce_test, OF_CLUSTERS, num_draws=199)
for correlation in (0.0, 0.3, 0.8):
    for shift, bounds in ((0, (0.025, 0.055)), (-1, (0.92, 1)), (1, (0.92, 1))):
        row = Row(of(by_cluster, clustered(correlation, shift)), bounds, 200 if shift else 1000)
        ROWS[f"clusters, {correlation}, {shift}"] = row


def compared(key, n, is_right, sampled, score=None):
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
            options = {"n": n, "is_right": is_right, "sampled": sampled}
            bounds = [(0, 0.05), (0.045, 0.055)]
            row = Row(functools.partial(compared, **options), bounds)
            ROWS[f"comparison, {n}, {sampled}, {'right' if is_right else 'wrong'}"] = row


def biased_and_right(key):
    keys = jax.random.split(key)
    loc = jax.random.normal(keys[0], (256,))
    targets = loc + jax.random.normal(keys[1], (256,))
    models = [D.Normal(loc + s, jnp.ones(256)) for s in (0.5, 0.0)]
    run = functools.partial(H.skce_difference, SMOOTH, *models, targets)
    return [run(alternative=x).pvalue for x in ("two-sided", "less")]


ROWS["comparison, power"] = Row(biased_and_right, [(0.95, 1), (0, 0.001)], 200)


def given_another(key):
    """Y ~ N(A + B, 1/4) for two standard normal A and B: models know A, B or both."""
    n = 64
    a, b, noise = jax.random.normal(key, (3, n))
    one, other = (D.Normal(x, jnp.full(n, 1.25**0.5)) for x in (a, b))
    both, targets = D.Normal(a + b, jnp.full(n, 0.5)), a + b + 0.5 * noise
    test = lambda p, q: exactly(kernel_given(K.default_kernel(p), q))(  # noqa: E731
        key, predictions_given(p, q), targets
    )
    return [test(p, q).pvalue for p, q in ((one, both), (one, other), (both, one))]


ROWS["cross calibration"] = Row(given_another, [(0.97, 1), (0.97, 1), LEVEL], 1000, 20)


def equal_laws(n, s, a, t, margin_at=None):
    """All predictions are N(0, s²), all targets of N(a, t²); the margin is the SKCE of them."""
    kernel = K.TensorProduct(K.Constant(), K.SquaredExponential(1.0))
    far = a if margin_at is None else margin_at
    between = np.exp(-(far**2) / 2 / (1 + s**2 + t**2)) / np.sqrt(1 + s**2 + t**2)
    margin = np.sqrt((1 + 2 * t**2) ** -0.5 - 2 * between + (1 + 2 * s**2) ** -0.5)

    def pvalue(key):
        targets = a + t * jax.random.normal(key, (n,))
        predictions = D.Normal(jnp.zeros(n), jnp.full(n, s))
        return H.skce_margin_test(kernel, predictions, targets, margin=margin).pvalue

    return pvalue


for laws in ((0.1, 2.0, 0.1), (0.1, 0.5, 0.1), (1.0, 0.5, 1.0), (1.0, 0.0, 1.5), (1.0, 0.0, 0.6)):
    for n, number in ((64, 1000), (256, 1000), (1024, 300)):
        ROWS[f"margin, {laws}, {n}"] = Row(equal_laws(n, *laws), (0, 0.07), number)
ROWS["half the margin"] = Row(equal_laws(256, 1.0, 0.25, 1.0, 0.5), (0.88, 1), 400)


# Tests of ensembles; redrawing from the members rejects calibrated ones, as the guide says.
def of_ensembles(key, *data):
    skce = H.ensemble_skce_test(key, NEAR, *data, num_draws=199)
    return skce.pvalue, H.rank_histogram_test(key, *data, num_draws=199).pvalue


def from_members(key, *data):
    return [exactly(NEAR, statistic=x)(key, *data).pvalue for x in ("biased", "omnibus")]


def of_ranks(shift, key, ensembles, targets):
    return H.exact_test(key, H.pit_ks, ensembles, targets + 0.1 * shift, num_draws=199)


for n, m, number in ((64, 3, 1000), (64, 11, 200), (16, 50, 200)):
    ROWS[f"ensembles, {n}, {m}"] = Row(of(of_ensembles, members(n, m)), [LEVEL] * 2, number)
ROWS["from members"] = Row(of(from_members, members(64, 5)), [(0.39, 0.39), (0.93, 1)], 300)
CONSTANT = K.TensorProduct(K.Exponential(1.0, WASSERSTEIN), K.SquaredExponential(1e4))
of_rounding = functools.partial(with_kernel, H.ensemble_skce_test, CONSTANT, num_draws=99)
IN_SINGLE = members(20, 5, lambda key, shape: jax.random.normal(key, shape, jnp.float32))
ROWS["rounding errors"] = Row(of(of_rounding, IN_SINGLE), (0, 0.05), 200)
for shift, bounds in ((0.0, LEVEL), (0.2, (0.6, 0.72))):
    ROWS[f"ranks, {shift}"] = Row(
        of(functools.partial(of_ranks, shift), members(200, 100)), bounds, 300
    )


# Statistics of the textbooks.
BINARY = {x: getattr(H, x) for x in ("cox", "cumulative_difference", "hosmer_lemeshow")}
BINARY |= {"spiegelhalter": H.spiegelhalter}
NUMBERS = {"berkowitz": H.berkowitz, "pit_ks": H.pit_ks}


def of_statistics(statistics, key, *data):
    all_of_them = lambda p, y: {name: one(p, y) for name, one in statistics.items()}  # noqa: E731
    found = H.exact_test(key, all_of_them, *data, num_draws=99, batch_size=99).pvalue
    return [found[name] for name in statistics]


for n in (16, 64):  # ties make few rejections of few samples fewer
    run = functools.partial(of_statistics, BINARY)
    ROWS[f"textbooks, {n}"] = Row(of(run, labels(n)), [(0.045, 0.05)] * 4, 2000)
run = functools.partial(of_statistics, NUMBERS)
ROWS["numbers"] = Row(of(run, normals(16)), [LEVEL] * 2, 2000)
# Powers with 99 redraws in 20 000 data sets of NumPy, with standard errors of at most 0.4 %.
POWERS = {"shift": (0.551, 0.528), "wide": (0.927, 0.307), "narrow": (0.945, 0.232)}
for name, powers in (POWERS | {"back": POWERS["shift"]}).items():
    bounds = [(x - 0.004, x + 0.004) for x in powers]
    ROWS[f"numbers, {name}"] = Row(of(run, normals(64, CHANGES[name])), bounds)


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


ROWS["betting, classes"] = Row(functools.partial(crosses, classes(1024)), (0, 0.04), 500)
for horizon in (1, 3, 6):
    run = functools.partial(crosses, autoregression(1024, horizon), horizon=horizon)
    ROWS[f"betting, {horizon} steps"] = Row(run, (0, 0.04), 500)


# Several statistics: adjusted p-values hold the level together, unadjusted ones do not.
def three_statistics(predictions, targets):
    z = (targets - predictions.loc) / predictions.scale
    return {"mean": jnp.abs(z.mean()), "largest": jnp.abs(z).max(), "square": 1e3 * jnp.mean(z**2)}


def smallest(key, *data):
    test = H.exact_test(key, three_statistics, *data, num_draws=99, adjust=True)
    return [jnp.min(jnp.stack([*x.values()])) for x in (test.pvalue, test.adjusted_pvalue)]


ROWS["three statistics"] = Row(of(smallest, normals(6)), [(0.08, 1), LEVEL])
OVERLAPPING = np.random.default_rng(0).random((1000, 51)) < np.r_[np.full(50, 0.2), 2]


def by_group(shift, key):
    """51 groups of 1000 samples, the last one of all, of which the first one is wrong."""
    keys = jax.random.split(key, 3)
    probs = jax.random.uniform(keys[0], (1000,))
    truth = jnp.clip(probs + shift * OVERLAPPING[:, 0], 0, 1)
    data = D.Bernoulli(probs), jax.random.bernoulli(keys[1], truth).astype(int)
    options = {"num_draws": 199, "residual": lambda p, y: y - p.probs}
    test = H.group_calibration_test(keys[2], *data, OVERLAPPING, **options)
    return jnp.min(test.pvalue), jnp.min(test.adjusted_pvalue), test.adjusted_pvalue[0]


ROWS["groups"] = Row(functools.partial(by_group, 0.0), [(0.55, 1), LEVEL, (0, 0.05)], 600, 1)
ROWS["groups, wrong"] = Row(functools.partial(by_group, 0.15), [ANY, ANY, (0.7, 1)], 200, 1)


# Regions that are named, and no others.
FEATURES = np.random.default_rng(1).uniform(size=(100, 2))
GRID = np.stack(np.meshgrid(np.linspace(0.05, 0.95, 11), np.linspace(-0.4, 0.4, 9)), -1)
PLACES = GRID.reshape(-1, 2).T
SMALL = K.TensorProduct(K.SquaredExponential(0.05, WASSERSTEIN), K.SquaredExponential(0.1))


def names(test, place, is_wrong, is_far):
    """Whether any location is named, one where the model is wrong, and one far from that."""
    found = test.adjusted_pvalue <= 0.05
    return [event(jnp.any(found & x)) for x in (place == place, is_wrong(place), is_far(place))]


def overconfident_region(error, key):
    """Confidences that are too large by so much where the first feature is below 0.3."""
    keys = jax.random.split(key, 3)
    confidences = jax.random.uniform(keys[0], (100,), minval=0.5)
    chance = confidences - error * (FEATURES[:, 0] < 0.3)
    correct = (jax.random.uniform(keys[1], (100,)) < chance).astype(int)
    near = estimators.Neighbourhood.laplacian(0.15, 5)
    test = H.local_calibration_test(keys[2], near, FEATURES, confidences, correct, num_draws=99)
    return names(test, FEATURES[:, 0], lambda x: x < 0.3, lambda x: x > 0.6)


def shifted_region(size, key):
    """methods.md 9.7: 99 locations, n = 256; a bias where 0.4 < m < 0.5."""
    own, of_data = jax.random.split(key)
    data = normals(256, lambda m, e: e + size * ((m > 0.4) & (m < 0.5)))(of_data)
    at = D.Normal(PLACES[0], np.full(99, 0.1)), PLACES.sum(0)
    test = H.witness_test(own, SMALL, *data, *at, num_draws=199)
    near = lambda m: jnp.abs(m - 0.45)  # noqa: E731
    return names(test, PLACES[0], lambda m: near(m) < 0.06, lambda m: near(m) > 0.3)


ROWS["local"] = Row(functools.partial(overconfident_region, 0.0), [LEVEL, ANY, ANY], 4000, 20)
found = [(0.914, 1), (0.914, 0.96), ANY]  # weights reach from the region to others: no level there
ROWS["local, region"] = Row(functools.partial(overconfident_region, 0.5), found, 300, 20)
for size in (0.0, -2.0, 2.0):
    bounds = [(0.99, 1), (0.99, 1), (0, 0.03)] if size else [LEVEL, ANY, ANY]
    row = Row(functools.partial(shifted_region, size), bounds, 300 if size else 600, 10)
    ROWS[f"witness, {size}"] = row

# Coverage of quantiles: adjusted p-values of levels, intervals and central intervals.
FIVE = np.array([0.05, 0.25, 0.5, 0.75, 0.95])


def of_quantiles(key, predictions, targets):
    found = H.coverage_test(key, predictions, targets, num_draws=199).adjusted_pvalue
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
    elif name == "demand":
        share = 1.5 / (1.5 + random.uniform(1, 6, n))
        values = stats.nbinom.ppf(FIVE, 1.5, share[:, None])
        rate = lambda key: (1 / share - 1) * jax.random.gamma(key, 1.5, (n,))  # noqa: E731
        draw = lambda a, b: 1.0 * jax.random.poisson(a, rate(b))  # noqa: E731
    elif name == "near 30":
        rate = random.uniform(25, 35, n)
        values = stats.poisson.ppf(FIVE, rate[:, None])
        draw = lambda a, b: 1.0 * jax.random.poisson(a, rate)  # noqa: E731
    else:  # rounded
        loc, scale = random.normal(10, 5, n), random.uniform(0.7, 2, n)
        values = np.round(loc[:, None] + scale[:, None] * stats.norm.ppf(FIVE), 1)
        draw = lambda a, b: jnp.round(loc + scale * jax.random.normal(a, (n,)), 1)  # noqa: E731
    return values, lambda key: draw(*jax.random.split(key))


def with_ties(name, n, places):
    values, draw = tied(name, n)
    predictions = D.Quantiles(FIVE[places], values[:, places])
    return lambda key: (predictions, draw(key))


ROWS["quantiles"] = Row(of(of_quantiles, quantiles), (0.03, 0.05), 2000)
for name in ("rain", "demand", "near 30", "rounded"):
    for n, places in ((100, [0, 1, 2, 3, 4]), (800, [0, 1, 2, 3, 4]), (100, [4]), (800, [0, 4])):
        data = with_ties(name, n, places)  # single levels are discrete, and reject less often
        ROWS[f"{name}, {n}, {places}"] = Row(of(of_quantiles, data), (0.02, 0.05))


# The composite test: predictions that a recalibration makes right, and others that it cannot.
def mapped(make):
    """64 predictions, and targets of what an affine map makes of them."""

    def data(key):
        keys = jax.random.split(key)
        predictions = make(jax.random.uniform(keys[0], (64,)))
        params = AffineMap(jnp.array(0.3), jnp.array(1.4))
        repaired = AffineScaling().apply(params, predictions)
        return predictions, D.sample_targets(keys[1], repaired)

    return data


def with_members(error):
    """Ensembles of predictions that are wrong by an affine map, and by this where they are low."""
    numbers = mapped(lambda x: D.Normal(10 * x, 1 + x / 3))

    def data(key):
        keys = jax.random.split(key)
        p, y = numbers(keys[0])
        noise = jax.random.normal(keys[1], (64, 11))
        ensembles = D.Ensemble(p.loc[:, None] + p.scale[:, None] * noise)
        return ensembles, y + error * jnp.sign(jnp.mean(ensembles.values, 1) - 5)

    return data


def skewed(m):
    """Exponential members, whose scales differ."""

    def data(key):
        keys = jax.random.split(key)
        scale = jnp.exp(0.5 * jax.random.normal(keys[0], (64, 1)))
        drawn = scale * jax.random.exponential(keys[1], (64, m + 1))
        means = drawn[:, 1:].mean(1, keepdims=True)
        return D.Ensemble(means + 1.5 * (drawn[:, 1:] - means)), drawn[:, 0]

    return data


def wave(key):
    """The wave of the guide is no monotone map."""
    keys = jax.random.split(key)
    p = jax.nn.sigmoid(1.5 * jax.random.normal(keys[0], (256,)))
    truth = jnp.clip(p + 0.2 * jnp.sin(6 * jnp.pi * p), 0, 1)
    return D.Bernoulli(p), D.sample_targets(keys[1], D.Bernoulli(truth))


STEPS, AFFINE, ONE = IsotonicRegression(smooth=False), AffineScaling(), TemperatureScaling()
HOLDS = 0, 0.05
for name, method, data, bounds in (
    ("labels", ONE, labels(64, lambda x: x / 1.5), HOLDS),
    ("classes", ONE, classes(64, lambda p: p ** (1 / 1.5)), HOLDS),
    ("normals", AFFINE, mapped(lambda x: D.Normal(x, jnp.full_like(x, 0.1))), HOLDS),
    ("gamma", AFFINE, mapped(lambda x: D.Gamma(1 + 3 * x, jnp.ones_like(x))), HOLDS),
    ("members", AFFINE, with_members(0.0), HOLDS),
    ("two skewed members", AFFINE, skewed(2), HOLDS),
    ("five skewed members", AFFINE, skewed(5), HOLDS),
    ("isotonic", STEPS, labels(64, lambda x: x / 1.5), HOLDS),
    ("wave", STEPS, wave, (0.55, 1)),
    ("bent", AFFINE, with_members(1.5), (0.9, 1)),
):
    run = functools.partial(with_kernel, H.composite_calibration_test, method)
    ROWS[f"composite, {name}"] = Row(of(run, data), bounds, 200, 1)


# Samples with log-normal weights: tests, and bands at 90 %.
def weighted(n, test, has_weights=True):
    """A test with weights that have nothing to do with the data."""

    def pvalue(key):
        keys = jax.random.split(key, 3)
        weights = jnp.exp(jax.random.normal(keys[0], (n,))) if has_weights else None
        return test(keys[1], *_weighted_data(test, keys[2], n), weights=weights)

    return pvalue


def _weighted_data(test, key, n):
    keys = jax.random.split(key, 3)
    loc, noise = jax.random.normal(keys[0], (2, n))
    if test in (_coverage, _ranks):
        width = 1.2815515655446004
        values = loc[:, None] + jnp.array([-width, 0.0, width])
        quantiles = D.Quantiles(jnp.array([0.1, 0.5, 0.9]), values)
        ensembles = D.Ensemble(jax.random.normal(keys[1], (n, 4)))
        return (quantiles, loc + noise) if test is _coverage else (ensembles, noise)
    confidences = jax.random.uniform(keys[1], (n,))
    correct = (jax.random.uniform(keys[2], (n,)) < confidences).astype(int)
    if test is _local:
        return loc[:, None], confidences, correct
    if test in (_curve, _isotonic):
        return D.Bernoulli(confidences), correct
    if test is _histograms:
        return (confidences,)
    return D.Normal(loc, jnp.exp(noise)), loc + jnp.exp(noise) * jax.random.normal(keys[1], (n,))


def _skce(key, *data, **options):
    return H.exact_skce_test(key, SMOOTH, *data, num_draws=99, **options).pvalue


def _coverage(*data, **options):
    return jnp.min(H.coverage_test(*data, num_draws=99, **options).adjusted_pvalue["levels"])


def _ranks(*data, **options):
    return H.rank_histogram_test(*data, num_draws=99, **options).pvalue


def _local(key, *data, **options):
    near = estimators.Neighbourhood.laplacian(1.0, 1)
    test = H.local_calibration_test(key, near, *data, num_draws=99, **options)
    return jnp.min(test.adjusted_pvalue)


def _witness(key, *data, **options):
    places = D.Normal(np.array([0.0, 1.0]), np.ones(2)), np.array([0.5, -0.5])
    test = H.witness_test(key, SMOOTH, *data, *places, num_draws=99, **options)
    return jnp.min(test.adjusted_pvalue)


def _curve(*data, **options):
    bins = {"binning": estimators.UniformBins(5), "max_bins": 5, "num_draws": 49}
    return event(jnp.any(estimators.reliability_curve(*data, **bins, **options).is_outside))


def _isotonic(*data, **options):
    return event(jnp.any(estimators.isotonic_curve(*data, num_draws=99, **options).is_outside))


def _histograms(key, values, **options):
    options |= {"num_draws": 39}
    counts = estimators.pit_counts(key, values, num_bins=4, **options)
    curve = estimators.coverage_curve(key, values, kind="quantile", **options)
    return event(jnp.any(counts.is_outside)), event(jnp.any(curve.is_outside))


for n in (16, 64):
    for run, bounds in (
        *((_skce, LEVEL), (_ranks, LEVEL), (_local, LEVEL), (_witness, LEVEL)),
        (_coverage, (0, 0.05)),  # levels alone, of which p-values are adjusted for all sets
        *((_curve, (0.06, 0.1)), (_histograms, [(0.07, 0.1)] * 2)),  # many have only labels 0, or 1
    ):
        ROWS[f"weights, {run.__name__[1:]}, {n}"] = Row(weighted(n, run), bounds, 2000)


BANDS = ((_curve, (0.06, 0.1)), (_isotonic, (0.06, 0.1)), (_histograms, [(0.07, 0.1)] * 2))
for run, bounds in BANDS:
    ROWS[f"bands, {run.__name__[1:]}"] = Row(weighted(64, run, has_weights=False), bounds, 2000)


# Intervals: how often they miss.
def misses(truth, *data, **options):
    found = H.skce_confidence_interval(*data, **options)
    return event((found.low > truth) | (truth > found.high))


def of_wrong_classes(share, options, key):
    """Predictions that are sure, of either class, and wrong: the largest |h|, and SKCE 2 share²."""
    predicted = jax.random.bernoulli(key, (1 + share) / 2, (24,)).astype(int)
    data = D.Categorical(jnp.eye(2)[predicted]), 1 - predicted
    kernel = K.TensorProduct(K.Exponential(1e9), K.White())
    return misses(2 * share**2, kernel, *data, method="distribution_free", **options)


THEOREMS = {"biased": {}, "unbiased": {"estimator": "unbiased"}}
THEOREMS["pairs"] = {"estimator": "block", "block_size": 2}
for name, options in THEOREMS.items():
    for share in (0.0, 0.3, 1.0):
        run = functools.partial(of_wrong_classes, share, options)
        ROWS[f"theorems, {name}, {share}"] = Row(run, (0, 0.05), 4000, 500)


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


def gain(key):
    keys = jax.random.split(key, 3)
    predictions = D.Normal(jax.random.normal(keys[0], (1000,)), jnp.ones(1000))
    targets = predictions.loc + 0.2 + 1.2 * jax.random.normal(keys[1], (1000,))
    methods = {"affine": AffineScaling()}
    return recalibration_gain(keys[2], methods, predictions, targets)["affine"]


@pytest.mark.slow
def test_intervals_of_gains():
    """Of the mean gain: 93.6 % of 2000 data sets of 1000 samples, and 91 % of those of 200."""
    gains = jax.vmap(jax.jit(gain))(jax.random.split(jax.random.key(0), 500))
    truth = jnp.mean(gains.mean)
    assert 0.92 <= np.mean((gains.low <= truth) & (truth <= gains.high)) <= 0.98


def check(row):
    """Rates of p-values up to 5 % are within their bounds."""
    keys = jax.random.split(jax.random.key(1), row.number)
    found = jax.jit(lambda keys: jax.lax.map(row.pvalues, keys, batch_size=row.batch))(keys)
    leaves = jax.tree.leaves(found)
    bounds = np.reshape(row.bounds, (-1, 2))
    for pvalues, (least, most) in zip(leaves, bounds, strict=True):
        assert pvalues.min() >= 0
        assert pvalues.max() <= 1
        rate = np.mean(np.asarray(pvalues) <= 0.05 + 1e-6)
        errors = [3 * np.sqrt(x * (1 - x) / row.number) for x in (least, most)]
        assert least - errors[0] <= rate <= most + errors[1], rate


SLOW = pytest.mark.slow
NAMES = [pytest.param(x, marks=() if x.endswith("quick") else SLOW) for x in ROWS]


@pytest.mark.filterwarnings("ignore:predictions. targets are resampled")
@pytest.mark.parametrize("name", NAMES)
def test_rates(name):
    check(ROWS[name])
