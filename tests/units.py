"""Data sets in other units: targets, predictions and length scales times a number.

A power of two changes no digit of a floating-point number, so that nothing may be rounded
differently.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distances, distributions, kernels
from calibjax.distances.elementary import SquaredEuclidean
from calibjax.distributions.composed import Recalibrated
from calibjax.kernels.stationary import PowerExponential
from tests.registry import families

D, K = distances, kernels


@functools.singledispatch
def in_units(thing: Any, c: float) -> Any:
    """A prediction (or batch), a distance or a kernel for targets that are multiplied by c."""
    raise NotImplementedError(
        f"how {type(thing).__name__} changes with the unit of the targets: say so in tests/units.py"
    )


def _changed(**powers: int) -> Any:
    """A rule for records: fields times these powers of c."""

    def rule(record: Any, c: float) -> Any:
        return dataclasses.replace(
            record, **{k: getattr(record, k) * c**p for k, p in powers.items()}
        )

    return rule


for _class in ("Normal", "DiagNormal", "Laplace", "Logistic", "StudentT", "GeneralizedNormal"):
    in_units.register(getattr(distributions, _class), _changed(loc=1, scale=1))
in_units.register(distributions.MvNormal, _changed(loc=1, cov=2))
in_units.register(distributions.Gamma, _changed(rate=-1))
in_units.register(distributions.Uniform, _changed(low=1, high=1))
in_units.register(distributions.Ensemble, _changed(values=1))
in_units.register(distributions.Quantiles, _changed(values=1))


@in_units.register
def _(p: distributions.LogNormal, c: float) -> Any:
    return dataclasses.replace(p, loc=p.loc + p.loc.dtype.type(np.log(c)))


@in_units.register
def _(p: distributions.Mixture, c: float) -> Any:
    return dataclasses.replace(p, components=in_units(p.components, c))


@in_units.register
def _(p: Recalibrated, c: float) -> Any:
    return dataclasses.replace(p, distribution=in_units(p.distribution, c))


# Distances in units of the targets, and kernels and distances without one.
_POWERS = {
    D.Euclidean: 1,
    D.Manhattan: 1,
    D.Wasserstein: 1,
    D.MixtureWasserstein: 1,
    SquaredEuclidean: 2,
    D.MaximumMeanDiscrepancy: 0,
    D.TotalVariation: 0,
    D.Features: 0,
}
for _class in (*_POWERS, K.White, K.Constant, K.LabelKernel, K.NormalScore):
    in_units.register(_class, lambda same, c: same)


@in_units.register
def _(distance: D.MaximumMeanDiscrepancy, c: float) -> Any:
    return D.MaximumMeanDiscrepancy(in_units(distance.kernel, c))


def _stationary(kernel: Any, c: float) -> Any:
    scale = kernel.length_scale * c ** _POWERS[type(kernel.distance)]
    distance = in_units(kernel.distance, c)
    return dataclasses.replace(kernel, length_scale=scale, distance=distance)


for _class in (K.SquaredExponential, K.Exponential, K.Matern, PowerExponential):
    in_units.register(_class, _stationary)


def _of_parts(*fields: str) -> Any:
    def rule(record: Any, c: float) -> Any:
        return dataclasses.replace(
            record,
            **{
                f: jax.tree.map(
                    lambda part: in_units(part, c),
                    getattr(record, f),
                    is_leaf=lambda x: not isinstance(x, tuple),
                )
                for f in fields
            },
        )

    return rule


in_units.register(K.base.Sum, _of_parts("terms"))
in_units.register(K.base.Product, _of_parts("factors"))
in_units.register(K.base.Scaled, _of_parts("kernel"))
in_units.register(K.Stein, _of_parts("kernel"))
in_units.register(K.TensorProduct, _of_parts("prediction", "target"))
in_units.register(K.Nystrom, _of_parts("kernel", "landmarks"))


class Data(NamedTuple):
    """A data set in units of c."""

    predictions: Any
    targets: Any
    kernel: Any
    c: float

    def times(self, c: float) -> "Data":
        return Data(
            in_units(self.predictions, c), self.targets * c, in_units(self.kernel, c), self.c * c
        )


# Families of labels, counts and proportions.
WITHOUT_UNIT = {
    "Bernoulli",
    "Categorical",
    "CategoricalLogits",
    "Poisson",
    "Beta",
    "Mixture of classes",
    "Ensemble of counts",
    "Dirichlet",
    "NegativeBinomial",
}


@functools.cache
def data_set(name: str) -> Data:
    """The valid data of the registry, in float32, with kernels that have a unit."""
    family = families.ALL[name]
    values = {k: jnp.asarray(a.value) for k, a in family.parameters.items()}
    kernel = family.kernel
    if name == "MvNormal":  # the Euclidean distance adds up means and variances
        prediction = K.Exponential(1.5, D.Wasserstein())
        kernel = K.TensorProduct(prediction, family.target_kernel)
    return Data(family.make(**values), jnp.asarray(family.targets.value), kernel, 1.0)
