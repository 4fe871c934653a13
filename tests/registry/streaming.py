"""Calls of accumulators: one batch, and what comes of it."""

from typing import Any

import numpy as np

from calibjax import distances, distributions, estimators, kernels, recalibration, streaming
from tests.registry import arguments as a
from tests.registry.arguments import Call, call
from tests.registry.families import BERNOULLI, CATEGORICAL, FAMILIES, NORMAL, Family

_BINNING = estimators.UniformBins(3)


def _streamed(make: Any, *names: str) -> Any:
    """What an accumulator says after one batch; these names are arguments of `update`."""

    def evaluate(predictions: Any, targets: Any, **options: Any) -> Any:
        data = {name: options.pop(name) for name in names}
        accumulator = make(**options)
        state = accumulator.update(accumulator.init(), predictions, targets, **data)
        return accumulator.result(accumulator.merge(state, accumulator.init()))

    return evaluate


def _distances_to_means(predictions: Any, targets: Any) -> Any:
    return abs(targets - predictions.mean())


def _watched(make: Any, result: str) -> Call:
    """What is said of forecasts in their order, whose states are not merged."""

    def evaluate(predictions: Any, targets: Any, **options: Any) -> Any:
        example = distributions.Normal(np.zeros(1, np.float32), np.ones(1, np.float32))
        accumulator = make(recalibration.AffineScaling(), example, **options)
        return accumulator.result(accumulator.update(accumulator.init(), predictions, targets))

    name = make.__name__
    return NORMAL.call(
        f"streaming.{name} {result}",
        evaluate,
        "Normal",
        horizon=a.integer(1),
        window=a.integer(4),
        forget=a.scale(0.9),
    )


def _low_rank(family: Family) -> Any:
    values = {name: arg.value[:3] for name, arg in family.parameters.items()}
    landmarks = family.make(**values)
    return kernels.TensorProduct(
        kernels.LowRank(family.prediction_kernel, landmarks), family.target_kernel
    )


def _skce() -> list[Call]:
    found = []
    for name in ("Normal", "Categorical"):
        family = FAMILIES[name]
        kernel = a.kernel(_low_rank(family))
        found.append(
            family.call(
                "streaming.SKCE streaming.SKCEEstimate",
                _streamed(streaming.SKCE),
                name,
                kernel=kernel,
            )
        )
        found.append(
            family.call(
                "streaming.ExactSKCETest",
                _streamed(streaming.ExactSKCETest, "indices"),
                name,
                slow=True,
                key=a.key(),
                kernel=kernel,
                num_draws=a.integer(9),
                statistic=a.choice("omnibus"),
                indices=a.groups(np.arange(a.N)[::-1].copy(), without=a.OPTIONAL),
            )
        )
        found.append(
            family.call(
                "streaming.BlockSKCE",
                _streamed(streaming.BlockSKCE),
                name,
                kernel=a.kernel(family.kernel),
                block_size=a.integer(2),
                confidence_level=a.proportion(0.9),
            )
        )
    return found


def calls() -> list[Call]:
    """Calls of all accumulators."""
    weights = np.linspace(0.5, 2.0, a.N)
    zero = "0", "-0.0"
    found = [
        *_skce(),
        _watched(streaming.EProcess, "hypothesis_tests.EProcessResult"),
        _watched(streaming.EDetector, "streaming.EDetection"),
        NORMAL.call(
            "streaming.MeanScore streaming.MeanEstimate",
            _streamed(streaming.MeanScore, "weights"),
            "Normal",
            score=a.function(_distances_to_means),
            weights=a.positive(weights, without=(*a.OPTIONAL, *zero)),
        ),
        call(
            "streaming.MeanScore",
            lambda a: streaming.MeanScore(_distances_to_means).result(a),
            "state",
            a=a.record(streaming.MeanScore(_distances_to_means).init(), "state"),
            compiled=False,
            reason="its shapes are those of all states",
        ),
        call(
            "streaming.MeanScore",
            streaming.CalibrationBins(_BINNING).result,
            "state of bins",
            state=a.record(streaming.CalibrationBins(_BINNING).init()),
            compiled=False,
            reason="its shapes are those of all states",
        ),
    ]
    options = {"binning": a.binning(_BINNING), "distance": a.distance(distances.TotalVariation())}
    covers = "streaming.CalibrationBins streaming.BinnedErrors"
    bins = _streamed(streaming.CalibrationBins)
    found.append(BERNOULLI.call(covers, bins, "Bernoulli", **options))
    number = a.integer(a.M)
    found.append(CATEGORICAL.call(covers, bins, "Categorical", num_classes=number, **options))
    return found
