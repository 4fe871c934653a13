"""Features in few dimensions: samples that t-SNE does not embed itself."""

import numpy as np

from experiments.harness import cells
from paper_repro.l21 import embeddings as l21_embeddings
from paper_repro.l21.embeddings import Embedding


def test_few_samples_give_the_others_their_places(monkeypatch, tmp_path):
    """The mean place of the nearest ones, weighted by inverse distances; also of a whole map."""
    rng = np.random.default_rng(0)
    features, places, mapped = rng.normal(size=(30, 4)), rng.normal(size=(12, 2)), np.arange(12) * 2
    found = l21_embeddings.placed(features, mapped, places)
    np.testing.assert_array_equal(found[mapped], places)
    for i in set(range(30)) - set(mapped):
        distances = np.sqrt(np.square(features[mapped] - features[i]).sum(1))
        near = np.argsort(distances)[: l21_embeddings.NEIGHBOURS]
        expected = np.average(places[near], axis=0, weights=1 / distances[near])
        np.testing.assert_allclose(found[i], expected, rtol=1e-12)
    assert np.array_equal(l21_embeddings.placed(features, np.arange(30), features), features)
    monkeypatch.setattr(l21_embeddings, "MAPPED", 40)
    both = Embedding(*np.split(rng.normal(size=(90, 4)), [30]))
    store = cells.Store(tmp_path, "")
    ours = np.concatenate(l21_embeddings.tsne(store, "x", both, 2, 250))
    (path,) = tmp_path.rglob("x.npz")
    assert ours.shape == (90, 2)
    assert '"mapped": 40' in str(np.load(path)["parameters"])
    assert np.all(np.isfinite(ours))
