"""Ten classes, right or wrong in one of five ways."""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax import hypothesis_tests as tests
from calibjax.distances import TotalVariation
from calibjax.distributions import Categorical
from calibjax.estimators import OneVersusRest, top_label
from calibjax.hypothesis_tests.components import pooled
from calibjax.hypothesis_tests.pools import simulated_pvalue
from calibjax.kernels import Exponential, TensorProduct, White, median_heuristic
from experiments.power.simulation import CALIBRATED, DRAWS, Study

NUM_CLASSES = 10
CONCENTRATION = 0.5  # of the Dirichlet distribution of the predictions
INFLATED = 0.7  # factor of the true probability of the first class
NOISE = 0.15  # share of labels that are drawn uniformly
PERMUTED = 0.6  # share of labels of the second and third class that are exchanged
LENS_DRAWS = 399  # of the lenses: the smallest of ten p-values times ten has to be small
AGGREGATED, CANONICAL = "aggregated_skce_test", "exact_skce_test, all classes"
TOP, CLASS_WISE = "exact_skce_test, top label", "exact_skce_test, class-wise (Holm)"


def truths(probs: jax.Array) -> dict[str, jax.Array]:
    """Probabilities that the labels are drawn with, by alternative, [n, 10] each."""
    log = jnp.log(jnp.maximum(probs, jnp.finfo(probs.dtype).tiny))
    lower = probs.at[:, 0].multiply(INFLATED)
    swapped = probs[:, jnp.arange(NUM_CLASSES).at[1:3].set(jnp.array([2, 1]))]
    return {
        CALIBRATED: probs,
        "overconfident": jax.nn.softmax(log / 1.25),
        "underconfident": jax.nn.softmax(log / 0.8),
        "one class inflated": lower / jnp.sum(lower, 1, keepdims=True),
        "label noise": (1 - NOISE) * probs + NOISE / NUM_CLASSES,
        "two classes permuted": (1 - PERMUTED) * probs + PERMUTED * swapped,
    }


def draw(key: jax.Array, place: Any, n: int) -> tuple[Categorical, jax.Array]:
    """One data set."""
    keys = jax.random.split(key)
    probs = jax.random.dirichlet(keys[0], jnp.full(NUM_CLASSES, CONCENTRATION), (n,))
    truth = jnp.stack([*truths(probs).values()])[place]
    return Categorical(probs), jax.random.categorical(keys[1], jnp.log(truth))


def pvalues(
    data_key: jax.Array, test_key: jax.Array, place: Any, n: int, _: Any
) -> dict[str, jax.Array]:
    """All tests on one data set; those of the lenses share their redraws."""
    keys = jax.random.split(test_key)
    predictions, targets = draw(data_key, place, n)
    lenses = [None, top_label, *map(OneVersusRest, range(NUM_CLASSES))]
    family = []
    for lens in lenses:
        seen = predictions if lens is None else lens(predictions, targets)[0]
        scale = median_heuristic(TotalVariation(), seen)
        kernel = TensorProduct(Exponential(scale, TotalVariation()), White())
        family.append(kernel if lens is None else (lens, kernel))
    many = tests.aggregated_skce_test(
        keys[0], predictions, targets, kernels=family, num_samples=LENS_DRAWS
    )
    each, _ = pooled(many.components)
    found = simulated_pvalue(each[0], each[1:])
    return {
        AGGREGATED: tests.aggregated_skce_test(
            keys[1], predictions, targets, num_samples=DRAWS
        ).pvalue,
        CANONICAL: found[0],
        TOP: found[1],
        CLASS_WISE: jnp.minimum(NUM_CLASSES * jnp.min(found[2:]), 1),
    }


CLASSES = Study(
    "classes",
    (*truths(jnp.full((1, NUM_CLASSES), 0.1)),),
    {250: 0.15},
    pvalues,
    in_one_program=False,
)
