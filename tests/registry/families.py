"""Data sets of every family of predictions, and calls of the functions that take all of them."""

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from calibjax import distances, distributions, estimators, hypothesis_tests, kernels, scores
from calibjax.distributions.composed import Recalibrated
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.recalibration.numbers import AffineMap
from tests.registry import arguments as a
from tests.registry.arguments import Argument, Made, call

_TARGET_KERNEL, _PREDICTION_KERNEL = kernels.SquaredExponential(1.2), kernels.Exponential(1.5)


@dataclasses.dataclass(frozen=True)
class Family:
    """A batch of predictions, made of parameters, with targets and a target kernel."""

    make: Callable[..., Any]
    parameters: dict[str, Argument]
    targets: Argument
    target_kernel: Any = _TARGET_KERNEL
    prediction_kernel: Any = _PREDICTION_KERNEL
    covers: str = ""
    name: str = ""

    @property
    def kernel(self):
        return kernels.TensorProduct(self.prediction_kernel, self.target_kernel)

    @property
    def predictions(self):
        return Made(self.make, self.parameters)

    def call(self, covers, label=None, function=None, /, **given):
        """A call with the family's predictions, and its targets if the function takes these."""
        takes = a.parameters_of(a.public(covers.split()[0]) if function is None else function)
        data: dict[str, Any] = {"xs" if "xs" in takes else "predictions": self.predictions}
        if "kernel" in takes:
            data["kernel"] = self.kernel
        if "targets" in takes:
            data["targets"] = self.targets
        else:
            data = {name: Made(self.make, self._without_targets()) for name in data}
        label = self.name if label is None else label
        return call(f"{covers} {self.covers}", label, function, **data | given)

    def _without_targets(self):
        """Parameters that may have other shapes where no targets say how many there are."""
        parameters = dict(self.parameters)
        if len(parameters) == 1:
            # Another shape is another batch, and draws with more axes are vectors.
            [(name, one)] = parameters.items()
            without = (*one.without, *a.ALONE, "leading axis", "transposed")
            parameters[name] = dataclasses.replace(one, without=without)
        if self.make is distributions.Ensemble:
            values = parameters["values"]
            without = (*values.without, "one more axis")
            parameters["values"] = dataclasses.replace(values, without=without)
        return parameters


def _mixture(weights, loc, scale):
    return distributions.Mixture(weights, distributions.Normal(loc, scale))


def _recalibrated(loc, scale, shift, factor):
    law = AffineMap(shift, factor)
    return Recalibrated(distributions.Normal(loc, scale), law)


def _of_classes(probs):
    return distributions.Mixture(None, distributions.Categorical(probs))


_TWO = np.stack([a.LOC, a.LOC + 1], 1)
_TWO_SCALES = np.stack([a.SCALE, a.SCALE + 0.5], 1)
_WEIGHTS = np.stack([0.5 * a.PROBS[:, 0] + 0.25, 0.75 - 0.5 * a.PROBS[:, 0]], 1)
_DRAWS = np.stack([a.LOC, a.LOC + 0.5, a.LOC - 1.0], 1)
_CLASS_ENSEMBLE = np.stack([a.PROBS, np.roll(a.PROBS, 1, 0)], 1)
_COUNTS = np.array([0, 2, 1, 4, 0, 3, 1, 2])
_COUNTED_DRAWS = a.integers(
    np.stack([_COUNTS, _COUNTS[::-1], _COUNTS + 1], 1), without=("float 0.5",)
)
_UNIT_TARGETS = np.clip(np.round(a.PROBS[:, 1], 3), 0.02, 0.98)
_SIMPLEX_TARGETS = np.roll(a.PROBS, 1, 0)


_LOC_SCALE = {"loc": a.real(a.LOC), "scale": a.positive(a.SCALE)}
_SHAPES, _VARIATION, _WHITE = a.positive(a.SCALE + 1), distances.TotalVariation(), kernels.White()
_MATRIX = kernels.LabelKernel(np.array([[2, 1, 0], [1, 2, 1], [0, 1, 2]], "f4"))
_OF_DRAWS = distances.MaximumMeanDiscrepancy(kernels.SquaredExponential())
_CLASSES, _TRUTHS = a.labels(a.LABELS, limit=3), a.labels(a.LABELS % 2, limit=2)
_NUMBERS, _REVERSED, _COUNTED = a.real(a.Y), a.real(a.VECTORS[::-1]), a.counts(_COUNTS)
_VECTORS = {"loc": a.real(a.VECTORS), "scale": a.positive(0.3 + a.VECTORS**2)}
_TWO_SHAPES = {"alpha": a.positive(a.SCALE + 0.5), "beta": a.positive(a.SCALE[::-1] + 1)}
_MIXED = {"weights": a.simplex(_WEIGHTS, without=a.OPTIONAL)}
_MIXED |= {"loc": a.real(_TWO), "scale": a.positive(_TWO_SCALES)}
_DRAWN = {"values": a.real(_DRAWS), "weights": a.simplex(a.PROBS, without=(*a.OPTIONAL, "bool"))}
# Targets, a kernel for them, the distance of a kernel on predictions, and parameters.
_WITH_EXPECTATIONS = {
    "Normal": (_NUMBERS, _TARGET_KERNEL, distances.Wasserstein(), _LOC_SCALE),
    "DiagNormal": (_REVERSED, _TARGET_KERNEL, None, _VECTORS),
    "MvNormal": (
        *(_REVERSED, _TARGET_KERNEL, None),
        {"loc": a.real(a.VECTORS), "cov": a.spd(a.COVARIANCES)},
    ),
    "Laplace": (_NUMBERS, kernels.Exponential(1.2), None, _LOC_SCALE),
    "Bernoulli": (_TRUTHS, _WHITE, _VARIATION, {"probs": a.unit(a.PROBS[:, 0])}),
    "Categorical": (_CLASSES, _WHITE, _VARIATION, {"probs": a.simplex(a.PROBS)}),
    "CategoricalLogits": (
        *(_CLASSES, _WHITE, _VARIATION),
        {"logits": a.real(np.log(a.PROBS), without=("-inf",))},  # a probability of zero
    ),
    "Poisson": (_COUNTED, _TARGET_KERNEL, None, {"rate": a.positive(2 * a.SCALE)}),
    "Beta": (a.unit(_UNIT_TARGETS), kernels.SquaredExponential(0.4), None, _TWO_SHAPES),
    "Mixture": (_NUMBERS, _TARGET_KERNEL, distances.MixtureWasserstein(), _MIXED),
    "Mixture of classes": (_CLASSES, _MATRIX, _VARIATION, {"probs": a.simplex(_CLASS_ENSEMBLE)}),
    "Ensemble": (_NUMBERS, _TARGET_KERNEL, _OF_DRAWS, _DRAWN),
    # Of numbers that are no integers, integers are targets as well.
    "Ensemble of counts": (a.integers(_COUNTS), _TARGET_KERNEL, None, {"values": _COUNTED_DRAWS}),
}
_ABOVE = a.positive(np.exp(a.Y), without=("0", "-0.0"))  # draws may be rounded to zero
_INSIDE, _ENDS = a.real(a.LOC + 0.5 * a.SCALE), {"low": a.real(a.LOC)}
_ENDS |= {"high": a.real(a.LOC + a.SCALE)}
_RATE = {"concentration": _SHAPES, "rate": a.positive(a.SCALE)}
_AFFINE = {"shift": a.real(0.1 * a.LOC), "factor": a.positive(a.SCALE)}
# Of which only draws and scores are asked for.
_WITHOUT_EXPECTATIONS = {
    "Dirichlet": (a.simplex(_SIMPLEX_TARGETS), {"concentration": a.positive(3 * a.PROBS + 0.3)}),
    "StudentT": (_NUMBERS, {"df": _SHAPES, **_LOC_SCALE}),
    "Logistic": (_NUMBERS, _LOC_SCALE),
    "LogNormal": (a.positive(np.exp(a.Y)), _LOC_SCALE),
    "Gamma": (_ABOVE, _RATE),
    "Uniform": (_INSIDE, _ENDS),
    "GeneralizedNormal": (_NUMBERS, {**_LOC_SCALE, "power": _SHAPES}),
    "NegativeBinomial": (_COUNTED, {"mean_": _SHAPES, "concentration": a.positive(a.SCALE)}),
    "Recalibrated": (_NUMBERS, {**_LOC_SCALE, **_AFFINE}),
}
# Names that are tried with a family beyond its own.
_COVERS = {
    "Normal": "distances.Wasserstein kernels.Exponential",
    "DiagNormal": "distances.Euclidean",
    "Bernoulli": "distances.TotalVariation kernels.White",
    "Mixture": "distances.MixtureWasserstein",
    "Mixture of classes": "kernels.LabelKernel",
    "Ensemble": "distances.MaximumMeanDiscrepancy",
}
_MAKE = {"Mixture": _mixture, "Recalibrated": _recalibrated, "Mixture of classes": _of_classes}


def _family(name, targets, target_kernel, distance, parameters):
    kind = name.split(" of ")[0]
    make = _MAKE.get(name) or getattr(distributions, kind)
    kernel = _PREDICTION_KERNEL if distance is None else kernels.Exponential(1.5, distance)
    covers = f"distributions.{kind} {_COVERS.get(name, '')}".strip()
    covers = "" if kind == "Recalibrated" else covers
    return Family(make, parameters, targets, target_kernel, kernel, covers, name)


FAMILIES = {name: _family(name, *row) for name, row in _WITH_EXPECTATIONS.items()}
ALL = FAMILIES | {
    name: _family(name, targets, _TARGET_KERNEL, None, parameters)
    for name, (targets, parameters) in _WITHOUT_EXPECTATIONS.items()
}
EQUAL_DRAWS = Family(distributions.Ensemble, {"values": a.real(_DRAWS)}, a.real(a.Y))
NORMAL, CATEGORICAL, BERNOULLI = (FAMILIES[k] for k in ("Normal", "Categorical", "Bernoulli"))


def _given_features(predictions, targets, features, kernel):
    of_features = kernels.Exponential(1.5, distances.Features())
    kernel = kernels.TensorProduct(of_features, kernel.target)
    return estimators.skce(kernel, distributions.with_features(predictions, features), targets)


def _exact(predictions, targets, kernel, num_draws):
    with warnings.catch_warnings():  # of draws, for which there is another test
        warnings.filterwarnings("ignore", ".*ensemble_skce_test", UserWarning)
        test = hypothesis_tests.exact_skce_test
        return test(jax.random.key(3), kernel, predictions, targets, num_draws=num_draws)


def _drawn(predictions, targets, kernel):
    drawn = distributions.monte_carlo(jax.random.key(1), predictions, 4)
    return estimators.skce(kernel, drawn, targets)


def _values(key, predictions, num_samples):
    return distributions.monte_carlo(key, predictions, num_samples).draws.values


def _whole(family):
    """A batch of predictions in double precision, which every mode takes."""
    values = {k: np.asarray(x.value) for k, x in family.parameters.items()}
    return a.predictions(family.make(**values))


# Functions that several families have: their names, what is public, and what is called with what.
_BOTH = {"Normal", "Categorical"}
_SCORED = {x for x in ALL if not x.startswith("Ensemble")}
_OF_NUMBERS = {"Normal", "Laplace", "Mixture", "Ensemble", "Poisson", "Ensemble of counts"}
_SLOW = {"slow": True}
_SHARED = (
    (FAMILIES.keys() - {"Mixture", "Ensemble", "MvNormal"}, "estimators.skce", None, {}),
    ({"Mixture", "Ensemble", "MvNormal"}, "estimators.skce", None, _SLOW),
    (FAMILIES, "hypothesis_tests.exact_skce_test", _exact, {"num_draws": 9} | _SLOW),
    (ALL, "distributions.sample_targets", None, {}),
    (_SCORED, "scores.negative_log_likelihood", None, {}),
    (
        *(_BOTH, "distributions.with_features distances.Features", _given_features),
        {"features": a.real(a.VECTORS, without=("first column",))} | _SLOW,  # one feature
    ),
    ({"Normal", "Laplace", "Mixture", "Ensemble"}, "scores.crps", None, {}),
    (_OF_NUMBERS, "scores.pinball_loss", None, {}),
    (_OF_NUMBERS, "scores.mean_squared_error", None, {}),
    (_BOTH | {"Dirichlet"}, "distributions.monte_carlo", _drawn, _SLOW),
)


def _of_members():
    """Calls for ensembles, and for draws that estimators number."""
    found = [FAMILIES["Ensemble"].call("scores.energy_score")]
    found.append(EQUAL_DRAWS.call("scores.energy_score", "equal draws"))
    for name in ("energy_score", "crps"):
        score = functools.partial(getattr(scores, name), estimator="fair")
        for family, label in ((FAMILIES["Ensemble"], "fair"), (EQUAL_DRAWS, "fair, equal draws")):
            found.append(family.call(f"scores.{name}", label, score))
    index = np.arange(len(_DRAWS), dtype=np.int32)
    draws = distributions.Ensemble(_DRAWS.astype(float), None, index)
    data = {"kernel": kernels.TensorProduct(kernels.Exponential(), kernels.SquaredExponential())}
    data["targets"] = NORMAL.targets
    drawn = MonteCarlo(_whole(NORMAL).value, draws)
    for label, batch in {"draws": draws, "monte carlo": drawn}.items():
        found.append(call("estimators.skce", label, predictions=a.predictions(batch), **data))
    return found


def calls():
    """Every family with the functions that take them all."""
    found = [
        ALL[name].call(covers, None, function, **given)
        for name in ALL
        for names, covers, function, given in _SHARED
        if name in names
    ]
    for family in (NORMAL, FAMILIES["MvNormal"]):
        kernel = kernels.TensorProduct(family.prediction_kernel, kernels.Stein())
        covers, label = "estimators.skce kernels.Stein", f"{family.name}, Stein"
        found.append(family.call(covers, label, kernel=kernel, slow=True))
    for family in (NORMAL, CATEGORICAL):
        whole, label = _whole(family), f"{family.name}, options"
        options = {"predictions": whole, "num_samples": a.integer(3)}
        found.append(call("distributions.monte_carlo", label, _values, **options))
        data = {"kernel": family.kernel, "predictions": whole, "targets": family.targets}
        found.append(call("estimators.skce", f"{family.name}, whole", **data))
    return found + _of_members()
