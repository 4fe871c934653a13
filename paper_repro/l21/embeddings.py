"""Features of L21 in few dimensions: PCA, t-SNE, and one scale for both (scikit-learn).

A length scale of 0.2 or 0.4 means nothing before the features have a scale, of which the paper
says nothing. Each embedding is divided by one number, such that the variances of its components
over the calibration part are one on average. This was fixed before any result was seen.

t-SNE embeds at most `MAPPED` samples of both parts, drawn at random; each other sample has the
mean place of the nearest of these, by the features, weighted by the inverse distances. All samples
of a network take three to four times as long (about 7 minutes in place of 2 for 15 000).
"""

import hashlib
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np

from experiments.harness import cells, extras
from experiments.harness.cells import Store
from experiments.harness.data_files import DataError, digest

PERPLEXITY = 30  # of t-SNE, scikit-learn's default; smaller than the number of samples
MAPPED = 5000  # samples that t-SNE embeds
NEIGHBOURS = 5  # of them that give another sample its place
LENGTH_SCALES = {"t-SNE": 0.2, "PCA": 0.4}  # L21 §3.2


class Embedding(NamedTuple):
    """Features [n, d] of the calibration part and of the evaluation part."""

    calibration: np.ndarray
    evaluation: np.ndarray


def scaled(embedding: Embedding) -> Embedding:
    """The embedding divided by the root of the mean variance of its components."""
    embedding = Embedding(*(np.asarray(part, np.float64) for part in embedding))
    scale = np.sqrt(np.mean(np.var(embedding.calibration, 0)))
    if not (np.isfinite(scale) and scale > 0):
        raise DataError(f"features: expected values that vary over the data, got sd {scale}")
    return Embedding(*(part / scale for part in embedding))


def _one_thread() -> AbstractContextManager:
    """One thread, since several wait for each other on busy cores."""
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    return threadpool_limits(1)


def principal_components(features: Embedding, num_components: int) -> Embedding:
    """Leading principal components of the calibration part, with one scale.

    Fewer components are taken where the features have fewer.
    """
    num_components = min(num_components, *features.calibration.shape)
    decomposition = extras.imported("sklearn.decomposition")
    pca = decomposition.PCA(num_components, svd_solver="full")
    calibration, evaluation = (np.asarray(part, np.float64) for part in features)
    with _one_thread():
        calibration = pca.fit_transform(calibration)
        return scaled(Embedding(calibration, pca.transform(evaluation)))


def tsne(
    store: Store, name: str, features: Embedding, num_components: int, max_iter: int
) -> Embedding:
    """t-SNE of both parts together, since it maps no new points by itself; with one scale.

    No label enters. scikit-learn's defaults, started from the principal components, by one
    thread; of more than `MAPPED` samples see the module. Computed, or read from the cell of this
    name.

    Args:
        store: store of the experiment.
        name: name of the cell.
        features: the features.
        num_components: dimension of the embedding.
        max_iter: iterations of the optimiser.
    """
    both = np.concatenate(features).astype(np.float32)
    parameters = {
        "features": digest(both),
        "num_components": num_components,
        "max_iter": max_iter,
        "mapped": min(MAPPED, len(both)),
    }

    def compute() -> dict[str, np.ndarray]:
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
        embed = extras.imported("sklearn.manifold").TSNE(
            num_components, perplexity=PERPLEXITY, max_iter=max_iter, random_state=seed, n_jobs=1
        )
        mapped = np.arange(len(both))
        if len(both) > MAPPED:
            mapped = np.random.default_rng(seed).choice(len(both), MAPPED, replace=False)
        with _one_thread():  # n_jobs leaves the threads of OpenMP alone
            places = embed.fit_transform(both[mapped])
            return {"embedding": placed(both, mapped, places)}

    found = cells.arrays(store, name, parameters, compute)["embedding"]
    return scaled(Embedding(*np.split(found, [len(features.calibration)])))


def placed(features: np.ndarray, mapped: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Places of all samples, from those of some.

    Args:
        features: of all samples, [n, d].
        mapped: indices of those whose places are known, [m].
        places: their places, [m, k].

    Returns:
        [n, k]: for each other sample the mean of the places of its `NEIGHBOURS` nearest ones,
        weighted by the inverse distances of the features.
    """
    found = np.empty((len(features), places.shape[1]), places.dtype)
    found[mapped] = places
    others = np.setdiff1d(np.arange(len(features)), mapped)
    if others.size:
        nearest = extras.imported("sklearn.neighbors").KNeighborsRegressor(
            NEIGHBOURS, weights="distance"
        )
        found[others] = nearest.fit(features[mapped], places).predict(features[others])
    return found
