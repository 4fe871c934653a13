import numpy as np
import pytest

from experiments.harness import cells
from paper_repro import julia_random
from paper_repro.julia_random import MersenneTwister, seeded
from paper_repro.w19 import authors_data
from paper_repro.w19.authors_data import SEED, Model


def label_of(generator, model, prediction):
    if model.share >= 1 or generator.rand() < model.share:
        return 0 if model.beta == "first" else generator.rand_range(model.num_classes) - 1
    reached = np.cumsum(prediction) >= generator.rand() * sum(prediction)
    return int(np.argmax(reached))


@pytest.mark.parametrize(
    "model",
    [
        Model(3, 1.0, 0.0, "uniform"),
        Model(3, 1.0, 0.5, "uniform"),
        Model(10, 0.1, 0.5, "first"),
        Model(2, 0.1, 1.0, "uniform"),
    ],
)
def test_data_sets_are_those_of_a_plain_loop(model):
    """Number by number: all predictions of a data set, then all labels."""
    probs, labels = authors_data.draw(seeded(SEED), model, 2)
    generator, a = MersenneTwister(SEED), model.concentration
    sampler = julia_random.gamma_sampler(a + 1)
    for i in range(2):
        gammas = np.empty((250, model.num_classes))
        for place in np.ndindex(gammas.shape):
            gammas[place] = (
                generator.randexp()
                if a == 1
                else julia_random.rand_gamma(generator.state, sampler)
                * np.exp(-generator.randexp() / a)
            )
        expected = gammas / gammas.sum(1, keepdims=True)
        np.testing.assert_allclose(probs[i], expected, rtol=1e-13)
        assert labels[i].tolist() == [label_of(generator, model, p) for p in expected]
    assert set(labels.ravel()) <= set(range(model.num_classes))


def test_streams_are_resumed(tmp_path):
    """Chunks of any size give the same data sets, also after an interruption."""
    model = Model(2, 1.0, 0.25, "uniform")

    def compute(state, data_sets):
        probs, labels = authors_data.draw(state, model, data_sets)
        return {"probs": probs, "labels": labels}

    def finished(folder, number, size):
        store = cells.Store(tmp_path / folder, "")
        return authors_data.finished(store, model.name, number, size, compute)

    probs, labels = authors_data.draw(seeded(SEED), model, 5)
    finished("chunks", 4, 2)
    for results in (finished("one", 5, 5), finished("chunks", 5, 2)):
        np.testing.assert_array_equal(results["probs"], probs)
        np.testing.assert_array_equal(results["labels"], labels)
