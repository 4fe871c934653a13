"""L21 §3 and 5, Fig. 1, 2, 4, 8, 9, 14, 15, 16, Table 4: recalibration of image classifiers.

All methods are compared on networks for CIFAR-10 and CIFAR-100 (--data); ImageNet and CelebA are
not at hand. The decision experiment, in the paper on ImageNet, is run on all networks. Without any
it is all run on stand-in data (`paper_repro.data.stand_in`).

There are eight networks with logits, ResNet-50, ResNet-110 and DenseNet-121 for both data sets
(folders `cifar100_logits`, `cifar10_logits`) and, for CIFAR-10, ResNet-50 and DenseNet-121 trained
with the focal loss: their 5000 validation images are for recalibration, their 10 000 test images
for evaluation. Of the four of `cifar10_networks`, of which there are test images only, a random
half is for recalibration. Fig. 14 and 15 need the same images in both parts, which these four have.

The features are the logits, for `cifar10_networks` the logarithms of the published probabilities,
not those of an Inception network: in 3 dimensions by t-SNE of 5000 samples (see
`paper_repro.l21.embeddings`), which is kept, and at most 50 principal components.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from calibjax.scores.decomposition import prediction_rejection_ratio
from experiments.harness import cells, command_line
from experiments.harness.cells import Store
from experiments.harness.stand_in import marked
from paper_repro.data import stand_in
from paper_repro.data.cifar import EXPECTED, LOGITS
from paper_repro.data.classifiers import NETWORKS, Classifier, Part, read_all
from paper_repro.l21 import (
    methods,
    networks_claims,
    networks_features,
    networks_figures,
    networks_map,
)
from paper_repro.l21.embeddings import Embedding, principal_components, tsne
from paper_repro.l21.methods import CLIPS, ORIGINAL, TEMPERATURE
from paper_repro.l21.networks_tables import RATIOS, write_tables

NAME = "l21_networks"
DECISION_RATIO = 10.0  # L21 Table 4: u = -1, w = -10


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the experiment.

    Attributes:
        num_samples: how many samples of each part to use at most, the first ones; None for all.
        cifar10: names of networks of `cifar.CIFAR10`.
        logits: names of networks of `cifar.LOGITS`.
        num_bins: number of equal intervals of confidences.
        components: of the features, by embedding.
        max_iter: iterations of t-SNE.
        redraws: redraws of the exact test of every point, for the maps.
    """

    num_samples: int | None
    cifar10: tuple[str, ...]
    logits: tuple[str, ...] = ()
    num_bins: int = 15
    components: tuple[tuple[str, int], ...] = (("t-SNE", 3), ("PCA", 50))
    max_iter: int = 1000
    redraws: int = 999


SETTINGS = {
    "quick": Settings(500, (), ("cifar100_resnet50",), max_iter=250, redraws=99),
    "medium": Settings(2000, NETWORKS[:1], ("cifar100_resnet50", "cifar100_resnet110")),
    "paper": Settings(None, NETWORKS, tuple(LOGITS)),
}


def shortened(classifier: Classifier, num_samples: int | None) -> Classifier:
    """The classifier with the first samples of each part."""

    def first(part: Part) -> Part:
        arrays = {name: x for name, x in vars(part).items() if x is not None}
        return Part(**{name: x[:num_samples] for name, x in arrays.items()})

    parts = classifier.calibration, classifier.evaluation
    return Classifier(classifier.name, *map(first, parts))


def class_probs(confidences: np.ndarray, part: Part) -> np.ndarray:
    """Probabilities of all classes where that of the predicted one is replaced, [n, m].

    Those of the other classes keep their ratios.
    """
    probs = np.exp(part.logits - part.logits.max(1, keepdims=True))
    predicted = np.arange(len(probs)), part.logits.argmax(1)
    probs[predicted] = 0
    probs *= ((1 - confidences) / probs.sum(1))[:, None]
    probs[predicted] = confidences
    return probs


def class_scores(probs: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """NLL, clipped, and Brier score of the probabilities of all classes."""
    likelihoods = np.maximum(probs[np.arange(len(labels)), labels], CLIPS[0])
    errors = probs - np.eye(probs.shape[1])[labels]
    return {
        "class NLL": float(-np.log(likelihoods).mean()),
        "class Brier": float(np.square(errors).sum(1).mean()),
    }


def decision_cost(confidences: jax.Array, correct: jax.Array, ratios: jax.Array) -> jax.Array:
    """Mean cost of trusting predictions or answering "unsure", in units u of the latter (L21 §5.4).

    A wrong answer costs w/u; "unsure" is the answer where confidences are at most 1 − u/w.
    """
    ratios = ratios[:, None]
    return jnp.mean(jnp.where(confidences <= 1 - 1 / ratios, 1, ratios * (1 - correct)), 1)


@jax.jit
def _decided(
    confidences: jax.Array, original: jax.Array, correct: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Prediction-rejection ratio, cost, and gains at all ratios of costs, in one program."""
    ratios = jnp.append(jnp.asarray(RATIOS), DECISION_RATIO)
    costs, before = (decision_cost(x, correct, ratios) for x in (confidences, original))
    return prediction_rejection_ratio(confidences, correct), costs[-1], before - costs


def decide(
    confidences: jax.Array, original: jax.Array, correct: jax.Array
) -> dict[str, float | list[float]]:
    """Prediction-rejection ratio, and what decisions cost, or gain against the original ones."""
    ratio, cost, gains = map(np.asarray, _decided(confidences, original, correct))
    found = {"PRR": float(ratio), "cost": float(cost), "gain": float(gains[-1])}
    return found | {"gain curve": gains[:-1].tolist()}


def evaluate(
    settings: Settings, classifier: Classifier, embeddings: dict[str, Embedding]
) -> dict[str, Any]:
    """All quantities of all methods for one classifier."""
    calibration, evaluation = methods.both_parts(
        classifier.calibration, classifier.evaluation, embeddings
    )
    found = methods.recalibrate(calibration, evaluation, settings.num_bins)
    found = methods.complete(classifier.name, found, has_groups=False)
    original, part = found.confidences[ORIGINAL], classifier.evaluation
    metrics = {}
    for name, confidences in found.confidences.items():
        probs = class_probs(np.asarray(confidences), part)
        if name == TEMPERATURE:
            probs = np.asarray(jax.nn.softmax(evaluation.logits / found.temperature))
        metrics[name] = methods.evaluate(confidences, evaluation, settings.num_bins)
        metrics[name] |= decide(confidences, original, evaluation.correct)
        metrics[name] |= class_scores(probs, part.labels)
    return {
        "methods": metrics,
        "accuracy": float(part.correct.mean()),
        "temperature": float(found.temperature),
        "sizes": [len(calibration.correct), len(evaluation.correct)],
    }


def embed(store: Store, settings: Settings, classifier: Classifier) -> dict[str, Embedding]:
    """Features of both parts in few dimensions."""
    features = Embedding(classifier.calibration.features, classifier.evaluation.features)
    components, name = dict(settings.components), f"{classifier.name}/tsne"
    found = tsne(store, name, features, components["t-SNE"], settings.max_iter)
    pca = principal_components(features, components["PCA"])
    return {"t-SNE": found, "PCA": pca}


def finished_cells(
    store: Store, settings: Settings, classifiers: list[Classifier]
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Embedding]]]:
    """Results and embeddings by name of the classifier, computed or read."""
    results, found = {}, {}
    bar = tqdm(classifiers, desc=NAME, unit="classifier")
    for classifier in bar:
        bar.set_description(f"{NAME}: {classifier.name}, embedding")
        embeddings = found[classifier.name] = embed(store, settings, classifier)
        bar.set_description(f"{NAME}: {classifier.name}")
        parts = classifier.calibration, classifier.evaluation
        parameters = {"num_bins": settings.num_bins, "data": methods.digest(parts, embeddings)}
        compute = functools.partial(evaluate, settings, classifier, embeddings)
        name = f"{classifier.name}/results"
        results[classifier.name] = cells.cell(store, name, parameters, compute)
    return results, found


def run(run: command_line.Run) -> None:
    """Runs the experiment; without --data it runs on stand-in data."""
    settings, store = SETTINGS[run.preset], run.store(NAME, __file__)
    if classifiers := [*read_all(run.data, settings.cifar10, settings.logits)]:
        write_all(store, settings, [shortened(x, settings.num_samples) for x in classifiers])
    else:
        with marked(NAME, stand_in.WHAT, EXPECTED):
            write_all(store, settings, [shortened(stand_in.digits(), settings.num_samples)])


def write_all(store: Store, settings: Settings, classifiers: list[Classifier]) -> None:
    """Writes all tables and figures of the classifiers."""
    results, embeddings = finished_cells(store, settings, classifiers)
    write_tables(store.folder, results)
    networks_claims.write_tables(store.folder, results, RATIOS)
    networks_figures.plot(store.folder, results)
    first = classifiers[0]
    identity = networks_features.identity(store, first, settings.num_bins)
    networks_figures.plot_features(store.folder, first, results[first.name], identity)
    by_name = {classifier.name: classifier for classifier in classifiers}
    found = networks_features.across(store, by_name, embeddings, settings.num_bins)
    networks_features.write_tables(store, [*networks_features.across_rows(results, found)])
    networks_figures.plot_across(store.folder, found)
    mapped = [x for x in classifiers if x.name in LOGITS] or classifiers[:1]
    networks_map.draw(store, mapped, settings.num_bins, settings.max_iter, settings.redraws)


if __name__ == "__main__":
    command_line.main(run, __file__, __doc__, data=True)
