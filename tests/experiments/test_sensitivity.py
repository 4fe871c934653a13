import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import sensitivity
from experiments.harness.cells import Store
from experiments.synthetic_models import WRONG_CLASSES, WRONG_NORMALS, Model


def test_table(tmp_path, monkeypatch):
    calls = []

    def counts(label, group, model, n, draws, span):
        calls.append((group, model.name, n, span))
        return {f"exact {group}": {"rejected": span[1] - span[0], "undefined": 0}}

    monkeypatch.setattr(sensitivity, "counts", counts)
    found = sensitivity.rejections(Store(tmp_path, "code"), 600)
    assert set(found.values()) == {1.0}
    table = sensitivity.rows(found)
    assert len(table[0]) == 1 + 1 + len(WRONG_NORMALS) + 1 + len(WRONG_CLASSES)
    ece = next(row for row in table if row["test"] == "exact ece")
    assert ece["normal, too wide"] is None
    assert ece["classes, underconfident"] == "100.0"
    assert len(calls) == 2 * len(sensitivity.all_cells())
    sensitivity.rejections(Store(tmp_path, "code"), 600)
    assert len(calls) == 2 * len(sensitivity.all_cells())  # all cells were stored


@pytest.mark.parametrize("name", WRONG_NORMALS)
def test_wrong_normals(name):
    predictions, targets = Model(name, 1).draw(jax.random.key(0), 4000)
    z = np.asarray((targets - predictions.loc) / predictions.scale)
    shift, factor = WRONG_NORMALS[name]
    assert abs(z.mean() - shift) < 4 * factor / np.sqrt(4000)
    assert abs(z.std() - factor) < 4 * factor / np.sqrt(8000)


@pytest.mark.parametrize("name", WRONG_CLASSES)
def test_wrong_classes(name):
    """The frequency of the most probable class against its mean true probability."""
    predictions, targets = Model(name, 10).draw(jax.random.key(0), 4000)
    p = np.asarray(predictions.probs, float) ** (1 / WRONG_CLASSES[name])
    truth = p / p.sum(-1, keepdims=True)
    top = jnp.argmax(predictions.probs, -1)
    expected = np.take_along_axis(truth, np.asarray(top)[:, None], 1).mean()
    found = float(jnp.mean(targets == top))
    assert abs(found - expected) < 4 * np.sqrt(0.25 / 4000)
    confidence = float(jnp.mean(jnp.max(predictions.probs, -1)))
    assert (confidence > found) == (name == "overconfident")
