"""The law of units: nothing that has no unit depends on the unit of the targets.

Targets, predictions and length scales are multiplied by powers of two, which change no digit of a
floating-point number. Each number of a frozen call is then multiplied by one power of the unit.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances as D
from calibjax import distributions
from calibjax import kernels as K
from calibjax.distances.elementary import SquaredEuclidean
from calibjax.distributions.composed import Recalibrated
from calibjax.kernels.residuals import Regressor
from calibjax.kernels.stationary import PowerExponential
from calibjax.recalibration import KernelRecalibration
from tests.frozen.calls import calls
from tests.registry import families
from tests.registry.arguments import REPLACED
from tests.registry.outcomes import evaluate


@functools.singledispatch
def in_units(thing, c):
    """A prediction (or batch), a distance or a kernel for targets that are multiplied by c."""
    return thing


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
    _of_parts("kernel"): (K.base.Scaled, K.Stein, KernelRecalibration, D.MaximumMeanDiscrepancy),
    _of_parts("prediction", "target"): (K.TensorProduct,),
    _of_parts("kernel", "landmarks"): (K.Nystrom,),
    _stationary: (K.SquaredExponential, K.Exponential, K.Matern, PowerExponential),
    _changed(center=1, unit=1): (Regressor,),
    (lambda several, c: [in_units(x, c) for x in several]): (list,),
    (lambda p, c: dataclasses.replace(p, loc=p.loc + p.loc.dtype.type(np.log(c)))): (
        distributions.LogNormal,
    ),
}
for _rule, _classes in _RULES.items():
    for _class in _classes:
        in_units.register(_class, _rule)


# Log-densities, to which a multiple of log c is added, and arrays of several powers.
WITHOUT = "negative_log_likelihood", "evaluate", "compare", "default_kernels"
# Kernels that functions hold, and Euclidean distances between means and variances.
WITHOUT += "power_curve", "with_features", "[MvNormal]", "[MvNormal, Stein]", "[MvNormal, pairs]"
MADE = {"loc", "values", "low", "cov", "at_loc", "concentration"}  # of families with a unit


def has_unit(call):
    """Whether predictions and targets are numbers with a unit."""
    known = call.arguments.keys() & (MADE | {"targets"})
    kinds = {call.arguments[x].kind for x in known}
    is_left_out = any(x in call.name for x in WITHOUT)
    return bool(known & MADE) and kinds <= {"real", "positive", "spd"} and not is_left_out


def numbers(call, c):
    """The floating-point numbers of a call in units of c, by place."""
    parts = {name for name, argument in call.arguments.items() if argument.called}
    values = call.fixed | call.values(np.float32)
    values = {k: v if k in parts else in_units(v, c) for k, v in values.items()}
    for name in values.keys() & {"targets", "at_targets", "thresholds"}:
        values[name] = values[name] * np.float32(c)
    REPLACED[None] = lambda record: in_units(record, c)
    try:
        leaves = jax.tree_util.tree_leaves_with_path(evaluate(call, values))
    finally:
        del REPLACED[None]
    found = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
    return {
        place: x.astype(float)
        for place, x in found.items()
        if x.dtype.kind == "f" and "log_prob" not in place
    }


def powers(found, value, c):
    """Powers of the unit by which all numbers are multiplied."""
    size = 1e-5 * np.abs(value[np.isfinite(value)]).max(initial=0)
    back = {power: found / c**power for power in range(-3, 4)}
    return {k for k, x in back.items() if np.allclose(x, value, 0, size, equal_nan=True)}


UNITS = {name: call for name, call in calls().items() if has_unit(call)}
QUICK = "estimators.skce[Normal]", "scores.crps[Laplace]", "scores.pinball_loss[Mixture]"


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=() if x in QUICK else pytest.mark.slow) for x in UNITS]
)
@pytest.mark.filterwarnings("ignore")
def test_each_number_has_one_power(name):
    expected = numbers(UNITS[name], 1.0)
    both = [(c, numbers(UNITS[name], c)) for c in (2.0**-40, 2.0**40)]
    for place, value in expected.items():
        one, other = (powers(found[place], value, c) for c, found in both)
        assert one & other, (place, value, *(found[place] for _, found in both))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [x for x in families.ALL if f"distributions.Distribution[{x}, members]" in UNITS]
)
@pytest.mark.parametrize("method", ["log_prob", "cdf", "crps"])
def test_slopes_by_targets(name, method):
    """And the second derivatives of log-densities."""
    family = families.ALL[name]
    batch = family.make(*(jnp.asarray(a.value) for a in family.parameters.values()))
    targets = jnp.asarray(family.targets.value)
    if not hasattr(batch, method):
        pytest.skip("not defined")

    def slopes(c):
        slope = jax.grad(lambda p, y: getattr(p, method)(y), 1)
        both = in_units(batch, c), targets * c
        second = jax.vmap(jax.jacfwd(slope, 1))(*both) if method == "log_prob" else 0.0
        return jax.vmap(slope)(*both), second

    power = {"log_prob": -1, "cdf": -1, "crps": 0}[method]
    for c in (2.0**-40, 2.0**40):
        for found, value, k in zip(slopes(c), slopes(1.0), (power, 2 * power), strict=True):
            assert k in powers(np.asarray(found, float), np.asarray(value, float), c)


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
