"""Data sets of every family of predictions, and calls of the functions that take all of them."""

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from calibjax import (
    distances,
    distributions,
    estimators,
    hypothesis_tests,
    kernels,
    recalibration,
    scores,
)
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
    Call,
    Y,
    call,
    counts,
    integer,
    integers,
    key,
    labels,
    positive,
    predictions,
    real,
    simplex,
    spd,
    unit,
)

P = "predictions"
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

    @property
    def kernel(self) -> Any:
        return kernels.TensorProduct(self.prediction_kernel, self.target_kernel)

    def call(
        self, covers: str, function: Callable[..., Any], label: str, *leave: str, **more: Any
    ) -> Call:
        """A call of function(predictions, targets, **more), all parameters being arguments."""
        names = tuple(self.parameters)

        def evaluate(**values: Any) -> Any:
            made = self.make(**{name: values.pop(name) for name in names})
            return function(made, **values)

        arguments = {**self.parameters, "targets": self.targets}
        arguments = {k: v for k, v in arguments.items() if k not in leave}
        if "targets" in leave and len(names) == 1:
            name = names[0]
            # Without targets, another shape is another batch, and draws with more axes are vectors.
            without = (*arguments[name].without, *ALONE, "leading axis", "transposed")
            arguments[name] = dataclasses.replace(arguments[name], without=without)
        if "targets" in leave and label.startswith("Samples"):
            values = arguments["values"]
            without = (*values.without, "one more axis")
            arguments["values"] = dataclasses.replace(values, without=without)
        return call(f"{covers} {self.covers}", evaluate, label, **arguments, **more)


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
        {"loc": real(LOC, P), "scale": positive(SCALE, P)},
        real(Y),
        prediction_kernel=kernels.Exponential(1.5, distances.Wasserstein()),
        covers="distributions.Normal distances.Wasserstein kernels.Exponential",
    ),
    "DiagNormal": Family(
        distributions.DiagNormal,
        {"loc": real(VECTORS, P), "scale": positive(0.3 + VECTORS**2, P)},
        real(VECTORS[::-1]),
        covers="distributions.DiagNormal distances.Euclidean",
    ),
    "MvNormal": Family(
        distributions.MvNormal,
        {"loc": real(VECTORS, P), "cov": spd(COVARIANCES, P)},
        real(VECTORS[::-1]),
        covers="distributions.MvNormal",
    ),
    "Laplace": Family(
        distributions.Laplace,
        {"loc": real(LOC, P), "scale": positive(SCALE, P)},
        real(Y),
        target_kernel=kernels.Exponential(1.2),
        covers="distributions.Laplace",
    ),
    "Bernoulli": Family(
        distributions.Bernoulli,
        {"probs": unit(PROBS[:, 0], P)},
        labels(LABELS % 2, limit=2),
        target_kernel=kernels.White(),
        prediction_kernel=kernels.Exponential(1.5, distances.TotalVariation()),
        covers="distributions.Bernoulli distances.TotalVariation kernels.White",
    ),
    "Categorical": Family(
        distributions.Categorical,
        {"probs": simplex(PROBS, P)},
        labels(LABELS, limit=3),
        target_kernel=kernels.White(),
        prediction_kernel=kernels.Exponential(1.5, distances.TotalVariation()),
        covers="distributions.Categorical",
    ),
    "CategoricalLogits": Family(
        distributions.CategoricalLogits,
        {"logits": real(np.log(PROBS), P)},
        labels(LABELS, limit=3),
        target_kernel=kernels.White(),
        prediction_kernel=kernels.Exponential(1.5, distances.TotalVariation()),
        covers="distributions.CategoricalLogits",
    ),
    "Poisson": Family(
        distributions.Poisson,
        {"rate": positive(2 * SCALE, P)},
        counts(_COUNTS),
        covers="distributions.Poisson",
    ),
    "Beta": Family(
        distributions.Beta,
        {"alpha": positive(SCALE + 0.5, P), "beta": positive(SCALE[::-1] + 1, P)},
        unit(_UNIT_TARGETS),
        target_kernel=kernels.SquaredExponential(0.4),
        covers="distributions.Beta",
    ),
    "Mixture": Family(
        _mixture,
        {
            "weights": simplex(_WEIGHTS, P, without=OPTIONAL),
            "loc": real(_TWO, P),
            "scale": positive(_TWO_SCALES, P),
        },
        real(Y),
        prediction_kernel=kernels.Exponential(1.5, distances.MixtureWasserstein()),
        covers="distributions.Mixture distances.MixtureWasserstein",
    ),
    "Mixture of classes": Family(
        lambda probs: distributions.Mixture(None, distributions.Categorical(probs)),
        {"probs": simplex(_CLASS_ENSEMBLE, P)},
        labels(LABELS, limit=3),
        target_kernel=kernels.LabelKernel(np.array([[2, 1, 0], [1, 2, 1], [0, 1, 2]], "f4")),
        prediction_kernel=kernels.Exponential(1.5, distances.TotalVariation()),
        covers="distributions.Mixture kernels.LabelKernel",
    ),
    "Samples": Family(
        distributions.Samples,
        {"values": real(_DRAWS, P), "weights": simplex(PROBS, P, without=OPTIONAL)},
        real(Y),
        prediction_kernel=kernels.Exponential(
            1.5, distances.MaximumMeanDiscrepancy(kernels.SquaredExponential())
        ),
        covers="distributions.Samples distances.MaximumMeanDiscrepancy",
    ),
    "Samples of counts": Family(
        distributions.Samples,
        {  # of numbers that are no integers, integers are targets as well
            "values": integers(
                np.stack([_COUNTS, _COUNTS[::-1], _COUNTS + 1], 1), P, without=("float 0.5",)
            )
        },
        integers(_COUNTS),
        covers="distributions.Samples",
    ),
}
_MORE = {  # without closed-form expectations
    "Dirichlet": Family(
        distributions.Dirichlet,
        {"concentration": positive(3 * PROBS + 0.3, P)},
        simplex(_SIMPLEX_TARGETS),
        covers="distributions.Dirichlet",
    )
}
_SHAPES = positive(SCALE + 1, P)
_DRAWN_FROM = {  # of which only draws and scores are asked for
    "StudentT": ({"df": _SHAPES, "loc": real(LOC, P), "scale": positive(SCALE, P)}, real(Y)),
    "LogNormal": ({"loc": real(LOC, P), "scale": positive(SCALE, P)}, positive(np.exp(Y))),
    "Gamma": (  # draws may be rounded to zero
        {"concentration": _SHAPES, "rate": positive(SCALE, P)},
        positive(np.exp(Y), without=("0", "-0.0")),
    ),
    "Uniform": ({"low": real(LOC, P), "high": real(LOC + SCALE, P)}, real(LOC + 0.5 * SCALE)),
    "GeneralizedNormal": (
        {"loc": real(LOC, P), "scale": positive(SCALE, P), "power": _SHAPES},
        real(Y),
    ),
    "NegativeBinomial": ({"rate": _SHAPES, "concentration": positive(SCALE, P)}, counts(_COUNTS)),
}
_DRAWN_FROM = {
    name: Family(getattr(distributions, name), *data, covers=f"distributions.{name}")
    for name, data in _DRAWN_FROM.items()
}
_VECTOR_DRAWS = Family(
    distributions.Samples,
    {"values": real(np.stack([VECTORS, VECTORS[::-1], VECTORS + 1], 1), P)},
    real(VECTORS[::-1]),
)


def _recalibrated(loc, scale, shift, factor):
    law = recalibration.AffineMap(shift, factor)
    return distributions.Recalibrated(distributions.Normal(loc, scale), law)


_DRAWN_FROM["Recalibrated"] = Family(
    _recalibrated,
    {
        "loc": real(LOC, P),
        "scale": positive(SCALE, P),
        "shift": real(0.1 * LOC, P),
        "factor": positive(SCALE, P),
    },
    real(Y),
    covers="distributions.Recalibrated",
)
NORMAL, CATEGORICAL, BERNOULLI = (FAMILIES[k] for k in ("Normal", "Categorical", "Bernoulli"))


def _skce(family: Family) -> Callable[..., Any]:
    return lambda predictions, targets: estimators.skce(family.kernel, predictions, targets)


def _given_features(family: Family) -> Callable[..., Any]:
    kernel = kernels.TensorProduct(
        kernels.Exponential(1.5, distances.Features()), family.target_kernel
    )

    def estimate(predictions, targets, features):
        carrying = distributions.with_features(predictions, features)
        return estimators.skce(kernel, carrying, targets)

    return estimate


def _exact(family: Family) -> Callable[..., Any]:
    def test(predictions, targets):
        key = jax.random.key(3)
        with warnings.catch_warnings():  # of draws, for which there is another test
            warnings.filterwarnings("ignore", ".*ensemble_skce_test", UserWarning)
            return hypothesis_tests.exact_skce_test(
                key, family.kernel, predictions, targets, num_draws=9
            )

    return test


def _drawn(family: Family) -> Callable[..., Any]:
    def estimate(predictions, targets):
        drawn = distributions.monte_carlo(jax.random.key(1), predictions, 4)
        return estimators.skce(family.kernel, drawn, targets)

    return estimate


def _whole(family: Family) -> Any:
    """A batch of predictions in double precision, which every mode takes."""
    return family.make(**{k: np.asarray(a.value) for k, a in family.parameters.items()})


def calls() -> list[Call]:
    """Every family with the functions that take them all."""
    found = []
    for name, family in FAMILIES.items():
        slow = name in ("Mixture", "Samples", "MvNormal")
        found.append(family.call("estimators.skce", _skce(family), name, slow=slow))
        found.append(
            family.call("hypothesis_tests.exact_skce_test", _exact(family), name, slow=True)
        )
    for name, family in {**FAMILIES, **_MORE, **_DRAWN_FROM}.items():
        draw = distributions.sample_targets
        found.append(
            family.call(
                "distributions.sample_targets",
                lambda predictions, key, draw=draw: draw(key, predictions),
                name,
                "targets",
                key=key(),
            )
        )
        if not name.startswith("Samples"):
            nll = scores.negative_log_likelihood
            found.append(family.call("scores.negative_log_likelihood", nll, name))
    for name in ("Normal", "Categorical"):
        found.append(
            FAMILIES[name].call(
                "distributions.with_features distributions.WithFeatures distances.Features",
                _given_features(FAMILIES[name]),
                name,
                features=real(VECTORS, without=("first column",)),  # one feature
                slow=True,
            )
        )
    for name in ("Normal", "MvNormal"):
        family = dataclasses.replace(FAMILIES[name], target_kernel=kernels.Stein())
        found.append(
            family.call("estimators.skce kernels.Stein", _skce(family), f"{name}, Stein", slow=True)
        )
    for name in ("Normal", "Laplace", "Mixture", "Samples"):
        found.append(FAMILIES[name].call("scores.crps", scores.crps, name))
    for name in ("Normal", "Samples"):
        found.append(
            FAMILIES[name].call(
                "scores.threshold_weighted_crps",
                functools.partial(scores.threshold_weighted_crps, low=-0.5),
                name,
            )
        )
    for name in ("energy_score", "fair_energy_score", "fair_crps"):
        found.append(FAMILIES["Samples"].call(f"scores.{name}", getattr(scores, name), "Samples"))
    found.append(_VECTOR_DRAWS.call("scores.variogram_score", scores.variogram_score, "Samples"))
    for name in ("Normal", "Laplace", "Mixture", "Samples", "Poisson", "Samples of counts"):
        found.append(FAMILIES[name].call("scores.pinball_loss", scores.pinball_loss, name))
        mse = scores.mean_squared_error
        found.append(FAMILIES[name].call("scores.mean_squared_error", mse, name))
    for name, family in {"Normal": NORMAL, "Categorical": CATEGORICAL, **_MORE}.items():
        covers = "distributions.monte_carlo distributions.MonteCarlo"
        found.append(family.call(covers, _drawn(family), name, slow=True))
    draws = distributions.Samples(
        _DRAWS.astype(float), None, np.arange(len(_DRAWS), dtype=np.int32)
    )
    with_draws = {"draws": draws, "monte carlo": distributions.MonteCarlo(_whole(NORMAL), draws)}
    for name, batch in with_draws.items():
        found.append(
            call(
                "estimators.skce distributions.MonteCarlo",
                lambda predictions, targets: estimators.skce(
                    kernels.TensorProduct(kernels.Exponential(), kernels.SquaredExponential()),
                    predictions,
                    targets,
                ),
                name,
                predictions=predictions(batch),
                targets=dataclasses.replace(NORMAL.targets),
            )
        )
    for name, family in {"Normal": NORMAL, "Categorical": CATEGORICAL}.items():
        found.append(
            call(
                "estimators.skce",
                lambda predictions, targets, family=family: estimators.skce(
                    family.kernel, predictions, targets
                ),
                f"{name}, whole",
                predictions=predictions(_whole(family)),
                targets=dataclasses.replace(family.targets),
            )
        )
        found.append(
            call(
                "distributions.monte_carlo",
                lambda key, predictions, num_samples: (
                    distributions.monte_carlo(key, predictions, num_samples).draws.values
                ),
                f"{name}, options",
                key=key(),
                predictions=predictions(_whole(family)),
                num_samples=integer(3),
            )
        )
    return found
