"""Shares of simulated data sets that tests reject, cell by cell."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness.cells import Case, Store, keys_of, simulated

ALPHA = 0.05
DRAWS = 199  # (B + 1) α is an integer
CALIBRATED = "calibrated"
_CALIBRATED_SHARE = 4  # data sets at most 64 samples large cost little
_BATCH_NUMBERS = 2**20  # numbers that the draws of the data sets evaluated at once may hold

# (key of the data, key of the tests, alternative, n, setting) → p-values by test.
Tests = Callable[[jax.Array, jax.Array, Any, int, Any], dict[str, jax.Array]]


class Study(NamedTuple):
    """Data sets of one kind, and the tests of them.

    Attributes:
        name: name of its folder, and of its table.
        alternatives: ways in which the data are made.
        sizes: numbers of samples n, each with a share of the data sets.
        tests: p-values on one data set. It gets the place of the alternative, which is traced, so
            that all of them are one program.
        settings: what else distinguishes data sets.
    """

    name: str
    alternatives: tuple[str, ...]
    sizes: dict[int, float]
    tests: Tests
    settings: tuple[Any, ...] = ("",)

    def number_of(self, alternative: str, n: int, num_datasets: int) -> int:
        """Number of data sets: more where the level is measured and n is small."""
        more = _CALIBRATED_SHARE if alternative == CALIBRATED and n <= 64 else 1
        return math.ceil(num_datasets * self.sizes[n] * more)


class Rate(NamedTuple):
    """How often one test rejects.

    Attributes:
        alternative: how the data are made.
        num_samples: n.
        setting: of the study.
        test: name of the test.
        rate: share of the data sets that are rejected.
        number: number of data sets.
        undefined: number of them without a p-value, which count as not rejected.
    """

    alternative: str
    num_samples: int
    setting: Any
    test: str
    rate: float
    number: int
    undefined: int


@functools.partial(jax.jit, static_argnames=("tests", "arguments", "batch_size"))
def _in_one_program(
    keys: tuple[jax.Array, jax.Array],
    place: jax.Array,
    *,
    tests: Callable[..., dict[str, jax.Array]],
    arguments: tuple[Any, ...],
    batch_size: int,
) -> dict[str, jax.Array]:
    def one(keys: tuple[jax.Array, jax.Array]) -> dict[str, jax.Array]:
        return tests(*keys, place, *arguments)

    return jax.lax.map(one, keys, batch_size=batch_size)


def pvalues(
    tests: Callable[..., dict[str, jax.Array]],
    keys: tuple[jax.Array, jax.Array],
    place: int,
    arguments: tuple[Any, ...],
    numbers: int,
) -> dict[str, jax.Array]:
    """p-values of many data sets by one compiled loop.

    Args:
        tests: (key of the data, key of the tests, place, *arguments) → p-values by test.
        keys: of the data sets and their tests, [data sets] each.
        place: an argument that is traced.
        arguments: the others.
        numbers: how many numbers the draws for one data set hold.
    """
    batch_size = min(max(1, _BATCH_NUMBERS // numbers), len(keys[0]))
    options = {"tests": tests, "arguments": arguments, "batch_size": batch_size}
    return _in_one_program(keys, jnp.asarray(place), **options)


def pvalues_of_each(
    tests: Callable[..., dict[str, jax.Array]], keys: tuple[jax.Array, jax.Array], *arguments: Any
) -> dict[str, jax.Array]:
    """p-values of many data sets one after the other, concrete, so that kernels have features.

    Args:
        tests: (key of the data, key of the tests, *arguments) → p-values by test.
        keys: of the data sets and their tests, [data sets] each.
        arguments: the others.
    """
    each = [tests(*pair, *arguments) for pair in zip(*keys, strict=True)]
    return jax.tree.map(lambda *values: jnp.stack(values), *each)


def tally(found: dict[str, np.ndarray]) -> dict[str, Any]:
    """How often each test rejects, and has no p-value."""
    values = {test: np.asarray(p) for test, p in found.items()}
    return {
        test: {"rejected": int(np.sum(p <= ALPHA)), "undefined": int(np.isnan(p).sum())}
        for test, p in values.items()
    }


def counts(study: Study, case: tuple[str, int, Any], span: tuple[int, int]) -> dict[str, Any]:
    """What each test says about some data sets of an alternative, n and setting."""
    alternative, n, setting = case
    label = f"power/{study.name}/{alternative}/{n}/{setting}"
    keys = keys_of(label, "data", span), keys_of(label, "tests", span)
    place = study.alternatives.index(alternative)
    return tally(pvalues(study.tests, keys, place, (n, setting), DRAWS * n**2))


def rates(store: Store, study: Study, num_datasets: int) -> list[Rate]:
    """Rejection rates of all tests in all cells of a study, computed or read."""
    cases = {
        (alternative, n, setting): Case(
            f"{alternative.replace(' ', '_')}/{n}/{setting}",
            study.number_of(alternative, n, num_datasets),
            n,
            {"draws": DRAWS},
        )
        for n in study.sizes
        for setting in study.settings
        for alternative in study.alternatives
    }
    found = simulated(store, study.name, cases, functools.partial(counts, study))
    return [
        _rate(case, test, chunks, cases[case].number)
        for case, chunks in found.items()
        for test in chunks[0]
    ]


def _rate(case: tuple[str, int, Any], test: str, chunks: list[Any], number: int) -> Rate:
    rejected = sum(chunk[test]["rejected"] for chunk in chunks)
    undefined = sum(chunk[test]["undefined"] for chunk in chunks)
    return Rate(*case, test, rejected / number, number, undefined)
