"""Networks on Communities and Crime, and the features of their last hidden layers."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness import cells, data_files
from experiments.harness.cells import Store
from paper_repro.data.classifiers import Part, part_of_logits
from paper_repro.data.communities_crime import GROUPINGS, Communities, random_split
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


class Reading(NamedTuple):
    """How the data is read.

    Attributes:
        shared: whether 1494 communities are for training, and the same 500 for recalibration and
            evaluation; otherwise there are 994, 500 and 500.
        complete: whether only the 99 columns are taken of which no number is missing.
    """

    shared: bool = False
    complete: bool = False

    @property
    def suffix(self) -> str:
        """What is added to names of cells; nothing for the usual reading."""
        parts = {"_1494": self.shared, "_99": self.complete}
        return "".join(text for text, is_so in parts.items() if is_so)


USUAL = Reading()


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the experiment.

    Attributes:
        seeds: number of splits, and of networks.
        variants: those that are evaluated, at least the first two.
        readings: of the data, the usual one among them.
        groupings, bins: those that are combined with each training (`crime_combinations`).
        epochs: number of epochs of training.
        hidden: widths of the hidden layers.
        num_bins: number of equal intervals of confidences.
        components: of the features, by embedding.
        max_iter: iterations of t-SNE.
        redraws: of the labels, for what a calibrated model would have.
    """

    seeds: int
    variants: tuple[Variant, ...] = VARIANTS
    readings: tuple[Reading, ...] = (USUAL, Reading(complete=True), Reading(True, True))
    groupings: tuple[str, ...] = tuple(GROUPINGS)
    bins: tuple[str, ...] = ("confidence", "P(y = 1)")
    epochs: int = 200
    hidden: tuple[int, ...] = (100, 100, 100)
    num_bins: int = 5
    components: tuple[tuple[str, int], ...] = (("t-SNE", 2), ("PCA", 20))
    max_iter: int = 1000
    redraws: int = 200


def trained(
    store: Store, settings: Settings, communities: Communities, reading: Reading = USUAL
) -> dict[str, np.ndarray]:
    """What the networks say about the communities for recalibration and evaluation, or read.

    Returns:
        By name: "last hidden", "best hidden" [seeds, 1000, width], "last logits", "best logits"
        [seeds, 1000, 2], "best epoch" [seeds], and the curves of training [epochs, seeds].
    """
    num = len(communities.labels)
    sizes = {"shared": reading.shared, "held_out": communities.held_out}
    splits = [random_split(seed, num, **sizes) for seed in range(settings.seeds)]
    columns = communities.features
    if reading.complete:
        columns = columns[:, communities.is_complete]

    def samples(part: str) -> networks.Samples:
        indices = np.stack([getattr(split, part) for split in splits])
        x, y = (jnp.asarray(z[indices]) for z in (columns, communities.labels))
        return networks.Samples(x, y.astype(jnp.int32))

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
    return cells.arrays(store, f"networks{reading.suffix}", parameters, compute)


def parts_of(
    communities: Communities,
    networks: dict[str, np.ndarray],
    training: str,
    grouping: str,
    seed: int,
    reading: Reading = USUAL,
) -> tuple[Part, Part]:
    """Calibration and evaluation part of one network, "last" or "best"."""
    sizes = {"shared": reading.shared, "held_out": communities.held_out}
    split = random_split(seed, len(communities.labels), **sizes)
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
    reading: Reading = USUAL,
) -> dict[str, Embedding]:
    """Features of both parts in few dimensions."""
    features = Embedding(*(part.features for part in parts))
    components = dict(settings.components)
    name = f"tsne{reading.suffix}/{training}_{seed:02d}"
    # Every community once: t-SNE would put its two copies side by side, away from all others.
    once = Embedding(features.calibration, features.evaluation[: 0 if reading.shared else None])
    found = tsne(store, name, once, components["t-SNE"], settings.max_iter)
    if reading.shared:
        found = Embedding(found.calibration, found.calibration)
    return {"t-SNE": found, "PCA": principal_components(features, components["PCA"])}
