"""Data sets of the study, each in three parts: for training, for calibration and for evaluation."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax.distributions import CategoricalLogits
from experiments.harness import extras
from experiments.harness.cells import key_of

SIZES = 500, 250, 1000  # samples of the parts


class Part(NamedTuple):
    """Inputs [n, d], labels [n], and the true logits [n, m] where they are known."""

    x: np.ndarray
    labels: np.ndarray
    logits: np.ndarray | None = None

    @property
    def truth(self) -> CategoricalLogits | None:
        """The distribution of which the labels were drawn."""
        return None if self.logits is None else CategoricalLogits(self.logits)


class Problem(NamedTuple):
    """A kind of data.

    Attributes:
        num_classes: number of classes.
        draw: returns the data of a seed, all parts together.
    """

    num_classes: int
    draw: Callable[[int], Part]


def simulated(seed: int) -> Part:
    """Ten normal features, five classes; a random network of its own gives the probabilities."""
    keys = jax.random.split(key_of(f"training/simulated/{seed}"), 4)
    x = jax.random.normal(keys[0], (sum(SIZES), 10))
    hidden = jnp.tanh(2 * x @ (jax.random.normal(keys[1], (10, 20)) / jnp.sqrt(10)))
    logits = 0.5 * hidden @ jax.random.normal(keys[2], (20, 5))
    labels = jax.random.categorical(keys[3], logits)
    return Part(*map(np.asarray, (x, labels, logits)))


def digits(seed: int) -> Part:
    """scikit-learn's images of digits, 8 × 8 pixels, in a random order."""
    data = extras.imported("sklearn.datasets").load_digits()
    order = np.random.default_rng([*b"training/digits", seed]).permutation(len(data.target))
    order = order[: sum(SIZES)]
    return Part(data.data[order].astype(np.float32) / 16, data.target[order])


PROBLEMS = {"simulated": Problem(5, simulated), "digits": Problem(10, digits)}


def parts(data: Part) -> list[Part]:
    """Training, calibration and evaluation."""
    ends = np.cumsum(SIZES)[:-1]
    columns = [[None] * 3 if c is None else np.split(c, ends) for c in data]
    return [Part(*column) for column in zip(*columns, strict=True)]
