"""Rejection rates of all tests, and of the likelihood ratio test, cell by cell."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness.cells import Store, cell, key_of
from experiments.power.bound.models import CALIBRATED, MODELS
from experiments.power.bound.shared_redraws import pvalues

ALPHA = 0.05
BOUND = "likelihood ratio"
_LR_DRAWS = 999
_TIED = 1e-3  # log ratios that differ by less are the same sum in another order
_FACTORED = (
    1000  # from this n on, data sets are concrete, so that kernels have features of low rank
)


class Size(NamedTuple):
    """How many data sets of n samples there are.

    Attributes:
        sets: number of sets of predictions.
        each: data sets, of every alternative, that share the predictions and the redraws.
        per_cell: sets of predictions in one cell.
    """

    sets: int
    each: int
    per_cell: int


NUM_SAMPLES = (4, 16, 64, 200, 250, 1000)
_WITH_BARS = ("normals", 64), ("heteroscedastic", 64), ("binary", 200), ("classes_10", 250)


def size_of(name: str, n: int) -> Size | None:
    """How many data sets there are; None if there are none of this size."""
    if (n == 200) != (name == "binary") and n in (200, 250):
        return None
    if n <= 16:
        return Size(500, 1, 500)
    if (name, n) in _WITH_BARS:
        return Size(500, 1, 250 if n == 64 else 100)
    return Size(100, 5, 50) if n < _FACTORED else Size(20, 25, 5)


class Rate(NamedTuple):
    """How often a test rejects, with the standard error between sets of predictions."""

    rate: float
    error: float


def rejected(key: jax.Array, name: str, n: int, each: int) -> dict[str, jax.Array]:
    """Shares of the data sets of one set of predictions that are rejected, [A] by test."""
    model, keys = MODELS[name], jax.random.split(key, 5)
    predictions = model.predictions(keys[0], n)
    laws = {name: law(predictions) for name, law in model.laws.items()}
    # The same noise for all alternatives.
    targets = {name: _drawn(keys[1], law, each) for name, law in laws.items()}
    found = pvalues(keys[2], predictions, jnp.concatenate([*targets.values()]))
    null = _drawn(keys[3], laws[CALIBRATED], _LR_DRAWS)

    def bound(law: Any, targets: jax.Array) -> jax.Array:
        ratios = (_log_prob(law, y) - _log_prob(laws[CALIBRATED], y) for y in (targets, null))
        return _randomised(keys[4], *ratios)

    bounds = [_share(bound(law, targets[name])) for name, law in laws.items()]
    powers = {test: _share(p.reshape(-1, each)) for test, p in found.items()}
    return powers | {BOUND: jnp.stack(bounds)}


def _drawn(key: jax.Array, law: Any, number: int) -> jax.Array:
    """Several sets of targets, [number, n]; numbers of the same type for all laws of a model."""

    def one(key: jax.Array) -> jax.Array:
        size = jax.tree.leaves(law)[0].shape[0]
        return jax.vmap(lambda k, p: p.sample(k))(jax.random.split(key, size), law)

    return jax.vmap(one)(jax.random.split(key, number))


def _log_prob(law: Any, targets: jax.Array) -> jax.Array:
    return jax.vmap(lambda y: jnp.sum(jax.vmap(lambda p, y: p.log_prob(y))(law, y)))(targets)


def _share(p: jax.Array) -> jax.Array:
    return jnp.mean(p <= ALPHA + 1e-6, -1)


def _randomised(key: jax.Array, values: jax.Array, null: jax.Array) -> jax.Array:
    """p-values that are uniform under the null: what ties with a value counts in part."""
    values, null = (jnp.nan_to_num(x, neginf=-1e30) for x in (values, null))
    above = jnp.sum(null > values[:, None] + _TIED, 1)
    ties = jnp.sum(jnp.abs(null - values[:, None]) <= _TIED, 1)
    return (above + jax.random.uniform(key, values.shape) * (1 + ties)) / (1 + null.size)


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _in_one_program(keys: jax.Array, name: str, n: int, each: int) -> dict[str, jax.Array]:
    return jax.lax.map(lambda key: rejected(key, name, n, each), keys)


def _moments(name: str, n: int, size: Size, span: tuple[int, int]) -> dict[str, Any]:
    """Sum and sum of squares of the shares of the sets of predictions in a span."""
    keys = jax.random.split(key_of(f"power/bound/{name}/{n}"), size.sets)[span[0] : span[1]]
    if n < _FACTORED:
        shares = _in_one_program(keys, name, n, size.each)
    else:
        each = [rejected(key, name, n, size.each) for key in keys]
        shares = jax.tree.map(lambda *x: jnp.stack(x), *each)
    shares = {test: np.asarray(x, float) for test, x in shares.items()}
    return {test: [x.sum(0).tolist(), (x**2).sum(0).tolist()] for test, x in shares.items()}


def is_stored(store: Store, name: str, n: int) -> bool:
    """Whether the last cell of a model and n has been computed, by this or by other code."""
    size = size_of(name, n)
    assert size is not None
    last = (size.sets - 1) // size.per_cell * size.per_cell
    return (store.folder / "cells" / name / str(n) / f"{last}.json").exists()


def rates(store: Store, name: str, n: int) -> dict[str, dict[str, Rate]]:
    """Rejection rates by test and alternative, computed or read."""
    size, total = size_of(name, n), {}
    assert size is not None
    for first in range(0, size.sets, size.per_cell):
        span = first, min(first + size.per_cell, size.sets)
        compute = functools.partial(_moments, name, n, size, span)
        chunk = cell(store, f"{name}/{n}/{first}", {"size": size, "last": span[1]}, compute)
        for test, moments in chunk.items():
            total[test] = total.get(test, 0) + np.array(moments)
    found: dict[str, dict[str, Rate]] = {}
    for test, (sums, squares) in total.items():
        mean = sums / size.sets
        errors = np.sqrt(np.maximum(squares / size.sets - mean**2, 0) / (size.sets - 1))
        pairs = zip(MODELS[name].laws, mean, errors, strict=True)
        found[test] = {law: Rate(float(x), float(e)) for law, x, e in pairs}
    return found


def level_error(name: str, n: int) -> float:
    """Standard error of a rate of 0.05 of independent data sets."""
    size = size_of(name, n)
    assert size is not None
    return math.sqrt(ALPHA * (1 - ALPHA) / (size.sets * size.each))
