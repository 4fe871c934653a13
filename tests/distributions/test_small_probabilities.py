"""Probabilities that float32 makes 0 or 1, of arrays and files, against their logarithms."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import command_line, distributions, scores

# Rows of two classes; 1 − 1e-17 is 1 in float64, and its complement is known of both columns only.
TWO = np.array(
    [
        [1 - 1e-12, 1e-12],
        [1e-12, 1 - 1e-12],
        [1.0, 1e-40],
        [1e-17, 1.0],
        [1e-300, 1.0],
        [0.7, 0.3],
        [0.0, 1.0],
        [1.0, 0.0],
    ]
)
LABELS = np.array([1, 0, 1, 0, 0, 1, 1, 0])  # none of which has probability 0 in both columns
ONE = TWO[:, 1]
ONE_LABELS = np.array([1, 0, 1, 1, 1, 1, 1, 0])
TEN = np.tile(np.array([1e-40, 1e-300, 1e-12, 1e-17, 0.0, 0.1, 0.2, 0.3, 0.05, 0.35]), (8, 1))
TEN_LABELS = np.array([0, 1, 2, 3, 9, 5, 6, 7])


def _file(tmp_path, names, values, labels):
    """What the program reads from a text with all digits."""
    rows = [[*map(repr, map(float, row)), str(y)] for row, y in zip(values, labels, strict=True)]
    path = tmp_path / "predictions.csv"
    path.write_text("\n".join(",".join(row) for row in [[*names, "label"], *rows]))
    data = command_line.load([str(path)])
    return data.predictions, data.targets


def _mixture(components):
    """Two equal components."""
    return distributions.Mixture(None, jax.tree.map(lambda x: np.stack([x, x], 1), components))


def _losses(table, labels):
    return -np.log(table[np.arange(len(labels)), labels])


ONES = ONE_LABELS, _losses(np.stack([1 - ONE, ONE], 1), ONE_LABELS)
TWOS, TENS = (LABELS, _losses(TWO, LABELS)), (TEN_LABELS, _losses(TEN, TEN_LABELS))
# Labels with exact losses, and what is made of them.
PATHS = {
    "file, one column": (ONES, lambda path: _file(path, ["prob"], ONE[:, None], ONE_LABELS)),
    "file, two columns": (TWOS, lambda path: _file(path, ["prob_0", "prob_1"], TWO, LABELS)),
    "Bernoulli": (ONES, lambda _: (distributions.Bernoulli(ONE), ONE_LABELS)),
    "Categorical": (TWOS, lambda _: (distributions.Categorical(TWO), LABELS)),
    "ten classes": (TENS, lambda _: (distributions.Categorical(TEN), TEN_LABELS)),
    "mixture of Bernoullis": (ONES, lambda _: (_mixture(distributions.Bernoulli(ONE)), ONE_LABELS)),
    "mixture": (TWOS, lambda _: (_mixture(distributions.Categorical(TWO)), LABELS)),
}


@pytest.mark.parametrize("name", PATHS)
def test_losses(name, tmp_path):
    with jax.enable_x64(False):
        (labels, expected), make = PATHS[name]
        predictions, targets = make(tmp_path)
        np.testing.assert_array_equal(targets, labels)
        found = scores.negative_log_likelihood(predictions, targets, reduction="none")
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, expected, 1e-5, 1e-7)


@pytest.mark.parametrize("family", [distributions.Bernoulli, distributions.Categorical])
def test_probabilities_that_were_replaced_alone(family):
    """Logarithms that do not belong to the probabilities are not used."""
    is_binary = family is distributions.Bernoulli
    with jax.enable_x64(False):
        batch = distributions.with_features(family(ONE if is_binary else TWO), ONE).distribution
        for probs in (jnp.clip(batch.probs, 0.01, 0.99), jnp.round(batch.probs)):
            replaced = dataclasses.replace(batch, probs=probs)
            expected = scores.negative_log_likelihood(family(probs), LABELS)
            found = scores.negative_log_likelihood(replaced, LABELS)
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_impossible_outcomes_are_infinite():
    with jax.enable_x64(False):
        for predictions, label in (
            (distributions.Bernoulli(ONE), 0),
            (distributions.Categorical(TWO), 0),
            (distributions.Categorical(TEN), 4),
        ):
            assert scores.negative_log_likelihood(predictions, np.full(8, label)) == np.inf
