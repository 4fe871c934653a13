"""A redraw that equals the observed targets has the same value, to the last bit, in every test."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax.hypothesis_tests import aggregated, ensembles, redraws
from calibjax.streaming import skce
from tests.registry import streaming, tests_of_calibration

NUM_DRAWS, EQUAL = 10, 6  # redraws, and the one that is made equal
# These compare with other data sets, or draw something else than targets.
RESAMPLE = "bootstrap_", "spectrum_", "equivalence", "power_curve"
CALLS = {
    call.name: call
    for call in [*tests_of_calibration.calls(), *streaming.calls()]
    if "num_draws" in call.arguments and not any(name in call.name for name in RESAMPLE)
}
over_pool = redraws.over_pool


def nan_unless_equal(keys, redraw, evaluate, data, targets, batch_size, *prepared):
    """Values of a pool with one redraw that equals the observed targets; NaN if theirs differ."""
    chosen = jax.random.key_data(keys[EQUAL])

    def redrawn(data, key):
        is_chosen = jnp.all(jax.random.key_data(key) == chosen)
        return jax.tree.map(lambda y, z: jnp.where(is_chosen, y, z), targets, redraw(data, key))

    values = over_pool(keys, redrawn, evaluate, data, targets, batch_size, *prepared)
    leaves = jax.tree.leaves(values)
    assert all(len(leaf) == NUM_DRAWS + 1 for leaf in leaves)
    is_equal = jnp.array([jnp.array_equal(leaf[0], leaf[EQUAL + 1]) for leaf in leaves]).all()
    differs = jnp.array([jnp.any(leaf[0] != leaf[EQUAL]) for leaf in leaves]).any()
    return jax.tree.map(lambda leaf: jnp.where(is_equal & differs, leaf, jnp.nan), values)


@pytest.fixture
def programs():
    """Programs that are traced anew, before and after."""
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_equal_data_sets_have_equal_values(name, monkeypatch, programs):
    seen = []

    def pool(*args, **options):
        seen.append(args)
        return nan_unless_equal(*args, **options)

    for module in (redraws, ensembles, aggregated, skce):
        monkeypatch.setattr(module, "over_pool", pool)
    values = CALLS[name].values(np.float32) | {"num_draws": NUM_DRAWS}
    if "batch_size" in values:
        values["batch_size"] = 4
    result = CALLS[name].function(**values)  # a NaN is refused, or remains
    assert seen, "in another way"
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(result.statistic))
