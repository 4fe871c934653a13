"""The law of units: nothing that has no unit depends on the unit of the targets.

Targets, predictions and length scales are multiplied by powers of two, which change no digit of a
floating-point number. What has no unit stays as it is, what is in units of the targets is
multiplied, to the last digit or a few roundings.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances as D
from calibjax import distributions, estimators, hypothesis_tests, recalibration, scores, streaming
from calibjax import kernels as K
from calibjax.distances.elementary import SquaredEuclidean
from calibjax.distributions.composed import Recalibrated
from calibjax.kernels.stationary import PowerExponential
from tests import oracles
from tests.registry import families

KEY, B = jax.random.key(0), {"num_draws": 19}


@functools.singledispatch
def in_units(thing, c):
    """A prediction (or batch), a distance or a kernel for targets that are multiplied by c."""
    raise NotImplementedError(f"say how {type(thing).__name__} changes with the unit of targets")


def _changed(**powers):
    """A rule for records: fields times these powers of c."""

    def rule(record, c):
        changed = {k: getattr(record, k) * c**p for k, p in powers.items()}
        return dataclasses.replace(record, **changed)

    return rule


def _of_parts(*fields):
    """A rule for records of records."""

    def rule(record, c):
        def changed(part):
            return tuple(map(changed, part)) if type(part) is tuple else in_units(part, c)

        return dataclasses.replace(record, **{f: changed(getattr(record, f)) for f in fields})

    return rule


def _stationary(kernel, c):
    scale = kernel.length_scale * c ** _POWERS[type(kernel.distance)]
    distance = in_units(kernel.distance, c)
    return dataclasses.replace(kernel, length_scale=scale, distance=distance)


# Distances in units of the targets, and kernels and distances without one.
_POWERS = {D.Euclidean: 1, D.Manhattan: 1, D.Wasserstein: 1, D.MixtureWasserstein: 1}
_POWERS |= {SquaredEuclidean: 2, D.MaximumMeanDiscrepancy: 0, D.TotalVariation: 0, D.Features: 0}
_RULES = {
    _changed(loc=1, scale=1): (
        *(distributions.Normal, distributions.DiagNormal, distributions.Laplace),
        *(distributions.Logistic, distributions.StudentT, distributions.GeneralizedNormal),
    ),
    _changed(loc=1, cov=2): (distributions.MvNormal,),
    _changed(rate=-1): (distributions.Gamma,),
    _changed(low=1, high=1): (distributions.Uniform,),
    _changed(values=1): (distributions.Ensemble, distributions.Quantiles),
    _of_parts("components"): (distributions.Mixture,),
    _of_parts("distribution"): (Recalibrated,),
    _of_parts("terms"): (K.base.Sum,),
    _of_parts("factors"): (K.base.Product,),
    _of_parts("kernel"): (K.base.Scaled, K.Stein),
    _of_parts("prediction", "target"): (K.TensorProduct,),
    _of_parts("kernel", "landmarks"): (K.Nystrom,),
    _stationary: (K.SquaredExponential, K.Exponential, K.Matern, PowerExponential),
    (lambda same, c: same): (*_POWERS, K.White, K.Constant, K.LabelKernel, K.NormalScore),
    (lambda distance, c: D.MaximumMeanDiscrepancy(in_units(distance.kernel, c))): (
        D.MaximumMeanDiscrepancy,
    ),
    (lambda p, c: dataclasses.replace(p, loc=p.loc + p.loc.dtype.type(np.log(c)))): (
        distributions.LogNormal,
    ),
}
for _rule, _classes in _RULES.items():
    for _class in _classes:
        in_units.register(_class, _rule)


class Data(NamedTuple):
    """A data set in units of c."""

    predictions: object
    targets: object
    kernel: object
    c: float = 1.0

    def times(self, c):
        predictions, kernel = in_units(self.predictions, c), in_units(self.kernel, c)
        return Data(predictions, self.targets * c, kernel, self.c * c)


# Families of labels, counts and proportions.
WITHOUT_UNIT = {"Bernoulli", "Categorical", "CategoricalLogits", "Poisson", "Beta", "Dirichlet"}
WITHOUT_UNIT |= {"Mixture of classes", "Ensemble of counts", "NegativeBinomial"}
SCALED = sorted(families.ALL.keys() - WITHOUT_UNIT)


@functools.cache
def data_set(name):
    """The valid data of the registry, in float32, with kernels that have a unit."""
    family = families.ALL[name]
    values = {k: jnp.asarray(a.value) for k, a in family.parameters.items()}
    kernel = family.kernel
    if name == "MvNormal":  # the Euclidean distance adds up means and variances
        prediction = K.Exponential(1.5, D.Wasserstein())
        kernel = K.TensorProduct(prediction, family.target_kernel)
    return Data(family.make(**values), jnp.asarray(family.targets.value), kernel)


def _each(function):
    """A function of one prediction and one target, of all."""
    return lambda d: jax.vmap(function)(d.predictions, d.targets)


def _log_density(d):
    dimension = 1 if d.targets.ndim == 1 else d.targets.shape[1]
    return jax.vmap(lambda p, y: p.log_prob(y))(d.predictions, d.targets) + dimension * jnp.log(d.c)


def _tempered_log_density(p, y):
    return jax.grad(jax.grad(lambda t: p.tempered(jnp.exp(t)).log_prob(y)))(0.3)


def _interval(d):
    found = recalibration.temperature_interval(d.predictions, d.targets)
    return found.low, found.estimate, found.high


def _slopes_by_predictions(d):
    slopes = jax.grad(lambda p: estimators.skce(d.kernel, p, d.targets))(d.predictions)
    return in_units(slopes, d.c)


def _slopes_by_kernel(d):
    slopes = jax.grad(lambda k: estimators.skce(k, d.predictions, d.targets))(d.kernel)
    return in_units(slopes, d.c)


def _of(name, *more, **options):
    """The numbers of a test of kernel, predictions and targets, and of what else it takes."""

    def run(d):
        test, given = getattr(hypothesis_tests, name), (d.kernel, d.predictions, d.targets)
        given += tuple(one(d) for one in more)
        key = () if name in ("skce_confidence_interval", "distribution_free_skce_test") else (KEY,)
        return jax.tree.leaves(test(*key, *given, **options))

    return run


def _locations(d):
    return jax.tree.map(lambda leaf: leaf[:3], (d.predictions, d.targets[::-1]))


def _location(place):
    return lambda d: _locations(d)[place]


def _bias(predictions, targets):
    return abs((targets - predictions.mean()).mean())


def _of_bias(name):
    test = getattr(hypothesis_tests, name)
    return lambda d: test(KEY, _bias, d.predictions, d.targets, **B).pvalue


def _aggregated(d):
    kernel = {"one": d.kernel}
    return hypothesis_tests.aggregated_skce_test(
        KEY, d.predictions, d.targets, kernels=kernel, **B
    ).pvalue


def _default_kernels(d):
    found = K.default_kernel(d.predictions)
    return jax.tree.leaves(jax.tree.map(lambda x: x, in_units(found, 1 / d.c)))


def _of_stream(accumulator, d):
    state = accumulator.update(accumulator.init(), d.predictions, d.targets)
    return jax.tree.leaves(accumulator.result(state))


def _local_errors(d):
    features = jnp.stack([d.targets, d.targets[::-1]], 1)
    near = estimators.Neighbourhood(K.SquaredExponential(0.7 * d.c), estimators.UniformBins(1))
    confidences = jnp.linspace(0.3, 0.9, len(d.targets), dtype=jnp.float32)
    correct = jnp.arange(len(d.targets)) % 2
    return jnp.mean(estimators.lce(near, features, confidences, correct))


def _cme(d):
    at = dict(zip(("at_predictions", "at_targets"), _locations(d), strict=True))
    return hypothesis_tests.cme_test(None, d.kernel, d.predictions, d.targets, **at).pvalue


def _low_rank(d):
    low_rank = K.Nystrom(d.kernel.prediction, _locations(d)[0])
    return K.TensorProduct(low_rank, d.kernel.target)


def _of_samples(function, *more):
    """A function of kernel, predictions and targets, and of what else it takes."""
    return lambda d: jax.tree.leaves(
        function(d.kernel, d.predictions, d.targets, *(x(d) for x in more))
    )


def _of_data(function, *more, **options):
    """A function of predictions and targets, and of what else it takes."""
    return lambda d: jax.tree.leaves(function(d.predictions, d.targets, *more, **options))


_GROUPS, _PAIRS = np.eye(2)[np.arange(24) % 2], np.arange(24) // 2


def _by_group(predictions, targets):
    found = hypothesis_tests.group_calibration_test(KEY, predictions, targets, _GROUPS, **B)
    return found.adjusted_pvalue


def _group_errors(predictions, targets):
    return hypothesis_tests.group_calibration_test(KEY, predictions, targets, _GROUPS, **B).estimate


def _gains(predictions, targets):
    methods = {"T": recalibration.TemperatureScaling()}
    return recalibration.recalibration_gain(KEY, methods, predictions, targets)


def _keyed(function, **options):
    return functools.partial(function, KEY, **options)


# Quantities, with the power of the unit that they have.
_STREAMED_TEST = functools.partial(streaming.ExactSKCETest, KEY, **B)
_CRPS_TEMPERATURE = recalibration.TemperatureScaling(scores.crps).fit
OF_FAMILIES = {
    "mean": (_each(lambda p, y: p.mean()), 1),
    "variance": (_each(lambda p, y: p.variance()), 2),
    "distribution function": (_each(lambda p, y: p.cdf(y)), 0),
    "its slope": (_each(lambda p, y: jax.grad(p.cdf)(y)), -1),
    "quantile": (_each(lambda p, y: p.icdf(jnp.float32(0.3))), 1),
    "CRPS": (_each(lambda p, y: p.crps(y)), 1),
    "its slope by the target": (_each(lambda p, y: jax.grad(p.crps)(y)), 0),
    "draws": (lambda d: distributions.sample_targets(KEY, d.predictions), 1),
    "log-density": (_log_density, 0),
    "score": (_each(lambda p, y: jax.grad(p.log_prob)(y)), -1),
    "curvature of the log-density": (_each(lambda p, y: jax.jacfwd(jax.grad(p.log_prob))(y)), -2),
    "curvature by the temperature": (_each(_tempered_log_density), 0),
    "tempered": (lambda d: jax.vmap(lambda p: in_units(p.tempered(2), 1 / d.c))(d.predictions), 0),
    "temperature, interval": (_interval, 0),
    "temperature by CRPS": (_of_data(_CRPS_TEMPERATURE), 0),
}
OF_KERNELS = {
    "SKCE": (_of_samples(estimators.skce), 0),
    "its slopes by predictions": (_slopes_by_predictions, 0),
    "its slopes by length scales": (_slopes_by_kernel, 0),
    "exact test": (_of("exact_skce_test", **B), 0),
}
OF_DATA = {
    "pinball loss": (_of_data(scores.pinball_loss), 1),
    "mean CRPS": (_of_data(scores.crps), 1),
    "squared error": (_of_data(scores.mean_squared_error), 2),
    "interval score": (_of_data(scores.interval_score), 1),
    "PIT": (_of_data(_keyed(estimators.pit_values)), 0),
    "biased SKCE": (_of_samples(estimators.skce_biased), 0),
    "spread": (_of_samples(estimators.skce_dispersion), 0),
    "matrix": (_of_samples(oracles.calibration_kernel_matrix), 0),
    "UCME": (_of_samples(estimators.ucme, _location(0), _location(1)), 0),
    "witness": (_of_samples(estimators.witness, _location(0), _location(1)), 0),
    "local errors": (_local_errors, 0),
    "streamed": (lambda d: _of_stream(streaming.SKCE(_low_rank(d)), d), 0),
    "median": (lambda d: K.median_heuristic(d.kernel.prediction.distance, d.predictions), 1),
    "default kernels": (_default_kernels, 0),
    "aggregated test": (_aggregated, 0),
    "bootstrap": (_of("asymptotic_skce_test", **B), 0),
    "block test": (_of("asymptotic_skce_test", null="blocks", block_size=2), 0),
    "spectrum": (_of("asymptotic_skce_test", null="spectrum"), 0),
    "gamma": (_of("asymptotic_skce_test", null="gamma"), 0),
    "interval": (_of("skce_confidence_interval"), 0),
    "distribution-free": (_of("distribution_free_skce_test"), 0),
    "mean embedding": (_cme, 0),
    "exact test of a bias": (_of_bias("exact_test"), 0),
    "consistency test": (_of_bias("consistency_test"), 0),
    "clusters": (_of("cluster_skce_test", lambda d: _PAIRS, **B), 0),
    "interval of clusters": (_of("skce_confidence_interval", clusters=_PAIRS), 0),
    "distribution-free interval": (_of("skce_confidence_interval", method="distribution_free"), 0),
    "Pearson": (_of("asymptotic_skce_test", null="pearson"), 0),
    "witness test": (_of("witness_test", _location(0), _location(1), **B), 0),
    "groups": (_of_data(_by_group), 0),
    "errors of groups": (_of_data(_group_errors), 1),
    "parts of the CRPS": (_of_data(scores.crps_decomposition), 1),
    "gain by a temperature": (_of_data(_gains), 0),
    "streamed exact test": (lambda d: _of_stream(_STREAMED_TEST(_low_rank(d)), d), 0),
    "streamed blocks": (lambda d: _of_stream(streaming.SKCE(d.kernel, block_size=2), d), 0),
}


def _check(quantity, data, exponents, tolerance=0.0):
    """The same in units of 1 as in units of these powers of two."""
    function, power = quantity
    expected = [np.asarray(x, float) for x in jax.tree.leaves(function(data)) if _is_real(x)]
    assert all(np.isfinite(x).all() for x in expected)
    for exponent in exponents:
        c = 2.0**exponent
        found = [x for x in jax.tree.leaves(function(data.times(c))) if _is_real(x)]
        for got, value in zip(found, expected, strict=True):
            size = np.abs(value).max(initial=0)
            scaled = np.asarray(got, float) * c**-power
            np.testing.assert_allclose(scaled, value, rtol=0, atol=tolerance * size)


def _is_real(x):
    return jnp.issubdtype(jnp.result_type(x), jnp.floating)


def _has(name, quantity, data):
    try:
        with np.errstate(all="ignore"):
            OF_FAMILIES[quantity][0](data)
    except (AttributeError, NotImplementedError, TypeError):
        return False
    return True


@pytest.mark.parametrize(
    ("family", "name", "tolerance"),
    [
        ("Normal", "log-density", 3e-6),
        ("Laplace", "log-density", 3e-6),
        ("Normal", "temperature, interval", 0),
        ("Normal", "SKCE", 0),
    ],
)
def test_some_quickly(family, name, tolerance):
    quantity = (OF_FAMILIES | OF_KERNELS)[name]
    _check(quantity, data_set(family), (-80, -40, 40, 80), tolerance)


@pytest.mark.parametrize("exponent", [-90, -66, 66, 90])
def test_distances(exponent):
    """Against NumPy in double precision, with finite gradients."""
    c = np.float32(2.0**exponent)
    x, y = np.float32([[0.3, -2.0, 1.5], [1.0, 0.5, 1.4]]) * c
    euclidean = D.Euclidean()
    np.testing.assert_allclose(euclidean(x, y), np.linalg.norm(np.float64(x) - y), rtol=3e-7)
    slope = jax.grad(euclidean)(x, y)
    expected = (np.float64(x) - y) / np.linalg.norm(np.float64(x) - y)
    np.testing.assert_allclose(slope, expected, rtol=1e-6)
    assert not jax.grad(euclidean)(x, x).any()
    for make, root in ((distributions.Normal, 1), (distributions.Laplace, 2**0.5)):
        p, q = make(x[0], x[2]), make(y[0], y[2])
        apart = np.hypot(*np.float64([x[0] - y[0], root * (x[2] - y[2])]))
        np.testing.assert_allclose(D.Wasserstein()(p, q), apart, rtol=3e-7)
    p, q = (distributions.Ensemble(z) for z in (x, y))
    apart = np.sqrt(np.mean((np.sort(np.float64(x)) - np.sort(np.float64(y))) ** 2))
    np.testing.assert_allclose(D.Wasserstein()(p, q), apart, rtol=3e-7)


@pytest.mark.slow
@pytest.mark.parametrize("family", SCALED)
@pytest.mark.parametrize("name", OF_FAMILIES)
def test_families(family, name):
    data = data_set(family)
    if not _has(family, name, data):
        pytest.skip("not defined")
    if (family, name) in (("StudentT", "variance"), ("Uniform", "temperature, interval")):
        pytest.skip("infinite, or the same at every temperature")
    _check(OF_FAMILIES[name], data, (-40, -20, 20, 40), 1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*ensemble_skce_test:UserWarning")
@pytest.mark.parametrize(
    "family", ["Normal", "DiagNormal", "MvNormal", "Laplace", "Mixture", "Ensemble"]
)
@pytest.mark.parametrize("name", OF_KERNELS)
def test_kernels(family, name):
    exponents = (-40, -20, 20, 40) if family == "MvNormal" else (-80, -40, 20, 40, 80)
    _check(OF_KERNELS[name], data_set(family), exponents, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", SCALED)
def test_stein(family):
    """Of real numbers its values are in units of 1/c², of positive ones they have none."""
    data = data_set(family)
    if not hasattr(data.predictions, "log_prob") or family in ("Uniform", "Dirichlet"):
        pytest.skip("no Stein kernel")
    kernel = K.TensorProduct(K.Constant(), K.Stein())
    data = data._replace(kernel=kernel)
    power = 0 if family in ("LogNormal", "Gamma") else -2
    _check((OF_KERNELS["SKCE"][0], power), data, (-20, 20), 1e-5)
    pvalue = lambda d: OF_KERNELS["exact test"][0](d)[1]  # noqa: E731
    _check((pvalue, 0), data, (-40, -20, 20, 40))


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_DATA)
def test_data(name):
    """Of 24 samples: clusters are at least ten, and folds are chosen at random."""
    random = np.random.default_rng(0)
    loc, scale = random.normal(size=24), random.uniform(0.5, 2, 24)
    predictions = distributions.Normal(*jnp.float32([loc, scale]))
    targets = jnp.float32(loc + 2 * random.normal(size=24))
    data = Data(predictions, targets, data_set("Normal").kernel)
    _check(OF_DATA[name], data, (-40, -20, 20, 40), 1e-5)


@pytest.mark.slow
def test_tests_of_ensembles():
    d = data_set("Normal")
    loc = d.predictions.loc
    values = jnp.stack([loc - 1, loc + 0.3, loc + 1], 1)
    data = Data(distributions.Ensemble(values), d.targets, d.kernel)
    _check((_of("ensemble_skce_test", **B), 0), data, (-40, -20, 20, 40))
    ranks = functools.partial(hypothesis_tests.rank_histogram_test, KEY, **B)
    _check((lambda d: ranks(d.predictions, d.targets).pvalue, 0), data, (-40, 40))
    quantiles = distributions.Quantiles(jnp.float32([0.2, 0.5, 0.8]), values)
    data = data._replace(predictions=quantiles)
    coverage = functools.partial(hypothesis_tests.coverage_test, KEY, **B)
    _check((lambda d: jax.tree.leaves(coverage(d.predictions, d.targets)), 0), data, (-40, 40))
    _check(OF_DATA["pinball loss"], data, (-40, 40))


def test_every_family_has_a_unit_or_none():
    for name in SCALED:
        data_set(name).times(2.0)
