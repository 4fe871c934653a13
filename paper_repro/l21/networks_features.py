"""L21 Fig. 1, 14 and 15: local errors by features that are not those of recalibration, or raw ones.

Fig. 1 has the features as they are beside t-SNE and principal components. In Fig. 14 and 15 the
paper recalibrates a ResNet-50 by the features of AlexNet, and measures its errors by those of
Inception-v3 or DenseNet-121. Here it is a ResNet-18 for CIFAR-10, by those of VGG-16, measured by
those of GoogLeNet and DenseNet-121: logits of other networks for the same images.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import estimators
from experiments.harness import cells, data_files
from experiments.harness.cells import Store
from experiments.harness.tables import note_of, write_table
from paper_repro.data.classifiers import Classifier
from paper_repro.l21 import methods
from paper_repro.l21.embeddings import LENGTH_SCALES, Embedding, scaled
from paper_repro.l21.methods import CURVE_LENGTH_SCALES, GLOBAL, LOCAL

Embeddings = dict[str, Embedding]


class Across(NamedTuple):
    """Names of a network, of the one that LoRe has its features from, and the errors theirs."""

    network: str
    lore: str
    errors: str


ACROSS = {
    "figure_14": Across("cifar10_resnet18", "cifar10_vgg16_bn", "cifar10_googlenet"),
    "figure_15": Across("cifar10_resnet18", "cifar10_vgg16_bn", "cifar10_densenet121"),
}


def identity_curve(classifier: Classifier, num_bins: int) -> np.ndarray:
    """MLCE without recalibration by the features as they are, with one scale, [G]."""
    part = classifier.evaluation
    features = scaled(Embedding(classifier.calibration.features, part.features)).evaluation
    near = estimators.Neighbourhood.laplacian(jnp.asarray(CURVE_LENGTH_SCALES), num_bins)
    data = (features, part.confidences, part.correct)
    return np.asarray(jax.jit(estimators.mlce)(near, *map(jnp.asarray, data)))


def identity(store: Store, classifier: Classifier, num_bins: int) -> list[float]:
    """The curve of `identity_curve`, computed or read."""
    part = classifier.evaluation
    parameters = {
        "num_bins": num_bins,
        "data": data_files.digest(
            classifier.calibration.features, part.features, part.confidences, part.correct
        ),
    }

    def compute() -> dict[str, list[float]]:
        return {"MLCE curve": identity_curve(classifier, num_bins).tolist()}

    return cells.cell(store, f"{classifier.name}/identity", parameters, compute)["MLCE curve"]


def evaluate(
    classifier: Classifier, lore: Embeddings, errors: Embeddings, num_bins: int
) -> dict[str, dict[str, Any]]:
    """All quantities of all methods; LoRe has other features than the errors."""
    calibration, evaluation = methods.both_parts(
        classifier.calibration, classifier.evaluation, lore
    )
    found = methods.recalibrate(calibration, evaluation, num_bins).confidences
    embeddings = {name: jnp.asarray(x.evaluation) for name, x in errors.items()}
    evaluation = evaluation._replace(embeddings=embeddings)
    return {name: methods.evaluate(x, evaluation, num_bins) for name, x in found.items()}


def across(
    store: Store,
    classifiers: dict[str, Classifier],
    embeddings: dict[str, Embeddings],
    num_bins: int,
) -> dict[str, dict[str, dict[str, Any]]]:
    """Results of the methods by figure, computed or read; of those whose networks are there."""
    found = {}
    for figure, names in ACROSS.items():
        if not set(names) <= classifiers.keys():
            continue
        classifier = classifiers[names.network]
        lore, errors = embeddings[names.lore], embeddings[names.errors]
        parts = classifier.calibration, classifier.evaluation
        parameters = {
            "num_bins": num_bins,
            "data": [methods.digest(parts, x) for x in (lore, errors)],
        }
        compute = functools.partial(evaluate, classifier, lore, errors, num_bins)
        found[figure] = cells.cell(store, figure, parameters, compute)
    return found


def across_rows(
    results: dict[str, dict[str, Any]], found: dict[str, dict[str, dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """For how many length scales LoRe has the smaller MLCE.

    Args:
        results: those of `networks.evaluate`, by name of the network, for Fig. 9.
        found: those of `across`.
    """
    places = list(zip(LOCAL, LENGTH_SCALES, strict=True))
    own = dict.fromkeys(ACROSS[figure].network for figure in found)
    cases = [(x, *ACROSS[x][1:], y, place) for x, y in found.items() for place in places]
    cases += [("figure_9", x, x, results[x]["methods"], place) for place in places for x in own]
    for figure, *names, by_method, (local, embedding) in cases:
        lore, errors = (name.partition("_")[2] for name in names)
        row = {"figure": figure, "LoRe by": lore, "MLCE by": errors, "features": embedding}
        curves = {name: metrics[f"MLCE curve ({embedding})"] for name, metrics in by_method.items()}
        yield row | {x: int(np.sum(np.less(curves[local], curves[x]))) for x in GLOBAL}


def write_tables(store: Store, rows: list[dict[str, Any]]) -> None:
    """Writes the table of Fig. 14 and 15."""
    if rows:
        write_table(store.folder, "figures_14_15", rows, note_of(__file__, "across"))
