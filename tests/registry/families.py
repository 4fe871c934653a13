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
from tests.registry.arguments import (
    ALONE,
    COVARIANCES,
    LABELS,
    LOC,
    OPTIONAL,
    PROBS,
    SCALE,
    VECTORS,
    Argument,
    Made,
    Y,
    call,
    counts,
    integer,
    integers,
    labels,
    parameters_of,
    positive,
    predictions,
    public,
    real,
    simplex,
    spd,
    unit,
)

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
        takes = parameters_of(public(covers.split()[0]) if function is None else function)
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
            without = (*one.without, *ALONE, "leading axis", "transposed")
            parameters[name] = dataclasses.replace(one, without=without)
        if self.make is distributions.Ensemble:
            values = parameters["values"]
            without = (*values.without, "one more axis")
            parameters["values"] = dataclasses.replace(values, without=without)
        return parameters


def _mixture(weights, loc, scale):
    return distributions.Mixture(weights, distributions.Normal(loc, scale))


_TWO = np.stack([LOC, LOC + 1], 1)
_TWO_SCALES = np.stack([SCALE, SCALE + 0.5], 1)
_WEIGHTS = np.stack([0.5 * PROBS[:, 0] + 0.25, 0.75 - 0.5 * PROBS[:, 0]], 1)
_DRAWS = np.stack([LOC, LOC + 0.5, LOC - 1.0], 1)
_CLASS_ENSEMBLE = np.stack([PROBS, np.roll(PROBS, 1, 0)], 1)
_COUNTS = np.array([0, 2, 1, 4, 0, 3, 1, 2])
_UNIT_TARGETS = np.clip(np.round(PROBS[:, 1], 3), 0.02, 0.98)
_SIMPLEX_TARGETS = np.roll(PROBS, 1, 0)

FAMILIES = {
    "Normal": Family(
        distributions.Normal,
        {"loc": real(LOC), "scale": positive(SCALE)},
        real(Y),
        prediction_kernel=kernels.Exponential(1.5, distances.Wasserstein()),
        covers="distributions.Normal distances.Wasserstein kernels.Exponential",
    ),
    "DiagNormal": Family(
        distributions.DiagNormal,
        {"loc": real(VECTORS), "scale": positive(0.3 + VECTORS**2)},
        real(VECTORS[::-1]),
        covers="distributions.DiagNormal distances.Euclidean",
    ),
    "MvNormal": Family(
        distributions.MvNormal,
        {"loc": real(VECTORS), "cov": spd(COVARIANCES)},
        real(VECTORS[::-1]),
        covers="distributions.MvNormal",
    ),
    "Laplace": Family(
        distributions.Laplace,
        {"loc": real(LOC), "scale": positive(SCALE)},
        real(Y),
        target_kernel=kernels.Exponential(1.2),
        covers="distributions.Laplace",
    ),
    "Bernoulli": Family(
        distributions.Bernoulli,
        {"probs": unit(PROBS[:, 0])},
        labels(LABELS % 2, limit=2),
        target_kernel=kernels.White(),
        prediction_kernel=kernels.Exponential(1.5, distances.TotalVariation()),
        covers="distributions.Bernoulli distances.TotalVariation kernels.White",
    ),
    "Categorical": Family(
        distributions.Categorical,
        {"probs": simplex(PROBS)},
        labels(LABELS, limit=3),
        target_kernel=kernels.White(),
        prediction_kernel=kernels.Exponential(1.5, distances.TotalVariation()),
        covers="distributions.Categorical",
    ),
    "CategoricalLogits": Family(
        distributions.CategoricalLogits,
        {"logits": real(np.log(PROBS))},
        labels(LABELS, limit=3),
        target_kernel=kernels.White(),
        prediction_kernel=kernels.Exponential(1.5, distances.TotalVariation()),
        covers="distributions.CategoricalLogits",
    ),
    "Poisson": Family(
        distributions.Poisson,
        {"rate": positive(2 * SCALE)},
        counts(_COUNTS),
        covers="distributions.Poisson",
    ),
    "Beta": Family(
        distributions.Beta,
        {"alpha": positive(SCALE + 0.5), "beta": positive(SCALE[::-1] + 1)},
        unit(_UNIT_TARGETS),
        target_kernel=kernels.SquaredExponential(0.4),
        covers="distributions.Beta",
    ),
    "Mixture": Family(
        _mixture,
        {
            "weights": simplex(_WEIGHTS, without=OPTIONAL),
            "loc": real(_TWO),
            "scale": positive(_TWO_SCALES),
        },
        real(Y),
        prediction_kernel=kernels.Exponential(1.5, distances.MixtureWasserstein()),
        covers="distributions.Mixture distances.MixtureWasserstein",
    ),
    "Mixture of classes": Family(
        lambda probs: distributions.Mixture(None, distributions.Categorical(probs)),
        {"probs": simplex(_CLASS_ENSEMBLE)},
        labels(LABELS, limit=3),
        target_kernel=kernels.LabelKernel(np.array([[2, 1, 0], [1, 2, 1], [0, 1, 2]], "f4")),
        prediction_kernel=kernels.Exponential(1.5, distances.TotalVariation()),
        covers="distributions.Mixture kernels.LabelKernel",
    ),
    "Ensemble": Family(
        distributions.Ensemble,
        {"values": real(_DRAWS), "weights": simplex(PROBS, without=OPTIONAL)},
        real(Y),
        prediction_kernel=kernels.Exponential(
            1.5, distances.MaximumMeanDiscrepancy(kernels.SquaredExponential())
        ),
        covers="distributions.Ensemble distances.MaximumMeanDiscrepancy",
    ),
    "Ensemble of counts": Family(
        distributions.Ensemble,
        {  # of numbers that are no integers, integers are targets as well
            "values": integers(
                np.stack([_COUNTS, _COUNTS[::-1], _COUNTS + 1], 1), without=("float 0.5",)
            )
        },
        integers(_COUNTS),
        covers="distributions.Ensemble",
    ),
}
_MORE = {  # without closed-form expectations
    "Dirichlet": Family(
        distributions.Dirichlet,
        {"concentration": positive(3 * PROBS + 0.3)},
        simplex(_SIMPLEX_TARGETS),
        covers="distributions.Dirichlet",
    )
}
_SHAPES = positive(SCALE + 1)
_DRAWN_FROM = {  # of which only draws and scores are asked for
    "StudentT": ({"df": _SHAPES, "loc": real(LOC), "scale": positive(SCALE)}, real(Y)),
    "Logistic": ({"loc": real(LOC), "scale": positive(SCALE)}, real(Y)),
    "LogNormal": ({"loc": real(LOC), "scale": positive(SCALE)}, positive(np.exp(Y))),
    "Gamma": (  # draws may be rounded to zero
        {"concentration": _SHAPES, "rate": positive(SCALE)},
        positive(np.exp(Y), without=("0", "-0.0")),
    ),
    "Uniform": ({"low": real(LOC), "high": real(LOC + SCALE)}, real(LOC + 0.5 * SCALE)),
    "GeneralizedNormal": ({"loc": real(LOC), "scale": positive(SCALE), "power": _SHAPES}, real(Y)),
    "NegativeBinomial": ({"mean_": _SHAPES, "concentration": positive(SCALE)}, counts(_COUNTS)),
}
_DRAWN_FROM = {
    name: Family(getattr(distributions, name), *data, covers=f"distributions.{name}")
    for name, data in _DRAWN_FROM.items()
}
_EQUAL_DRAWS = Family(distributions.Ensemble, {"values": real(_DRAWS)}, real(Y))
_VECTOR_DRAWS = Family(
    distributions.Ensemble,
    {"values": real(np.stack([VECTORS, VECTORS[::-1], VECTORS + 1], 1))},
    real(VECTORS[::-1]),
)


def _recalibrated(loc, scale, shift, factor):
    law = AffineMap(shift, factor)
    return Recalibrated(distributions.Normal(loc, scale), law)


_DRAWN_FROM["Recalibrated"] = Family(
    _recalibrated,
    {
        "loc": real(LOC),
        "scale": positive(SCALE),
        "shift": real(0.1 * LOC),
        "factor": positive(SCALE),
    },
    real(Y),
)
FAMILIES, _MORE, _DRAWN_FROM = (
    {name: dataclasses.replace(family, name=name) for name, family in families.items()}
    for families in (FAMILIES, _MORE, _DRAWN_FROM)
)
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
    values = {k: np.asarray(a.value) for k, a in family.parameters.items()}
    return predictions(family.make(**values))


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
                features=real(VECTORS, without=("first column",)),  # one feature
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
                predictions=predictions(batch),
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
                num_samples=integer(3),
            ),
        ]
    return found
