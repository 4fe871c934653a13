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


def _family(name, targets, target_kernel=_TARGET_KERNEL, distance=None, covers="", **parameters):
    """A family by its name, with the names that are tried with it beyond its own."""
    names = {"Mixture": _mixture, "Recalibrated": _recalibrated, "Mixture of classes": _of_classes}
    kind = name.split(" of ")[0]
    make = names.get(name) or getattr(distributions, kind)
    kernel = _PREDICTION_KERNEL if distance is None else kernels.Exponential(1.5, distance)
    covers = f"distributions.{kind} {covers}".strip() if kind != "Recalibrated" else ""
    return name, Family(make, parameters, targets, target_kernel, kernel, covers, name)


_LOC_SCALE = {"loc": a.real(a.LOC), "scale": a.positive(a.SCALE)}
_SHAPES, _VARIATION, _WHITE = a.positive(a.SCALE + 1), distances.TotalVariation(), kernels.White()
_MATRIX = kernels.LabelKernel(np.array([[2, 1, 0], [1, 2, 1], [0, 1, 2]], "f4"))
_OF_DRAWS = distances.MaximumMeanDiscrepancy(kernels.SquaredExponential())
_CLASSES, _TRUTHS = a.labels(a.LABELS, limit=3), a.labels(a.LABELS % 2, limit=2)
_NUMBERS, _REVERSED, _COUNTED = a.real(a.Y), a.real(a.VECTORS[::-1]), a.counts(_COUNTS)
FAMILIES = dict(
    (
        _family(
            "Normal",
            _NUMBERS,
            distance=distances.Wasserstein(),
            covers="distances.Wasserstein kernels.Exponential",
            **_LOC_SCALE,
        ),
        _family(
            "DiagNormal",
            _REVERSED,
            covers="distances.Euclidean",
            loc=a.real(a.VECTORS),
            scale=a.positive(0.3 + a.VECTORS**2),
        ),
        _family("MvNormal", _REVERSED, loc=a.real(a.VECTORS), cov=a.spd(a.COVARIANCES)),
        _family("Laplace", _NUMBERS, kernels.Exponential(1.2), **_LOC_SCALE),
        _family(
            "Bernoulli",
            _TRUTHS,
            _WHITE,
            _VARIATION,
            "distances.TotalVariation kernels.White",
            probs=a.unit(a.PROBS[:, 0]),
        ),
        _family("Categorical", _CLASSES, _WHITE, _VARIATION, probs=a.simplex(a.PROBS)),
        _family("CategoricalLogits", _CLASSES, _WHITE, _VARIATION, logits=a.real(np.log(a.PROBS))),
        _family("Poisson", _COUNTED, rate=a.positive(2 * a.SCALE)),
        _family(
            "Beta",
            a.unit(_UNIT_TARGETS),
            kernels.SquaredExponential(0.4),
            alpha=a.positive(a.SCALE + 0.5),
            beta=a.positive(a.SCALE[::-1] + 1),
        ),
        _family(
            "Mixture",
            _NUMBERS,
            distance=distances.MixtureWasserstein(),
            covers="distances.MixtureWasserstein",
            weights=a.simplex(_WEIGHTS, without=a.OPTIONAL),
            loc=a.real(_TWO),
            scale=a.positive(_TWO_SCALES),
        ),
        _family(
            "Mixture of classes",
            _CLASSES,
            _MATRIX,
            _VARIATION,
            "kernels.LabelKernel",
            probs=a.simplex(_CLASS_ENSEMBLE),
        ),
        _family(
            "Ensemble",
            _NUMBERS,
            distance=_OF_DRAWS,
            covers="distances.MaximumMeanDiscrepancy",
            values=a.real(_DRAWS),
            weights=a.simplex(a.PROBS, without=(*a.OPTIONAL, "bool")),
        ),
        # Of numbers that are no integers, integers are targets as well.
        _family("Ensemble of counts", a.integers(_COUNTS), values=_COUNTED_DRAWS),
    )
)
# Without closed-form expectations.
_MORE = dict(
    [_family("Dirichlet", a.simplex(_SIMPLEX_TARGETS), concentration=a.positive(3 * a.PROBS + 0.3))]
)
_ABOVE = a.positive(np.exp(a.Y), without=("0", "-0.0"))  # draws may be rounded to zero
_DRAWN_FROM = dict(  # of which only draws and scores are asked for
    (
        _family("StudentT", _NUMBERS, df=_SHAPES, **_LOC_SCALE),
        _family("Logistic", _NUMBERS, **_LOC_SCALE),
        _family("LogNormal", a.positive(np.exp(a.Y)), **_LOC_SCALE),
        _family("Gamma", _ABOVE, concentration=_SHAPES, rate=a.positive(a.SCALE)),
        _family(
            "Uniform",
            a.real(a.LOC + 0.5 * a.SCALE),
            low=a.real(a.LOC),
            high=a.real(a.LOC + a.SCALE),
        ),
        _family("GeneralizedNormal", _NUMBERS, **_LOC_SCALE, power=_SHAPES),
        _family("NegativeBinomial", _COUNTED, mean_=_SHAPES, concentration=a.positive(a.SCALE)),
        _family(
            "Recalibrated",
            _NUMBERS,
            **_LOC_SCALE,
            shift=a.real(0.1 * a.LOC),
            factor=a.positive(a.SCALE),
        ),
    )
)
_EQUAL_DRAWS = Family(distributions.Ensemble, {"values": a.real(_DRAWS)}, a.real(a.Y))
ALL = {**FAMILIES, **_MORE, **_DRAWN_FROM}
NORMAL, CATEGORICAL, BERNOULLI = (FAMILIES[k] for k in ("Normal", "Categorical", "Bernoulli"))


def _given_features(family):
    kernel = kernels.TensorProduct(
        kernels.Exponential(1.5, distances.Features()), family.target_kernel
    )

    def estimate(predictions, targets, features):
        carrying = distributions.with_features(predictions, features)
        return estimators.skce(kernel, carrying, targets)

    return estimate


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


def calls():
    """Every family with the functions that take them all."""
    found = []
    for name, family in FAMILIES.items():
        slow = name in ("Mixture", "Ensemble", "MvNormal")
        found.append(family.call("estimators.skce", kernel=family.kernel, slow=slow))
        exact = "hypothesis_tests.exact_skce_test"
        found.append(family.call(exact, None, _exact, kernel=family.kernel, num_draws=9, slow=True))
    for name, family in ALL.items():
        found.append(family.call("distributions.sample_targets"))
        if not name.startswith("Ensemble"):
            found.append(family.call("scores.negative_log_likelihood"))
    for family in (NORMAL, CATEGORICAL):
        found.append(
            family.call(
                "distributions.with_features distances.Features",
                None,
                _given_features(family),
                features=a.real(a.VECTORS, without=("first column",)),  # one feature
                slow=True,
            )
        )
    for family in (NORMAL, FAMILIES["MvNormal"]):
        kernel = kernels.TensorProduct(family.prediction_kernel, kernels.Stein())
        covers, label = "estimators.skce kernels.Stein", f"{family.name}, Stein"
        found.append(family.call(covers, label, kernel=kernel, slow=True))
    for name in ("Normal", "Laplace", "Mixture", "Ensemble"):
        found.append(FAMILIES[name].call("scores.crps"))
    for name in ("energy_score", "crps"):
        score = functools.partial(getattr(scores, name), estimator="fair")
        for family, label in ((FAMILIES["Ensemble"], "fair"), (_EQUAL_DRAWS, "fair, equal draws")):
            found.append(family.call(f"scores.{name}", label, score))
    found.append(FAMILIES["Ensemble"].call("scores.energy_score"))
    found.append(_EQUAL_DRAWS.call("scores.energy_score", "equal draws"))
    for name in ("Normal", "Laplace", "Mixture", "Ensemble", "Poisson", "Ensemble of counts"):
        for score in ("pinball_loss", "mean_squared_error"):
            found.append(FAMILIES[name].call(f"scores.{score}"))
    for family in (NORMAL, CATEGORICAL, _MORE["Dirichlet"]):
        covers = "distributions.monte_carlo"
        found.append(family.call(covers, None, _drawn, kernel=family.kernel, slow=True))
    draws = distributions.Ensemble(
        _DRAWS.astype(float), None, np.arange(len(_DRAWS), dtype=np.int32)
    )
    drawn = MonteCarlo(_whole(NORMAL).value, draws)
    for label, batch in {"draws": draws, "monte carlo": drawn}.items():
        found.append(
            call(
                "estimators.skce",
                label,
                kernel=kernels.TensorProduct(kernels.Exponential(), kernels.SquaredExponential()),
                predictions=a.predictions(batch),
                targets=NORMAL.targets,
            )
        )
    for family in (NORMAL, CATEGORICAL):
        found += [
            call(
                "estimators.skce",
                f"{family.name}, whole",
                kernel=family.kernel,
                predictions=_whole(family),
                targets=family.targets,
            ),
            call(
                "distributions.monte_carlo",
                f"{family.name}, options",
                _values,
                predictions=_whole(family),
                num_samples=a.integer(3),
            ),
        ]
    return found
