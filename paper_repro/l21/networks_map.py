"""L21 Fig. 2: a map of local calibration errors, in the bins of smallest and largest error.

The paper shows how uneven the errors are. How uneven they are by chance it does not show: here
points whose error is significant by the exact test of every point, adjusted for their number,
are marked, and the expected mean LCE of a calibrated model stands beside the one that is found.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import estimators, hypothesis_tests
from calibjax.binnings import interval_index
from experiments.harness import cells, data_files
from experiments.harness.cells import Store
from experiments.harness.tables import note_of, write_table
from paper_repro.data.classifiers import Classifier
from paper_repro.l21.embeddings import LENGTH_SCALES, Embedding, tsne
from paper_repro.l21.networks_figures import Map, plot_maps

LEVEL = 0.05


def local_errors(
    key: jax.Array, features: jax.Array, classifier: Classifier, num_bins: int, redraws: int
) -> dict[str, np.ndarray]:
    """Errors, their size by chance, p-values and bins of the evaluation part, [n] each."""
    part = classifier.evaluation
    confidences, correct = jnp.asarray(part.confidences), jnp.asarray(part.correct)
    data = (features, confidences, correct)
    near = estimators.Neighbourhood.laplacian(LENGTH_SCALES["t-SNE"], num_bins)
    test = hypothesis_tests.local_calibration_test(key, near, *data, num_draws=redraws)
    found = estimators.local_errors(near, *data)
    arrays = {
        "error": found.error,
        "null_standard_error": found.null_standard_error,
        "effective_size": found.effective_size,
        "pvalue": test.pvalue,
        "adjusted_pvalue": test.adjusted_pvalue,
        "bin": interval_index(confidences, num_bins),
    }
    return {name: np.asarray(x) for name, x in arrays.items()}


class BinRow(NamedTuple):
    """Local errors in one bin of the confidences."""

    classifier: str
    number: int
    samples: int
    error: float
    mean_lce: float
    by_chance: float
    size: float
    smallest_p: float
    significant: float


def bin_rows(classifier: Classifier, found: dict[str, np.ndarray]) -> list[BinRow]:
    """Rows of the table of bins."""
    part, rows = classifier.evaluation, []
    for index in np.unique(found["bin"]):
        chosen = found["bin"] == index
        gap = part.confidences[chosen].mean() - part.correct[chosen].mean()
        # The mean of |Z| for normal Z.
        by_chance = np.sqrt(2 / np.pi) * found["null_standard_error"][chosen].mean()
        pvalues = found["adjusted_pvalue"][chosen]
        numbers = [
            gap,
            np.abs(found["error"][chosen]).mean(),
            by_chance,
            np.median(found["effective_size"][chosen]),
            pvalues.min(),
            np.mean(pvalues <= LEVEL),
        ]
        rows.append(
            BinRow(classifier.name, int(index) + 1, int(chosen.sum()), *map(float, numbers))
        )
    return rows


def local_map(
    store: Store, classifier: Classifier, num_bins: int, max_iter: int, redraws: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Features in two dimensions, and what `local_errors` returns, computed or read."""
    features = Embedding(classifier.calibration.features, classifier.evaluation.features)
    name = f"{classifier.name}/tsne_map"
    embedding = tsne(store, name, features, 2, max_iter).evaluation
    parameters = {
        "num_bins": num_bins,
        "redraws": redraws,
        "data": data_files.digest(
            embedding, classifier.evaluation.confidences, classifier.evaluation.correct
        ),
    }
    key = cells.key_of(name)
    compute = functools.partial(
        local_errors, key, jnp.asarray(embedding), classifier, num_bins, redraws
    )
    return embedding, cells.arrays(store, f"{classifier.name}/map", parameters, compute)


def draw(
    store: Store, classifiers: list[Classifier], num_bins: int, max_iter: int, redraws: int
) -> None:
    """Writes the table of the bins, and the figures of those of smallest and largest error."""
    every, shown = [], []
    for classifier in classifiers:
        embedding, found = local_map(store, classifier, num_bins, max_iter, redraws)
        rows = bin_rows(classifier, found)
        every += rows
        shown.append(Map(classifier.name, embedding, found, *_by_bin(rows)))
    note = note_of(__file__, "note", redraws=redraws, level=LEVEL)
    write_table(store.folder, "figure_2", every, note)
    plot_maps(store.folder, shown, LEVEL)


def _by_bin(rows: list[BinRow]) -> tuple[dict[int, int], dict[int, float]]:
    """Sizes and errors of the bins, by number."""
    return {row.number: row.samples for row in rows}, {row.number: row.error for row in rows}
