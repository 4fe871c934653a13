"""The data sets of W19 §7 and App. J.2: predictions Dir(a, …, a), and labels of a mixture.

With probability π a label is from β, otherwise from the prediction. The authors' scripts draw
10 000 data sets of 250 predictions one after the other, with one generator of the seed 1234 for
each (m, a, π, β): first the predictions of a data set, then its labels. These are the same data
sets.
"""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numba
import numpy as np
from tqdm import tqdm

from experiments.harness import cells
from experiments.harness.cells import Store
from paper_repro import julia_random
from paper_repro.julia_random import State, rand, rand_range, rand_small_gamma, randexp, seeded

SEED = 1234
NUM_SAMPLES = 250
NUM_DATA_SETS = 10_000  # of each model


class Model(NamedTuple):
    """A generative model of predictions and labels.

    Attributes:
        num_classes: m.
        concentration: a ≤ 1 of the predictions Dir(a, …, a).
        share: probability π of a label from β.
        beta: β, "uniform" or "first" (all labels are the first class).
    """

    num_classes: int
    concentration: float
    share: float
    beta: str

    @property
    def name(self) -> str:
        """Name in files; π = 0 has no β."""
        beta = f"_{self.beta}" if self.share else ""
        return f"m{self.num_classes}_a{self.concentration}_pi{self.share}{beta}"


# Of Fig. 1 and 2.
MODELS = {
    "M1": Model(10, 0.1, 0.0, "uniform"),
    "M2": Model(10, 0.1, 0.5, "first"),
    "M3": Model(10, 0.1, 1.0, "uniform"),
}


def _resumed(arrays: Mapping[str, np.ndarray]) -> State:
    """The generator of which these are the arrays."""
    words, bits, counters = (arrays[name].copy() for name in ("words", "bits", "counters"))
    return State(words, bits, bits.view(np.float64), counters)


def finished(
    store: Store,
    name: str,
    data_sets: int,
    chunk_size: int,
    compute: Callable[[State, int], dict[str, np.ndarray]],
) -> dict[str, np.ndarray]:
    """Results on the first data sets of a model, in cells that go on where the one before ended.

    Args:
        store: the store of the experiment.
        name: folder of the cells.
        data_sets: number of data sets.
        chunk_size: number of data sets of a cell.
        compute: (generator, number of data sets) → results by name, [data sets, …] each, of the
            next data sets; the generator is then behind them.
    """
    state, results = seeded(SEED), []

    def chunk(size: int) -> dict[str, np.ndarray]:
        arrays = compute(state, size)
        return arrays | {key: getattr(state, key) for key in ("words", "bits", "counters")}

    starts = range(0, data_sets, chunk_size)
    bar = {"desc": name, "unit": "cell", "leave": False, "disable": len(starts) == 1}
    for first in tqdm(starts, **bar):
        size = min(chunk_size, data_sets - first)
        parameters = {"last": first + size}
        job = functools.partial(chunk, size)
        results.append(cells.arrays(store, f"{name}/{first:04d}", parameters, job))
        state = _resumed(results[-1])
    names = results[0].keys() - {"words", "bits", "counters"}
    return {key: np.concatenate([result[key] for result in results]) for key in names}


def draw(state: State, model: Model, data_sets: int) -> tuple[np.ndarray, np.ndarray]:
    """The next data sets of a model, of which `state` is the generator.

    Returns:
        Predictions [data_sets, 250, m] and labels 0, …, m − 1, [data_sets, 250].
    """
    probs = np.empty((data_sets, NUM_SAMPLES, model.num_classes))
    labels = np.empty((data_sets, NUM_SAMPLES), np.int64)
    sampler = julia_random.gamma_sampler(model.concentration + 1)
    for sample in zip(probs, labels, strict=True):
        draw_data_set(
            state, sampler, model.concentration, model.share, model.beta == "first", *sample
        )
    return probs, labels


@numba.njit(cache=True)
def draw_data_set(state, sampler, concentration, share, is_first, probs, labels):
    """Fills predictions [n, m] and labels [n]; without a draw where π decides nothing."""
    for prediction in probs:
        for k in range(len(prediction)):
            prediction[k] = (
                randexp(state)
                if concentration == 1
                else rand_small_gamma(state, sampler, concentration)
            )
        prediction /= prediction.sum()
    for i in range(len(labels)):
        if share >= 1 or rand(state) < share:
            labels[i] = 0 if is_first else rand_range(state, probs.shape[1]) - 1
        else:
            labels[i] = julia_random.weighted_choice(state, probs[i]) - 1
