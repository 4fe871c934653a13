import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.synthetic_models import WRONG_CLASSES, WRONG_NORMALS, Model


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
