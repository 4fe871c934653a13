"""Calls of accumulators: one batch, and what comes of it."""

import jax
import numpy as np

from calibjax import distances, distributions, estimators, kernels, recalibration, streaming
from tests.registry import arguments as a
from tests.registry.arguments import call
from tests.registry.families import BERNOULLI, CATEGORICAL, NORMAL

_BINNING = estimators.UniformBins(3)


def _streamed(make):
    """What an accumulator says after one batch; other options are those of `update`."""
    own = a.parameters_of(make)

    def evaluate(predictions, targets, weights=None, **options):
        accumulator = make(**{name: options.pop(name) for name in own & options.keys()})
        state = accumulator.init()
        state = accumulator.update(state, predictions, targets, weights=weights, **options)
        return accumulator.result(accumulator.merge(state, accumulator.init()))

    return evaluate


def _distances_to_means(predictions, targets):
    return abs(targets - predictions.mean())


def _watched(make):
    """What is said of forecasts in their order, whose states are not merged."""

    def evaluate(predictions, targets, **options):
        example = distributions.Normal(np.zeros(1, np.float32), np.ones(1, np.float32))
        accumulator = make(example, recalibration.AffineScaling(), **options)
        return accumulator.result(accumulator.update(accumulator.init(), predictions, targets))

    return NORMAL.call(
        f"streaming.{make.__name__}",
        None,
        evaluate,
        horizon=a.integer(1),
        window=a.integer(4),
        forget=a.scale(0.9),
    )


def _low_rank(family):
    values = {name: arg.value[:3] for name, arg in family.parameters.items()}
    landmarks = family.make(**values)
    return kernels.TensorProduct(
        kernels.Nystrom(family.prediction_kernel, landmarks), family.target_kernel
    )


def _skce():
    found = []
    indices = a.groups(np.arange(a.N)[::-1].copy(), without=a.OPTIONAL)
    drawn = {"key": a.key(), "num_draws": a.integer(9), "statistic": a.choice("omnibus")}
    blocks = {"block_size": a.integer(2), "confidence_level": a.proportion(0.9)}
    for family in (NORMAL, CATEGORICAL):
        kernel, in_blocks = a.kernel(_low_rank(family)), a.kernel(family.kernel)
        test, streamed = _streamed(streaming.ExactSKCETest), _streamed(streaming.SKCE)
        found += [
            family.call("streaming.SKCE", None, streamed, kernel=kernel),
            family.call(
                "streaming.ExactSKCETest",
                None,
                test,
                kernel=kernel,
                indices=indices,
                **drawn,
                slow=True,
            ),
            family.call(
                "streaming.SKCE", f"{family.name}, blocks", streamed, kernel=in_blocks, **blocks
            ),
        ]
    return found


def calls():
    """Calls of all accumulators."""
    weights = a.positive(np.linspace(0.5, 2.0, a.N), without=(*a.OPTIONAL, "0", "-0.0"))
    score, covers = a.function(_distances_to_means), "streaming.MeanScore"
    mean, bins = streaming.MeanScore(_distances_to_means), streaming.CalibrationBins(_BINNING)
    half = distributions.Bernoulli(np.float32([0.5]))

    def state_of(accumulator):  # in NumPy, of which there are both precisions
        return jax.tree.map(np.asarray, accumulator.update(accumulator.init(), half, np.array([1])))

    unchanging = {"reason": "its shapes are those of all states"}
    in_bins = {"binning": a.binning(_BINNING), "distance": a.distance(distances.TotalVariation())}
    of_bins = "streaming.CalibrationBins", None
    streamed = _streamed(streaming.CalibrationBins)
    return [
        *_skce(),
        _watched(streaming.EProcess),
        NORMAL.call(covers, None, _streamed(streaming.MeanScore), score=score, weights=weights),
        call(covers, "state", mean.result, state=a.record(state_of(mean)), **unchanging),
        call(covers, "state of bins", bins.result, state=a.record(state_of(bins)), **unchanging),
        BERNOULLI.call(*of_bins, streamed, **in_bins),
    ]
