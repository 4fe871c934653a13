"""The law of units: nothing that has no unit depends on the unit of the targets.

Targets, predictions and length scales are multiplied by powers of two, which change no digit of a
floating-point number. What has no unit stays as it is, what is in units of the targets is
multiplied, to the last digit or a few roundings.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import (
    distances,
    distributions,
    estimators,
    hypothesis_tests,
    kernels,
    recalibration,
    scores,
    streaming,
)
from calibjax.evaluation.errors import residual_spread
from tests import oracles
from tests.registry import families
from tests.units import WITHOUT_UNIT, Data, data_set, in_units

KEY = jax.random.key(0)
B = {"num_draws": 19}


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


def _test(name, *, keyed=True, **options):
    def run(d):
        first = (KEY, d.kernel) if keyed else (d.kernel,)
        result = getattr(hypothesis_tests, name)(*first, d.predictions, d.targets, **options)
        return jax.tree.leaves(result)

    return run


def _locations(d):
    return jax.tree.map(lambda leaf: leaf[:3], (d.predictions, d.targets[::-1]))


def _bias(predictions, targets):
    return abs((targets - predictions.mean()).mean())


def _aggregated(d):
    kernel = {"one": d.kernel}
    return hypothesis_tests.aggregated_skce_test(
        KEY, d.predictions, d.targets, kernels=kernel, **B
    ).pvalue


def _default_kernels(d):
    found = kernels.default_kernel(d.predictions)
    return jax.tree.leaves(jax.tree.map(lambda x: x, in_units(found, 1 / d.c)))


def _of_stream(accumulator, d):
    state = accumulator.update(accumulator.init(), d.predictions, d.targets)
    return jax.tree.leaves(accumulator.result(state))


def _streamed(d):
    low_rank = kernels.Nystrom(d.kernel.prediction, _locations(d)[0])
    accumulator = streaming.SKCE(kernels.TensorProduct(low_rank, d.kernel.target))
    return _of_stream(accumulator, d)


def _local_errors(d):
    features = jnp.stack([d.targets, d.targets[::-1]], 1)
    near = estimators.Neighbourhood(
        kernels.SquaredExponential(0.7 * d.c), estimators.UniformBins(1)
    )
    confidences = jnp.linspace(0.3, 0.9, len(d.targets), dtype=jnp.float32)
    correct = jnp.arange(len(d.targets)) % 2
    return jnp.mean(estimators.lce(near, features, confidences, correct))


# Quantities, with the power of the unit that they have.
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
    "tempered": (
        lambda d: jax.vmap(lambda p: in_units(p.tempered(2.0), 1 / d.c))(d.predictions),
        0,
    ),
    "temperature, interval": (_interval, 0),
    "temperature by CRPS": (
        lambda d: recalibration.TemperatureScaling(scores.crps).fit(d.predictions, d.targets),
        0,
    ),
}
OF_KERNELS = {
    "SKCE": (lambda d: estimators.skce(d.kernel, d.predictions, d.targets), 0),
    "its slopes by predictions": (_slopes_by_predictions, 0),
    "its slopes by length scales": (_slopes_by_kernel, 0),
    "exact test": (_test("exact_skce_test", **B), 0),
}
OF_DATA = {
    "pinball loss": (lambda d: scores.pinball_loss(d.predictions, d.targets), 1),
    "mean CRPS": (lambda d: scores.crps(d.predictions, d.targets), 1),
    "squared error": (lambda d: scores.mean_squared_error(d.predictions, d.targets), 2),
    "interval score": (lambda d: scores.interval_score(d.predictions, d.targets), 1),
    "PIT": (lambda d: estimators.pit_values(KEY, d.predictions, d.targets), 0),
    "biased SKCE": (lambda d: estimators.skce_biased(d.kernel, d.predictions, d.targets), 0),
    "spread": (
        lambda d: jax.tree.leaves(estimators.skce_dispersion(d.kernel, d.predictions, d.targets)),
        0,
    ),
    "matrix": (lambda d: oracles.calibration_kernel_matrix(d.kernel, d.predictions, d.targets), 0),
    "UCME": (lambda d: estimators.ucme(d.kernel, d.predictions, d.targets, *_locations(d)), 0),
    "witness": (
        lambda d: estimators.witness(d.kernel, d.predictions, d.targets, *_locations(d)),
        0,
    ),
    "local errors": (_local_errors, 0),
    "streamed": (_streamed, 0),
    "median": (lambda d: kernels.median_heuristic(d.kernel.prediction.distance, d.predictions), 1),
    "default kernels": (_default_kernels, 0),
    "aggregated test": (_aggregated, 0),
    "bootstrap": (_test("asymptotic_skce_test", **B), 0),
    "block test": (_test("asymptotic_skce_test", null="blocks", block_size=2), 0),
    "spectrum": (_test("asymptotic_skce_test", null="spectrum"), 0),
    "gamma": (_test("asymptotic_skce_test", null="gamma"), 0),
    "interval": (_test("skce_confidence_interval", keyed=False), 0),
    "distribution-free": (_test("distribution_free_skce_test", keyed=False), 0),
    "mean embedding": (
        lambda d: (
            hypothesis_tests.cme_test(
                None,
                d.kernel,
                d.predictions,
                d.targets,
                at_predictions=_locations(d)[0],
                at_targets=_locations(d)[1],
            ).pvalue
        ),
        0,
    ),
    "exact test of a bias": (
        lambda d: hypothesis_tests.exact_test(KEY, _bias, d.predictions, d.targets, **B).pvalue,
        0,
    ),
    "consistency test": (
        lambda d: (
            hypothesis_tests.consistency_test(KEY, _bias, d.predictions, d.targets, **B).pvalue
        ),
        0,
    ),
}


def _streamed_test(d):
    low_rank = kernels.Nystrom(d.kernel.prediction, _locations(d)[0])
    kernel = kernels.TensorProduct(low_rank, d.kernel.target)
    return _of_stream(streaming.ExactSKCETest(KEY, kernel, **B), d)


def _with(name, *arguments, keyed=True, **options):
    """A test of more arguments than kernel, predictions and targets."""

    def run(d):
        first = (KEY,) if keyed else ()
        given = [a(d) if callable(a) else a for a in arguments]
        result = getattr(hypothesis_tests, name)(*first, *given, **options)
        return jax.tree.leaves(result)

    return run


_KERNEL, _PREDICTIONS, _TARGETS = (lambda d: d.kernel, lambda d: d.predictions, lambda d: d.targets)
_SAMPLES = (_KERNEL, _PREDICTIONS, _TARGETS)
# Of more samples: clusters are at least ten, and folds are chosen at random.
OF_MORE = {
    "clusters": (_with("cluster_skce_test", *_SAMPLES, np.arange(24) // 2, **B), 0),
    "interval of clusters": (
        _with("skce_confidence_interval", *_SAMPLES, keyed=False, clusters=np.arange(24) // 2),
        0,
    ),
    "distribution-free interval": (
        _with("skce_confidence_interval", *_SAMPLES, keyed=False, method="distribution_free"),
        0,
    ),
    "Pearson": (_with("asymptotic_skce_test", *_SAMPLES, null="pearson"), 0),
    "witness test": (
        _with(
            "witness_test", *_SAMPLES, lambda d: _locations(d)[0], lambda d: _locations(d)[1], **B
        ),
        0,
    ),
    "groups": (
        lambda d: (
            hypothesis_tests.group_calibration_test(
                KEY, d.predictions, d.targets, np.eye(2)[np.arange(24) % 2], **B
            ).adjusted_pvalue
        ),
        0,
    ),
    "errors of groups": (
        lambda d: (
            hypothesis_tests.group_calibration_test(
                KEY, d.predictions, d.targets, np.eye(2)[np.arange(24) % 2], **B
            ).estimate
        ),
        1,
    ),
    "parts of the CRPS": (
        lambda d: jax.tree.leaves(scores.crps_decomposition(d.predictions, d.targets)),
        1,
    ),
    "gain by a temperature": (
        lambda d: jax.tree.leaves(
            recalibration.recalibration_gain(
                KEY, {"T": recalibration.TemperatureScaling()}, d.predictions, d.targets
            )
        ),
        0,
    ),
    "spread of the residuals": (lambda d: residual_spread(d.predictions, d.targets), 0),
    "streamed exact test": (_streamed_test, 0),
    "streamed blocks": (lambda d: _of_stream(streaming.SKCE(d.kernel, block_size=2), d), 0),
}
SCALED = sorted(families.ALL.keys() - WITHOUT_UNIT)


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


@pytest.mark.parametrize("family", ["Normal", "Laplace"])
def test_densities(family):
    _check(OF_FAMILIES["log-density"], data_set(family), (-80, -40, 40, 80), 3e-6)


def test_temperature_interval():
    _check(OF_FAMILIES["temperature, interval"], data_set("Normal"), (-80, -40, -20, 20, 40, 80))


@pytest.mark.parametrize(
    "name", ["SKCE", "its slopes by predictions", "its slopes by length scales"]
)
def test_skce(name):
    _check(OF_KERNELS[name], data_set("Normal"), (-80, -40, 40, 80))


@pytest.mark.parametrize("exponent", [-90, -66, 66, 90])
def test_distances(exponent):
    """Against NumPy in double precision, with finite gradients."""
    c = np.float32(2.0**exponent)
    x, y = np.float32([[0.3, -2.0, 1.5], [1.0, 0.5, 1.4]]) * c
    euclidean = distances.Euclidean()
    np.testing.assert_allclose(euclidean(x, y), np.linalg.norm(np.float64(x) - y), rtol=3e-7)
    slope = jax.grad(euclidean)(x, y)
    expected = (np.float64(x) - y) / np.linalg.norm(np.float64(x) - y)
    np.testing.assert_allclose(slope, expected, rtol=1e-6)
    assert not jax.grad(euclidean)(x, x).any()
    for make, root in ((distributions.Normal, 1), (distributions.Laplace, 2**0.5)):
        p, q = make(x[0], x[2]), make(y[0], y[2])
        apart = np.hypot(*np.float64([x[0] - y[0], root * (x[2] - y[2])]))
        np.testing.assert_allclose(distances.Wasserstein()(p, q), apart, rtol=3e-7)
    p, q = (distributions.Ensemble(z) for z in (x, y))
    apart = np.sqrt(np.mean((np.sort(np.float64(x)) - np.sort(np.float64(y))) ** 2))
    np.testing.assert_allclose(distances.Wasserstein()(p, q), apart, rtol=3e-7)


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
    kernel = kernels.TensorProduct(kernels.Constant(), kernels.Stein())
    data = data._replace(kernel=kernel)
    power = 0 if family in ("LogNormal", "Gamma") else -2
    _check((OF_KERNELS["SKCE"][0], power), data, (-20, 20), 1e-5)
    pvalue = lambda d: OF_KERNELS["exact test"][0](d)[1]  # noqa: E731
    _check((pvalue, 0), data, (-40, -20, 20, 40))


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_DATA)
def test_data(name):
    _check(OF_DATA[name], data_set("Normal"), (-40, -20, 20, 40), 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_MORE)
def test_more_data(name):
    random = np.random.default_rng(0)
    loc, scale = random.normal(size=24), random.uniform(0.5, 2, 24)
    predictions = distributions.Normal(*jnp.float32([loc, scale]))
    targets = jnp.float32(loc + 2 * random.normal(size=24))
    data = Data(predictions, targets, data_set("Normal").kernel, 1.0)
    _check(OF_MORE[name], data, (-40, -20, 20, 40), 1e-5)


@pytest.mark.slow
def test_tests_of_ensembles():
    d = data_set("Normal")
    loc = d.predictions.loc
    values = jnp.stack([loc - 1, loc + 0.3, loc + 1], 1)
    data = Data(distributions.Ensemble(values), d.targets, d.kernel, 1.0)
    _check((_test("ensemble_skce_test", **B), 0), data, (-40, -20, 20, 40))
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
