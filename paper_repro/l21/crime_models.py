"""Networks on Communities and Crime, and the features of their last hidden layers."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness import cells, data_files
from experiments.harness.cells import Store
from paper_repro.data.classifiers import Part, part_of_logits
from paper_repro.data.communities_crime import Communities, random_split
from paper_repro.l21 import crime_networks as networks
from paper_repro.l21.embeddings import Embedding, principal_components, tsne

NAME = "l21_crime"


class Variant(NamedTuple):
    """How networks are trained, "last" or "best" epoch, and what makes a group."""

    name: str
    training: str
    grouping: str


VARIANTS = (
    Variant("200 epochs", "last", "shares"),
    Variant("stopped", "best", "shares"),
    Variant("200 epochs, income groups", "last", "incomes"),
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the experiment.

    Attributes:
        seeds: number of splits, and of networks.
        variants: those that are evaluated, at least the first two.
        epochs: number of epochs of training.
        hidden: widths of the hidden layers.
        num_bins: number of equal intervals of confidences.
        components: of the features, by embedding.
        max_iter: iterations of t-SNE.
        redraws: of the labels, for what a calibrated model would have.
    """

    seeds: int
    variants: tuple[Variant, ...] = VARIANTS
    epochs: int = 200
    hidden: tuple[int, ...] = (100, 100, 100)
    num_bins: int = 5
    components: tuple[tuple[str, int], ...] = (("t-SNE", 2), ("PCA", 20))
    max_iter: int = 1000
    redraws: int = 200


def trained(store: Store, settings: Settings, communities: Communities) -> dict[str, np.ndarray]:
    """What the networks say about the communities for recalibration and evaluation, or read.

    Returns:
        By name: "last hidden", "best hidden" [seeds, 1000, width], "last logits", "best logits"
        [seeds, 1000, 2], "best epoch" [seeds], and the curves of training [epochs, seeds].
    """
    num = len(communities.labels)
    splits = [random_split(seed, num, communities.held_out) for seed in range(settings.seeds)]
    columns = communities.features

    def samples(part: str) -> networks.Ensemble:
        indices = np.stack([getattr(split, part) for split in splits])
        x, y = (jnp.asarray(z[indices]) for z in (columns, communities.labels))
        return networks.Ensemble(x, y.astype(jnp.int32))

    def compute() -> dict[str, np.ndarray]:
        keys = [cells.key_of(f"{NAME}/{seed}") for seed in range(settings.seeds)]
        found = networks.train(
            jnp.stack(keys),
            samples("training"),
            samples("calibration"),
            hidden=settings.hidden,
            epochs=settings.epochs,
        )
        result = {"best epoch": found.best_epoch, **found.curves}
        features = samples("held_out").features
        for name, layers in {"last": found.last, "best": found.best}.items():
            hidden = jax.vmap(networks.last_hidden)(layers, features)
            result[f"{name} hidden"] = hidden
            result[f"{name} logits"] = jax.vmap(networks.logits)(layers, hidden)
        return {name: np.asarray(array) for name, array in result.items()}

    parameters = {
        "seeds": settings.seeds,
        "epochs": settings.epochs,
        "hidden": settings.hidden,
        "data": data_files.digest(columns, communities.labels),
    }
    return cells.arrays(store, "networks", parameters, compute)


def parts_of(
    communities: Communities,
    networks: dict[str, np.ndarray],
    training: str,
    grouping: str,
    seed: int,
) -> tuple[Part, Part]:
    """Calibration and evaluation part of one network, "last" or "best"."""
    split = random_split(seed, len(communities.labels), communities.held_out)
    parts, first = [], 0
    for indices in (split.calibration, split.evaluation):
        chosen = slice(first, first + len(indices))
        part = part_of_logits(
            networks[f"{training} hidden"][seed, chosen],
            networks[f"{training} logits"][seed, chosen],
            communities.labels[indices],
            communities.groups[grouping][indices],
        )
        parts.append(part)
        first += len(indices)
    return tuple(parts)


def embed(
    store: Store,
    settings: Settings,
    training: str,
    seed: int,
    parts: tuple[Part, Part],
) -> dict[str, Embedding]:
    """Features of both parts in few dimensions."""
    features = Embedding(*(part.features for part in parts))
    components = dict(settings.components)
    name = f"tsne/{training}_{seed:02d}"
    found = tsne(store, name, features, components["t-SNE"], settings.max_iter)
    return {"t-SNE": found, "PCA": principal_components(features, components["PCA"])}
