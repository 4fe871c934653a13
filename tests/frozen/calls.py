"""Which calls are frozen: those of the registry, and a few that it does not need."""

import contextlib
import functools
import re
from typing import Any

import jax
import numpy as np

import calibjax
from calibjax import distributions, estimators, kernels
from calibjax.kernels.expectations import double_expectation, single_expectation
from tests import registry
from tests.registry import arguments as a
from tests.registry.arguments import Call, call
from tests.registry.families import ALL, FAMILIES, Family

# Calls of the registry whose numbers are those of other calls: records that are passed on, and the
# densities and draws of all families, which `_members` has in one program.
_AGAIN = r", whole\]|\[params\]|\[state|\[records\]"
_AGAIN += r"|(negative_log_likelihood|sample_targets)\[(?!Normal\])"
# Where weights stay, of each kind of function one or two.
_WEIGHTED = (
    r"estimators\.(skce|skce_biased|ucme|ece|lce|reliability_curve|pit_counts)|streaming\.SKCE"
    r"|hypothesis_tests\.(exact_skce_test|group_calibration_test|aggregated_skce_test)"
    r"|scores\.(crps|brier_score|brier_decomposition|negative_log_likelihood)"
    r"|recalibration\.(HistogramBinning|IsotonicRegression|PlattScaling|AffineScaling|VennAbers)"
    r"|recalibration\.(TemperatureScaling|QuantileRecalibration)"
)


@functools.cache
def calls() -> dict[str, Call]:
    """All frozen calls by name."""
    chosen = {name: one for name, one in registry.calls().items() if _is_chosen(name)}
    own = [_members(family) for family in ALL.values()]
    own += [_pairs(family) for family in FAMILIES.values()]
    own += [_slopes(FAMILIES[name]) for name in ("Normal", "DiagNormal", "Categorical", "Mixture")]
    return chosen | {one.name: one for one in own + _evaluations()}


def _is_chosen(name: str) -> bool:
    if name.endswith("[weights]"):
        return re.fullmatch(rf"({_WEIGHTED})\[weights\]", name) is not None
    return re.search(_AGAIN, name) is None


def _members(family: Family) -> Call:
    """What a distribution says of itself, as far as it has these methods."""

    @jax.jit
    def evaluate(predictions: Any, targets: Any) -> dict[str, Any]:
        keys = jax.random.split(jax.random.key(2), len(targets))
        levels = np.full(len(targets), 0.3, np.float32)
        given = dict.fromkeys(("log_prob", "cdf", "crps"), (targets,))
        given |= {"sample": (keys,), "icdf": (levels,), "mean": (), "variance": ()}
        found = {}
        for name, values in given.items():
            with contextlib.suppress(AttributeError, NotImplementedError):
                found[name] = jax.vmap(getattr(type(predictions), name))(predictions, *values)
        return found

    return family.call("distributions.Distribution", f"{family.name}, members", evaluate)


def _pairs(family: Family) -> Call:
    """Distances of all pairs of predictions, and expectations of their kernel on targets."""

    @jax.jit
    def evaluate(kernel: Any, predictions: Any, targets: Any) -> dict[str, Any]:
        single = jax.vmap(functools.partial(single_expectation, kernel.target))
        double = functools.partial(double_expectation, kernel.target)
        return {
            "distances": kernels.gram_matrix(kernel.prediction.distance, predictions),
            "single": single(predictions, targets),
            "double": kernels.gram_matrix(double, predictions),
        }

    covers, label = "kernels.expectations.double_expectation", f"{family.name}, pairs"
    return family.call(covers, label, evaluate)


def _slopes(family: Family) -> Call:
    """Derivatives of the unbiased SKCE by length scales and by predictions."""

    @jax.jit
    def evaluate(kernel: Any, predictions: Any, targets: Any) -> Any:
        slopes = jax.grad(estimators.skce, (0, 1))(kernel, predictions, targets)
        return dict(zip(("kernel", "predictions"), slopes, strict=True))

    return family.call("estimators.skce", f"{family.name}, slopes", evaluate)


def _evaluations() -> list[Call]:
    """All numbers of `evaluate` on three data sets of 40 samples."""
    generator = np.random.default_rng(6)
    loc, noise, extra = generator.normal(size=(3, 40)).round(2)
    probs, scale = generator.dirichlet(np.ones(3), 40), generator.uniform(0.5, 1.5, 40).round(2)
    members, chosen = generator.normal(size=(40, 6)).round(2), generator.integers(0, 3, 40)
    loc, members, targets = a.real(loc), a.real(loc[:, None] + members), a.real(loc + noise)
    normals = a.made(distributions.Normal, loc=loc, scale=a.positive(scale))
    data = {
        "normals": {"predictions": normals, "targets": targets, "features": a.real(extra)},
        "classes": {"predictions": a.simplex(probs), "targets": a.labels(chosen, limit=3)},
        "ensembles": {
            "predictions": a.made(distributions.Ensemble, values=members),
            "targets": targets,
        },
    }

    def evaluate(key: Any, **given: Any) -> dict[str, Any]:
        fields = "value", "standard_error", "low", "high", "pvalue"
        found = calibjax.evaluate(key, **given).entries
        return {one.name: {x: getattr(one, x) for x in fields} for one in found}

    return [
        call("evaluate", f"{name}, 40", evaluate, key=a.key(), slow=True, **given)
        for name, given in data.items()
    ]
