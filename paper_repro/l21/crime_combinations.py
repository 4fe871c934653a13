"""Everything that L21 leaves open about setting 1, combined: which of it gives its numbers?

Without recalibration the paper's ECE, NLL and Brier score are those of networks after 200 epochs.
Beside the length of the training these are open: which communities and columns are used (see
`crime_models.Reading`), what makes a group, and what the bins are of. The paper calls the
confidence that in the predicted class, which has values above 1/2 only where there are two classes:
of 5 bins three are in use. With one output of the network it may also have been P(y = 1), in all
methods and all errors.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from experiments.harness import cells
from experiments.harness.cells import Store
from paper_repro.data.classifiers import Part
from paper_repro.data.communities_crime import Communities
from paper_repro.l21 import methods
from paper_repro.l21.crime_models import NAME, USUAL, Reading, Settings, embed, parts_of, trained
from paper_repro.l21.embeddings import Embedding

BINS = {"confidence": "confidence", "P(y = 1)": "class_one"}  # with their names in cells


class Combination(NamedTuple):
    """What is open; see `crime_models.Variant` and `crime_models.Reading`."""

    reading: Reading = USUAL
    training: str = "last"
    grouping: str = "shares"
    bins: str = "confidence"


def combinations_of(settings: Settings) -> list[Combination]:
    """Those after 200 epochs, and of the usual reading also where training was stopped."""
    trainings = [*((reading, "last") for reading in settings.readings), (USUAL, "best")]
    kinds = itertools.product(trainings, settings.groupings, settings.bins)
    return [Combination(*training, grouping, bins) for training, grouping, bins in kinds]


def of_class_one(part: Part) -> Part:
    """The part with P(y = 1) as confidence, which is right where the label is one."""
    probs = np.exp(part.logits)
    return dataclasses.replace(
        part,
        confidences=probs[:, 1] / probs.sum(1),
        correct=part.labels,
        logits=None,  # from which the confidence in the predicted class would be taken
        labels=None,
    )


def evaluate(
    name: str, settings: Settings, parts: tuple[Part, Part], embeddings: dict[str, Embedding]
) -> dict[str, dict[str, float]]:
    """Scores of each method, and what its largest group-wise MCE were if it was calibrated."""
    calibration, evaluation = methods.both_parts(*parts, embeddings)
    found = methods.recalibrate(calibration, evaluation, settings.num_bins).confidences
    result = {}
    for method, confidences in found.items():
        arguments = confidences, evaluation, settings.num_bins
        key = cells.key_of(f"{NAME}/{name}/{method}")
        result[method] = methods.global_scores(*arguments)
        result[method]["floor"] = methods.calibrated_maximum(key, *arguments, settings.redraws)
    return result


def _name_of(combination: Combination, seed: int) -> str:
    bins = BINS[combination.bins]
    kind = f"{combination.training}{combination.reading.suffix}_{combination.grouping}_{bins}"
    return f"combinations/{kind}/{seed:02d}"


def finished_cells(
    store: Store, settings: Settings, communities: Communities
) -> dict[Combination, list[dict[str, dict[str, float]]]]:
    """Results of each network by combination, computed or read."""
    chosen = combinations_of(settings)
    networks = {x: trained(store, settings, communities, x) for x in settings.readings}

    def jobs() -> Iterator[cells.Job]:
        for combination, seed in itertools.product(chosen, range(settings.seeds)):
            reading, training, grouping, bins = combination
            arguments = communities, networks[reading], training, grouping
            parts = parts_of(*arguments, seed, reading)
            embeddings = embed(store, settings, training, seed, parts, reading)
            if bins != "confidence":
                parts = tuple(map(of_class_one, parts))
            name = _name_of(combination, seed)
            parameters = {
                "num_bins": settings.num_bins,
                "redraws": settings.redraws,
                "data": methods.digest(parts, embeddings),
            }
            compute = functools.partial(evaluate, name, settings, parts, embeddings)
            yield cells.Job(name, parameters, compute)

    found = iter(cells.finished(store, NAME, jobs(), total=len(chosen) * settings.seeds))
    return {combination: [next(found) for _ in range(settings.seeds)] for combination in chosen}
