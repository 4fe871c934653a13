"""The studies of training: their parts by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.training import networks
from experiments.training.problems import PROBLEMS, SIZES, parts


@pytest.mark.parametrize("problem", PROBLEMS)
def test_parts_have_no_sample_in_common(problem):
    data = PROBLEMS[problem].draw(3)
    split = parts(data)
    assert tuple(len(part.labels) for part in split) == SIZES
    assert sum(SIZES) == len(data.labels)
    np.testing.assert_array_equal(np.concatenate([part.x for part in split]), data.x)
    assert set(np.unique(data.labels)) == set(range(PROBLEMS[problem].num_classes))
    other = PROBLEMS[problem].draw(4)
    assert not np.array_equal(other.x, data.x)


def test_the_truth_is_where_labels_come_from():
    data = PROBLEMS["simulated"].draw(0)
    probs = data.truth.class_probs
    frequencies = np.bincount(data.labels, minlength=5) / len(data.labels)
    errors = np.sqrt(np.mean(probs * (1 - probs), 0) / len(data.labels))
    assert (np.abs(frequencies - probs.mean(0)) < 4 * errors).all()


def test_the_loss_is_the_sum_of_its_parts():
    random = np.random.default_rng(0)
    x, labels = random.normal(size=(6, 3)), np.array([0, 1, 1, 0, 2, 2])
    params = networks.init(jax.random.key(0), 3, 3)
    probs = np.asarray(networks.predict(params, jnp.asarray(x)).class_probs)
    errors = np.eye(3)[labels] - probs
    variation = 0.5 * np.abs(probs[:, None] - probs).sum(-1)
    skce = np.mean(np.exp(-2 * variation) * (errors @ errors.T))
    expected = -np.mean(np.log(probs[np.arange(6), labels])) + 3 * skce
    found = networks.loss(params, 3.0, jnp.asarray(x), jnp.asarray(labels))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
